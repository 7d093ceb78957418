"""What every test run has: no cluster in its environment, a clear exit code when stopped, a list of
what was skipped, and the option ``--turn``."""

from __future__ import annotations

import datetime
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

#: A file to which skipped tests are appended (devel/skipped.py).
_SKIPPED_TESTS = os.environ.get("SKIPPED_TESTS", "")
#: Number of days after which each file with tests has come first (``--turn``).
_TURNS = 7
_FILES = pytest.StashKey[dict[str, int]]()


@pytest.fixture(autouse=True, scope="session")
def _no_cluster_from_outside() -> Iterator[None]:
    """A developer may sit in a virtual cluster's shell; its variables must not reach a test."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GANETI_")}
    yield
    os.environ.update(taken)


@pytest.fixture(autouse=True, scope="session")
def _programs_use_the_python_of_the_tests() -> Iterator[None]:
    """On some machines the command ``python3`` is a script which begins six times as slowly."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{before}"
    yield
    os.environ["PATH"] = before


@pytest.fixture(autouse=True, scope="session")
def _interrupts_are_heard() -> None:
    """A shell starts background jobs with SIGINT ignored, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        metavar="DAY",
        help="begin with another seventh of the files every day, for a run which may be stopped;"
        " DAY is a number, or 'today'",
    )


def in_turn(files: Sequence[str], day: int) -> list[str]:
    """Return the files in the order of a day: its seventh, that of the next day, and so on."""
    return [file for later in range(_TURNS) for file in files[(day + later) % _TURNS :: _TURNS]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("turn")
    if turn is None:
        return
    day = datetime.date.today().toordinal() if turn == "today" else int(turn)
    of_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        of_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    files = in_turn(list(of_file), day)
    items[:] = [item for file in files for item in of_file[file]]
    config.stash[_FILES] = {file: len(of_file[file]) for file in files}


def pytest_runtest_logfinish(nodeid: str, location: object) -> None:
    """Count what has run."""
    _finished[nodeid.partition("::")[0]] = _finished.get(nodeid.partition("::")[0], 0) + 1


_finished: dict[str, int] = {}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the files which a run with ``--turn`` had no time for."""
    wanted = config.stash.get(_FILES, {})
    left = [file for file, count in wanted.items() if _finished.get(file, 0) < count]
    if left:
        terminalreporter.write_line(
            f"turn: {len(wanted) - len(left)} of {len(wanted)} files were run; these were not, or"
            f" not completely: {' '.join(left)}"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are collected, which takes a third less time so.

    What is there afterwards stays to the end, so later collections leave it out.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


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
