"""Facts about the queue and its jobs at this moment, for explanations.

:func:`explain_context` gathers from the live queue and the lock manager what :mod:`.explain`, which
is pure, works on. The LUXI service calls it for ``ExplainJob``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti.jqueue import job as jobs
from ganeti.jqueue.explain import ExplainContext, JobFacts, QueueFacts
from ganeti.jqueue.filters import FilterVerdict
from ganeti.utils import clock

if TYPE_CHECKING:
    from ganeti.jqueue.queue import JobQueue
    from ganeti.locking import LockManager


def explain_context(
    queue: JobQueue, locks: LockManager, lock_label: Callable[[str], str]
) -> ExplainContext:
    """Return what an explanation looks at.

    The facts about the queue as a whole are taken now, all others when the explanation asks.

    :param lock_label: returns the name of a lock for people.
    """
    table, gate = queue.table, queue.scheduler.gate

    def held(job_id: int) -> FilterVerdict | None:
        with table.lock:
            return gate.held(job_id)

    def running_under(key: str) -> list[int]:
        with table.lock:
            return gate.running_under(key)

    return ExplainContext(
        queue_facts(queue),
        lambda job_id: job_facts(queue, job_id),
        lambda job_id: locks.waiting(table.owner(job_id)),
        lambda job_id: {
            str(lock): mode for lock, mode in locks.list_locks(table.owner(job_id)).items()
        },
        held,
        running_under,
        lock_label,
    )


def unfinished(queue: JobQueue) -> list[int]:
    """Return the ids of the jobs that have not ended, ascending."""
    with queue.table.lock:
        return sorted(
            job_id
            for job_id, job in queue.table.jobs.items()
            if not job.new and job.status not in jobs.FINALIZED
        )


def queue_facts(queue: JobQueue) -> QueueFacts:
    """Return facts about the queue as a whole."""
    table, scheduler = queue.table, queue.scheduler
    with table.lock:
        now = table.now()
        return QueueFacts(
            tuple(scheduler.pool.line()),
            frozenset(scheduler.pool.busy()),
            scheduler.pool.limit,
            queue.drained,
            table.stopping,
            table.unfinished,
            scheduler.meter.total(now[0]),
            clock.merge(now),
            scheduler.paused(),
        )


def job_facts(queue: JobQueue, job_id: int) -> JobFacts | None:
    """Return facts about a live or archived job; None for an unknown one."""
    with queue.table.lock:
        job = queue.table.known(job_id)
        if job is not None:
            return _facts(job)
    job = queue.table.archived(job_id)
    return None if job is None else _facts(job)


def _facts(job: jobs.QueuedJob) -> JobFacts:
    """Return facts about a job. Needs the queue's lock, except for an archived job."""
    place = next(
        (index for index, op in enumerate(job.ops) if op.state.status not in jobs.FINALIZED),
        len(job.ops),
    )
    op = job.ops[place] if place < len(job.ops) else None
    since = job.state.end if op is None else op.state.exec or op.state.start
    last = max(
        (entry for other in job.ops for entry in other.log[-1:]),
        key=lambda entry: entry[0],
        default=None,
    )
    depends = () if op is None else op.input.get("depends") or ()
    return JobFacts(
        id=job.id,
        status=job.published_status,
        real_status=job.status,
        summary=tuple(other.summary() for other in job.ops),
        priority=job.priority,
        opcode=place,
        since=_seconds(since or job.received),
        message=None if last is None else str(last[3]),
        message_time=None if last is None else _seconds(last[1]),
        depends=tuple((int(job_id), tuple(states)) for job_id, states in depends),
    )


def _seconds(stamp: jobs.Timestamp | None) -> float | None:
    return None if stamp is None else clock.merge(stamp)
