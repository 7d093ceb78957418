"""Migration and failover to nodes which an allocator chooses."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.migration import live
from ganeti.locking import Level
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch):
    """Polls follow each other at once."""
    monkeypatch.setattr(live, "POLL_S", 0)


def master_with(template="sharedfile", node_changes=None, **cluster):
    disks = (disk_of("web", 0, template),)
    web = instance_of("web", disks=(disks[0].uuid,), admin_state="up", disks_active=True)
    made = Master(cluster_of(3, (web,), disks, node_changes=node_changes, **cluster))
    made.rpc.run("web", "node1")
    made.rpc.answers["iallocator_runner"] = answer([NODE3])
    return made


def answer(result, success=True):
    return json.dumps({"success": success, "info": "said so", "result": result})


def migrate(**changes):
    return OpInstanceMigrate(**{"instance_name": "web", "iallocator": "chooser", **changes})


def failover(**changes):
    return OpInstanceFailover(**{"instance_name": "web", "iallocator": "chooser", **changes})


def primary(master):
    return master.config.node(master.config.instance(uuid_of("web")).primary_node).name


@pytest.mark.parametrize("op", [migrate(), failover()])
def test_the_allocator_chooses(op):
    master = master_with()
    master.run(op)
    assert primary(master) == NODE3
    assert master.rpc.where("web") == ["node3"]
    ((node, args),) = master.rpc.of("iallocator_runner")
    request = json.loads(args["request"])["request"]
    assert (node, args["name"]) == (NODE1, "chooser")
    assert request == {
        "type": "relocate",
        "name": "web.example.com",
        "disk_space_total": 1024,
        "required_nodes": 1,
        "relocate_from": [NODE1],
    }
    assert master.job.said(f"via iallocator chooser: {NODE3}")


@pytest.mark.parametrize("op", [migrate(), failover()])
def test_nodes_without_the_storage_are_not_offered_to_the_allocator(op):
    master = master_with()
    master.rpc.unmounted = {NODE2}
    master.run(op)
    ((_node, args),) = master.rpc.of("iallocator_runner")
    nodes = json.loads(args["request"])["nodes"]
    assert {name: node["drained"] for name, node in nodes.items()} == {
        NODE1: False,
        NODE2: True,
        NODE3: False,
    }
    assert master.job.said("nodes which cannot use the disks will not be chosen: node2.example.com")
    assert not master.config.node(uuid_of("node2")).drained


@pytest.mark.parametrize("op", [migrate(iallocator=None), failover(iallocator=None)])
def test_with_two_nodes_nobody_has_to_choose(op):
    master = master_with(node_changes={2: {"drained": True}})
    master.run(op)
    assert primary(master) == NODE3
    assert not master.rpc.of("iallocator_runner")
    assert "no default instance allocator" in master_with().refused(op, errors.ECODE_INVAL)


def test_nodes_that_were_not_chosen_are_given_back():
    master = master_with()
    seen = []

    def look(result):
        def handler(node, args):
            seen.append(
                {
                    level: set(master.locks.owned(master.job.owner, level))
                    for level in (Level.NODE, Level.NODE_RES)
                }
            )
            return result

        return handler

    master.rpc.answers["iallocator_runner"] = look(answer([NODE3]))
    master.rpc.answers["accept_instance"] = look(None)
    master.run(migrate())
    everywhere = {uuid_of(f"node{number}") for number in (1, 2, 3)}
    assert seen[0] == {Level.NODE: everywhere, Level.NODE_RES: everywhere}
    both = everywhere - {uuid_of("node2")}
    assert seen[1] == {Level.NODE: both, Level.NODE_RES: both}


def test_a_node_that_came_while_waiting_is_not_taken():
    """Its locks are not held."""
    master = master_with(node_changes={3: {"drained": True, "master_candidate": False}})
    job = master.new_job()
    start = job.notify_start

    def undrain():
        node = master.config.node(uuid_of("node3"))
        commit(master.config).nodes.update(dataclasses.replace(node, drained=False))
        start()

    job.notify_start = undrain
    with pytest.raises(errors.OpPrereqError, match="Please retry") as caught:
        master.run(migrate(), job)
    assert caught.value.ecode == errors.ECODE_STATE
    assert primary(master) == NODE1


@pytest.mark.parametrize("given", [None, "."])
def test_the_clusters_default_allocator(given):
    master = master_with(default_iallocator="dumpin")
    master.run(migrate(iallocator=given))
    assert primary(master) == NODE3
    assert master.rpc.of("iallocator_runner")[0][1]["name"] == "dumpin"


def test_a_named_node_goes_before_the_default_allocator():
    master = master_with(default_iallocator="dumpin")
    master.run(migrate(iallocator=None, target_node="node2"))
    assert primary(master) == NODE2
    assert master.rpc.of("iallocator_runner") == []


def test_hooks_run_on_the_chosen_node():
    master = master_with()
    master.run(migrate())
    told = {
        node for node, args in master.rpc.of("hooks_runner") if args["hpath"] == "instance-migrate"
    }
    assert told == {NODE1, NODE3}


def test_a_dead_node_is_left_with_an_allocator():
    master = master_with()
    master.rpc.errors["instance_shutdown"] = errors.NodeUnreachable(NODE1, "x", "timed out")
    master.run(failover(ignore_consistency=True))
    assert primary(master) == NODE3


@pytest.mark.parametrize(
    ("result", "ecode", "fragment"),
    [
        (answer("no room", success=False), errors.ECODE_NORES, "said so"),
        (answer(["nosuch"]), errors.ECODE_ENVIRON, "nosuch"),
        (answer([NODE1]), errors.ECODE_ENVIRON, f"is on node {NODE1} already"),
        (answer([NODE2]), errors.ECODE_ENVIRON, "drained"),
        (answer([NODE2, NODE3]), errors.ECODE_ENVIRON, "needs 1 node"),
        ("nonsense", errors.ECODE_ENVIRON, "cannot be read"),
    ],
)
@pytest.mark.parametrize("op", [migrate(), failover()])
def test_answers_that_do_not_help(op, result, ecode, fragment):
    master = master_with(node_changes={2: {"drained": True, "master_candidate": False}})
    master.rpc.answers["iallocator_runner"] = result
    assert fragment in master.refused(op, ecode)
    assert primary(master) == NODE1


@pytest.mark.parametrize("op", [migrate(target_node="node2"), failover(target_node="node2")])
def test_a_node_and_an_allocator(op):
    assert "not both" in master_with().refused(op, errors.ECODE_INVAL)


@pytest.mark.parametrize("op", [migrate(iallocator="."), failover(iallocator=None)])
def test_no_default_allocator(op):
    assert "--target-node" in master_with().refused(op, errors.ECODE_INVAL)


@pytest.mark.parametrize("op", [migrate(), failover()])
def test_disks_on_one_node_are_refused_before_anybody_is_asked(op):
    master = master_with("file")
    master.refused(op, errors.ECODE_STATE)
    assert master.rpc.of("iallocator_runner") == []


def test_a_dry_run_asks_and_changes_nothing():
    master = master_with()
    master.run(migrate(dry_run=True))
    assert primary(master) == NODE1
    assert len(master.rpc.of("iallocator_runner")) == 1
