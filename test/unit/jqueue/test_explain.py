"""Why a job waits: each kind of waiting, and chains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ganeti.jqueue.explain import (
    MAX_CHAIN,
    ExplainContext,
    JobFacts,
    QueueFacts,
    explain,
    explain_briefly,
)
from ganeti.jqueue.filters import FilterVerdict
from ganeti.jqueue.rate_meter import RateMeter
from ganeti.locking import LockWait, Owner
from ganeti.objects import FilterRule


def owner(job_id: int) -> Owner:
    return Owner(job_id, f"job-{job_id}", "/livelock")


class Stage:
    """A context that tests set up."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobFacts] = {}
        self.waits: dict[int, LockWait] = {}
        self.held: dict[int, dict[str, str]] = {}
        self.verdicts: dict[int, FilterVerdict] = {}
        self.under: dict[str, list[int]] = {}
        self.queue = QueueFacts()

    def job(self, job_id: int, status: str = "queued", real: str = "", **facts: Any) -> None:
        values: dict[str, Any] = {"summary": (f"TEST({job_id})",), "priority": 0, "opcode": 0}
        self.jobs[job_id] = JobFacts(job_id, status, real or status, **{**values, **facts})

    def wait(
        self,
        job_id: int,
        lock: str,
        holders: Sequence[Owner] = (),
        before: Sequence[Owner] = (),
        mode: str = "exclusive",
    ) -> None:
        self.waits[job_id] = LockWait(
            owner(job_id), lock, mode, 50.0, 0, tuple(holders), tuple(before), (lock,)
        )

    def context(self) -> ExplainContext:
        return ExplainContext(
            self.queue,
            self.jobs.get,
            self.waits.get,
            lambda job_id: self.held.get(job_id, {}),
            self.verdicts.get,
            lambda uuid: self.under.get(uuid, []),
            lambda lock: lock.replace("/u-", "/"),
        )

    def explain(self, job_id: int) -> dict[str, Any]:
        found = explain(self.context(), job_id)
        assert found is not None
        assert json.loads(json.dumps(found)) == found, "it has to cross the wire"
        return found

    def reason(self, job_id: int) -> dict[str, Any]:
        (reason,) = self.explain(job_id)["reasons"]
        assert isinstance(reason, dict)
        return reason


@pytest.fixture
def stage() -> Stage:
    return Stage()


def rule(*reason: Any) -> FilterRule:
    return FilterRule(
        uuid="r", watermark=0, priority=0, predicates=(), action="PAUSE", reason_trail=reason
    )


def test_an_unknown_job(stage: Stage) -> None:
    assert explain(stage.context(), 5) is None


def test_a_lock_and_its_holder(stage: Stage) -> None:
    stage.job(7, "waiting", since=40.0)
    stage.job(
        5,
        "running",
        since=10.0,
        message="half way",
        message_time=20.0,
        summary=("A", "B"),
        opcode=1,
    )
    stage.wait(7, "node/u-n1", [owner(5)], [owner(6)])
    stage.held[7] = {"cluster/BGL": "shared", "instance/u-web": "exclusive"}
    found = stage.explain(7)
    assert found["job"] == {
        "id": 7,
        "status": "waiting",
        "summary": ["TEST(7)"],
        "priority": 0,
        "opcode": "TEST(7)",
        "opcode_number": 1,
        "opcodes": 1,
        "since": 40.0,
        "message": None,
        "message_time": None,
    }
    assert found["reasons"] == [
        {
            "kind": "lock",
            "text": "lock node/n1 (exclusive), held by job 5; job 6 served before it",
            "jobs": [5],
            "lock": "node/u-n1",
            "name": "node/n1",
            "mode": "exclusive",
            "since": 50.0,
            "holders": [{"job": 5, "name": "job-5"}],
            "before": [{"job": 6, "name": "job-6"}],
            "wanted": ["node/u-n1"],
        }
    ]
    assert found["holds"] == [
        {"lock": "cluster/BGL", "name": "cluster/BGL", "mode": "shared"},
        {"lock": "instance/u-web", "name": "instance/web", "mode": "exclusive"},
    ]
    (first,) = found["chain"]
    assert first["depth"] == 1
    assert first["reasons"] == []
    assert first["job"]["message"] == "half way"
    assert (first["job"]["opcode"], first["job"]["opcode_number"]) == ("B", 2)
    assert not found["more"]
    assert found["notes"] == []


