"""The daemon's copy of the access records of the cluster: sessions, tokens and their like.

The records are in the configuration, and the master has them (:mod:`ganeti.master.access_records`).
Each request with a cookie or a token needs one, so this daemon keeps a copy of all. It asks for
changes at most every :data:`FRESH_S` seconds, and when a key is not in the copy; many requests with
unknown keys share one question, and there is at most one in :data:`UNKNOWN_S` seconds. While the
master does not answer, the copy serves for :data:`KEPT_S` seconds.

Changes by this daemon are in the copy at once. They return when the candidates have them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import failures
from ganeti.rapi.master import Master

_log = logging.getLogger(__name__)

PUT, REMOVE, USED = "put", "remove", "used"
#: Longest time in seconds until a change by others is known.
FRESH_S: Final = 2.0
#: Shortest time in seconds between two questions about unknown keys.
UNKNOWN_S: Final = 0.2
#: Seconds for which the copy serves while the master does not answer.
KEPT_S: Final = 600.0
#: Seconds between two reports of the last uses: each is a change of the configuration.
USED_S: Final = 60.0
_TIMEOUT_S: Final = 5.0
_RETRY_AFTER: Final = ("Retry-After", "5")

_Key = tuple[str, str]
Change = Sequence[Any]


def secret() -> str:
    """Make a secret of 256 random bits, as text for headers and addresses."""
    return secrets.token_urlsafe(32)


def digest(text: str) -> str:
    """Return the key of the record for a secret: nobody can get the secret from it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def put(record: AccessRecord) -> list[Any]:
    """Return the change which adds a record, or replaces the one with the same kind and key."""
    return [PUT, record]


def remove(kind: str, key: str) -> list[Any]:
    """Return the change which removes a record."""
    return [REMOVE, kind, key]


