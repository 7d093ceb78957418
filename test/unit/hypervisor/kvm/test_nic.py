"""The host's side of network cards; real interfaces are in test/scenario/test_qemu.py."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import nic

MAC = "aa:00:00:12:34:56"
ADDRESS = ["ip", "link", "set", "tap0", "address", "fe:00:00:12:34:56"]
UP = ["ip", "link", "set", "tap0", "up"]


def card(ip: str | None = None, **params: str) -> dict[str, Any]:
    return {"mac": MAC, "ip": ip, "nicparams": params, "uuid": "u"}


@pytest.mark.parametrize("one, wanted", [
    (card(mode="bridged", link="br0"),
     [ADDRESS, ["ip", "link", "set", "tap0", "master", "br0"], UP]),
    (card(mode="openvswitch", link="ovs0", vlan=".5:6:7"),
     [ADDRESS, UP, ["ovs-vsctl", "--may-exist", "add-port", "ovs0", "tap0", "tag=5",
                    "trunks=6,7"]]),
    (card(mode="openvswitch", link="ovs0", vlan=":6"),
     [ADDRESS, UP, ["ovs-vsctl", "--may-exist", "add-port", "ovs0", "tap0", "trunks=6"]]),
    (card("192.0.2.5", mode="routed", link="100"),
     [ADDRESS, UP, ["ip", "route", "replace", "192.0.2.5", "dev", "tap0", "table", "100"]]),
    (card(mode="ext"), [ADDRESS, UP]),
])
def test_commands(one: dict[str, Any], wanted: list[list[str]]) -> None:
    assert nic.up_commands("tap0", one) == wanted


def test_routed_needs_an_address() -> None:
    with pytest.raises(errors.HypervisorError, match="no IP address"):
        nic.up_commands("tap0", card(mode="routed", link=""))


def test_script_environment() -> None:
    one = card("192.0.2.5", mode="bridged", link="br0", vlan="")
    one["netinfo"] = {"name": "net1", "network": "192.0.2.0/24", "tags": ["a", "b"]}
    env = nic.script_env("tap0", 1, one, "web1", ["prod"])
    assert env.pop("PATH")
    assert env == {
        "INSTANCE": "web1", "MAC": MAC, "MODE": "bridged", "LINK": "br0", "BRIDGE": "br0",
        "INTERFACE": "tap0", "INTERFACE_INDEX": "1", "INTERFACE_UUID": "u", "TAGS": "prod",
        "ACTION": "up", "IP": "192.0.2.5", "NETWORK_NAME": "net1",
        "NETWORK_SUBNET": "192.0.2.0/24", "NETWORK_TAGS": "a b"}


def test_unknown_mode() -> None:
    with pytest.raises(errors.HypervisorError, match="NIC mode 'magic' is not known"):
        nic.check_mode(card(mode="magic"), "web1")
