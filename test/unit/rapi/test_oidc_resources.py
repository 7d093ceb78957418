"""Login at a provider through the interface, as a browser does it, and what may go wrong."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("authlib", reason="make venv installs it")

from fakes.access_master import AccessMaster
from fakes.http_lab import HttpLab
from fakes.oidc_provider import OidcProvider
from fakes.web_server import Answer
from ganeti.http.messages import Refused
from ganeti.rapi.application import RestApplication
from ganeti.rapi.challenge import SESSION_COOKIE
from ganeti.rapi.identify import Identities
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.oidc.logins import BURST, OidcLogins
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.sessions import Sessions
from ganeti.rapi.users import Users

pytestmark = pytest.mark.programs

HANDLERS = {resource.handler for resource in RESOURCES}
#: A person who opens an address, or comes back from another site.
PERSON = {
    "accept": "text/html,application/xhtml+xml,*/*;q=0.8",
    "sec_fetch_site": "cross-site",
    "sec_fetch_mode": "navigate",
    "sec_fetch_dest": "document",
}


class Lab:
    """A provider, a REST daemon as behind TLS, and a browser with its cookies."""

    def __init__(self, directory: Path, provider: OidcProvider) -> None:
        self.provider = provider
        (directory / "users").write_text("root pw write\njack pw read\n")
        self.file = directory / "oidc.json"
        self.settings: dict[str, Any] = {
            "issuer": provider.issuer,
            "client_id": provider.client_id,
            "client_secret": provider.client_secret,
            "address": "https://cluster.example.com:5080",
            "rights": {"admins": "write", "users": "write@own"},
            "ca_file": provider.ca_file,
        }
        self.write(self.settings)
        self.master = AccessMaster()
        self.cookies: dict[str, str] = {}
        self.directory = directory
        self.lab = HttpLab(self.daemon)

    def write(self, settings: Any) -> None:
        self.file.write_text(json.dumps(settings))

    def daemon(self) -> RestApplication:
        users = Users(str(self.directory / "users"), HANDLERS)
        records = KeptRecords(self.master)
        sessions = Sessions(records, users)
        oidc = OidcLogins(str(self.file), users)
        proofs = Proofs(records, users, sessions, oidc=oidc)
        return RestApplication(self.master, Identities([users, sessions], proofs))

    def go(self, path: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Open an address with the cookies of the browser; keep those of the answer."""
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        lines = [f"GET {path} HTTP/1.1", "Host: h", "Connection: close"]
        lines += [
            f"{name.replace('_', '-')}: {text}" for name, text in {**PERSON, **headers}.items()
        ]
        with self.lab.connect() as sock:
            sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            body: Any = answer.read()
        for word in answer.msg.get_all("set-cookie", []):
            name, _, value = word.partition(";")[0].partition("=")
            if "Max-Age=0" in word:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        found = {name.lower(): value for name, value in answer.msg.items()}
        if found.get("content-type") == "application/json":
            body = json.loads(body)
        return answer.status, body, found

    def way_back(self) -> str:
        """Begin a login, and let the provider send the browser back."""
        status, _text, found = self.go("/2/login/oidc")
        assert status == 303 and found["cache-control"] == "no-store"
        query = self.provider.log_in(found["location"])
        return "/2/login/oidc/callback?" + "&".join(
            f"{name}={text}" for name, text in query.items()
        )

    def log_in(self) -> tuple[int, str]:
        status, text, _found = self.go(self.way_back())
        return status, text.decode() if isinstance(text, bytes) else str(text)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    found = OidcProvider(tmp_path_factory.mktemp("provider"))
    yield found
    found.close()


@pytest.fixture
def lab(tmp_path: Path, provider: OidcProvider) -> Iterator[Lab]:
    provider.claims = {"preferred_username": "jill", "groups": ["admins"]}
    provider.answers = {}
    found = Lab(tmp_path, provider)
    try:
        yield found
    finally:
        found.lab.close()


