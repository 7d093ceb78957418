"""Login at a provider of OpenID Connect: one that is real, and one that is hostile."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("authlib", reason="make venv installs it")

from fakes import endless_server
from fakes.endless_server import EndlessServer
from fakes.oidc_provider import OidcProvider, new_key, resigned
from fakes.web_server import Answer
from ganeti import errors
from ganeti.http import web
from ganeti.http.messages import Refused
from ganeti.rapi.oidc import flow
from ganeti.rapi.oidc.flow import Begun
from ganeti.rapi.oidc.person import Person, person
from ganeti.rapi.oidc.provider import FRESH_S, ROTATION_S, Provider
from ganeti.rapi.oidc.settings import MEMBERS, Settings, parse_settings
from ganeti.utils import x509

pytestmark = pytest.mark.programs

ADDRESS = "https://cluster.example.com:5080"
RIGHTS = {"admins": "write", "users": "write@own,operator@tag:web", "lookers": "read"}


class Lab:
    """A provider, a client of it with a clock, and a browser."""

    def __init__(self, directory: Path) -> None:
        self.provider = OidcProvider(directory)
        self.clock = 1000.0
        self.settings = Settings(
            issuer=self.provider.issuer,
            client_id=self.provider.client_id,
            client_secret=self.provider.client_secret,
            address=ADDRESS,
            rights=RIGHTS,
            ca_file=self.provider.ca_file,
        )
        self.client = Provider(self.settings, clock=lambda: self.clock)
        self.cookie = ""

    def begin(self) -> Begun:
        found = asyncio.run(flow.begin(self.client, self.cookie))
        self.cookie = found.cookie.partition(";")[0]
        return found

    def finish(self, query: dict[str, str], now: float | None = None) -> Person:
        clock = {} if now is None else {"now": lambda: now}
        return asyncio.run(flow.finish(self.client, self.cookie, query, **clock))

    def log_in(self) -> Person:
        return self.finish(self.provider.log_in(self.begin().location))

    def refused(self, act: Callable[[], object] | None = None) -> Refused:
        with pytest.raises(Refused) as caught:
            (act or self.log_in)()
        return caught.value


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("oidc"))
    yield lab
    lab.provider.close()


@pytest.fixture
def lab(running: Lab) -> Lab:
    """The same server and key for all tests, and nothing else of the test before."""
    provider = running.provider
    web_server, keys = provider.web, provider.keys[:1]
    fresh = OidcProvider.__new__(OidcProvider)
    fresh.__dict__.update(
        web=web_server, issuer=provider.issuer, keys=keys,
        claims={"preferred_username": "jill", "groups": ["admins", "all"]},
        userinfo={"sub": "subject-1"}, metadata={}, header={"alg": "RS256"},
        change_claims=lambda _claims: None, change_token=lambda token: token, answers={}, _codes={},
    )  # fmt: skip
    web_server.respond = fresh._respond
    web_server.requests.clear()
    found = Lab.__new__(Lab)
    found.__dict__.update(provider=fresh, clock=1000.0, settings=running.settings, cookie="")
    found.client = Provider(found.settings, clock=lambda: found.clock)
    return found


# -- the way to the provider and back --------------------------------------------------------------


def test_a_login(lab: Lab) -> None:
    begun = lab.begin()
    assert re.fullmatch(
        r"__Host-ganeti-oidc=[\w-]{43}; Path=/; Max-Age=600; Secure; HttpOnly; SameSite=Lax",
        begun.cookie,
    )
    query = parse_qs(urlsplit(begun.location).query)
    assert query["scope"] == ["openid profile"]
    assert query["redirect_uri"] == [f"{ADDRESS}/2/login/oidc/callback"]
    # The secret of the browser is in nothing that goes to the provider.
    assert lab.cookie.partition("=")[2] not in begun.location
    found = lab.finish(lab.provider.log_in(begun.location))
    assert found == Person("jill", ("admins",), "write")
    assert lab.provider.paths() == ["/.well-known/openid-configuration", "/token", "/keys"]


def test_what_the_provider_says_about_itself_is_kept(lab: Lab) -> None:
    lab.log_in()
    lab.log_in()
    assert lab.provider.paths().count("/keys") == 1
    lab.clock += FRESH_S + 1
    lab.log_in()
    assert lab.provider.paths().count("/keys") == 2
    assert lab.provider.paths().count("/.well-known/openid-configuration") == 2


def test_logins_in_two_tabs(lab: Lab) -> None:
    one = lab.provider.log_in(lab.begin().location)
    other = lab.provider.log_in(lab.begin().location)
    assert one["state"] != other["state"]
    assert lab.finish(one).name == lab.finish(other).name == "jill"


def test_a_login_of_another_browser(lab: Lab) -> None:
    """The page of an attacker sends a browser to the end of the attacker's own login."""
    query = lab.provider.log_in(lab.begin().location)
    for cookie in ("", "__Host-ganeti-oidc=", "__Host-ganeti-oidc=x", "a=b; c"):
        lab.cookie = cookie
        assert "this browser has not begun" in str(lab.refused(lambda: lab.finish(query)))
    lab.cookie = ""
    lab.begin()
    err = lab.refused(lambda: lab.finish(query))
    assert err.status == 400 and "another browser (state)" in str(err)
    assert "/token" not in lab.provider.paths()


