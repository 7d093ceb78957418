"""Locks of instances on which nodes work for ended jobs."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.locking import Level, Owner
from ganeti.master.orphaned_work import OrphanedWorkLocks
from ganeti.objects.transfer import NodeWork
from ganeti.opcodes.cluster import OpClusterVerifyConfig
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.platform.master_epoch import Epoch

NODE1, NODE2 = "node1.example.com", "node2.example.com"
VOTERS = [NODE1, NODE2, "node3.example.com"]
WEB, DB = uuid_of("web"), uuid_of("db")
OLD, NEW = "3 uuid-old", "4 uuid-new"
DISK = disk_of("web")
NEXT = Owner(99, "job 99")


class Lab:
    """A master which has just started."""

    def __init__(self) -> None:
        self.master = Master(
            cluster_of(
                3,
                instances=(
                    instance_of("web", disks=(DISK.uuid,)),
                    instance_of("db", primary="node2"),
                ),
                disks=(DISK,),
            )
        )
        self.works: dict[str, list[NodeWork]] = {}
        self.dead: set[str] = set()
        self.rpc = self.master.rpc
        self.rpc.answers["node_work"] = lambda node, _args: self.works.get(node, [])
        self.locks = OrphanedWorkLocks(
            self.master.config,  # type: ignore[arg-type]
            self.master.locks,
            self.rpc,  # type: ignore[arg-type]
            Epoch(4, "uuid-new"),
            VOTERS,
        )
        # The tests ask, not a thread.
        self.locks.stop()

    def silence(self, node: str, silent: bool = True, *, by_other: bool = False) -> None:
        """Let a node not answer, or let another machine have its address."""
        key = ("node_work", node)
        if silent:
            failure = errors.NodeKeyMismatch if by_other else errors.NodeUnreachable
            self.rpc.errors[key] = failure(node, "node_work", "no route to host")
        else:
            del self.rpc.errors[key]

    def owners(self) -> list[str]:
        return [owner.name for owner in self.master.locks.owners()]

    def is_free(self, uuid: str) -> bool:
        got = self.master.locks.acquire(NEXT, Level.INSTANCE, [uuid], shared=False, timeout_s=0)
        self.master.locks.release(NEXT)
        return got is not None


@pytest.fixture
def lab() -> Lab:
    return Lab()


def work(job: int | None = 12, epoch: str = OLD, **changes: Any) -> NodeWork:
    values: dict[str, Any] = {
        "job": job,
        "epoch": epoch,
        "token": "aa",
        "call": "instance_os_add",
        "doing": "script 'create' of the OS",
        "instances": (WEB,),
        "disks": (),
        "since": 1.0,
        "processes": ("4711 (create)",),
    }
    return NodeWork(**{**values, **changes})


def job(number: int = 12, **parameters: Any) -> Any:
    """A job which was running."""
    state = SimpleNamespace(status="running", exec=(1, 1))
    op = SimpleNamespace(input={"OP_ID": "OP_INSTANCE_REINSTALL", **parameters}, state=state)
    return SimpleNamespace(id=number, ops=[op], current=lambda: op)


class FakeQueue:
    """Accepts jobs, which end when a test says so."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.submitted: list[Any] = []
        self.ended: set[int] = set()

    def submit(self, ops: Any, *, drained_ok: bool = False) -> int:
        if self.problem is not None:
            raise self.problem
        assert drained_ok
        self.submitted.extend(op.validate() for op in ops)
        return 50

    def is_unfinished(self, job_id: int) -> bool:
        return job_id not in self.ended


def test_a_quiet_cluster(lab: Lab) -> None:
    lab.locks.survey([])
    assert lab.owners() == []
    assert lab.locks.left() == []
    assert not lab.locks.poll()


def test_the_instance_is_locked_until_the_work_is_over(lab: Lab) -> None:
    lab.works[NODE1] = [work()]
    lab.locks.survey([])
    assert lab.owners() == [f"work of job 12 on {NODE1} for instance web.example.com"]
    assert not lab.is_free(WEB)
    assert lab.is_free(DB)
    ((node, text),) = lab.locks.left()
    assert node == NODE1
    assert "job 12 for instance web.example.com, which has ended: script 'create'" in text
    assert "4711 (create)" in text
    assert lab.locks.poll()
    assert not lab.is_free(WEB)
    lab.works.clear()
    assert not lab.locks.poll()
    assert lab.is_free(WEB)
    assert lab.locks.left() == []


def test_work_of_this_master_is_not_left(lab: Lab) -> None:
    lab.works[NODE1] = [work(epoch=NEW)]
    lab.locks.survey([])
    assert lab.owners() == []


def test_a_disk_leads_to_its_instance(lab: Lab) -> None:
    lab.works[NODE1] = [work(instances=(), disks=(DISK.uuid,))]
    lab.locks.survey([])
    assert not lab.is_free(WEB)


