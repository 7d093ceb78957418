"""Who sends a request: the ways in which users prove who they are, asked in turn.

A :class:`Way` looks for credentials of one kind in the head of a request. The first way that finds
some decides: wrong ones are refused, also when the request has others of another kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ganeti.http.event_server import Incoming
from ganeti.http.messages import Head, Refused
from ganeti.rapi import challenge, sessions
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.totp_factor import TotpFactor
from ganeti.rapi.users import Account, User


class Way(Protocol):
    """One kind of credentials."""

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request; None if it has no credentials of this kind.

        :raises Refused: 401 for wrong credentials (:func:`ganeti.rapi.challenge.unauthorized`),
            429 after too many wrong ones, 503 if they cannot be checked at present.
        """
        ...


class Identities:
    """All ways in which users may identify themselves.

    :param ways: in the order in which they are asked.
    :ivar proofs: what operations about identities need; None for records of the master only.
    """

    def __init__(self, ways: Sequence[Way], proofs: Proofs | None = None) -> None:
        self._ways = tuple(ways)
        self.proofs = proofs

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request; None without credentials.

        :raises Refused: 401, 429 or 503, as :meth:`Way.identify`.
        """
        for way in self._ways:
            user = await way.identify(incoming)
            if user is not None:
                return user
        return None

    def account(self, user: User) -> Account | None:
        """Return the line of a user who has sent a password; None for others."""
        users = None if self.proofs is None else self.proofs.users
        return users.account(user.name) if users is not None and user.by == "password" else None

    async def remains(self, incoming: Incoming, user: User, account: Account | None) -> bool:
        """Return whether the user of an open connection is still the same, with the same rights.

        To ask is no use of a session.

        :param account: his line when the connection began, as :meth:`account` returned it.
        """
        proofs = self.proofs
        try:
            if user.by == sessions.BY and proofs is not None and proofs.sessions is not None:
                found = await proofs.sessions.present(incoming)
            elif user.by == "password" and proofs is not None and proofs.users is not None:
                # The password itself is not checked again: that is slow.
                return account is not None and self.account(user) == account
            else:
                found = await self.identify(incoming)
        except Refused:
            return False
        return found is not None and found.rights == user.rights

    def challenge(self, head: Head) -> Refused:
        """Make the error for a request which needs credentials and has none."""
        return challenge.unauthorized(head)


class PasswordAlone:
    """The way in for a password in every request (``Authorization: Basic``).

    It is refused for users with a second factor, whose password alone proves nothing.

    :param inner: the way in which passwords are checked.
    """

    def __init__(self, inner: Way, factor: TotpFactor) -> None:
        self._inner = inner
        self._factor = factor

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request; None if it has no password.

        :raises Refused: those of the inner way; 403 for a user with a second factor; 503 if it
            cannot be known whether he has one.
        """
        user = await self._inner.identify(incoming)
        if user is not None and await self._factor.needed(user.name):
            raise Refused(
                403,
                f"user {user.name} has a second factor, so a password in every request is not"
                " sufficient. Log in (POST /2/login), or use a token (rapi-passwd token add).",
            )
        return user
