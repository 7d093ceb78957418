"""Addresses of nodes, the cluster and guests: who chooses one asks who has it at that moment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.config import verify
from ganeti.constants import query as query_c
from ganeti.objects import Instance, Network, Nic
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.opcodes.cluster import OpClusterRename
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceSetParams
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkSetParams
from ganeti.opcodes.node import OpNodeAdd, OpNodeRemove, OpNodeSetParams
from ganeti.platform import hosts
from ganeti.platform.base import Machine
from ganeti.query.resources import network as network_fields
from ganeti.query.view import View

LAN = "network-1"
ROUTED = {"mode": "routed", "link": "main", "vlan": ""}
NAMES = {
    "node9.example.com": "192.0.2.9",
    "other.example.com": "192.0.2.3",
    "guest.example.com": "192.0.2.5",
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(self: Machine, name: str) -> hosts.Hostname:
        return hosts.Hostname(name, NAMES[name])

    monkeypatch.setattr(Machine, "lookup", lookup)


def guest(name: str, ip: str, network: str | None = LAN) -> Instance:
    nicparams = ROUTED if network is None else {}
    mac = f"aa:00:00:00:00:{len(name):02x}"
    nic = Nic(mac=mac, ip=ip, network=network, nicparams=nicparams, uuid=uuid_of(f"{name}-nic"))
    return instance_of(name, nics=(nic,))


def master_of(*instances: Instance, nodes: int = 2, **changes: Any) -> Master:
    """A cluster whose nodes are in the range of the network ``lan``, 192.0.2.0/28."""
    lan = empty(Network(name="lan", network="192.0.2.0/28", uuid=LAN, serial_no=1))
    inside = [nic.ip for one in instances for nic in one.nics if nic.network == LAN and nic.ip]
    lan = dataclasses.replace(AddressPool(lan).taken(inside), **changes)
    data = cluster_of(nodes, instances)
    group = dataclasses.replace(data.nodegroups[GROUP], networks={LAN: ROUTED})
    master = Master(dataclasses.replace(data, networks={LAN: lan}, nodegroups={GROUP: group}))
    master.rpc.answers["node_verify"] = {"master-ip": False}
    return master


def create(
    name: str = "new", *, ip: str = "pool", network: str | None = "lan", **changes: Any
) -> Any:
    return OpInstanceCreate(
        **{
            "instance_name": f"{name}.example.com",
            "mode": "create",
            "disk_template": "diskless",
            "disks": [],
            "nics": [{"ip": ip, **({"network": network} if network else {"mode": "routed"})}],
            "os_type": "noop",
            "pnode": "node1",
            "no_install": True,
            "start": False,
            "name_check": False,
            "ip_check": False,
            **changes,
        }
    )


def given(master: Master, name: str = "new") -> str | None:
    found = master.config.instance_by_name(f"{name}.example.com")
    assert found is not None
    return found.nics[0].ip


def bits(master: Master) -> list[str]:
    return AddressPool(master.config.expand_network("lan")).taken_addresses(external=True)


def conflicts(master: Master) -> list[str]:
    """What verify says, but for the short UUIDs of the fake."""
    return [one for one in verify.check(master.config.snapshot()) if "is not a uuid" not in one]


# -- what the pool gives -------------------------------------------------------------------------


def test_the_pool_gives_no_address_of_a_node() -> None:
    master = master_of()
    master.run(create())
    # .1 and .2 are the nodes.
    assert given(master) == "192.0.2.3"


def test_the_pool_gives_no_address_of_a_node_which_came_after_the_network() -> None:
    master = Master(cluster_of(1))
    master.run(OpNetworkAdd(network_name="lan", network="192.0.2.0/28"))
    master.rpc.answers["node_verify"] = {"master-ip": False}
    group = dataclasses.replace(
        master.config.group(GROUP), networks={master.config.expand_network("lan").uuid: ROUTED}
    )
    with master.config.transaction() as change:
        change.groups.update(group)
    master.run(OpNodeAdd(node_name="node9.example.com", primary_ip="192.0.2.2"))
    master.run(create())
    assert given(master) == "192.0.2.3"


def test_the_pool_gives_no_address_of_the_renamed_cluster() -> None:
    master = master_of()
    master.run(OpClusterRename(name="other.example.com"))
    master.run(create())
    assert given(master) == "192.0.2.4"


def test_the_pool_gives_no_address_of_a_guest_outside_of_the_network() -> None:
    master = master_of(guest("old", "192.0.2.3", None))
    master.run(create())
    assert given(master) == "192.0.2.4"


def test_an_isolated_network_has_addresses_of_its_own() -> None:
    master = master_of(guest("old", "192.0.2.3", None), isolated=True)
    master.run(create())
    assert given(master) == "192.0.2.1"
    assert conflicts(master) == []


def test_a_pool_which_others_fill_says_who() -> None:
    lan = empty(Network(name="lan", network="192.0.2.0/30", uuid=LAN, serial_no=1))
    master = master_of(
        network=lan.network,
        reservations=lan.reservations,
        ext_reservations=lan.ext_reservations,
    )
    said = master.refused(create(), errors.ECODE_NORES)
    assert "has no free address" in said
    assert "192.0.2.1, 192.0.2.2" in said
    master.run(create(conflicts_check=False))
    assert given(master) == "192.0.2.1"


@pytest.mark.parametrize(
    ("ip", "network", "owner"),
    [
        ("192.0.2.2", "lan", "node node2"),
        ("192.0.2.100", None, "the cluster cluster.example.com"),
        ("192.0.2.3", "lan", "instance old"),
    ],
)
def test_an_address_which_somebody_has_is_refused(ip: str, network: str | None, owner: str) -> None:
    master = master_of(guest("old", "192.0.2.3", None))
    said = master.refused(create(ip=ip, network=network), errors.ECODE_NOTUNIQUE)
    assert owner in said
    master.run(create(ip=ip, network=network, conflicts_check=False))
    assert given(master) == ip


def test_an_interface_takes_its_own_address_into_the_network() -> None:
    master = master_of(guest("old", "192.0.2.3", None))
    master.run(
        OpInstanceSetParams(
            instance_name="old.example.com", nics=[["modify", 0, {"network": "lan"}]]
        )
    )
    assert given(master, "old") == "192.0.2.3"
    assert conflicts(master) == []


# -- what nodes and the cluster get --------------------------------------------------------------


@pytest.mark.parametrize("network", [LAN, None])
def test_a_node_gets_no_address_of_a_guest(network: str | None) -> None:
    master = master_of(guest("web", "192.0.2.9", network))
    said = master.refused(OpNodeAdd(node_name="node9.example.com"), errors.ECODE_NOTUNIQUE)
    assert "192.0.2.9" in said
    assert "instance web.example.com" in said
    assert ("--conflicts-check=no lan" in said) == (network is not None)


def test_a_node_gets_no_address_of_the_cluster() -> None:
    op = OpNodeAdd(node_name="node9.example.com", primary_ip="192.0.2.100")
    assert "the cluster" in master_of().refused(op, errors.ECODE_NOTUNIQUE)


def test_a_network_is_declared_isolated() -> None:
    master = master_of(guest("web", "192.0.2.9"))
    master.run(OpNetworkSetParams(network_name="lan", conflicts_check=False))
    master.run(OpNodeAdd(node_name="node9.example.com"))
    assert conflicts(master) == []
    master.run(OpNetworkSetParams(network_name="lan", conflicts_check=True))
    assert master.config.expand_network("lan").isolated is None
    assert any("192.0.2.9" in problem for problem in conflicts(master))


def test_the_secondary_address_of_a_node_is_of_no_guest() -> None:
    master = master_of(guest("web", "192.0.2.9"), nodes=1)
    op = OpNodeSetParams(node_name="node1", secondary_ip="192.0.2.9")
    assert "instance web" in master.refused(op, errors.ECODE_NOTUNIQUE)


def test_the_cluster_gets_no_address_of_a_guest() -> None:
    master = master_of(guest("web", "192.0.2.5"))
    said = master.refused(OpClusterRename(name="guest.example.com"), errors.ECODE_NOTUNIQUE)
    assert "instance web.example.com" in said


# -- afterwards ----------------------------------------------------------------------------------


def test_the_address_of_a_removed_node_is_free_again() -> None:
    master = Master(cluster_of(2))
    master.run(OpNetworkAdd(network_name="lan", network="192.0.2.0/28"))
    assert "192.0.2.2" in bits(master)
    master.run(OpNodeRemove(node_name="node2"))
    assert bits(master) == ["192.0.2.0", "192.0.2.1", "192.0.2.15"]


def test_the_former_address_of_the_cluster_is_free_again() -> None:
    master = Master(cluster_of(1))
    master.rpc.answers["node_verify"] = {"master-ip": False}
    master.run(OpNetworkAdd(network_name="lan", network="192.0.2.0/24"))
    assert "192.0.2.100" in bits(master)
    master.run(OpClusterRename(name="other.example.com"))
    assert "192.0.2.100" not in bits(master)


def test_verify_names_both_owners_of_an_address() -> None:
    master = master_of(
        guest("a", "192.0.2.2"), guest("bb", "192.0.2.7"), guest("ccc", "192.0.2.7", None)
    )
    problems = conflicts(master)
    assert "instance a.example.com: nic 0 has address 192.0.2.2 of node node2.example.com" in (
        problems
    )
    assert any("192.0.2.7 of network lan is used by instance ccc" in one for one in problems)
    assert len(problems) == 2


def test_the_shown_pool_has_what_it_would_give() -> None:
    fields = {field.name: field for field in network_fields.RESOURCE.fields.values()}
    view = View(master_of().config.snapshot())
    network = view.config.networks[LAN]
    shown = {name: fields[name].get(view, network) for name in ("map", "free_count")}
    assert shown == {"map": "XXX............X", "free_count": 12}
    others = fields["external_reservations"].get(view, network)
    assert others == "192.0.2.0, 192.0.2.1, 192.0.2.2, 192.0.2.15"
    assert network_fields.RESOURCE.name == query_c.NETWORK
