"""Login at another server by OpenID Connect: the way there, the way back, logging out there.

A browser gets pages, also for refusals; a program gets JSON.
"""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.rapi import represent
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, TEXT, Query, Read, Resource, Result
from ganeti.rapi.oidc import flow
from ganeti.rapi.oidc.logins import OidcLogins
from ganeti.rapi.oidc.settings import CALLBACK

_PAGE: Final = Result(ht.Str, "a page")
_BACK: Final = (
    Query("code", "the code of the provider", TEXT),
    Query("state", "which login it was", TEXT),
    Query("iss", "the provider", TEXT),
    Query("error", "why the provider has refused the login", TEXT),
    Query("error_description", "the same for people", TEXT),
)
_SET_COOKIE: Final = "Set-Cookie"


def _logins(call: Call) -> OidcLogins:
    found = call.identity.oidc
    if found is None:
        raise Refused(404, "logins at another server (OpenID Connect) are not set up here")
    return found


def _for_browsers(run: Callable[[Call], Awaitable[bytes]]) -> Callable[[Call], Awaitable[Any]]:
    """Give a person who is in front of a browser a page in place of JSON when he is refused."""

    async def serve(call: Call) -> bytes:
        try:
            return await run(call)
        except Refused as err:
            in_browser = call.headers.get("sec-fetch-mode") == "navigate"
            if not in_browser or not represent.prefers_html(call.headers.get("accept")):
                raise
            call.status = err.status
            call.answer_headers += err.headers
            return flow.refusal_page(err.status, str(err))

    return serve


def _go_to(call: Call, location: str) -> bytes:
    call.status = http.HTTPStatus.SEE_OTHER
    call.answer_headers.append(("Location", location))
    return b""


async def _begin(call: Call) -> bytes:
    begun = await _logins(call).begin(call.headers.get("cookie", ""))
    call.answer_headers.append((_SET_COOKIE, begun.cookie))
    return _go_to(call, begun.location)


async def _finish(call: Call) -> bytes:
    logins = _logins(call)
    given = {one.name: call.query[one.name] for one in _BACK if call.query[one.name] is not None}
    found = await logins.finish(call.headers.get("cookie", ""), given, call.address)
    sessions = call.identity.sessions
    assert call.incoming is not None
    assert sessions is not None
    opened = await sessions.open(
        found.name, "oidc", call.incoming, groups=found.groups, rights_text=found.rights
    )
    call.answer_headers += [(_SET_COOKIE, opened.cookie), (_SET_COOKIE, flow.forget_cookie())]
    return flow.welcome_page(found.name, logins.after())


async def _logout(call: Call) -> bytes:
    return _go_to(call, await _logins(call).logout())


_LOCATION: Final = {"Location": "where the browser goes"}
_LED: Final = {303: "the browser goes to the provider"}

RESOURCES: Final = (
    Resource(
        "/2/login/oidc",
        "login_oidc",
        {
            GET: Read(
                _for_browsers(_begin),
                "Log in at another server (OpenID Connect), for browsers.",
                _PAGE,
                produces="text/html",
                headers={**_LOCATION, _SET_COOKIE: "keeps what belongs to this login"},
                statuses=_LED,
            ),
        },
    ),
    Resource(
        CALLBACK,
        "login_oidc_callback",
        {
            GET: Read(
                _for_browsers(_finish),
                "Finish a login: the other server sends the browser here. The answer opens a"
                " session.",
                _PAGE,
                _BACK,
                produces="text/html",
                headers={_SET_COOKIE: "the cookie of the session"},
                secret=True,
            ),
        },
    ),
    Resource(
        "/2/login/oidc/logout",
        "login_oidc_logout",
        {
            GET: Read(
                _for_browsers(_logout),
                "Log out at the other server; DELETE /2/session or POST /2/logout ends the session"
                " on this one.",
                _PAGE,
                produces="text/html",
                headers=_LOCATION,
                statuses=_LED,
            ),
        },
    ),
)
