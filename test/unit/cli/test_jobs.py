"""Waiting for jobs, without a socket."""

from __future__ import annotations

import ast
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import jobs, terminal
from ganeti.cli.command import Values
from ganeti.opcodes.test import OpTestDelay

STAMP = [1795213010, 684568]


class ScriptedClient:
    """Answers WaitForJobChange from a list."""

    def __init__(self, *changes: Any) -> None:
        self.changes = list(changes)
        self.asked: list[tuple[Any, ...]] = []

    def wait_for_job_change(self, *args: Any) -> Any:
        self.asked.append(args)
        change = self.changes.pop(0)
        if isinstance(change, BaseException):
            raise change
        return change


def entry(serial: int, text: Any, kind: str = "message") -> list[Any]:
    return [serial, STAMP, kind, text]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_every_line_once_and_in_order() -> None:
    client = ScriptedClient(
        (["queued"], []),
        (["running"], [entry(1, "a"), entry(2, "b")]),
        None,
        (["success"], [entry(3, "c")]),
    )
    shown: list[str] = []
    assert jobs.follow_job(client, 7, shown.append) == ["success"]  # type: ignore[arg-type]
    assert [line[25:] for line in shown] == ["a", "b", "c"]
    assert [(info, serial) for _, _, info, serial, _ in client.asked] == [
        (None, None),
        (["queued"], None),
        (["running"], 2),
        (["running"], 2),
    ]


def test_a_master_that_repeats_itself_instead_of_saying_nochange() -> None:
    client = ScriptedClient((["running"], []), (["running"], []), (["error"], []))
    assert jobs.follow_job(client, 7) == ["error"]  # type: ignore[arg-type]


def test_a_job_that_has_ended_before() -> None:
    client = ScriptedClient((["canceled"], []))
    assert jobs.follow_job(client, 7) == ["canceled"]  # type: ignore[arg-type]
    again = ScriptedClient((["success"], [entry(1, "x")]))
    assert jobs.follow_job(again, 7, lambda text: None) == ["success"]  # type: ignore[arg-type]
    assert len(again.asked) == 1, "the answer with the end of the job is the last one"


