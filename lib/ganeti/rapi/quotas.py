"""Quotas: how much the instances of an owner may have together.

The roles file has the limits (:mod:`.roles`). :meth:`Quotas.admitted` checks the jobs of a request
before they are submitted, for all users: an administrator has to raise a quota in the
file, or to use a command on the master, which no quota limits.

The use is what the instances have, and what the unfinished jobs of the queue may make of them
(:mod:`.growth`). So two requests at once cannot both get what is left: this daemon checks and
submits one request after the other, and what was submitted before counts, also after a restart, and
also when it came from a command on the master. A job counts until it ends; a failed one has then
used nothing. Only another daemon, which submits between the check here and the end of the
submission, is not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ganeti import errors, opcodes
from ganeti.constants import job as job_const
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceSnapshotList
from ganeti.rapi import growth, selectors
from ganeti.rapi.growth import Instance, Instances
from ganeti.rapi.master import Master
from ganeti.rapi.roles import DISK, EACH, LIMITED, MEMORY, Quota, Rules
from ganeti.rapi.selectors import OWNER_TAG, Facts, Selector
from ganeti.utils import text

_log = logging.getLogger(__name__)

_FIELDS: Final = (*selectors.FIELDS, "be/maxmem", "be/vcpus", "disk.sizes")
_DEFAULTS: Final = "default"
# Others wait meanwhile.
_SNAPSHOTS_S: Final = 10.0
_AGAIN: Final = (("Retry-After", "1"),)
_UNFINISHED: Final = [
    "|",
    *(["=", "status", one] for one in job_const.STATUSES if one not in job_const.FINALIZED),
]
_ADVICE: Final = (
    "Remove instances, disks or snapshots, or make them smaller; or ask an administrator for a"
    " larger quota. 'GET /2/quota' shows use and limits, which also count unfinished jobs."
)


class Account(NamedTuple):
    """Whose use is counted.

    :ivar name: the user, or the selector.
    :ivar quota: None without limits.
    """

    name: str
    quota: Quota | None

    @property
    def selector(self) -> Selector:
        """Return the selector of its instances."""
        if self.quota is not None and self.quota.selector is not None:
            return self.quota.selector
        return Selector(selectors.TAG, selectors.owner_tag(self.name))

    @property
    def limits(self) -> dict[str, int]:
        """Return what is limited -> the limit."""
        return {} if self.quota is None else dict(self.quota.limits)


class Use(NamedTuple):
    """The use of one owner, as it is published."""

    owner: str
    limits: dict[str, int]
    use: dict[str, int]


class Source(Protocol):
    """What says which quotas there are: the roles file."""

    @property
    def rules(self) -> Rules:
        """Return what the roles file says."""


#: Notes the numbers of the submitted jobs; a text for a job that was not taken.
Note = Callable[[Sequence[int | str]], None]


class Quotas:
    """Counts the use of the owners, and refuses what would exceed a quota.

    :param source: None if there is no roles file.
    """

    def __init__(self, master: Master, source: Source | None = None) -> None:
        self._master = master
        self._source = source
        # One request after the other, from the check to the answer of the master.
        self._turn = asyncio.Lock()
        # What each unfinished job may make of its instances. It is computed once, before the job
        # changes anything: later, a growth would be added to a disk that has already grown.
        self._pending: dict[int, growth.Changes] = {}

    @property
    def _rules(self) -> Rules:
        return Rules() if self._source is None else self._source.rules

    @contextlib.asynccontextmanager
    async def admitted(self, jobs: Sequence[Sequence[OpCode]]) -> AsyncIterator[Note]:
        """Check jobs against the quotas, and count them from now on; submit them within it.

        :raises Refused: 409 if an owner would exceed a quota.
        """
        if not self._rules.quotas or not any(growth.may_grow(ops) for ops in jobs):
            yield _note_nothing
            return
        async with self._turn:
            await self._refresh()
            known = await self._around([op for ops in jobs for op in ops])
            changes = [growth.after(ops, known) for ops in jobs]
            await self._require([change for found in changes for change in found])

            def note(ids: Sequence[int | str]) -> None:
                for job_id, ops, found in zip(ids, jobs, changes, strict=True):
                    if isinstance(job_id, int):
                        self._pending[job_id] = [] if _is_dry(ops) else found

            yield note

    # -- the use ---------------------------------------------------------------------------------

    async def use(self, user: str | None, also: Iterable[Selector] = ()) -> list[Use]:
        """Return use and limits.

        :param user: of this user; None for all owners.
        :param also: also those of the quotas for these selectors.
        """
        rules, shown = self._rules, set(also)
        accounts = [
            Account(name, quota)
            for name, quota in rules.quotas.items()
            if quota.selector is not None and (user is None or quota.selector in shown)
        ]
        condition = None
        if user is not None:
            accounts.insert(0, self._account(user))
            condition = self._filter(accounts)
        async with self._turn:
            await self._refresh()
        known = await self._instances(condition, snapshots=True)
        if user is None:
            tags = {tag for _key, one in known.items() for f in one.facts for tag in f.tags}
            owners = {tag.removeprefix(OWNER_TAG) for tag in tags if tag.startswith(OWNER_TAG)}
            owners |= {quota.owner for quota in rules.quotas.values() if quota.selector is None}
            accounts += [self._account(name) for name in sorted(owners - {EACH, ""})]
        return [
            Use(one.name, one.limits, {what: self._sum(one, known, what) for what in LIMITED})
            for one in accounts
        ]

    def _account(self, user: str) -> Account:
        quotas = self._rules.quotas
        found = quotas.get(user)
        if found is None or found.selector is not None:
            found = quotas.get(EACH)
        return Account(user, found)

    def _accounts(self, facts: Facts) -> list[Account]:
        """Return the owners with a quota who have an instance."""
        found = [
            self._account(tag.removeprefix(OWNER_TAG))
            for tag in sorted(facts.tags)
            if tag.startswith(OWNER_TAG) and tag != OWNER_TAG
        ]
        found += [
            Account(name, quota)
            for name, quota in self._rules.quotas.items()
            if quota.selector is not None and self._holds(quota.selector, facts)
        ]
        return [one for one in found if one.quota is not None]

    def _holds(self, selector: Selector, facts: Facts) -> bool:
        return selectors.holds(selector, facts, "", self._rules.pools)

    def _filter(self, accounts: Iterable[Account]) -> list[Any]:
        pools = self._rules.pools
        return selectors.any_of(selectors.as_filter(one.selector, "", pools) for one in accounts)

    def _sum(self, account: Account, known: Instances, what: str) -> int:
        return sum(
            one.has(what)
            for _key, one in known.items()
            if any(self._holds(account.selector, facts) for facts in one.facts)
        )

    # -- the check -------------------------------------------------------------------------------

    async def _require(self, changes: growth.Changes) -> None:
        """Check what instances may have after the jobs of a request.

        :raises Refused: 409.
        """
        accounts: dict[str, Account] = {}
        for _key, one in changes:
            for facts in one.facts:
                accounts.update({found.name: found for found in self._accounts(facts)})
        if not accounts:
            return
        limits_disk = any(DISK in one.limits for one in accounts.values())
        names = {facts.name for _key, one in changes for facts in one.facts}
        condition = selectors.any_of([self._filter(accounts.values()), _named(names)])
        before = await self._instances(condition, snapshots=limits_disk)
        after = before.copy()
        for key, one in changes:
            after.put(after.key(key), one)
        for account in accounts.values():
            for what, limit in account.limits.items():
                for _key, one in changes:
                    if what in one.unknown:
                        raise _not_known(account, what, one)
                used, wanted = (self._sum(account, found, what) for found in (before, after))
                if wanted > max(limit, used):
                    raise _exceeded(account, what, used, wanted)

    # -- what the master knows -------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Learn which jobs have ended, and what those may do that were submitted elsewhere."""
        answer = await self._master.call("Query", query_const.JOB, ["id"], _UNFINISHED)
        ids = {int(row[0][1]) for row in answer["data"]}
        for ended in self._pending.keys() - ids:
            del self._pending[ended]
        missing = sorted(ids - self._pending.keys())
        if not missing:
            return
        rows = await self._master.call("QueryJobs", missing, ["ops"])
        for job_id, row in zip(missing, rows, strict=True):
            ops = [] if row is None else _opcodes(row[0] or ())
            changing = growth.may_grow(ops) and not _is_dry(ops)
            known = await self._around(ops) if changing else Instances({})
            self._pending[job_id] = growth.after(ops, known) if changing else []

    async def _around(self, ops: Sequence[OpCode]) -> Instances:
        """Return the instances which opcodes name, before these opcodes."""
        defaults: dict[str, Any] = {}
        if growth.needs_defaults(ops):
            info = await self._master.call("QueryClusterInfo")
            defaults = dict(info["beparams"][_DEFAULTS])
        condition = _named(growth.named(ops))
        snapshots = growth.needs_snapshots(ops)
        return await self._instances(condition, snapshots=snapshots, defaults=defaults)

    async def _instances(
        self,
        condition: list[Any] | None,
        *,
        snapshots: bool,
        defaults: Mapping[str, Any] | None = None,
    ) -> Instances:
        """Return the instances of a filter, and those of unfinished jobs.

        :param snapshots: count the snapshots, for which the nodes are asked.
        """
        answer = await self._master.call("Query", query_const.INSTANCE, list(_FIELDS), condition)
        count = len(selectors.FIELDS)
        known = Instances(defaults or {})
        for row in answer["data"]:
            facts = Facts.of_row(row[:count])
            memory, vcpus, sizes = (value if status == 0 else None for status, value in row[count:])
            disks = tuple(size or 0 for size in sizes or ())
            known.put(facts.uuid, Instance((facts,), memory or 0, vcpus or 0, disks, sum(disks)))
        if snapshots:
            await self._add_snapshots(known)
        for changes in self._pending.values():
            for key, one in changes:
                known.put(known.key(key), one)
        return known

    async def _add_snapshots(self, known: Instances) -> None:
        """Note the snapshots of instances; those of a node which does not answer do not count."""
        names = {one.facts[0].name: key for key, one in known.items() if one.disks}
        if not names:
            # Without names, the opcode means all instances.
            return
        op = OpInstanceSnapshotList(instances=sorted(names))
        try:
            found = await self._master.call("RunQuery", op.to_dict(), timeout_s=_SNAPSHOTS_S)
        except errors.LuxiTimeout as err:
            _log.warning("a quota counts no snapshots, because the nodes do not answer: %s", err)
            return
        except errors.OpPrereqError as err:
            raise Refused(
                503, f"an instance was removed during the check: {err}", headers=_AGAIN
            ) from err
        for one in found["result"]:
            # An instance may have got another name meanwhile.
            if one["instance"] in names:
                known.add_snapshot(names[one["instance"]], one["size"])


