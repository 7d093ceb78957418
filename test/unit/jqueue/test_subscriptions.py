"""Clients that wait for a job which changes too often are answered at a bounded rate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.jqueue import subscriptions
from ganeti.jqueue.subscriptions import BURST, RATE, Subscription, Subscriptions


class Job(SimpleNamespace):
    """A job which writes lines."""

    id = 7
    published_status = "running"
    archived = False

    def __init__(self) -> None:
        super().__init__(lines=0)

    def values(self, fields: list[str]) -> list[Any]:
        return [self.published_status]

    def log_after(self, serial: int | None) -> list[int]:
        return list(range((serial or 0) + 1, self.lines + 1))


class Lab:
    """A clock that is moved by hand, and what is to happen later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.later: list[tuple[float, int]] = []
        self.subscriptions = Subscriptions(
            lambda wait_s, job_id: self.later.append((self.now + wait_s, job_id)),
            clock=lambda: self.now,
        )
        self.job = Job()
        self.answers: list[tuple[float, Any]] = []

    def ask(self, serial: int | None, info: list[Any] | None) -> None:
        """A client asks again with what it knows, as soon as it has been answered."""
        one = Subscription(7, ["status"], info, serial, lambda change: None)
        change = one.change(self.job)
        if change is None or self.subscriptions.must_wait(one, self.job):
            self.subscriptions.add(one)
        else:
            self.answer(change)

    def answer(self, change: Any) -> None:
        self.answers.append((self.now, change))
        if change[0][0] == "running":
            self.ask(change[1][-1] if change[1] else None, change[0])

    def publish(self) -> None:
        for _one, change in self.subscriptions.take_changes([7], {7: self.job}):
            self.answer(change)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.later and self.later[0][0] <= end:
            self.now, job_id = self.later.pop(0)
            self.subscriptions.end_deferral(job_id)
            self.publish()
        self.now = end


@pytest.fixture
def lab() -> Lab:
    made = Lab()
    made.ask(None, ["running"])
    return made


def test_a_job_with_few_changes_is_answered_at_once(lab: Lab) -> None:
    for _ in range(BURST):
        lab.job.lines += 1
        lab.publish()
    assert [at for at, _ in lab.answers] == [100.0] * BURST
    assert lab.later == []


def test_a_job_that_writes_all_the_time_is_answered_at_a_bounded_rate(lab: Lab) -> None:
    for _ in range(10_000):
        lab.job.lines += 1
        lab.publish()
        lab.pass_time(0.001)
    assert len(lab.answers) <= BURST + 10 * RATE + 1
    # Nothing is lost, repeated or late: the lines come in their order.
    lab.pass_time(1)
    seen = [line for _, (_info, lines) in lab.answers for line in lines]
    assert seen == list(range(1, 10_001))
    pauses = [
        after - before
        for (before, _), (after, _) in zip(
            lab.answers[BURST:], lab.answers[BURST + 1 :], strict=False
        )
    ]
    assert max(pauses) < 2 / RATE
    assert len(lab.later) <= 1


def test_the_end_is_never_deferred(lab: Lab) -> None:
    for _ in range(3 * BURST):
        lab.job.lines += 1
        lab.publish()
    lab.job.published_status = "success"
    lab.publish()
    assert lab.answers[-1] == (100.0, [["success"], list(range(BURST + 1, 3 * BURST + 1))])
    lab.pass_time(1)
    assert lab.answers[-1][0] == 100.0


def test_a_new_client_is_answered_at_once(lab: Lab) -> None:
    for _ in range(3 * BURST):
        lab.job.lines += 1
        lab.publish()
    count = len(lab.answers)
    lab.ask(None, None)
    assert len(lab.answers) == count + 1


def test_quiet_jobs_are_forgotten(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_MANY_JOBS", 10)
    for number in range(100):
        job = Job()
        job.id, job.lines = number, 1
        one = Subscription(number, ["status"], ["running"], None, lambda change: None)
        assert not lab.subscriptions.must_wait(one, job)
        lab.pass_time(1)
    assert len(lab.subscriptions._paces) <= 10
