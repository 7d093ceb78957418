"""The logs of jobs: ``jobs.log`` for people, ``audit.log`` to prove what happened.

Both get a line when a job is accepted and one when it has ended. The lines of ``audit.log`` form a
chain (:mod:`ganeti.jobstore.audit`). Keys of a line, besides those of the chain:

``time``
    seconds since 1970
``event``, ``job``, ``status``
    ``accepted`` or ``ended``; id of the job; its state
``ops``, ``reason``
    one text for each opcode, such as ``INSTANCE_STARTUP(web1)``; who asked, as pairs of source and
    text from the reason trail of the first opcode
``lost``
    only when lines before this one could not be written: their number

``late``
    only when the line was written after a start of the master daemon, because the daemon before had
    ended too early: the time of that; ``time`` is the time of the event, from the file of the job

A thread of its own writes, so that jobs do not wait. The end of a job is in the log some
milliseconds after clients see it. Another thread sends the lines to the other candidates, some
seconds later and together. What a crash loses of both, the next master takes from the files of the
jobs (:meth:`JobLog.recover`), which all candidates have, also of those which were archived at once.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ganeti.constants import job as job_c
from ganeti.jobstore import audit
from ganeti.jqueue.job import FINALIZED, QUEUED, QueuedJob
from ganeti.utils import clock

_log = logging.getLogger(__name__)


# How much of the log is read to find out which lines are missing. Jobs whose lines would be in an
# older part are not looked for.
_RECENT_BYTES = 4 << 20


class Archive(NamedTuple):
    """The archived jobs.

    :ivar ids: yields their ids, descending, down to its argument.
    :ivar read: returns a job; None when it cannot be read.
    """

    ids: Callable[[int], Iterable[int]]
    read: Callable[[int], QueuedJob | None]


class _Entry(NamedTuple):
    time: float
    event: str
    job: QueuedJob
    status: str
    late: float | None = None


class JobLog:
    """Writes both logs.

    :param jobs_file: path of ``jobs.log``.
    :param audit_file: path of ``audit.log``.
    """

    def __init__(
        self, jobs_file: str, audit_file: str, *, now: Callable[[], float] = clock.now
    ) -> None:
        self._jobs_file = jobs_file
        self._chain = audit.Chain(audit_file)
        self._now = now
        self._began = now()
        self._open: set[int] = set()
        self._entries: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._lost = 0
        #: Called after lines were written.
        self.on_written: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._write_all, name="job-log", daemon=True)

    def start(self) -> None:
        """Continue after the last line of the audit log; start the thread."""
        try:
            self._chain.open()
        except OSError as err:
            _log.error("cannot read %s: %s", self._chain.path, err.strerror)
        self._thread.start()

    def recover(self, jobs: Iterable[QueuedJob], archive: Archive | None = None) -> None:
        """Write the lines which earlier master daemons could not write any more, or not send here.

        :param jobs: the jobs in the queue.
        :param archive: the archived jobs; None for none. Only those are looked at which were
            accepted after the oldest job of the lines that are read.
        """
        try:
            lines, is_all = audit.recent_lines(self._chain.path, _RECENT_BYTES)
        except OSError as err:
            _log.error("cannot read %s: %s", self._chain.path, err.strerror)
            return
        times = [one["time"] for one in lines if "time" in one]
        since = 0.0 if is_all else min(times, default=self._began)
        noted = {(one["job"], one["event"]) for one in lines if {"job", "event"} <= one.keys()}
        now, missing = self._now(), []
        for job in [*jobs, *_not_noted(archive, noted, since)]:
            for event, when in _events(job):
                if since <= when < self._began and (job.id, event) not in noted:
                    status = job.published_status if event == "ended" else QUEUED
                    missing.append(_Entry(when, event, job, status, now))
        for entry in sorted(missing, key=lambda one: (one.time, one.job.id, one.event)):
            self._entries.put(entry)

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self._entries.put(None)
        self._thread.join()

    def jobs_published(self, published: Iterable[QueuedJob]) -> None:
        """Note jobs which were accepted or have ended; the queue makes one call at a time."""
        now = self._now()
        for job in published:
            status = job.published_status
            if job.id not in self._open:
                self._open.add(job.id)
                # Else an earlier master daemon has noted that.
                if clock.merge(job.received or (0, 0)) >= self._began:
                    self._entries.put(_Entry(now, "accepted", job, status))
            if status in FINALIZED:
                self._open.discard(job.id)
                self._entries.put(_Entry(now, "ended", job, status))

    def _write_all(self) -> None:
        while True:
            entries = [self._entries.get()]
            while not self._entries.empty() and len(entries) < 1000:
                entries.append(self._entries.get())
            wanted = [entry for entry in entries if entry is not None]
            if wanted:
                self._write(wanted)
            if len(wanted) < len(entries):
                return

    def _write(self, entries: Sequence[_Entry]) -> None:
        rows: list[dict[str, Any]] = [
            {
                "time": round(entry.time, 3),
                "event": entry.event,
                "job": entry.job.id,
                "status": entry.status,
                "ops": [op.summary() for op in entry.job.ops],
                "reason": _reason(entry.job),
                **({} if entry.late is None else {"late": round(entry.late, 3)}),
            }
            for entry in entries
        ]
        if self._lost:
            rows[0]["lost"] = self._lost
        try:
            self._chain.add(rows)
        except OSError as err:
            if not self._lost:
                _log.error("cannot write %s: %s", self._chain.path, err.strerror)
            self._lost += len(entries)
        else:
            self._lost = 0
            self.on_written()
        try:
            audit.append(self._jobs_file, "".join(map(_for_people, entries)).encode())
        except OSError as err:
            _log.error("cannot write %s: %s", self._jobs_file, err.strerror)


def _not_noted(
    archive: Archive | None, noted: Collection[tuple[int, str]], since: float
) -> list[QueuedJob]:
    """Return the archived jobs of which the log may lack a line.

    :param since: a job which was accepted earlier, and all before it, are not looked for.
    """
    known = [job_id for job_id, _event in noted]
    if archive is None or not known:
        return []
    found = []
    try:
        for job_id in archive.ids(min(known)):
            if (job_id, "accepted") in noted and (job_id, "ended") in noted:
                continue
            job = archive.read(job_id)
            if job is None:
                continue
            if job.received is not None and clock.merge(job.received) < since:
                break
            found.append(job)
    except OSError as err:
        _log.error("cannot read the archive of jobs for the audit log: %s", err.strerror)
    return found


def _events(job: QueuedJob) -> list[tuple[str, float]]:
    """Return the events which a job has had, and their times."""
    if job.received is None:
        return []
    found = [("accepted", clock.merge(job.received))]
    if job.published_status in FINALIZED:
        ends = [clock.merge(op.published.end) for op in job.ops if op.published.end is not None]
        found.append(("ended", max(ends, default=found[0][1])))
    return found


def _reason(job: QueuedJob) -> list[list[str]]:
    trail = job.ops[0].input.get("reason") if job.ops else None
    found = []
    for one in trail if isinstance(trail, list) else ():
        if isinstance(one, list) and len(one) >= 2:
            found.append([str(one[0]), str(one[1])])
    return found


def _for_people(entry: _Entry) -> str:
    stamp = clock.format_time(entry.time)
    what = ", ".join(op.summary() for op in entry.job.ops)
    if entry.event == "accepted":
        # The master itself adds an entry for each opcode, which says nothing new.
        who = "; ".join(
            f"{source}: {text}"
            for source, text in _reason(entry.job)
            if not source.startswith(job_c.REASON_OPCODE)
        )
        text = f"job {entry.job.id} accepted: {what}{f' ({who})' if who else ''}"
    else:
        text = f"job {entry.job.id} ended with {entry.status}: {what}"
    # Texts of users must not begin a new line.
    return "".join(char if char.isprintable() else " " for char in f"{stamp} {text}") + "\n"