@pytest.mark.parametrize("state", ["", "x", "1.a.b", "9" * 40])
def test_a_state_which_is_none(lab: Lab, state: str) -> None:
    query = lab.provider.log_in(lab.begin().location)
    err = lab.refused(lambda: lab.finish({**query, "state": state}))
    assert err.status == 400


def test_a_state_of_another_time(lab: Lab) -> None:
    query = lab.provider.log_in(lab.begin().location)
    began = int(query["state"].partition(".")[0])
    for now in (began + 601, began - 5):
        err = lab.refused(lambda now=now: lab.finish(query, now))
        assert err.status == 400 and "longer than 10 minutes" in str(err)
    later = query["state"].replace(str(began), str(began + 300), 1)
    assert "(state)" in str(lab.refused(lambda: lab.finish({**query, "state": later})))
    assert lab.finish(query, began + 599).name == "jill"


def test_a_code_counts_once(lab: Lab) -> None:
    query = lab.provider.log_in(lab.begin().location)
    lab.finish(query)
    err = lab.refused(lambda: lab.finish(query))
    assert err.status == 403 and "invalid_grant: no such code" in str(err)


def test_a_code_of_another_login(lab: Lab) -> None:
    """A code which was stolen is of no use: it belongs to another challenge."""
    stolen = lab.provider.log_in(lab.begin().location)["code"]
    mine = lab.provider.log_in(lab.begin().location)
    assert "invalid_grant" in str(lab.refused(lambda: lab.finish({**mine, "code": stolen})))


def test_the_provider_refuses(lab: Lab) -> None:
    state = lab.provider.log_in(lab.begin().location)["state"]
    text = "<b>no</b>\n" + 500 * "x"
    query = {"state": state, "error": "access_denied", "error_description": text}
    err = lab.refused(lambda: lab.finish(query))
    assert err.status == 403 and len(str(err)) < 400
    assert str(err).startswith("the provider has refused the login: access_denied: <b>no</b> x")
    assert b"<b>" not in flow.refusal_page(403, str(err))
    assert "no code" in str(lab.refused(lambda: lab.finish({"state": state})))


def test_who_answers(lab: Lab) -> None:
    query = lab.provider.log_in(lab.begin().location)
    err = lab.refused(lambda: lab.finish({**query, "iss": "https://other.example.com"}))
    assert err.status == 400 and "another provider" in str(err)
    assert lab.finish({**query, "iss": lab.provider.issuer}).name == "jill"
    lab.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    lab.clock += FRESH_S + 1
    assert "another provider" in str(lab.refused())


@pytest.mark.parametrize("methods", [["client_secret_post"], ["none", "client_secret_basic"], None])
def test_the_secret_is_sent_as_the_provider_wants_it(lab: Lab, methods: list[str] | None) -> None:
    lab.provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    lab.log_in()
    sent = next(one for one in lab.provider.web.requests if one.path.endswith("/token"))
    assert (b"client_secret=" in sent.body) == (methods == ["client_secret_post"])
    assert ("authorization" in sent.headers) == (methods != ["client_secret_post"])