def test_a_lock_that_nobody_holds_yet(stage: Stage) -> None:
    stage.job(7, "waiting")
    stage.job(6, "waiting")
    stage.wait(7, "node/u-n1", before=[owner(6)])
    reason = stage.reason(7)
    assert reason["text"] == "lock node/n1 (exclusive), which job 6 will get first"
    assert reason["jobs"] == [6]


def test_a_lock_held_by_somebody_who_is_no_job(stage: Stage) -> None:
    stage.job(7, "waiting")
    stage.wait(7, "cluster/BGL", [Owner(None, "watcher")], mode="shared")
    reason = stage.reason(7)
    assert reason["text"] == "lock cluster/BGL (shared), held by watcher"
    assert reason["jobs"] == []
    assert reason["holders"] == [{"job": None, "name": "watcher"}]


def test_very_many_holders_are_named_in_short(stage: Stage) -> None:
    stage.job(99, "waiting")
    stage.wait(99, "cluster/BGL", [owner(number) for number in range(1, 21)])
    reason = stage.reason(99)
    assert reason["text"] == (
        "lock cluster/BGL (exclusive), held by job 1, job 2, job 3, job 4, job 5 and 15 more"
    )
    assert reason["jobs"] == list(range(1, 21))


def test_a_job_on_its_way_to_its_locks(stage: Stage) -> None:
    stage.job(7, "waiting")
    assert stage.reason(7)["kind"] == "starting"


def test_a_dependency(stage: Stage) -> None:
    stage.job(7, depends=((5, ("success", "error")), (4, ()), (3, ()), (2, ())))
    stage.job(5, "running")
    stage.job(4, "waiting")
    stage.job(3, "success", opcode=1)
    first, second = stage.explain(7)["reasons"]
    assert first == {
        "kind": "dependency",
        "jobs": [5],
        "states": ["success", "error"],
        "text": "the end of job 5 (running), as success or error",
    }
    assert second["text"] == "the end of job 4 (waiting), as success"


def test_a_pause_by_a_filter(stage: Stage) -> None:
    stage.job(7)
    stage.verdicts[7] = FilterVerdict("PAUSE", rule(("gnt:user", "holidays", 1)))
    assert stage.reason(7) == {
        "kind": "filter",
        "text": "filter rule r (holidays) pauses it",
        "jobs": [],
        "rule": "r",
        "action": "PAUSE",
        "limit": 0,
    }


def test_a_rate_limit(stage: Stage) -> None:
    stage.job(7)
    stage.job(5, "running")
    stage.verdicts[7] = FilterVerdict("RATE_LIMIT", rule(), 2)
    stage.under["r"] = [5, 6]
    found = stage.explain(7)
    assert found["reasons"][0]["text"] == (
        "filter rule r lets 2 of such jobs run at once: job 5 and job 6"
    )
    assert [entry["job"]["id"] for entry in found["chain"]] == [5]


def test_a_limiting_reason(stage: Stage) -> None:
    stage.job(7)
    stage.verdicts[7] = FilterVerdict("RATE_LIMIT", limit=1, reason="rate-limit:1:x")
    stage.under["rate-limit:1:x"] = [5]
    reason = stage.reason(7)
    assert reason["text"] == "its reason 'rate-limit:1:x' lets 1 of such jobs run at once: job 5"
    assert (reason["rule"], reason["limit"], reason["jobs"]) == ("", 1, [5])


def test_a_worker(stage: Stage) -> None:
    for job_id in (1, 2, 3, 4, 5):
        stage.job(job_id, "running" if job_id < 3 else "queued")
    stage.queue = QueueFacts(line=(4, 3, 5), busy=frozenset((1, 2)), max_running=2)
    reason = stage.reason(5)
    assert reason["kind"] == "worker"
    assert reason["text"] == ("a worker: 2 of 2 are busy (job 1 and job 2); 2 jobs are before it")
    assert (reason["position"], reason["limit"], reason["jobs"]) == (3, 2, [1, 2])
    assert stage.reason(3)["text"].endswith("1 job is before it")
    assert stage.reason(4)["text"].endswith("it is the next")


def test_nothing_is_in_its_way(stage: Stage) -> None:
    stage.job(5)
    stage.queue = QueueFacts(line=(4, 5), busy=frozenset((1,)), max_running=3)
    assert stage.reason(5)["kind"] == "starting"
    stage.job(6)
    assert stage.reason(6)["kind"] == "starting"


def test_the_daemon_ends(stage: Stage) -> None:
    stage.job(5)
    stage.queue = QueueFacts(ending=True)
    assert stage.reason(5)["kind"] == "ending"


