"""Why does this job wait? Pure over a :class:`ExplainContext`: what queue, lock table and filters say now.

:func:`explain` answers for one job, with the chain behind it: the jobs it waits for, what they do
or wait for in turn, and so on to those at work. :func:`reasons` is the first step of it, for lists.
Answers are made of plain values for the wire. A *reason* has a ``kind``, a ``text`` for people, the
``jobs`` waited for, and by its kind:

=============== ==================================================================================
``lock``        ``lock``, ``name`` (the lock for people), ``mode``, ``since``, ``holders`` and
                ``before`` (owners; those before are served first), ``wanted`` (all it asked for)
``dependency``  ``states`` accepted of the job
``filter``      ``rule`` (uuid), ``action``, ``limit``
``worker``      ``position`` in line (from 1), ``limit`` of jobs that run at once
``cancel``      it was canceled and has not come to a point where it can stop
``disk``        its last change could not be written for a while, so nothing may be told or done
``ending``      the master daemon ends; the job goes on when it is back
``starting``    nothing is in its way, it is about to go on
=============== ==================================================================================

The answer is a moment: queue and locks are looked at one after the other, and jobs go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.constants import job as const
from ganeti.jqueue.filters import FilterVerdict, describe_rule
from ganeti.jqueue.rate_meter import RateMeter
from ganeti.locking import LockWait, Owner

LOCK = "lock"
DEPENDENCY = "dependency"
FILTER = "filter"
WORKER = "worker"
CANCEL = "cancel"
DISK = "disk"
ENDING = "ending"
STARTING = "starting"

# A chain through a busy cluster may touch very many jobs; the first ones are what helps.
MAX_CHAIN = 50
# Writing a change takes some milliseconds; what takes longer is worth telling.
WRITING_S = 1.0
# Names in one line of text.
_MAX_NAMED = 5

Reason = dict[str, Any]


class JobFacts(NamedTuple):
    """One job at one moment. Times in seconds since the epoch.

    :ivar status: as everybody may know it.
    :ivar real_status: as it is; differs while the change is being written.
    :ivar opcode: place of the opcode it has got to; the number of opcodes when all have ended.
    :ivar since: since when it is in its present state, if that is known.
    :ivar message: the last of its log.
    :ivar depends: of that opcode: job id and accepted final states.
    """

    id: int
    status: str
    real_status: str
    summary: tuple[str, ...]
    priority: int
    opcode: int
    since: float | None = None
    message: str | None = None
    message_time: float | None = None
    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()


class QueueFacts(NamedTuple):
    """The queue as a whole.

    :ivar line: jobs that wait for a worker, the next one first.
    :ivar ended: how many jobs ended in the last minute.
    :ivar now: when this was so, in seconds since the epoch.
    """

    line: tuple[int, ...] = ()
    busy: frozenset[int] = frozenset()
    max_running: int = const.MAX_RUNNING_DEFAULT
    drained: bool = False
    ending: bool = False
    unfinished: int = 0
    ended: int = 0
    now: float = 0.0


class ExplainContext(NamedTuple):
    """Everything an explanation looks at.

    :ivar job: None for an unknown one.
    :ivar wait: what a job waits for in the lock table.
    :ivar holds: locks of a job: name and mode.
    :ivar held: the verdict of the filter rule that holds a job.
    :ivar under: jobs at work under a rate limit.
    :ivar lock_label: name of a lock for people.
    """

    queue: QueueFacts
    job: Callable[[int], JobFacts | None]
    wait: Callable[[int], LockWait | None]
    holds: Callable[[int], Mapping[str, str]]
    held: Callable[[int], FilterVerdict | None]
    under: Callable[[str], Sequence[int]]
    lock_label: Callable[[str], str]


def explain(context: ExplainContext, job_id: int) -> dict[str, Any] | None:
    """What a job does or waits for, and the chain behind it; None for an unknown job.

    :returns: ``job``, ``reasons``, ``holds``, ``chain`` (entries of ``job``, ``reasons`` and
        ``depth``, nearest first), ``more`` (whether the chain was cut) and ``notes``.
    """
    job = context.job(job_id)
    if job is None:
        return None
    own = reasons(context, job)
    chain, more = _chain(context, job_id, own)
    notes = []
    if context.queue.drained and job.real_status not in const.FINALIZED:
        notes.append("the queue is drained: it takes no new jobs. The jobs in it go on.")
    return {
        "job": _job(job),
        "reasons": own,
        "holds": [
            {"lock": lock, "name": context.lock_label(lock), "mode": mode}
            for lock, mode in context.holds(job_id).items()
        ],
        "chain": chain,
        "more": more,
        "notes": notes,
    }


def explain_queue(queue: QueueFacts) -> dict[str, Any]:
    """The queue as a whole.

    :returns: ``at_work`` (jobs that have a worker), ``limit`` (of those), ``in_line`` (jobs that
        only wait for a worker), ``unfinished`` (all), ``ended_per_s`` (over the last minute),
        ``drained`` and ``ending``.
    """
    return {
        "at_work": len(queue.busy),
        "limit": queue.max_running,
        "in_line": len(queue.line),
        "unfinished": queue.unfinished,
        "ended_per_s": queue.ended / RateMeter.SPAN_S,
        "drained": queue.drained,
        "ending": queue.ending,
    }


def explain_briefly(context: ExplainContext, job_ids: Iterable[int]) -> list[dict[str, Any] | None]:
    """``job`` and ``reasons`` for each job; None in the place of an unknown one."""
    found = [context.job(job_id) for job_id in job_ids]
    return [
        None if job is None else {"job": _job(job), "reasons": reasons(context, job)}
        for job in found
    ]


def reasons(context: ExplainContext, job: JobFacts) -> list[Reason]:
    """Why a job does not go on; empty for one that is at work or has ended."""
    found: list[Reason] = []
    if job.real_status != job.status and context.queue.now - (job.since or 0.0) >= WRITING_S:
        found.append(
            _reason(DISK, f"its change from {job.status} to {job.real_status} is not on disk yet")
        )
    if job.real_status in const.FINALIZED:
        return found
    if job.real_status == const.STATUS_QUEUED:
        return found + _queued(context, job)
    wait = context.wait(job.id)
    if wait is not None:
        found.append(_locked(context, wait))
    if job.real_status == const.STATUS_CANCELING:
        found.append(
            _reason(CANCEL, "it was canceled and goes on to the next point where it can stop")
        )
    elif job.real_status == const.STATUS_WAITING and wait is None:
        found.append(_reason(STARTING, "it takes its locks; none is in its way"))
    return found


def _reason(kind: str, text: str, jobs: Iterable[int] = (), **facts: Any) -> Reason:
    return {"kind": kind, "text": text, "jobs": list(jobs), **facts}


def _queued(context: ExplainContext, job: JobFacts) -> list[Reason]:
    if context.queue.ending:
        return [_reason(ENDING, "the master daemon is ending; the job goes on when it is back")]
    verdict = context.held(job.id)
    if verdict is not None:
        return [_filtered(context, verdict)]
    found = []
    for awaited_id, states in job.depends:
        awaited = context.job(awaited_id)
        if awaited is not None and awaited.real_status not in const.FINALIZED:
            wanted = states or (const.STATUS_SUCCESS,)
            found.append(
                _reason(
                    DEPENDENCY,
                    f"the end of job {awaited_id} ({awaited.status}), as {' or '.join(wanted)}",
                    [awaited_id],
                    states=list(wanted),
                )
            )
    if not found:
        found.append(_in_line(context.queue, job.id))
    return found


def _filtered(context: ExplainContext, verdict: FilterVerdict) -> Reason:
    rule = describe_rule(verdict.rule)
    under: Sequence[int] = ()
    if verdict.action == const.FILTER_RATE_LIMIT:
        under = context.under(verdict.uuid)
        text = f"{rule} lets {verdict.limit} of such jobs run at once: {_jobs(under)}"
    else:
        text = f"{rule} pauses it"
    return _reason(
        FILTER, text, under, rule=verdict.uuid, action=verdict.action, limit=verdict.limit
    )


def _in_line(queue: QueueFacts, job_id: int) -> Reason:
    place = queue.line.index(job_id) if job_id in queue.line else None
    if place is None or place < queue.max_running - len(queue.busy):
        return _reason(STARTING, "nothing is in its way, a worker is about to take it")
    busy = sorted(queue.busy)
    ahead = {0: "it is the next", 1: "1 job is before it"}.get(place, f"{place} jobs are before it")
    return _reason(
        WORKER,
        f"a worker: {len(busy)} of {queue.max_running} are busy ({_jobs(busy)}); {ahead}",
        busy,
        position=place + 1,
        limit=queue.max_running,
    )


def _locked(context: ExplainContext, wait: LockWait) -> Reason:
    name = context.lock_label(wait.lock)
    if wait.holders:
        because = f"held by {_owners(wait.holders)}"
        if wait.before:
            because += f"; {_owners(wait.before)} served before it"
    else:
        because = (
            f"which {_owners(wait.before)} will get first"
            if wait.before
            else "which is about to be free"
        )
    jobs = _job_ids(wait.holders) or _job_ids(wait.before)
    return _reason(
        LOCK,
        f"lock {name} ({wait.mode}), {because}",
        jobs,
        lock=wait.lock,
        name=name,
        mode=wait.mode,
        since=wait.since,
        holders=[_owner(owner) for owner in wait.holders],
        before=[_owner(owner) for owner in wait.before],
        wanted=list(wait.wanted),
    )


def _owner(owner: Owner) -> dict[str, Any]:
    return {"job": owner.job_id, "name": owner.name}


def _job_ids(owners: Iterable[Owner]) -> list[int]:
    return [owner.job_id for owner in owners if owner.job_id is not None]


def _owners(owners: Sequence[Owner]) -> str:
    return _some([str(owner) for owner in owners])


def _jobs(job_ids: Sequence[int]) -> str:
    return _some([f"job {job_id}" for job_id in job_ids])


def _some(names: Sequence[str]) -> str:
    """``a, b and c``; of very many the first few and the number of the others."""
    shown = list(names[:_MAX_NAMED])
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    if len(shown) < 2:
        return "".join(shown) or "no job"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _job(job: JobFacts) -> dict[str, Any]:
    ended = job.opcode >= len(job.summary)
    return {
        "id": job.id,
        "status": job.status,
        "summary": list(job.summary),
        "priority": job.priority,
        "opcode": None if ended else job.summary[job.opcode],
        "opcode_number": min(job.opcode + 1, len(job.summary)),
        "opcodes": len(job.summary),
        "since": job.since,
        "message": job.message,
        "message_time": job.message_time,
    }


def _chain(
    context: ExplainContext, job_id: int, own: Sequence[Reason]
) -> tuple[list[dict[str, Any]], bool]:
    """The jobs waited for, those they wait for, and so on: nearest first, each once."""
    seen = {job_id}
    chain: list[dict[str, Any]] = []
    ahead = [(other, 1) for other in _awaited(own)]
    while ahead:
        later: list[tuple[int, int]] = []
        for other_id, depth in ahead:
            if other_id in seen:
                continue
            if len(chain) == MAX_CHAIN:
                return chain, True
            seen.add(other_id)
            other = context.job(other_id)
            if other is None:
                continue  # ended and gone since we looked at who waits for it
            why = reasons(context, other)
            chain.append({"depth": depth, "job": _job(other), "reasons": why})
            later.extend((next_id, depth + 1) for next_id in _awaited(why))
        ahead = later
    return chain, False


def _awaited(found: Sequence[Reason]) -> list[int]:
    """The jobs behind these reasons, in order."""
    return [job_id for reason in found for job_id in reason["jobs"]]
