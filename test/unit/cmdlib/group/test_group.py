"""Node groups: add, change, fill, empty, remove."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.group.regroup import adapted_jobs
from ganeti.locking import Level
from ganeti.objects import Disk
from ganeti.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)

SECOND = "group-2"
BOUNDS = {
    key: 1
    for key in ("cpu-count", "disk-count", "disk-size", "memory-size", "nic-count", "spindle-use")
}


def two_groups(*instances, disks=(), **changes):
    """Nodes 1 and 2 in the first group, 3 in the second."""
    data = cluster_of(3, instances, disks, node_changes={3: {"group": SECOND}}, **changes)
    second = dataclasses.replace(data.nodegroups[GROUP], name="rack2", uuid=SECOND)
    return Master(dataclasses.replace(data, nodegroups={**data.nodegroups, SECOND: second}))


def mirrored(name, first, second):
    return Disk(
        dev_type="drbd",
        logical_id=(uuid_of(first), uuid_of(second), 11000, 0, 0, "x"),
        size=1,
        iv_name="disk/0",
        nodes=(uuid_of(first), uuid_of(second)),
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
    )


def hooks_of(master, directory):
    return [(phase, node) for name, phase, node in master.rpc.hooks() if name == directory]


# -- add -------------------------------------------------------------------------


def test_add():
    master = Master(cluster_of(1))
    assert (
        master.run(
            OpGroupAdd(
                group_name="rack2",
                ndparams={"spindle_count": 3},
                diskparams={"plain": {"stripes": 2}},
                ipolicy={"vcpu-ratio": 2.0},
                hv_state={"kvm": {"mem_node": 10}},
                disk_state={"plain": {"xenvg": {"disk_reserved": 5}}},
            )
        )
        is None
    )
    group = master.config.expand_group("rack2")
    assert (group.alloc_policy, group.ndparams, group.diskparams, group.ipolicy) == (
        "preferred",
        {"spindle_count": 3},
        {"plain": {"stripes": 2}},
        {"vcpu-ratio": 2.0},
    )
    assert group.hv_state_static == {"kvm": {"mem_node": 10}}
    assert group.disk_state_static == {"plain": {"xenvg": {"disk_reserved": 5}}}
    assert group.serial_no == 1
    assert hooks_of(master, "group-add") == [
        ("pre", "node1.example.com"),
        ("post", "node1.example.com"),
    ]
    assert group.uuid in master.locks.keys(Level.NODEGROUP)


def test_a_new_group_is_connected_to_the_network_of_guests_and_hosts():
    master = Master(cluster_of(1, instance_communication_network="talk"))
    assert master.run(OpGroupAdd(group_name="rack2")) == {"jobs": [[True, 100]]}
    ((op,),) = master.job.submitted
    assert (op.OP_ID, op.group_name, op.network_name, op.network_mode, op.network_link) == (
        "OP_NETWORK_CONNECT",
        "rack2",
        "talk",
        "routed",
        "communication_rt",
    )


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"group_name": "default"}, errors.ECODE_EXISTS, "already exists"),
        ({"group_name": GROUP}, errors.ECODE_EXISTS, "already exists"),
        ({"group_name": "a b"}, errors.ECODE_INVAL, "blanks"),
        ({"group_name": "a/b"}, errors.ECODE_INVAL, "slashes"),
        ({"ndparams": {"x": 1}}, errors.ECODE_INVAL, "there is no x"),
        ({"ndparams": {"spindle_count": "many"}}, errors.ECODE_INVAL, "spindle_count"),
        ({"diskparams": {"plain": {"pool": "x"}}}, errors.ECODE_INVAL, "there is no pool"),
        ({"diskparams": {"rbd": {"access": "mind"}}}, errors.ECODE_INVAL, "mind"),
        ({"ipolicy": {"std": BOUNDS}}, errors.ECODE_INVAL, "cluster only"),
        ({"ipolicy": {"bad": 1}}, errors.ECODE_INVAL, "unknown key bad"),
        ({"ipolicy": {"vcpu-ratio": -1}}, errors.ECODE_INVAL, "vcpu-ratio"),
        ({"ipolicy": {"disk-templates": ["drbd"]}}, errors.ECODE_INVAL, "not enabled"),
        ({"hv_state": {"vax": {}}}, errors.ECODE_INVAL, "no hypervisor 'vax'"),
        ({"hv_state": {"kvm": 5}}, errors.ECODE_INVAL, "must be an object"),
        ({"disk_state": {"tape": {}}}, errors.ECODE_INVAL, "'tape' has no state"),
        ({"disk_state": {"plain": {"vg": {"colour": 1}}}}, errors.ECODE_INVAL, "colour"),
    ],
)
def test_a_group_is_refused(changes, ecode, fragment):
    master = Master(cluster_of(1))
    assert fragment in master.refused(OpGroupAdd(**{"group_name": "rack2", **changes}), ecode)


# -- change ----------------------------------------------------------------------


def test_values_are_merged_and_given_back():
    master = two_groups()

    def change(**values):
        return master.run(OpGroupSetParams(group_name="rack2", **values))

    assert change(alloc_policy="last_resort") == []
    assert change(ndparams={"spindle_count": 3, "ssh_port": 2222}) == [
        ("ndparams", "{'spindle_count': 3, 'ssh_port': 2222}")
    ]
    assert change(ndparams={"spindle_count": "default"}) == [("ndparams", "{'ssh_port': 2222}")]
    change(diskparams={"drbd": {"protocol": "A", "resync-rate": 5}})
    assert change(diskparams={"drbd": {"protocol": None}}) == [
        ("diskparams", "{'drbd': {'resync-rate': 5}}")
    ]
    assert change(diskparams={"drbd": {"resync-rate": "default"}}) == [("diskparams", "{}")]
    minmax = [{"min": BOUNDS, "max": BOUNDS}]
    change(ipolicy={"minmax": minmax, "spindle-ratio": 3.0})
    assert master.config.expand_group("rack2").ipolicy == {"minmax": minmax, "spindle-ratio": 3.0}
    change(ipolicy={"minmax": "default"})
    change(ipolicy={"spindle-ratio": None})
    change(hv_state={"kvm": {"mem_node": 10, "mem_hv": 5}})
    change(hv_state={"kvm": {"mem_hv": "default"}})
    group = master.config.expand_group("rack2")
    assert (group.ipolicy, group.alloc_policy) == ({}, "last_resort")
    assert group.hv_state_static == {"kvm": {"mem_node": 10}}


def test_no_change():
    assert "no change" in two_groups().refused(
        OpGroupSetParams(group_name="rack2"), errors.ECODE_INVAL
    )


def test_who_violates_a_new_policy_is_named():
    master = two_groups(instance_of("big"), instance_of("far", "node3"))
    bounds = {**BOUNDS, "disk-count": 0, "nic-count": 0}
    limit = {**BOUNDS, "memory-size": 8}
    master.run(
        OpGroupSetParams(group_name="default", ipolicy={"minmax": [{"min": bounds, "max": limit}]})
    )
    assert master.job.said("policy of group default: big.example.com")
    # Who did not fit before is not named again.
    master.run(OpGroupSetParams(group_name="default", ipolicy={"vcpu-ratio": 1.0}))
    assert not master.job.said("violate")


def test_the_hook_is_told_the_new_allocation_policy():
    master = two_groups()
    master.run(OpGroupSetParams(group_name="rack2", alloc_policy="unallocable"))
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert (
        env["GANETI_GROUP_NAME"],
        env["GANETI_NEW_ALLOC_POLICY"],
        env["GANETI_OBJECT_TYPE"],
    ) == ("rack2", "unallocable", "GROUP")


def test_instances_that_come_while_the_job_waits():
    master = two_groups()

    def late(level, unit):
        if level is Level.NODEGROUP and not unit.config.instances():
            commit(master.config).instances.add(instance_of("new"), (), "other")

    with_late_locks(
        master,
        late,
        OpGroupSetParams(group_name="default", ipolicy={"vcpu-ratio": 1.0}),
        "Please retry",
    )


def with_late_locks(master, what, op, fragment):
    """Run an opcode; ``what`` happens when a level has been acquired."""
    from ganeti import cmdlib

    unit_class = cmdlib.lookup(op.OP_ID)
    original = unit_class.locks_acquired

    def acquired(unit, level):
        original(unit, level)
        what(level, unit)

    unit_class.locks_acquired = acquired
    try:
        with pytest.raises(errors.OpPrereqError, match=fragment) as found:
            master.run(op)
        assert found.value.ecode == errors.ECODE_STATE
    finally:
        unit_class.locks_acquired = original


# -- nodes -----------------------------------------------------------------------


def groups(master):
    return [node.group for node in master.config.nodes()]


def test_assigning_nodes():
    master = two_groups()
    before = master.config.group(SECOND).serial_no
    assert master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node2", "node3"])) is None
    assert groups(master) == [GROUP, SECOND, SECOND]
    assert master.config.group(SECOND).serial_no == before + 1
    writes = len(master.config.writes)
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node2"]))
    assert len(master.config.writes) == writes


def test_instances_are_not_split_by_mistake():
    disk = mirrored("web", "node1", "node2")
    master = two_groups(instance_of("web", disks=(disk.uuid,)), disks=(disk,))
    op = OpGroupAssignNodes(group_name="rack2", nodes=["node2"])
    assert "split instances between node groups: web.example.com" in master.refused(
        op, errors.ECODE_STATE
    )
    op.force = True
    master.run(op)
    assert groups(master) == [GROUP, SECOND, SECOND]
    assert master.job.said("web.example.com")
    # Both nodes together split nothing; one that is split already stands in nobody's way.
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node1"]))
    assert not master.job.said("split")
    master.run(OpGroupAssignNodes(group_name="default", nodes=["node1"], force=True))
    master.run(OpGroupAssignNodes(group_name="default", nodes=["node3"]))
    assert master.job.said("split between node groups already")


def test_who_violates_the_policy_of_the_new_group_is_named():
    limit = {**BOUNDS, "memory-size": 512}
    small, large = (
        instance_of(name, beparams={"minmem": mib, "maxmem": mib, "vcpus": 1})
        for name, mib in (("small", 512), ("large", 1024))
    )
    master = two_groups(small, large, instance_of("other", primary="node3"))
    commit(master.config).groups.update(
        dataclasses.replace(
            master.config.group(SECOND), ipolicy={"minmax": [{"min": BOUNDS, "max": limit}]}
        )
    )
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node1"]))
    assert master.job.said("violate the policy of group rack2: large.example.com")
    # What was so before is not said again.
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node1", "node3"]))
    assert not master.job.said("violate")


@pytest.mark.parametrize(
    ("nodes", "ecode"), [([], errors.ECODE_INVAL), (["nosuch"], errors.ECODE_NOENT)]
)
def test_nodes_that_cannot_be_assigned(nodes, ecode):
    two_groups().refused(OpGroupAssignNodes(group_name="rack2", nodes=nodes), ecode)


def test_a_node_that_changes_its_group_while_the_job_waits():
    master = two_groups()

    def late(level, unit):
        node = unit.config.node(uuid_of("node2"))
        if level is Level.NODE and node.group == GROUP:
            commit(unit.config).nodes.update(dataclasses.replace(node, group=SECOND))

    with_late_locks(
        master, late, OpGroupAssignNodes(group_name="default", nodes=["node2"]), "Please retry"
    )


# -- the volume group for metadata of DRBD ---------------------------------------


def with_metavg(lacks=(), fails=(), *, enabled=("plain", "drbd"), own="fast"):
    """Two groups; the second has its own volume group for metadata of DRBD."""
    master = two_groups(enabled_disk_templates=enabled)
    second = master.config.group(SECOND)
    commit(master.config).groups.update(
        dataclasses.replace(second, diskparams={"drbd": {"metavg": own}} if own else {})
    )

    def answer(node, args):
        assert args["checks"] == {"vglist": None}
        return {"vglist": {"xenvg": 9} if node in lacks else {"xenvg": 9, "fast": 9}}

    master.rpc.answers["node_verify"] = answer
    for node in fails:
        master.rpc.errors["node_verify", node] = errors.NodeUnreachable(node, "node_verify", "dead")
    return master


def asked_nodes(master):
    return [node for node, _args in master.rpc.of("node_verify")]


def test_a_volume_group_for_metadata_which_a_node_of_the_group_lacks():
    """Otherwise every later creation of a mirrored disk there would fail."""
    op = OpGroupSetParams(group_name="rack2", diskparams={"drbd": {"metavg": "fast"}})
    master = with_metavg(lacks=("node3.example.com",), own=None)
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "node node3.example.com: it has no volume group fast" in text
    assert asked_nodes(master) == ["node3.example.com"]
    # What other nodes have does not matter.
    good = with_metavg(lacks=("node1.example.com", "node2.example.com"), own=None)
    good.run(op)
    assert good.config.group(SECOND).diskparams == {"drbd": {"metavg": "fast"}}
    # The same value again, or another parameter, asks nobody.
    good.run(op)
    good.run(OpGroupSetParams(group_name="rack2", diskparams={"drbd": {"protocol": "A"}}))
    assert asked_nodes(good) == ["node3.example.com"]


def test_a_volume_group_for_metadata_which_is_made_later():
    op = OpGroupSetParams(group_name="rack2", diskparams={"drbd": {"metavg": "fast"}})
    master = with_metavg(lacks=("node3.example.com",), own=None)
    assert "use --force to go on" in master.refused(op, errors.ECODE_ENVIRON)
    op.force = True
    master.run(op)
    assert master.job.said("node node3.example.com: it has no volume group fast")
    assert master.config.group(SECOND).diskparams == {"drbd": {"metavg": "fast"}}


def test_a_node_which_cannot_be_asked_for_its_volume_groups_is_named():
    master = with_metavg(fails=("node3.example.com",), own=None)
    master.run(OpGroupSetParams(group_name="rack2", diskparams={"drbd": {"metavg": "fast"}}))
    assert master.job.said("node node3.example.com could not be asked whether it has volume group")
    assert master.config.group(SECOND).diskparams == {"drbd": {"metavg": "fast"}}


def test_nobody_is_asked_for_a_volume_group_without_mirrored_disks():
    master = with_metavg(enabled=("plain",), own=None)
    master.run(OpGroupSetParams(group_name="rack2", diskparams={"drbd": {"metavg": "fast"}}))
    master.run(OpGroupAssignNodes(group_name="rack2", nodes=["node2"]))
    assert asked_nodes(master) == []


def test_a_node_without_the_volume_group_for_metadata_of_its_new_group():
    master = with_metavg(lacks=("node2.example.com",))
    op = OpGroupAssignNodes(group_name="rack2", nodes=["node2", "node3"])
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "node node2.example.com: it has no volume group fast" in text and "--force" in text
    # Node 3 is in the group already.
    assert asked_nodes(master) == ["node2.example.com"]
    op.force = True
    master.run(op)
    assert groups(master) == [GROUP, SECOND, SECOND]
    assert master.job.said("node node2.example.com: it has no volume group fast")


# -- remove and rename -----------------------------------------------------------


def test_remove():
    master = two_groups()
    assert "node3.example.com" in master.refused(
        OpGroupRemove(group_name="rack2"), errors.ECODE_STATE
    )
    master.run(OpGroupAssignNodes(group_name="default", nodes=["node3"]))
    master.run(OpGroupRemove(group_name="rack2"))
    assert [group.name for group in master.config.groups()] == ["default"]
    assert master.locks.keys(Level.NODEGROUP) == {GROUP}
    master.refused(OpGroupRemove(group_name="rack2"), errors.ECODE_NOENT)


def test_the_last_group_stays():
    data = cluster_of(1)
    master = Master(dataclasses.replace(data, nodegroups={GROUP: data.nodegroups[GROUP]}))
    master.refused(OpGroupRemove(group_name="default"), errors.ECODE_STATE)


def test_rename():
    master = two_groups()
    assert master.run(OpGroupRename(group_name="rack2", new_name="rackB")) == "rackB"
    assert master.config.group(SECOND).name == "rackB"
    assert hooks_of(master, "group-rename") == [
        (phase, f"node{n}.example.com") for phase in ("pre", "post") for n in (1, 3)
    ]
    master.refused(OpGroupRename(group_name="rackB", new_name="default"), errors.ECODE_EXISTS)


# -- move instances --------------------------------------------------------------


def answer(moved=(), failed=(), jobs=()):
    return json.dumps({"success": True, "info": "", "result": [moved, failed, jobs]})


def migrate(name, node="node3.example.com"):
    return [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name, "target_node": node}]


def roaming(*names):
    disks = tuple(disk_of(name) for name in names)
    instances = tuple(
        instance_of(name, disks=(disk.uuid,)) for name, disk in zip(names, disks, strict=True)
    )
    return two_groups(*instances, disks=disks)


def test_evacuating_a_group():
    master = roaming("web1", "web2")
    names = ["web1.example.com", "web2.example.com"]
    master.rpc.answers["iallocator_runner"] = answer(
        [[name, SECOND, ["node3.example.com"]] for name in names],
        [],
        [migrate(name) for name in names],
    )
    result = master.run(
        OpGroupEvacuate(
            group_name="default", iallocator="chooser", sequential=True, force_failover=True
        )
    )
    assert result == {"jobs": [[True, 100], [True, 101]]}
    (first,), (second,) = master.job.submitted
    assert [first.OP_ID, first.target_node] == ["OP_INSTANCE_FAILOVER", "node3.example.com"]
    assert (first.depends, second.depends) == (None, [[-1, ["success"]]])
    request = json.loads(master.rpc.of("iallocator_runner")[0][1]["request"])["request"]
    assert (request["type"], sorted(request["instances"]), request["target_groups"]) == (
        "change-group",
        names,
        [SECOND],
    )
    assert hooks_of(master, "group-evacuate")[:3] == [
        ("pre", f"node{n}.example.com") for n in (1, 2)
    ] + [("post", "node1.example.com")]


def test_a_group_without_instances():
    master = two_groups()
    assert master.run(OpGroupEvacuate(group_name="rack2", iallocator="chooser")) == {"jobs": []}
    assert master.rpc.of("iallocator_runner") == []


def test_nothing_moves_when_one_cannot():
    master = roaming("web1")
    master.rpc.answers["iallocator_runner"] = answer(failed=[["web1.example.com", "too fat"]])
    text = master.refused(
        OpGroupEvacuate(group_name="default", iallocator="chooser"), errors.ECODE_NORES
    )
    assert "web1.example.com (too fat)" in text


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({}, errors.ECODE_STATE, "no instance allocator"),
        ({"iallocator": "chooser", "target_groups": ["default"]}, errors.ECODE_INVAL, "target"),
        ({"iallocator": "chooser", "target_groups": ["x"]}, errors.ECODE_NOENT, "'x'"),
    ],
)
def test_an_evacuation_is_refused(changes, ecode, fragment):
    master = roaming("web1")
    assert fragment in master.refused(OpGroupEvacuate(group_name="default", **changes), ecode)


def test_there_is_no_other_group():
    disk = disk_of("web")
    data = cluster_of(2, (instance_of("web", disks=(disk.uuid,)),), (disk,))
    assert "no other node group" in Master(data).refused(
        OpGroupEvacuate(group_name="default", iallocator="chooser"), errors.ECODE_NORES
    )


def test_changing_the_group_of_an_instance():
    master = roaming("web1")
    master.rpc.answers["iallocator_runner"] = answer(
        [["web1.example.com", SECOND, ["node3.example.com"]]], [], [migrate("web1.example.com")]
    )
    op = OpInstanceChangeGroup(instance_name="web1", iallocator="chooser", target_groups=["rack2"])
    assert master.run(op) == {"jobs": [[True, 100]]}
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_TARGET_GROUPS"] == SECOND
    assert env["GANETI_INSTANCE_NAME"] == "web1.example.com"
    assert "is in group default already" in master.refused(
        OpInstanceChangeGroup(
            instance_name="web1", iallocator="chooser", target_groups=["default"]
        ),
        errors.ECODE_INVAL,
    )


def test_wishes_reach_the_jobs():
    replace = OpInstanceReplaceDisks(
        instance_name="web", mode="replace_new_secondary", remote_node="node3"
    )
    jobs = adapted_jobs(
        [[OpInstanceMigrate(instance_name="web"), replace], [replace]], early_release=True
    )
    assert [op.OP_ID for op in jobs[0]] == ["OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"]
    assert jobs[0][1].early_release
    assert jobs[1][0].depends is None
