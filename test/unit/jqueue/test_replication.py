"""When a message to a candidate is held back, so that more comes together."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import catch_up, outbox, replication
from ganeti.jqueue.catch_up import CatchUpPlan


class _Clock:
    """Time passes only when somebody waits for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


class _Candidate:
    """Takes messages; each lasts until :meth:`go_on`, and `took_s`."""

    def __init__(self, clock: _Clock) -> None:
        self.clock = clock
        self.took_s = 0.001
        self.messages: list[dict[str, str]] = []
        self.arrived = threading.Semaphore(0)
        self._gate = threading.Semaphore(0)

    def go_on(self) -> None:
        self._gate.release()

    def candidates(self) -> Sequence[str]:
        return ("candidate",)

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        self.messages.append(files)
        self.arrived.release()
        self._gate.acquire()
        self.clock.now_s += self.took_s

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        raise AssertionError("nobody compares here")

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        raise AssertionError("nobody archives here")

    def purge(self, node_uuid: str) -> None:
        raise AssertionError("nobody purges here")

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        raise AssertionError("nobody drains here")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock()
    monkeypatch.setattr(replication, "time", made)
    nothing: Any = lambda *_args: catch_up.CatchUpPlan(False, {}, [], [], None)  # noqa: E731
    monkeypatch.setattr(catch_up, "plan", nothing)
    return made


@pytest.fixture
def candidate(clock: _Clock) -> _Candidate:
    return _Candidate(clock)


@pytest.fixture
def sender(candidate: _Candidate) -> Iterator[replication.Replicator]:
    made = replication.Replicator(replication.Candidates(candidate), None)  # type: ignore[arg-type]
    made.start()
    with made.progress:
        made.progress.wait_for(lambda: not made._peers["candidate"].lags)
    yield made
    for _ in range(10):
        candidate.go_on()
    made.stop()


def test_a_new_job_may_end_soon(
    sender: replication.Replicator, candidate: _Candidate, clock: _Clock
) -> None:
    wait = sender.send({"job-1": "queued"}, [])
    candidate.arrived.acquire()
    candidate.go_on()
    wait()
    assert clock.pauses == [replication.GATHER_S]


def test_the_end_of_a_job_is_not_held_back(
    sender: replication.Replicator, candidate: _Candidate, clock: _Clock
) -> None:
    wait = sender.send({"job-1": "success"}, [], ended=True)
    candidate.arrived.acquire()
    candidate.go_on()
    wait()
    assert clock.pauses == []
    assert candidate.messages == [{"job-1": "success"}]


def test_one_message_after_the_other(
    sender: replication.Replicator, candidate: _Candidate, clock: _Clock
) -> None:
    """Each waits as long as the one before took, even if it is the end of a job."""
    expected = [replication.GATHER_S]
    wait = sender.send({"job-1": "queued"}, [])
    for took_s in (0.001, 0.01, 5.0):
        candidate.arrived.acquire()
        candidate.took_s = took_s
        wait = sender.send({"job-1": f"took {took_s}"}, [], ended=True)
        candidate.go_on()
        expected.append(min(max(took_s, replication.GATHER_S), replication.GATHER_BUSY_S))
    candidate.arrived.acquire()
    candidate.go_on()
    wait()
    assert clock.pauses == pytest.approx(expected)


def test_a_copy_which_was_lost_gets_its_version_before_all_changes(
    clock: _Clock, candidate: _Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node takes no changes to a copy of an unknown version."""
    sent: list[str] = []

    def update(_node_uuid: str, files: dict[str, str]) -> None:
        sent.extend(files)
        if len(sent) == 1:
            raise errors.NodeUnreachable("candidate", "jobqueue_update", "no answer")

    plans = iter([CatchUpPlan(False, {}, [], [], None)])
    anew = CatchUpPlan(False, {"version": "0"}, [], [], None)
    monkeypatch.setattr(candidate, "update", update)
    monkeypatch.setattr(catch_up, "plan", lambda *_args: next(plans, anew))
    # Each file gets a message of its own.
    monkeypatch.setattr(outbox, "MESSAGE_BYTES", 1)
    made = replication.Replicator(replication.Candidates(candidate), None, retry_s=0.0)  # type: ignore[arg-type]
    made.start()
    with made.progress:
        made.progress.wait_for(lambda: not made._peers["candidate"].lags)
    try:
        made.send({"job-1": "success"}, [], ended=True)
        with made.progress:
            assert made.progress.wait_for(lambda: len(sent) == 3, 60)
    finally:
        made.stop()
    assert sent == ["job-1", "version", "job-1"]


@pytest.mark.parametrize("where", ["message", "comparison"])
def test_a_candidate_gets_all_after_a_shortage(
    clock: _Clock, candidate: _Candidate, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The thread of a candidate which ended would leave the queue without a majority for good."""
    lacking: list[Exception] = [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        MemoryError(),
        RuntimeError("can't start new thread"),
    ]
    sent: list[str] = []

    def lack(at: str) -> None:
        if at == where and lacking:
            raise lacking.pop()

    def update(_node_uuid: str, files: dict[str, str]) -> None:
        lack("message")
        sent.extend(files)

    def plan(*_args: object) -> CatchUpPlan:
        lack("comparison")
        return CatchUpPlan(False, {}, [], [], None)

    monkeypatch.setattr(candidate, "update", update)
    monkeypatch.setattr(catch_up, "plan", plan)
    made = replication.Replicator(replication.Candidates(candidate), None, retry_s=0.0)  # type: ignore[arg-type]
    made.start()
    try:
        made.send({"job-1": "success"}, [], ended=True)
        with made.progress:
            assert made.progress.wait_for(lambda: "job-1" in sent, 60)
    finally:
        made.stop()
    assert lacking == []
