"""Connecting interfaces: what is run and set; real networks are in test/scenario/test_nic_modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.net import connect as connections
from ganeti.hypervisor.net import route, script, veth
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.hypervisor.net.vlan import parse_vlans
from ganeti.platform import paths
from ganeti.wire import json

MAC = "aa:00:00:12:34:56"
ADDRESS = ["ip", "link", "set", "tap0", "address", "fe:ff:ff:12:34:56"]
UP = ["ip", "link", "set", "tap0", "up"]
OVS = [
    "ovs-vsctl",
    "--timeout=20",
    "--if-exists",
    "del-port",
    "tap0",
    "--",
    "add-port",
    "ovs0",
    "tap0",
]
SUBNET6 = {
    "name": "net6",
    "uuid": "n",
    "network": "192.0.2.0/24",
    "network6": "2001:db8:5::/64",
    "gateway6": "2001:db8:5::1",
    "tags": ["a", "b"],
}
NOWHERE = GuestNetwork("web1", "/nonexistent", "/nonexistent/kvm-vif-bridge")
EUI64 = "2001:db8:5:0:a800:ff:fe12:3456"


def nic(ip: str | None = None, **params: str) -> dict[str, Any]:
    return {"mac": MAC, "ip": ip, "nicparams": params, "uuid": "u"}


def vlan(*words: str) -> list[str]:
    return ["bridge", "vlan", words[0], "dev", "tap0", "vid", *words[1:]]


@pytest.mark.parametrize(
    "one, wanted",
    [
        (
            nic(mode="bridged", link="br0"),
            [ADDRESS, ["ip", "link", "set", "tap0", "master", "br0"], UP],
        ),
        (
            nic(mode="bridged", link="br0", vlan=".7:8"),
            [
                ADDRESS,
                ["ip", "link", "set", "tap0", "master", "br0"],
                vlan("del", "1"),
                vlan("add", "7", "pvid", "untagged"),
                vlan("add", "8"),
                UP,
            ],
        ),
        (
            nic(mode="bridged", link="br0", vlan="1"),
            [
                ADDRESS,
                ["ip", "link", "set", "tap0", "master", "br0"],
                vlan("add", "1", "pvid", "untagged"),
                UP,
            ],
        ),
        (nic(mode="openvswitch", link="ovs0"), [ADDRESS, UP, OVS]),
        (nic(mode="openvswitch", link="ovs0", vlan="5"), [ADDRESS, UP, [*OVS, "tag=5"]]),
        (nic(mode="openvswitch", link="ovs0", vlan=".5"), [ADDRESS, UP, [*OVS, "tag=5"]]),
        (
            nic(mode="openvswitch", link="ovs0", vlan=".5:6:7"),
            [ADDRESS, UP, [*OVS, "tag=5", "trunks=6,7", "vlan_mode=native-untagged"]],
        ),
        (nic(mode="openvswitch", link="ovs0", vlan=":6"), [ADDRESS, UP, [*OVS, "trunks=6"]]),
        (
            nic("192.0.2.5", mode="routed", link=""),
            [ADDRESS, UP, ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0"]],
        ),
        (
            nic("192.0.2.5", mode="routed", link="100"),
            [
                ADDRESS,
                UP,
                ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0", "table", "100"],
            ],
        ),
        (
            nic("2001:db8::5", mode="routed", link=""),
            [ADDRESS, UP, ["ip", "-6", "route", "replace", "2001:db8::5", "dev", "tap0"]],
        ),
        (
            nic("192.0.2.5", mode="routed", link="") | {"netinfo": SUBNET6},
            [
                ADDRESS,
                UP,
                ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0"],
                ["ip", "-6", "route", "replace", EUI64, "dev", "tap0"],
                ["ip", "-6", "neigh", "replace", "proxy", "2001:db8:5::1", "dev", "tap0"],
            ],
        ),
        (nic(mode="ext"), [ADDRESS, UP]),
    ],
)
def test_commands(one: dict[str, Any], wanted: list[list[str]]) -> None:
    assert connections.up_argvs("tap0", one) == wanted
    larger = ["ip", "link", "set", "tap0", "mtu", "9000"]
    assert connections.up_argvs("tap0", one, mtu=9000) == [wanted[0], larger, *wanted[1:]]


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", (None, ())),
        ("7", (7, ())),
        (".7", (7, ())),
        (":8:9", (None, (8, 9))),
        (".7:8:9", (7, (8, 9))),
        ("7:8", (7, (8,))),
        (".4094", (4094, ())),
    ],
)
def test_vlans(text: str, wanted: tuple[int | None, tuple[int, ...]]) -> None:
    assert parse_vlans(text) == wanted


@pytest.mark.parametrize(
    "text, words",
    [
        ("x", "'x' is not a VLAN like"),
        (".", "is not a VLAN"),
        (":", "is not a VLAN"),
        ("7:", "is not a VLAN"),
        ("..7", "is not a VLAN"),
        ("7;reboot", "is not a VLAN"),
        ("0", "VLAN 0 is not between"),
        ("4095", "VLAN 4095 is not between"),
        (".7:99999", "VLAN 99999 is not between 1 and 4094"),
    ],
)
def test_what_is_no_vlan(text: str, words: str) -> None:
    with pytest.raises(errors.HypervisorError, match=words):
        parse_vlans(text)
    one = nic(mode="openvswitch", link="ovs0", vlan=text)
    with pytest.raises(errors.HypervisorError, match="NIC u in mode openvswitch"):
        connections.check(one, NOWHERE)


def test_routed_needs_an_address() -> None:
    for ip, words in ((None, "no IP address"), ("192.0.2.300", "does not appear to be")):
        with pytest.raises(errors.HypervisorError, match=words):
            connections.check(nic(ip, mode="routed", link=""), NOWHERE)


def test_kernel_settings() -> None:
    v4 = {
        "/proc/sys/net/ipv4/conf/tap0/proxy_arp": "1",
        "/proc/sys/net/ipv4/conf/tap0/forwarding": "1",
    }
    v6 = {
        f"/proc/sys/net/ipv6/conf/tap0/{key}": value
        for key, value in (("accept_ra", "0"), ("proxy_ndp", "1"), ("forwarding", "1"))
    }
    one = nic("192.0.2.5", mode="routed", link="")
    assert connections.kernel_settings("tap0", one) == v4
    assert connections.kernel_settings("tap0", one | {"netinfo": SUBNET6}) == v4 | v6
    assert connections.kernel_settings("tap0", nic(mode="bridged", link="br0")) == {}


def test_a_prefix_of_another_length_makes_no_address() -> None:
    one = nic("192.0.2.5", mode="routed") | {"netinfo": SUBNET6 | {"network6": "2001:db8::/80"}}
    assert route.addresses(one) == ["192.0.2.5"]
    one = nic(EUI64, mode="routed") | {"netinfo": SUBNET6}
    assert route.addresses(one) == [EUI64]


def test_what_is_taken_down() -> None:
    assert connections.down_argvs("tap0", {"MODE": "bridged", "LINK": "br0"}) == []
    assert connections.down_argvs("tap0", {"MODE": "openvswitch", "LINK": "ovs0"}) == [
        ["ovs-vsctl", "--timeout=20", "--if-exists", "del-port", "ovs0", "tap0"]
    ]


def test_script_environment() -> None:
    one = nic("192.0.2.5", mode="bridged", link="br0", vlan="") | {
        "name": "front",
        "netinfo": SUBNET6 | {"gateway": "192.0.2.1", "mac_prefix": "aa:00:01"},
    }
    env = script.environment("tap0", 1, one, "web1", ["prod", "db"])
    assert env.pop("PATH")
    assert env == {
        "INSTANCE": "web1",
        "MAC": MAC,
        "MODE": "bridged",
        "LINK": "br0",
        "BRIDGE": "br0",
        "INTERFACE": "tap0",
        "INTERFACE_INDEX": "1",
        "INTERFACE_UUID": "u",
        "TAGS": "prod db",
        "INTERFACE_NAME": "front",
        "ACTION": "up",
        "IP": "192.0.2.5",
        "NETWORK_NAME": "net6",
        "NETWORK_UUID": "n",
        "NETWORK_SUBNET": "192.0.2.0/24",
        "NETWORK_GATEWAY": "192.0.2.1",
        "NETWORK_SUBNET6": "2001:db8:5::/64",
        "NETWORK_GATEWAY6": "2001:db8:5::1",
        "NETWORK_MAC_PREFIX": "aa:00:01",
        "NETWORK_TAGS": "a b",
    }


class Node:
    """A node's directory with an administrator's program that writes down how it was called."""

    def __init__(self, root: Path) -> None:
        self.script = Path(paths.current().conf_dir) / "kvm-vif-bridge"
        self.guest = GuestNetwork("web1", str(root / "nic" / "web1"), str(self.script), ["prod"])
        Path(self.guest.directory).mkdir(parents=True)
        self.script.parent.mkdir(parents=True)
        self.said = root / "said"
        self.write(
            f'echo "$1 $ACTION $INTERFACE_INDEX $MODE ${{MIGRATION_PHASE:--}} '
            f'$NETWORK_TAGS" >> {self.said}'
        )

    def write(self, line: str) -> None:
        self.script.write_text(f"#!/bin/sh\n{line}\n")
        self.script.chmod(self.script.stat().st_mode | stat.S_IXUSR)

    def calls(self) -> list[str]:
        return self.said.read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Any:
    with paths.override(paths.Paths(str(tmp_path / "node"))):
        yield Node(tmp_path)


@pytest.mark.programs
def test_the_administrators_program_runs_on_both_nodes(node: Node) -> None:
    one = nic(mode="ext", link="") | {"netinfo": SUBNET6}
    connections.connect("tap7", 0, one, node.guest, phase=script.PHASE_PRE)
    connections.connect("tap7", 0, one, node.guest)
    connections.connect(
        "tap8", 1, nic(mode="bridged", link="br0"), node.guest, phase=script.PHASE_PRE
    )
    connections.disconnect("tap7", 3, node.guest)
    connections.disconnect("tap7", 3, node.guest)  # once is enough
    assert node.calls() == [
        "tap7 up 0 ext pre a b",
        "tap7 up 0 ext - a b",
        "tap8 up 1 bridged - ",
        "tap7 down 3 ext - a b",
    ]
    assert os.listdir(node.guest.directory) == [".tap8"]


@pytest.mark.programs
def test_a_failing_program_keeps_a_guest_from_starting_but_not_from_ending(node: Node) -> None:
    node.write("echo no such wire >&2; exit 3")
    with pytest.raises(errors.CommandError, match="no such wire"):
        connections.connect("tap7", 0, nic(mode="ext"), node.guest)
    connections.disconnect("tap7", 0, node.guest)
    assert os.listdir(node.guest.directory) == []


@pytest.mark.programs
def test_damaged_notes_are_no_obstacle(node: Node) -> None:
    notes = Path(node.guest.directory) / ".tap7"
    for text in ("{", "[]", "7"):
        notes.write_text(text)
        connections.disconnect("tap7", 0, node.guest)
    assert not node.said.exists()
    notes.write_text(json.dumps({"MODE": "ext"}))
    connections.disconnect("tap7", 0, node.guest)
    assert node.calls() == ["tap7 down 0 ext - "]


def test_a_bridge_without_vlans_is_refused(node: Node) -> None:
    node.script.unlink()
    with pytest.raises(errors.HypervisorError, match="bridge nobr0 does not separate VLANs"):
        connections.connect("tap7", 0, nic(mode="bridged", link="nobr0", vlan=".7"), node.guest)


def test_an_interface_is_given_to_a_container() -> None:
    text = "Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0:12 0\n"
    assert veth.parse_interfaces(text) == {"lo", "eth0"}
    assert veth.give_argvs("gnt.tap0p", 12, "eth1") == [
        ["ip", "link", "set", "gnt.tap0p", "netns", "12", "name", "eth1"],
        ["nsenter", "--target=12", "--net", "ip", "link", "set", "eth1", "up"],
    ]
