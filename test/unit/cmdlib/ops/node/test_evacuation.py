"""Emptying a node: by migrations, by an evacuation, with a target node and with an allocator."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.objects import Disk
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate

NODE1, NODE2, NODE3 = (f"node{n}.example.com" for n in (1, 2, 3))


def full_node(*templates, primary="node2", **changes):
    """The second node with an instance for each template; mirrored ones are on the first, too."""
    instances, disks = [], []
    for number, template in enumerate(templates):
        name = f"web{number}"
        mine = [] if template == "diskless" else [disk_of(name, template=template, node="node2")]
        if template == "drbd":
            mine = [mirrored(name, primary)]
        disks += mine
        instances.append(
            instance_of(
                name, primary, disks=tuple(d.uuid for d in mine), admin_state="up", **changes
            )
        )
    return Master(cluster_of(3, tuple(instances), tuple(disks)))


def mirrored(name, primary):
    pair = [uuid_of(primary), uuid_of("node1" if primary == "node2" else "node2")]
    children = tuple(
        Disk(
            dev_type="plain",
            logical_id=("xenvg", f"{name}.{part}"),
            size=size,
            nodes=tuple(pair),
            uuid=uuid_of(f"{name}-{part}"),
            serial_no=1,
        )
        for part, size in (("data", 1024), ("meta", 128))
    )
    return Disk(
        dev_type="drbd",
        logical_id=(*pair, 11000, 0, 0, "secret"),
        children=children,
        size=1024,
        iv_name="disk/0",
        nodes=tuple(pair),
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
    )


def moves(master):
    return [(op.OP_ID, op.instance_name, op.target_node) for (op,) in master.job.submitted]


def test_migrating_all_instances_of_a_node():
    master = full_node("diskless", "sharedfile")
    result = master.run(
        OpNodeMigrate(node_name="node2", target_node="node3", mode="non-live", ignore_ipolicy=True)
    )
    assert result == {"jobs": [[True, 100], [True, 101]]}
    assert moves(master) == [("OP_INSTANCE_MIGRATE", f"web{n}.example.com", NODE3) for n in (0, 1)]
    assert master.job.submitted[0][0].mode == "non-live"
    assert master.job.submitted[0][0].ignore_ipolicy
    hooks = [(phase, node) for name, phase, node in master.rpc.hooks() if name == "node-migrate"]
    assert hooks == [("pre", NODE1), ("post", NODE1)]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_NODE_NAME"] == NODE2


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({}, errors.ECODE_INVAL, "--target-node"),
        ({"iallocator": "chooser", "target_node": "node3"}, errors.ECODE_INVAL, "not both"),
        ({"target_node": "node2"}, errors.ECODE_INVAL, "its own instances"),
        ({"target_node": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"target_node": "node3", "live": True, "mode": "live"}, errors.ECODE_INVAL, "only one"),
    ],
)
def test_migrations_that_are_refused(changes, ecode, fragment):
    op = OpNodeMigrate(node_name="node2", **changes)
    assert fragment in full_node("diskless").refused(op, ecode)


@pytest.mark.parametrize(
    "choice", [{"iallocator": "chooser"}, {"iallocator": "."}, {"iallocator": None}]
)
def test_each_migration_asks_the_allocator(choice):
    """An instance with mirrored disks has its target already."""
    master = full_node("diskless", "drbd")
    commit(master.config).cluster.update(
        dataclasses.replace(master.config.cluster(), default_iallocator="chooser")
    )
    master.run(OpNodeMigrate(node_name="node2", **choice))
    found = [(op.instance_name, op.target_node, op.iallocator) for (op,) in master.job.submitted]
    assert found == [
        ("web0.example.com", None, choice["iallocator"]),
        ("web1.example.com", None, None),
    ]
    assert master.rpc.of("iallocator_runner") == []


def test_disks_on_one_node_are_named():
    text = full_node("diskless", "file").refused(
        OpNodeMigrate(node_name="node2", target_node="node3"), errors.ECODE_STATE
    )
    stuck, moved = text.split("would have moved")
    assert "web1.example.com" in stuck and "web0" not in stuck
    assert moved == " web0.example.com."


def test_an_empty_node_needs_no_target():
    assert Master(cluster_of(2)).run(OpNodeMigrate(node_name="node2")) == {"jobs": []}


@pytest.mark.parametrize("mode", ["primary-only", "all"])
def test_evacuating_a_node(mode):
    master = full_node("diskless", "sharedfile")
    master.run(OpNodeEvacuate(node_name="node2", mode=mode, remote_node="node3"))
    assert moves(master) == [("OP_INSTANCE_MIGRATE", f"web{n}.example.com", NODE3) for n in (0, 1)]
    assert all(op.allow_failover for (op,) in master.job.submitted)


def test_evacuating_a_dead_node():
    master = full_node("diskless")
    commit(master.config).nodes.update(
        dataclasses.replace(
            master.config.node(uuid_of("node2")), offline=True, master_candidate=False
        )
    )
    master.run(OpNodeEvacuate(node_name="node2", mode="all", remote_node="node3"))
    assert len(moves(master)) == 1


def test_nothing_to_evacuate():
    master = full_node("diskless")
    assert master.run(OpNodeEvacuate(node_name="node2", mode="secondary-only")) == {"jobs": []}
    assert master.job.said("no instances")


@pytest.mark.parametrize(
    ("templates", "changes", "ecode", "fragment"),
    [
        (["diskless"], {}, errors.ECODE_INVAL, "--new-secondary"),
        (
            ["diskless", "file"],
            {"iallocator": "chooser"},
            errors.ECODE_STATE,
            "disks of template file",
        ),
        (["drbd"], {"remote_node": "node1"}, errors.ECODE_STATE, "a replica of its disks already"),
        (
            ["diskless"],
            {"iallocator": "chooser", "remote_node": "node3"},
            errors.ECODE_INVAL,
            "not both",
        ),
        (["diskless"], {"remote_node": "node2"}, errors.ECODE_INVAL, "its own instances"),
        (
            ["diskless", "file"],
            {"remote_node": "node3"},
            errors.ECODE_STATE,
            "web1.example.com (disks of template file",
        ),
    ],
)
def test_evacuations_that_are_refused(templates, changes, ecode, fragment):
    op = OpNodeEvacuate(node_name="node2", mode="all", **changes)
    assert fragment in full_node(*templates).refused(op, ecode)


def test_a_refused_evacuation_names_what_could_be_moved():
    op = OpNodeEvacuate(node_name="node2", mode="all", remote_node="node3")
    text = full_node("diskless", "file").refused(op, errors.ECODE_STATE)
    assert text.endswith(
        "Nothing was moved; without the instances which cannot be moved, it would"
        " have moved web0.example.com."
    )
    assert full_node("file").refused(op, errors.ECODE_STATE).endswith(" Nothing was moved.")
    master = full_node("diskless", "diskless")
    answer = evacuation(MOVED[:1], [["web1.example.com", "no memory"]])
    master.rpc.answers["iallocator_runner"] = answer
    assert "would have moved web0.example.com (to " in master.refused(
        evacuate(), errors.ECODE_NORES
    )


# -- evacuating mirrored disks ---------------------------------------------------


@pytest.mark.parametrize(
    ("primary", "mode", "expected"),
    [
        ("node1", "secondary-only", ["OP_INSTANCE_REPLACE_DISKS"]),
        ("node1", "all", ["OP_INSTANCE_REPLACE_DISKS"]),
        ("node2", "primary-only", ["OP_INSTANCE_MIGRATE"]),
        ("node2", "all", ["OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"]),
    ],
)
def test_mirrored_disks_get_a_new_partner(primary, mode, expected):
    master = full_node("drbd", primary=primary)
    master.run(
        OpNodeEvacuate(node_name="node2", mode=mode, remote_node="node3", early_release=True)
    )
    (job,) = master.job.submitted
    assert [op.OP_ID for op in job] == expected
    if expected[0] == "OP_INSTANCE_MIGRATE":
        assert job[0].target_node is None and job[0].allow_failover
    if expected[-1] == "OP_INSTANCE_REPLACE_DISKS":
        op = job[-1]
        assert (op.remote_node, op.mode, op.early_release) == (NODE3, "replace_new_secondary", True)


# -- evacuating with an allocator ------------------------------------------------


def evacuation(moved, failed=(), jobs=()):
    return json.dumps({"success": True, "info": "done", "result": [moved, failed, jobs]})


def wanted(name, op_id="OP_INSTANCE_MIGRATE", **fields):
    return [{"OP_ID": op_id, "instance_name": f"{name}.example.com", **fields}]


MOVED = [["web0.example.com", "default", [NODE3]], ["web1.example.com", "default", [NODE1]]]


def evacuate(**changes):
    return OpNodeEvacuate(
        **{"node_name": "node2", "mode": "all", "iallocator": "chooser", **changes}
    )


def test_the_allocator_says_which_jobs_empty_the_node():
    master = full_node("diskless", "sharedfile")
    jobs = [
        wanted("web0", target_node=NODE3, allow_failover=True),
        wanted("web1", target_node=NODE1),
    ]
    master.rpc.answers["iallocator_runner"] = evacuation(MOVED, jobs=jobs)
    result = master.run(evacuate(ignore_soft_errors=True, reason=[["me", "test", 1]]))
    assert result == {"jobs": [[True, 100], [True, 101]]}
    assert moves(master) == [
        ("OP_INSTANCE_MIGRATE", "web0.example.com", NODE3),
        ("OP_INSTANCE_MIGRATE", "web1.example.com", NODE1),
    ]
    assert master.job.submitted[0][0].allow_failover
    assert master.job.submitted[0][0].reason[0][0] == "me"
    ((_node, args),) = master.rpc.of("iallocator_runner")
    assert args["parameters"] == {"ignore-soft-errors": None}
    request = json.loads(args["request"])["request"]
    assert request == {
        "type": "node-evacuate",
        "evac_mode": "all",
        "instances": ["web0.example.com", "web1.example.com"],
    }


@pytest.mark.parametrize("given", [None, "."])
def test_evacuation_by_the_default_allocator(given):
    master = full_node("diskless")
    commit(master.config).cluster.update(
        dataclasses.replace(master.config.cluster(), default_iallocator="dumpin")
    )
    master.rpc.answers["iallocator_runner"] = evacuation(MOVED[:1], jobs=[wanted("web0")])
    master.run(evacuate(iallocator=given))
    assert master.rpc.of("iallocator_runner")[0][1]["name"] == "dumpin"
    assert len(moves(master)) == 1


def test_early_release_reaches_the_allocators_jobs():
    master = full_node("drbd", primary="node1")
    master.rpc.answers["iallocator_runner"] = evacuation(
        MOVED[:1],
        jobs=[
            wanted(
                "web0",
                "OP_INSTANCE_REPLACE_DISKS",
                mode="replace_new_secondary",
                disks=[],
                remote_node=NODE3,
            )
        ],
    )
    master.run(evacuate(mode="secondary-only", early_release=True))
    ((op,),) = master.job.submitted
    assert op.early_release


@pytest.mark.parametrize(
    ("answer", "ecode", "fragment"),
    [
        (
            evacuation(MOVED[:1], [["web1.example.com", "no memory"]]),
            errors.ECODE_NORES,
            "web1.example.com (no memory)",
        ),
        (
            evacuation(MOVED[:1]),
            errors.ECODE_ENVIRON,
            "chooser lacks instance web1.example.com",
        ),
        (
            evacuation(MOVED, jobs=[[{"OP_ID": "OP_CLUSTER_DESTROY"}]]),
            errors.ECODE_ENVIRON,
            "not an opcode that moves",
        ),
        (evacuation(MOVED, jobs=[wanted("stranger")]), errors.ECODE_ENVIRON, "stranger"),
        (json.dumps({"success": False, "info": "full", "result": []}), errors.ECODE_NORES, "full"),
    ],
)
def test_an_allocator_that_does_not_help(answer, ecode, fragment):
    master = full_node("diskless", "diskless")
    master.rpc.answers["iallocator_runner"] = answer
    assert fragment in master.refused(evacuate(), ecode)
    assert master.job.submitted == []
