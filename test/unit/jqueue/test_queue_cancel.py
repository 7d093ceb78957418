"""Jobs are canceled in every state in which they can be."""

from __future__ import annotations

from ganeti.locking import Level

from .queue_lab import PATIENCE_S, Lab, op, until


def test_cancel_a_queued_job(lab: Lab) -> None:
    gate = lab.gate("slow")
    slow = lab.queue.submit([op("slow")])
    waiting = lab.queue.submit([op("b", depends=[[slow, []]])])
    assert lab.queue.operations.cancel(waiting) == (True, f"job {waiting} was canceled")
    assert lab.row(waiting, "status", "opresult") == [
        "canceled",
        [["JobCanceled", ["canceled by request"]]],
    ]
    assert lab.queue.operations.cancel(waiting)[0] is False
    assert lab.queue.operations.cancel(12345)[0] is False
    gate.set()
    assert lab.wait(slow) == "success"
    assert lab.order == ["slow"]


def test_cancel_a_job_that_waits_for_its_locks(lab: Lab) -> None:
    from ganeti.locking import Owner

    holder = Owner(None, "test")
    lab.locks.acquire(holder, Level.INSTANCE, ["web"], shared=False)
    lab.gate("lock")
    job_id = lab.queue.submit([op("lock"), op("rest")])
    assert lab.reached["lock"].wait(PATIENCE_S)
    until(
        lambda: bool(lab.locks.table()[0].pending or any(row.pending for row in lab.locks.table()))
    )
    assert lab.queue.operations.change_priority(job_id, -5)[0]
    assert lab.queue.operations.cancel(job_id)[0]
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opstatus", "opexec") == [["canceled", "canceled"], [None, None]]
    lab.locks.release(holder)


def test_cancel_a_running_job_at_its_next_safe_point(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("rest")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    success, message = lab.queue.operations.cancel(job_id)
    assert success and "running" in message
    assert lab.row(job_id, "status") == ["canceling"]
    assert lab.queue.operations.cancel(job_id) == (True, f"job {job_id} is being canceled")
    gate.set()
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opstatus", "opresult")[1][0] == [
        "JobCanceled",
        ["canceled by request while it was running"],
    ]
    assert lab.order == ["slow"]


def test_a_canceled_job_does_not_begin_its_next_opcode(lab: Lab) -> None:
    """The opcode which runs has no point at which it can stop."""
    gate = lab.gate("unaware")
    lab.gate("lock")
    job_id = lab.queue.submit([op("unaware"), op("lock")])
    assert lab.reached["unaware"].wait(PATIENCE_S)
    assert lab.queue.operations.cancel(job_id)[0]
    gate.set()
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opstatus") == [["success", "canceled"]]
    assert not lab.reached["lock"].is_set()


def test_canceled_too_late_the_work_done_counts(lab: Lab) -> None:
    job_id = lab.queue.submit([op("a"), op("rest")])
    assert lab.wait(job_id) == "success"
    assert lab.queue.operations.cancel(job_id) == (
        False,
        f"job {job_id} has already ended (success)",
    )
