"""Describing guests to the metadata daemon: starting it, waiting for it, giving up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti import errors
from ganeti.backend.instance import metadata
from ganeti.metad import client
from ganeti.platform import paths

DESCRIPTION = {"name": "web1"}


class Daemon:
    """A daemon that begins to answer after some tries."""

    def __init__(self) -> None:
        self.running = False
        self.deaf = 0
        self.heard: list[Any] = []
        self.started = 0
        self.refuses = ""

    def start(self, _argv: list[str], **_keys: Any) -> Any:
        self.started += 1
        self.running = self.running or not self.refuses
        return SimpleNamespace(failed=bool(self.refuses), output=self.refuses)

    def update(self, description: Any) -> None:
        if not self.running or self.deaf:
            self.deaf = max(0, self.deaf - 1)
            raise client.NotRunning("ganeti-metad does not run on this node")
        self.heard.append(description)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon()
    monkeypatch.setattr(metadata.process, "run", made.start)
    monkeypatch.setattr(metadata.filelock, "is_locked", lambda _path: made.running)
    monkeypatch.setattr(client, "update", made.update)
    monkeypatch.setattr(metadata, "_START_TIMEOUT_S", 0.2)
    with paths.override(paths.Paths(str(tmp_path))):
        yield made


def test_the_daemon_is_started_for_the_first_guest(daemon: Daemon) -> None:
    for _ in range(2):
        metadata.modify(DESCRIPTION)
    assert daemon.started == 1 and daemon.heard == [DESCRIPTION, DESCRIPTION]


def test_one_that_has_just_been_started_is_waited_for(daemon: Daemon) -> None:
    daemon.running, daemon.deaf = True, 3
    metadata.modify(DESCRIPTION)
    assert daemon.started == 0 and daemon.heard == [DESCRIPTION]


def test_the_loser_of_a_race_finds_it_running(daemon: Daemon) -> None:
    daemon.refuses = "already running"

    def start(argv: list[str], **keys: Any) -> Any:
        daemon.running = True  # the other one's
        return daemon.start(argv, **keys)

    metadata.process.run = start  # type: ignore[assignment]  # undone by the fixture's patch
    metadata.modify(DESCRIPTION)
    assert daemon.heard == [DESCRIPTION]


def test_what_the_daemon_said_reaches_the_user(daemon: Daemon) -> None:
    daemon.refuses = "cannot serve 169.254.169.254 port 80: Address already in use"
    with pytest.raises(errors.OpExecError, match="cannot start ganeti-metad: .*in use"):
        metadata.modify(DESCRIPTION)


def test_one_that_never_answers_is_given_up(daemon: Daemon) -> None:
    daemon.running, daemon.deaf = True, 10_000
    with pytest.raises(errors.OpExecError, match="does not answer"):
        metadata.modify(DESCRIPTION)


def test_nobody_is_asked_to_forget_where_nobody_knows(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(client, "remove", asked.append)
    metadata.forget("web1")
    assert asked == []
    daemon.running = True
    metadata.forget("web1")
    assert asked == ["web1"]
