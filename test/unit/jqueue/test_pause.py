"""Jobs which cannot be executed go back into the queue, and the queue pauses."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.jqueue import facts, pause
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import NotBegun, Process
from ganeti.jqueue.explain import explain_queue
from ganeti.jqueue.pause import QueuePause
from ganeti.opcodes.base import OpCode
from ganeti.utils import metrics

from .queue_lab import PATIENCE_S, Lab, op, until
from .wire_processes import WireExecutor


class Executor(WireExecutor):
    """The processes of jobs, as long as there is no fault."""

    fault: Callable[[int], None] = staticmethod(lambda _job_id: None)
    tried: list[int] = []

    def open(self, job_id: int) -> Process:
        self.tried.append(job_id)
        self.fault(job_id)
        return super().open(job_id)


def full(_job_id: int) -> None:
    raise NotBegun("cannot make a process for the job: No space left on device")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A queue with jobs in processes, which pauses for moments."""
    monkeypatch.setattr(Lab, "processes", True)
    monkeypatch.setitem(Lab.new.__globals__, "WireExecutor", Executor)
    monkeypatch.setattr(Executor, "fault", staticmethod(lambda _job_id: None))
    monkeypatch.setattr(Executor, "tried", [])
    monkeypatch.setattr(pause, "FIRST_S", 0.01)
    monkeypatch.setattr(pause, "LONGEST_S", 0.05)
    yield from _running(tmp_path)


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A queue with jobs in threads, which pauses for moments."""
    monkeypatch.setattr(pause, "FIRST_S", 0.01)
    yield from _running(tmp_path)


def _running(path: Path) -> Iterator[Lab]:
    made = Lab(path / "queue")
    made.queue.start()
    yield made
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()


def report(lab: Lab) -> Any:
    return explain_queue(facts.queue_facts(lab.queue))


def messages(lab: Lab, job_id: int) -> list[str]:
    return [entry[3] for entries in lab.row(job_id, "oplog")[0] for entry in entries]


def test_jobs_go_back_until_they_can_be_executed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "fault", staticmethod(full))
    before = _put_back()
    ids = [lab.queue.submit([op(f"job{number}"), op("more")]) for number in range(8)]
    until(lambda: len(Executor.tried) > 30)
    assert [lab.row(job_id, "status")[0] for job_id in ids] == ["queued"] * 8
    assert report(lab)["paused"] == "cannot make a process for the job: No space left on device"
    assert report(lab)["paused_since"] is not None
    assert _put_back() > before
    monkeypatch.setattr(Executor, "fault", staticmethod(lambda _job_id: None))
    assert [lab.wait(job_id) for job_id in ids] == ["success"] * 8
    assert report(lab)["paused"] == ""
    for job_id in ids:
        said = messages(lab, job_id)
        assert len(said) <= 1, "not once for each attempt"
    assert "is tried again: cannot make a process" in messages(lab, Executor.tried[0])[0]


def _put_back() -> float:
    counted = {one["name"]: one["series"] for one in metrics.snapshot()}
    return float(counted["ganeti_master_jobs_put_back"][0][1])


def test_no_other_job_is_tried_in_a_pause(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "fault", staticmethod(full))
    lab.queue.scheduler.pause._length_s = 3600.0
    first = lab.queue.submit([op("first")])
    until(lambda: report(lab)["paused"] != "")
    others = [lab.queue.submit([op("other")]) for _ in range(5)]
    until(lambda: len(lab.queue.scheduler.pool.line()) == 6)
    assert Executor.tried == [first]
    monkeypatch.setattr(Executor, "fault", staticmethod(lambda _job_id: None))
    lab.queue.scheduler.pool.pause(0.0)
    assert [lab.wait(job_id) for job_id in (first, *others)] == ["success"] * 6
    assert Executor.tried[1] in others, "one which was not tried yet comes first"


def test_a_job_whose_process_always_ends_is_given_up_and_others_are_executed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause, "MOST_ENDS", 4)
    culprit: list[int] = []

    def fault(job_id: int) -> None:
        if job_id in culprit:
            raise NotBegun("process 7 of the job is gone", ended=True)

    monkeypatch.setattr(Executor, "fault", staticmethod(fault))
    with lab.queue.table.lock:
        culprit.append(lab.queue.table.serial + 1)
        bad = lab.queue.table.serial + 1
    assert lab.queue.submit([op("bad"), op("later")]) == bad
    good = [lab.queue.submit([op("good")]) for _ in range(5)]
    assert [lab.wait(job_id) for job_id in good] == ["success"] * 5
    assert lab.wait(bad) == "error"
    result = lab.row(bad, "opresult")[0]
    assert "process 7 of the job is gone. The job was tried 4 times" in str(result[0])
    assert "an earlier opcode" in str(result[1])
    assert Executor.tried.count(bad) == 4


def test_a_job_is_canceled_in_a_pause(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "fault", staticmethod(full))
    lab.queue.scheduler.pause._length_s = 3600.0
    job_id = lab.queue.submit([op("job")])
    until(lambda: report(lab)["paused"] != "")
    assert lab.queue.operations.cancel(job_id)[0]
    assert lab.wait(job_id) == "canceled"


def test_a_job_which_is_put_back_leaves_its_place_under_a_limit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "fault", staticmethod(full))
    limited = [["gnt:client", "rate-limit:1:backups", 1]]
    ids = [lab.queue.submit([op("limited", reason=limited)]) for _ in range(3)]
    until(lambda: len(Executor.tried) > 5)
    monkeypatch.setattr(Executor, "fault", staticmethod(lambda _job_id: None))
    assert [lab.wait(job_id) for job_id in ids] == ["success"] * 3


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        MemoryError(),
        RuntimeError("can't start new thread"),
    ],
)
def test_a_thread_which_lacks_something_tries_its_job_again(
    threads: Lab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    left = [error] * 3

    def execute(opcode: OpCode, callbacks: Callbacks) -> Any:
        if left:
            raise left.pop()
        return threads.work(opcode, callbacks, threads.locks)

    monkeypatch.setattr(threads.queue.scheduler._own_process, "_execute", execute)
    assert threads.wait(threads.queue.submit([op("job")])) == "success"
    assert threads.order == ["job"]


def test_an_opcode_which_has_begun_is_not_begun_again(
    threads: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(_opcode: OpCode, callbacks: Callbacks) -> Any:
        callbacks.notify_start()
        threads.order.append("begun")
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(threads.queue.scheduler._own_process, "_execute", execute)
    job_id = threads.queue.submit([op("job")])
    assert threads.wait(job_id) == "error"
    assert "Too many open files" in str(threads.row(job_id, "opresult"))
    assert threads.order == ["begun"]


def test_jobs_are_executed_one_after_the_other_without_more_threads(
    threads: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threads.gate("held")
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("jq-worker"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ids = [threads.queue.submit([op("held")]), threads.queue.submit([op("next")])]
    assert threads.reached["held"].wait(PATIENCE_S)
    until(lambda: "no more threads" in report(threads)["paused"])
    gate.set()
    assert [threads.wait(job_id) for job_id in ids] == ["success"] * 2
    assert report(threads)["paused"] == ""


def test_the_pauses_become_longer_and_end() -> None:
    now = [100.0]
    made = QueuePause(lambda: now[0], lambda: now[0])
    assert made.state is None
    lengths = [made.begin("full") for _ in range(8)]
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert made.state == ("full", 100.0)
    assert made.end() and not made.end()
    assert made.begin("full") == 1.0


def test_a_job_is_tried_for_an_hour() -> None:
    now = [0.0]
    made = QueuePause(lambda: now[0], lambda: now[0])
    for _ in range(50):
        made.note(1, ended=False)
    assert made.may_retry(1)
    now[0] = pause.MOST_S
    assert not made.may_retry(1)
    made.note(2, ended=False)
    assert made.may_retry(2), "another one has just been tried first"
    made.forget(1)
    assert made.may_retry(1)
