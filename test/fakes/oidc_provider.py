"""A provider of OpenID Connect which behaves well, or in one of many wrong ways.

It checks what a client must send (PKCE, the address of the way back, the secret), and answers with
a signed token, which a test may change before and after it is signed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fakes.web_server import Answer, Request, WebServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from authlib.jose import JsonWebKey, JsonWebSignature


def new_key(kid: str, kind: str = "RSA", size: Any = 2048) -> Any:
    """Make a key."""
    return JsonWebKey.generate_key(kind, size, {"kid": kid, "use": "sig"}, is_private=True)


class OidcProvider:
    """The provider.

    :ivar keys: those which it shows; it signs with the last one.
    :ivar claims: about the person, besides those of the protocol.
    :ivar userinfo: what it says about the person at the other address.
    :ivar header: of the next tokens.
    :ivar change_claims: changes the claims of the next tokens.
    :ivar change_token: changes the signed token.
    :ivar answers: path -> answer in place of the right one.
    """

    client_id, client_secret = "ganeti", "s:cr%t"

    def __init__(self, directory: Path) -> None:
        self.web = WebServer(directory, self._respond)
        self.issuer = self.web.url + "/realm"
        self.keys = [new_key("one")]
        self.claims: dict[str, Any] = {"preferred_username": "jill", "groups": ["admins", "all"]}
        self.userinfo: dict[str, Any] = {"sub": "subject-1"}
        self.metadata: dict[str, Any] = {}
        self.header: dict[str, Any] = {"alg": "RS256"}
        self.change_claims: Callable[[dict[str, Any]], object] = lambda _claims: None
        self.change_token: Callable[[str], str] = lambda token: token
        self.answers: dict[str, Answer] = {}
        # Code -> the query with which the browser came.
        self._codes: dict[str, dict[str, str]] = {}

    @property
    def ca_file(self) -> str:
        return self.web.ca_file

    def close(self) -> None:
        self.web.close()

    def log_in(self, location: str) -> dict[str, str]:
        """What a browser does with a person who logs in: the query of the way back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        assert location.startswith(self.issuer + "/auth?")
        assert query["client_id"] == self.client_id and query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256" and len(query["code_challenge"]) == 43
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return {"code": code, "state": query["state"]}

    def paths(self) -> list[str]:
        """The paths for which it was asked, without that of the realm."""
        return [request.path.removeprefix("/realm") for request in self.web.requests]

    def _respond(self, request: Request) -> Answer:
        path = request.path.removeprefix("/realm")
        if path in self.answers:
            return self.answers[path]
        found = {
            "/.well-known/openid-configuration": self._metadata,
            "/keys": lambda _request: {"keys": [key.as_dict() for key in self.keys]},
            "/token": self._token,
            "/me": lambda _request: self.userinfo,
        }.get(path)
        value = found(request) if found else {"error": "no such page"}
        return value if isinstance(value, Answer) else Answer(body=json.dumps(value).encode())

    def _metadata(self, _request: Request) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + "/auth",
            "token_endpoint": self.issuer + "/token",
            "jwks_uri": self.issuer + "/keys",
            "userinfo_endpoint": self.issuer + "/me",
            "end_session_endpoint": self.issuer + "/logout",
            **self.metadata,
        }

    def _token(self, request: Request) -> dict[str, Any] | Answer:
        sent = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        query = self._codes.pop(sent.get("code", ""), None)
        if query is None or sent["grant_type"] != "authorization_code":
            return Answer(400, b'{"error": "invalid_grant", "error_description": "no such code"}')
        challenge = hashlib.sha256(sent["code_verifier"].encode()).digest()
        wanted = base64.urlsafe_b64encode(challenge).decode().rstrip("=")
        if wanted != query["code_challenge"] or sent["redirect_uri"] != query["redirect_uri"]:
            return Answer(400, b'{"error": "invalid_grant"}')
        encoded = base64.b64encode(b"ganeti:s%3Acr%25t").decode()
        by_header = request.headers.get("authorization") == f"Basic {encoded}"
        if not by_header and sent.get("client_secret") != self.client_secret:
            return Answer(401, b'{"error": "invalid_client"}')
        return {"access_token": "access", "token_type": "Bearer", "id_token": self._signed(query)}

    def _signed(self, query: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "subject-1",
            "aud": self.client_id,
            "iat": now,
            "exp": now + 300,
            "nonce": query["nonce"],
            **self.claims,
        }
        self.change_claims(claims)
        header = {"kid": self.keys[-1].kid, **self.header}
        header = {name: value for name, value in header.items() if value is not None}
        signer = JsonWebSignature([header["alg"]], private_headers=list(header))
        token = signer.serialize_compact(header, json.dumps(claims).encode(), self.keys[-1])
        return self.change_token(token.decode())


def resigned(token: str, header: dict[str, Any], key: bytes | None) -> str:
    """The same claims with another header: signed by HMAC with these bytes, or not at all."""
    import hmac

    def encode(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    text = f"{encode(json.dumps(header).encode())}.{token.split('.')[1]}"
    mac = b"" if key is None else hmac.digest(key, text.encode(), "sha256")
    return f"{text}.{encode(mac)}"
