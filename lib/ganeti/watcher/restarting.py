"""Submits jobs for several instances, a limited number at the same time, and waits for them.

After a power cut hundreds of instances start. The master would run as many jobs as its queue
allows, and other users would wait behind all of them; so a new job is submitted only when one of
these has ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import job as job_c
from ganeti.utils import clock

if TYPE_CHECKING:
    from ganeti.luxi.client import Client
    from ganeti.opcodes.base import OpCode

#: Maximum number of unfinished jobs of one node group.
MAX_JOBS = 10
#: Seconds for which a run waits for its jobs. Jobs which take longer continue without it; the next
#: run sees them.
MAX_WAIT_S = 900

_log = logging.getLogger(__name__)


def reason(why: str) -> list[list[object]]:
    """Return the reason trail of an opcode which the watcher submits (ganeti(7), *Reasons*)."""
    return [[job_c.REASON_WATCHER, why, clock.now_ns()]]


def run(
    client: Client,
    work: Sequence[tuple[str, OpCode]],
    *,
    before: Callable[[Mapping[str, OpCode]], None] = lambda opcodes: None,
    refused: Callable[[Sequence[str]], None] = lambda instances: None,
    max_jobs: int = MAX_JOBS,
    max_wait_s: float = MAX_WAIT_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Submit a job for each instance, in order, and wait until they have ended.

    :param work: pairs of the name of an instance, and the opcode of its job.
    :param before: called with some instances and the opcodes of their jobs before these are
        submitted; once for all jobs which are submitted without waiting in between.
    :param refused: called with those of these names whose jobs were certainly not taken, before the
        error is raised.
    :returns: names of the instances whose job has succeeded.
    :raises errors.JobQueueDrainError: the queue takes no jobs.
    :raises errors.LuxiError: the master does not answer any more.
    """
    left = list(work)
    running: dict[int, str] = {}
    succeeded: list[str] = []
    deadline = monotonic() + max_wait_s
    while left or running:
        if monotonic() >= deadline:
            _give_up(left, running)
            break
        count = max_jobs - len(running)
        batch, left = left[:count], left[count:]
        if batch:
            before(dict(batch))
        for number, (instance, opcode) in enumerate(batch):
            try:
                job_id = client.submit_job([opcode])
            except errors.GenericError as err:
                # Without an answer, the master may have taken this job, but no later one.
                first = number if isinstance(err, errors.JobQueueError) else number + 1
                refused([name for name, _opcode in batch[first:]])
                raise
            running[job_id] = instance
            _log.info("instance %s: submitted job %d", instance, job_id)
        _wait_for_one(client, next(iter(running)), deadline - monotonic())
        succeeded += _collect(client, running)
    return succeeded


def _wait_for_one(client: Client, job_id: int, wait_s: float) -> None:
    """Wait until a job changes; that other jobs have ended meanwhile is seen afterwards."""
    (row,) = client.query_jobs([job_id], ["status"])
    if row is None or row[0] in job_c.FINALIZED:
        return
    client.wait_for_job_change(job_id, ["status"], row, None, max(1, min(int(wait_s), _POLL_S)))


# Seconds after which all running jobs are looked at, even if the first one has not changed.
_POLL_S = 5


def _collect(client: Client, running: dict[int, str]) -> list[str]:
    """Remove the jobs which have ended from `running`; return the instances of successful ones."""
    succeeded = []
    rows = client.query_jobs(list(running), ["status"])
    for (job_id, instance), row in zip(list(running.items()), rows, strict=True):
        if row is None:
            _log.warning("instance %s: job %d does not exist any more", instance, job_id)
        elif row[0] not in job_c.FINALIZED:
            continue
        elif row[0] == job_c.STATUS_SUCCESS:
            _log.info("instance %s: job %d has succeeded", instance, job_id)
            succeeded.append(instance)
        else:
            _log.error(
                "instance %s: job %d has failed; see 'gnt-job info %d'", instance, job_id, job_id
            )
        del running[job_id]
    return succeeded


def run_one(client: Client, opcode: OpCode, *, max_wait_s: float = MAX_WAIT_S) -> Any:
    """Submit a job with one opcode and wait for it.

    :returns: the result of the opcode; None when the job has failed, or has not ended in time.
    """
    job_id = client.submit_job([opcode])
    row = None
    deadline = time.monotonic() + max_wait_s
    while row is None or row[0] not in job_c.FINALIZED:
        wait_s = int(deadline - time.monotonic())
        if wait_s <= 0:
            _log.warning("job %d still runs, and is not waited for", job_id)
            return None
        change = client.wait_for_job_change(job_id, ["status", "opresult"], row, None, wait_s)
        row = row if change is None else change[0]
    status, results = row
    if status != job_c.STATUS_SUCCESS:
        _log.error("job %d has failed; see 'gnt-job info %d'", job_id, job_id)
        return None
    return results[0]


def _give_up(left: Sequence[tuple[str, OpCode]], running: dict[int, str]) -> None:
    for job_id, instance in running.items():
        _log.warning("instance %s: job %d still runs, and is not waited for", instance, job_id)
    for instance, _opcode in left:
        _log.warning("instance %s: there was no time for it; the next run continues", instance)
