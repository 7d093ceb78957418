"""What a node group defines counts for an instance which comes there from another group."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.disks import drbd_of, plain_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks import mirror, sync
from ganeti.cmdlib.ops.migration import live
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.constants import disk as disk_c
from ganeti.objects import BlockDevStatus, Disk, Network, Nic, updated
from ganeti.opcodes.group import OpGroupAssignNodes, OpGroupEvacuate
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceMove,
    OpInstanceRecreateDisks,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
)
from ganeti.rpc import filler

SECOND, NET = "group-2", "net-uuid"
HERE = {"mode": "bridged", "link": "br0", "vlan": ""}
THERE = {"mode": "bridged", "link": "br9", "vlan": "7"}
GOOD = BlockDevStatus(dev_path="/dev/drbd0", is_degraded=False, ldisk_status=disk_c.LDS_OKAY)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (live, mirror, sync):
        monkeypatch.setattr(module, "POLL_S", 0)


def master_of(
    disk: Disk,
    *,
    there: dict[str, str] | None = None,
    third: dict[str, str] | None = None,
    ip: str | None = None,
    diskparams: dict[str, Any] | None = None,
    ndparams: dict[str, Any] | None = None,
    **changes: Any,
) -> Master:
    """Nodes 1 and 2 in the first group, 3 and 4 in the second; a running instance on node 1.

    :param third: node 4 is in a third group, and the network is connected to it in this way.
    :param there: the connection of the network to the second group; None for none.
    """
    nics = (
        Nic(mac="aa:00:00:00:00:01", ip=ip, nicparams=dict(HERE), uuid="nic1", network=NET),
        Nic(mac="aa:00:00:00:00:02", nicparams={"link": "br5"}, uuid="nic2"),
    )
    values = {"admin_state": "up", "disks_active": True, "nics": nics, **changes}
    data = cluster_of(
        4,
        (instance_of("web", disks=(disk.uuid,), **values),),
        (disk,),
        node_changes={3: {"group": SECOND}, 4: {"group": SECOND}},
        volume_group_name="xenvg",
        enabled_disk_templates=("drbd", "plain", "sharedfile"),
    )
    first = data.nodegroups[GROUP]
    groups = {
        GROUP: dataclasses.replace(first, networks={NET: HERE}),
        SECOND: dataclasses.replace(
            first,
            name="rack2",
            uuid=SECOND,
            networks={} if there is None else {NET: there},
            diskparams=diskparams or {},
            ndparams=ndparams or {},
        ),
    }
    if third is not None:
        data.nodes[uuid_of("node4")] = updated(data.nodes[uuid_of("node4")], group="group-3")
        groups["group-3"] = dataclasses.replace(
            first, name="rack3", uuid="group-3", networks={NET: third}
        )
    network = Network(name="lan", network="192.0.2.0/24", uuid=NET, serial_no=1)
    master = Master(dataclasses.replace(data, nodegroups=groups, networks={NET: network}))
    answers = master.rpc.answers
    answers["blockdev_find_multi"] = GOOD
    answers["drbd_wait_sync"] = [True, 100.0]
    answers["blockdev_getmirrorstatus"] = [GOOD]
    answers["node_info"] = lambda _node, args: [
        "boot",
        [
            {"type": kind, "name": name, "storage_free": 9999, "storage_size": 9999}
            for kind, name, *_rest in args["storage_units"]
        ],
        [{"memory_free": 4096, "memory_total": 8192} for _ in args["hv_specs"]],
    ]
    if values["admin_state"] == "up":
        master.rpc.run("web", "node1")
    return master


def across(name: str = "web") -> Disk:
    """A mirrored disk whose secondary node is in the second group."""
    nodes = (uuid_of("node1"), uuid_of("node3"))
    return dataclasses.replace(
        drbd_of(name), nodes=nodes, logical_id=(*nodes, 11000, 0, 0, "secret")
    )


def link_of_first(master: Master) -> Any:
    return master.config.instance(uuid_of("web")).nics[0].nicparams.get("link")


def primary(master: Master) -> str:
    return master.config.node(master.config.instance(uuid_of("web")).primary_node).name


MOVES = {
    "failover": lambda: OpInstanceFailover(instance_name="web", target_node="node3"),
    "migrate": lambda: OpInstanceMigrate(instance_name="web", target_node="node3"),
    "move": lambda: OpInstanceMove(instance_name="web", target_node="node3"),
}


def of_kind(kind: str, **changes: Any) -> Master:
    return master_of(plain_of("web") if kind == "move" else disk_of("web"), **changes)


@pytest.mark.parametrize("kind", MOVES)
def test_an_instance_gets_the_link_of_the_new_group(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_copy, "copy_disks", lambda _rpc, _log, pairs: [True] * len(pairs))
    master = of_kind(kind, there=THERE)
    master.run(MOVES[kind]())
    assert primary(master) == "node3.example.com"
    first, second = master.config.instance(uuid_of("web")).nics
    assert first.nicparams == THERE
    assert second.nicparams == {"link": "br5"}
    # The node is asked for the new bridge, and the guest is connected to it.
    asked = [args["bridges"] for node, args in master.rpc.of("bridges_exist")]
    assert [sorted(one) for one in asked] == [["br5", "br9"]]
    call = "accept_instance" if kind == "migrate" else "instance_start"
    ((node, args),) = [one for one in master.rpc.of(call) if one[0] == "node3.example.com"]
    assert [nic.nicparams["link"] for nic in args["instance"].nics] == ["br9", "br5"]


@pytest.mark.parametrize("kind", MOVES)
def test_an_instance_does_not_go_where_its_network_is_not_connected(kind: str) -> None:
    master = of_kind(kind)
    error = master.refused(MOVES[kind](), errors.ECODE_STATE)
    assert "network interface 0 of instance web.example.com is in network lan" in error
    assert "not connected to node group rack2. Use 'gnt-network connect'" in error
    assert primary(master) == "node1.example.com"
    assert master.rpc.where("web") == ["node1"]
    assert link_of_first(master) == "br0"


def test_a_routed_network_needs_an_address() -> None:
    there = {"mode": "routed", "link": "", "vlan": ""}
    error = of_kind("failover", there=there).refused(MOVES["failover"](), errors.ECODE_STATE)
    assert "no IP address" in error
    master = of_kind("failover", there=there, ip="192.0.2.7")
    master.run(MOVES["failover"]())
    assert master.config.instance(uuid_of("web")).nics[0].nicparams == there


def test_within_its_group_nothing_changes() -> None:
    """Also when the connection of the group is another one since the start of the instance."""
    master = of_kind("failover")
    group = master.config.group(GROUP)
    commit(master.config).groups.update(updated(group, networks={NET: THERE}))
    master.run(OpInstanceFailover(instance_name="web", target_node="node2"))
    assert link_of_first(master) == "br0"


def test_a_mirrored_instance_on_its_way_to_another_group() -> None:
    """The first step of a change of group is a secondary node there."""
    replace = OpInstanceReplaceDisks(
        instance_name="web", mode="replace_new_secondary", remote_node="node3"
    )
    error = master_of(drbd_of("web")).refused(replace, errors.ECODE_STATE)
    assert "not connected to node group rack2" in error
    master = master_of(drbd_of("web"), there=THERE)
    master.run(replace)
    assert link_of_first(master) == "br0"
    master.run(OpInstanceFailover(instance_name="web"))
    assert primary(master) == "node3.example.com"
    assert link_of_first(master) == "br9"


def test_mirrored_disks_do_not_go_to_nodes_with_exclusive_storage() -> None:
    replace = OpInstanceReplaceDisks(
        instance_name="web", mode="replace_new_secondary", remote_node="node3"
    )
    master = master_of(drbd_of("web"), there=THERE, ndparams={"exclusive_storage": True})
    assert "node3.example.com has exclusive storage" in master.refused(replace, errors.ECODE_STATE)
    master = master_of(across(), there=THERE, ndparams={"exclusive_storage": True})
    error = master.refused(OpInstanceFailover(instance_name="web"), errors.ECODE_STATE)
    assert "has exclusive storage" in error


def test_a_new_replica_is_made_with_the_parameters_of_its_group() -> None:
    """The mirror has those of the primary node on both nodes, otherwise they would not connect."""
    master = master_of(
        drbd_of("web"),
        there=THERE,
        diskparams={"drbd": {"data-stripes": 3, "protocol": "A"}},
    )
    master.run(
        OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3"
        )
    )
    made = [
        (device.size, device.params["stripes"])
        for _node, args in master.rpc.of("blockdev_create_multi")
        for device in args["disks"]
        if device.dev_type == "plain"
    ]
    assert made == [(1024, 3), (128, 1)]
    attached = master.rpc.of("drbd_attach_net")
    assert {node for node, _ in attached} == {"node1.example.com", "node3.example.com"}
    for _node, args in attached:
        (disk,) = args["disks"]
        assert disk.params["protocol"] == "C"


@pytest.mark.parametrize(("protocol", "downs"), [("A", {"node1", "node3"}), ("C", {"node1"})])
def test_replicas_are_connected_again_when_the_group_connects_them_otherwise(
    protocol: str, downs: set[str]
) -> None:
    """A replica which stays active would keep the old protocol, and its peer refuse it."""
    master = master_of(across(), there=THERE, diskparams={"drbd": {"protocol": protocol}})
    master.run(OpInstanceFailover(instance_name="web"))
    found = {node.partition(".")[0] for node, _ in master.rpc.of("blockdev_shutdown_multi")}
    assert found == downs
    assert primary(master) == "node3.example.com"
    assert master.rpc.where("web") == ["node3"]


@pytest.mark.parametrize("groups", [None, ["rack2"]])
def test_a_change_of_group_names_the_network(groups: list[str] | None) -> None:
    master = master_of(disk_of("web"))
    error = master.refused(
        OpInstanceChangeGroup(instance_name="web", iallocator="hail", target_groups=groups),
        errors.ECODE_STATE,
    )
    assert "network lan, which is not connected to node group rack2" in error
    evacuate = OpGroupEvacuate(group_name="default", iallocator="hail", target_groups=groups)
    assert "network lan" in master.refused(evacuate, errors.ECODE_STATE)


def test_the_allocator_leaves_out_groups_without_the_network() -> None:
    master = master_of(disk_of("web"), third=THERE)
    # No other node of that group could take it over.
    master.config.cluster().default_iallocator_params["no-capacity-checks"] = None
    master.rpc.answers["node_info"] = lambda _node, args: [
        "boot", [],
        [{"memory_free": 4096, "memory_total": 8192, "memory_dom0": 0, "cpu_total": 4,
          "cpu_dom0": 0} for _ in args["hv_specs"]],
    ]  # fmt: skip
    job = master.new_job()
    master.run(OpInstanceChangeGroup(instance_name="web", iallocator="hail"), job)
    assert json.dumps([[op.target_node for op in ops] for ops in job.submitted]) == (
        '[["node4.example.com"]]'
    )


def test_instances_of_a_node_that_changes_its_group() -> None:
    master = of_kind("failover", there=THERE)
    job = master.new_job()
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node1"], force=True), job)
    assert link_of_first(master) == "br9"
    assert job.said("which count from the next start: web.example.com")


def test_each_node_gets_the_parameters_of_its_own_group() -> None:
    data = master_of(
        across(), there=THERE, diskparams={"drbd": {"data-stripes": 3, "protocol": "A"}}
    ).config.snapshot()
    instance = data.instances[uuid_of("web")]
    filled = filler.FromConfig(data)
    found = {}
    for node in ("node1", "node3"):
        filled.select_node(uuid_of(node))
        disk = filled.annotated_disk(data.disks[instance.disks[0]], instance)
        assert disk.params is not None
        found[node] = (
            disk.params["protocol"],
            [(child.params or {})["stripes"] for child in disk.children],
        )
    # Both ends of the mirror are connected alike, as the group of the primary node says.
    assert found == {"node1": ("C", [1, 1]), "node3": ("C", [3, 1])}
    assert filled.differs


def test_volumes_of_a_plain_disk_are_made_with_the_stripes_of_the_group_of_their_node() -> None:
    data = master_of(plain_of("web"), there=THERE, diskparams={"plain": {"stripes": 2}})
    snapshot = data.config.snapshot()
    instance = snapshot.instances[uuid_of("web")]
    filled = filler.FromConfig(snapshot)
    stripes = []
    for node in ("node1", "node3"):
        filled.select_node(uuid_of(node))
        params = filled.annotated_disk(snapshot.disks[instance.disks[0]], instance).params
        stripes.append((params or {})["stripes"])
    assert stripes == [1, 2]


def test_disks_are_not_made_again_where_the_network_is_not_connected() -> None:
    recreate = OpInstanceRecreateDisks(instance_name="web", nodes=["node3"])
    master = master_of(plain_of("web"), admin_state="down", disks_active=False)
    assert "not connected to node group rack2" in master.refused(recreate, errors.ECODE_STATE)


def test_disks_are_not_mirrored_to_a_group_without_the_network() -> None:
    convert = OpInstanceSetParams(instance_name="web", disk_template="drbd", remote_node="node3")
    master = master_of(plain_of("web"), admin_state="down", disks_active=False)
    assert "not connected to node group rack2" in master.refused(convert, errors.ECODE_STATE)
