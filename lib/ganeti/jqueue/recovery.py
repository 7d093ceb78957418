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
        text = store.read_job(job_id)
        if text is None:
            continue
        try:
            job = jobs.decode(text)
            if job.id != job_id:
                raise errors.JobFileCorrupted(f"it holds job {job.id}")
        except errors.JobFileCorrupted as err:
            # The file stays for the administrator to look at; its id is never used again.
            _log.error("job %d is lost: its file cannot be read: %s", job_id, err)
            continue
        table.jobs[job_id] = job


def settle(table: JobTable, scheduler: Scheduler, job: jobs.QueuedJob) -> None:
    """Bring an unfinished job into a state from which it can go on. Needs the lock."""
    op = job.current()
    assert op is not None
    status, begun = op.state.status, op.state.exec is not None
    if status == jobs.RUNNING or (status == jobs.CANCELING and begun):
        reason = "the master daemon ended while this ran; what it did until then was not undone"
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