def test_a_person_logs_in(lab: Lab) -> None:
    status, text, found = lab.go(lab.way_back())
    assert status == 200 and found["content-type"].startswith("text/html")
    assert found["cache-control"] == "no-store" and "etag" not in found
    assert b"logged in as jill" in text and b'content="0; url=/2/session"' in text
    # The cookie of the login has served its purpose.
    assert list(lab.cookies) == [SESSION_COOKIE]
    status, session, _found = lab.go(
        "/2/session", sec_fetch_site="same-origin", accept="application/json"
    )
    assert status == 200 and session["user"] == "jill"
    (record,) = lab.master.records.values()
    assert record["owner"] == "jill" and record["data"]["by"] == "oidc"
    assert (record["data"]["groups"], record["data"]["rights"]) == (["admins"], "write")
    # No token and no secret of the provider is kept.
    assert not any(word in json.dumps(record) for word in ("eyJ", "access", "s:cr"))


def test_the_rights_are_those_of_the_groups(lab: Lab) -> None:
    lab.provider.claims["groups"] = ["users"]
    assert lab.log_in()[0] == 200
    here = {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "accept": "*/*"}
    assert lab.go("/2/nodes?bulk=1", **here)[0] == 403
    (record,) = lab.master.records.values()
    assert record["data"]["rights"] == "write@own"


def test_a_person_reads_why_he_may_not(lab: Lab) -> None:
    lab.provider.claims["groups"] = ["<b>"]
    status, text = lab.log_in()
    assert status == 403 and "<h1>Not logged in</h1>" in text
    assert "user &#x27;jill&#x27; has no right here" in text and "<b>" not in text
    # A program gets JSON.
    status, value, _found = lab.go(lab.way_back(), accept="*/*")
    assert status == 403 and "has no right here" in value["explain"]
    assert not lab.master.records


def test_a_name_of_the_users_file(lab: Lab) -> None:
    lab.provider.claims["preferred_username"] = "jack"
    status, text = lab.log_in()
    assert status == 403 and "there is a user &#x27;jack&#x27; with a password" in text
    lab.write({**lab.settings, "name_prefix": "sso-"})
    assert lab.log_in()[0] == 200
    (record,) = lab.master.records.values()
    assert record["owner"] == "sso-jack"


def test_the_end_of_a_login_of_another_browser(lab: Lab) -> None:
    path = lab.way_back()
    lab.cookies.clear()
    status, text, _found = lab.go(path)
    assert status == 400 and b"this browser has not begun the login" in text
    assert not lab.cookies and not lab.master.records


def test_a_provider_which_is_down(lab: Lab) -> None:
    lab.provider.answers["/.well-known/openid-configuration"] = Answer(503, b"")
    status, text, _found = lab.go("/2/login/oidc")
    assert status == 502 and b"has status 503" in text


def test_without_settings_and_with_wrong_ones(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.file.write_text('{"isuer": 1}')
    status, text, _found = lab.go("/2/login/oidc")
    assert status == 503 and b"rapi-passwd check" in text
    assert "no member 'isuer'" in caplog.text
    lab.write({**lab.settings, "rights": {"admins": "wrte"}})
    assert lab.go("/2/login/oidc")[0] == 503
    assert "rights of group 'admins'" in caplog.text
    lab.file.unlink()
    for path in ("/2/login/oidc", "/2/login/oidc/callback?state=x", "/2/login/oidc/logout"):
        assert lab.go(path)[0] == 404
    lab.write(lab.settings)
    assert lab.go("/2/login/oidc")[0] == 303


def test_logging_out_at_the_provider(lab: Lab) -> None:
    status, _text, found = lab.go("/2/login/oidc/logout")
    assert status == 303 and found["location"].startswith(lab.provider.issuer + "/logout?")


def test_logins_of_an_address_have_a_rate(tmp_path: Path, lab: Lab) -> None:
    now = 0.0
    users = Users(str(tmp_path / "users"))
    logins = OidcLogins(str(lab.file), users, clock=lambda: now)

    def finish(address: str) -> Refused:
        with pytest.raises(Refused) as caught:
            asyncio.run(logins.finish("", {"code": "x", "state": "y"}, address))
        return caught.value

    assert [finish("192.0.2.1").status for _ in range(BURST)] == [400] * BURST
    err = finish("192.0.2.1")
    assert err.status == 429 and dict(err.headers)["Retry-After"]
    assert finish("192.0.2.2").status == 400
