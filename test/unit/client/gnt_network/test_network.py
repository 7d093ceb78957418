"""``gnt-network``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt, fields_of

LAN: dict[str, Any] = {
    "name": "net1",
    "network": "203.0.113.0/28",
    "gateway": "203.0.113.1",
    "network6": None,
    "gateway6": None,
    "mac_prefix": "aa:bb:cc",
    "free_count": 10,
    "reserved_count": 6,
    "map": "XXXX.X.........X",
    "group_list": [["default", "bridged", "br0", ""], ["rack2", "routed", "main", ""]],
    "inst_list": ["web1"],
    "external_reservations": "203.0.113.0, 203.0.113.15",
    "external_reservations6": ["2001:db8::5", "2001:db8::100/120"],
    "serial_no": 3,
    "uuid": "u-1",
    "tags": ["dmz"],
}


@pytest.fixture(autouse=True)
def _networks(master: FakeMaster) -> None:
    master.fields["network"] = fields_of("network")
    master.rows["network"] = [LAN]
    master.rows["group"] = [{"name": "default"}, {"name": "rack2"}]
    master.rows["instance"] = [
        {"name": "web1", "nic.ips": ["203.0.113.5", None], "nic.networks": ["u-1", None]}
    ]
    master.answers["QueryClusterInfo"] = lambda: {
        "nicparams": {"default": {"mode": "bridged", "link": "xen-br0", "vlan": ""}}
    }


def test_list(gnt: Gnt) -> None:
    title, row = gnt("network list").out.splitlines()
    assert title.split() == ["Network", "Subnet", "Gateway", "MacPrefix", "GroupList", "Tags"]
    assert row == (
        "net1    203.0.113.0/28 203.0.113.1 aa:bb:cc "
        " default (bridged, br0, ), rack2 (routed, main, ) dmz"
    )


def test_info(gnt: Gnt) -> None:
    assert (
        gnt("network info").out
        == """\
Network name: net1
UUID: u-1
Serial number: 3
  Subnet: 203.0.113.0/28
  Gateway: 203.0.113.1
  IPv6 Subnet: None
  IPv6 Gateway: None
  Mac Prefix: aa:bb:cc
  Size: 16
  Free: 10 (62.50%)
  Usage map:
        0 XXXX.X.........X                                                 63
         (X) used    (.) free
  externally reserved IPs:
    203.0.113.0, 203.0.113.15
  externally reserved IPv6 addresses:
    2001:db8::5, 2001:db8::100/120
  connected to node groups:
    default (mode:bridged link:br0 vlan:)
    rack2 (mode:routed link:main vlan:)
  used by 1 instances:
    web1: 0:203.0.113.5
"""
    )
    (info,) = json.loads(gnt("network info --output json").out)
    assert info["inst_list"] == ["web1"]


def test_info_of_a_large_one_that_nobody_uses(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["network"] = [
        {
            **LAN,
            "map": "X" + "." * 254 + "X",
            "inst_list": [],
            "group_list": [],
            "external_reservations": "",
            "external_reservations6": [],
        }
    ]
    lines = gnt("network info").out.splitlines()
    assert lines[12].startswith("       64 ....")
    assert lines[12].endswith(" 127")
    assert lines[-2:] == ["  not connected to any node group", "  not used by any instances"]
    assert "  externally reserved IPs:" not in lines


def test_add(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NETWORK_ADD"] = None
    assert (
        gnt(
            "network add --network 203.0.113.0/28 --gateway 203.0.113.1 -m aa:bb:cc"
            " --network6 2001:db8::/64 --gateway6 2001:db8::1 --tags a,b"
            " --add-reserved-ips 203.0.113.2,203.0.113.3 --no-conflicts-check lan"
        ).code
        == 0
    )
    op = master.opcode()
    assert (
        op["network_name"],
        op["network"],
        op["tags"],
        op["add_reserved_ips"],
        op["conflicts_check"],
        op["mac_prefix"],
        op["gateway6"],
    ) == (
        "lan",
        "203.0.113.0/28",
        ["a", "b"],
        ["203.0.113.2", "203.0.113.3"],
        False,
        "aa:bb:cc",
        "2001:db8::1",
    )
    assert "--network ADDRESS/BITS" in gnt("network add lan").err


def test_modify(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NETWORK_SET_PARAMS"] = None
    assert gnt("network modify --remove-reserved-ips 203.0.113.3 -m none net1").code == 0
    op = master.opcode()
    assert (op["remove_reserved_ips"], op["add_reserved_ips"], op["mac_prefix"]) == (
        ["203.0.113.3"],
        None,
        "none",
    )
    assert gnt("network modify net1") == (1, "", "Please give at least one of the parameters.\n")


def test_reserved_addresses_of_both_versions(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NETWORK_SET_PARAMS"] = None
    added = "2001:db8::5,203.0.113.4,2001:db8::100/120"
    command = f"network modify --add-reserved-ips {added} --remove-reserved-ips 2001:db8::9 net1"
    assert gnt(command).code == 0
    op = master.opcode()
    assert (op["add_reserved_ips"], op["add_reserved_ips6"]) == (
        ["203.0.113.4"],
        ["2001:db8::5", "2001:db8::100/120"],
    )
    assert (op["remove_reserved_ips"], op["remove_reserved_ips6"]) == (None, ["2001:db8::9"])


def test_connect(gnt: Gnt, master: FakeMaster) -> None:
    """To all groups when none is named, with the cluster's defaults for what is not given."""
    master.results["OP_NETWORK_CONNECT"] = None
    assert gnt("network connect -N link=br7 net1").code == 0
    assert [
        (
            op["group_name"],
            op["more_groups"],
            op["network_mode"],
            op["network_link"],
            op["network_vlan"],
            op["conflicts_check"],
        )
        for op in master.opcodes()
    ] == [("default", ["rack2"], "bridged", "br7", "", True)]
    assert gnt("network connect -N link=br7 net1 rack2").code == 0
    assert "more_groups" not in master.opcodes()[-1]
    assert gnt("network connect -N colour=red net1").code == 1


def test_a_default_mode_that_no_network_has(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryClusterInfo"] = lambda: {
        "nicparams": {"default": {"mode": "user", "link": "", "vlan": ""}}
    }
    assert "-N mode=bridged,link=BRIDGE" in gnt("network connect net1").err
    assert master.jobs == {}


def test_the_rest(gnt: Gnt, master: FakeMaster) -> None:
    for line, op_id, wanted in (
        (
            "disconnect net1 rack2",
            "OP_NETWORK_DISCONNECT",
            {"network_name": "net1", "group_name": "rack2"},
        ),
        ("remove -f net1", "OP_NETWORK_REMOVE", {"network_name": "net1", "force": True}),
        ("rename net1 net2", "OP_NETWORK_RENAME", {"network_name": "net1", "new_name": "net2"}),
    ):
        master.results[op_id] = None
        assert gnt(f"network {line}").code == 0
        op = master.opcodes()[-1]
        assert {key: op[key] for key in wanted} == wanted
