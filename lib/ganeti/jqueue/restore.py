"""Jobs whose files are damaged or missing on the master, while the candidates have copies.

The comparison with a candidate (:mod:`.catch_up`) finds such jobs and calls
:meth:`Restorer.restore` instead of replacing the copies. A job in memory is written again. Any
other one is read from the candidates, and of several copies the one which got furthest is taken.

A copy may be older than the file which was lost. So a job that had not ended in it does not go on,
because it would perhaps be done twice: it ends with an error that says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.files import archive_file, job_file
from ganeti.jqueue import job as jobs
from ganeti.jqueue.scheduler import Scheduler
from ganeti.jqueue.table import JobTable

_log = logging.getLogger(__name__)

# Number of jobs which are read with one call.
_CHUNK = 20


class Readable(Protocol):
    """Reads the copies of candidates. Every method raises :exc:`errors.GenericError` on failure."""

    def candidates(self) -> Sequence[str]:
        """Return the UUIDs of the master candidates that are online, without this node."""

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        """Return the content of those files of the candidate's queue which exist."""


class JobCopy(NamedTuple):
    """A copy of a job, compared by its progress.

    :ivar ended: number of ended opcodes; `moved` counts those which have begun as well.
    """

    finalized: bool
    ended: int
    moved: int
    log_serial: int
    node: str
    archived: bool
    text: str


class Restorer:
    """Brings jobs back. Used by several threads."""

    def __init__(self, table: JobTable, scheduler: Scheduler, transport: Readable) -> None:
        self._table = table
        self._scheduler = scheduler
        self._transport = transport

    def restore(self, job_ids: Sequence[int]) -> None:
        """Write these jobs anew; without memory and copies they stay as they are."""
        missing = []
        with self._table.lock:
            for job_id in job_ids:
                job = self._table.jobs.get(job_id)
                if job is None:
                    missing.append(job_id)
                elif not job.new:
                    _log.warning("job %d: its file was damaged and is written again", job_id)
                    self._scheduler.committer.touch(job)
        for place in range(0, len(missing), _CHUNK):
            chunk = missing[place : place + _CHUNK]
            best = self._read(chunk)
            for job_id in chunk:
                if job_id in best:
                    self._adopt(job_id, best[job_id])
                else:
                    _log.error("job %d is lost: no candidate has a whole copy", job_id)

    def _read(self, job_ids: Sequence[int]) -> dict[int, JobCopy]:
        best: dict[int, JobCopy] = {}
        for node in self._transport.candidates():
            names = [name(job_id) for job_id in job_ids for name in (job_file, archive_file)]
            try:
                found = self._transport.read(node, names)
            except errors.GenericError as err:
                _log.warning("job queue: the copy of candidate %s cannot be read: %s", node, err)
                continue
            for job_id in job_ids:
                for name in (job_file(job_id), archive_file(job_id)):
                    copy = copy_of(job_id, node, name, found.get(name))
                    if copy is not None and (job_id not in best or copy > best[job_id]):
                        best[job_id] = copy
        return best

    def _adopt(self, job_id: int, copy: JobCopy) -> None:
        """Take a copy as the job."""
        job = jobs.decode(copy.text)
        with self._table.lock:
            if job_id in self._table.jobs:
                return
            self._table.jobs[job_id] = job
            self._table.lost.pop(job_id, None)
            op = job.current()
            if job.finalized or op is None:
                self._scheduler.committer.touch(job)
                _log.warning("job %d: its file was lost, node %s had a copy", job_id, copy.node)
            else:
                self._table.unfinished += 1
                reason = (
                    "the file of this job was lost on the master. A copy, which may be older, says"
                    f" {job.status}; the job was not continued"
                )
                _log.warning("job %d: %s", job_id, reason)
                job.add_log(op, const.LOG_MESSAGE, f"error: {reason}", self._table.now())
                self._scheduler.end_rest(job, jobs.ERROR, errors.OpExecError(reason))
            if copy.archived:
                job.archived = True
                self._scheduler.committer.archive([job_id])


def is_damaged(job_id: int, text: str | None) -> bool:
    """Tell whether a job's file cannot be read, or holds no job of this number."""
    return text is None or _decoded(job_id, text) is None


def copy_of(job_id: int, node: str, name: str, text: str | None) -> JobCopy | None:
    """Return the copy of a job in a text, for comparisons; None if the text holds no such job.

    :param node: the node which has it.
    :param name: the name of the file in the queue directory.
    """
    job = None if text is None else _decoded(job_id, text)
    if job is None or text is None:
        return None
    states = [op.state.status for op in job.ops]
    return JobCopy(
        job.finalized,
        sum(status in jobs.FINALIZED for status in states),
        sum(status != jobs.QUEUED for status in states),
        job.next_log_serial,
        node,
        name != job_file(job_id),
        text,
    )


def _decoded(job_id: int, text: str) -> jobs.QueuedJob | None:
    try:
        job = jobs.decode(text)
    except errors.JobFileCorrupted:
        return None
    return job if job.id == job_id else None
