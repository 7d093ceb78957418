"""What every test starts from: an environment that names no cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_cluster_from_outside() -> Iterator[None]:
    """A developer may sit in a virtual cluster's shell; its variables must not reach a test."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GANETI_")}
    yield
    os.environ.update(taken)
