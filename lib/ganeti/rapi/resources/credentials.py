"""Access tokens and client certificates of the user who asks; those of all users for an admin.

A program with a token or a certificate cannot make others: who gets hold of one for a moment shall
not be able to make one that lasts. It removes some only with the right ``write``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.rapi import certificates, credentials, kept_records, tokens, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    DELETE,
    GET,
    POST,
    USERS,
    WRITERS,
    DirectChange,
    Field,
    Read,
    Resource,
    Result,
)  # fmt: skip
from ganeti.rapi.resources.common import NULL
from ganeti.rapi.users import User, Users

#: The kind of the records of sessions.
_SESSION: Final = "session"
#: How users of credentials are identified.
_PROGRAMS: Final = (tokens.KIND, certificates.KIND)


class _NewToken(credentials.Shown):
    """A token with its secret, which is shown only now."""

    token: str


def _user(call: Call) -> User:
    if call.who is None:
        raise Refused(401)
    return call.who


def _sees_all(user: User, handler: str) -> bool:
    """Return whether a user manages the credentials of all users."""
    return user.rights.area(user.name, WRITERS, handler, DELETE) is None


def _lister(kind: str) -> Callable[[Call], Awaitable[Any]]:
    async def listed(call: Call) -> Any:
        user = _user(call)
        records = call.identity.records
        if _sees_all(user, call.handler):
            found = await records.every(kind)
        else:
            found = await records.of_owner(kind, user.name)
        return [credentials.shown(one) for one in found]

    return listed


def _remover(kind: str) -> Callable[[Call], Awaitable[Any]]:
    async def remove(call: Call) -> None:
        user = _user(call)
        wanted = call.uri[f"{kind}_id"]
        all_users = _sees_all(user, call.handler)
        if user.by in _PROGRAMS and not all_users:
            raise Refused(403, f"a {user.by} without the right 'write' removes no {kind}s")
        for one in await call.identity.records.every(kind):
            if credentials.public_id(one.key) == wanted and (all_users or one.owner == user.name):
                await call.identity.records.change(kept_records.remove(kind, one.key))
                return
        raise Refused(404, f"{kind} {wanted[:100]} does not exist")

    return remove


def _rights(call: Call, users: Users) -> str:
    """Return the words for the rights of a new credential.

    :raises Refused: 400: one of them is not a right.
    """
    words = str(call.body["rights"] or "")
    problems = users.rights(words)[1]
    if problems:
        raise Refused(400, problems[0])
    return words


async def _rights_of_session(call: Call, user: User) -> str | None:
    """Return the words for the rights which the session of the request has; None without any.

    They are those of a user whom another server knows, and who has no line in the users file.
    """
    if not user.session:
        return None
    for one in await call.identity.records.of_owner(_SESSION, user.name):
        if one.key.startswith(user.session) and "rights" in one.data:
            return str(one.data["rights"])
    return None


async def _add_token(call: Call) -> Any:
    user, users = _user(call), call.identity.users
    if user.by in _PROGRAMS:
        raise Refused(
            403, f"a {user.by} cannot make a token; use your password or log in for this request"
        )
    owner_rights = await _rights_of_session(call, user)
    if users is None or (owner_rights is None and users.account(user.name) is None):
        raise Refused(
            403,
            f"user {user.name} has no line in the users file, and so no tokens of his own; ask an"
            " administrator",
        )
    now = call.identity.records.now()
    end = now + credentials.LIFETIME_S
    expires = end if call.body["expires"] is None else float(call.body["expires"])
    if owner_rights is not None and expires > end:
        raise Refused(400, "a token of a user from another server ends after at most 90 days")
    secret, record = tokens.make(
        credentials.Wanted(
            user.name,
            now,
            call.body["label"],
            _rights(call, users),
            expires,
            owner_rights,
        )
    )
    await call.identity.records.change(kept_records.put(record))
    return {**credentials.shown(record), "token": secret}


_FIELDS: Final = {
    "label": Field(ht.Str, "says in lists what the token is for", ""),
    "rights": Field(
        ht.Str,
        "rights of the token, separated by commas; empty for all rights of the user. The token"
        " never has more rights than the user",
        "",
    ),
    "expires": Field(
        ht.Maybe(ht.NonNeg(ht.Or(ht.Int, ht.Float))),
        "end in seconds since 1970; null for 90 days from now",
    ),
}


def _list(kind: str) -> Read:
    return Read(
        _lister(kind),
        f"List the {kind}s of the user; those of all users for a user with the right to remove"
        " them.",
        Result(typed.of(list[credentials.Shown]), f"the {kind}s, the oldest one first"),
        access=USERS,
    )


def _item(kind: str, path: str, handler: str) -> Resource:
    """Make the resource of one credential."""
    return Resource(
        f"{path}/{{{kind}_id}}",
        handler,
        {
            DELETE: DirectChange(
                _remover(kind), f"Remove a {kind}. It is refused from now on.", NULL, access=USERS
            )
        },
    )


RESOURCES: Final = (
    Resource(
        "/2/tokens",
        "tokens",
        {
            GET: _list(tokens.KIND),
            POST: DirectChange(
                _add_token,
                "Make an access token for the user. It is shown only in this answer.",
                Result(typed.of(_NewToken), "the token, with the secret in the member token"),
                fields=_FIELDS,
                access=USERS,
                secret=True,
                alone=True,
            ),
        },
    ),
    _item(tokens.KIND, "/2/tokens", "tokens_id"),
    # They are added on the master: nobody can see here whether the user has the key.
    Resource("/2/certificates", "certificates", {GET: _list(certificates.KIND)}),
    _item(certificates.KIND, "/2/certificates", "certificates_id"),
)
