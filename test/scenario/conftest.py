"""Virtual clusters for the scenario tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster


@pytest.fixture(scope="module")
def cluster_directory() -> Iterator[Path]:
    """A short path: the names of unix sockets are limited."""
    path = Path(tempfile.mkdtemp(prefix="gnt-"))
    yield path / "vc"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """Three nodes with the fake hypervisor as default, shared by the tests of one module."""
    made = Cluster(cluster_directory, 3, "--hypervisor", "fake")
    made.create.ok()
    try:
        yield made
    finally:
        made.destroy()
