"""Access tokens: secrets for programs, each with rights of its own and an end.

A token is a credential (:mod:`ganeti.rapi.credentials`) whose key is the SHA-256 of the secret. A
program sends the secret in the header ``Authorization: Bearer``.

Wrong tokens are not counted as guesses: a secret has 256 random bits, and a look at a table needs
no time that a guesser could make the daemon waste.

Source: RFC 6750 *The OAuth 2.0 Authorization Framework: Bearer Token Usage*.
"""

from __future__ import annotations

import re
from typing import Final

from ganeti.http.event_server import Incoming
from ganeti.http.messages import Head, Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import challenge, credentials
from ganeti.rapi.credentials import Wanted
from ganeti.rapi.kept_records import KeptRecords, digest, secret
from ganeti.rapi.users import User, Users

#: The kind of the access records, and how a user with a token was identified.
KIND: Final = "token"
#: Programs which look for published secrets know a token by this.
PREFIX: Final = "gnt_"

_SECRET: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_UNKNOWN: Final = (
    "the token is not valid: it has ended, it was removed, or it is of another cluster;"
    " 'rapi-passwd token list' on the master shows all tokens"
)
_MALFORMED: Final = (
    f"the header Authorization has no token of this cluster: one begins with {PREFIX} and has"
    f" {len(PREFIX) + 43} characters"
)


def make(wanted: Wanted) -> tuple[str, AccessRecord]:
    """Make a new token.

    :returns: the secret, which is shown once, and the record.
    :raises ParameterError: the label or the end is not allowed.
    """
    text = PREFIX + secret()
    return text, credentials.make(KIND, digest(text), wanted)


class Tokens:
    """The way in for ``Authorization: Bearer``.

    :param users: knows the rights of the owners.
    """

    def __init__(self, kept: KeptRecords, users: Users) -> None:
        self._kept = kept
        self._owners = credentials.Owners(users)

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request with a token; None if it has none.

        :raises Refused: 401 for a token which is not valid, 503 if it cannot be checked.
        """
        scheme, _blank, text = incoming.head.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = text.strip()
        if not _SECRET.fullmatch(text):
            raise _refused(incoming.head, _MALFORMED)
        record = await self._kept.get(KIND, digest(text))
        if record is None:
            raise _refused(incoming.head, _UNKNOWN)
        user = self._owners.user_of(record)
        if user is None:
            raise _refused(incoming.head, credentials.without_owner("token", record))
        self._kept.used(KIND, record.key)
        return user


def _refused(head: Head, message: str) -> Refused:
    return challenge.unauthorized(head, message, bearer=True)