@pytest.mark.parametrize(
    ("kind", "message", "text"),
    [
        ("message", "* done", "* done"),
        ("remote-import", {"a": 1}, "{'a': 1}"),
        ("jqueue-test", "plain", "plain"),
    ],
)
def test_log_lines(kind: str, message: Any, text: str) -> None:
    assert jobs.format_log_entry(STAMP, kind, message) == f"Fri Nov 20 22:16:50 2026 {text}"


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        (["canceled", ["canceled"], [None]], errors.JobCanceled, "^Job was canceled$"),
        (
            ["canceled", ["success", "canceled"], [1, ["JobCanceled", ["by request"]]]],
            errors.JobCanceled,
            "^Job was canceled: by request$",
        ),
        (
            ["error", ["error"], [["OpPrereqError", ["no", "wrong_state"]]]],
            errors.OpPrereqError,
            "no",
        ),
        (["error", ["error"], ["some text"]], errors.OpExecError, "some text"),
        (
            ["error", ["success", "error"], [1, ["OpExecError", ["half"]]]],
            errors.OpExecError,
            r"partial failure \(opcode 2\): Failure: command execution error:\nhalf",
        ),
        (["error", ["success"], [None]], errors.OpExecError, "ended with status error"),
    ],
)
def test_results_that_are_errors(row: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        jobs.job_result(7, row)


def test_results_come_with_the_answer_which_brings_the_end() -> None:
    client = ScriptedClient(
        (["running", ["success", "running"], [1, None]], []),
        (["success", ["success"] * 2, [1, 2]], []),
    )
    assert jobs.wait_for_job(client, 7) == [1, 2]  # type: ignore[arg-type]
    assert [asked[:3] for asked in client.asked] == [
        (7, jobs.RESULT_FIELDS, None),
        (7, jobs.RESULT_FIELDS, ["running", ["success", "running"], [1, None]]),
    ]


def test_a_job_which_does_not_exist_any_more() -> None:
    client = ScriptedClient((["running", ["running"], [None]], []), (None, []))
    with pytest.raises(errors.JobLost, match="job 7 does not exist"):
        jobs.wait_for_job(client, 7)  # type: ignore[arg-type]


def test_reason_trail() -> None:
    values = Values(program="gnt-node", command="add", reason="why")
    assert jobs.reason_trail(values, lambda: 5) == [
        ["gnt:user", "why", 5],
        ["gnt:client:gnt-node", "add", 5],
    ]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = _Screen(), _Screen()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    client = ScriptedClient(
        (["waiting"], []), None, (["running"], [entry(1, "a")]), None, (["success"], [])
    )
    jobs.follow_job(client, 7, lambda text: out.write(f"{text}\n"))  # type: ignore[arg-type]
    # The line is written over, and gone before output comes and at the end.
    assert err.getvalue() == (
        "\r\033[KJob 7 is waiting for locks (2 s)\r\033[K\r\033[KJob 7 is running (2 s)\r\033[K"
    )
    assert {timeout_s for *_, timeout_s in client.asked} == {2}
    assert out.getvalue().endswith(" a\n")


@pytest.mark.parametrize(("columns", "told"), [(80, True), (50, False)])
def test_who_waits_long_is_told_how_to_learn_why(
    columns: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = _Screen()
    monkeypatch.setattr(sys, "stdout", _Screen())
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(jobs.terminal, "width", lambda stream: columns)
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(jobs.time, "monotonic", lambda: next(clock))
    client = ScriptedClient((["waiting"], []), None, None, None, None, (["success"], []))
    jobs.follow_job(client, 7, lambda text: None)  # type: ignore[arg-type]
    shown = err.getvalue().split("\r\033[K")
    assert "shows why" not in shown[1]
    assert any("; 'gnt-job explain 7' shows why" in line for line in shown) == told


def test_notices_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(
        (["queued"], []),
        None,
        None,
        (["waiting"], []),
        None,
        None,
        (["running"], []),
        None,
        (["success"], []),
    )
    jobs.follow_job(client, 7)  # type: ignore[arg-type]
    assert capsys.readouterr() == (
        "",
        "Job 7 is waiting in the queue\nJob 7 is waiting for locks\n",
    )
    assert {timeout_s for *_, timeout_s in client.asked} == {60}


class CountingClient:
    """A master that ends each job with a log entry at the first question; notes every request."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def submit_many_jobs(self, wanted: Any) -> Any:
        self.requests.append("SubmitManyJobs")
        return [[True, number] for number, _ops in enumerate(wanted, 1)]

    def wait_for_job_change(self, *_args: Any) -> Any:
        self.requests.append("WaitForJobChange")
        return ["success", ["success"], [None]], [entry(1, "done")]

    def query_jobs(self, job_ids: Any, fields: Any) -> Any:
        self.requests.append("QueryJobs")
        return [["success"] for _job_id in job_ids]


@pytest.mark.parametrize(
    ("count", "requests"),
    [
        (1, ["SubmitManyJobs", "WaitForJobChange"]),
        # While several are left, their states decide for which one to wait first.
        (2, ["SubmitManyJobs", "QueryJobs", "WaitForJobChange", "WaitForJobChange"]),
    ],
)
def test_no_request_too_many(count: int, requests: list[str]) -> None:
    client = CountingClient()
    waiting = jobs.JobSet(client, Values(), quiet=True)  # type: ignore[arg-type]
    for number in range(count):
        waiting.add(f"web{number}")
    assert all(outcome.success for outcome in waiting.wait())
    assert client.requests == requests


class InterruptedClient:
    """The user interrupts while the request is under way."""

    def submit_job(self, ops: Any) -> Any:
        raise KeyboardInterrupt

    def submit_many_jobs(self, wanted: Any) -> Any:
        raise KeyboardInterrupt


def test_an_interrupted_submission_is_no_interrupted_command() -> None:
    """The master may have the jobs, although no number was shown."""
    client: Any = InterruptedClient()
    with pytest.raises(jobs.SubmissionInterrupted):
        jobs.run_opcode(OpTestDelay(duration=1.0), Values(), client=client)
    several = jobs.JobSet(client, Values(), quiet=True)
    several.add("web1", OpTestDelay(duration=1.0))
    with pytest.raises(jobs.SubmissionInterrupted):
        several.wait()


def _submissions(tree: ast.AST, guarded: bool = False) -> Iterator[tuple[int, bool]]:
    """Lines which submit jobs, and whether an interrupt there is told from others."""
    for node in ast.iter_child_nodes(tree):
        inside = guarded or (
            isinstance(node, ast.With)
            and any(ast.unparse(one.context_expr).endswith("submission()") for one in node.items)
        )
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            (".submit_job", ".submit_many_jobs")
        ):
            yield node.lineno, inside
        yield from _submissions(node, inside)


def test_no_command_submits_jobs_in_another_way() -> None:
    lib = Path(jobs.__file__).parents[1]
    found = [
        (f"{path.relative_to(lib)}:{line}", guarded)
        for package in ("cli", "client")
        for path in (lib / package).rglob("*.py")
        for line, guarded in _submissions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) >= 5
    assert [place for place, guarded in found if not guarded] == []


def test_a_line_of_a_log_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is enough for today; programs read the whole date."""
    monkeypatch.setattr(time, "localtime", lambda *seconds: time.gmtime(*(seconds or (90061,))))
    assert jobs.format_log_entry([86400, 0], "message", "x") == "Fri Jan  2 00:00:00 1970 x"
    assert jobs.format_log_entry([86400, 0], "waiting", "x") == ""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 30)
    assert jobs.format_log_entry([86400 + 46916, 0], "message", "x") == "13:01:56 x"
    assert jobs.format_log_entry([86400 + 46916, 0], "waiting", "x") == "13:01:56 x"
    assert jobs.format_log_entry([46916, 0], "message", "x") == "1970-01-01 13:01:56 x"
    assert jobs.format_log_entry([133316, 0], "message", "a word and another one more") == (
        "13:01:56 a word and another\n         one more"
    )