def test_a_wrong_secret(lab: Lab) -> None:
    lab.client = Provider(
        Settings(
            lab.settings.issuer, "ganeti", ADDRESS, "wrong", rights=RIGHTS,
            ca_file=lab.settings.ca_file,
        )
    )  # fmt: skip
    err = lab.refused()
    assert "status 401, invalid_client" in str(err)
    assert "wrong" not in repr(lab.client.settings)


def test_logging_out_at_the_provider(lab: Lab) -> None:
    url = asyncio.run(flow.logout(lab.client))
    query = parse_qs(urlsplit(url).query)
    assert url.startswith(lab.provider.issuer + "/logout?")
    assert query["post_logout_redirect_uri"] == [f"{ADDRESS}/2/session"]
    lab.provider.metadata = {"end_session_endpoint": None}
    lab.clock += FRESH_S + 1
    assert lab.refused(lambda: asyncio.run(flow.logout(lab.client))).status == 404


# -- tokens which are not valid --------------------------------------------------------------------

WRONG_CLAIMS: dict[str, Callable[[dict[str, Any]], object]] = {
    "iss": lambda claims: claims.update(iss="https://other.example.com"),
    "iss missing": lambda claims: claims.pop("iss"),
    "aud": lambda claims: claims.update(aud="another-client"),
    "aud missing": lambda claims: claims.pop("aud"),
    "aud empty": lambda claims: claims.update(aud=[]),
    "aud without azp": lambda claims: claims.update(aud=["ganeti", "other"]),
    "azp": lambda claims: claims.update(aud=["ganeti", "other"], azp="other"),
    "exp": lambda claims: claims.update(exp=claims["iat"] - 200),
    "exp missing": lambda claims: claims.pop("exp"),
    "exp no number": lambda claims: claims.update(exp="tomorrow"),
    "iat missing": lambda claims: claims.pop("iat"),
    "nbf": lambda claims: claims.update(nbf=claims["iat"] + 900),
    "nonce": lambda claims: claims.update(nonce="x" * 43),
    "nonce missing": lambda claims: claims.pop("nonce"),
    "nonce empty": lambda claims: claims.update(nonce=""),
    "nonce no text": lambda claims: claims.update(nonce=None),
    "sub missing": lambda claims: claims.pop("sub"),
    "sub empty": lambda claims: claims.update(sub=""),
    "sub no text": lambda claims: claims.update(sub=7),
    "at_hash": lambda claims: claims.update(at_hash="AAAAAAAAAAAAAAAAAAAAAA"),
}


@pytest.mark.parametrize("name", WRONG_CLAIMS)
def test_wrong_claims(lab: Lab, name: str) -> None:
    lab.provider.change_claims = WRONG_CLAIMS[name]
    err = lab.refused()
    assert err.status == 502 and "its ID token is not valid" in str(err)


def test_clocks_may_differ(lab: Lab) -> None:
    lab.provider.change_claims = lambda claims: claims.update(
        exp=claims["iat"] - 60, nbf=claims["iat"] + 60
    )
    assert lab.log_in().name == "jill"


def test_several_audiences(lab: Lab) -> None:
    lab.provider.change_claims = lambda claims: claims.update(aud=["other", "ganeti"], azp="ganeti")
    assert lab.log_in().name == "jill"


def _public_pem(lab: Lab) -> bytes:
    return bytes(lab.provider.keys[-1].as_pem())


