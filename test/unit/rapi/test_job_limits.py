"""Limits for the jobs of each user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import FakeMaster
from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.opcodes.instance import OpInstanceQueryData, OpInstanceStartup
from ganeti.rapi import job_limits
from ganeti.rapi.job_limits import READING, JobLimits

CHANGE = [OpInstanceStartup(instance_name="web")]
READ = [OpInstanceQueryData(instances=["web"])]


class Queue(FakeMaster):
    """A queue which numbers the jobs and ends those that the test names."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0
        self.states: dict[int, str] = {}
        self.answers["SubmitJob"] = self.accept
        self.answers["QueryJobs"] = self.rows
        self.questions: list[list[int]] = []

    def accept(self, _ops: Any) -> int:
        self.serial += 1
        self.states[self.serial] = "queued"
        return self.serial

    def rows(self, ids: list[int], fields: list[str]) -> list[Any]:
        assert ids and fields == ["status"]
        self.questions.append(ids)
        return [[self.states[one]] if one in self.states else None for one in ids]


class Lab:
    def __init__(self, unfinished: int, per_minute: int) -> None:
        self.now = 1000.0
        self.queue = Queue()
        self.limits = JobLimits(self.queue, unfinished, per_minute, clock=lambda: self.now)

    def submit(self, ops: Any = CHANGE, user: str = "jack") -> int:
        return asyncio.run(self.limits.submit(user, ops))

    def refused(self, ops: Any = CHANGE, user: str = "jack") -> Refused:
        with pytest.raises(Refused) as caught:
            self.submit(ops, user)
        assert caught.value.status == 429
        return caught.value


def test_unfinished_jobs() -> None:
    lab = Lab(3, 0)
    assert [lab.submit() for _ in range(3)] == [1, 2, 3]
    assert lab.queue.questions == []
    err = lab.refused()
    assert str(err) == (
        "user jack has 3 unfinished jobs, which is the limit. Wait until some of them have ended."
    )
    assert dict(err.headers)["Retry-After"] == "5"
    assert lab.queue.serial == 3


def test_ended_jobs_do_not_count() -> None:
    lab = Lab(4, 0)
    for _ in range(4):
        lab.submit()
    lab.queue.states.update({1: "success", 2: "running"})
    lab.queue.states.pop(3)  # archived
    assert [lab.submit(), lab.submit()] == [5, 6]
    lab.refused()


def test_the_master_is_asked_once_in_a_second_while_nothing_changes() -> None:
    lab = Lab(3, 0)
    for _ in range(3):
        lab.submit()
    for _ in range(100):
        lab.refused()
    assert len(lab.queue.questions) == 1
    lab.queue.states[1] = "error"
    lab.now += 1
    lab.submit()
    # A job that is new since the last question may have ended meanwhile.
    lab.queue.states[4] = "success"
    lab.submit()
    assert len(lab.queue.questions) == 3


def test_jobs_in_a_minute() -> None:
    lab = Lab(0, 120)
    for _ in range(120):
        lab.submit()
    err = lab.refused()
    assert str(err) == "user jack has submitted 120 jobs in a minute, which is the limit"
    assert dict(err.headers)["Retry-After"] == "1"
    lab.now += 0.5
    lab.submit()
    lab.refused()
    lab.now += 60
    for _ in range(120):
        lab.submit()
    lab.refused()


def test_other_users_go_on() -> None:
    lab = Lab(10, 60)
    for _ in range(10):
        lab.submit()
    lab.refused()
    assert lab.submit(user="jill") == 11


def test_jobs_that_only_read_have_a_tenth() -> None:
    lab = Lab(30, 600)
    for _ in range(3):
        lab.submit(READ)
    assert "3 unfinished jobs that only read" in str(lab.refused(READ))
    # The other kind is not affected, in both directions.
    for _ in range(30):
        lab.submit()
    lab.refused()
    lab.queue.states = dict.fromkeys(lab.queue.states, "success")
    lab.now += 2
    for _ in range(57):
        lab.queue.states = dict.fromkeys(lab.queue.states, "success")
        lab.submit(READ)
    lab.queue.states = dict.fromkeys(lab.queue.states, "success")
    lab.now -= 2
    assert "60 jobs that only read in a minute" in str(lab.refused(READ))
    assert READING == 10


def test_no_limits() -> None:
    lab = Lab(0, 0)
    for _ in range(500):
        lab.submit()
        lab.submit(READ)
    assert lab.queue.questions == []
    # Nothing is kept that would grow.
    assert not lab.limits._changing.accounts["jack"].unfinished


def test_small_limits_leave_one_job_that_reads() -> None:
    lab = Lab(1, 1)
    lab.submit(READ)
    lab.refused(READ)


def test_a_job_that_was_not_accepted_does_not_count() -> None:
    lab = Lab(2, 2)
    accept = lab.queue.answers["SubmitJob"]
    lab.queue.answers["SubmitJob"] = errors.JobQueueFull()
    for _ in range(5):
        with pytest.raises(errors.JobQueueFull):
            lab.submit()
    lab.queue.answers["SubmitJob"] = accept
    assert [lab.submit(), lab.submit()] == [1, 2]
    lab.refused()


def test_jobs_that_are_submitted_together() -> None:
    lab = Lab(10, 0)

    async def slow(method: str, *args: Any, timeout_s: float | None = None) -> Any:
        await asyncio.sleep(0)
        return await FakeMaster.call(lab.queue, method, *args)

    lab.queue.call = slow  # type: ignore[method-assign]

    async def all_together() -> list[Any]:
        return await asyncio.gather(
            *(lab.limits.submit("jack", CHANGE) for _ in range(100)), return_exceptions=True
        )

    found = asyncio.run(all_together())
    assert sum(isinstance(one, int) for one in found) == 10
    assert lab.queue.serial == 10


def test_queries_without_a_job_have_no_limit_of_jobs(rest: Rest) -> None:
    rest.master.answers["RunQuery"] = {"result": [], "warnings": []}
    for _ in range(2 * job_limits.UNFINISHED // READING):
        assert rest("GET", "/2/instances/web/snapshots", user="none:pw")[0] == 200
    assert isinstance(rest.master, Queue) and rest.master.serial == 0


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with rest_lab(tmp_path, Queue(), "root pw write\nnone pw\nother pw\n") as one:
        yield one


def test_a_user_without_rights_does_not_fill_the_queue(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = job_limits.UNFINISHED // READING
    statuses = [rest("GET", "/2/instances/web/info", user="none:pw")[0] for _ in range(most + 20)]
    assert statuses == [200] * most + [429] * 20
    status, body, headers = rest("GET", "/2/instances/web/info", user="none:pw")
    assert status == 429 and body["message"] == "Too Many Requests"
    assert "user none has 100 unfinished jobs that only read" in body["explain"]
    assert headers["retry-after"] == "5"
    assert rest("GET", "/2/instances/web/info", user="other:pw")[0] == 200
    assert rest("PUT", "/2/instances/web/startup")[0] == 200
    assert isinstance(rest.master, Queue) and rest.master.serial == most + 2
