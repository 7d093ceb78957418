"""What every test starts from: an environment that names no cluster."""

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
    """A shell starts its background jobs deaf for Ctrl-C, and programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
