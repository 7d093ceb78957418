"""What a node says about its master daemon, and about the report of its failover daemon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.backend.node import master_status
from ganeti.constants import failover as const
from ganeti.platform import failover_report, master_epoch, paths
from ganeti.platform.failover_report import Report
from ganeti.platform.master_epoch import Epoch
from ganeti.utils.daemonize import PidFile


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node2.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    found = paths.current()
    for directory in (found.data_dir, found.run_dir, found.socket_dir, found.lock_dir):
        Path(directory).mkdir(parents=True)
    Path(found.ssconf_file("master_node")).write_text("node1.example.com\n")
    master_epoch.claim(Epoch(3, "uuid-1"))
    yield found


def test_a_daemon_which_nobody_stopped_is_dead(here: paths.Paths) -> None:
    found = master_status.status()
    assert found.daemon == const.DEAD
    assert (found.master, found.epoch) == ("node1.example.com", "3 uuid-1")
    assert not found.watching


def test_a_daemon_which_was_stopped(here: paths.Paths) -> None:
    Path(here.master_stopped_file).touch()
    assert master_status.status().daemon == const.STOPPED


def test_a_daemon_which_does_not_answer_is_mute(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs, so the file of an earlier stop does not count."""
    Path(here.master_stopped_file).touch()
    monkeypatch.setattr(master_status, "_ANSWER_S", 0.01)
    running = PidFile(here.pid_file("ganeti-masterd"))
    running.acquire()
    try:
        assert master_status.master_daemon() == (const.MUTE, None)
    finally:
        running.release()


def test_a_report_counts_while_its_daemon_runs(here: paths.Paths) -> None:
    failover_report.write(
        Report("node1.example.com", const.SERVING, time.monotonic() - 7, "two\nlines", "yesterday")
    )
    found = master_status.status()
    assert (found.watched, found.state, found.seen_s, found.text) == ("", "", None, "")
    assert found.acted == "yesterday"
    running = PidFile(here.pid_file("ganeti-failoverd"))
    running.acquire()
    try:
        found = master_status.status()
    finally:
        running.release()
    assert (found.watched, found.state, found.text) == (
        "node1.example.com",
        const.SERVING,
        "two lines",
    )
    assert found.seen_s is not None
    assert found.seen_s >= 7


def test_a_damaged_report_and_pause_are_none(here: paths.Paths) -> None:
    Path(here.failover_report_file).write_text("watched node1\nseen_at soon\n\n")
    Path(here.watcher_pausefile).write_text("tomorrow\n")
    assert failover_report.read().seen_at is None
    assert master_status.status().paused_until is None


def test_the_time_since_a_majority_confirmed_that_it_can_commit(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the master's own answer, not the report of the failover daemon."""
    answers: list[object] = [2.5, None, "text"]
    asked = []

    class Answering:
        def __init__(self, *_args: object, **_options: object) -> None:
            pass

        def __enter__(self) -> Answering:
            return self

        def __exit__(self, *_args: object) -> None:
            pass

        def call(self, method: str, args: list[str]) -> list[object]:
            asked.append((method, args))
            return [answers.pop(0)]

    monkeypatch.setattr(master_status, "Client", Answering)
    running = PidFile(here.pid_file("ganeti-masterd"))
    running.acquire()
    try:
        found = master_status.status()
        assert (found.daemon, found.seen_s) == (const.SERVING, 2.5)
        # A master of another version, or one without the parameter.
        assert master_status.status().seen_s is None
        assert master_status.master_daemon() == (const.SERVING, None)
    finally:
        running.release()
    assert set(map(str, asked)) == {"('QueryConfigValues', ['commit_age'])"}
