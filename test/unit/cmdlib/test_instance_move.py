"""Migration, failover and their clean-up: never on two nodes, and the configuration knows where."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.migration import live
from ganeti.objects import MigrationStatus
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch):
    """Polls follow each other at once."""
    monkeypatch.setattr(live, "POLL_S", 0)


def master_with(template="sharedfile", node_changes=None, running="node1", **changes):
    disks = () if template == "diskless" else (disk_of("web", 0, template),)
    values = {"admin_state": "up", "disks_active": True, **changes}
    web = instance_of("web", disks=tuple(disk.uuid for disk in disks), **values)
    master = Master(cluster_of(3, (web,), disks, node_changes=node_changes))
    if running:
        master.rpc.run("web", running)
    return master


def primary(master):
    return master.config.node(master.config.instance(uuid_of("web")).primary_node).name


def migrate(**changes):
    return OpInstanceMigrate(**{"instance_name": "web", "target_node": "node2", **changes})


def failover(**changes):
    return OpInstanceFailover(**{"instance_name": "web", "target_node": "node2", **changes})


def unreachable(call, node):
    return errors.NodeUnreachable(node, call, "timed out")


# -- migration -------------------------------------------------------------------


def test_a_live_migration():
    master = master_with()
    assert master.run(migrate()) is None
    steps = [(name, node) for name, node, _args in master.rpc.calls if name in master.rpc.acting()]
    assert steps == [
        ("blockdev_assemble", NODE2),
        ("accept_instance", NODE2),
        ("instance_migrate", NODE1),
        ("instance_finalize_migration_src", NODE1),
        ("instance_finalize_migration_dst", NODE2),
        ("blockdev_shutdown", NODE1),
    ]
    assert master.config.writes == ["set_instance_primary"]
    assert primary(master) == NODE2
    assert master.rpc.where("web") == ["node2"]
    _node, args = master.rpc.of("instance_migrate")[0]
    assert args["target"] == "192.0.2.2"
    assert args["live"] is True


@pytest.mark.parametrize(
    ("wish", "live"),
    [({"live": False}, False), ({"mode": "non-live"}, False), ({"mode": "live"}, True)],
)
def test_the_mode_may_be_chosen(wish, live):
    master = master_with()
    master.run(migrate(**wish))
    assert master.rpc.of("instance_migrate")[0][1]["live"] is live


@pytest.mark.parametrize(("wish", "live"), [({}, False), ({"mode": "live"}, True)])
def test_the_cluster_says_the_mode_where_nobody_chooses(wish, live):
    """Parameter migration_mode of the hypervisor."""
    master = master_with()
    cluster = master.config.cluster()
    hvparams = {**cluster.hvparams, "fake": {"migration_mode": "non-live"}}
    commit(master.config).update_cluster(dataclasses.replace(cluster, hvparams=hvparams))
    master.run(migrate(**wish))
    assert master.rpc.of("instance_migrate")[0][1]["live"] is live


def test_progress_is_told():
    master = master_with()
    states = iter([("active", 50), ("completed", 100)])

    def status(node, args):
        state, sent = next(states)
        return MigrationStatus(status=state, transferred_ram=sent, total_ram=100)

    master.rpc.answers["instance_get_migration_status"] = status
    master.run(migrate())
    assert master.job.said("50.0 % of its memory is sent")


def test_hooks_know_both_nodes():
    master = master_with()
    master.run(migrate())
    calls = [
        (node, args)
        for node, args in master.rpc.of("hooks_runner")
        if args["hpath"] == "instance-migrate"
    ]
    assert {node for node, _args in calls} == {NODE1, NODE2}
    pre, post = calls[0][1]["env"], calls[-1][1]["env"]
    assert pre["GANETI_OLD_PRIMARY"] == NODE1
    assert pre["GANETI_NEW_PRIMARY"] == NODE2
    assert pre["GANETI_MIGRATE_LIVE"] == "True"
    assert pre["GANETI_MIGRATE_CLEANUP"] == "False"
    assert post["GANETI_OLD_PRIMARY"] == NODE1
    assert post["GANETI_POST_OLD_PRIMARY"] == NODE2
    assert post["GANETI_POST_INSTANCE_PRIMARY"] == NODE2


@pytest.mark.parametrize(
    ("op", "ecode", "fragment"),
    [
        (migrate(target_node=None), errors.ECODE_INVAL, "--target-node"),
        (migrate(iallocator="hail"), errors.ECODE_INVAL, "allocator"),
        (migrate(target_node="nosuch"), errors.ECODE_NOENT, "nosuch"),
        (migrate(target_node="node1"), errors.ECODE_STATE, "already on node"),
        (migrate(live=True, mode="live"), errors.ECODE_INVAL, "only one"),
        (migrate(instance_name="nosuch"), errors.ECODE_NOENT, "nosuch"),
    ],
)
def test_migration_is_refused(op, ecode, fragment):
    assert fragment in master_with().refused(op, ecode)


def test_disks_on_one_node_cannot_move():
    text = master_with("file").refused(migrate(), errors.ECODE_STATE)
    assert "primary node only" in text


@pytest.mark.parametrize("flag", [{"offline": True}, {"drained": True}, {"vm_capable": False}])
def test_the_target_must_take_instances(flag):
    master_with(node_changes={2: flag}).refused(migrate(), errors.ECODE_STATE)


def test_the_target_needs_memory():
    master = master_with()
    master.rpc.free_mib[NODE2] = 100
    assert "128 MiB needed" in master.refused(migrate(), errors.ECODE_NORES)


def test_a_guest_bigger_than_the_target_is_shrunk_only_when_allowed():
    master = master_with(beparams={"minmem": 100, "maxmem": 128})
    master.rpc.free_mib[NODE2] = 110
    op = migrate(allow_runtime_changes=False, ignore_ipolicy=True)
    master.refused(op, errors.ECODE_NORES)
    master.run(migrate(ignore_ipolicy=True))
    assert master.rpc.of("instance_balloon_memory")[0][1]["memory_mib"] == 110


def test_an_older_hypervisor_is_refused_unless_ignored():
    master = master_with()

    def info(node, args):
        version = [9, 0] if node == NODE1 else [7, 2]
        return ["boot", [], [{"memory_free": 4096, "hv_version": version}]]

    master.rpc.answers["node_info"] = info
    text = master.refused(migrate(), errors.ECODE_STATE)
    assert "9.0" in text
    assert "7.2" in text
    master.run(migrate(ignore_hvversions=True))
    assert primary(master) == NODE2


def test_a_stopped_instance_is_not_migrated_but_may_be_failed_over():
    master = master_with(running=None)
    assert "does not run" in master.refused(migrate(), errors.ECODE_STATE)
    master.run(migrate(allow_failover=True))
    assert primary(master) == NODE2
    assert "instance_migrate" not in master.rpc.names()
    assert master.rpc.where("web") == ["node2"]


def test_an_instance_may_ask_never_to_be_migrated():
    master = master_with(beparams={"always_failover": True})
    master.run(migrate())
    assert "instance_migrate" not in master.rpc.names()
    assert "instance_shutdown" in master.rpc.names()


def test_what_the_hypervisor_refuses():
    master = master_with()
    master.rpc.errors["instance_migratable"] = "uses a passed-through device"
    assert "passed-through" in master.refused(migrate(), errors.ECODE_STATE)


# -- migration that fails --------------------------------------------------------


@pytest.mark.parametrize("call", ["blockdev_assemble", "accept_instance", "instance_migrate"])
def test_before_the_transfer_everything_goes_back(call):
    master = master_with()
    master.rpc.errors[call] = "it does not work"
    assert "it does not work" in master.failed(migrate())
    assert primary(master) == NODE1
    assert master.rpc.where("web") == ["node1"]
    assert master.config.writes == []
    assert ("blockdev_shutdown", NODE2) in [(n, node) for n, node, _ in master.rpc.calls]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_transfer_that_fails_leaves_the_guest_on_the_source(status):
    master = master_with()
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(status=status)
    assert status in master.failed(migrate())
    assert master.rpc.where("web") == ["node1"]
    assert primary(master) == NODE1
    success = [args["success"] for _node, args in master.rpc.of("instance_finalize_migration_src")]
    assert success == [False]


def test_a_source_that_falls_silent_is_not_guessed_about():
    """Touching either side could lose the guest."""
    master = master_with()
    call = "instance_get_migration_status"
    master.rpc.errors[call] = unreachable(call, NODE1)
    text = master.failed(migrate())
    assert "--cleanup" in text
    assert len(master.rpc.of(call)) == live.UNANSWERED_POLLS
    assert not [n for n in master.rpc.names() if n.startswith("instance_finalize")]
    assert primary(master) == NODE1


def test_a_short_silence_is_forgiven():
    master = master_with()
    call = "instance_get_migration_status"
    master.rpc.errors[call] = unreachable(call, NODE1)
    answer = master.rpc._answer

    def heal(asked, node, args):
        if len(master.rpc.of(call)) == live.UNANSWERED_POLLS - 2:
            master.rpc.errors.clear()
        return answer(asked, node, args)

    master.rpc._answer = heal
    master.run(migrate())
    assert primary(master) == NODE2


@pytest.mark.parametrize(
    "call", ["instance_finalize_migration_src", "instance_finalize_migration_dst"]
)
def test_after_the_transfer_the_configuration_knows_the_new_node(call):
    master = master_with()
    master.rpc.errors[call] = "busy"
    text = master.failed(migrate())
    assert f"runs on node {NODE2} now" in text
    assert "--cleanup" in text
    assert primary(master) == NODE2


# -- clean-up --------------------------------------------------------------------


def cleanup(**changes):
    return OpInstanceMigrate(instance_name="web", cleanup=True, **changes)


def test_cleanup_of_a_complete_transfer_which_nobody_wrote_down():
    master = master_with(running="node2")
    master.run(cleanup())
    assert primary(master) == NODE2
    assert master.rpc.where("web") == ["node2"]
    closed = {node for node, _args in master.rpc.of("blockdev_shutdown")}
    assert closed == {NODE1, NODE3}


def test_cleanup_before_the_transfer_removes_the_waiting_side():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    master.run(cleanup())
    assert primary(master) == NODE1
    assert master.rpc.where("web") == ["node1"]


@pytest.mark.parametrize(("status", "winner"), [("active", "node1"), ("completed", "node2")])
def test_cleanup_in_the_middle_asks_the_source(status, winner):
    master = master_with()
    master.rpc.run("web", "node2")
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(
        status=status, transferred_ram=9, total_ram=9
    )
    master.run(cleanup())
    assert master.rpc.where("web") == [winner]
    assert primary(master) == f"{winner}.example.com"


@pytest.mark.parametrize("came_by_migration", [False, True])
def test_cleanup_never_kills_one_of_two_guests_it_does_not_understand(came_by_migration):
    master = master_with()
    master.rpc.run("web", "node2")
    call = "instance_get_migration_status"
    if came_by_migration:
        master.rpc.answers[call] = MigrationStatus(status="completed")
    else:
        master.rpc.errors[call] = "no migration was started"
    text = master.failed(cleanup())
    assert NODE1 in text
    assert NODE2 in text
    assert master.rpc.where("web") == ["node1", "node2"]


def test_cleanup_of_an_instance_that_runs_nowhere():
    assert "runs nowhere" in master_with(running=None).failed(cleanup())


def test_cleanup_needs_all_nodes_to_answer():
    master = master_with()
    master.rpc.errors["all_instances_info", NODE3] = unreachable("all_instances_info", NODE3)
    assert NODE3 in master.failed(cleanup())
    assert master.rpc.acting() == []


def test_cleanup_twice_is_no_error():
    master = master_with(running="node2")
    master.run(cleanup())
    master.run(cleanup())
    assert primary(master) == NODE2


# -- failover --------------------------------------------------------------------


@pytest.mark.parametrize("template", ["sharedfile", "diskless"])
def test_a_failover_stops_writes_and_starts(template):
    master = master_with(template)
    master.run(failover(shutdown_timeout=9))
    assert master.config.writes == ["set_instance_primary", "set_disks_active"]
    names = [name for name in master.rpc.acting() if not name.startswith("blockdev")]
    assert names == ["instance_shutdown", "instance_start"]
    assert master.rpc.of("instance_shutdown")[0][1]["timeout_s"] == 9
    assert primary(master) == NODE2
    assert master.rpc.where("web") == ["node2"]


def test_a_failover_of_a_stopped_instance_does_not_start_it():
    master = master_with(running=None, admin_state="down")
    master.run(failover())
    assert primary(master) == NODE2
    assert master.rpc.where("web") == []


def test_a_failover_from_an_offline_node_asks_it_nothing():
    changes = {2: {"offline": True}}
    web = instance_of("web", "node2", admin_state="up")
    master = Master(cluster_of(3, (web,), node_changes=changes))
    master.run(failover(target_node="node3"))
    assert primary(master) == NODE3
    assert NODE2 not in {node for _name, node, _args in master.rpc.calls}


def test_a_failover_refuses_when_the_source_cannot_be_stopped():
    """Else the instance could run twice."""
    master = master_with()
    master.rpc.errors["instance_shutdown"] = unreachable("instance_shutdown", NODE1)
    text = master.failed(failover())
    assert "--ignore-consistency" in text
    assert primary(master) == NODE1
    assert master.rpc.where("web") == ["node1"]


def test_a_failover_may_be_forced_when_the_source_is_dead():
    master = master_with()
    for call in ("instance_shutdown", "instance_info", "blockdev_shutdown"):
        master.rpc.errors[call, NODE1] = unreachable(call, NODE1)
    master.run(failover(ignore_consistency=True))
    assert primary(master) == NODE2
    assert master.job.said("could not stop instance")


def test_a_failover_whose_start_fails_says_where_the_instance_is():
    master = master_with()
    master.rpc.errors["instance_start"] = "no such kernel"
    text = master.failed(failover())
    assert "no such kernel" in text
    assert NODE2 in text
    assert primary(master) == NODE2
    assert master.config.instance(uuid_of("web")).admin_state == "up"


def test_failover_hooks_also_run_on_the_old_node_afterwards():
    master = master_with()
    master.run(failover(target_node="node3"))
    hooks = [hook for hook in master.rpc.hooks() if hook[0] == "instance-failover"]
    assert hooks == [
        ("instance-failover", "pre", NODE1),
        ("instance-failover", "pre", NODE3),
        ("instance-failover", "post", NODE1),
        ("instance-failover", "post", NODE3),
    ]
