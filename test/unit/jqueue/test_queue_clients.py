"""What clients of the queue see: changes of jobs, log lines and fields."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ganeti import errors
from ganeti.jqueue import job as jobs

from .queue_lab import PATIENCE_S, Lab, op, until


def test_a_client_of_a_chattering_job_gets_all_lines_in_few_answers(lab: Lab) -> None:
    gate = lab.gate("go")
    job_id = lab.queue.submit([op("go"), op("chatter")])
    ended = threading.Event()
    lines: list[str] = []
    answers: list[Any] = []

    def look(change: Any) -> None:
        answers.append(change)
        lines.extend(entry[3] for entry in change[1])
        if change[0][0] in jobs.FINALIZED:
            ended.set()
        else:
            serial = change[1][-1][0] if change[1] else None
            seen.append(serial if serial is not None else seen[-1])
            lab.queue.operations.subscribe(job_id, ["status"], change[0], seen[-1], look)

    seen: list[Any] = [None]
    lab.queue.operations.subscribe(job_id, ["status"], None, None, look)
    gate.set()
    assert ended.wait(PATIENCE_S)
    assert lines == [str(number) for number in range(200)]


def test_unknown_fields_and_jobs(lab: Lab) -> None:
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        lab.queue.query(None, ["id", "nosuch"])
    with pytest.raises(errors.JobLost):
        lab.queue.operations.subscribe(77, ["status"], None, None, print)


def test_watches_are_told_log_lines_and_may_be_ended(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow"), op("log")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    until(lambda: lab.row(job_id, "status") == ["running"])
    received: list[Any] = []
    subscription = lab.queue.operations.subscribe(
        job_id, ["status"], ["running"], None, received.append
    )
    assert subscription is not None
    assert lab.queue.operations.unsubscribe(subscription)
    assert not lab.queue.operations.unsubscribe(subscription)
    got = threading.Event()
    assert (
        lab.queue.operations.subscribe(
            job_id,
            ["opstatus"],
            [["running", "queued"]],
            None,
            lambda change: (received.append(change), got.set()),
        )
        is not None
    )
    gate.set()
    assert got.wait(PATIENCE_S)
    assert received[0] != [[["running", "queued"]], []]
    assert lab.wait(job_id) == "success"
    lab.queue.operations.subscribe(job_id, ["status"], ["success"], 0, received.append)
    info, entries = received[-1]
    assert info == ["success"]
    assert [entry[3] for entry in entries] == ["one", {"a": 1}]
    assert len(received) == 2


def test_thousand_waiters(lab: Lab) -> None:
    gate = lab.gate("slow")
    job_id = lab.queue.submit([op("slow")])
    assert lab.reached["slow"].wait(PATIENCE_S)
    until(lambda: lab.row(job_id, "status") == ["running"])
    before = threading.active_count()
    received: list[Any] = []
    for _ in range(1000):
        assert (
            lab.queue.operations.subscribe(job_id, ["status"], ["running"], None, received.append)
            is not None
        )
    assert threading.active_count() == before
    gate.set()
    until(lambda: len(received) == 1000)
    assert all(change == [["success"], []] for change in received)