def test_work_which_names_nothing_belongs_to_the_instances_of_its_job(lab: Lab) -> None:
    lab.works[NODE1] = [work(instances=(), call="hooks_runner")]
    lab.locks.survey([job(instance_name="db.example.com")])
    assert not lab.is_free(DB)
    assert lab.is_free(WEB)
    lab.works.clear()
    assert not lab.locks.poll()


@pytest.mark.parametrize("instances", [(), ("uuid-of-a-removed-instance",)])
def test_work_on_what_is_not_in_the_configuration_is_named(
    lab: Lab, instances: tuple[str, ...]
) -> None:
    lab.works[NODE1] = [work(job=None, instances=instances)]
    lab.locks.survey([])
    assert lab.owners() == []
    assert "a program without a job" in lab.locks.left()[0].text
    lab.works.clear()
    assert not lab.locks.poll()


def test_all_nodes_of_a_job_must_be_ready(lab: Lab) -> None:
    lab.works[NODE1], lab.works[NODE2] = [work()], [work(call="hooks_runner")]
    lab.locks.survey([])
    assert len(lab.owners()) == 1
    del lab.works[NODE1]
    assert lab.locks.poll()
    assert not lab.is_free(WEB)
    del lab.works[NODE2]
    assert not lab.locks.poll()
    assert lab.is_free(WEB)


def test_a_transfer_is_ended(lab: Lab) -> None:
    lab.works[NODE1] = [work(call="export_start", transfer="export-web-1")]
    lab.locks.survey([])
    assert lab.rpc.of("impexp_cleanup") == [(NODE1, {"name": "export-web-1"})]
    assert not lab.is_free(WEB), "it has not ended yet"


@pytest.mark.parametrize("by_other", [False, True])
def test_a_node_does_not_answer(lab: Lab, by_other: bool) -> None:
    """What an interrupted job names there stays locked, and nothing else."""
    lab.silence(NODE1, by_other=by_other)
    lab.locks.survey([job(instance_name="web"), job(13, instance_name="db", priority=0)])
    assert not lab.is_free(WEB)
    assert lab.is_free(DB), "it is on another node"
    ((node, text),) = lab.locks.left()
    assert node == NODE1
    assert "gnt-node modify --offline=yes" in text
    assert lab.locks.poll()
    lab.silence(NODE1, False)
    assert not lab.locks.poll()
    assert lab.is_free(WEB)


def test_a_node_which_did_not_vote_is_not_asked_at_the_start(lab: Lab) -> None:
    """The vote has waited for it in vain; it may work all the same."""
    locks = OrphanedWorkLocks(
        lab.master.config,  # type: ignore[arg-type]
        lab.master.locks,
        lab.rpc,  # type: ignore[arg-type]
        Epoch(4, "uuid-new"),
        [NODE2],
    )
    locks.stop()
    locks.survey([job(instance_name="web")])
    assert [node for node, _args in lab.rpc.of("node_work")] == [NODE2]
    assert not lab.is_free(WEB)
    assert not locks.poll()
    assert lab.is_free(WEB)


def test_a_node_which_answers_later_names_what_nobody_knew(lab: Lab) -> None:
    lab.silence(NODE2)
    lab.works[NODE2] = [work(instances=(DB,))]
    lab.locks.survey([])
    assert lab.is_free(DB)
    lab.silence(NODE2, False)
    assert lab.locks.poll()
    assert not lab.is_free(DB)
    lab.works.clear()
    assert not lab.locks.poll()
    assert lab.is_free(DB)


def test_a_node_which_is_marked_as_offline_is_not_waited_for(lab: Lab) -> None:
    lab.silence(NODE1)
    lab.locks.survey([job(instance_name="web")])
    assert not lab.is_free(WEB)
    node = lab.master.config.node(uuid_of("node1"))
    with lab.master.config.transaction() as change:
        change.nodes.update(dataclasses.replace(node, offline=True))
    assert not lab.locks.poll()
    assert lab.is_free(WEB)


def test_a_job_hands_over_its_locks_without_a_gap(lab: Lab) -> None:
    """Another job which waits already does not get the lock in between."""
    locks, mine = lab.master.locks, Owner(12, "job 12")
    locks.acquire(mine, Level.INSTANCE, [WEB, DB], shared=False)
    waiting = locks.begin(NEXT, Level.INSTANCE, [WEB], shared=False, priority=-20)
    lab.works[NODE1] = [work(epoch=NEW)]
    lab.locks.hand_over(12, [uuid_of("node1")], [WEB, DB])
    locks.release(mine)
    assert locks.is_owned(NEXT, Level.INSTANCE, WEB) is False
    assert [owner.name for owner in locks.waiting(NEXT).holders] == [  # type: ignore[union-attr]
        f"work of job 12 on {NODE1} for instance web.example.com"
    ]
    lab.works.clear()
    lab.locks.poll()
    assert locks.is_owned(NEXT, Level.INSTANCE, WEB)
    locks.withdraw(waiting)
    assert lab.is_free(DB)


