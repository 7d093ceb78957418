"""Subscriptions to the changes of jobs.

A client that waits for a job holds no thread: its :class:`Watch` is told once, by whoever makes the
change known. :class:`Watches` keeps them by job; it is guarded by the queue's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganeti.jqueue import job as jobs


class Watch:
    """A subscription to the changes of a job; `tell` is called once, from another thread."""

    __slots__ = ("fields", "job_id", "prev_info", "prev_serial", "tell")

    def __init__(
        self,
        job_id: int,
        fields: Sequence[str],
        prev_info: list[Any] | None,
        prev_serial: int | None,
        tell: Callable[[Any], None],
    ) -> None:
        self.job_id = job_id
        self.fields = fields
        self.prev_info = prev_info
        self.prev_serial = prev_serial
        self.tell = tell

    def change(self, job: jobs.QueuedJob) -> list[Any] | None:
        """``[values, log entries]`` when there is something the subscriber does not know."""
        info = plain(job.values(self.fields))
        entries = job.log_after(self.prev_serial)
        if entries or info != self.prev_info or job.shown_status in jobs.FINALIZED:
            return [info, entries]
        return None


def plain(value: Any) -> Any:
    """The value as it is after a way through JSON: tuples are lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


class Watches:
    """All subscriptions. Needs the queue's lock, except for calling what it returns."""

    def __init__(self) -> None:
        self._by_job: dict[int, set[Watch]] = {}
        # Jobs with log lines about which the watches will be told, so that nobody need ask again.
        self._poked: set[int] = set()

    def __len__(self) -> int:
        """How many jobs are watched."""
        return len(self._by_job)

    def __contains__(self, job_id: int) -> bool:
        """Whether somebody watches a job."""
        return job_id in self._by_job

    def add(self, watch: Watch) -> None:
        """Tell this one of the next change."""
        self._by_job.setdefault(watch.job_id, set()).add(watch)

    def remove(self, watch: Watch) -> bool:
        """End a subscription; False when it was told already (or is being told now)."""
        watches = self._by_job.get(watch.job_id)
        if watches is None or watch not in watches:
            return False
        watches.discard(watch)
        if not watches:
            del self._by_job[watch.job_id]
        return True

    def poke(self, job_id: int) -> bool:
        """There is a new log line; whether somebody has to be told who will not be anyway."""
        if job_id not in self._by_job or job_id in self._poked:
            return False
        self._poked.add(job_id)
        return True

    def changes(
        self, job_ids: Iterable[int], known: Mapping[int, jobs.QueuedJob]
    ) -> list[tuple[Watch, Any]]:
        """Whom to tell what; they are forgotten here."""
        told = []
        for job_id in job_ids:
            self._poked.discard(job_id)
            watches = self._by_job.get(job_id)
            job = known.get(job_id)
            if watches is None or job is None:
                continue
            for watch in list(watches):
                change = watch.change(job)
                if change is not None:
                    told.append((watch, change))
                    watches.discard(watch)
            if not watches:
                del self._by_job[job_id]
        return told
