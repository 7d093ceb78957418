"""Policy ratios: virtual CPUs and spindles of a node, at creation, at moves and at verification."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.disks import drbd_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.policy import ratios
from ganeti.objects import ipolicy
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)

#: The fake nodes have four processors and use one virtual CPU themselves.
FACTS = {"cpu_total": 4, "cpu_dom0": 1}


def master_with(used: int, **changes: object) -> Master:
    """A cluster with a ratio of two, and an instance with some virtual CPUs on node2."""
    disk = disk_of("web")
    instances = (
        instance_of("big", "node2", beparams={"vcpus": used}),
        instance_of("web", "node1", disks=(disk.uuid,), admin_state="up", disks_active=True),
    )
    made = Master(cluster_of(3, instances, (disk,), **changes))
    cluster = made.config.cluster()
    cluster.ipolicy["vcpu-ratio"] = 2.0
    made.rpc.run("web", "node1")
    return made


def create(**changes: object) -> OpInstanceCreate:
    values = {
        "instance_name": "new.example.com", "mode": "create", "disk_template": "diskless",
        "disks": [], "nics": [{}], "os_type": "noop", "pnode": "node2", "start": True,
    }  # fmt: skip
    return OpInstanceCreate(**{**values, **changes})


def test_a_named_node_has_to_have_the_processors():
    # One of the node itself, six, and one more are the eight which the ratio permits.
    assert master_with(6).run(create()) == ["node2.example.com"]
    text = master_with(7).refused(create(), errors.ECODE_INVAL)
    assert (
        "node node2.example.com would have 9 virtual CPUs, vcpu-ratio 2 permits 8 on 4 processors"
        in text
    )
    assert "--ignore-ipolicy' to override it" in text


def test_the_violation_can_be_ignored():
    master = master_with(7)
    master.run(create(ignore_ipolicy=True))
    assert master.job.said("WARNING: instance new.example.com violates the policy")


def test_an_allocator_chooses_another_node():
    (name,) = master_with(7).run(create(pnode=None, iallocator="hail"))
    assert name != "node2.example.com"


@pytest.mark.parametrize("op", [OpInstanceMigrate, OpInstanceFailover])
def test_moves(op):
    asked = op(instance_name="web", target_node="node2")
    assert "vcpu-ratio" in master_with(7).refused(asked, errors.ECODE_INVAL)
    master = master_with(7)
    master.run(op(instance_name="web", target_node="node2", ignore_ipolicy=True))
    assert master.job.said("vcpu-ratio")
    master = master_with(6)
    master.run(asked)
    # The same answer is used for the versions, the ratios and the free memory.
    assert [node for node, _args in master.rpc.of("node_info")].count("node2.example.com") == 1


def test_a_new_secondary_node_has_to_have_the_spindles():
    disks = (drbd_of("web"), disk_of("data", 0, "plain", "node3"))
    instances = (
        instance_of("web", "node1", disks=(disks[0].uuid,)),
        instance_of("data", "node3", disks=(disks[1].uuid,), beparams={"spindle_use": 32}),
    )
    master = Master(cluster_of(3, instances, disks))
    op = OpInstanceReplaceDisks(
        instance_name="web", mode="replace_new_secondary", remote_node="node3", disks=[]
    )
    assert "spindle-ratio 32 permits 32" in master.refused(op, errors.ECODE_INVAL)


def test_a_lost_node_is_left_in_any_case():
    master = master_with(7, node_changes={1: {"offline": True}})
    master.rpc.running.clear()
    op = OpInstanceFailover(instance_name="web", target_node="node2", ignore_consistency=True)
    master.run(op)
    assert master.job.said("WARNING: instance web.example.com violates the policy")


def test_an_offline_instance_needs_no_processors():
    master = master_with(7)
    data = master.config.snapshot()
    big = next(one for one in data.instances.values() if one.name.startswith("big"))
    node = big.primary_node
    assert ratios.present_use(data, node, ratios.Use(1, 0), None).vcpus == 8
    assert ratios.present_use(data, node, ratios.Use(1, 0), big.uuid).vcpus == 1


def test_spindles():
    disks = (disk_of("data", 0, "plain"),)
    instances = (
        instance_of("data", "node1", disks=tuple(one.uuid for one in disks),
                    beparams={"spindle_use": 30}),
    )  # fmt: skip
    data = cluster_of(2, instances, disks)
    node = data.nodes["uuid-node1"]
    use = ratios.present_uses(data, [node.uuid])[node.uuid]
    assert use == ratios.Use(1, 30)
    assert ratios.problems(data, node, use, FACTS) == []
    more = ratios.present_use(data, node.uuid, ratios.Use(1, 3), None)
    assert ratios.problems(data, node, more, FACTS) == [
        "node node1.example.com would have a spindle use of 33, spindle-ratio 32 permits 32"
    ]
    # Disks which are not logical volumes occupy no spindles.
    assert ratios.use_of({"vcpus": 1, "spindle_use": 3}, "file", primary=False) == ratios.Use()


def test_exclusive_storage_has_no_spindle_ratio():
    data = cluster_of(1)
    data.cluster.ndparams["exclusive_storage"] = True
    assert ratios.problems(data, data.nodes["uuid-node1"], ratios.Use(0, 99), None) == []


@pytest.mark.parametrize("op", [OpInstanceMigrate, OpInstanceFailover])
def test_limits_which_have_become_narrower_keep_no_instance_on_its_node(op):
    """Otherwise a node with such an instance could not be emptied, also when it has failed."""
    narrow = {key: 1 for key in ipolicy.SPECS}
    limits = {"minmax": [{"min": narrow, "max": {**narrow, "disk-size": 99999, "cpu-count": 9}}]}
    master = master_with(1)
    group = master.config.group(GROUP)
    other = dataclasses.replace(group, name="rack2", uuid="group-2", ipolicy=limits)
    commit(master.config).groups.add(other)
    commit(master.config).nodes.update(
        dataclasses.replace(master.config.node(uuid_of("node3")), group="group-2")
    )
    asked = op(instance_name="web", target_node="node3")
    assert "violates the policy of group rack2" in master.refused(asked, errors.ECODE_INVAL)
    commit(master.config).groups.update(dataclasses.replace(group, ipolicy=limits))
    master.run(op(instance_name="web", target_node="node2"))
    assert master.job.said("WARNING: instance web.example.com violates the policy of group default")
    assert master.config.instance(uuid_of("web")).primary_node == uuid_of("node2")
