"""Asks the provider: its addresses, its keys, and tokens for a code.

What it says about itself and its keys is kept for an hour. When a token has another key, the keys
are asked for again, at most every :data:`ROTATION_S`: so a provider may change them at any time,
and nobody makes this server ask without end.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

from ganeti import errors
from ganeti.http import web
from ganeti.http.messages import Refused
from ganeti.rapi.oidc import verify
from ganeti.rapi.oidc.settings import Settings
from ganeti.wire import json

_log = logging.getLogger(__name__)

#: Seconds for which addresses and keys are kept, and between two questions for new keys.
FRESH_S: Final = 3600.0
ROTATION_S: Final = 30.0
_TIMEOUT_S: Final = 10.0
# Requests at a time: a slow provider leaves threads for others.
_AT_ONCE: Final = 8
_MOST_BYTES: Final = 512 * 1024
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
_ACCEPT: Final = ("Accept", "application/json")
_SHOWN: Final = 200


#: Sends a request, as :func:`ganeti.http.web.request`.
Send = Callable[..., Awaitable[web.Answer]]


class Addresses(NamedTuple):
    """What the provider says about itself.

    :ivar posts_secret: it takes the secret of a client in the body only.
    :ivar names_itself: it says in its answers who it is (RFC 9207).
    """

    authorization: str
    token: str
    keys: str
    userinfo: str
    logout: str
    posts_secret: bool
    names_itself: bool


class Tokens(NamedTuple):
    """The answer to a code."""

    id_token: str
    access_token: str


class Provider:
    """One provider.

    :param clock: seconds of a clock which never jumps.
    :param now: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        send: Send = web.request,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._send = send
        self._clock = clock
        self._now = now
        self._addresses: tuple[float, Addresses] | None = None
        self._keys: tuple[float, list[Mapping[str, Any]]] | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def addresses(self) -> Addresses:
        """Return the addresses of the provider.

        :raises Refused: 502 with the reason.
        """
        if self._addresses is None or self._clock() - self._addresses[0] > FRESH_S:
            found = await self._document(self.settings.issuer.rstrip("/") + _WELL_KNOWN)
            self._addresses = (self._clock(), _addresses(found, self.settings))
        return self._addresses[1]

    async def tokens(self, code: str, verifier: str) -> Tokens:
        """Exchange a code.

        :param verifier: what belongs to the challenge of this login.
        :raises Refused: 502 with the reason, 403 if the provider does not accept the code.
        """
        addresses = await self.addresses()
        settings = self.settings
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.callback,
            "code_verifier": verifier,
        }
        headers = [_FORM, _ACCEPT]
        if settings.client_secret and not addresses.posts_secret:
            words = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            encoded = base64.b64encode(words.encode()).decode()
            headers.append(("Authorization", f"Basic {encoded}"))
        else:
            fields["client_id"] = settings.client_id
            if settings.client_secret:
                fields["client_secret"] = settings.client_secret
        answer = await self._ask("POST", addresses.token, headers, urlencode(fields).encode())
        found = _object(answer.body)
        if answer.status != 200 or found is None:
            why = _error_of(found)
            _log.warning("the provider refuses a code: status %d%s", answer.status, why)
            raise Refused(
                502 if answer.status >= 500 or found is None else 403,
                f"the provider does not accept the login: status {answer.status}{why}",
            )
        id_token, access = found.get("id_token"), found.get("access_token")
        if not isinstance(id_token, str):
            raise _wrong("its answer to the code has no ID token")
        return Tokens(id_token, access if isinstance(access, str) else "")

    async def claims(self, tokens: Tokens, nonce: str) -> dict[str, Any]:
        """Verify an ID token; return its claims.

        :raises Refused: 502 with the reason.
        """
        try:
            try:
                return self._verified(tokens, nonce, await self._present_keys())
            except verify.UnknownKey:
                return self._verified(tokens, nonce, await self._present_keys(ROTATION_S))
        except verify.InvalidToken as err:
            raise _wrong(f"its ID token is not valid: {err}") from err
        except verify.LibraryMissing as err:
            _log.error("%s", err)
            raise Refused(502, f"this node cannot verify the login: {err}") from err

    async def userinfo(self, tokens: Tokens, subject: str) -> dict[str, Any]:
        """Return further claims about the person; empty if the provider has none.

        :raises Refused: 502 with the reason.
        """
        url = (await self.addresses()).userinfo
        if not url or not tokens.access_token.isascii() or not tokens.access_token.isprintable():
            return {}
        bearer = ("Authorization", f"Bearer {tokens.access_token}")
        answer = await self._ask("GET", url, [_ACCEPT, bearer], None)
        found = _object(answer.body)
        if answer.status != 200 or found is None:
            return {}
        if found.get("sub") != subject:
            raise _wrong("its answer about the user is about another one (sub)")
        return found

    def _verified(
        self, tokens: Tokens, nonce: str, keys: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return verify.verify(
            tokens.id_token,
            keys,
            issuer=self.settings.issuer,
            client_id=self.settings.client_id,
            nonce=nonce,
            access_token=tokens.access_token,
            now=self._now(),
        )

    async def _present_keys(self, older_than_s: float = FRESH_S) -> list[Mapping[str, Any]]:
        """Return the keys of the provider; ask for them if they are older than that."""
        if self._keys is None or self._clock() - self._keys[0] > older_than_s:
            found = (await self._document((await self.addresses()).keys)).get("keys")
            if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
                raise _wrong("its keys are not a list of keys (JWKS)")
            self._keys = (self._clock(), found)
        return self._keys[1]

    async def _document(self, url: str) -> dict[str, Any]:
        answer = await self._ask("GET", url, [_ACCEPT], None)
        found = _object(answer.body)
        if answer.status != 200 or found is None:
            raise _wrong(f"{url} has status {answer.status}, and not a JSON object with status 200")
        return found

    async def _ask(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes | None
    ) -> web.Answer:
        try:
            async with self._turns:
                return await self._send(
                    method,
                    url,
                    headers=headers,
                    body=body,
                    timeout_s=_TIMEOUT_S,
                    most_bytes=_MOST_BYTES,
                    ca_file=self.settings.ca_file,
                )
        except web.WebError as err:
            _log.error("the provider of logins does not answer: %s", err)
            raise Refused(502, f"the provider of logins does not answer: {err}") from err


def _addresses(found: Mapping[str, Any], settings: Settings) -> Addresses:
    """Read what a provider says about itself.

    :raises Refused: 502 with the reason.
    """
    if found.get("issuer") != settings.issuer:
        shown = str(found.get("issuer"))[:_SHOWN]
        raise _wrong(f"it calls itself '{shown}', and the settings call it '{settings.issuer}'")
    urls = {}
    for name, required in (
        ("authorization_endpoint", True),
        ("token_endpoint", True),
        ("jwks_uri", True),
        ("userinfo_endpoint", False),
        ("end_session_endpoint", False),
    ):
        url = found.get(name, "")
        if not url and not required:
            urls[name] = ""
            continue
        try:
            web.server_of(url if isinstance(url, str) else "")
        except web.WebError as err:
            raise _wrong(f"its member {name} cannot be used: {err}") from err
        urls[name] = url
    methods = found.get("token_endpoint_auth_methods_supported")
    posts = (
        isinstance(methods, list)
        and "client_secret_basic" not in methods
        and "client_secret_post" in methods
    )
    names_itself = found.get("authorization_response_iss_parameter_supported") is True
    return Addresses(
        urls["authorization_endpoint"],
        urls["token_endpoint"],
        urls["jwks_uri"],
        urls["userinfo_endpoint"],
        urls["end_session_endpoint"],
        posts,
        names_itself,
    )


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except errors.ParseError:
        return None
    return found if isinstance(found, dict) else None


def _error_of(found: Mapping[str, Any] | None) -> str:
    """Return the error which a provider gives, as the end of a sentence."""
    words = [str(found[key]) for key in ("error", "error_description") if found and found.get(key)]
    text = ": ".join(words)[:_SHOWN]
    return f", {text}" if text.isprintable() and text else ""


def _wrong(what: str) -> Refused:
    _log.error("the provider of logins: %s", what)
    return Refused(502, f"the provider of logins gives a wrong answer: {what}")
