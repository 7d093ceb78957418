"""The maintenance of a node: what leaves it, what is refused, and what comes back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.config import upgrade
from ganeti.objects import Disk, Maintenance, codec, updated
from ganeti.opcodes import node as ops
from ganeti.opcodes.base import OpCode

NODE2, NODE3 = "node2.example.com", "node3.example.com"
START, END, CHECK, FLAGS = (
    "OP_NODE_MAINTENANCE_START",
    "OP_NODE_MAINTENANCE_END",
    "OP_NODE_MAINTENANCE_CHECK",
    "OP_NODE_SET_PARAMS",
)
MIGRATE, STOP, BEGIN = "OP_INSTANCE_MIGRATE", "OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_STARTUP"
ACTIVATE, REPLACE = "OP_INSTANCE_ACTIVATE_DISKS", "OP_INSTANCE_REPLACE_DISKS"


def mirrored(name: str, one: str, other: str) -> Disk:
    pair = (uuid_of(one), uuid_of(other))
    return Disk(
        dev_type="drbd",
        logical_id=(*pair, 11000, 0, 0, "secret"),
        size=1024,
        iv_name="disk/0",
        nodes=pair,
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
    )


def cluster(*, template: str = "drbd", state: str = "up", secondary: bool = False) -> Master:
    """Node2 with one instance; `secondary`: and the secondary replica of another one."""
    disk = mirrored("web", "node2", "node1")
    if template != "drbd":
        disk = disk_of("web", template=template, node="node2")
    web = instance_of(
        "web", "node2", disks=(disk.uuid,), admin_state=state, disks_active=state == "up"
    )
    instances, disks = [web], [disk]
    if secondary:
        disks.append(mirrored("db", "node1", "node2"))
        instances.append(
            instance_of("db", "node1", disks=(disks[1].uuid,), admin_state="up", disks_active=True)
        )
    return Master(cluster_of(3, tuple(instances), tuple(disks)))


def start(**params: Any) -> OpCode:
    return ops.OpNodeMaintenanceStart(node_name="node2", **params)


def end(**params: Any) -> OpCode:
    return ops.OpNodeMaintenanceEnd(node_name="node2", **params)


def check() -> OpCode:
    return ops.OpNodeMaintenanceCheck(node_name="node2")


def mark_of(master: Master) -> Maintenance:
    found = master.config.node(uuid_of("node2")).maintenance
    assert found is not None
    return found


def submitted(master: Master) -> list[list[str]]:
    return [[op.OP_ID for op in job] for job in master.job.submitted]


def change_node(master: Master, **values: Any) -> None:
    commit(master.config).nodes.update(updated(master.config.node(uuid_of("node2")), **values))


def moved(master: Master, name: str, node: str) -> None:
    """As if the instance had been migrated."""
    instance = master.config.instance(uuid_of(name))
    commit(master.config).instances.update(updated(instance, primary_node=uuid_of(node)))


def drained(master: Master) -> None:
    change_node(master, drained=True, master_candidate=False)


def test_what_runs_leaves_and_is_recorded_first() -> None:
    master = cluster()
    master.run(start())
    assert submitted(master) == [[FLAGS], [MIGRATE], [CHECK]]
    flags, move, last = (job[0] for job in master.job.submitted)
    assert (flags.drained, flags.auto_promote) == (True, True)
    assert move.depends == [[-1, ["success"]]]
    assert last.depends == [[-1, ["canceled", "error", "success"]], [-2, last.depends[0][1]]]
    mark = mark_of(master)
    assert mark.primaries == (uuid_of("web"),)
    assert (mark.ready_at, mark.returning, mark.master_candidate) == (None, False, True)


def test_it_survives_that_the_master_dies_between_the_record_and_the_jobs() -> None:
    master = cluster()
    master.run(start())
    drained(master)
    master.run(start())
    assert submitted(master) == [[MIGRATE], [CHECK]]
    assert mark_of(master).master_candidate, "the flags before are those before the first start"
    moved(master, "web", "node1")
    master.run(start())
    assert submitted(master) == [[CHECK]]
    assert mark_of(master).primaries == (uuid_of("web"),)


@pytest.mark.parametrize("state", ["down", "offline"])
def test_what_does_not_run_stays(state: str) -> None:
    master = cluster(template="plain", state=state)
    master.run(start())
    assert submitted(master) == [[FLAGS], [CHECK]]
    assert mark_of(master).stopped == ()


def test_what_cannot_move_is_listed_or_stopped() -> None:
    master = cluster(template="plain")
    text = master.refused(start(), errors.ECODE_STATE)
    assert "web.example.com (disks of template plain exist on one node only)" in text
    assert "--stop" in text
    master.run(start(stop=True))
    assert submitted(master) == [[FLAGS], [STOP], [CHECK]]
    stop = master.job.submitted[1][0]
    assert stop.no_remember, "the wanted state stays, so that its user can still change it"
    assert mark_of(master).stopped == (uuid_of("web"),)
    # Said again, the option is not needed.
    master.run(start())
    assert [STOP] in submitted(master)


def test_the_master_has_to_give_up_its_role_first() -> None:
    text = cluster().refused(ops.OpNodeMaintenanceStart(node_name="node1"), errors.ECODE_STATE)
    assert "gnt-cluster master-failover" in text and "Nothing was moved" in text


def test_a_node_which_is_offline_is_refused() -> None:
    master = cluster()
    change_node(master, offline=True, master_candidate=False)
    assert "gnt-node failover" in master.refused(start(), errors.ECODE_STATE)


def test_the_only_complete_replica_is_kept() -> None:
    master = cluster(secondary=True)
    disk = master.config.snapshot().disks[uuid_of("db-disk0")]
    commit(master.config).disks.update(
        dataclasses.replace(disk, outdated_node=uuid_of("node1"), outdated_since=1.0)
    )
    text = master.refused(start(), errors.ECODE_STATE)
    assert "only complete replica of disks of db.example.com" in text


def test_an_evacuation_needs_a_target_and_records_replicas() -> None:
    master = cluster(secondary=True)
    assert "--new-secondary" in master.refused(start(evacuate=True), errors.ECODE_INVAL)
    master.run(start(evacuate=True, remote_node="node3"))
    assert submitted(master) == [[FLAGS], [MIGRATE, REPLACE], [REPLACE], [CHECK]]
    assert mark_of(master).secondaries == (uuid_of("web"), uuid_of("db"))


@pytest.mark.parametrize("evacuate", [False, True])
def test_what_another_node_gets_back_is_a_visitor(evacuate: bool) -> None:
    """It leaves as well, but does not come back here, in whatever order the maintenances end."""
    master = cluster()
    web = (uuid_of("web"),)
    first = Maintenance(since=1.0, ready_at=2.0, primaries=web, secondaries=web)
    other = updated(master.config.node(uuid_of("node1")), maintenance=first)
    commit(master.config).nodes.update(other)
    master.run(start(evacuate=evacuate, remote_node="node3" if evacuate else None))
    mark = mark_of(master)
    assert (mark.primaries, mark.secondaries, mark.visitors) == ((), (), web)
    assert mark.visiting_replicas == (web if evacuate else ())
    drained(master)
    assert "have not left it: web.example.com" in master.refused(check(), errors.ECODE_STATE)
    moved(master, "web", "node1")
    master.run(end())
    assert submitted(master) == [[FLAGS], [CHECK]]


def test_the_check_says_what_is_left() -> None:
    master = cluster(secondary=True)
    assert "not in maintenance" in master.refused(check(), errors.ECODE_STATE)
    master.run(start())
    assert "could not be drained" in master.refused(check(), errors.ECODE_STATE)
    drained(master)
    assert "have not left it: web.example.com" in master.refused(check(), errors.ECODE_STATE)
    moved(master, "web", "node1")
    master.rpc.run("web", "node2")
    assert "guests still run there: web.example.com" in master.refused(check(), errors.ECODE_STATE)


def test_a_ready_node_is_marked_and_the_single_replicas_are_named() -> None:
    master = cluster(secondary=True)
    master.run(start())
    drained(master)
    moved(master, "web", "node1")
    master.run(check())
    assert mark_of(master).ready_at is not None
    assert master.job.said("safe to switch it off")
    assert master.job.said("one replica of their disks: db.example.com, web.example.com")


def test_nobody_places_anything_there_before_the_end() -> None:
    master = cluster()
    master.run(start())
    drained(master)
    op = ops.OpNodeSetParams(node_name="node2", drained=False)
    assert "gnt-node maintenance end" in master.refused(op, errors.ECODE_STATE)
    # A machine which is off may be marked as such.
    master.run(ops.OpNodeSetParams(node_name="node2", offline=True, auto_promote=True))
    assert mark_of(master).primaries == (uuid_of("web"),)


def test_the_end_brings_back_flags_and_instances() -> None:
    master = cluster()
    master.run(start())
    drained(master)
    moved(master, "web", "node1")
    master.run(end())
    assert submitted(master) == [[FLAGS], [ACTIVATE, MIGRATE], [CHECK]]
    flags, (activate, _), _ = master.job.submitted
    assert flags[0].master_candidate and activate.wait_for_sync
    assert mark_of(master).returning
    text = master.refused(check(), errors.ECODE_STATE)
    assert "its former flags" in text and "web.example.com (activate" in text
    change_node(master, drained=False, master_candidate=True)
    moved(master, "web", "node2")
    master.run(check())
    assert master.config.node(uuid_of("node2")).maintenance is None


def test_a_second_end_while_the_first_one_goes_on_undoes_nothing() -> None:
    """Its jobs name their target, so that an instance which is back stays."""
    master = cluster()
    master.run(start())
    drained(master)
    moved(master, "web", "node1")
    master.run(end())
    assert not master.job.said("was asked for before")
    first = [job for job in master.job.submitted if job[0].OP_ID == ACTIVATE]
    master.run(end())
    assert master.job.said("the end of the maintenance of node node2.example.com was asked for")
    second = [job for job in master.job.submitted if job[0].OP_ID == ACTIVATE]
    assert [job[-1].target_node for job in (*first, *second)] == [NODE2, NODE2]
    # The jobs of the first one end; those of the second one find it where it should be.
    moved(master, "web", "node2")
    text = master.refused(second[0][-1], errors.ECODE_STATE)
    assert "instance web.example.com is already on node node2.example.com" in text
    assert master.config.instance(uuid_of("web")).primary_node == uuid_of("node2")


def test_a_second_end_submits_only_what_is_missing() -> None:
    master = cluster()
    master.run(start())
    drained(master)
    moved(master, "web", "node1")
    master.run(end())
    change_node(master, drained=False, master_candidate=True)
    moved(master, "web", "node2")
    master.run(end())
    assert submitted(master) == [[CHECK]]
    master.run(check())
    text = master.refused(end(), errors.ECODE_STATE)
    assert "is not in maintenance: that has ended, or never begun. Nothing was changed" in text


def test_replicas_come_back_to_where_the_instance_is() -> None:
    master = cluster(secondary=True)
    change_node(
        master,
        maintenance=Maintenance(
            since=1.0, primaries=(uuid_of("web"),), secondaries=(uuid_of("web"), uuid_of("db"))
        ),
    )
    drained(master)
    for name in ("web", "db"):
        disk = master.config.snapshot().disks[uuid_of(f"{name}-disk0")]
        nodes = (uuid_of("node1"), uuid_of("node3"))
        commit(master.config).disks.update(
            dataclasses.replace(disk, logical_id=(*nodes, *disk.logical_id[2:]), nodes=nodes)
        )
    moved(master, "web", "node1")
    master.run(end())
    assert submitted(master) == [[FLAGS], [REPLACE, MIGRATE], [REPLACE], [CHECK]]
    assert {job[0].remote_node for job in master.job.submitted[1:3]} == {NODE2}


def test_a_stopped_instance_starts_unless_its_user_said_otherwise() -> None:
    master = cluster(template="plain")
    master.run(start(stop=True))
    drained(master)
    master.run(end())
    assert submitted(master) == [[FLAGS], [BEGIN], [CHECK]]
    change_node(master, drained=False, master_candidate=True)
    assert "web.example.com (start it)" in master.refused(check(), errors.ECODE_STATE)
    with master.config.transaction() as change:
        change.instances.mark(uuid_of("web"), "down")
    master.run(end())
    assert submitted(master) == [[CHECK]]
    master.run(check())
    assert master.config.node(uuid_of("node2")).maintenance is None


def test_what_was_removed_meanwhile_is_no_obstacle() -> None:
    master = cluster()
    change_node(
        master, maintenance=Maintenance(since=1.0, primaries=("gone",), stopped=("gone too",))
    )
    master.run(end())
    assert submitted(master) == [[CHECK]]
    master.run(check())
    assert master.config.node(uuid_of("node2")).maintenance is None


def test_an_end_without_moves() -> None:
    master = cluster()
    master.run(start())
    drained(master)
    moved(master, "web", "node1")
    master.run(end(move_back=False))
    assert submitted(master) == [[FLAGS], [CHECK]]
    change_node(master, drained=False, master_candidate=True)
    master.run(check())
    assert master.config.instance(uuid_of("web")).primary_node == uuid_of("node1")


def test_a_node_which_was_drained_before_stays_so() -> None:
    master = cluster()
    drained(master)
    master.run(start())
    moved(master, "web", "node1")
    master.run(end())
    assert submitted(master) == [[CHECK]]
    assert master.job.said("was drained before")
    master.run(check())
    assert master.config.node(uuid_of("node2")).drained


def test_a_dry_run_shows_the_plan_and_changes_nothing() -> None:
    master = cluster(template="plain")
    before = master.config.snapshot().serial_no
    master.run(start(stop=True, dry_run=True))
    for words in ("drain node", "stop instance web.example.com", "check that no guest runs"):
        assert master.job.said(words), words
    assert master.job.submitted == []
    assert master.config.snapshot().serial_no == before


def test_the_record_is_left_out_when_there_is_none_and_dropped_by_a_downgrade() -> None:
    master = cluster()
    raw = codec.to_dict(master.config.snapshot())
    assert "maintenance" not in raw["nodes"][uuid_of("node2")]
    master.run(start())
    raw = codec.to_dict(master.config.snapshot())
    assert raw["nodes"][uuid_of("node2")]["maintenance"]["primaries"] == [uuid_of("web")]
    assert codec.from_dict(type(master.config.snapshot()), raw).nodes[
        uuid_of("node2")
    ].maintenance == mark_of(master)
    assert "maintenance" not in upgrade.downgrade(raw)["nodes"][uuid_of("node2")]
