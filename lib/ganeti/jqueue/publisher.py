"""Makes committed states of jobs visible to clients, and answers the clients which wait for them.

A commit is *published* when the files of its jobs are in place and the master candidates have it.
:class:`Publisher` then shows the new states, and answers the clients whose subscription
(:mod:`.subscriptions`) they concern. The committer calls it in its announcing thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ganeti.jqueue import job as jobs
from ganeti.jqueue.commit import Batch
from ganeti.jqueue.subscriptions import Subscriptions
from ganeti.jqueue.table import JobTable
from ganeti.utils import shortage


class Publisher:
    """Publishes commits.

    :ivar subscriptions: the clients that wait for a change; guarded by the table's lock.
    :ivar on_published: called with the jobs of every published commit, without the lock; it must
        return quickly, because answers wait for it.
    :ivar on_logged: called with a job after a line was added to its log, without the lock.
    """

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self.subscriptions = Subscriptions(self._notify_later)
        self.on_published: Callable[[list[jobs.QueuedJob]], None] | None = None
        self.on_logged: Callable[[jobs.QueuedJob], None] | None = None

    def publish(self, batch: Batch) -> None:
        """Show the states of a commit to all clients."""
        with self._table.lock:
            for snapshot in batch.snapshots:
                snapshot.job.publish(snapshot)
                if snapshot.job.finalized and snapshot.state.end is not None:
                    for op in snapshot.job.ops:
                        op.drop_text()
            for job_id in batch.archive:
                self._table.jobs.pop(job_id, None)
        if self.on_published is not None:
            self.on_published([snapshot.job for snapshot in batch.snapshots])
        self.notify([snapshot.job.id for snapshot in batch.snapshots])

    def notify(self, job_ids: Iterable[int]) -> None:
        """Answer the clients that wait for one of these jobs and do not know its present state."""
        with self._table.lock:
            changes = self.subscriptions.take_changes(job_ids, self._table.jobs)
        for subscription, change in changes:
            subscription.notify(change)

    def _notify_later(self, wait_s: float, job_id: int) -> None:
        """Answer the clients of a job which changes too often; at most once at a time per job."""

        def notify() -> None:
            with self._table.lock:
                self.subscriptions.end_deferral(job_id)
            self.notify([job_id])

        if not shortage.start_thread_after(wait_s, notify, name="jq-notify"):
            notify()
