"""What follows in the master daemon from a commit of the configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fakes.config import cluster_of
from ganeti.config.transaction import CLUSTER
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.queue import JobQueue
from ganeti.master.events import EventLog
from ganeti.server import mastering


def test_the_queue_follows_the_number_of_running_jobs(tmp_path: Path) -> None:
    before = cluster_of(1)
    after = dataclasses.replace(
        before, cluster=dataclasses.replace(before.cluster, max_running_jobs=3)
    )
    queue = JobQueue(QueueStore(str(tmp_path)), lambda _op, _callbacks: None)
    mastering.note_commit(EventLog(), queue, before, after, {CLUSTER})
    assert queue.scheduler.pool.limit == 3
    mastering.note_commit(EventLog(), queue, after, after, {CLUSTER})
    assert queue.scheduler.pool.limit == 3
