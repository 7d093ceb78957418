"""A step that fails is named; a verification is compared with the one before."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.runbook import quiet
from ganeti.runbook.steps import Step, StepFailed, execute, on_cluster


def fail() -> None:
    raise errors.OpExecError("no space")


def test_a_failure_of_the_cluster_is_one_line() -> None:
    with pytest.raises(StepFailed) as caught:
        on_cluster("stop", fail)
    assert str(caught.value) == "step 'stop' failed: no space"
    assert (caught.value.step, caught.value.failures) == ("stop", {"": "no space"})


def test_failures_of_nodes_are_a_line_each() -> None:
    text = str(StepFailed("stop", {"node2": "no space", "node3": "no network"}))
    assert text == "step 'stop' failed\nnode2: no space\nnode3: no network"


def test_an_unknown_error_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        on_cluster("stop", lambda: 1 // 0)


class Log:
    """An operation whose steps only leave a line; the other program does the step ``theirs``."""

    def __init__(self, *done: str) -> None:
        self.done = list(done)
        self.lines: list[str] = []

    def is_complete(self, step: Step) -> bool:
        return step.name in self.done

    def begin(self, step: Step, label: str) -> bool:
        self.lines.append(f"{label} {step.text}")
        return step.name != "theirs"

    def carry_out(self, step: Step) -> None:
        if step.name == "broken":
            raise errors.OpExecError("no space")
        self.done.append(step.name)


def test_steps_which_are_complete_are_left_out_and_keep_their_number() -> None:
    log = Log("stop")
    plan = [Step("drain", "Draining"), Step("stop", "Stopping"), Step("start", "Starting")]
    assert execute(plan, log)
    assert log.done == ["stop", "drain", "start"]
    assert log.lines == ["[1/3] Draining", "[3/3] Starting"]
    assert execute(plan, log) and len(log.lines) == 2


def test_another_program_goes_on() -> None:
    log = Log()
    assert not execute([Step("one"), Step("theirs"), Step("two")], log)
    assert log.done == ["one"]


def test_no_step_follows_one_which_failed() -> None:
    log = Log()
    with pytest.raises(errors.OpExecError, match="no space"):
        execute([Step("one"), Step("broken"), Step("two")], log)
    assert log.done == ["one"] and len(log.lines) == 2


def test_the_wait_for_a_master_which_starts() -> None:
    answers = [errors.OpExecError("first"), errors.OpExecError("second"), 7]
    paused: list[float] = []

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert quiet.wait_for_master(ask, paused.append, 2.0, 4.0) == 7 and paused == [2.0, 2.0]
    answers[:] = [errors.OpExecError("first"), errors.OpExecError("last"), 7]
    with pytest.raises(errors.OpExecError, match="last"):
        quiet.wait_for_master(ask, paused.append, 2.0, 2.0)
    assert paused == [2.0, 2.0, 2.0]


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
