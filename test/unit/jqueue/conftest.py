"""A running job queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.constants import job

from .queue_lab import PATIENCE_S, Lab

#: Modules whose tests run twice: with jobs in threads, and as in processes.
BOTH = (
    "test_job_trace",
    "test_queue",
    "test_queue_archive",
    "test_queue_cancel",
    "test_queue_candidates",
    "test_queue_clients",
    "test_queue_filters",
    "test_queue_order",
    "test_queue_restart",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH:
        metafunc.parametrize("execution", job.EXECUTIONS, indirect=True)


@pytest.fixture(autouse=True)
def execution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a :class:`Lab` executes its jobs."""
    how = getattr(request, "param", job.EXECUTION_THREADS)
    monkeypatch.setattr(Lab, "processes", how == job.EXECUTION_PROCESSES)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    made.queue.start()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()
