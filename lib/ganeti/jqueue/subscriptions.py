"""Subscriptions to the changes of jobs.

A client that waits for a job holds no thread: its :class:`Subscription` is notified once, by the
thread which publishes the change. :class:`Subscriptions` keeps them by job; it is guarded by the
queue's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganeti.jqueue import job as jobs

#: ``[values of the fields, new log entries]``, the answer to ``WaitForJobChange``.
JobChange = list[Any]


class Subscription:
    """Interest in the next change of a job.

    :param fields: names of job fields to compare.
    :param prev_info: the values of the fields which the client knows; None for no knowledge.
    :param prev_serial: serial of the last log entry which the client knows; None for none.
    :param notify: called once with the change, in another thread.
    """

    __slots__ = ("fields", "job_id", "notify", "prev_info", "prev_serial")

    def __init__(
        self,
        job_id: int,
        fields: Sequence[str],
        prev_info: list[Any] | None,
        prev_serial: int | None,
        notify: Callable[[JobChange], None],
    ) -> None:
        self.job_id = job_id
        self.fields = fields
        self.prev_info = prev_info
        self.prev_serial = prev_serial
        self.notify = notify

    def change(self, job: jobs.QueuedJob) -> JobChange | None:
        """Return what the client does not know of the job; None when it knows everything.

        A job that has ended, or that lies in the archive, always counts as changed, because nothing
        will follow.
        """
        info = plain(job.values(self.fields))
        entries = job.log_after(self.prev_serial)
        if (
            entries
            or info != self.prev_info
            or job.published_status in jobs.FINALIZED
            or job.archived
        ):
            return [info, entries]
        return None


def plain(value: Any) -> Any:
    """Return the value as JSON would return it: tuples are lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


class Subscriptions:
    """All subscriptions. Needs the queue's lock, except for calling what it returns."""

    def __init__(self) -> None:
        self._by_job: dict[int, set[Subscription]] = {}
        # Jobs with log entries for which a notification is planned already.
        self._planned: set[int] = set()

    def __len__(self) -> int:
        """Return the number of jobs with a subscription."""
        return len(self._by_job)

    def __contains__(self, job_id: int) -> bool:
        """Whether a job has a subscription."""
        return job_id in self._by_job

    def add(self, subscription: Subscription) -> None:
        """Notify this subscription of the next change of its job."""
        self._by_job.setdefault(subscription.job_id, set()).add(subscription)

    def remove(self, subscription: Subscription) -> bool:
        """End a subscription.

        :returns: False when it was notified already, or is being notified now.
        """
        found = self._by_job.get(subscription.job_id)
        if found is None or subscription not in found:
            return False
        found.discard(subscription)
        if not found:
            del self._by_job[subscription.job_id]
        return True

    def plan_notification(self, job_id: int) -> bool:
        """Note that a job has a new log entry.

        :returns: whether the caller has to bring about a notification; False when the job has no
            subscription, or when a notification is planned already.
        """
        if job_id not in self._by_job or job_id in self._planned:
            return False
        self._planned.add(job_id)
        return True

    def take_changes(
        self, job_ids: Iterable[int], known: Mapping[int, jobs.QueuedJob]
    ) -> list[tuple[Subscription, JobChange]]:
        """Remove and return the subscriptions which these jobs satisfy, with their changes."""
        taken = []
        for job_id in job_ids:
            self._planned.discard(job_id)
            subscriptions = self._by_job.get(job_id)
            job = known.get(job_id)
            if subscriptions is None or job is None:
                continue
            for subscription in list(subscriptions):
                change = subscription.change(job)
                if change is not None:
                    taken.append((subscription, change))
                    subscriptions.discard(subscription)
            if not subscriptions:
                del self._by_job[job_id]
        return taken
