"""The whole queue in one answer: jobs in the predicted order, why they wait, and locks in use.

:func:`overview` answers ``QueryQueue``. Like :mod:`.explain` it is a pure function of facts, and
describes no single moment: jobs and locks are read one after the other.

The order is a prediction. Jobs which run come first, then those which wait for locks, each after
the jobs for which it waits, then the line for a worker. A job which waits for another one comes
after it. Nobody knows how long a job takes, so the order in which they end may be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.constants import job as const
from ganeti.jqueue import explain
from ganeti.jqueue.explain import ExplainContext, JobFacts
from ganeti.locking import LockRow
from ganeti.luxi.answers import LockReport, QueueOverview

#: Largest number of locks in an answer.
MAX_LOCKS = 1000
# Ranks of jobs, the first one goes on first.
_RUNS, _HAS_WORKER, _IN_LINE, _WAITS, _UNKNOWN = range(5)


def overview(
    context: ExplainContext, job_ids: Sequence[int], locks: Sequence[LockRow], limit: int
) -> QueueOverview:
    """Describe the queue with its first jobs.

    :param job_ids: the jobs that have not ended.
    :param locks: the locks in use.
    :param limit: largest number of jobs in the answer.
    """
    known = {job_id: context.job(job_id) for job_id in job_ids}
    facts = {
        job_id: job
        for job_id, job in known.items()
        if job is not None and job.real_status not in const.FINALIZED
    }
    order, sure = predicted_order(context, facts)
    return {
        "queue": explain.explain_queue(context.queue),
        "jobs": [
            {
                **explain.brief_entry(context, facts[job_id]),
                "position": place if place <= sure else None,
                "holds": explain.held_locks(context, job_id),
            }
            for place, job_id in enumerate(order[:limit], start=1)
        ],
        "more_jobs": max(0, len(order) - limit),
        "locks": [_lock(context, row) for row in locks[:MAX_LOCKS]],
        "more_locks": max(0, len(locks) - MAX_LOCKS),
    }


def predicted_order(
    context: ExplainContext, facts: Mapping[int, JobFacts]
) -> tuple[list[int], int]:
    """Return the jobs in the order in which they are expected to go on.

    :param facts: the jobs that have not ended.
    :returns: their ids, and the number of those at the beginning whose place can be predicted.
    """
    line = {job_id: place for place, job_id in enumerate(context.queue.line)}
    ranks = {job_id: _rank(context, job, line) for job_id, job in facts.items()}
    awaited = {
        job_id: [other for other in _awaited(context, job) if other in facts]
        for job_id, job in facts.items()
    }
    first = sorted(
        facts,
        key=lambda job_id: (
            ranks[job_id],
            line.get(job_id, 0),
            facts[job_id].priority,
            job_id,
        ),
    )
    order = _after_awaited(first, awaited)
    unknown: set[int] = set()
    for job_id in order:
        if ranks[job_id] == _UNKNOWN or not unknown.isdisjoint(awaited[job_id]):
            unknown.add(job_id)
    found = [job_id for job_id in order if job_id not in unknown]
    return [*found, *(job_id for job_id in order if job_id in unknown)], len(found)


def _rank(context: ExplainContext, job: JobFacts, line: Mapping[int, int]) -> int:
    if job.real_status != const.STATUS_QUEUED:
        return _HAS_WORKER if context.wait(job.id) is not None else _RUNS
    if context.queue.paused is not None or context.queue.ending:
        return _UNKNOWN
    if job.id in line:
        return _IN_LINE
    # A rate limit only delays a job; nobody knows when a paused one goes on.
    verdict = context.held(job.id)
    held = verdict is not None and verdict.action != const.FILTER_RATE_LIMIT
    return _UNKNOWN if held else _WAITS


def _awaited(context: ExplainContext, job: JobFacts) -> list[int]:
    """Return the jobs which have to go on or end before a job does."""
    if job.real_status == const.STATUS_QUEUED:
        return [job_id for job_id, _states in job.depends]
    wait = context.wait(job.id)
    owners = () if wait is None else (*wait.holders, *wait.before)
    return [owner.job_id for owner in owners if owner.job_id is not None]


def _after_awaited(first: Sequence[int], awaited: Mapping[int, Sequence[int]]) -> list[int]:
    """Return jobs in a given order, but each after those for which it waits.

    The facts are from several moments, so jobs may seem to wait for each other; then the given
    order counts.
    """
    found: dict[int, None] = {}
    begun: set[int] = set()
    stack = list(reversed(first))
    while stack:
        job_id = stack[-1]
        if job_id in found:
            stack.pop()
            continue
        missing = [other for other in awaited[job_id] if other not in begun and other not in found]
        if job_id in begun or not missing:
            found[job_id] = None
            stack.pop()
            continue
        begun.add(job_id)
        stack.extend(reversed(missing))
    return list(found)


def _lock(context: ExplainContext, row: LockRow) -> LockReport:
    return {
        "lock": row.name,
        "name": context.lock_label(row.name),
        "mode": row.mode,
        "holders": [{"job": owner.job_id, "name": owner.name} for owner in row.owners],
        "waiting": [
            {"job": owner.job_id, "name": owner.name, "mode": mode}
            for mode, owners in row.pending
            for owner in owners
        ],
        "since": row.since,
    }
