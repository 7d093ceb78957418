"""Small questions about the machine."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor import host
from ganeti.utils import process
from ganeti.wire import json

ETH0 = [
    {
        "ifname": "eth0",
        "addr_info": [
            {"family": "inet6", "local": "fe80::1", "scope": "link"},
            {"family": "inet6", "local": "2001:db8::1", "scope": "global"},
            {"family": "inet", "local": "192.0.2.1", "scope": "global"},
            {"family": "inet", "local": "192.0.2.2", "scope": "global"},
        ],
    }
]


def answer(monkeypatch: pytest.MonkeyPatch, exit_code: int, devices: Any) -> None:
    monkeypatch.setattr(
        process,
        "run",
        lambda argv, **kwargs: process.Completed(
            tuple(argv), exit_code, json.dumps(devices), "", None
        ),
    )


@pytest.mark.parametrize(
    ("version", "wanted"), [(0, "192.0.2.1"), (4, "192.0.2.1"), (6, "2001:db8::1")]
)
def test_the_first_address_of_an_interface(
    monkeypatch: pytest.MonkeyPatch, version: int, wanted: str
) -> None:
    answer(monkeypatch, 0, ETH0)
    assert host.interface_address("eth0", version) == wanted


def test_interfaces_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 0, [{"ifname": "eth1", "addr_info": ETH0[0]["addr_info"][:1]}])
    with pytest.raises(errors.HypervisorError, match="interface eth1 has no IPv6 address"):
        host.interface_address("eth1", 6)
    answer(monkeypatch, 1, [])
    with pytest.raises(errors.HypervisorError, match="'eth9' is neither an address nor a network"):
        host.interface_address("eth9", 0)


@pytest.mark.parametrize("address", [None, "", "0.0.0.0", "127.0.0.1", "/run/screens", "eth0"])
def test_what_a_display_may_listen_on(address: str | None) -> None:
    host.require_own_address("vnc_bind_address", address)


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::9"])
def test_a_display_cannot_listen_on_an_address_of_another_machine(address: str) -> None:
    with pytest.raises(
        errors.HypervisorError, match=f"vnc_bind_address: {address} is not an address of this node"
    ):
        host.require_own_address("vnc_bind_address", address)
