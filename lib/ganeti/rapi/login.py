"""A login with a name, a password, and what else the user has set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ganeti.http.event_server import Incoming
from ganeti.rapi import challenge
from ganeti.rapi.sessions import Opened, Sessions
from ganeti.rapi.users import WRONG, Users


class SecondFactor(Protocol):
    """What a user proves besides his password.

    :ivar name: such as ``totp``.
    """

    name: str

    async def needed(self, name: str) -> bool:
        """Return whether a user has set it up."""

    async def check(self, name: str, code: str) -> None:
        """Check a code.

        :raises Refused: 401 for a wrong one, 429 after too many of them.
        """


async def log_in(
    sessions: Sessions,
    users: Users,
    factors: Sequence[SecondFactor],
    incoming: Incoming,
    *,
    name: str,
    password: str,
    code: str,
) -> Opened:
    """Begin a session for a user with a password, and a code if he has a second factor.

    Wrong passwords are counted as those of HTTP basic authentication, in the same counters.

    :raises Refused: 401 when something is wrong, or missing: then ``factors`` of the body names it;
        as :meth:`ganeti.rapi.users.Users.check` and :meth:`ganeti.rapi.sessions.Sessions.open`.
    """
    sessions.require_tls()
    users.refresh_if_due()
    if await users.check(name, password, incoming.peer) is None:
        raise challenge.unauthorized(incoming.head, WRONG)
    by = "password"
    for factor in factors:
        if not await factor.needed(name):
            continue
        if not code:
            refused = challenge.unauthorized(
                incoming.head, f"this login also needs a code ({factor.name}), as 'code'"
            )
            refused.members["factors"] = [factor.name]
            raise refused
        await factor.check(name, code)
        by += f"+{factor.name}"
        break
    return await sessions.open(name, by, incoming)
