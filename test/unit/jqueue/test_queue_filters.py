"""The job queue obeys filter rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.objects import FilterRule

from .queue_lab import PATIENCE_S, Lab, op, until


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    made.queue.start()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()


def rule(uuid: str, action: Any, comment: str = "", **kwargs: Any) -> FilterRule:
    """A rule about the jobs with this comment; about every job without one."""
    predicates = (["opcode", ["=", "comment", comment]],) if comment else ()
    values: dict[str, Any] = {"priority": 0, "watermark": 0, "reason_trail": ()}
    return FilterRule(uuid=uuid, action=action, predicates=predicates, **{**values, **kwargs})


def status(lab: Lab, job_id: int) -> str:
    return str(lab.row(job_id, "status")[0])


def test_a_rejected_job_is_canceled_and_says_why(lab: Lab) -> None:
    lab.queue.scheduler.set_filters(
        [rule("r", "REJECT", "x", reason_trail=(("gnt:user", "because", 1),))]
    )
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    job_id = lab.queue.submit([op("y"), op("x")])
    assert lab.wait(job_id) == "canceled"
    assert lab.row(job_id, "opresult") == [
        [["JobCanceled", ["rejected by filter rule r (because)"]]] * 2
    ]
    assert lab.order == ["y"]


def test_a_new_rule_rejects_what_is_in_line(lab: Lab) -> None:
    lab.queue.set_max_running(1)
    gate = lab.gate("busy")
    first = lab.queue.submit([op("busy"), op("x")])
    assert lab.reached["busy"].wait(PATIENCE_S)
    second = lab.queue.submit([op("x")])
    lab.queue.scheduler.set_filters([rule("r", "REJECT", "x")])
    # The worker has not come to it, and will not.
    assert lab.wait(second) == "canceled"
    gate.set()
    # What is running is not touched, not even a part that has not begun.
    assert lab.wait(first) == "success"


def test_a_paused_job_goes_on_when_the_rule_is_gone(lab: Lab) -> None:
    lab.queue.scheduler.set_filters([rule("r", "PAUSE", "x")])
    job_id = lab.queue.submit([op("x")])
    other = lab.queue.submit([op("y")])
    assert lab.wait(other) == "success"
    assert status(lab, job_id) == "queued"
    lab.queue.scheduler.set_filters([rule("q", "PAUSE", "z"), rule("r", "PAUSE", "x")])
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    assert status(lab, job_id) == "queued"
    lab.queue.scheduler.set_filters([])
    assert lab.wait(job_id) == "success"


def test_a_paused_job_can_be_canceled_and_a_restart_keeps_it(lab: Lab) -> None:
    lab.queue.scheduler.set_filters([rule("r", "PAUSE", "x")])
    first, second = lab.queue.submit([op("x")]), lab.queue.submit([op("x")])
    assert lab.queue.operations.cancel(first) == (True, f"job {first} was canceled")
    assert status(lab, first) == "canceled"
    lab.queue.stop(PATIENCE_S)
    lab.queue = lab.new(filters=[rule("r", "PAUSE", "x")])
    lab.queue.start()
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    assert status(lab, second) == "queued"
    lab.queue.scheduler.set_filters([rule("r", "ACCEPT", "x"), rule("s", "REJECT", priority=1)])
    assert lab.wait(second) == "success"
    assert lab.wait(lab.queue.submit([op("y")])) == "canceled"


def test_a_paused_job_still_waits_for_its_dependency_afterwards(lab: Lab) -> None:
    gate = lab.gate("busy")
    lab.queue.scheduler.set_filters([rule("r", "PAUSE", "x")])
    first = lab.queue.submit([op("busy")])
    second = lab.queue.submit([op("x", depends=[[first, ["success"]]])])
    lab.queue.scheduler.set_filters([])
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    assert status(lab, second) == "queued"
    gate.set()
    assert lab.wait(second) == "success"


def test_a_rule_stops_a_job_that_waits_for_its_dependency(lab: Lab) -> None:
    gate = lab.gate("busy")
    first = lab.queue.submit([op("busy")])
    second = lab.queue.submit([op("x", depends=[[first, ["success"]]])])
    third = lab.queue.submit([op("z", depends=[[first, ["success"]]])])
    lab.queue.scheduler.set_filters([rule("r", "PAUSE", "x"), rule("s", "REJECT", "z")])
    assert lab.wait(third) == "canceled"
    gate.set()
    assert lab.wait(first) == "success"
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    assert status(lab, second) == "queued"


def test_rate_limit(lab: Lab) -> None:
    gates = [lab.gate(f"g{number}") for number in range(6)]
    predicate = (["opcode", ["=~", "comment", "^g"]],)
    limit = FilterRule(
        uuid="r",
        action=["RATE_LIMIT", 2],
        predicates=predicate,
        priority=0,
        watermark=0,
        reason_trail=(),
    )
    lab.queue.scheduler.set_filters([limit])
    ids = [
        lab.queue.submit([op(f"g{number}", priority=10 if number < 5 else -10)])
        for number in range(6)
    ]
    until(lambda: sorted(lab.order) == ["g0", "g1"])
    assert lab.wait(lab.queue.submit([op("y")])) == "success"
    assert [status(lab, job_id) for job_id in ids[2:]] == ["queued"] * 4
    assert lab.queue.operations.change_priority(ids[3], 0)[0]
    gates[0].set()
    # The most urgent first, then the one that became so meanwhile.
    assert lab.reached["g5"].wait(PATIENCE_S)
    assert lab.queue.operations.cancel(ids[2])[0]
    gates[5].set()
    assert lab.reached["g3"].wait(PATIENCE_S)
    assert status(lab, ids[4]) == "queued"
    gates[1].set()
    assert lab.reached["g4"].wait(PATIENCE_S)
    for gate in gates:
        gate.set()
    assert [lab.wait(job_id) for job_id in ids] == ["success"] * 2 + ["canceled"] + ["success"] * 3


def test_running_jobs_count_for_a_new_limit(lab: Lab) -> None:
    gate = lab.gate("g")
    running = [lab.queue.submit([op("g")]) for _ in range(3)]
    until(lambda: lab.order == ["g"] * 3)
    lab.queue.scheduler.set_filters([rule("r", ["RATE_LIMIT", 2])])
    late = lab.queue.submit([op("late")])
    # Nothing else could be noticed about a job that waits rightly than that it has not begun.
    assert status(lab, late) == "queued"
    assert "late" not in lab.order
    gate.set()
    assert [lab.wait(job_id) for job_id in [*running, late]] == ["success"] * 4


def test_many_jobs_through_a_narrow_limit(lab: Lab) -> None:
    lab.queue.scheduler.set_filters([rule("r", ["RATE_LIMIT", 1])])
    results = lab.queue.submit_many([[op(str(number)), op("b")] for number in range(200)])
    assert [lab.wait(job_id) for _, job_id in results] == ["success"] * 200
    assert lab.order[::2] == [str(number) for number in range(200)]
    assert lab.order[1::2] == ["b"] * 200


def test_jobs_are_limited_by_their_reasons(lab: Lab) -> None:
    """At most two of six are running, and a job without the reason is not kept back."""
    gate = lab.gate("g")
    trail = [["gnt:user", "rate-limit:2:nightly", 1]]
    ids = [lab.queue.submit([op("g", reason=trail)]) for _ in range(6)]
    until(lambda: lab.order == ["g"] * 2)
    assert lab.wait(lab.queue.submit([op("free")])) == "success"
    assert [status(lab, job_id) for job_id in ids[2:]] == ["queued"] * 4
    assert lab.order == ["g", "g", "free"]
    gate.set()
    assert [lab.wait(job_id) for job_id in ids] == ["success"] * 6


def test_rules_change_while_jobs_run(lab: Lab) -> None:
    """Whatever the rules were in between, every job runs once."""
    ids = []
    for number in range(30):
        lab.queue.scheduler.set_filters(
            [rule("p", "PAUSE"), rule("r", ["RATE_LIMIT", 2], priority=1)][number % 2 :]
        )
        ids += [
            job_id
            for _, job_id in lab.queue.submit_many(
                [[op(f"{number}.{index}"), op("b")] for index in range(10)]
            )
        ]
    lab.queue.scheduler.set_filters([])
    assert [lab.wait(job_id) for job_id in ids] == ["success"] * 300
    assert sorted(name for name in lab.order if name != "b") == sorted(
        f"{number}.{index}" for number in range(30) for index in range(10)
    )
