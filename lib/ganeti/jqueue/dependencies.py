"""Dependencies between jobs: whether an opcode may start.

An opcode names jobs and the final states which it accepts of each (parameter ``depends``; no states
means success). :func:`decide` is pure; :class:`DependencyWaits` records which job waits for which
other one, so that the end of a job wakes only the jobs which wait for it. While a job waits for
another one it occupies no worker.

Inside one submission of several jobs a negative id counts back: ``-1`` is the job before.
:func:`resolve` replaces these ids before the job is stored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import job as const


class Verdict(enum.Enum):
    """The decision on an opcode with dependencies."""

    GO = enum.auto()
    WAIT = enum.auto()
    CANCEL = enum.auto()
    FAIL = enum.auto()


class Decision(NamedTuple):
    """The verdict, the id of the job that decided it (0: none), and the reason for people."""

    verdict: Verdict
    job_id: int = 0
    reason: str = ""


def decide(
    depends: Sequence[Sequence[Any]] | None, status_of: Callable[[int], str | None]
) -> Decision:
    """Decide whether an opcode may start.

    :param depends: ``[job id, [accepted final states]]`` for each dependency, ids absolute.
    :param status_of: returns the state of a job; None when there is no such job.
    """
    waiting = None
    for wanted_id, accepted in depends or ():
        job_id = int(wanted_id)  # old programs write ids as text
        status = status_of(job_id)
        if status is None:
            return Decision(Verdict.FAIL, job_id, f"depends on job {job_id}, which does not exist")
        if status not in const.FINALIZED:
            waiting = waiting or Decision(
                Verdict.WAIT, job_id, f"waits for the end of job {job_id}"
            )
        elif status not in (accepted or (const.STATUS_SUCCESS,)):
            wanted = " or ".join(accepted or (const.STATUS_SUCCESS,))
            verdict = Verdict.CANCEL if status == const.STATUS_CANCELED else Verdict.FAIL
            return Decision(
                verdict, job_id, f"depends on job {job_id}, which ended as {status}, not {wanted}"
            )
    return waiting or Decision(Verdict.GO)


def resolve(
    depends: Sequence[Sequence[Any]] | None, earlier: Sequence[int | None]
) -> list[list[Any]] | None:
    """Replace relative job ids in dependencies by absolute ones.

    :param earlier: ids of the jobs before this one in the same submission; None for a refused one.
    :raises errors.OpPrereqError: a relative id goes back too far, or names a refused job.
    """
    if depends is None:
        return None
    resolved = []
    for wanted, accepted in depends:
        job_id = int(wanted)  # old programs send ids as text
        if job_id < 0:
            if -job_id > len(earlier):
                raise errors.OpPrereqError(
                    f"relative dependency {job_id} goes back before the first job of the"
                    " submission",
                    errors.ECODE_INVAL,
                )
            absolute = earlier[job_id]
            if absolute is None:
                raise errors.OpPrereqError(
                    f"relative dependency {job_id} means a job that was refused", errors.ECODE_INVAL
                )
            job_id = absolute
        resolved.append([job_id, list(accepted)])
    return resolved


class DependencyWaits:
    """Which job waits for the end of which other one. Guarded by the queue's lock."""

    def __init__(self) -> None:
        self._waiters: dict[int, set[int]] = {}
        self._waits_for: dict[int, int] = {}

    def add(self, job_id: int, awaited_id: int) -> None:
        """Record that `job_id` waits for the end of `awaited_id`, and for no other job."""
        self.remove(job_id)
        self._waiters.setdefault(awaited_id, set()).add(job_id)
        self._waits_for[job_id] = awaited_id

    def remove(self, job_id: int) -> None:
        """Forget for which job `job_id` waits."""
        awaited_id = self._waits_for.pop(job_id, None)
        if awaited_id is not None:
            waiters = self._waiters[awaited_id]
            waiters.discard(job_id)
            if not waiters:
                del self._waiters[awaited_id]

    def ended(self, job_id: int) -> list[int]:
        """Remove and return the jobs which waited for a job that has ended, by id."""
        waiters = sorted(self._waiters.pop(job_id, ()))
        for waiter in waiters:
            del self._waits_for[waiter]
        return waiters

    def awaited(self, job_id: int) -> int | None:
        """Return the id of the job for which `job_id` waits; None when it waits for none."""
        return self._waits_for.get(job_id)
