"""Connecting interfaces: what is run and set; real networks are in test/scenario/test_nic_modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.net import link
from ganeti.platform import paths
from ganeti.wire import json

MAC = "aa:00:00:12:34:56"
ADDRESS = ["ip", "link", "set", "tap0", "address", "fe:00:00:12:34:56"]
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
EUI64 = "2001:db8:5:0:a800:ff:fe12:3456"


def card(ip: str | None = None, **params: str) -> dict[str, Any]:
    return {"mac": MAC, "ip": ip, "nicparams": params, "uuid": "u"}


def vlan(*words: str) -> list[str]:
    return ["bridge", "vlan", words[0], "dev", "tap0", "vid", *words[1:]]


@pytest.mark.parametrize(
    "one, wanted",
    [
        (
            card(mode="bridged", link="br0"),
            [ADDRESS, ["ip", "link", "set", "tap0", "master", "br0"], UP],
        ),
        (
            card(mode="bridged", link="br0", vlan=".7:8"),
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
            card(mode="bridged", link="br0", vlan="1"),
            [
                ADDRESS,
                ["ip", "link", "set", "tap0", "master", "br0"],
                vlan("add", "1", "pvid", "untagged"),
                UP,
            ],
        ),
        (card(mode="openvswitch", link="ovs0"), [ADDRESS, UP, OVS]),
        (card(mode="openvswitch", link="ovs0", vlan="5"), [ADDRESS, UP, [*OVS, "tag=5"]]),
        (card(mode="openvswitch", link="ovs0", vlan=".5"), [ADDRESS, UP, [*OVS, "tag=5"]]),
        (
            card(mode="openvswitch", link="ovs0", vlan=".5:6:7"),
            [ADDRESS, UP, [*OVS, "tag=5", "trunks=6,7", "vlan_mode=native-untagged"]],
        ),
        (card(mode="openvswitch", link="ovs0", vlan=":6"), [ADDRESS, UP, [*OVS, "trunks=6"]]),
        (
            card("192.0.2.5", mode="routed", link=""),
            [ADDRESS, UP, ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0"]],
        ),
        (
            card("192.0.2.5", mode="routed", link="100"),
            [
                ADDRESS,
                UP,
                ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0", "table", "100"],
            ],
        ),
        (
            card("2001:db8::5", mode="routed", link=""),
            [ADDRESS, UP, ["ip", "-6", "route", "replace", "2001:db8::5", "dev", "tap0"]],
        ),
        (
            card("192.0.2.5", mode="routed", link="") | {"netinfo": SUBNET6},
            [
                ADDRESS,
                UP,
                ["ip", "-4", "route", "replace", "192.0.2.5", "dev", "tap0"],
                ["ip", "-6", "route", "replace", EUI64, "dev", "tap0"],
                ["ip", "-6", "neigh", "replace", "proxy", "2001:db8:5::1", "dev", "tap0"],
            ],
        ),
        (card(mode="ext"), [ADDRESS, UP]),
    ],
)
def test_commands(one: dict[str, Any], wanted: list[list[str]]) -> None:
    assert link.up_commands("tap0", one) == wanted
    larger = ["ip", "link", "set", "tap0", "mtu", "9000"]
    assert link.up_commands("tap0", one, mtu=9000) == [wanted[0], larger, *wanted[1:]]


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
    assert link.parse_vlans(text) == wanted


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
        link.parse_vlans(text)
    one = card(mode="openvswitch", link="ovs0", vlan=text)
    with pytest.raises(errors.HypervisorError, match="NIC u in mode openvswitch"):
        link.check(one)


def test_routed_needs_an_address() -> None:
    for ip, words in ((None, "no IP address"), ("192.0.2.300", "does not appear to be")):
        with pytest.raises(errors.HypervisorError, match=words):
            link.check(card(ip, mode="routed", link=""))


def test_kernel_settings() -> None:
    v4 = {
        "/proc/sys/net/ipv4/conf/tap0/proxy_arp": "1",
        "/proc/sys/net/ipv4/conf/tap0/forwarding": "1",
    }
    v6 = {
        f"/proc/sys/net/ipv6/conf/tap0/{key}": value
        for key, value in (("accept_ra", "0"), ("proxy_ndp", "1"), ("forwarding", "1"))
    }
    one = card("192.0.2.5", mode="routed", link="")
    assert link.kernel_settings("tap0", one) == v4
    assert link.kernel_settings("tap0", one | {"netinfo": SUBNET6}) == v4 | v6
    assert link.kernel_settings("tap0", card(mode="bridged", link="br0")) == {}


def test_a_prefix_of_another_length_makes_no_address() -> None:
    one = card("192.0.2.5", mode="routed") | {"netinfo": SUBNET6 | {"network6": "2001:db8::/80"}}
    assert link.addresses(one) == ["192.0.2.5"]
    one = card(EUI64, mode="routed") | {"netinfo": SUBNET6}
    assert link.addresses(one) == [EUI64]


def test_what_is_taken_down() -> None:
    assert link.down_commands("tap0", {"MODE": "bridged", "LINK": "br0"}) == []
    assert link.down_commands("tap0", {"MODE": "openvswitch", "LINK": "ovs0"}) == [
        ["ovs-vsctl", "--timeout=20", "--if-exists", "del-port", "ovs0", "tap0"]
    ]


def test_script_environment() -> None:
    one = card("192.0.2.5", mode="bridged", link="br0", vlan="") | {
        "name": "front",
        "netinfo": SUBNET6 | {"gateway": "192.0.2.1", "mac_prefix": "aa:00:01"},
    }
    env = link.script_env("tap0", 1, one, "web1", ["prod", "db"])
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


class Place:
    """A node's directory with an administrator's program that writes down how it was called."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(str(root / "kvm"), str(root / "log"), "web1")
        Path(self.layout.nic_dir).mkdir(parents=True)
        self.script = Path(paths.current().conf_dir) / "kvm-vif-bridge"
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
def place(tmp_path: Path) -> Any:
    with paths.override(paths.Paths(str(tmp_path / "node"))):
        yield Place(tmp_path)


