"""Which job of the queue begins next: priorities, workers and dependencies."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.locking import Level, Owner

from .queue_lab import PATIENCE_S, Lab, op, until


def test_a_job_cannot_depend_on_itself_or_on_a_later_one(lab: Lab) -> None:
    """It would wait for ever; and of two jobs which wait for each other, one is the earlier one.

    Such a job is accepted, as in Ganeti, and fails.
    """
    before = lab.queue.submit([op("before")])
    itself = lab.queue.submit([op("itself", depends=[[before + 1, ["success"]]])])
    assert itself == before + 1
    first, second, third = (
        result[1]
        for result in lab.queue.submit_many(
            [
                [op("first", depends=[[before + 3, ["success", "error", "canceled"]]])],
                [op("second", depends=[[before + 2, ["error"]]])],
                [op("third", depends=[[999_999, []]])],
            ]
        )
    )
    assert (first, second) == (before + 2, before + 3)
    for job_id, wanted in ((itself, itself), (first, second), (third, 999_999)):
        lab.wait(job_id)
        status, results = lab.row(job_id, "status", "opresult")
        assert status == "error"
        assert f"depends on job {wanted}, which does not exist" in str(results)
    lab.wait(second)
    assert lab.row(second, "status") == ["success"]
    lab.wait(before)
    # Nothing orders these two.
    assert sorted(lab.order) == ["before", "second"]


def test_priorities_decide_who_is_next(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    lab.queue = lab.new(max_running=1)
    lab.queue.start()
    gate = lab.gate("first")
    lab.queue.submit([op("first")])
    assert lab.reached["first"].wait(PATIENCE_S)
    ids = {
        name: lab.queue.submit([op(name, priority=priority)])
        for name, priority in (("low", 10), ("normal", 0), ("later", 0), ("high", -10))
    }
    assert lab.queue.operations.change_priority(ids["later"], -20) == (
        True,
        f"priority of job {ids['later']} is now -20",
    )
    assert lab.row(ids["later"], "priority", "oppriority") == [-20, [-20]]
    gate.set()
    for job_id in ids.values():
        lab.wait(job_id)
    assert lab.order == ["first", "later", "high", "normal", "low"]
    assert lab.queue.operations.change_priority(ids["low"], 5)[0] is False
    assert lab.queue.operations.change_priority(999, 5)[0] is False
    with pytest.raises(errors.OpPrereqError, match="priority"):
        lab.queue.operations.change_priority(ids["low"], 20)
    lab.queue.stop()


def test_a_new_priority_counts_among_those_who_wait_for_a_lock(lab: Lab) -> None:
    holder = Owner(None, "test")
    lab.locks.acquire(holder, Level.INSTANCE, ["web"], shared=False)
    ids = []
    for name in ("lock-1", "lock-2"):
        lab.gate(name)
        ids.append(lab.queue.submit([op(name)]))
        until(lambda: len(_waiting_jobs(lab)) == len(ids))
    assert _waiting_jobs(lab) == ids
    assert lab.queue.operations.change_priority(ids[1], -5)[0]
    assert _waiting_jobs(lab) == ids[::-1]
    for name in ("lock-1", "lock-2"):
        lab.gates[name].set()
    lab.locks.release(holder)
    assert [lab.wait(job_id) for job_id in ids] == ["success", "success"]


def _waiting_jobs(lab: Lab) -> list[int | None]:
    """The jobs which wait for the lock of the instance, the first one first."""
    return [
        owner.job_id
        for row in lab.locks.table()
        for _mode, owners in row.pending
        for owner in owners
    ]


def test_more_workers_while_running(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "queue")
    lab.queue = lab.new(max_running=1)
    lab.queue.start()
    gates = [lab.gate("one"), lab.gate("two")]
    lab.queue.submit_many([[op("one")], [op("two")]])
    assert lab.reached["one"].wait(PATIENCE_S)
    assert not lab.reached["two"].is_set()
    lab.queue.set_max_running(2)
    assert lab.reached["two"].wait(PATIENCE_S)
    for gate in gates:
        gate.set()
    lab.queue.stop()


def test_dependencies(lab: Lab) -> None:
    gate = lab.gate("slow")
    results = lab.queue.submit_many(
        [
            [op("slow"), op("fail")],
            [op("wants success", depends=[[-1, ["success"]]])],
            [op("wants error", depends=[[-2, ["error"]]])],
            [op("wants default", depends=[[-1, []]])],
            [op("wants end of the refused", depends=[[-3, ["error", "canceled"]]])],
            [op("first"), op("late", depends=[[-5, ["error"]]])],
        ]
    )
    ids = [job_id for _, job_id in results]
    until(lambda: "first" in lab.order)
    until(lambda: lab.row(ids[5], "opstatus")[0][0] == "success")
    assert lab.row(ids[5], "status", "opstatus") == ["queued", ["success", "queued"]]
    assert lab.row(ids[1], "status") == ["queued"]
    gate.set()
    assert [lab.wait(job_id) for job_id in ids] == [
        "error",
        "error",
        "success",
        "success",
        "success",
        "success",
    ]
    assert lab.row(ids[1], "opresult")[0][0][1] == [
        f"depends on job {ids[0]}, which ended as error, not success",
        "wrong_state",
    ]


def test_dependents_wait_until_the_end_is_durable(lab: Lab) -> None:
    """After a crash the job would not have ended, and they would have started before its end."""
    gate = lab.gate("slow")
    first = lab.queue.submit([op("slow")])
    second = lab.queue.submit([op("after", depends=[[first, ["success"]]])])
    assert lab.reached["slow"].wait(PATIENCE_S)
    lab.fail_names = {"write journal"}
    gate.set()
    until(lambda: not lab.queue.scheduler.pool.busy())
    with lab.queue.table.lock:
        assert lab.queue.table.jobs[first].status == "success"
        assert lab.queue.scheduler.waits.awaited(second) == first
    lab.fail_names = set()
    assert lab.wait(second) == "success"


def test_a_canceled_dependency_cancels(lab: Lab) -> None:
    gate = lab.gate("slow")
    results = lab.queue.submit_many(
        [[op("slow")], [op("a", depends=[[-1, []]])], [op("b", depends=[[-1, []]])]]
    )
    ids = [job_id for _, job_id in results]
    lab.queue.operations.cancel(ids[1])
    assert lab.wait(ids[2]) == "canceled"
    gate.set()
    assert lab.wait(ids[0]) == "success"


def test_dependency_on_an_archived_job(lab: Lab) -> None:
    first = lab.queue.submit([op("a")])
    lab.wait(first)
    assert lab.queue.operations.archive(first)
    second = lab.queue.submit([op("b", depends=[[first, ["success"]]])])
    assert lab.wait(second) == "success"


def test_a_priority_counts_for_what_has_not_ended(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("a"), op("slow"), op("rest")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    assert lab.queue.operations.change_priority(job_id, -7)[0]
    with lab.queue.table.lock:
        job = lab.queue.table.jobs[job_id]
        assert [one.state.priority for one in job.ops] == [0, -7, -7]
    gate.set()
    assert lab.wait(job_id) == "success"
