"""Compares the answers to users with what the cluster has: the promises, as pure functions.

Each check gets the history and the :class:`Evidence` and returns its :class:`Violation` objects;
an empty list means that the promise held. ``test/unit/devel/test_chaos_checker.py`` plants a
violation of each kind.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from devel.chaos import history
from devel.chaos.history import OK, Operation

#: Begin of the token of a job which was submitted over REST, where it cannot be given.
REST: Final = "rest-"
ENDS: Final = "every accepted job ends"
FINAL: Final = frozenset(("success", "error", "canceled"))


@dataclasses.dataclass(frozen=True)
class Violation:
    """A promise that did not hold.

    :ivar promise: a key of :data:`CHECKS`, or the name of a check of :mod:`.settle`.
    """

    promise: str
    text: str


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as the cluster knows it.

    :ivar token: the comment of its first opcode.
    :ivar refused_for: the job which was running on its instance when a node refused it, or None.
    :ivar lacking: what the machine lacked according to its result; empty when it says nothing.
    """

    id: int
    token: str
    status: str
    refused_for: int | None = None
    lacking: str = ""


@dataclasses.dataclass(frozen=True)
class Interval:
    """Something that lasted for certain from one moment to another.

    :ivar subject: the instance.
    :ivar where: the node of a guest, or the token of an execution.
    :ivar ended: None when its end was not seen.
    """

    subject: str
    where: str
    begun: float
    ended: float | None


