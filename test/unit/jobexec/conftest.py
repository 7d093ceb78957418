"""A master, and a job which asks it over a connection (:mod:`.wire_lab`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .wire_lab import Job, Master


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master(tmp_path / "master")


@pytest.fixture
def job(master: Master) -> Iterator[Job]:
    made = Job(master)
    yield made
    made.link.close()
