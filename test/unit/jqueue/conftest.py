"""A running job queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .queue_lab import PATIENCE_S, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "queue")
    made.queue.start()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.queue.stop(PATIENCE_S)
    assert not made.died.is_set()