@pytest.mark.programs
def test_the_administrators_program_is_told_of_both_ends(place: Place) -> None:
    one = card(mode="ext", link="") | {"netinfo": SUBNET6}
    link.connect("tap7", 0, one, place.layout, ["prod"], phase=link.PHASE_PRE)
    link.connect("tap7", 0, one, place.layout, ["prod"])
    link.connect(
        "tap8", 1, card(mode="bridged", link="br0"), place.layout, [], phase=link.PHASE_PRE
    )
    link.disconnect("tap7", 3, place.layout)
    link.disconnect("tap7", 3, place.layout)  # once is enough
    assert place.calls() == [
        "tap7 up 0 ext pre a b",
        "tap7 up 0 ext - a b",
        "tap8 up 1 bridged - ",
        "tap7 down 3 ext - a b",
    ]
    assert os.listdir(place.layout.nic_dir) == [".tap8"]


@pytest.mark.programs
def test_a_failing_program_keeps_a_guest_from_starting_but_not_from_ending(place: Place) -> None:
    place.write("echo no such wire >&2; exit 3")
    with pytest.raises(errors.CommandError, match="no such wire"):
        link.connect("tap7", 0, card(mode="ext"), place.layout, [])
    link.disconnect("tap7", 0, place.layout)
    assert os.listdir(place.layout.nic_dir) == []


@pytest.mark.programs
def test_damaged_notes_are_no_obstacle(place: Place) -> None:
    notes = Path(place.layout.nic_dir) / ".tap7"
    for text in ("{", "[]", "7"):
        notes.write_text(text)
        link.disconnect("tap7", 0, place.layout)
    assert not place.said.exists()
    notes.write_text(json.dumps({"MODE": "ext"}))
    link.disconnect("tap7", 0, place.layout)
    assert place.calls() == ["tap7 down 0 ext - "]


def test_a_bridge_without_vlans_is_refused(place: Place) -> None:
    place.script.unlink()
    with pytest.raises(errors.HypervisorError, match="bridge nobr0 does not separate VLANs"):
        link.connect("tap7", 0, card(mode="bridged", link="nobr0", vlan=".7"), place.layout, [])
