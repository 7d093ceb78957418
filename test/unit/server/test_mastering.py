"""What follows in the master daemon from a commit of the configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fakes.config import cluster_of
from ganeti.config.draft import CLUSTER
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.master.events import EventLog
from ganeti.objects import ConfigData
from ganeti.server import mastering


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
