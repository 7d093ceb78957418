"""Clusters whose nodes have different hypervisors, and instances which change theirs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, disk_of, instance_of, uuid_of
from fakes.disks import drbd_of
from fakes.master import Master
from ganeti import errors
from ganeti.config.verify import check
from ganeti.objects import fill, ipolicy
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.group import OpGroupAdd, OpGroupAssignNodes, OpGroupEvacuate, OpGroupSetParams
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceFailover,
    OpInstanceMove,
    OpInstanceMultiAlloc,
    OpInstanceReplaceDisks,
    OpInstanceSetParams,
)
from ganeti.opcodes.node import OpNodeMigrate

STATE = errors.ECODE_STATE
SECOND = "11111111-0000-4000-8000-000000000002"
RULES = ipolicy.defaults()
RULES["minmax"][0]["min"]["disk-size"] = 1


def mixed(*instances: Any, disks: tuple[Any, ...] = (), **changes: Any) -> Master:
    """Nodes 1 and 2 have ``fake`` and ``kvm``; nodes 3 and 4, in group rack2, only ``fake``."""
    data = cluster_of(4, instances, disks, ipolicy=RULES, **changes)
    groups = {
        **data.nodegroups,
        SECOND: dataclasses.replace(
            data.nodegroups[GROUP], uuid=SECOND, name="rack2", enabled_hypervisors=("fake",)
        ),
    }
    nodes = {
        uuid: dataclasses.replace(node, group=SECOND) if node.name[4] in "34" else node
        for uuid, node in data.nodes.items()
    }
    return Master(dataclasses.replace(data, nodes=nodes, nodegroups=groups))


def create(**changes: Any) -> OpInstanceCreate:
    values = {
        "instance_name": "new.example.com", "mode": "create", "disk_template": "diskless",
        "disks": [], "nics": [{}], "os_type": "noop", "hypervisor": "kvm", "start": False,
    }  # fmt: skip
    return OpInstanceCreate(**{**values, **changes})


def web_on(hypervisor: str = "kvm", **changes: Any) -> tuple[Any, tuple[Any, ...]]:
    disk = drbd_of("web")
    return instance_of("web", hypervisor=hypervisor, disks=(disk.uuid,), **changes), (disk,)


# -- where an instance may be --------------------------------------------------------------------


def test_what_a_group_has() -> None:
    data = mixed().config.snapshot()
    assert fill.node_hypervisors(data, uuid_of("node1")) == ("fake", "kvm")
    assert fill.node_hypervisors(data, uuid_of("node3")) == ("fake",)
    gone = dataclasses.replace(
        data, cluster=dataclasses.replace(data.cluster, enabled_hypervisors=("kvm",))
    )
    assert fill.node_hypervisors(gone, uuid_of("node3")) == ()


def test_a_named_node_must_have_the_hypervisor() -> None:
    text = mixed().refused(create(pnode="node3"), errors.ECODE_STATE)
    assert "node3.example.com is in group rack2" in text and "only fake" in text
    assert "gnt-group modify --enabled-hypervisors" in text
    mixed().run(create(pnode="node3", hypervisor="fake"))
    mixed().run(create(pnode="node2"))


def test_an_allocator_gets_only_nodes_with_the_hypervisor() -> None:
    master = mixed()
    (name,) = master.run(create(iallocator="hail"))
    assert name in ("node1.example.com", "node2.example.com")
    master.rpc.answers["iallocator_runner"] = json.dumps(
        {"success": True, "info": "", "result": ["node3.example.com"]}
    )
    op = create(instance_name="b.example.com", iallocator="chooser")
    text = master.refused(op, errors.ECODE_ENVIRON)
    assert "node3.example.com is not one of the nodes" in text
    (_node, args) = master.rpc.of("iallocator_runner")[-1]
    told = json.loads(args["request"])["request"]["restrict-to-nodes"]
    assert told == ["node1.example.com", "node2.example.com"]


def test_several_instances_are_placed_by_their_hypervisors() -> None:
    ops = [create(instance_name=f"{name}.example.com", hypervisor=name) for name in ("kvm", "fake")]
    master = mixed()
    master.rpc.answers["iallocator_runner"] = json.dumps(
        {"success": True, "info": "", "result": [[], ["kvm.example.com", "fake.example.com"]]}
    )
    master.run(OpInstanceMultiAlloc(instances=ops, iallocator="chooser"))
    (_node, args) = master.rpc.of("iallocator_runner")[-1]
    first, second = json.loads(args["request"])["request"]["instances"]
    assert len(first["restrict-to-nodes"]) == 2
    assert "restrict-to-nodes" not in second


@pytest.mark.parametrize(
    "op",
    [
        OpInstanceReplaceDisks(
            instance_name="web", mode="replace_new_secondary", remote_node="node3", disks=[]
        ),
        OpInstanceSetParams(instance_name="web", disk_template="plain", pnode="node3"),
        OpNodeMigrate(node_name="node1", target_node="node3"),
    ],
)
def test_moves_to_a_node_without_the_hypervisor(op: OpCode) -> None:
    web, disks = web_on()
    master = mixed(web, disks=disks)
    before = master.config.snapshot()
    with pytest.raises(errors.OpPrereqError, match="have no hypervisor kvm|not the secondary"):
        master.run(op)
    assert master.config.snapshot() == before


@pytest.mark.parametrize("op", [OpInstanceFailover, OpInstanceMove])
def test_moves_of_disks_on_one_node(op: type[OpCode]) -> None:
    template = "sharedfile" if op is OpInstanceFailover else "file"
    disk = disk_of("web", 0, template)
    master = mixed(instance_of("web", hypervisor="kvm", disks=(disk.uuid,)), disks=(disk,))
    text = master.refused(op(instance_name="web", target_node="node3"), errors.ECODE_STATE)
    assert "whose nodes have no hypervisor kvm" in text


# -- groups --------------------------------------------------------------------------------------


def test_a_group_gets_and_loses_its_choice() -> None:
    master = mixed()
    modify = OpGroupSetParams
    assert master.run(modify(group_name="rack2", enabled_hypervisors=["kvm", "fake"])) == [
        ("enabled_hypervisors", "fake,kvm")
    ]
    assert master.config.group(SECOND).enabled_hypervisors == ("fake", "kvm")
    master.run(modify(group_name="rack2", enabled_hypervisors=[]))
    assert master.config.group(SECOND).enabled_hypervisors is None
    text = master.refused(modify(group_name="rack2", enabled_hypervisors=["lxc"]), STATE)
    assert "lxc is not enabled in this cluster" in text
    master.run(OpGroupAdd(group_name="rack3", enabled_hypervisors=["kvm"]))
    (added,) = (one for one in master.config.groups() if one.name == "rack3")
    assert added.enabled_hypervisors == ("kvm",)


def test_a_group_keeps_the_hypervisors_of_its_instances() -> None:
    web, disks = web_on()
    master = mixed(web, disks=disks)
    op = OpGroupSetParams(group_name="default", enabled_hypervisors=["fake"])
    text = master.refused(op, errors.ECODE_STATE)
    assert "web.example.com (kvm)" in text and "gnt-instance modify -H" in text


def test_nodes_move_only_to_a_group_with_the_hypervisors_of_their_instances() -> None:
    web, disks = web_on()
    master = mixed(web, disks=disks)
    op = OpGroupAssignNodes(group_name="rack2", nodes=["node1", "node2"])
    assert "web.example.com (kvm)" in master.refused(op, errors.ECODE_STATE)
    op.force = True
    master.run(op)
    wanted = "instance web.example.com: group rack2 of its node has no hypervisor kvm"
    assert wanted in list(check(master.config.snapshot()))


def test_a_group_without_the_hypervisor_is_no_target() -> None:
    web, disks = web_on()
    master = mixed(web, disks=disks)
    op = OpGroupEvacuate(group_name="default", iallocator="chooser", target_groups=["rack2"])
    text = master.refused(op, errors.ECODE_STATE)
    assert "the nodes of group rack2 have no hypervisor kvm" in text
    op = OpGroupEvacuate(group_name="default", iallocator="chooser")
    assert "no other node group with the hypervisor" in master.refused(op, errors.ECODE_NORES)


# -- the hypervisor of an instance ---------------------------------------------------------------


def modify(**changes: Any) -> OpInstanceSetParams:
    return OpInstanceSetParams(instance_name="web", **changes)


def test_a_stopped_instance_changes_its_hypervisor() -> None:
    master = mixed(instance_of("web", hypervisor="kvm", hvparams={"acpi": False}))
    assert master.run(modify(hypervisor="fake")) == [["hypervisor", "fake"]]
    web = master.config.instance(uuid_of("web"))
    assert (web.hypervisor, web.hvparams, web.network_port) == ("fake", {}, None)
    assert master.job.said("parameters of hypervisor kvm are dropped: acpi")
    result = master.run(modify(hypervisor="kvm", hvparams={"acpi": True}))
    assert result == [["hypervisor", "kvm"], ["hv/acpi", True]]
    web = master.config.instance(uuid_of("web"))
    assert (web.hypervisor, web.hvparams) == ("kvm", {"acpi": True})
    assert web.network_port is not None
    assert not [one for one in check(master.config.snapshot()) if "port" in one]
    # The nodes have checked the parameters of the new hypervisor.
    (_node, args) = master.rpc.of("hypervisor_validate_params")[-1]
    assert args["hypervisor"] == "kvm" and args["hvparams"]["acpi"] is True
    master.run(modify(hypervisor="fake"))
    web_port = web.network_port
    assert master.config.instance(uuid_of("web")).network_port is None
    assert web_port in master.config.cluster().tcpudp_port_pool
    # The present hypervisor is not a change.
    assert master.run(modify(hypervisor="fake", beparams={"vcpus": 2})) == [["be/vcpus", 2]]


def test_parameters_must_be_those_of_the_new_hypervisor() -> None:
    master = mixed(instance_of("web", hypervisor="kvm"))
    master.refused(modify(hypervisor="fake", hvparams={"acpi": True}), errors.ECODE_INVAL)


@pytest.mark.parametrize(
    ("node", "changes", "op", "fragment"),
    [
        ("node1", {"hypervisor": "kvm"}, {"hypervisor": "lxc"}, "lxc is not enabled"),
        ("node3", {"hypervisor": "fake"}, {"hypervisor": "kvm"}, "have no hypervisor kvm"),
        ("node1", {"hypervisor": "kvm", "admin_state": "up"}, {"hypervisor": "fake"}, "up"),
    ],
)
def test_a_hypervisor_cannot_be_changed(
    node: str, changes: dict[str, Any], op: dict[str, Any], fragment: str
) -> None:
    master = mixed(instance_of("web", node, **changes))
    assert fragment in master.refused(modify(**op), errors.ECODE_STATE)


def test_a_guest_which_runs_all_the_same_keeps_its_hypervisor() -> None:
    master = mixed(instance_of("web", hypervisor="kvm"))
    master.rpc.run("web", "node1")
    assert "still runs" in master.refused(modify(hypervisor="fake"), errors.ECODE_STATE)


def test_disks_which_the_hypervisor_opens_itself() -> None:
    disk = dataclasses.replace(
        disk_of("web", 0, "rbd"), params={"access": "userspace", "pool": "rbd"}
    )
    web = instance_of("web", hypervisor="kvm", disks=(disk.uuid,))
    master = mixed(web, disks=(disk,), enabled_disk_templates=("rbd",))
    text = master.refused(modify(hypervisor="fake"), errors.ECODE_STATE)
    assert "disk 0" in text and "access=kernelspace" in text
