"""Login, logout and sessions."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import login, sessions, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    ANYBODY,
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
)
from ganeti.rapi.resources.common import NULL
from ganeti.rapi.sessions import Opened, Sessions
from ganeti.rapi.users import User

COOKIE: Final = {"Set-Cookie": "the cookie of the session"}


class _Session(TypedDict):
    id: str
    user: str
    by: str
    address: str
    agent: str
    since: float
    used: float
    ends: float
    ends_at_last: float | None
    idle_s: float
    current: bool


class _Who(TypedDict):
    user: str
    rights: str
    limited: bool
    by: str
    groups: list[str]
    session: _Session | None


def sessions_of(call: Call) -> Sessions:
    """Return the sessions.

    :raises Refused: 403 for a server which has none.
    """
    if call.identity.sessions is None:
        raise Refused(403, "this server has no sessions")
    return call.identity.sessions


async def _log_in(call: Call) -> dict[str, Any]:
    found = sessions_of(call)
    assert call.identity.users is not None and call.incoming is not None
    opened = await login.log_in(
        found,
        call.identity.users,
        call.identity.factors,
        call.incoming,
        name=call.body["user"],
        password=call.body["password"],
        code=call.body["code"],
    )
    return begun(call, opened)


def begun(call: Call, opened: Opened) -> dict[str, Any]:
    """Set the cookie of a session which has begun; returns the answer."""
    found = sessions_of(call)
    call.answer_headers.append(("Set-Cookie", opened.cookie))
    user = found.user_of(opened.record, opened.secret)
    assert user is not None
    return _who(found, user, opened.record)


async def _log_out(call: Call) -> None:
    assert call.incoming is not None
    if call.identity.sessions is not None:
        await call.identity.sessions.close(call.incoming.head)
    call.answer_headers.append(sessions.no_cookie())


async def _present(call: Call) -> dict[str, Any]:
    assert call.who is not None
    found, record = call.identity.sessions, None
    if call.who.session and found is not None and call.incoming is not None:
        record = await found.of_request(call.incoming)
    return _who(found, call.who, record)


def _who(found: Sessions | None, user: User, record: AccessRecord | None) -> dict[str, Any]:
    session = None
    if found is not None and record is not None:
        session = sessions.shown(found, record, user.session)
    return {
        "user": user.name,
        "rights": str(user.rights),
        "limited": user.rights.limited,
        "by": user.by,
        "groups": list(user.groups),
        "session": session,
    }


async def _list(call: Call) -> list[dict[str, Any]]:
    found = call.identity.sessions
    assert call.who is not None
    if found is None:
        return []
    return [
        dict(sessions.shown(found, one, call.who.session))
        for one in await found.every(_owner(call, call.who))
    ]


async def _end(call: Call) -> None:
    found = sessions_of(call)
    assert call.who is not None
    wanted = call.uri["session_id"]
    for one in await found.every(_owner(call, call.who)):
        if sessions.public_id(one) == wanted:
            await found.end(one)
            return
    raise Refused(404, f"there is no session {wanted[:40]}; it may have ended")


def _owner(call: Call, user: User) -> str | None:
    """Return whose sessions a user may see and end; None for those of all users.

    :raises Refused: 403 for a token, which is for a program, without the right for all.
    """
    if user.rights.area(user.name, WRITERS, call.handler, GET) is None:
        return None
    if user.by == "token":
        raise Refused(403, "this token does not give the right to the sessions of users")
    return user.name


_ONE: Final = typed.of(_Session)
RESULT: Final = Result(
    typed.of(_Who),
    "the user, his rights, how he is identified (password, session, token or certificate), and his"
    " session with its limits",
)

RESOURCES: Final = (
    Resource(
        "/2/login",
        "login",
        {
            POST: DirectChange(
                _log_in,
                "Begin a session for a browser. The answer sets its cookie, which ends with the"
                " browser. The body of an answer 401 names in factors what the user has to give"
                " besides his password.",
                RESULT,
                fields={
                    "user": Field(ht.NonEmptyString, "name of the user", required=True),
                    "password": Field(ht.Str, "his password", required=True),
                    "code": Field(ht.Str, "the code of his second factor", default=""),
                },
                access=ANYBODY,
                # A password waits for its turn, and is no request to the master.
                waits=True,
                headers=COOKIE,
                alone=True,
                identifies=True,
            ),
        },
    ),
    Resource(
        "/2/logout",
        "logout",
        {
            POST: DirectChange(
                _log_out,
                "End the session whose cookie the request has, if any, and remove the cookie.",
                NULL,
                access=ANYBODY,
                headers=COOKIE,
                alone=True,
                identifies=True,
            ),
        },
    ),
    Resource(
        "/2/session",
        "session",
        {
            GET: Read(
                _present,
                "Who sends the request, and with which rights. This does not count as a use of the"
                " session.",
                RESULT,
                access=USERS,
            ),
        },
    ),
    Resource(
        "/2/sessions",
        "sessions",
        {
            GET: Read(
                _list,
                "List the sessions of the user; with the right write, those of all users.",
                Result(ht.ListOf(_ONE), "the sessions, the oldest one first"),
                access=USERS,
            ),
        },
    ),
    Resource(
        "/2/sessions/{session_id}",
        "sessions_id",
        {
            DELETE: DirectChange(
                _end,
                "End a session of the user; with the right write, also one of another user.",
                NULL,
                access=USERS,
            ),
        },
    ),
)
