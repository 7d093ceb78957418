"""Dependencies between jobs: may this opcode start?

An opcode names jobs and the final states it accepts of each (``depends``; no states means success).
:func:`decide` is pure; :class:`DependencyWaits` remembers who waits for whom, so that the end of a job
wakes only those it concerns. While a job waits for another one it occupies no worker.

Inside one submission of several jobs a negative id counts back: ``-1`` is the job before. It is
made absolute by :func:`resolve` before the job gets onto the disk.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import job as const


class Verdict(enum.Enum):
    """What becomes of an opcode with dependencies."""

    GO = enum.auto()
    WAIT = enum.auto()
    CANCEL = enum.auto()
    FAIL = enum.auto()


class Decision(NamedTuple):
    """The verdict, the job that decided it (0: none), and why in words."""

    verdict: Verdict
    job_id: int = 0
    reason: str = ""


def decide(
    depends: Sequence[Sequence[Any]] | None, status_of: Callable[[int], str | None]
) -> Decision:
    """Whether an opcode may start.

    :param depends: ``[job id, [accepted final states]]``, ids absolute.
    :param status_of: state of a job; None when there is no such job.
    """
    waiting = None
    for job_id, accepted in depends or ():
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
    """Make the job ids absolute.

    :param earlier: ids of the jobs before this one in the same submission; None for a refused one.
    :raises errors.OpPrereqError: a relative id leads nowhere, or to a job that was refused.
    """
    if depends is None:
        return None
    resolved = []
    for wanted, accepted in depends:
        job_id = int(wanted)  # programs of old send ids as text
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
    """Which jobs wait for the end of which other one. Guarded by the queue's lock."""

    def __init__(self) -> None:
        self._waiters: dict[int, set[int]] = {}
        self._waits_for: dict[int, int] = {}

    def add(self, job_id: int, awaited_id: int) -> None:
        """`job_id` waits for the end of `awaited_id` (one at a time is enough)."""
        self.remove(job_id)
        self._waiters.setdefault(awaited_id, set()).add(job_id)
        self._waits_for[job_id] = awaited_id

    def remove(self, job_id: int) -> None:
        """`job_id` waits no longer."""
        awaited_id = self._waits_for.pop(job_id, None)
        if awaited_id is not None:
            waiters = self._waiters[awaited_id]
            waiters.discard(job_id)
            if not waiters:
                del self._waiters[awaited_id]

    def ended(self, job_id: int) -> list[int]:
        """A job ended: those that waited for it, by id; they are forgotten here."""
        waiters = sorted(self._waiters.pop(job_id, ()))
        for waiter in waiters:
            del self._waits_for[waiter]
        return waiters

    def awaited(self, job_id: int) -> int | None:
        """The job whose end `job_id` waits for."""
        return self._waits_for.get(job_id)
