"""Tap devices; real ones are in test/scenario/test_nic_modes.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import nics
from ganeti.hypervisor.net import interfaces, tap
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.objects import hvparams

MAC = "aa:00:00:12:34:56"


def nic(ip: str | None = None, **params: str) -> dict[str, Any]:
    return {"mac": MAC, "ip": ip, "nicparams": params, "uuid": "u"}


def test_unknown_mode() -> None:
    with pytest.raises(errors.HypervisorError, match="NIC mode 'magic' is not known"):
        interfaces.check(nic(mode="magic"), GuestNetwork("web1", "/nonexistent", "/nonexistent"))


@pytest.mark.parametrize(
    ("params", "flags"),
    [
        ({}, 0x0002 | 0x1000 | 0x4000),  # tap, no header, vnet_hdr
        ({"vnet_hdr": False}, 0x0002 | 0x1000),
        ({"nic_type": "e1000"}, 0x0002 | 0x1000),
        ({"virtio_net_queues": 4}, 0x0002 | 0x1000 | 0x4000 | 0x0100),
        ({"virtio_net_queues": 4, "nic_type": "e1000"}, 0x0002 | 0x1000),
    ],
)
def test_what_the_kernel_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], flags: int
) -> None:
    asked = []
    monkeypatch.setattr(tap.os, "open", lambda path, mode: 77)
    monkeypatch.setattr(tap.fcntl, "ioctl", lambda fd, what, data: asked.append((what, data)))
    features = nics.tap_features({**hvparams.defaults("kvm"), **params}, None)
    assert tap.open_tap("gnt.tap%d", features) == 77
    assert asked == [(0x400454CA, struct.pack("16sH22x", b"gnt.tap%d", flags))]
