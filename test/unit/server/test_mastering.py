"""What follows in the master daemon from a commit of the configuration."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from fakes.config import cluster_of
from ganeti.config.draft import CLUSTER
from ganeti.configfile import files
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.master.events import EventLog
from ganeti.objects import ConfigData
from ganeti.platform import paths
from ganeti.server import mastering

from ..configfile.samples import change_to, text_of


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a change which only its journal has."""
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    here = paths.current()
    for directory in (here.data_dir, here.lock_dir):
        os.makedirs(directory, exist_ok=True)
    files.write_config_file(here.cluster_conf_file, text_of(7))
    assert files.change(here.cluster_conf_file, change_to(8))
    return Path(here.cluster_conf_journal)


def test_the_end_of_the_daemon_leaves_a_file_with_all_changes(journal: Path) -> None:
    mastering._fold_journal(paths.current())
    assert Path(paths.current().cluster_conf_file).read_bytes() == text_of(8)
    assert not journal.exists()


def test_a_full_disk_does_not_hold_up_the_end_of_the_daemon(
    journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    mastering._fold_journal(paths.current())
    assert f"the changes in {journal} cannot be written into" in caplog.text
    assert "No space left" in caplog.text
    assert files.read(paths.current().cluster_conf_file) == text_of(8)


class Executor:
    """The job processes, which learn of each state."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def note_commit(self, _before: ConfigData, after: ConfigData) -> None:
        self.seen.append(after.serial_no)


def test_the_queue_follows_the_number_of_running_jobs(tmp_path: Path) -> None:
    before = cluster_of(1)
    after = dataclasses.replace(
        before, cluster=dataclasses.replace(before.cluster, max_running_jobs=3)
    )
    queue = JobQueue(QueueStore(str(tmp_path)), Execution(lambda _op, _callbacks: None))
    executor = Executor()
    mastering.note_commit(EventLog(), queue, executor, before, after, {CLUSTER})  # type: ignore[arg-type]
    assert queue.scheduler.pool.limit == 3
    mastering.note_commit(EventLog(), queue, executor, after, after, {CLUSTER})  # type: ignore[arg-type]
    assert queue.scheduler.pool.limit == 3
    assert executor.seen == [after.serial_no] * 2


def test_no_more_jobs_are_executed_than_may_be_watched(tmp_path: Path) -> None:
    before = cluster_of(1)
    after = dataclasses.replace(
        before,
        cluster=dataclasses.replace(before.cluster, max_running_jobs=30, max_tracked_jobs=9),
    )
    queue = JobQueue(QueueStore(str(tmp_path)), Execution(lambda _op, _callbacks: None))
    mastering.note_commit(EventLog(), queue, Executor(), before, after, {CLUSTER})  # type: ignore[arg-type]
    assert queue.scheduler.pool.limit == 9