def test_a_drained_queue_is_no_reason_but_worth_a_note(stage: Stage) -> None:
    stage.job(5, "running")
    stage.queue = QueueFacts(drained=True)
    found = stage.explain(5)
    assert found["reasons"] == []
    assert "drained" in found["notes"][0]
    stage.job(6, "success", opcode=1)
    assert stage.explain(6)["notes"] == []


def test_a_canceled_job_that_is_not_there_yet(stage: Stage) -> None:
    stage.job(5, "canceling")
    assert stage.reason(5)["kind"] == "cancel"
    stage.wait(5, "node/u-n1", [owner(4)])
    assert [reason["kind"] for reason in stage.explain(5)["reasons"]] == ["lock", "cancel"]


def test_a_running_job_may_wait_for_a_lock_too(stage: Stage) -> None:
    stage.job(5, "running")
    stage.wait(5, "node/u-n1", [owner(4)])
    assert stage.reason(5)["kind"] == "lock"


def test_a_change_that_the_disk_has_not_got(stage: Stage) -> None:
    stage.job(5, "running", "success", opcode=1, since=1000.0)
    stage.queue = QueueFacts(now=1000.01)
    assert stage.explain(5)["reasons"] == [], "every change takes some milliseconds"
    stage.queue = QueueFacts(now=1003.0)
    reason = stage.reason(5)
    assert reason["kind"] == "disk"
    assert reason["text"] == "its change from running to success is not on disk yet"


@pytest.mark.parametrize("status", ["success", "error", "canceled"])
def test_an_ended_job_waits_for_nothing(stage: Stage, status: str) -> None:
    stage.job(5, status, opcode=1)
    found = stage.explain(5)
    assert (found["reasons"], found["chain"], found["job"]["opcode"]) == ([], [], None)


def test_a_chain_of_three_of_different_kinds(stage: Stage) -> None:
    """8 waits for the end of 7, which waits for a lock of 6, which waits for a worker of 5."""
    stage.job(8, depends=((7, ()),))
    stage.job(7, "waiting")
    stage.wait(7, "instance/u-web", [owner(6)])
    stage.job(6, "waiting")
    stage.wait(6, "node/u-n1", [owner(5)])
    stage.job(5, "running", message="copying", message_time=1.0)
    found = stage.explain(8)
    assert [
        (entry["depth"], entry["job"]["id"], [reason["kind"] for reason in entry["reasons"]])
        for entry in found["chain"]
    ] == [(1, 7, ["lock"]), (2, 6, ["lock"]), (3, 5, [])]


def test_each_job_once_nearest_first_even_in_a_circle(stage: Stage) -> None:
    """What was looked at one after the other may look like a circle."""
    for job_id, holders in ((1, (2, 3)), (2, (3, 4)), (3, (1,)), (4, (2,))):
        stage.job(job_id, "waiting")
        stage.wait(job_id, "cluster/BGL", [owner(holder) for holder in holders])
    assert [(entry["depth"], entry["job"]["id"]) for entry in stage.explain(1)["chain"]] == [
        (1, 2),
        (1, 3),
        (2, 4),
    ]


def test_jobs_that_went_meanwhile_are_left_out(stage: Stage) -> None:
    stage.job(7, "waiting")
    stage.wait(7, "node/u-n1", [owner(5)])
    assert stage.explain(7)["chain"] == []


def test_a_long_chain_is_cut(stage: Stage) -> None:
    for job_id in range(1, 200):
        stage.job(job_id, depends=((job_id + 1, ()),))
    found = stage.explain(1)
    assert len(found["chain"]) == MAX_CHAIN
    assert found["more"]


def test_briefly_for_a_list(stage: Stage) -> None:
    stage.job(7, "waiting")
    stage.wait(7, "node/u-n1", [owner(5)])
    stage.job(5, "running")
    brief = explain_briefly(stage.context(), [7, 99, 5])
    assert brief[1] is None
    assert [
        None if entry is None else [reason["kind"] for reason in entry["reasons"]]
        for entry in brief
    ] == [["lock"], None, []]


def test_meter() -> None:
    meter = RateMeter()
    assert meter.total(1000) == 0
    for second, number in ((1000, 1), (1000, 2), (1030, 4), (1059, 8)):
        meter.count(second, number)
    assert meter.total(1059) == 15
    assert meter.total(1060) == 12
    assert meter.total(1060) == 12
    assert meter.total(1118) == 8
    assert meter.total(1119) == 0
    meter.count(5000)
    meter.count(4990)  # the clock was set back
    assert meter.total(4990) == 2
    assert meter.total(99999) == 0
