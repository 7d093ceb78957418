"""What every test run has: no cluster in its environment, a clear exit code when stopped, and a
list of what was skipped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

#: A file to which skipped tests are appended (devel/skipped.py).
_SKIPPED_TESTS = os.environ.get("SKIPPED_TESTS", "")


@pytest.fixture(autouse=True, scope="session")
def _no_cluster_from_outside() -> Iterator[None]:
    """A developer may sit in a virtual cluster's shell; its variables must not reach a test."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GANETI_")}
    yield
    os.environ.update(taken)


@pytest.fixture(autouse=True, scope="session")
def _interrupts_are_heard() -> None:
    """A shell starts background jobs with SIGINT ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Exit with 1 when a run was interrupted after a test failed; 2 means that no test failed."""
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.testsfailed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _note_skipped(test: str, longrepr: object) -> None:
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    with open(_SKIPPED_TESTS, "a", encoding="utf-8") as stream:
        line = {"test": test, "reason": str(reason).removeprefix("Skipped: ")}
        stream.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # The workers of xdist send their reports to the one process without a number.
    if _SKIPPED_TESTS and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        if not hasattr(report, "wasxfail"):
            _note_skipped(report.nodeid, report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if _SKIPPED_TESTS and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        _note_skipped(report.nodeid, report.longrepr)
