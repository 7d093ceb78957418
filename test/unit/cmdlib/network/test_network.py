"""Networks: add, change, connect, remove; and what interfaces get from them."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import GROUP, cluster_of, commit, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.locking import Level
from ganeti.objects import Network, Nic, updated
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.opcodes.group import OpGroupAdd, OpGroupAssignNodes
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceRemove
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkRename,
    OpNetworkSetParams,
)

LAN = "network-1"
ROUTED = {"mode": "routed", "link": "main", "vlan": ""}


def master_of(*instances, connected=True, connection=None, **changes):
    """Two nodes and the network ``lan``, 203.0.113.0/29 with gateway .1."""
    data = cluster_of(2, instances)
    lan = empty(
        Network(
            **{
                "name": "lan",
                "network": "203.0.113.0/29",
                "gateway": "203.0.113.1",
                "uuid": LAN,
                "serial_no": 1,
                **changes,
            }
        )
    )
    group = data.nodegroups[GROUP]
    if connected:
        group = dataclasses.replace(group, networks={LAN: connection or ROUTED})
    return Master(dataclasses.replace(data, networks={LAN: lan}, nodegroups={GROUP: group}))


def inside(name="web", ip="203.0.113.2"):
    nic = Nic(mac="aa:00:00:00:00:01", ip=ip, network=LAN, nicparams={}, uuid=uuid_of("nic"))
    return instance_of(name, nics=(nic,))


def lan(master):
    return master.config.expand_network("lan")


# -- add -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (
            {"network": "203.0.113.0/29"},
            "network two (203.0.113.0/29) has addresses of network lan",
        ),
        ({"network": "203.0.112.0/23"}, "(203.0.112.0/23) has addresses of network lan"),
        (
            {"network": "198.51.100.0/24", "network6": "2001:db8::/80"},
            "(2001:db8::/80) has addresses of network lan (2001:db8::/64)",
        ),
        ({"network": "203.0.113.8/29", "network6": "2001:db8:1::/64"}, ""),
    ],
)
def test_the_same_addresses_in_two_networks_are_a_warning(ranges, words):
    master = master_of(network6="2001:db8::/64")
    master.run(OpNetworkAdd(network_name="two", **ranges))
    assert master.config.expand_network("two").network == ranges["network"]
    warned = [line for line in master.job.log if "WARNING" in line]
    assert len(warned) == bool(words) and all(words in line for line in warned)
    assert master.job.said("'gnt-network connect'") == bool(words)


def test_add():
    master = Master(cluster_of(2))
    assert (
        master.run(
            OpNetworkAdd(
                network_name="lan",
                network="203.0.113.5/28",
                gateway="203.0.113.1",
                network6="2001:db8::/64",
                gateway6="2001:db8::1",
                mac_prefix="AA-BB-CC",
                add_reserved_ips=["203.0.113.7"],
                tags=["b", "a"],
            )
        )
        is None
    )
    network = lan(master)
    assert (network.network, network.mac_prefix, network.tags) == (
        "203.0.113.0/28",
        "aa:bb:cc",
        ("a", "b"),
    )
    assert AddressPool(network).taken_addresses(external=True) == [
        f"203.0.113.{n}" for n in (0, 1, 7, 15)
    ]
    assert network.uuid in master.locks.keys(Level.NETWORK)
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert {key: value for key, value in env.items() if "_NETWORK_" in key} == {
        "GANETI_NETWORK_NAME": "lan",
        "GANETI_NETWORK_SUBNET": "203.0.113.0/28",
        "GANETI_NETWORK_GATEWAY": "203.0.113.1",
        "GANETI_NETWORK_SUBNET6": "2001:db8::/64",
        "GANETI_NETWORK_GATEWAY6": "2001:db8::1",
        "GANETI_NETWORK_MAC_PREFIX": "aa:bb:cc",
        "GANETI_NETWORK_TAGS": "a b",
    }


@pytest.mark.parametrize(("check", "reserved"), [(True, ["1", "2", "100"]), (False, [])])
def test_addresses_of_the_cluster_itself(check, reserved):
    master = Master(cluster_of(2))
    master.run(OpNetworkAdd(network_name="lan", network="192.0.2.0/24", conflicts_check=check))
    taken = AddressPool(lan(master)).taken_addresses(external=True)
    assert taken[1:-1] == [f"192.0.2.{n}" for n in reserved]


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"network_name": "lan"}, errors.ECODE_EXISTS, "already exists"),
        ({"network_name": "l an"}, errors.ECODE_INVAL, "blanks"),
        ({"network": "10.0.0.0/8"}, errors.ECODE_INVAL, "/16"),
        ({"network": "10.0.0.0/31"}, errors.ECODE_INVAL, "/30"),
        ({"gateway": "192.0.2.1"}, errors.ECODE_INVAL, "not in network"),
        ({"gateway6": "2001:db8::1"}, errors.ECODE_INVAL, "needs an IPv6 network"),
        ({"gateway6": "2001:db8::1", "network6": "2001:db9::/64"}, errors.ECODE_INVAL, "not in"),
        ({"mac_prefix": "aa:bb"}, errors.ECODE_INVAL, "aa:bb"),
        ({"mac_prefix": "ab:bb:cc"}, errors.ECODE_INVAL, "unicast"),
        ({"add_reserved_ips": ["192.0.2.7"]}, errors.ECODE_INVAL, "192.0.2.7"),
        ({"tags": ["a b"]}, errors.ECODE_INVAL, "a b"),
    ],
)
def test_a_network_is_refused(changes, ecode, fragment):
    op = OpNetworkAdd(**{"network_name": "new", "network": "198.51.100.0/28", **changes})
    assert fragment in master_of().refused(op, ecode)


# -- change ----------------------------------------------------------------------


def test_set_params():
    master = master_of()
    assert (
        master.run(
            OpNetworkSetParams(
                network_name="lan",
                gateway="203.0.113.3",
                network6="2001:db8::/64",
                gateway6="2001:db8::1",
                mac_prefix="aa:bb:cc",
                add_reserved_ips=["203.0.113.5"],
            )
        )
        is None
    )
    network = lan(master)
    assert (network.gateway, network.gateway6, network.mac_prefix, network.serial_no) == (
        "203.0.113.3",
        "2001:db8::1",
        "aa:bb:cc",
        2,
    )
    assert AddressPool(network).map == "X..X.X.X"
    master.run(
        OpNetworkSetParams(
            network_name="lan",
            mac_prefix="none",
            remove_reserved_ips=["203.0.113.5", "203.0.113.3", "203.0.113.4"],
        )
    )
    assert lan(master).mac_prefix is None
    assert AddressPool(lan(master)).map == "X..X...X"
    assert master.job.said("203.0.113.3 of network lan is its gateway")
    assert master.job.said("203.0.113.4 of network lan is not reserved")


def test_what_instances_have_stays():
    master = master_of(inside())
    network = lan(master)
    commit(master.config).networks.update(
        updated(AddressPool(network).taken(["203.0.113.2"]), serial_no=network.serial_no)
    )
    master.run(OpNetworkSetParams(network_name="lan", add_reserved_ips=["203.0.113.2"]))
    assert master.job.said("belongs to an instance, which keeps it")
    assert "belongs to an instance" in master.refused(
        OpNetworkSetParams(network_name="lan", gateway="203.0.113.2"), errors.ECODE_STATE
    )


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({}, "no change"),
        ({"add_reserved_ips": ["203.0.113.5"], "remove_reserved_ips": ["203.0.113.5"]}, "both"),
        ({"remove_reserved_ips": ["203.0.113.0"]}, "cannot become free"),
        ({"gateway": "192.0.2.1"}, "not in network"),
        ({"gateway6": "2001:db8::1"}, "IPv6 network"),
        ({"mac_prefix": "zz"}, "zz"),
    ],
)
def test_a_change_is_refused(changes, fragment):
    assert fragment in master_of().refused(
        OpNetworkSetParams(network_name="lan", **changes), errors.ECODE_INVAL
    )


# -- connect ---------------------------------------------------------------------


def test_connect_and_disconnect():
    master = master_of(connected=False)
    master.run(
        OpNetworkConnect(
            network_name="lan",
            group_name="default",
            network_mode="bridged",
            network_link="br0",
            network_vlan="7",
        )
    )
    assert master.config.group(GROUP).networks == {
        LAN: {"mode": "bridged", "link": "br0", "vlan": "7"}
    }
    assert [node for name, _phase, node in master.rpc.hooks() if name == "network-connect"] == [
        f"node{n}.example.com" for n in (1, 2, 1, 2)
    ]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (
        env["GANETI_GROUP_NAME"],
        env["GANETI_GROUP_NETWORK_MODE"],
        env["GANETI_GROUP_NETWORK_LINK"],
        env["GANETI_GROUP_NETWORK_VLAN"],
    ) == ("default", "bridged", "br0", "7")
    writes = len(master.config.writes)
    master.run(
        OpNetworkConnect(
            network_name="lan", group_name="default", network_mode="routed", network_link="x"
        )
    )
    assert master.job.said("already")
    assert len(master.config.writes) == writes
    master.run(OpNetworkDisconnect(network_name="lan", group_name="default"))
    assert master.config.group(GROUP).networks == {}
    master.run(OpNetworkDisconnect(network_name="lan", group_name="default"))
    assert master.job.said("is not connected")


def test_a_node_without_the_bridge_of_a_connection_is_named():
    master = master_of(connected=False)
    master.rpc.answers["node_verify"] = lambda node, args: {
        "bridges": args["checks"]["bridges"] if node.startswith("node2") else []
    }
    connect = OpNetworkConnect(
        group_name="default", network_name="lan", network_mode="bridged", network_link="br7"
    )
    master.run(connect)
    assert master.config.group(GROUP).networks[LAN]["link"] == "br7"
    assert master.job.said("node2.example.com: it has no bridge br7, so instances with")
    assert not master.job.said("node1.example.com: it has no")


def two_groups(*instances):
    """The second node in a group of its own; the network is connected to no group."""
    master = master_of(*instances, connected=False)
    master.run(OpGroupAdd(group_name="rack2"))
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node2"]))
    return master


def connections(master):
    return {group.name: dict(group.networks) for group in master.config.groups()}


def test_several_groups_are_connected_together():
    master = two_groups()
    op = OpNetworkConnect(
        network_name="lan",
        group_name="default",
        more_groups=["rack2", "default"],
        network_mode="routed",
        network_link="main",
    )
    writes = len(master.config.writes)
    master.run(op)
    assert connections(master) == {"default": {LAN: ROUTED}, "rack2": {LAN: ROUTED}}
    assert len(master.config.writes) == writes + 1
    # Each node is informed about its own group.
    names = {
        (node, args["phase"]): args["env"]["GANETI_GROUP_NAME"]
        for node, args in master.rpc.of("hooks_runner")
        if args["hpath"] == "network-connect"
    }
    groups = {"node1.example.com": "default", "node2.example.com": "rack2"}
    assert names == {(node, phase): groups[node] for node in groups for phase in ("pre", "post")}
    master.run(OpNetworkDisconnect(network_name="lan", group_name="default", more_groups=["rack2"]))
    assert connections(master) == {"default": {}, "rack2": {}}


def test_no_group_is_changed_when_one_cannot_be():
    nic = Nic(mac="aa:00:00:00:00:01", ip="203.0.113.4", nicparams={}, uuid=uuid_of("nic"))
    master = two_groups(instance_of("web", "node2", nics=(nic,)))
    op = OpNetworkConnect(
        network_name="lan",
        group_name="default",
        more_groups=["rack2"],
        network_mode="routed",
        network_link="main",
    )
    assert "rack2 have addresses" in master.refused(op, errors.ECODE_STATE)
    assert connections(master) == {"default": {}, "rack2": {}}
    op.more_groups = ["nosuch"]
    assert "nosuch" in master.refused(op, errors.ECODE_NOENT)
    assert connections(master) == {"default": {}, "rack2": {}}


def test_no_group_is_disconnected_when_one_uses_the_network():
    master = two_groups(inside())
    data = master.config.snapshot()
    for group in data.nodegroups.values():
        with_lan = dataclasses.replace(group, networks={LAN: ROUTED})
        commit(master.config).groups.update(with_lan)
    op = OpNetworkDisconnect(network_name="lan", group_name="rack2", more_groups=["default"])
    assert "web.example.com" in master.refused(op, errors.ECODE_STATE)
    assert connections(master) == {"default": {LAN: ROUTED}, "rack2": {LAN: ROUTED}}


def test_addresses_that_are_used_outside_of_the_network():
    nic = Nic(mac="aa:00:00:00:00:01", ip="203.0.113.4", nicparams={}, uuid=uuid_of("nic"))
    master = master_of(instance_of("web", nics=(nic,)), connected=False)
    op = OpNetworkConnect(
        network_name="lan", group_name="default", network_mode="routed", network_link="main"
    )
    assert "web.example.com (interface 0, 203.0.113.4)" in master.refused(op, errors.ECODE_STATE)
    op.conflicts_check = False
    master.run(op)
    assert LAN in master.config.group(GROUP).networks


def test_a_network_in_use_stays_connected():
    master = master_of(inside())
    assert "web.example.com" in master.refused(
        OpNetworkDisconnect(network_name="lan", group_name="default"), errors.ECODE_STATE
    )
    assert "web.example.com" in master.refused(
        OpNetworkRemove(network_name="lan", force=True), errors.ECODE_STATE
    )


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"network_name": "x"}, errors.ECODE_NOENT, "'x'"),
        ({"group_name": "x"}, errors.ECODE_NOENT, "'x'"),
        ({"network_mode": "pool"}, errors.ECODE_INVAL, "'pool'"),
        ({"network_vlan": "many"}, errors.ECODE_INVAL, "VLAN"),
        ({"network_mode": "routed", "network_vlan": "7"}, errors.ECODE_INVAL, "VLAN"),
    ],
)
def test_a_connection_is_refused(changes, ecode, fragment):
    op = OpNetworkConnect(
        **{
            "network_name": "lan",
            "group_name": "default",
            "network_mode": "bridged",
            "network_link": "br0",
            **changes,
        }
    )
    assert fragment in master_of(connected=False).refused(op, ecode)


# -- remove and rename -----------------------------------------------------------


def test_remove():
    master = master_of()
    assert "connected to node groups default" in master.refused(
        OpNetworkRemove(network_name="lan"), errors.ECODE_STATE
    )
    master.run(OpNetworkRemove(network_name="lan", force=True))
    assert master.config.networks() == ()
    assert master.config.group(GROUP).networks == {}
    assert master.locks.keys(Level.NETWORK) == set()


def test_rename():
    master = master_of()
    assert master.run(OpNetworkRename(network_name="lan", new_name="yard")) == "yard"
    assert [
        node
        for name, phase, node in master.rpc.hooks()
        if (name, phase) == ("network-rename", "pre")
    ] == [f"node{n}.example.com" for n in (1, 2)]
    master.refused(OpNetworkRename(network_name="yard", new_name="yard"), errors.ECODE_EXISTS)


def test_nodes_that_leave_the_networks_of_their_instances():
    master = master_of(inside())
    master.run(OpGroupAdd(group_name="rack2"))
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node1"]))
    assert master.job.said("not connected to group rack2: web.example.com")
    master.run(OpGroupAssignNodes(group_name="default", nodes=["node1"]))
    assert not master.job.said("not connected")


# -- interfaces of new instances -------------------------------------------------


def create(*nics, **changes):
    return OpInstanceCreate(
        **{
            "instance_name": "new.example.com",
            "mode": "create",
            "disk_template": "diskless",
            "disks": [],
            "nics": list(nics),
            "os_type": "noop",
            "pnode": "node1",
            "no_install": True,
            "start": False,
            "name_check": False,
            "ip_check": False,
            **changes,
        }
    )


def nic_of(master):
    (instance,) = [i for i in master.config.instances() if i.name == "new.example.com"]
    return instance.nics[0]


def test_an_interface_has_what_the_connection_says():
    master = master_of(mac_prefix="aa:bb:cc")
    master.run(create({"network": "lan", "ip": "pool"}))
    nic = nic_of(master)
    assert (nic.network, nic.ip, nic.nicparams, nic.mac[:8]) == (
        LAN,
        "203.0.113.2",
        ROUTED,
        "aa:bb:cc",
    )
    assert AddressPool(lan(master)).map == "XXX....X"
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (
        env["GANETI_INSTANCE_NIC0_IP"],
        env["GANETI_INSTANCE_NIC0_NETWORK_NAME"],
        env["GANETI_INSTANCE_NIC0_MODE"],
    ) == ("203.0.113.2", "lan", "routed")
    # Nodes are told about the network, too.
    filled = master.config.filled(master.config.instances()[-1])
    assert filled.nics[0].netinfo.name == "lan"
    master.run(OpInstanceRemove(instance_name="new.example.com"))
    assert AddressPool(lan(master)).map == "XX.....X"


def test_an_address_of_its_own():
    master = master_of()
    master.run(create({"network": "lan", "ip": "203.0.113.6"}))
    assert nic_of(master).ip == "203.0.113.6"


def test_a_connection_may_need_no_address():
    master = master_of(connection={"mode": "bridged", "link": "br0", "vlan": ""})
    master.run(create({"network": "lan"}))
    assert nic_of(master).ip is None
    assert master.rpc.of("bridges_exist")[0][1]["bridges"] == ["br0"]


@pytest.mark.parametrize(
    ("nic", "ecode", "fragment"),
    [
        ({"network": "x", "ip": "pool"}, errors.ECODE_NOENT, "'x'"),
        ({"ip": "pool"}, errors.ECODE_INVAL, "network="),
        ({"network": "lan"}, errors.ECODE_INVAL, "needs an IP address"),
        ({"network": "lan", "ip": "pool", "link": "br0"}, errors.ECODE_INVAL, "link cannot be"),
        ({"network": "lan", "ip": "203.0.113.1"}, errors.ECODE_NOTUNIQUE, "203.0.113.1"),
        ({"network": "lan", "ip": "192.0.2.1"}, errors.ECODE_INVAL, "not in network lan"),
        ({"mode": "routed", "ip": "203.0.113.5"}, errors.ECODE_STATE, "--no-conflicts-check"),
    ],
)
def test_an_interface_is_refused(nic, ecode, fragment):
    assert fragment in master_of().refused(create(nic), ecode)


def test_the_network_must_be_connected_to_the_group_of_the_node():
    assert "not connected to node group default" in master_of(connected=False).refused(
        create({"network": "lan", "ip": "pool"}), errors.ECODE_INVAL
    )


def test_conflicts_may_be_ignored():
    master = master_of()
    master.run(create({"mode": "routed", "ip": "203.0.113.5"}, conflicts_check=False))
    assert nic_of(master).ip == "203.0.113.5"


def test_a_full_pool():
    master = master_of()
    nics = [{"network": "lan", "ip": "pool"}] * 5
    master.run(create(*nics))
    assert "no free address" in master.refused(
        create({"network": "lan", "ip": "pool"}, instance_name="late.example.com"),
        errors.ECODE_NORES,
    )
    # What the refused one had asked for is free for others.
    assert AddressPool(lan(master)).free_count == 0
