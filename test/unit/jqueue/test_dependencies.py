"""Dependencies between jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jqueue.dependencies import DependencyWaits, Verdict, decide, resolve

STATES = {1: "success", 2: "error", 3: "canceled", 4: "running", 5: "queued"}


@pytest.mark.parametrize(
    ("depends", "verdict"),
    [
        (None, Verdict.GO),
        ([], Verdict.GO),
        ([[1, []]], Verdict.GO),
        ([[1, ["success"]]], Verdict.GO),
        ([[1, ["error"]]], Verdict.FAIL),
        ([[2, []]], Verdict.FAIL),
        ([[2, ["error"]]], Verdict.GO),
        ([[2, ["success", "error", "canceled"]]], Verdict.GO),
        ([[3, []]], Verdict.CANCEL),
        ([[3, ["canceled"]]], Verdict.GO),
        ([[4, ["success"]]], Verdict.WAIT),
        ([[1, []], [5, []]], Verdict.WAIT),
        ([[4, []], [2, []]], Verdict.FAIL),
        ([[99, ["success"]]], Verdict.FAIL),
    ],
)
def test_verdicts(depends: list[list[object]], verdict: Verdict) -> None:
    decision = decide(depends, STATES.get)
    assert decision.verdict is verdict
    if verdict is not Verdict.GO:
        assert f"job {decision.job_id}" in decision.reason


def test_relative_ids() -> None:
    assert resolve(None, []) is None
    assert resolve([[-1, ["success"]], [-2, []], [7, []], ["8", []]], [10, 11]) == [
        [11, ["success"]],
        [10, []],
        [7, []],
        [8, []],
    ]
    with pytest.raises(errors.OpPrereqError, match="before the first job"):
        resolve([[-3, []]], [10, 11])
    with pytest.raises(errors.OpPrereqError, match="refused"):
        resolve([[-1, []]], [10, None])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans())))
def test_waiting_against_a_simple_model(steps: list[tuple[int, int, bool]]) -> None:
    waiting = DependencyWaits()
    model: dict[int, int] = {}
    for job_id, other, ends in steps:
        if ends:
            ended = sorted(waiter for waiter, awaited in model.items() if awaited == other)
            assert waiting.ended(other) == ended
            for waiter in ended:
                del model[waiter]
        else:
            waiting.add(job_id, other)
            model[job_id] = other
        assert all(waiting.awaited(waiter) == awaited for waiter, awaited in model.items())
    for job_id in range(6):
        waiting.remove(job_id)
        assert waiting.awaited(job_id) is None