WRONG_TOKENS: dict[str, Callable[[Lab, str], str]] = {
    "alg none": lambda _lab, token: resigned(token, {"alg": "none"}, None),
    "alg NONE": lambda _lab, token: resigned(token, {"alg": "NONE", "kid": "one"}, None),
    "HS256 with the public key": lambda lab, token: resigned(
        token, {"alg": "HS256", "kid": "one"}, _public_pem(lab)
    ),
    "HS256 with the secret": lambda lab, token: resigned(
        token, {"alg": "HS256"}, lab.provider.client_secret.encode()
    ),
    "RS256 with HMAC": lambda lab, token: resigned(
        token, {"alg": "RS256", "kid": "one"}, _public_pem(lab)
    ),
    "no signature": lambda _lab, token: token.rpartition(".")[0] + ".",
    "other claims": lambda _lab, token: ".".join(
        (token.split(".")[0], "eyJzdWIiOiJ4In0", token.split(".")[2])
    ),
    "crit": lambda lab, token: resigned(
        token, {"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}, b"x"
    ),
    "encrypted": lambda _lab, _token: "a.b.c.d.e",
    "two parts": lambda _lab, token: token.rpartition(".")[0],
    "no base64": lambda _lab, token: "!" + token,
    "no JSON": lambda _lab, token: "AAAA." + token.partition(".")[2],
    "too long": lambda _lab, token: token + "A" * 70_000,
    "empty": lambda _lab, _token: "",
}


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_wrong_tokens(lab: Lab, name: str) -> None:
    lab.provider.change_token = partial(WRONG_TOKENS[name], lab)
    err = lab.refused()
    assert err.status == 502 and "its ID token is not valid" in str(err)


def test_a_key_in_the_header_does_not_count(lab: Lab) -> None:
    foreign = new_key("foreign")
    shown = lab.provider.keys
    lab.provider.keys = [*shown, foreign]
    lab.provider.header = {"alg": "RS256", "jwk": foreign.as_dict()}
    right = lab.provider._respond
    body = json.dumps({"keys": [key.as_dict() for key in shown]}).encode()
    lab.provider.answers["/keys"] = Answer(body=body)
    assert right and "no key for its signature" in str(lab.refused())


# -- keys of the provider --------------------------------------------------------------------------


def test_new_keys_are_found(lab: Lab) -> None:
    lab.log_in()
    lab.provider.keys = [new_key("two")]
    # The provider is not asked for each token with an unknown key.
    assert "no key for its signature" in str(lab.refused())
    assert lab.provider.paths().count("/keys") == 1
    lab.clock += ROTATION_S + 1
    assert lab.log_in().name == "jill"
    assert lab.provider.paths().count("/keys") == 2


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "ES256"])
def test_other_signatures(lab: Lab, algorithm: str) -> None:
    if algorithm == "ES256":
        lab.provider.keys = [lab.provider.keys[0], new_key("curve", "EC", "P-256")]
    lab.provider.header = {"alg": algorithm}
    assert lab.log_in().name == "jill"


def test_tokens_without_the_name_of_a_key(lab: Lab) -> None:
    lab.provider.keys = [new_key("other"), *lab.provider.keys]
    lab.provider.header = {"alg": "RS256", "kid": None}
    assert lab.log_in().name == "jill"


def test_keys_for_other_purposes_do_not_count(lab: Lab) -> None:
    for change in ({"use": "enc"}, {"alg": "RS512"}, {"kty": "oct"}):
        body = json.dumps({"keys": [{**lab.provider.keys[0].as_dict(), **change}]}).encode()
        lab.provider.answers["/keys"] = Answer(body=body)
        assert "no key for its signature" in str(lab.refused())
        lab.clock += FRESH_S + 1


@pytest.mark.parametrize(
    "keys",
    [b'{"keys": 3}', b'{"keys": [3]}', b"{}", b"[]", b"<html>", b'{"keys": [{"kty": "RSA"}]}'],
)
def test_keys_which_are_none(lab: Lab, keys: bytes) -> None:
    lab.provider.answers["/keys"] = Answer(body=keys)
    assert lab.refused().status == 502


# -- a provider which does not answer, or wrongly --------------------------------------------------


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, b"broken"),
        Answer(200, b"<html>"),
        Answer(200, b"[1]"),
        Answer(200, b"x" * 600_000),
        Answer(302, b"", (("Location", "https://localhost:1/"),)),
    ],
    ids=["500", "html", "list", "huge", "redirection"],
)
def test_wrong_answers(lab: Lab, path: str, answer: Answer) -> None:
    lab.provider.answers[path] = answer
    err = lab.refused()
    assert err.status == 502 and "the provider" in str(err)


def test_an_answer_without_end(lab: Lab, tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed("localhost", host_names=["localhost"]))
    with EndlessServer(str(pem), next(iter(endless_server.ANSWERS)), address="127.0.0.1") as server:
        settings = Settings(
            f"https://localhost:{server.port}", "c", ADDRESS, rights=RIGHTS, ca_file=str(pem)
        )
        lab.client = Provider(settings)
        err = lab.refused(lab.begin)
        assert err.status == 502 and "more than 524288 bytes" in str(err)


