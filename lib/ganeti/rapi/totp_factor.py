"""One-time codes as the second factor of users: enrolment, checks, limits.

A user begins with a new secret, which is in the memory of this daemon for :data:`BEGUN_S` seconds,
and confirms it with a code; then the record is kept (:mod:`ganeti.rapi.totp`), and the codes are
needed from then on. Only an administrator removes the factor (``rapi-passwd totp remove``):
somebody who has found an open session cannot.

Wrong codes are counted for each user, from all addresses together: who guesses codes has the
password already, and a code has only a million values. Recovery codes have too many values to be
guessed, so they are not limited by it, and a user under attack can log in with one.

Source: RFC 6238, section 5.2; RFC 4226, section 7.3 (throttling).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.rapi import kept_records, totp
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.pace import Pace, TooMany
from ganeti.rapi.sealed import Seal

_log = logging.getLogger(__name__)

#: The name of this factor in answers.
NAME: Final = "totp"
#: Seconds in which a new secret has to be confirmed.
BEGUN_S: Final = 600.0
#: Wrong codes for a user which are checked at once, and seconds for each one after them: somebody
#: who has the password needs 200 days of guessing for a chance of one in two.
BURST: Final = 10
INTERVAL_S: Final = 60.0

_Begun = dict[str, tuple[str, float]]


class Begun(NamedTuple):
    """A secret which is not confirmed."""

    secret: str
    uri: str


class TotpFactor:
    """The one-time codes of the users of this cluster.

    :param seal: encrypts the secrets; None where there is no confd key.
    :param cluster: returns the name of the cluster, which apps show.
    :param clock: seconds of a clock which never jumps.
    """

    name = NAME

    def __init__(
        self,
        kept: KeptRecords,
        seal: Seal | None,
        cluster: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = kept
        self._seal = seal
        self._cluster = cluster
        self._clock = clock
        self._begun: _Begun = {}
        self._pace: Pace[str] = Pace("for this user", BURST, INTERVAL_S, clock)
        # One check after the other: the same code must not be right twice.
        self._turn = asyncio.Lock()

    async def needed(self, owner: str) -> bool:
        """Return whether a user has one-time codes.

        :raises Refused: 503 if this cannot be known now.
        """
        return await self._kept.known(totp.KIND, totp.key_of(owner)) is not None

    async def recovery_left(self, owner: str) -> int | None:
        """Return how many recovery codes a user has left; None for a user without the factor."""
        record = await self._kept.known(totp.KIND, totp.key_of(owner))
        return None if record is None else totp.recovery_left(record)

    async def check(self, owner: str, code: str) -> None:
        """Check and use up a code, or a recovery code, of a user who has the factor.

        :raises Refused: 401 for a wrong code, 429 after too many, 503 if codes cannot be checked.
        """
        limited = not totp.is_recovery_code(code)
        async with self._turn:
            record = await self._kept.known(totp.KIND, totp.key_of(owner))
            if record is None:
                raise Refused(401, f"user {owner} has no one-time codes any more; log in again")
            if limited:
                self._take(owner)
            try:
                after = totp.after_use(record, code, self._seal, self._kept.now())
            except errors.ConfigurationError as err:
                self._pace.give_back(owner)
                raise Refused(503, str(err)) from err
            if after is None:
                _log.warning("wrong one-time code for user %r", owner[:64])
                raise Refused(
                    401,
                    "the one-time code is wrong, or was used before; wait for the next one, and"
                    " check the clock of your device",
                )
            await self._kept.change(kept_records.put(after))
            if limited:
                self._pace.give_back(owner)
            else:
                _log.warning(
                    "user %r has used a recovery code; %d are left",
                    owner[:64],
                    totp.recovery_left(after),
                )

    async def begin(self, owner: str) -> Begun:
        """Make a secret for a user, who has to confirm it; a former one is forgotten.

        :raises Refused: 409: the user has the factor; 503: it is not possible here.
        """
        await self._check_absent(owner)
        if self._seal is None:
            raise Refused(503, "one-time codes need the confd key of a cluster, which is not here")
        now = self._clock()
        self._begun = {name: one for name, one in self._begun.items() if one[1] > now}
        try:
            secret = totp.new_secret()
            begun = Begun(secret, totp.uri(secret, owner, self._cluster()))
        except errors.ConfigurationError as err:
            raise Refused(503, str(err)) from err
        self._begun[owner] = secret, now + BEGUN_S
        return begun

    async def confirm(self, owner: str, code: str) -> list[str]:
        """Give a user the factor, after a right code for the new secret; return recovery codes.

        :raises Refused: 400 for a wrong code; 409: the user has the factor, or has not begun; 429
            after too many wrong codes; 503: it is not possible here.
        """
        async with self._turn:
            await self._check_absent(owner)
            secret, end = self._begun.get(owner, ("", 0.0))
            if end <= self._clock() or self._seal is None:
                raise Refused(
                    409,
                    f"user {owner} has no new secret to confirm: it is valid for"
                    f" {BEGUN_S / 60:.0f} minutes, and only in one run of the daemon. Begin again.",
                )
            self._take(owner)
            now = self._kept.now()
            try:
                step = totp.step_of(secret, totp.plain(code), now)
            except errors.ConfigurationError as err:
                raise Refused(503, str(err)) from err
            if step is None:
                raise Refused(
                    400,
                    "the one-time code is wrong; check the clock of your device, and that it has"
                    " the last secret",
                )
            record, codes = totp.make(owner, secret, step, self._seal, now)
            await self._kept.change(kept_records.put(record))
            self._begun.pop(owner, None)
            self._pace.give_back(owner)
            _log.info("user %r has one-time codes now", owner[:64])
            return codes

    async def _check_absent(self, owner: str) -> None:
        if await self.needed(owner):
            raise Refused(
                409,
                f"user {owner} has one-time codes already; 'rapi-passwd totp remove {owner}' on the"
                " master removes them",
            )

    def _take(self, owner: str) -> None:
        try:
            self._pace.take(owner)
        except TooMany as err:
            raise Refused(
                429,
                f"too many wrong one-time codes {err.of}; a recovery code is possible",
                headers=[err.retry_after],
            ) from err
