"""The start of the queue: jobs which an earlier run of the master daemon left on disk.

After a restart (Ganeti design 2.0, *Job and opcode status*) an opcode which was running has become
an error that says so, a job which was to be canceled is canceled, and a job which waited for locks
or for a worker goes on.
"""

from __future__ import annotations

import logging

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import job as jobs
from ganeti.jqueue.scheduler import Scheduler
from ganeti.jqueue.table import JobTable

_log = logging.getLogger(__name__)


def load(table: JobTable) -> None:
    """Read all live jobs and the highest job id into an empty table.

    :raises errors.JobQueueError: the directory cannot be read, or the file ``serial`` is damaged.
    """
    try:
        _load(table)
    except OSError as err:
        raise errors.JobQueueError(f"cannot read the job queue: {err}") from err


def _load(table: JobTable) -> None:
    store = table.store
    table.serial = store.read_serial()
    if not table.serial:
        table.serial = max(store.archived_ids(), default=0)
    for job_id in store.job_ids():
        table.serial = max(table.serial, job_id)
        try:
            text = store.read_job(job_id)
            if text is None:
                continue
            job = jobs.decode(text)
            if job.id != job_id:
                raise errors.JobFileCorrupted(f"it holds job {job.id}")
        except (OSError, errors.JobFileCorrupted) as err:
            _set_aside(table, job_id, err)
        else:
            table.jobs[job_id] = job
    for job_id in store.damaged_ids():
        table.serial = max(table.serial, job_id)
        if job_id not in table.jobs and table.archived(job_id) is None:
            table.lost.setdefault(job_id, "its file was damaged")


def _set_aside(table: JobTable, job_id: int, reason: Exception) -> None:
    """Record a job whose file cannot be read, and keep the file for the administrator."""
    table.lost[job_id] = str(reason)
    _log.error("job %d cannot be read, its file is set aside: %s", job_id, reason)
    try:
        table.store.set_aside(job_id)
    except OSError as err:
        _log.error("the file of job %d cannot be set aside and stays: %s", job_id, err)


def running(job: jobs.QueuedJob) -> jobs.QueuedOpCode | None:
    """Return the opcode which was running when the master daemon ended; None if none was."""
    op = _present(job)
    if op is None:
        return None
    status, begun = op.state.status, op.state.exec is not None
    return op if status == jobs.RUNNING or (status == jobs.CANCELING and begun) else None


def _present(job: jobs.QueuedJob) -> jobs.QueuedOpCode | None:
    # Of a damaged file, a later opcode may be running although an earlier one has not ended.
    return next((op for op in job.ops if op.state.status in jobs.ACTIVE), job.current())


def settle(
    table: JobTable, scheduler: Scheduler, job: jobs.QueuedJob, ended: str | None = None
) -> None:
    """Bring an unfinished job into a state from which it can go on. Needs the lock.

    :param ended: why its process, which was alive, was ended; None for another job.
    """
    op = _present(job)
    assert op is not None
    status = op.state.status
    if running(job) is not None:
        reason = ended or (
            "the master daemon ended while this ran; what it did until then was not undone. When"
            " scripts or copies of it go on, 'gnt-cluster verify' names them"
        )
        _log.warning("job %d was running when the master daemon ended; now an error", job.id)
        job.add_log(op, const.LOG_MESSAGE, f"error: {reason}", table.now())
        scheduler.end_rest(job, jobs.ERROR, errors.OpExecError(reason))
    elif status == jobs.CANCELING:
        scheduler.end_rest(
            job, jobs.CANCELED, errors.JobCanceled("canceled before the master daemon ended")
        )
    elif status == jobs.WAITING:
        op.move(jobs.QUEUED, start=None)
        scheduler.committer.touch(job)
    # A job whose first opcodes have ended goes on with the next one.
