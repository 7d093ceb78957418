"""What every test run has: no cluster in its environment, and a clear exit code when stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest


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