def test_no_answer(lab: Lab) -> None:
    async def send(*_words: object, **_options: object) -> web.Answer:
        raise web.WebError("https://id.example.com: timed out")

    lab.client = Provider(lab.settings, send=send)
    err = lab.refused(lab.begin)
    assert err.status == 502 and "https://id.example.com: timed out" in str(err)


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://other.example.com"},
        {"issuer": None},
        {"token_endpoint": "http://localhost/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": 7},
        {"jwks_uri": None},
        {"userinfo_endpoint": "file:///etc/passwd"},
    ],
)
def test_wrong_addresses(lab: Lab, change: dict[str, Any]) -> None:
    lab.provider.metadata = change
    assert lab.refused(lab.begin).status == 502


def test_a_missing_library(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "authlib.jose", None)
    err = lab.refused()
    assert err.status == 502 and "python3-authlib" in str(err)


# -- who it is, and what he may do -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "rights"),
    [
        (["admins"], "write"),
        ("lookers", "read"),
        (["users", "lookers", "x"], "write@own,operator@tag:web,read"),
    ],
)
def test_groups_give_rights(lab: Lab, groups: Any, rights: str) -> None:
    assert person({"preferred_username": "u", "groups": groups}, lab.settings).rights == rights


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"groups": []}, "none of his 0 groups"),
        ({"groups": ["Admins", "x"]}, "none of his 2 groups"),
        ({}, "there is no claim 'groups'"),
        ({"_claim_names": {"groups": "src1"}}, "too many"),
        ({"hasgroups": True}, "too many"),
        ({"groups": {"admins": 1}}, "not a list of names"),
        ({"groups": ["admins", 3]}, "not a list of names"),
        ({"groups": ["x"] * 10_001}, "more than 10000"),
        ({"groups": ["admins"], "preferred_username": None}, "does not name the user"),
        ({"groups": ["admins"], "preferred_username": "a b"}, "cannot be used"),
        ({"groups": ["admins"], "preferred_username": "j\xe4ck"}, "cannot be used"),
        ({"groups": ["admins"], "preferred_username": "x" * 129}, "cannot be used"),
    ],
)
def test_who_has_no_rights(lab: Lab, claims: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        person({"preferred_username": "jill", **claims}, lab.settings)
    assert caught.value.status == 403


def _settings(**more: Any) -> Settings:
    return Settings("https://id.example.com", "c", ADDRESS, rights=RIGHTS, **more)


def test_where_names_and_groups_are() -> None:
    claims = {
        "email": "jill@example.com",
        "email_verified": True,
        "realm_access": {"roles": ["admins"]},
        "https://example.com/groups": ["lookers"],
    }
    for path in (("realm_access.roles",), ("realm_access", "roles")):
        found = person(claims, _settings(name_claim=("email",), groups_claim=path))
        assert found == Person("jill@example.com", ("admins",), "write")
    other = _settings(
        name_claim=("email",), name_prefix="sso-", groups_claim=("https://example.com/groups",)
    )
    assert person(claims, other) == Person("sso-jill@example.com", ("lookers",), "read")
    with pytest.raises(Refused, match="not verified"):
        person({**claims, "email_verified": False}, other)


def test_names_and_groups_at_the_other_address(lab: Lab) -> None:
    lab.provider.claims = {"preferred_username": "jill"}
    lab.provider.userinfo = {"sub": "subject-1", "groups": ["lookers"], "preferred_username": "x"}
    assert lab.log_in() == Person("jill", ("lookers",), "read")
    # A token may have no more than the subject.
    lab.provider.claims = {}
    lab.provider.userinfo = {"sub": "subject-1", "groups": "users", "preferred_username": "jim"}
    assert lab.log_in().name == "jim"
    lab.provider.userinfo = {"sub": "subject-2", "groups": ["admins"]}
    err = lab.refused()
    assert err.status == 502 and "about another one" in str(err)
    lab.provider.answers["/me"] = Answer(401)
    assert "does not name the user" in str(lab.refused())


# -- the settings ----------------------------------------------------------------------------------

FILE = {
    "issuer": "https://id.example.com/realms/main",
    "client_id": "ganeti",
    "address": "https://cluster.example.com:5080/",
    "rights": {"admins": "write"},
}


def _read(**change: Any) -> Settings:
    return parse_settings(
        json.dumps({**FILE, **change}), lambda words: [f"bad {words}"] if words == "bad" else []
    )


def test_a_file() -> None:
    found = _read(client_secret="x", groups_claim=["a", "b"], after="/ui/", name_prefix="sso-")
    assert found.callback == "https://cluster.example.com:5080/2/login/oidc/callback"
    assert found.groups_claim == ("a", "b") and found.scopes == ("openid", "profile")
    assert set(MEMBERS) == set(Settings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issuer": "http://id.example.com"}, "member 'issuer'"),
        ({"issuer": 3}, "member 'issuer'"),
        ({"address": "https://h/path"}, "without a path"),
        ({"after": "//other"}, "member 'after'"),
        ({"after": "/\\other"}, "member 'after'"),
        ({"after": "https://other/"}, "member 'after'"),
        ({"scopes": ["profile"]}, "member 'scopes'"),
        ({"scopes": "openid"}, "member 'scopes'"),
        ({"rights": {}}, "member 'rights'"),
        ({"rights": {"g": ["write"]}}, "member 'rights'"),
        ({"rights": {"g": "bad"}}, "rights of group 'g': bad bad"),
        ({"name_prefix": "a:"}, "member 'name_prefix'"),
        ({"groups_claim": []}, "member 'groups_claim'"),
        ({"grups_claim": "x"}, "no member 'grups_claim'"),
    ],
)
def test_mistakes_in_the_file(change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ParseError) as caught:
        _read(**change)
    assert message in str(caught.value)


