"""IPv6 addresses in networks: those in a request, and those which the network gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of
from fakes.master import Master
from ganeti import errors
from ganeti.config import upgrade, verify
from ganeti.objects import Network, Nic, codec
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceQueryData,
    OpInstanceRemove,
    OpInstanceSetParams,
)
from ganeti.opcodes.network import OpNetworkAdd

LAN = "network-1"
ROUTED = {"mode": "routed", "link": "main", "vlan": ""}
PREFIX = "2001:db8:1::"


def master_of(network6: str | None = f"{PREFIX}/64", **changes: Any) -> Master:
    """Two nodes and the network ``lan``, whose gateway of IPv6 is its address 2."""
    network = Network(
        name="lan",
        network="203.0.113.0/29",
        network6=network6,
        gateway6=None if network6 is None else f"{PREFIX}2",
        uuid=LAN,
        serial_no=1,
    )
    data = cluster_of(2)
    group = dataclasses.replace(data.nodegroups[GROUP], networks={LAN: ROUTED})
    lan = dataclasses.replace(empty(network), **changes)
    return Master(dataclasses.replace(data, networks={LAN: lan}, nodegroups={GROUP: group}))


def create(*nics: dict[str, Any], name: str = "web", **changes: Any) -> OpInstanceCreate:
    return OpInstanceCreate(
        **{
            "instance_name": f"{name}.example.com",
            "mode": "create",
            "disk_template": "diskless",
            "disks": [],
            "nics": [{"network": "lan", **nic} for nic in nics],
            "os_type": "noop",
            "pnode": "node1",
            "no_install": True,
            "start": False,
            "name_check": False,
            "ip_check": False,
            **changes,
        }
    )


def modify(*changes: Any) -> OpInstanceSetParams:
    return OpInstanceSetParams(instance_name="web.example.com", nics=list(changes))


def nic_of(master: Master, name: str = "web") -> Nic:
    instance = master.config.instance_by_name(f"{name}.example.com")
    assert instance is not None
    return instance.nics[0]


def problems(master: Master) -> list[str]:
    """What verify says, but for the short UUIDs of the fake."""
    return [one for one in verify.check(master.config.snapshot()) if "is not a uuid" not in one]


def test_an_ipv6_address_of_its_own() -> None:
    master = master_of()
    master.run(create({"ip": f"{PREFIX}0:0:AB"}))
    assert nic_of(master).ip == f"{PREFIX}ab"
    assert AddressPool(master.config.network(LAN)).taken_addresses(external=False) == []
    assert problems(master) == []
    # Another way to write it is the same address.
    said = master.refused(create({"ip": f"{PREFIX}00ab"}, name="db"), errors.ECODE_NOTUNIQUE)
    assert f"{PREFIX}ab" in said


def test_the_network_gives_ipv6_addresses() -> None:
    """Nobody gets the address of all routers, the gateway, or an address twice."""
    master = master_of()
    for name, wanted in (("a", "1"), ("bb", "3"), ("ccc", "4")):
        master.run(create({"ip": "pool", "ip6": "pool"}, name=name))
        assert nic_of(master, name).ip6 == f"{PREFIX}{wanted}"
    assert nic_of(master, "ccc").ip == "203.0.113.3"
    assert problems(master) == []
    master.run(OpInstanceRemove(instance_name="bb.example.com"))
    master.run(create({"ip6": "pool"}))
    assert (nic_of(master).ip, nic_of(master).ip6) == (None, f"{PREFIX}3")
    env = master.rpc.of("hooks_runner")[-1][1]["env"]
    assert env["GANETI_INSTANCE_NIC0_IP6"] == f"{PREFIX}3"
    filled = master.config.filled(master.config.instances()[-1])
    assert filled.nics[0].ip6 == f"{PREFIX}3"


def test_a_range_of_ipv6_is_full() -> None:
    master = master_of(f"{PREFIX}/126")
    master.run(create({"ip6": "pool"}, {"ip6": "pool"}))
    assert "no free IPv6 address" in master.refused(
        create({"ip6": "pool"}, name="db"), errors.ECODE_NORES
    )


@pytest.mark.parametrize(
    ("nic", "ecode", "fragment"),
    [
        ({"ip": "2001:db8:2::1"}, errors.ECODE_INVAL, "is not in network lan"),
        ({"ip": f"{PREFIX}2"}, errors.ECODE_NOTUNIQUE, "in use, or reserved"),
        ({"ip": f"{PREFIX}"}, errors.ECODE_NOTUNIQUE, "in use, or reserved"),
        ({"ip": "pool", "ip6": "203.0.113.2"}, errors.ECODE_INVAL, "not an IPv6 address"),
        ({"ip": "pool", "ip6": "x"}, errors.ECODE_INVAL, "not an IPv6 address"),
        ({"network": "none", "ip6": "pool"}, errors.ECODE_INVAL, "needs a network"),
        ({}, errors.ECODE_INVAL, "needs an IP address"),
    ],
)
def test_an_address_is_refused(nic: dict[str, str], ecode: str, fragment: str) -> None:
    assert fragment in master_of().refused(create(nic), ecode)


@pytest.mark.parametrize("nic", [{"ip": f"{PREFIX}1"}, {"ip": "pool", "ip6": "pool"}])
def test_a_network_without_ipv6(nic: dict[str, str]) -> None:
    said = master_of(None).refused(
        create(nic), errors.ECODE_NORES if "ip6" in nic else errors.ECODE_INVAL
    )
    assert "no IPv6 range" in said


@pytest.mark.parametrize(
    "pair",
    [
        ({"ip": "203.0.113.3"}, {"ip": "203.0.113.3"}),
        ({"ip": "pool", "ip6": f"{PREFIX}7"}, {"ip": f"{PREFIX}7"}),
        (
            {"ip": "pool", "mac": "aa:00:00:00:00:77"},
            {"ip": "pool", "mac": "AA:00:00:00:00:77"},
        ),
    ],
)
def test_one_address_twice_in_a_request_is_refused_at_once(pair: Any) -> None:
    """It was refused at the commit, as an error of the configuration."""
    said = master_of().refused(create(*pair), errors.ECODE_NOTUNIQUE)
    assert "two network interfaces of the instance have" in said
    master = master_of()
    master.run(create({"ip": "pool"}))
    said = master.refused(
        modify(*(["add", -1, {"network": "lan", **nic}] for nic in pair)), errors.ECODE_NOTUNIQUE
    )
    assert "two network interfaces of the instance have" in said


def test_an_interface_gets_and_loses_an_ipv6_address() -> None:
    master = master_of()
    master.run(create({"ip": "pool"}))
    result = master.run(modify(["modify", 0, {"ip6": "pool"}]))
    assert ("nic.ip6/0", f"{PREFIX}1") in [tuple(row) for row in result]
    assert (nic_of(master).ip, nic_of(master).ip6) == ("203.0.113.1", f"{PREFIX}1")
    master.run(modify(["modify", 0, {"ip": "none"}]))
    assert (nic_of(master).ip, nic_of(master).ip6) == (None, f"{PREFIX}1")
    master.run(modify(["modify", 0, {"ip": "pool", "ip6": "none"}]))
    assert (nic_of(master).ip, nic_of(master).ip6) == ("203.0.113.1", None)
    assert problems(master) == []
    master.run(modify(["modify", 0, {"ip6": f"{PREFIX}9"}]))
    op = modify(["modify", 0, {"network": "none"}])
    op.conflicts_check = False
    master.run(op)
    assert (nic_of(master).ip, nic_of(master).ip6) == ("203.0.113.1", None)


def test_a_gateway_with_a_link_local_address() -> None:
    master = Master(cluster_of(2))
    master.run(
        OpNetworkAdd(
            network_name="lan",
            network="203.0.113.0/29",
            network6=f"{PREFIX}/80",
            gateway6="fe80::1",
        )
    )
    assert master.config.expand_network("lan").gateway6 == "fe80::1"


def test_another_version_has_no_ip6() -> None:
    master = master_of()
    master.run(create({"ip": "pool", "ip6": "pool"}))
    found = codec.to_dict(master.config.snapshot())
    (instance,) = found["instances"].values()
    assert instance["nics"][0]["ip6"] == f"{PREFIX}1"
    assert any(feature.name == "ip6" for feature in upgrade.own_features(found))
    (instance,) = upgrade.downgrade(found)["instances"].values()
    assert "ip6" not in instance["nics"][0]


def test_the_details_of_an_instance_have_it() -> None:
    master = master_of()
    master.run(create({"ip": "203.0.113.5", "ip6": f"{PREFIX}5"}, {"ip": "pool"}))
    found = master.run(OpInstanceQueryData(instances=["web.example.com"], static=True))
    both, one = found["web.example.com"]["nics"]
    assert (both[2], both[9:]) == ("203.0.113.5", [f"{PREFIX}5"])
    assert len(one) == 9