def _note_nothing(_ids: Sequence[int | str]) -> None:
    """Do nothing: the jobs let nothing grow that a quota limits."""


def _named(names: Iterable[str]) -> list[Any]:
    """Return a filter for instances with these names and UUIDs, some of which may not exist."""
    found = selectors.any_of(
        ["=", "uuid" if text.is_uuid(name) else "name", name] for name in sorted(names)
    )
    # A filter for names alone is an error of the master when one of them does not exist.
    return ["&", found]


def _opcodes(rows: Sequence[dict[str, Any]]) -> list[OpCode]:
    """Return the opcodes of a job; none if another version has made them."""
    try:
        return [opcodes.from_dict(dict(row)) for row in rows]
    except errors.GenericError:
        return []


def _is_dry(ops: Sequence[OpCode]) -> bool:
    return all(op.dry_run for op in ops)


def _shown(what: str, value: int) -> str:
    return text.format_unit(value) if what in (MEMORY, DISK) else str(value)


def _not_known(account: Account, what: str, one: Instance) -> Refused:
    return Refused(
        409,
        f"the quota of {account.name} limits {what}, and the request does not say how much instance"
        f" {one.facts[-1].name} will have. Give its memory, vcpus and disks; or use a command on"
        " the master, which has no quota.",
    )


def _exceeded(account: Account, what: str, used: int, wanted: int) -> Refused:
    use, more, limit = (_shown(what, one) for one in (used, wanted - used, account.limits[what]))
    return Refused(
        409,
        f"this exceeds the quota of {account.name} for {what}: {use} of {limit} are in use, and"
        f" the request needs {more} more. {_ADVICE}",
    )
