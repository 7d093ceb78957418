"""The host's side of network cards; real interfaces are in test/scenario/test_nic_modes.py."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import nic

MAC = "aa:00:00:12:34:56"


def card(ip: str | None = None, **params: str) -> dict[str, Any]:
    return {"mac": MAC, "ip": ip, "nicparams": params, "uuid": "u"}


def test_unknown_mode() -> None:
    with pytest.raises(errors.HypervisorError, match="NIC mode 'magic' is not known"):
        nic.check_mode(card(mode="magic"), "web1")
