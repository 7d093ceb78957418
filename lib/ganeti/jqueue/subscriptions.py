"""Subscriptions to the changes of jobs.

A client that waits for a job holds no thread: its :class:`Subscription` is notified once, by the
thread which publishes the change. :class:`Subscriptions` keeps them by job; it is guarded by the
queue's lock.

A job which changes too often, for example because a script writes thousands of lines, does not
answer its clients for each change: after a burst they get all that is new at a bounded rate (Ganeti
design 2.2, *Wait for job change*). The end of a job, and what a client which knows nothing
asks for, is never deferred.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.jqueue import job as jobs

#: ``[values of the fields, new log entries]``, the answer to ``WaitForJobChange``.
JobChange = list[Any]

#: Changes of a job which are answered at once; after them, as many in a second.
BURST = 20
RATE = 10.0
# The time until the next answer is possible cannot be exact in binary.
_ROUNDING = 1e-6
#: Number of remembered jobs above which those without a recent change are forgotten.
_MANY_JOBS = 1000


class _Pace:
    """How many answers about one job may still be given at once."""

    __slots__ = ("at", "left")

    def __init__(self, now: float) -> None:
        self.at, self.left = now, float(BURST)

    def is_rested(self, now: float) -> bool:
        """Return True if the job may have a whole burst again."""
        return self.left + (now - self.at) * RATE >= BURST

    def take(self, now: float) -> float:
        """Return 0 for an answer now; else the seconds until the next one is possible."""
        self.left = min(float(BURST), self.left + (now - self.at) * RATE)
        self.at = now
        if self.left >= 1 - _ROUNDING:
            self.left = max(0.0, self.left - 1)
            return 0.0
        return (1 - self.left) / RATE


@dataclass(eq=False, slots=True)
class Subscription:
    """Interest in the next change of a job.

    :param fields: names of job fields to compare.
    :param prev_info: the values of the fields which the client knows; None for no knowledge.
    :param prev_serial: serial of the last log entry which the client knows; None for none.
    :param notify: called once with the change, in another thread.
    """

    job_id: int
    fields: Sequence[str]
    prev_info: list[Any] | None
    prev_serial: int | None
    notify: Callable[[JobChange], None]

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
    """All subscriptions. Needs the queue's lock, except for calling what it returns.

    :param later: called with a number of seconds and a job id: its changes shall be taken then.
    """

    def __init__(
        self,
        later: Callable[[float, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._later = later
        self._clock = clock
        self._paces: dict[int, _Pace] = {}
        # Jobs whose changes are taken later, because they were too many.
        self._deferred: set[int] = set()
        self._by_job: dict[int, set[Subscription]] = {}
        # Jobs with log entries for which a notification is planned already.
        self._planned: set[int] = set()

    def __len__(self) -> int:
        """Return the number of jobs with a subscription."""
        return len(self._by_job)

    def __contains__(self, job_id: int) -> bool:
        """Return True if a job has a subscription."""
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

    def must_wait(self, subscription: Subscription, job: jobs.QueuedJob) -> bool:
        """Return True if a change which a new subscription finds is too early.

        It is brought later.
        """
        if subscription.prev_info is None or job.published_status in jobs.FINALIZED or job.archived:
            return False
        return self._is_too_early(job.id)

    def _is_too_early(self, job_id: int) -> bool:
        if job_id in self._deferred:
            return True
        now = self._clock()
        pace = self._paces.get(job_id)
        if pace is None:
            if len(self._paces) >= _MANY_JOBS:
                self._paces = {
                    known: one for known, one in self._paces.items() if not one.is_rested(now)
                }
            pace = self._paces[job_id] = _Pace(now)
        wait_s = pace.take(now)
        if not wait_s:
            return False
        self._deferred.add(job_id)
        self._later(wait_s, job_id)
        return True

    def end_deferral(self, job_id: int) -> None:
        """The time which was given to ``later`` has come."""
        self._deferred.discard(job_id)

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
            ended = job is None or job.published_status in jobs.FINALIZED
            if ended:
                self._paces.pop(job_id, None)
            if subscriptions is None or job is None:
                continue
            changes = [
                (subscription, change)
                for subscription in subscriptions
                if (change := subscription.change(job)) is not None
            ]
            if not changes or (not ended and self._is_too_early(job_id)):
                continue
            taken += changes
            subscriptions.difference_update(subscription for subscription, _change in changes)
            if not subscriptions:
                del self._by_job[job_id]
        return taken
