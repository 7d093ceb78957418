"""The queue as a whole: the predicted order of its jobs, and the locks."""

from __future__ import annotations

import random

from ganeti.constants import job as const
from ganeti.jqueue.explain import QueueFacts
from ganeti.jqueue.filters import FilterVerdict
from ganeti.jqueue.overview import MAX_LOCKS, overview, predicted_order
from ganeti.jqueue.pause import Paused
from ganeti.locking import LockRow

from .test_explain import Stage, owner, rule, stage

__all__ = ["stage"]


def order(stage: Stage) -> list[tuple[int, int | None]]:
    found = overview(stage.context(), sorted(stage.jobs), [], 100)
    return [(one["job"]["id"], one["position"]) for one in found["jobs"]]


def test_jobs_come_in_the_order_in_which_they_go_on(stage: Stage) -> None:
    stage.job(9, "running")
    stage.job(2, "waiting")
    stage.wait(2, "node/a", [owner(3)])
    stage.job(3, "waiting")
    stage.wait(3, "node/b", [owner(9)], [owner(4)])
    stage.job(4, "waiting")
    stage.wait(4, "node/b", [owner(9)])
    stage.job(5)
    stage.job(6)
    stage.job(7, depends=((6, ()),))
    stage.job(1, depends=((7, ("success",)),))
    stage.queue = QueueFacts(line=(6, 5), busy=frozenset((9, 2, 3, 4)))
    assert [job_id for job_id, _ in order(stage)] == [9, 4, 3, 2, 6, 5, 7, 1]
    assert [place for _, place in order(stage)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_nobody_knows_when_a_paused_job_goes_on(stage: Stage) -> None:
    stage.job(1)
    stage.job(2, depends=((1, ()),))
    stage.job(3)
    stage.job(4)
    stage.verdicts[1] = FilterVerdict(const.FILTER_PAUSE, rule())
    stage.verdicts[3] = FilterVerdict(const.FILTER_RATE_LIMIT, rule(), 1)
    stage.queue = QueueFacts(line=(4,))
    assert order(stage) == [(4, 1), (3, 2), (1, None), (2, None)]
    stage.queue = QueueFacts(line=(4,), paused=Paused("no memory", 0.0))
    assert order(stage) == [(1, None), (2, None), (3, None), (4, None)]


def test_jobs_which_seem_to_wait_for_each_other_are_all_there(stage: Stage) -> None:
    """Locks are read one after the other, so the waits need not fit together."""
    numbers = random.Random(5)
    for job_id in range(1, 200):
        stage.job(job_id, "waiting")
        stage.wait(job_id, "node/a", [owner(numbers.randrange(1, 220)) for _ in range(3)])
    found, sure = predicted_order(stage.context(), stage.jobs)
    assert sorted(found) == sorted(stage.jobs) and sure == len(stage.jobs)


def test_what_ended_meanwhile_is_left_out(stage: Stage) -> None:
    stage.job(1, "running", "success")
    stage.job(2, "running")
    found = overview(stage.context(), [1, 2, 3], [], 100)
    assert [one["job"]["id"] for one in found["jobs"]] == [2]


def test_the_answer_has_a_limit(stage: Stage) -> None:
    for job_id in range(1, 6):
        stage.job(job_id, "running")
    locks = [LockRow(f"node/u-{number}", None, (), (), None) for number in range(MAX_LOCKS + 3)]
    found = overview(stage.context(), sorted(stage.jobs), locks, 2)
    assert [one["job"]["id"] for one in found["jobs"]] == [1, 2]
    assert (found["more_jobs"], len(found["locks"]), found["more_locks"]) == (3, MAX_LOCKS, 3)


def test_locks_with_those_who_wait(stage: Stage) -> None:
    waiting = (("exclusive", (owner(3),)), ("shared", (owner(4), owner(5))))
    row = LockRow("node/u-n1", "shared", (owner(1), owner(2)), waiting, 5.0)
    (lock,) = overview(stage.context(), [], [row], 10)["locks"]
    assert (lock["lock"], lock["name"], lock["mode"]) == ("node/u-n1", "node/n1", "shared")
    assert [one["job"] for one in lock["holders"]] == [1, 2]
    assert [(one["job"], one["mode"]) for one in lock["waiting"]] == [
        (3, "exclusive"),
        (4, "shared"),
        (5, "shared"),
    ]