def test_all_mistakes_are_named() -> None:
    with pytest.raises(errors.ParseError) as caught:
        parse_settings('{"after": "x", "isuer": "y"}', lambda _words: [])
    for word in ("'after'", "'isuer'", "'issuer' is missing", "'rights' is missing"):
        assert word in str(caught.value)
    for text in ("", "[]", "{", '{"a": 1, "a": 2}'):
        with pytest.raises(errors.ParseError):
            parse_settings(text, lambda _words: [])


# -- a real provider -------------------------------------------------------------------------------


def test_a_real_provider(tmp_path: Path) -> None:
    mock = pytest.importorskip("oidc_provider_mock", reason="make venv installs it")
    serving = pytest.importorskip("werkzeug.serving")
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed("localhost", host_names=["localhost"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    claims = {"preferred_username": "jill", "groups": ["admins"]}
    app = mock.app(user_claims=[mock.User(sub="1", claims=claims)], require_nonce=True)
    server = serving.make_server("localhost", 0, app, threaded=True, ssl_context=context)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        settings = Settings(
            f"https://localhost:{server.server_port}", "ganeti", ADDRESS, "secret",
            rights=RIGHTS, ca_file=str(pem),
        )  # fmt: skip
        asyncio.run(_log_in_at(Provider(settings), str(pem)))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _log_in_at(client: Provider, ca_file: str) -> None:
    begun = await flow.begin(client, "")
    cookie = begun.cookie.partition(";")[0]
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    send = partial(
        web.request, "POST", begun.location, headers=form, timeout_s=60, most_bytes=1 << 20,
        ca_file=ca_file,
    )  # fmt: skip
    answer = await send(body=b"sub=1")
    assert answer.status == 302
    back = answer.header("location")
    assert back.startswith(client.settings.callback)
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    assert await flow.finish(client, cookie, query) == Person("jill", ("admins",), "write")
    with pytest.raises(Refused, match="invalid_grant"):
        await flow.finish(client, cookie, query)
    answer = await send(body=b"action=deny")
    query = {
        name: values[0]
        for name, values in parse_qs(urlsplit(answer.header("location")).query).items()
    }
    # This provider forgets the state, which others send.
    state = parse_qs(urlsplit(begun.location).query)["state"][0]
    with pytest.raises(Refused, match="access_denied"):
        await flow.finish(client, cookie, {"state": state, **query})
    assert (await flow.logout(client)).startswith(client.settings.issuer)