class KeptRecords:
    """The access records, as the ways of identification use them.

    Every record which is returned is valid: its end has not come.

    :param clock: seconds of a clock which never jumps.
    :param wall: the time in seconds since 1970.
    """

    def __init__(
        self,
        master: Master,
        clock: Callable[[], float] = time.monotonic,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._master = master
        self._clock = clock
        self._wall = wall
        self._table: dict[_Key, AccessRecord] = {}
        self._serial: int | None = None
        # Times of the last answer, and of the last question.
        self._answered_at: float | None = None
        self._asked_at: float | None = None
        self._failure = ""
        self._failure_status = 503
        # One question or change after the other: an old answer must not replace a newer one.
        self._turn = asyncio.Lock()
        self._noted: dict[_Key, float] = {}
        self._reporting: asyncio.Task[None] | None = None
        self._closed = False

    def now(self) -> float:
        """Return the time in seconds since 1970, with which the ends of records are compared."""
        return self._wall()

    async def get(self, kind: str, key: str) -> AccessRecord | None:
        """Return a record; None if there is no valid one.

        :raises Refused: 502 to 504 while the master does not answer, and the copy is too old.
        """
        await self._refresh(FRESH_S)
        if (kind, key) not in self._table:
            # It may be new: the question must begin after this request has come.
            await self._refresh(0)
        return self._valid((kind, key))

    async def known(self, kind: str, key: str) -> AccessRecord | None:
        """Return a record as :meth:`get`; one that is younger than :data:`FRESH_S` may be missed.

        For keys that are no secrets, such as the name of a user: most of them have no record, and
        each request would ask the master.
        """
        await self._refresh(FRESH_S)
        return self._valid((kind, key))

    async def of_owner(self, kind: str, owner: str) -> list[AccessRecord]:
        """Return the records of a user, the oldest one first; the error is that of :meth:`get`."""
        return [one for one in await self.every(kind) if one.owner == owner]

    async def every(self, kind: str) -> list[AccessRecord]:
        """Return all records of a kind, the oldest one first; the error is that of :meth:`get`."""
        await self._refresh(FRESH_S)
        found = (self._valid(key) for key in self._table if key[0] == kind)
        return sorted((one for one in found if one is not None), key=lambda one: one.ctime)

    async def change(self, *changes: Change) -> None:
        """Change records, all or none; return when the candidates have the changes.

        :param changes: see :func:`put` and :func:`remove`.
        :raises errors.GenericError: the master refuses the changes, or does not answer.
        """
        sent = [
            [one[0], _wire(one[1]), *one[2:]] if one[0] == PUT else list(one) for one in changes
        ]
        async with self._turn:
            try:
                answer = await self._master.call("ChangeAccessRecords", sent)
            except errors.GenericError:
                # It may have been made: nothing that was to be removed counts any more.
                self._asked_at = None
                for one in changes:
                    if one[0] == REMOVE:
                        self._apply(one)
                raise
            if answer["before"] == self._serial:
                self._serial = answer["serial"]
            else:
                self._asked_at = None
            for one in changes:
                self._apply(one)

    def used(self, kind: str, key: str) -> None:
        """Note that a record is used now; the master learns it with the next report."""
        if (kind, key) not in self._table:
            return
        self._noted[kind, key] = self._wall()
        if self._reporting is None and not self._closed:
            self._reporting = asyncio.create_task(self._report_later())

    async def close(self) -> None:
        """Report the last uses; called before the daemon ends."""
        self._closed = True
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
            self._reporting = None
        await self._report()

    def _valid(self, key: _Key) -> AccessRecord | None:
        record = self._table.get(key)
        if record is None or (record.expires is not None and record.expires <= self._wall()):
            return None
        noted = self._noted.get(key)
        if noted is not None and (record.used is None or record.used < noted):
            return dataclasses.replace(record, used=noted)
        return record

    async def _refresh(self, most_age_s: float) -> None:
        """Ask the master when the last question is older; 0 for one that begins after now.

        :raises Refused: the status for the error of the master, such as 502.
        """
        if most_age_s and self._turn.locked() and self._serves():
            # A question is on its way, and a slow one delays nobody.
            return
        called_at = self._clock()

        def due() -> bool:
            if most_age_s:
                return self._age(self._asked_at) >= most_age_s
            return self._asked_at is None or self._asked_at < called_at

        # Without a copy, the question which is on its way is waited for.
        if due() or not self._serves():
            async with self._turn:
                if due():
                    await self._ask()
        if not self._serves():
            raise Refused(
                self._failure_status,
                "sessions and tokens cannot be checked now, because the master daemon does not"
                f" answer ({self._failure}); try again later",
                headers=[_RETRY_AFTER],
            )

    def _age(self, at: float | None) -> float:
        return float("inf") if at is None else self._clock() - at

    def _serves(self) -> bool:
        """Return whether the copy is new enough to be used."""
        return self._age(self._answered_at) <= KEPT_S

    async def _ask(self) -> None:
        """Ask for changes; while the master does not answer, note why."""
        pause_s = UNKNOWN_S - self._age(self._asked_at)
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._asked_at = self._clock()
        try:
            answer = await self._master.call(
                "QueryAccessRecords", None, self._serial, timeout_s=_TIMEOUT_S
            )
        except errors.GenericError as err:
            if not self._failure:
                _log.warning("cannot ask the master for sessions and tokens: %s", err)
            self._failure = str(err)
            # On a node which is not the master, the answer is that of every other request.
            self._failure_status = failures.refusal(err).status
            return
        self._failure = ""
        self._answered_at = self._asked_at
        if answer["records"] is not None:
            self._table = {(one["kind"], one["key"]): of_wire(one) for one in answer["records"]}
            self._noted = {key: at for key, at in self._noted.items() if key in self._table}
        self._serial = answer["serial"]

    def _apply(self, change: Change) -> None:
        match list(change):
            case ["put", AccessRecord() as record]:
                self._table[record.kind, record.key] = record
            case ["remove", kind, key]:
                self._table.pop((kind, key), None)
                self._noted.pop((kind, key), None)
            case ["used", kind, key, at]:
                present = self._table.get((kind, key))
                if present is not None:
                    self._table[kind, key] = dataclasses.replace(present, used=at)

    async def _report_later(self) -> None:
        await asyncio.sleep(USED_S)
        self._reporting = None
        await self._report()

    async def _report(self) -> None:
        """Tell the master which records were used; a failure is logged, and repeated later."""
        noted = dict(self._noted)
        if not noted:
            return
        try:
            await self.change(*([USED, kind, key, at] for (kind, key), at in noted.items()))
        except errors.GenericError as err:
            _log.warning("the last uses of sessions and tokens are not stored now: %s", err)
            return
        for key, at in noted.items():
            if self._noted.get(key) == at:
                del self._noted[key]


def _wire(record: AccessRecord) -> dict[str, Any]:
    return {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if field.name != "uuid"
    }


def of_wire(given: Mapping[str, Any]) -> AccessRecord:
    """Make a record from an answer of the master, or a new one.

    The master makes the UUID from kind and key; nobody else needs it.
    """
    return AccessRecord(uuid="", **given)
