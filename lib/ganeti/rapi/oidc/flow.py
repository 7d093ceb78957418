"""One login: the way to the provider, and the way back.

The browser keeps one secret, in a cookie for ten minutes. The *state*, the *nonce* and the secret
of PKCE are made from it and from the number of the login, so nothing is stored here: a restart of
the daemon or a failover in between ends no login, and logins in several tabs do not disturb each
other. Who does not have the cookie cannot finish a login, so nobody can log another person in.

The cookie has ``SameSite=Lax``, as the provider is another site, and the browser comes from there.
For the same reason the way back ends with a page, and not with a redirection: a browser would not
send the cookie of the session, which is ``Strict``, along a chain that another site has begun.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode

from ganeti.http.messages import Refused
from ganeti.rapi.oidc.person import Person, is_complete, person
from ganeti.rapi.oidc.provider import Provider

#: Name of the cookie, and how long a login may take, in seconds.
COOKIE: Final = "__Host-ganeti-oidc"
LOGIN_S: Final = 600
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE: Final = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")
_CODE: Final = re.compile(r"[\x20-\x7e]{1,4096}")
_SHOWN: Final = 300
_AGAIN: Final = "Begin the login again."


class Begun(NamedTuple):
    """A login which has begun.

    :ivar location: where the browser has to go.
    :ivar cookie: the value of ``Set-Cookie``.
    """

    location: str
    cookie: str


async def begin(provider: Provider, cookies: str, now: Callable[[], float] = time.time) -> Begun:
    """Begin a login.

    :param cookies: the header ``Cookie`` of the request.
    :raises Refused: 502 when the provider cannot be asked.
    """
    settings = provider.settings
    addresses = await provider.addresses()
    secret = _secret_of(cookies) or secrets.token_urlsafe(32)
    number = f"{int(now())}.{secrets.token_urlsafe(16)}"
    challenge = hashlib.sha256(_made(secret, "verifier", number).encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": settings.callback,
        "scope": " ".join(settings.scopes),
        "state": f"{number}.{_made(secret, 'state', number)}",
        "nonce": _made(secret, "nonce", number),
        "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    sign = "&" if "?" in addresses.authorization else "?"
    return Begun(f"{addresses.authorization}{sign}{urlencode(query)}", _set_cookie(secret, LOGIN_S))


async def finish(
    provider: Provider,
    cookies: str,
    query: Mapping[str, str],
    now: Callable[[], float] = time.time,
) -> Person:
    """Finish a login, with the query with which the browser came back.

    :raises Refused: 400 if it is not a login of this browser, 403 if the person may not log in, 502
        when the provider does not answer as it must.
    """
    secret, number = _login(cookies, query.get("state", ""), now())
    addresses = await provider.addresses()
    issuer = query.get("iss")
    if issuer != provider.settings.issuer and (issuer is not None or addresses.names_itself):
        raise Refused(400, f"the answer comes from another provider (iss). {_AGAIN}")
    if "error" in query:
        words = ": ".join(query[key] for key in ("error", "error_description") if key in query)
        shown = "".join(sign if sign.isprintable() else " " for sign in words)[:_SHOWN]
        raise Refused(403, f"the provider has refused the login: {shown}")
    code = query.get("code", "")
    if not _CODE.fullmatch(code):
        raise Refused(400, f"the provider has sent no code. {_AGAIN}")
    tokens = await provider.tokens(code, _made(secret, "verifier", number))
    claims = await provider.claims(tokens, _made(secret, "nonce", number))
    if not is_complete(claims, provider.settings):
        more = await provider.userinfo(tokens, claims["sub"])
        # What the token says was signed, and counts.
        claims = {**more, **claims}
    return person(claims, provider.settings)


async def logout(provider: Provider) -> str:
    """Return the address at which the provider ends its own session.

    :raises Refused: 404 if it has none, 502 when it cannot be asked.
    """
    addresses = await provider.addresses()
    if not addresses.logout:
        raise Refused(404, "the provider has no address for logging out")
    settings = provider.settings
    query = {
        "client_id": settings.client_id,
        "post_logout_redirect_uri": settings.address + settings.after,
    }
    sign = "&" if "?" in addresses.logout else "?"
    return f"{addresses.logout}{sign}{urlencode(query)}"


def forget_cookie() -> str:
    """Return the value of ``Set-Cookie`` which removes the cookie of a login."""
    return _set_cookie("", 0)


def welcome_page(name: str, path: str) -> bytes:
    """Return the page which a person sees for a moment after the login."""
    address = html.escape(path, quote=True)
    return _page(
        "Logged in",
        f'<p>You are logged in as {html.escape(name)}.</p><p><a href="{address}">Go on</a></p>',
        f'<meta http-equiv="refresh" content="0; url={address}">',
    )


def refusal_page(status: int, message: str) -> bytes:
    """Return the page for a person who could not log in."""
    return _page(
        "Not logged in",
        f"<p>{html.escape(message)}</p><p>Status {status}."
        ' <a href="/2/login/oidc">Log in again</a></p>',
    )


def _page(title: str, content: str, head: str = "") -> bytes:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>{head}'
        f"</head><body><h1>{title}</h1>{content}</body></html>\n"
    ).encode()


def _set_cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax"


def _secret_of(cookies: str) -> str:
    """Return the secret in the cookies of a browser; empty without one."""
    for word in cookies.split(";"):
        name, _, value = word.strip().partition("=")
        if name == COOKIE and _SECRET.fullmatch(value):
            return value
    return ""


def _login(cookies: str, state: str, now: float) -> tuple[str, str]:
    """Return the secret of the browser and the number of the login.

    :raises Refused: 400 if the browser has not begun this login, or too long ago.
    """
    secret = _secret_of(cookies)
    found = _STATE.fullmatch(state)
    if not secret or found is None:
        raise Refused(
            400,
            "this browser has not begun the login, or it took longer than"
            f" {LOGIN_S // 60} minutes, or cookies are switched off. {_AGAIN}",
        )
    number = f"{found[1]}.{found[2]}"
    if not hmac.compare_digest(found[3], _made(secret, "state", number)):
        raise Refused(400, f"the answer belongs to a login of another browser (state). {_AGAIN}")
    if not 0 <= now - int(found[1]) + 1 <= LOGIN_S:
        raise Refused(400, f"the login took longer than {LOGIN_S // 60} minutes. {_AGAIN}")
    return secret, number


def _made(secret: str, purpose: str, number: str) -> str:
    """Return a value for one purpose of one login, which only the owner of the secret can make."""
    found = hmac.digest(secret.encode(), f"{purpose} {number}".encode(), "sha256")
    return base64.urlsafe_b64encode(found).decode().rstrip("=")
