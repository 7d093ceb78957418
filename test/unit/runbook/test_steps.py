"""A step that fails is named; a verification is compared with the one before."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.runbook import quiet
from ganeti.runbook.steps import StepFailed, carry_out


def fail() -> None:
    raise errors.OpExecError("no space")


def test_a_failure_of_the_cluster_is_one_line() -> None:
    with pytest.raises(StepFailed) as caught:
        carry_out("stop", fail)
    assert str(caught.value) == "step 'stop' failed: no space"
    assert (caught.value.step, caught.value.failures) == ("stop", {"": "no space"})


def test_failures_of_nodes_are_a_line_each() -> None:
    text = str(StepFailed("stop", {"node2": "no space", "node3": "no network"}))
    assert text == "step 'stop' failed\nnode2: no space\nnode3: no network"


def test_an_unknown_error_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        carry_out("stop", lambda: 1 // 0)


def test_the_wait_for_jobs_says_when_their_number_changes() -> None:
    answers = [["7", "8"], ["7", "8"], ["8"], []]
    said: list[object] = []
    paused: list[float] = []
    quiet.wait_for_jobs(lambda: answers.pop(0), said.append, paused.append, 2.0)
    assert said == ["  waiting for 2 jobs: 7, 8", "  waiting for 1 jobs: 8"]
    assert paused == [2.0, 2.0, 2.0]


def test_only_new_findings_are_an_error() -> None:
    said: list[object] = []
    found = {"ENODELVM node2": "old", "ENODELVM node3": "seen first"}
    quiet.require_nothing_new(found, ("ENODELVM node2",), ("node3",), said.append)
    assert said == ["  found on a node which was not verified before: ENODELVM node3: seen first"]
    with pytest.raises(errors.OpExecError, match="did not find before: ENODELVM node3: seen first"):
        quiet.require_nothing_new(found, ("ENODELVM node2",), (), said.append)
