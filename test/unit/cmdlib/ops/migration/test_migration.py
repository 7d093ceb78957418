"""Migration, failover and their clean-up: never on two nodes, and the configuration knows where."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.migration import live
from ganeti.constants import hv
from ganeti.objects import MigrationStatus
from ganeti.objects.halt import Halt
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


# -- the storage of the target ---------------------------------------------------


@pytest.mark.parametrize("op", [migrate(), failover()])
@pytest.mark.parametrize(
    ("answer", "fragment"),
    [
        (errors.BlockDeviceError("there is no directory /srv/x. Mount it"), "Mount it"),
        (False, "disk/0 of instance web.example.com does not exist there"),
        (True, "is not the one of node node1.example.com"),
    ],
)
def test_a_guest_stays_when_the_target_has_not_its_storage(op, answer, fragment):
    """Also when a file of that name is in the directory below which nothing is mounted."""
    master = master_with()
    master.rpc.answers["blockdev_reachable_multi"] = answer
    master.rpc.unmounted = {NODE2}
    problem = master.refused(op, errors.ECODE_ENVIRON)
    assert fragment in problem and "stays where it is" in problem
    assert master.rpc.where("web") == ["node1"]
    assert master.rpc.acting() == []
    assert master.config.writes == []


@pytest.mark.parametrize("call", ["blockdev_reachable_multi", "directory_mark", "directory_seen"])
def test_not_known_is_no_reason_to_stay(call):
    """The source itself may have lost the storage."""
    master = master_with()
    master.rpc.errors[call] = "stale file handle"
    master.run(failover())
    assert master.job.said("it is not known whether node node2.example.com can use the disks")
    assert primary(master) == NODE2


def test_a_dead_source_is_not_asked_for_its_directory():
    master = master_with(node_changes={1: {"offline": True}}, running=None)
    master.rpc.unmounted = {NODE1}
    master.run(failover())
    assert primary(master) == NODE2
    assert master.rpc.of("directory_mark") == []


# -- migration -------------------------------------------------------------------


def test_a_live_migration():
    master = master_with()
    assert master.run(migrate()) is None
    steps = [(name, node) for name, node, _args in master.rpc.calls if name in master.rpc.acting()]
    assert steps == [
        ("blockdev_assemble_multi", NODE2),
        ("accept_instance", NODE2),
        ("instance_migrate", NODE1),
        ("instance_finalize_migration_src", NODE1),
        ("instance_finalize_migration_dst", NODE2),
        ("blockdev_shutdown_multi", NODE1),
    ]
    assert master.config.writes == ["instances.set_primary"]
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
    commit(master.config).cluster.update(dataclasses.replace(cluster, hvparams=hvparams))
    master.run(migrate(**wish))
    assert master.rpc.of("instance_migrate")[0][1]["live"] is live


def halted(kind):
    master = master_with()
    master.rpc.halts["web.example.com", NODE1] = Halt("its-state", kind, "it says so")
    return master


@pytest.mark.parametrize("allowed", [False, True])
def test_a_guest_which_somebody_has_paused_is_not_continued_by_a_migration(allowed):
    master = halted(hv.HALT_PAUSED)
    problem = master.refused(migrate(allow_failover=allowed), errors.ECODE_STATE)
    assert "does not run, and would run afterwards: its-state (it says so)" in problem
    assert "'gnt-instance startup --continue web.example.com'" in problem
    assert master.rpc.acting() == []


def test_a_guest_which_can_never_run_on_is_not_sent():
    master = halted(hv.HALT_ENDED)
    assert "cannot run on: its-state" in master.refused(migrate(), errors.ECODE_STATE)
    master.run(migrate(allow_failover=True))
    assert "instance_migrate" not in master.rpc.names()
    assert primary(master) == NODE2 and master.rpc.where("web") == ["node2"]


def test_a_guest_which_an_error_has_halted_may_find_better_storage():
    master = halted(hv.HALT_CONTINUES)
    master.run(migrate())
    assert primary(master) == NODE2


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
        (migrate(iallocator="chooser"), errors.ECODE_INVAL, "allocator"),
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


def facts(**by_node):
    """What the nodes report about their hypervisor."""
    return lambda node, _args: ["boot", [], [{"memory_free": 4096, **by_node[node.split(".")[0]]}]]


@pytest.mark.parametrize(
    "protocols",
    [
        {"node1": {}, "node2": {"migration_protocol": 2}},
        {"node1": {"migration_protocol": 2}, "node2": {}},
    ],
)
def test_a_node_of_the_release_before_is_refused_before_anything_is_done(protocols):
    master = master_with()
    master.rpc.answers["node_info"] = facts(**protocols)
    text = master.refused(migrate(), errors.ECODE_STATE)
    assert "node1.example.com sends guests in another way than node node2.example.com" in text
    assert "Install the same release on both nodes" in text
    assert acts(master) == []
    assert "migration_info" not in master.rpc.names()
    # The instance can be failed over meanwhile.
    master.run(migrate(allow_failover=True))
    assert primary(master) == NODE2
    assert "instance_migrate" not in master.rpc.names()


@pytest.mark.parametrize(
    ("source", "target", "any_port"),
    [(True, True, True), (True, None, False), (None, True, False), (None, None, False)],
)
def test_the_nodes_agree_on_a_port_where_both_can(source, target, any_port):
    """A node of the release before has the port of all migrations."""
    master = master_with()
    both = {"node1": source, "node2": target}
    known = {node: {"migration_any_port": one} if one else {} for node, one in both.items()}
    master.rpc.answers["node_info"] = facts(**known)

    def accept(node, args):
        master.rpc.running["web", "node2"] = 1
        return 8107 if args["any_port"] else None

    master.rpc.answers["accept_instance"] = accept
    master.run(migrate())
    assert master.rpc.of("accept_instance")[0][1]["any_port"] is any_port
    assert master.rpc.of("instance_migrate")[0][1]["port"] == (8107 if any_port else None)


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


@pytest.mark.parametrize("call", ["blockdev_assemble_multi", "accept_instance", "instance_migrate"])
def test_before_the_transfer_everything_goes_back(call):
    master = master_with()
    master.rpc.errors[call] = "it does not work"
    assert "it does not work" in master.failed(migrate())
    assert primary(master) == NODE1
    assert master.rpc.where("web") == ["node1"]
    assert master.config.writes == []
    assert ("blockdev_shutdown_multi", NODE2) in [(n, node) for n, node, _ in master.rpc.calls]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_transfer_that_fails_leaves_the_guest_on_the_source(status):
    master = master_with()
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(status=status)
    assert status in master.failed(migrate())
    assert master.rpc.where("web") == ["node1"]
    assert primary(master) == NODE1
    success = [args["success"] for _node, args in master.rpc.of("instance_finalize_migration_src")]
    assert success == [False]


def test_a_guest_which_came_by_migration_is_not_taken_for_one_which_was_sent():
    """The source did not begin; what it reports is how the guest came to it."""
    master = master_with()
    master.rpc.errors["instance_migrate"] = "no trusted connection to 192.0.2.2"
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(status="completed")
    assert "no trusted connection to 192.0.2.2" in master.failed(migrate())
    assert master.rpc.where("web") == ["node1"]
    assert primary(master) == NODE1
    success = [args["success"] for _node, args in master.rpc.of("instance_finalize_migration_src")]
    assert success == [False]


def test_why_a_migration_was_cancelled():
    master = master_with()
    master.rpc.errors["instance_migrate"] = "nothing was sent within 10 s"
    master.rpc.answers["instance_get_migration_status"] = MigrationStatus(status="cancelled")
    assert "cancelled: " in master.failed(migrate())
    assert "nothing was sent within 10 s" in master.failed(migrate())


def test_the_reason_of_both_nodes_for_a_failed_transfer_is_told():
    master = master_with()
    reasons = {"node1": "the connection ended", "node2": "no room for the disk"}
    master.rpc.answers["instance_get_migration_status"] = lambda node, _args: MigrationStatus(
        status="failed", error=reasons[node.split(".")[0]]
    )
    text = master.failed(migrate())
    assert "failed: the connection ended. Node node2.example.com says: no room" in text


def test_a_target_which_does_not_answer_hides_no_reason():
    master = master_with()

    call = "instance_get_migration_status"
    master.rpc.answers[call] = MigrationStatus(status="failed", error="the connection ended")
    master.rpc.errors[call, "node2.example.com"] = "its guest has ended"
    assert "failed: the connection ended" in master.failed(migrate())


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


@pytest.mark.parametrize("problem", ["QEMU does not answer", "instance web ended", "timed out"])
def test_a_transfer_that_cannot_be_followed_is_left_alone(problem):
    """A node which answers that it cannot tell reports no failure: the transfer may be complete."""
    master = master_with()
    call = "instance_get_migration_status"
    master.rpc.errors[call] = problem
    text = master.failed(migrate())
    assert problem in text and NODE1 in text and NODE2 in text and "--cleanup" in text
    assert acts(master) == [("accept_instance", "node2", None), ("migrate", "node1", None)]
    assert ("blockdev_shutdown_multi", NODE2) not in [(n, node) for n, node, _ in master.rpc.calls]
    assert primary(master) == NODE1


def test_a_request_to_send_whose_answer_was_lost_may_have_worked():
    master = master_with()
    call = "instance_migrate"
    master.rpc.errors[call] = unreachable(call, NODE1)
    reports(master, node1="completed!")
    master.run(migrate())
    assert primary(master) == NODE2 and master.rpc.where("web") == ["node2"]


def test_a_request_to_send_which_may_still_be_on_its_way_is_not_undone():
    master = master_with()
    call = "instance_migrate"
    master.rpc.errors[call] = unreachable(call, NODE1)
    assert "--cleanup" in master.failed(migrate())
    assert acts(master) == [("accept_instance", "node2", None), ("migrate", "node1", None)]


def test_an_unexpected_error_after_the_request_to_send_undoes_nothing(monkeypatch):
    master = master_with()

    def stop(*_args, **_more):
        raise errors.JobCanceled("the job was canceled")

    monkeypatch.setattr(live, "follow", stop)
    with pytest.raises(errors.JobCanceled):
        master.run(migrate())
    assert acts(master) == [("accept_instance", "node2", None), ("migrate", "node1", None)]


def test_the_target_ends_before_the_source_goes_on():
    master = master_with()
    reports(master, node1="failed!")
    master.failed(migrate())
    assert acts(master)[2:] == [
        ("finalize_migration_dst", "node2", False),
        ("finalize_migration_src", "node1", False),
    ]


@pytest.mark.parametrize("problem", ["does not end", unreachable("call", NODE2)])
def test_the_source_is_left_alone_when_the_target_is_not_known_to_have_ended(problem):
    master = master_with()
    reports(master, node1="failed!")
    master.rpc.errors["instance_finalize_migration_dst"] = problem
    text = master.failed(migrate())
    assert f"was not continued on node {NODE1}" in text and "--cleanup" in text
    assert acts(master)[2:] == [("finalize_migration_dst", "node2", False)]


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


def test_many_short_silences_are_forgiven():
    """Only questions without an answer which follow each other count."""
    master = master_with()
    call = "instance_get_migration_status"
    asked = itertools.count()
    answer = master.rpc._answer
    per_silence = live.UNANSWERED_POLLS - 1

    def flaky(request, node, args):
        if request.name == call:
            number = next(asked)
            done = number > 3 * (per_silence + 1)
            reports(master, node1="completed!" if done else "active!")
            master.rpc.errors.pop(call, None)
            if not done and number % (per_silence + 1):
                master.rpc.errors[call] = unreachable(call, NODE1)
        return answer(request, node, args)

    master.rpc._answer = flaky
    master.run(migrate())
    assert next(asked) > 3 * per_silence
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
    closed = {node for node, _args in master.rpc.of("blockdev_shutdown_multi")}
    assert closed == {NODE1, NODE3}


def test_cleanup_before_the_transfer_removes_the_waiting_side():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    master.run(cleanup())
    assert primary(master) == NODE1
    assert master.rpc.where("web") == ["node1"]


def reports(master, **states):
    """What the nodes report about the migration: a state, and "!" where it is the sender's.

    With a list, each report has the next state, and all after the last one have that.
    """

    def report(node, _args):
        state = states.get(node.split(".")[0], "none")
        if isinstance(state, list):
            state = state.pop(0) if len(state) > 1 else state[0]
        size = 9 if state.endswith("!") else None
        state = state.rstrip("!")
        postcopy = state.startswith("postcopy")
        return MigrationStatus(
            status="postcopy-active" if postcopy else state,
            postcopy_status=state if postcopy else None,
            transferred_ram=size,
            total_ram=size,
        )

    master.rpc.answers["instance_get_migration_status"] = report


def acts(master):
    """The calls which change a guest: (name, node, success)."""
    wanted = ("instance_shutdown", "instance_migrate", "accept_instance")
    return [
        (name.removeprefix("instance_"), node.split(".")[0], args.get("success"))
        for name, node, args in master.rpc.calls
        if name in wanted or name.startswith("instance_finalize")
    ]


@pytest.mark.parametrize("primary_is", ["node1", "node2"])
def test_cleanup_when_all_was_sent_keeps_the_target(primary_is):
    """Also when the configuration knew it already, and the target was not continued."""
    master = master_with()
    master.rpc.run("web", "node2")
    if primary_is == "node2":
        with master.config.transaction() as change:
            change.instances.set_primary(uuid_of("web"), uuid_of("node2"))
    reports(master, node1="completed!", node2="completed")
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_src", "node1", True),
        ("finalize_migration_dst", "node2", True),
    ]
    assert master.rpc.where("web") == ["node2"] and primary(master) == NODE2


def test_cleanup_when_all_was_sent_waits_for_a_target_which_has_not_read_it():
    """It was ended, and the source, whose guest was complete elsewhere, ran on."""
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1="completed!")
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_src", "node1", True),
        ("finalize_migration_dst", "node2", True),
    ]
    assert primary(master) == NODE2


@pytest.mark.parametrize("state", ["none", "failed!", "cancelled!"])
def test_cleanup_before_all_was_sent_ends_the_target_first(state):
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1=state)
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_dst", "node2", False),
        ("finalize_migration_src", "node1", False),
    ]
    assert master.rpc.where("web") == ["node1"] and primary(master) == NODE1


def test_cleanup_lets_the_source_end_a_transfer_which_goes_on():
    """Otherwise the guest might be sent to a target which has ended, and run nowhere."""
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1="active!")
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_src", "node1", False),
        ("finalize_migration_dst", "node2", False),
    ]
    assert master.rpc.where("web") == ["node1"] and primary(master) == NODE1


def test_cleanup_of_a_transfer_which_ends_meanwhile_keeps_the_target():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1=["active!", "completed!"])
    refused = errors.NodeCallFailed(NODE1, "instance_finalize_migration_src", "it was sent")
    master.rpc.answers["instance_finalize_migration_src"] = lambda _node, args: (
        None if args["success"] else refused
    )
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_src", "node1", False),
        ("finalize_migration_src", "node1", True),
        ("finalize_migration_dst", "node2", True),
    ]
    assert primary(master) == NODE2


def test_cleanup_lets_the_source_end_a_transfer_whose_guest_has_arrived():
    """It was not handed over: the target is ended hard, when the source is known to run it."""
    master = master_with()
    master.rpc.run("web", "node2")
    reports(master, node1="active!", node2="completed")
    master.run(cleanup())
    assert acts(master) == [
        ("finalize_migration_src", "node1", False),
        ("shutdown", "node2", None),
    ]
    assert primary(master) == NODE1


def test_cleanup_of_a_transfer_which_cannot_be_ended_changes_nothing():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1="active!")
    master.rpc.errors["instance_finalize_migration_src"] = "Xen is busy"
    text = master.failed(cleanup())
    assert f"from node {NODE1} does not end: Xen is busy" in text
    assert {name for name, _node, _success in acts(master)} == {"finalize_migration_src"}
    assert primary(master) == NODE1


def test_cleanup_removes_what_a_former_source_keeps():
    """Its guest ended when all was sent, and the configuration names the target already."""
    master = master_with()
    master.rpc.running.clear()
    master.rpc.run("web", "node2")
    with master.config.transaction() as change:
        change.instances.set_primary(uuid_of("web"), uuid_of("node2"))
    reports(master, node1="completed!")
    master.run(cleanup())
    assert ("finalize_migration_src", "node1", True) in acts(master)


def test_cleanup_leaves_the_source_alone_when_the_target_does_not_end():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    reports(master, node1="failed!")
    master.rpc.errors["instance_finalize_migration_dst"] = "has arrived on this node"
    with pytest.raises(errors.GenericError, match="has arrived"):
        master.run(cleanup())
    assert acts(master) == [("finalize_migration_dst", "node2", False)]


def test_cleanup_waits_until_a_source_knows_how_its_transfer_ended():
    master = master_with()
    master.rpc.run("web", "node2")
    reports(master, node1=["active!", "active!", "completed!"], node2="completed")
    master.run(cleanup())
    assert primary(master) == NODE2 and master.rpc.where("web") == ["node2"]


def test_cleanup_when_the_transfer_failed_after_all_had_arrived():
    """The source runs on; the target, which nobody continued, is ended hard, and first."""
    master = master_with()
    master.rpc.run("web", "node2")
    reports(master, node1="failed!", node2="completed")
    master.run(cleanup())
    assert acts(master) == [
        ("shutdown", "node2", None),
        ("finalize_migration_src", "node1", False),
    ]
    assert primary(master) == NODE1


def test_cleanup_when_what_was_sent_is_lost():
    """The source does not run on: the target may have written before it was lost."""
    master = master_with()
    reports(master, node1="completed!")
    text = master.failed(cleanup())
    assert f"sent from node {NODE1}" in text and "gnt-instance shutdown" in text
    assert acts(master) == []


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ({}, "several nodes"),
        ({"node1": "completed"}, "several nodes"),
        ({"node1": "active!"}, "several nodes"),
        ({"node1": "completed", "node2": "active!"}, "several nodes"),
        ({"node1": "completed", "node2": "completed"}, "several nodes"),
        ({"node2": "completed"}, "several nodes"),
        ({"node1": "completed", "node2": "failed!"}, "several nodes"),
        ({"node1": "completed!", "node2": "completed!"}, "cannot run on"),
    ],
)
def test_cleanup_never_kills_one_of_two_guests_it_does_not_understand(states, text):
    master = master_with()
    master.rpc.run("web", "node2")
    reports(master, **states)
    problem = master.failed(cleanup())
    assert text in problem and NODE1 in problem and NODE2 in problem
    assert acts(master) == []


def test_cleanup_needs_a_report_of_each_guest():
    master = master_with()
    master.rpc.running["web.example.com", NODE2] = 1
    master.rpc.errors["instance_get_migration_status"] = "QEMU does not answer"
    text = master.failed(cleanup())
    assert NODE1 in text and "QEMU does not answer. Nothing was changed" in text
    assert acts(master) == []


# -- post-copy -------------------------------------------------------------------


def sequence(master, *states):
    """The source reports these states, then that all is complete."""
    left = iter(states)

    def report(node, args):
        reports(master, node1=next(left, "completed!"))
        value = master.rpc.answers["instance_get_migration_status"](node, args)
        master.rpc.answers["instance_get_migration_status"] = report
        return value

    master.rpc.answers["instance_get_migration_status"] = report


def test_with_postcopy_the_configuration_names_the_target_before_all_is_sent():
    master = master_with()
    sequence(master, "active!", "postcopy-active!", "postcopy-active!")
    known = []
    answer = master.rpc._answer

    def look(asked, node, args):
        if asked.name == "instance_get_migration_status":
            known.append(primary(master))
        return answer(asked, node, args)

    master.rpc._answer = look
    master.run(migrate())
    assert acts(master) == [
        ("accept_instance", "node2", None),
        ("migrate", "node1", None),
        ("finalize_migration_src", "node1", True),
        ("finalize_migration_dst", "node2", True),
    ]
    assert known == [NODE1, NODE1, NODE2, NODE2]
    # It is recorded once, although the source reports it twice.
    assert [line for line in master.job.log if "is on node2" in line and "now" in line] == [
        f"* it is on {NODE2} now, which waits for the rest of its memory"
    ]


@pytest.mark.parametrize("then", ["postcopy-paused!", "failed!"])
def test_when_postcopy_breaks_the_target_keeps_the_guest(then):
    master = master_with()
    sequence(master, "postcopy-active!", then)
    text = master.failed(migrate())
    assert f"is on node {NODE2} now, but a part of its memory is still on node {NODE1}" in text
    assert "--cleanup" in text
    assert ("finalize_migration_src", "node1", False) not in acts(master)
    assert ("finalize_migration_dst", "node2", False) not in acts(master)
    assert primary(master) == NODE2


@pytest.mark.parametrize("known", ["node1", "node2"])
def test_cleanup_resumes_a_postcopy_migration(known):
    master = master_with()
    master.rpc.run("web", "node2")
    if known == "node2":
        with master.config.transaction() as change:
            change.instances.set_primary(uuid_of("web"), uuid_of("node2"))
    paused = {"node1": "postcopy-paused!", "node2": "postcopy-paused"}
    reports(master, **paused)
    answer = master.rpc._answer

    def resume(asked, node, args):
        if asked.name == "instance_migrate":
            reports(master, node1="completed!", node2="completed")
        return answer(asked, node, args)

    master.rpc._answer = resume
    master.run(cleanup())
    assert acts(master) == [
        ("accept_instance", "node2", None),
        ("migrate", "node1", None),
        ("finalize_migration_src", "node1", True),
        ("finalize_migration_dst", "node2", True),
    ]
    assert primary(master) == NODE2 and master.rpc.where("web") == ["node2"]


def test_cleanup_when_the_rest_of_the_memory_is_lost():
    master = master_with(running="node2")
    reports(master, node2="postcopy-paused")
    text = master.failed(cleanup())
    assert "part of its memory was lost" in text and "gnt-instance shutdown" in text
    assert primary(master) == NODE2
    assert acts(master) == []


def test_cleanup_never_continues_a_postcopy_source():
    master = master_with()
    reports(master, node1="postcopy-paused!")
    assert "cannot run on" in master.failed(cleanup())
    assert acts(master) == []
    # Where the configuration names the target already, the instance can be started there.
    with master.config.transaction() as change:
        change.instances.set_primary(uuid_of("web"), uuid_of("node2"))
    assert "cannot run on" in master.failed(cleanup())
    assert acts(master) == [("finalize_migration_src", "node1", True)]


# -- clean-up of what is nowhere -------------------------------------------------


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
    assert master.config.writes == ["instances.set_primary", "instances.set_disks_active"]
    names = [name for name in master.rpc.acting() if not name.startswith("blockdev")]
    assert names == ["instance_shutdown", "instance_start"]
    assert master.rpc.of("instance_shutdown")[0][1]["timeout_s"] == 9
    assert primary(master) == NODE2
    assert master.rpc.where("web") == ["node2"]


@pytest.mark.parametrize("disks", [1, 8])
@pytest.mark.parametrize("up", [True, False])
def test_the_calls_of_a_failover_with_shared_files(disks, up):
    """The checks of the storage cost five calls before the guest is stopped, for all disks."""
    mine = tuple(disk_of("web", index, "sharedfile") for index in range(disks))
    web = instance_of(
        "web",
        disks=tuple(disk.uuid for disk in mine),
        admin_state="up" if up else "down",
        disks_active=up,
    )
    master = Master(cluster_of(2, (web,), mine))
    if up:
        master.rpc.run("web", "node1")
    master.run(failover())
    storage = [("blockdev_reachable_multi", "node2")]
    storage += [("directory_mark", "node1"), ("directory_seen", "node1")]
    storage += [("directory_seen", "node2"), ("directory_unmark", "node1")]
    able = [("bridges_exist", "node2"), ("hypervisor_validate_params", "node2")]
    start = [("blockdev_assemble_multi", "node2"), ("instance_start", "node2")]
    calls = [(name, node.partition(".")[0]) for name, node, _args in master.rpc.calls]
    assert [call for call in calls if call[0] != "hooks_runner"] == [
        *[("instance_info", "node1"), ("instance_info", "node2"), ("node_info", "node2")],
        *(able if up else []),
        *storage,
        *[("instance_shutdown", "node1"), ("blockdev_shutdown_multi", "node1")],
        *(start if up else []),
    ]


def test_a_guest_which_could_not_start_on_the_target_is_not_stopped():
    master = master_with()
    master.rpc.errors["hypervisor_validate_params", NODE2] = "parameter kernel_path: no such file"
    text = master.refused(failover(), errors.ECODE_INVAL)
    assert "kernel_path: no such file" in text
    assert master.rpc.acting() == [] and master.rpc.where("web") == ["node1"]


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
    for call in ("instance_shutdown", "instance_info", "blockdev_shutdown_multi"):
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
