"""Sessions: a browser proves with a cookie that its user has logged in.

The cookie has a secret of 256 random bits; the record of the session has its hash, so nobody can
use what is in the configuration. A session ends after a time without requests, and some hours after
the login in any case. The rights are those of the users file at the time of each request, so a user
who is removed has no session any more. Neither has one whose password changes: the record has a
fingerprint of the line, made with the secret as its key, from which nothing can be guessed without
the cookie.

Source: ``doc/design-rest-identities.rst``, *Sessions*; OWASP *Session Management Cheat Sheet*; RFC
6265bis.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.http.event_server import Incoming
from ganeti.http.messages import Head, Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import challenge, kept_records
from ganeti.rapi.challenge import SESSION_COOKIE
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.pace import Pace, TooMany
from ganeti.rapi.rights import Rights
from ganeti.rapi.users import User, Users

_log = logging.getLogger(__name__)

KIND: Final = "session"
#: How a user of a session is identified (:attr:`ganeti.rapi.users.User.by`).
BY: Final = "session"
#: Usual limits in seconds: without a request, and since the login.
IDLE_S: Final = 1800.0
WHOLE_S: Final = 43_200.0
#: Sessions of one user; the one which was used least lately ends when there would be more.
MOST_OF_USER: Final = 50
ENDED: Final = "the session has ended; log in again"
# Logins of a user which are made at once, and seconds for each further one: each is a change of the
# configuration.
_LOGINS: Final = 20
_LOGIN_S: Final = 3.0
_ID_LENGTH: Final = 20
_AGENT_LENGTH: Final = 200
_SECRET_LENGTH: Final = 43
# To look at a session is no use of it.
_NO_USE: Final = "/2/session"
_ATTRIBUTES: Final = "Path=/; Secure; HttpOnly; SameSite=Strict"


class Limits(NamedTuple):
    """How long a session may last, in seconds.

    :ivar idle_s: without a request.
    :ivar whole_s: since the login.
    """

    idle_s: float = IDLE_S
    whole_s: float = WHOLE_S


class Opened(NamedTuple):
    """A session which has begun.

    :ivar cookie: the value of the header ``Set-Cookie``.
    :ivar secret: what is in the cookie.
    """

    cookie: str
    record: AccessRecord
    secret: str


def public_id(record: AccessRecord) -> str:
    """Return the name of a session in lists: a part of the hash of its secret."""
    return record.key[:_ID_LENGTH]


def secret_of(head: Head) -> str:
    """Return the secret in the cookie of a request; empty without one."""
    for part in head.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == SESSION_COOKIE:
            return value.strip().strip('"')
    return ""


def no_cookie() -> tuple[str, str]:
    """Return the header which removes the cookie."""
    return "Set-Cookie", f"{SESSION_COOKIE}=; Max-Age=0; {_ATTRIBUTES}"


class Sessions:
    """The sessions of the cluster, and the way in by their cookie.

    :param limits: None for the usual ones.
    :param tls: whether this daemon serves over TLS; without it there are no sessions.
    """

    def __init__(
        self,
        records: KeptRecords,
        users: Users,
        limits: Limits | None = None,
        *,
        tls: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._users = users
        self._limits = limits or Limits()
        self._tls = tls
        self._logins: Pace[str] = Pace("of this user", _LOGINS, _LOGIN_S, clock)

    def require_tls(self) -> None:
        """Refuse a login to a daemon without TLS, before a password is checked.

        :raises Refused: 403.
        """
        if not self._tls:
            raise Refused(
                403,
                "this daemon serves without TLS (--no-ssl), and a browser sends the cookie of a"
                " session over TLS only; use HTTP basic authentication, or start ganeti-rapi with"
                " TLS",
            )

    async def open(
        self,
        name: str,
        by: str,
        incoming: Incoming,
        *,
        groups: Sequence[str] = (),
        rights_text: str | None = None,
    ) -> Opened:
        """Begin a session for a user who has proved who he is.

        A session of the same browser ends: nobody can prepare one for somebody else.

        :param by: how he has proved it, such as ``password``.
        :param rights_text: words for his rights; None for those of the users file.
        :raises Refused: 403 without TLS, or when he is not in the users file; 429 after too many
            logins, 503 while the master does not answer.
        :raises errors.GenericError: the master refuses it.
        """
        self.require_tls()
        try:
            self._logins.take(name)
        except TooMany as err:
            raise Refused(429, f"too many logins {err.of}", headers=[err.retry_after]) from err
        secret = kept_records.secret()
        data: dict[str, Any] = {
            "by": by,
            "address": incoming.peer,
            "agent": _printable(incoming.head.headers.get("user-agent", "")),
            "idle": self._limits.idle_s,
        }
        if groups:
            data["groups"] = list(groups)
        if rights_text is None:
            fingerprint = self._fingerprint(name, secret)
            if fingerprint is None:
                raise Refused(403, f"user {name[:100]} is not in the users file")
            data["account"] = fingerprint
        else:
            data["rights"] = rights_text
        now = self._records.now()
        record = kept_records.of_wire(
            {
                "kind": KIND,
                "key": kept_records.digest(secret),
                "owner": name,
                "ctime": now,
                "expires": now + self._limits.whole_s,
                "data": data,
            }
        )
        ended = [
            kept_records.remove(KIND, key)
            for key in await self._keys_to_end(name, secret_of(incoming.head))
        ]
        await self._records.change(kept_records.put(record), *ended)
        _log.info(
            "session %s of user %r from %s begins (%s)", public_id(record), name, incoming.peer, by
        )
        return Opened(f"{SESSION_COOKIE}={secret}; {_ATTRIBUTES}", record, secret)

    async def close(self, head: Head) -> None:
        """End the session of a request, if it has one.

        :raises errors.GenericError: the master does not answer.
        """
        secret = secret_of(head)
        record = await self._record(secret)
        if record is not None:
            await self.end(record)

    async def end(self, record: AccessRecord) -> None:
        """End a session.

        :raises errors.GenericError: the master does not answer.
        """
        await self._records.change(kept_records.remove(KIND, record.key))
        _log.info("session %s of user %r ends", public_id(record), record.owner)

    async def every(self, owner: str | None = None) -> list[AccessRecord]:
        """Return the sessions of a user, or of all; those without requests for too long are not.

        :raises Refused: 503 while the master does not answer.
        """
        found = await self._records.every(KIND)
        return [one for one in found if owner in (None, one.owner) and not self._is_idle(one)]

    async def of_request(self, incoming: Incoming) -> AccessRecord | None:
        """Return the valid session of a request; None without one."""
        found = await self._user(secret_of(incoming.head))
        return None if found is None else found[1]

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request with the cookie; None without the cookie.

        :raises Refused: 401 when the session has ended; 503 while the master does not answer.
        """
        secret = secret_of(incoming.head)
        if not secret:
            return None
        found = await self._user(secret)
        if found is None:
            raise challenge.unauthorized(incoming.head, ENDED)
        user, record = found
        if incoming.head.path != _NO_USE:
            self._records.used(KIND, record.key)
        return user

    async def present(self, incoming: Incoming) -> User | None:
        """Return the user of a session as :meth:`identify`, without a use of it; None at its end.

        :raises Refused: 503 while the master does not answer.
        """
        found = await self._user(secret_of(incoming.head))
        return None if found is None else found[0]

    def idle_s(self, record: AccessRecord) -> float:
        """Return for how long a session may have no requests: the shorter one of two limits."""
        return min(float(record.data.get("idle", self._limits.idle_s)), self._limits.idle_s)

    async def _user(self, secret: str) -> tuple[User, AccessRecord] | None:
        record = await self._record(secret)
        user = None if record is None else self.user_of(record, secret)
        return None if record is None or user is None else (user, record)

    def user_of(self, record: AccessRecord, secret: str) -> User | None:
        """Return the user of a valid session; None if his rights have ended."""
        rights = self._rights(record, secret)
        if rights is None:
            return None
        groups = tuple(record.data.get("groups", ()))
        return User(record.owner, rights, BY, public_id(record), groups)

    async def _record(self, secret: str) -> AccessRecord | None:
        # Anything else is no secret, and no reason to ask the master.
        if not self._tls or len(secret) != _SECRET_LENGTH:
            return None
        record = await self._records.get(KIND, kept_records.digest(secret))
        if record is None or self._is_idle(record):
            return None
        if record.ctime + self._limits.whole_s <= self._records.now():
            return None
        return record

    def _rights(self, record: AccessRecord, secret: str) -> Rights | None:
        """Return the present rights of the user of a session; None if he has none any more."""
        words = record.data.get("rights")
        if words is not None:
            return self._users.rights(words)[0]
        fingerprint = self._fingerprint(record.owner, secret)
        account = self._users.account(record.owner)
        if account is None or fingerprint is None:
            return None
        if not hmac.compare_digest(fingerprint, str(record.data.get("account"))):
            return None
        return account.rights

    def _fingerprint(self, name: str, secret: str) -> str | None:
        account = self._users.account(name)
        if account is None:
            return None
        text = f"{account.name}\0{account.password.form}\0{account.password.value}"
        return hmac.new(
            secret.encode(), text.encode("utf-8", "surrogatepass"), "sha256"
        ).hexdigest()

    def _is_idle(self, record: AccessRecord) -> bool:
        return last_use(record) + self.idle_s(record) <= self._records.now()

    async def _keys_to_end(self, name: str, secret: str) -> list[str]:
        """Return the sessions which end with a login."""
        own = await self._records.of_owner(KIND, name)
        idle = [one.key for one in own if self._is_idle(one)]
        left = sorted((one for one in own if not self._is_idle(one)), key=last_use)
        extra = max(0, len(left) - (MOST_OF_USER - 1))
        found = {*idle, *(one.key for one in left[:extra])}
        former = await self._record(secret)
        if former is not None:
            found.add(former.key)
        return sorted(found)


def last_use(record: AccessRecord) -> float:
    """Return the time of the last request of a session, or of its login."""
    return max(record.ctime, record.used or 0.0)


def end_of(record: AccessRecord, idle_s: float | None = None) -> float:
    """Return when a session ends without further requests, in seconds since 1970.

    :param idle_s: how long it may have no requests; None for the limit at its login.
    """
    limit_s = float(record.data.get("idle", IDLE_S)) if idle_s is None else idle_s
    idle_end = last_use(record) + limit_s
    return idle_end if record.expires is None else min(idle_end, record.expires)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:_AGENT_LENGTH]


def shown(sessions: Sessions, record: AccessRecord, current: str = "") -> Mapping[str, Any]:
    """Return what a client learns about a session.

    :param current: the public id of the session of the request.
    """
    return {
        "id": public_id(record),
        "user": record.owner,
        "by": str(record.data.get("by", "")),
        "address": str(record.data.get("address", "")),
        "agent": str(record.data.get("agent", "")),
        "since": record.ctime,
        "used": last_use(record),
        "ends": end_of(record, sessions.idle_s(record)),
        "ends_at_last": record.expires,
        "idle_s": sessions.idle_s(record),
        "current": public_id(record) == current,
    }
