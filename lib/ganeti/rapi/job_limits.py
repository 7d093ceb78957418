"""How many jobs a user of the REST interface may have in the queue, and submit in a minute.

A job is a file on every master candidate, so a user who submits jobs without a limit fills the
queue of all. Jobs of :data:`ganeti.opcodes.base.QUERY`, which a user without rights may submit,
have limits of their own: a part (:data:`READING`) of those for all jobs.

Quotas (:mod:`.quotas`) are checked here as well, because all jobs come here.

The limits are kept in this daemon. It asks the master which jobs have ended only when a limit is
reached. After a restart it counts from zero. A job that submits further jobs counts as one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

from ganeti.constants import job as const
from ganeti.http.messages import Refused
from ganeti.opcodes.base import QUERY, OpCode
from ganeti.rapi.master import Master
from ganeti.rapi.pace import Pace, TooMany
from ganeti.rapi.quotas import Quotas

#: Default limits of a user: unfinished jobs, and jobs per minute.
UNFINISHED: Final = 1000
PER_MINUTE: Final = 3000
#: Jobs that only read have this part of each limit.
READING: Final = 10
# Seconds for which an answer of the master holds that the jobs are still unfinished.
_ASK_AGAIN_S: Final = 1.0
_RETRY_S: Final = 5


class _Account:
    """The jobs of one kind of one user.

    :ivar unfinished: ids of the jobs that had not ended when the master was last asked.
    :ivar submitting: number of jobs whose ids are not known yet.
    :ivar asked: the ids that were unfinished at the last question, and when that was.
    """

    __slots__ = ("asked", "submitting", "unfinished")

    def __init__(self) -> None:
        self.unfinished: set[int] = set()
        self.submitting = 0
        self.asked: tuple[frozenset[int], float] = (frozenset(), 0.0)


class _Kind(NamedTuple):
    """The limits for jobs of one kind.

    :ivar what: the jobs, for messages.
    :ivar most: number of unfinished jobs of a user; 0 for no limit.
    :ivar pace: how often a user may submit one; None for no limit.
    """

    what: str
    most: int
    pace: Pace[str] | None
    accounts: dict[str, _Account]


class JobLimits:
    """Limits the jobs of each user.

    :param unfinished: number of unfinished jobs of a user; 0 for no limit.
    :param per_minute: number of jobs that a user submits in a minute; 0 for no limit.
    :param quotas: what the jobs may make; None for no quotas.
    :param clock: seconds of a clock which never jumps.
    """

    def __init__(
        self,
        master: Master,
        unfinished: int = UNFINISHED,
        per_minute: int = PER_MINUTE,
        *,
        quotas: Quotas | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self.quotas = quotas or Quotas(master)
        self._clock = clock
        self._changing = self._kind("jobs", unfinished, per_minute)
        self._reading = self._kind(
            "jobs that only read",
            unfinished and max(1, unfinished // READING),
            per_minute and max(1, per_minute // READING),
        )

    def _kind(self, what: str, most: int, per_minute: int) -> _Kind:
        pace: Pace[str] | None = None
        if per_minute:
            pace = Pace(
                f"{per_minute} {what} in a minute", per_minute, 60 / per_minute, self._clock
            )
        return _Kind(what, most, pace, {})

    async def submit(self, user: str, ops: Sequence[OpCode]) -> int:
        """Submit a job of a user; return its id when the job is acknowledged.

        :raises Refused: 429 when the user has too many unfinished jobs, or has submitted too many
            in the last minute; 409 for a quota.
        :raises errors.GenericError: as :meth:`ganeti.rapi.master.Master.submit`.
        """
        kind = self._kind_of(ops)
        async with self._counted(kind, user) as account, self.quotas.admitted([ops]) as note:
            job_id = await self._master.submit(ops)
            note([job_id])
            if kind.most:
                account.unfinished.add(job_id)
        return job_id

    async def submit_many(self, user: str, jobs: Sequence[Sequence[OpCode]]) -> list[int | str]:
        """Submit jobs of a user together, or none of them when they exceed a limit.

        :returns: for each job its id, or why the master did not take it.
        :raises Refused: 429 and 409 as for :meth:`submit`.
        :raises errors.GenericError: as :meth:`ganeti.rapi.master.Master.submit_many`.
        """
        kinds = [self._kind_of(ops) for ops in jobs]
        async with contextlib.AsyncExitStack() as stack:
            for kind in (self._changing, self._reading):
                number = sum(1 for one in kinds if one is kind)
                if number:
                    await stack.enter_async_context(self._counted(kind, user, number))
            note = await stack.enter_async_context(self.quotas.admitted(jobs))
            found = await self._master.submit_many(jobs)
            note(found)
            for kind, result in zip(kinds, found, strict=True):
                if isinstance(result, str):
                    if kind.pace is not None:
                        kind.pace.give_back(user)
                elif kind.most:
                    kind.accounts[user].unfinished.add(result)
        return found

    def _kind_of(self, ops: Sequence[OpCode]) -> _Kind:
        return self._reading if all(op.KIND == QUERY for op in ops) else self._changing

    @contextlib.asynccontextmanager
    async def _counted(self, kind: _Kind, user: str, number: int = 1) -> AsyncIterator[_Account]:
        """Count jobs while they are submitted; they do not count when that fails."""
        account = kind.accounts.setdefault(user, _Account())
        if kind.most and self._used(account) + number > kind.most:
            await self._forget_ended(account)
            used = self._used(account)
            if used + number > kind.most:
                reached = f"{kind.most} unfinished {kind.what}, which is the limit"
                if number > 1:
                    reached = (
                        f"{used} unfinished {kind.what}, and this request has {number} more; the"
                        f" limit is {kind.most}"
                    )
                raise Refused(
                    429,
                    f"user {user} has {reached}. Wait until some of them have ended.",
                    headers=[("Retry-After", str(_RETRY_S))],
                )
        taken = 0
        try:
            for _ in range(number if kind.pace is not None else 0):
                assert kind.pace is not None
                kind.pace.take(user)
                taken += 1
        except TooMany as err:
            self._give_back(kind, user, taken)
            raise Refused(
                429,
                f"user {user} has submitted {err.of}, which is the limit",
                headers=[err.retry_after],
            ) from err
        account.submitting += number
        try:
            yield account
        except BaseException:
            self._give_back(kind, user, taken)
            raise
        finally:
            account.submitting -= number

    @staticmethod
    def _give_back(kind: _Kind, user: str, number: int) -> None:
        for _ in range(number):
            if kind.pace is not None:
                kind.pace.give_back(user)

    @staticmethod
    def _used(account: _Account) -> int:
        return len(account.unfinished) + account.submitting

    async def _forget_ended(self, account: _Account) -> None:
        """Ask the master which jobs have ended, unless it has just said that none of them has."""
        ids, asked_at = account.asked
        now = self._clock()
        if account.unfinished <= ids and now - asked_at < _ASK_AGAIN_S:
            return
        asked = sorted(account.unfinished)
        if not asked:
            # Without ids the master would return all jobs.
            return
        rows = await self._master.call("QueryJobs", asked, ["status"])
        account.unfinished.difference_update(
            job_id
            for job_id, row in zip(asked, rows, strict=True)
            # An unknown job was archived, and only ended jobs are.
            if row is None or row[0] in const.FINALIZED
        )
        account.asked = (frozenset(account.unfinished), now)