@dataclasses.dataclass(frozen=True)
class Promise:
    """The epochs in the file ``master_state`` of a node: number, and owner.

    :ivar obeys: the highest one that it has seen.
    :ivar config: that of the master which wrote its configuration.
    :ivar queue: that of the master which wrote its job queue.
    """

    obeys: tuple[int, str]
    config: tuple[int, str]
    queue: tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the cluster has left, after everything was mended.

    :ivar tags: tags of each object of the configuration, ``kind/name``.
    :ivar instances: names in the configuration.
    :ivar jobs: all jobs by number, also those in the archive.
    :ivar executions: how often the logs say that opcode `k` of job `n` began: ``(n, k)``.
    :ivar scripts: executions of OS scripts; the token is in ``where``.
    :ivar guests: guests; the node is in ``where``.
    :ivar promises: for each node what it has promised, in this order; None where it lost power or
        got old data, after which it may have forgotten the last one.
    """

    tags: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    instances: frozenset[str] = frozenset()
    jobs: Mapping[int, Job] = dataclasses.field(default_factory=dict)
    executions: Mapping[tuple[int, int], int] = dataclasses.field(default_factory=dict)
    scripts: Sequence[Interval] = ()
    guests: Sequence[Interval] = ()
    promises: Mapping[str, Sequence[Promise | None]] = dataclasses.field(default_factory=dict)


Check = Callable[[Sequence[Operation], Evidence], Iterable[str]]


def lost_tags(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """Yield findings where an added tag is missing, or a removed one is there.

    Each tag is added once and removed at most once. After a removal whose answer did not come, both
    may be; a removal counts only when it began after the addition was acknowledged.
    """
    removals: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in operations:
        if one.kind == history.REMOVE_TAG:
            removals[one.subject, one.value].append(one.outcome)
    for one in operations:
        if one.kind != history.ADD_TAG or one.outcome != OK:
            continue
        kind, _, name = one.subject.partition("/")
        if kind == "instance" and name not in evidence.instances:
            continue  # judged by lost_instances()
        there = one.value in evidence.tags.get(one.subject, frozenset())
        removed = removals[one.subject, one.value]
        if not there and not removed:
            yield f"tag {one.value} of {one.subject} is lost; {_answered(one)}"
        if there and OK in removed:
            yield f"tag {one.value} of {one.subject} was removed and is there again"


def lost_instances(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """Yield findings where a created instance is missing which nobody removed."""
    removals: dict[str, list[str]] = defaultdict(list)
    for one in operations:
        if one.kind == history.REMOVE:
            removals[one.subject].append(one.outcome)
    for one in operations:
        if one.kind != history.CREATE or one.outcome != OK:
            continue
        there, removed = one.subject in evidence.instances, removals[one.subject]
        if not there and not removed:
            yield f"instance {one.subject} is lost; {_answered(one)}"
        if there and OK in removed:
            yield f"instance {one.subject} was removed and is there again"


def lost_jobs(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """Yield findings where an accepted job is unknown or unfinished, or its end changes."""
    by_number: dict[int, set[str]] = defaultdict(set)
    for one in operations:
        if one.job is None or one.outcome != OK or one.kind not in (history.SUBMIT, history.END):
            continue
        if one.kind == history.SUBMIT:
            by_number[one.job].add(one.subject)
        job = evidence.jobs.get(one.job)
        if job is None:
            yield f"job {one.job} is lost; {_answered(one)}"
        elif job.token != one.subject and not one.subject.startswith(REST):
            yield f"job {one.job} is '{job.token}', and was accepted as '{one.subject}'"
        elif one.kind == history.END and job.status != one.value:
            yield f"job {one.job} ended as {one.value} for {one.user}, and is {job.status} now"
    for number, tokens in sorted(by_number.items()):
        if len(tokens) > 1:
            yield f"job {number} was given to {', '.join(sorted(tokens))}"


def repeated_jobs(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """No opcode begins twice, and no script runs twice for the same token.

    A job which was accepted, and whose success was seen, has left its witness once.
    """
    for (job, place), count in sorted(evidence.executions.items()):
        if count > 1:
            yield f"opcode {place} of job {job} began {count} times"
    seen = Counter(one.where for one in evidence.scripts)
    for token, count in sorted(seen.items()):
        if count > 1:
            yield f"the script of {token} ran {count} times"
    for one in operations:
        if (
            one.kind == history.END
            and one.outcome == OK
            and one.value == "success"
            and one.subject.startswith("script-")
            and not seen[one.subject]
        ):
            yield f"job {one.job} of {one.subject} succeeded, and its script did not run"


def two_masters(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """No node goes back to an older master, and none takes files from one."""
    del operations
    for node, promises in sorted(evidence.promises.items()):
        before: Promise | None = None
        for now in promises:
            if now is not None and before is not None:
                for what in ("obeys", "config", "queue"):
                    old, new = getattr(before, what), getattr(now, what)
                    if new < old:
                        yield f"{node}: {what} of epoch {new[0]} after epoch {old[0]}"
            before = now


def overlapping(intervals: Iterable[Interval]) -> Iterable[tuple[Interval, Interval]]:
    """Return pairs of intervals of the same subject which overlap for certain.

    An interval without an end is as short as possible: it counts as a moment.
    """
    by_subject: dict[str, list[Interval]] = defaultdict(list)
    for one in intervals:
        by_subject[one.subject].append(one)
    for some in by_subject.values():
        some.sort(key=lambda one: one.begun)
        longest: Interval | None = None
        for one in some:
            if longest is not None and one.begun < (longest.ended or longest.begun):
                yield longest, one
            if longest is None or (one.ended or one.begun) > (longest.ended or longest.begun):
                longest = one


def running_twice(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """No guest runs on two nodes at the same time."""
    del operations
    for first, second in overlapping(evidence.guests):
        if first.where != second.where:
            yield (
                f"instance {first.subject} runs on {first.where} since {first.begun:.3f} and on"
                f" {second.where} since {second.begun:.3f}"
            )


def broken_locks(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """Two jobs never work on the same instance at the same time."""
    del operations
    for first, second in overlapping(evidence.scripts):
        yield (
            f"scripts {first.where} and {second.where} run for instance {first.subject} at the"
            " same time"
        )
    for job in evidence.jobs.values():
        # A job which breaks off may leave work on a node that cannot be reached; one that succeeds
        # has none.
        other = evidence.jobs.get(job.refused_for or 0)
        if other is not None and other.status == "success":
            yield f"job {job.id} began while job {other.id} worked on its instance"


def endless_jobs(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """Every job which was accepted has ended."""
    for one in operations:
        job = evidence.jobs.get(one.job or 0)
        if one.kind == history.SUBMIT and job is not None and job.status not in FINAL:
            yield f"job {job.id} does not end: it is {job.status}"


def charged_jobs(operations: Sequence[Operation], evidence: Evidence) -> Iterable[str]:
    """No job ends with an error for what its machine lacked before the job had begun."""
    del operations
    for job in evidence.jobs.values():
        begun = any(number == job.id for number, _place in evidence.executions)
        if job.status == "error" and job.lacking and not begun:
            yield f"job {job.id} is an error and never began: {job.lacking}"


CHECKS: Final[Mapping[str, Check]] = {
    "no acknowledged change is lost": lost_tags,
    "no acknowledged instance is lost": lost_instances,
    "no acknowledged job is lost": lost_jobs,
    ENDS: endless_jobs,
    "no job runs twice": repeated_jobs,
    "no job is charged for its machine": charged_jobs,
    "one master": two_masters,
    "one guest": running_twice,
    "one job at an instance": broken_locks,
}


def check(
    operations: Sequence[Operation], evidence: Evidence, *, all_ended: bool = True
) -> list[Violation]:
    """Check all promises.

    :param all_ended: no user works any more, so no job may be unfinished.
    """
    return [
        Violation(promise, text)
        for promise, function in CHECKS.items()
        if all_ended or promise != ENDS
        for text in function(operations, evidence)
    ]


def _answered(one: Operation) -> str:
    return (
        f"{one.user} got its answer at {one.ended:.3f} from {one.node or 'the cluster'} ({one.via})"
    )
