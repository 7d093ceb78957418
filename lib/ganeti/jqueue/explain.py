"""Why does a job wait? Pure functions of an :class:`ExplainContext`.

The context gives access to the present state of queue, lock table and filter rules
(:func:`ganeti.jqueue.facts.explain_context` makes it). :func:`explain` answers for one job, with
the *chain* of jobs for which it waits: these jobs, the jobs for which they wait, and so on to jobs
which are running. :func:`explain_briefly` answers for many jobs without chains.

Answers are made of plain values for the wire. A *reason* has a ``kind``, a ``text`` for people, the
``jobs`` waited for, and by its kind:

=============== ==================================================================================
``lock``        ``lock``, ``name`` (the lock for people), ``mode``, ``since``, ``holders`` and
                ``before`` (owners; those before are served first), ``wanted`` (all locks of the
                request)
``dependency``  ``states`` accepted of the job
``filter``      ``rule`` (uuid), ``action``, ``limit``
``worker``      ``position`` in line (from 1), ``limit`` of jobs that run at once
``cancel``      the job was canceled and has not come to a point where it can stop
``disk``        its last change has not been written for a while, so it is not published
``pause``       jobs cannot be executed on this node; the text has the reason
``ending``      the master daemon ends; the job goes on when it is back
``starting``    nothing stops the job, it is about to go on
=============== ==================================================================================

Queue and locks are read one after the other while jobs go on, so an answer may describe a moment
that never was in every detail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.constants import job as const
from ganeti.jqueue.filters import FilterVerdict, describe_rule
from ganeti.jqueue.pause import Paused
from ganeti.jqueue.rate_meter import RateMeter
from ganeti.locking import LockWait, Owner
from ganeti.luxi.answers import (
    BriefExplanation,
    ChainEntry,
    Explanation,
    HeldLock,
    JobReport,
    LockOwner,
    QueueReport,
    Reason,
)

LOCK = "lock"
DEPENDENCY = "dependency"
FILTER = "filter"
WORKER = "worker"
CANCEL = "cancel"
DISK = "disk"
PAUSE = "pause"
ENDING = "ending"
STARTING = "starting"

# Number of jobs in a chain. On a busy cluster a chain may be very long; its first jobs help most.
MAX_CHAIN = 50
# Writing a change takes some milliseconds; after this number of seconds the delay is reported.
WRITING_S = 1.0
# Number of names in one line of text.
_MAX_NAMED = 5


class JobFacts(NamedTuple):
    """One job at one moment. Times in seconds since the epoch.

    :ivar status: the published state.
    :ivar real_status: the present state; differs while the change is being written.
    :ivar opcode: index of the first unfinished opcode; the number of opcodes when all have ended.
    :ivar since: time at which the job came into its present state; None when it is not known.
    :ivar message: its last log entry.
    :ivar depends: dependencies of that opcode: job id and accepted final states.
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

    :ivar line: ids of jobs that wait for a worker, the next one first.
    :ivar busy: ids of jobs that have a worker.
    :ivar max_running: number of jobs that are executed at once.
    :ivar ending: the master daemon is ending.
    :ivar unfinished: number of jobs that have not ended.
    :ivar ended: number of jobs that ended in the last minute.
    :ivar now: time of these facts, in seconds since the epoch.
    :ivar paused: why jobs are not taken up; None when they are.
    """

    line: tuple[int, ...] = ()
    busy: frozenset[int] = frozenset()
    max_running: int = const.MAX_RUNNING_DEFAULT
    drained: bool = False
    ending: bool = False
    unfinished: int = 0
    ended: int = 0
    now: float = 0.0
    paused: Paused | None = None


class ExplainContext(NamedTuple):
    """The facts on which an explanation is based.

    :ivar queue: the queue as a whole.
    :ivar job: returns facts about a job; None for an unknown one.
    :ivar wait: returns the lock for which a job waits; None when it waits for none.
    :ivar holds: returns the locks which a job holds, with their modes.
    :ivar held: returns the verdict of the filter rule which keeps a job back; None when none does.
    :ivar under: returns the jobs running under a rate limit, by :attr:`.FilterVerdict.key`.
    :ivar lock_label: returns the name of a lock for people.
    """

    queue: QueueFacts
    job: Callable[[int], JobFacts | None]
    wait: Callable[[int], LockWait | None]
    holds: Callable[[int], Mapping[str, str]]
    held: Callable[[int], FilterVerdict | None]
    under: Callable[[str], Sequence[int]]
    lock_label: Callable[[str], str]


def explain(context: ExplainContext, job_id: int) -> Explanation | None:
    """Explain what a job does or waits for, with the chain of jobs; None for an unknown job."""
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
        "holds": held_locks(context, job_id),
        "chain": chain,
        "more": more,
        "notes": notes,
    }


def explain_queue(queue: QueueFacts) -> QueueReport:
    """Describe the queue as a whole."""
    return {
        "at_work": len(queue.busy),
        "limit": queue.max_running,
        "in_line": len(queue.line),
        "unfinished": queue.unfinished,
        "ended_per_s": queue.ended / RateMeter.SPAN_S,
        "drained": queue.drained,
        "ending": queue.ending,
        "paused": "" if queue.paused is None else queue.paused.reason,
        "paused_since": None if queue.paused is None else queue.paused.since,
    }


def explain_briefly(
    context: ExplainContext, job_ids: Iterable[int]
) -> list[BriefExplanation | None]:
    """Explain several jobs without chains; None in the place of an unknown one."""
    found = [context.job(job_id) for job_id in job_ids]
    return [None if job is None else brief_entry(context, job) for job in found]


def brief_entry(context: ExplainContext, job: JobFacts) -> BriefExplanation:
    """Explain one job without its chain."""
    return {"job": _job(job), "reasons": reasons(context, job)}


def held_locks(context: ExplainContext, job_id: int) -> list[HeldLock]:
    """Return the locks which a job holds."""
    return [
        {"lock": lock, "name": context.lock_label(lock), "mode": mode}
        for lock, mode in context.holds(job_id).items()
    ]


def reasons(context: ExplainContext, job: JobFacts) -> list[Reason]:
    """Return why a job does not go on; empty for one that is running or has ended."""
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
        found.append(_reason(STARTING, "it takes its locks, which are all free"))
    return found


def _reason(kind: str, text: str, jobs: Iterable[int] = (), **facts: Any) -> Reason:
    reason: Reason = {"kind": kind, "text": text, "jobs": list(jobs)}
    reason.update(facts)  # type: ignore[typeddict-item]  # keys by kind
    return reason


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
    if not found and context.queue.paused is not None and job.id in context.queue.line:
        found.append(_reason(PAUSE, f"jobs cannot be executed: {context.queue.paused.reason}"))
    if not found:
        found.append(_in_line(context.queue, job.id))
    return found


def _filtered(context: ExplainContext, verdict: FilterVerdict) -> Reason:
    rule = f"its reason {verdict.reason!r}" if verdict.reason else describe_rule(verdict.rule)
    under: Sequence[int] = ()
    if verdict.action == const.FILTER_RATE_LIMIT:
        under = context.under(verdict.key)
        text = f"{rule} lets {verdict.limit} of such jobs run at once: {_jobs(under)}"
    else:
        text = f"{rule} pauses it"
    return _reason(
        FILTER, text, under, rule=verdict.uuid, action=verdict.action, limit=verdict.limit
    )


def _in_line(queue: QueueFacts, job_id: int) -> Reason:
    place = queue.line.index(job_id) if job_id in queue.line else None
    if place is None or place < queue.max_running - len(queue.busy):
        return _reason(STARTING, "it can start, a worker is about to take it")
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


def _owner(owner: Owner) -> LockOwner:
    return {"job": owner.job_id, "name": owner.name}


def _job_ids(owners: Iterable[Owner]) -> list[int]:
    return [owner.job_id for owner in owners if owner.job_id is not None]


def _owners(owners: Sequence[Owner]) -> str:
    return _some([str(owner) for owner in owners])


def _jobs(job_ids: Sequence[int]) -> str:
    return _some([f"job {job_id}" for job_id in job_ids])


def _some(names: Sequence[str]) -> str:
    """Join names as ``a, b and c``; of many the first few and the number of the others."""
    shown = list(names[:_MAX_NAMED])
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    if len(shown) < 2:
        return "".join(shown) or "no job"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _job(job: JobFacts) -> JobReport:
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
) -> tuple[list[ChainEntry], bool]:
    """Return the jobs waited for, the jobs they wait for, and so on: nearest first, each once."""
    seen = {job_id}
    chain: list[ChainEntry] = []
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
                continue  # it has ended since the reason was found
            why = reasons(context, other)
            chain.append({"depth": depth, "job": _job(other), "reasons": why})
            later.extend((next_id, depth + 1) for next_id in _awaited(why))
        ahead = later
    return chain, False


def _awaited(found: Sequence[Reason]) -> list[int]:
    """Return the jobs which these reasons name, in order."""
    return [job_id for reason in found for job_id in reason["jobs"]]