def test_an_older_answer_releases_nothing(lab: Lab) -> None:
    """A job hands over its locks while the nodes are being asked about another one."""
    lab.works[NODE1] = [work()]
    lab.locks.survey([])
    handed = []

    def answer(node: str, _args: Any) -> list[NodeWork]:
        if not handed:
            handed.append(node)
            lab.works[NODE2] = [work(13, NEW, instances=(DB,))]
            lab.locks.hand_over(13, [uuid_of("node2")], [DB])
            return []
        return lab.works.get(node, [])

    lab.rpc.answers["node_work"] = answer
    assert lab.locks.poll()
    assert lab.is_free(WEB)
    assert not lab.is_free(DB)


def test_a_job_whose_nodes_are_ready_keeps_nothing(lab: Lab) -> None:
    lab.works[NODE1] = [work(13, NEW)]
    lab.locks.hand_over(12, [uuid_of("node1")], [WEB])
    assert lab.owners() == []


def test_the_processor_hands_over(lab: Lab) -> None:
    master = lab.master
    master.context.orphaned_work = lab.locks
    master.rpc.unsure = {uuid_of("node1")}
    lab.silence(NODE1)
    with pytest.raises(AssertionError, match="locks are left behind"):
        master.run(OpInstanceStartup(instance_name="web"))
    assert lab.owners() == [f"work of job 1 on {NODE1} for instance web.example.com"]
    lab.silence(NODE1, False)
    assert not lab.locks.poll()
    assert lab.owners() == []


def test_a_thread_looks_until_nothing_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.master.orphaned_work.POLL_S", 0.001)
    locks = OrphanedWorkLocks(
        lab.master.config,  # type: ignore[arg-type]
        lab.master.locks,
        lab.rpc,  # type: ignore[arg-type]
        Epoch(4, "uuid-new"),
        VOTERS,
    )
    answers = [[work()]] * 3
    lab.rpc.answers["node_work"] = lambda node, _args: (
        answers.pop() if node == NODE1 and answers else []
    )
    locks.survey([])
    assert lab.master.locks.acquire(NEXT, Level.INSTANCE, [WEB], shared=False, timeout_s=60)


# Migrations

MIGRATION = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "web"}


def test_an_interrupted_migration_is_cleaned_up(lab: Lab) -> None:
    """No other job gets the lock before the clean-up."""
    queue, clean_up = FakeQueue(), Owner(50, "job 50")
    lab.locks.survey([job(**MIGRATION)])
    lab.locks.clean_up_migrations(queue)
    (op,) = queue.submitted
    assert (op.instance_name, op.instance_uuid, op.cleanup) == ("web.example.com", WEB, True)
    assert op.reason[0][:2] == [
        "gnt:daemon:masterd:orphaned-work",
        "clean-up after job 12, which was interrupted",
    ]
    assert "migration of the instance" in lab.locks.left()[0].text
    locks = lab.master.locks
    other = locks.begin(NEXT, Level.INSTANCE, [WEB], shared=False, priority=0)
    assert lab.locks.poll()
    assert not locks.is_owned(NEXT, Level.INSTANCE, WEB)
    mine = locks.begin(clean_up, Level.INSTANCE, [WEB], shared=False, priority=-10)
    assert not lab.locks.poll()
    assert locks.is_owned(clean_up, Level.INSTANCE, WEB)
    assert not locks.is_owned(NEXT, Level.INSTANCE, WEB)
    locks.withdraw(mine)
    locks.withdraw(other)


def test_a_clean_up_which_was_canceled_keeps_nothing(lab: Lab) -> None:
    queue = FakeQueue()
    lab.locks.survey([job(**MIGRATION)])
    lab.locks.clean_up_migrations(queue)
    assert lab.locks.poll()
    queue.ended.add(50)
    assert not lab.locks.poll()
    assert lab.is_free(WEB)


def test_a_clean_up_which_cannot_be_submitted_keeps_nothing(lab: Lab) -> None:
    lab.locks.survey([job(**MIGRATION)])
    lab.locks.clean_up_migrations(FakeQueue(errors.JobQueueFull("full")))
    assert not lab.locks.poll()
    assert lab.is_free(WEB)


@pytest.mark.parametrize("changes", [{"cleanup": True}, {"OP_ID": "OP_INSTANCE_FAILOVER"}])
def test_what_is_no_migration_is_not_cleaned_up(lab: Lab, changes: dict[str, Any]) -> None:
    queue = FakeQueue()
    lab.locks.survey([job(**{**MIGRATION, **changes})])
    lab.locks.clean_up_migrations(queue)
    assert queue.submitted == []
    assert lab.owners() == []


def test_verify_names_it(lab: Lab) -> None:
    master, queued = lab.master, lab.master.new_job()
    master.context.orphaned_work = lab.locks
    lab.works[NODE1] = [work()]
    lab.locks.survey([])
    ok = master.processor.execute(OpClusterVerifyConfig(error_codes=True).validate(), queued)
    assert not ok
    assert queued.said(
        f"ERROR:ENODERPC:node:{NODE1}:it goes on with work of job 12 for instance web"
    )
    assert queued.said("script 'create' of the OS (process 4711 (create))")
