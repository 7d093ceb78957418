"""Unit tests start no program unless they say so, and no example of hypothesis has a time limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from ganeti.storage import base
from ganeti.utils import author, process

# A slow machine is not a failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _programs_on_request_only(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("programs") is not None:
        yield
        return
    with process.forbid("a unit test starts a program. Mark it with pytest.mark.programs"):
        yield


@pytest.fixture(autouse=True)
def _nobody_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs have no person, for each user who runs the tests, with or without ``sudo``."""
    monkeypatch.setattr(author, "of_process", lambda: "")


@pytest.fixture(autouse=True)
def _no_patience_with_busy_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a removal which fails be tried once; tests of the repetition allow more."""
    monkeypatch.setattr(base, "BUSY_S", 0.0)
