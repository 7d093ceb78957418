"""One-time codes and passkeys over REST: enrolment, logins, and who may do what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.access_master import AccessMaster
from fakes.authenticator import Authenticator
from fakes.http_lab import HttpLab
from fakes.rest_client import Rest
from ganeti import errors
from ganeti.http.event_server import Incoming
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities, PasswordAlone
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.passkeys import Passkeys
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.sealed import Seal
from ganeti.rapi.sessions import Sessions
from ganeti.rapi.totp_factor import TotpFactor
from ganeti.rapi.users import User, Users

pyotp = pytest.importorskip("pyotp", reason="make venv installs it")
pytest.importorskip("fido2", reason="make venv installs it")

HOST = "cluster.example.org"
ORIGIN = f"https://{HOST}:5080"
PAGE = {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}
JILL = "jill:pw"
OWEN = "owen:pw"


class _Program:
    """The way in of a program with a token, for the header ``X-Token``."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def identify(self, incoming: Incoming) -> User | None:
        if "x-token" not in incoming.head.headers:
            return None
        return User("jill", self._users.rights("write")[0], "token")


class Lab:
    def __init__(self, path: Path) -> None:
        self.file = path / "users"
        self.file.write_text("jill pw read\nowen pw write@own\n")
        self.moved = 0.0
        self.master = AccessMaster()
        self.lab = HttpLab(self.daemon)
        self.rest = Rest(self.lab, self.master)
        self.secret = ""

    def daemon(self) -> RestApplication:
        users = Users(str(self.file), clock=self.clock)
        records = KeptRecords(self.master, self.clock, wall=self.now)
        found = Sessions(records, users, clock=self.clock)
        codes = TotpFactor(records, Seal(b"key"), lambda: HOST, self.clock)
        keys = Passkeys(records, lambda: HOST, self.clock)
        proofs = Proofs(records, users, found, [codes], totp=codes, passkeys=keys)
        ways = [_Program(users), PasswordAlone(users, codes), found]
        return RestApplication(self.master, Identities(ways, proofs))

    def clock(self) -> float:
        return time.monotonic() + self.moved

    def now(self) -> float:
        return time.time() + self.moved

    def code(self) -> str:
        return str(pyotp.TOTP(self.secret).generate_otp(int(self.now() // 30)))

    def next_code(self) -> str:
        self.moved += 60
        return self.code()

    def enrol(self, user: str = JILL) -> list[str]:
        status, value, headers = self.rest("POST", "/2/totp", {"password": "pw"}, user)
        assert status == 200 and "no-store" in headers["cache-control"]
        self.secret = value["secret"]
        status, value, _headers = self.rest("PUT", "/2/totp", {"code": self.code()}, user)
        assert status == 200, value
        return list(value["recovery_codes"])

    def log_in(self, code: str | None = None, user: str = JILL) -> tuple[int, Any, str]:
        name, _colon, password = user.partition(":")
        body = {"user": name, "password": password}
        if code is not None:
            body["code"] = code
        status, value, headers = self.rest("POST", "/2/login", body, None, **PAGE)
        return status, value, headers.get("set-cookie", "").partition(";")[0]

    def page(self, cookie: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, value, _headers = self.rest(method, path, body, None, **PAGE, cookie=cookie)
        return status, value

    def add_passkey(self, one: Authenticator, user: str = JILL) -> dict[str, Any]:
        status, options, _headers = self.rest(
            "POST", "/2/passkeys/challenge", {"password": "pw"}, user
        )
        assert status == 200, options
        body = {"credential": one.create(options, ORIGIN), "label": "my key"}
        status, value, _headers = self.rest("POST", "/2/passkeys", body, user)
        assert status == 200, value
        return dict(value)

    def log_in_by(self, one: Authenticator, **wrong: Any) -> tuple[int, Any, str]:
        status, options, _headers = self.rest("POST", "/2/login/passkey/challenge", None, None)
        assert status == 200, options
        body = {"credential": one.get(options, ORIGIN, **wrong)}
        status, value, headers = self.rest("POST", "/2/login/passkey", body, None, **PAGE)
        return status, value, headers.get("set-cookie", "").partition(";")[0]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.lab.close()


@pytest.mark.parametrize("user", [JILL, OWEN], ids=["read", "write@own"])
def test_a_login_with_a_code(lab: Lab, user: str) -> None:
    assert lab.rest("GET", "/2/totp", user=user)[1] == {"active": False, "recovery_codes": 0}
    assert lab.log_in(user=user)[0] == 200
    recovery = lab.enrol(user)
    status, value, cookie = lab.log_in(user=user)
    assert (status, value["factors"], cookie) == (401, ["totp"], "")
    assert lab.log_in("123", user)[0] == 401
    status, value, cookie = lab.log_in(lab.next_code(), user)
    assert status == 200 and value["session"]["by"] == "password+totp"
    assert lab.page(cookie, "GET", "/2/totp") == (200, {"active": True, "recovery_codes": 10})
    assert lab.log_in(lab.code(), user)[0] == 401
    assert lab.log_in(recovery[0], user)[0] == 200
    assert lab.log_in(recovery[0], user)[0] == 401
    assert lab.page(cookie, "GET", "/2/totp")[1]["recovery_codes"] == 9


def test_a_wrong_password_tells_nothing_about_the_factor(lab: Lab) -> None:
    lab.enrol()
    status, value, _cookie = lab.log_in(lab.next_code(), "jill:wrong")
    assert status == 401 and "factors" not in value and "code" not in value["explain"]


def test_a_password_in_every_request_is_refused(lab: Lab) -> None:
    _status, _value, cookie = lab.log_in()
    lab.enrol()
    for method, path in (("GET", "/2/instances"), ("GET", "/2/session"), ("GET", "/2/features")):
        status, value, headers = lab.rest(method, path, user=JILL)
        assert status == 403 and "www-authenticate" not in headers
        assert "POST /2/login" in value["explain"]
    assert lab.rest("GET", "/2/features", user="jill:wrong")[0] == 401
    # Other users, the present session and tokens go on.
    assert lab.rest("GET", "/2/features", user=OWEN)[0] == 200
    assert lab.page(cookie, "GET", "/2/features")[0] == 200
    assert lab.rest("GET", "/2/features", user=None, x_token="1")[0] == 200


def test_without_a_copy_no_password_is_accepted(lab: Lab) -> None:
    lab.master.failure = errors.NoMasterError("no master here")
    lab.moved += 1e6
    status, value, headers = lab.rest("GET", "/2/features", user=JILL)
    assert status == 502 and "no master here" in value["explain"] and headers["retry-after"]


def test_enrolment_needs_the_password_and_a_person(lab: Lab) -> None:
    for path in ("/2/totp", "/2/passkeys/challenge"):
        assert lab.rest("POST", path, {"password": "pw"}, None)[0] == 401
        assert lab.rest("POST", path, {}, JILL)[0] == 400
        status, value, _headers = lab.rest("POST", path, {"password": "x"}, JILL)
        assert status == 403 and "password of user jill is wrong" in value["explain"]
        status, value, _headers = lab.rest("POST", path, {"password": "pw"}, None, x_token="1")
        assert status == 403 and "a token cannot be used for this" in value["explain"]
    for method, path in (("GET", "/2/totp"), ("GET", "/2/passkeys"), ("DELETE", "/2/passkeys/x")):
        assert lab.rest(method, path, user=None, x_token="1")[0] == 403
    assert lab.rest("PUT", "/2/totp", {"code": "123456"}, JILL)[0] == 409
    lab.enrol()
    _status, _value, cookie = lab.log_in(lab.next_code())
    assert lab.page(cookie, "POST", "/2/totp", {"password": "pw"})[0] == 409
    # A page of another site can begin nothing.
    status, _value, _headers = lab.rest(
        "POST", "/2/totp", {"password": "pw"}, None, cookie=cookie, sec_fetch_site="cross-site"
    )
    assert status == 403


def test_a_login_with_a_passkey(lab: Lab) -> None:
    one = Authenticator()
    added = lab.add_passkey(one)
    assert added["label"] == "my key" and added["used"] is None
    status, value, cookie = lab.log_in_by(one)
    assert status == 200 and value["user"] == "jill" and value["session"]["by"] == "passkey"
    status, value = lab.page(cookie, "GET", "/2/passkeys")
    assert [found["id"] for found in value] == [added["id"]] and value[0]["used"]
    status, value, cookie = lab.log_in_by(one, client={"origin": "https://evil.example.net"})
    assert (status, cookie) == (401, "") and "for which passkeys are valid" in value["explain"]
    _status, _value, cookie = lab.log_in_by(one)
    assert lab.rest("DELETE", f"/2/passkeys/{added['id']}", user=OWEN)[0] == 404
    assert lab.page(cookie, "DELETE", f"/2/passkeys/{added['id']}")[0] == 200
    assert lab.page(cookie, "GET", "/2/passkeys") == (200, [])
    assert lab.log_in_by(one)[0] == 401


def test_a_passkey_replaces_password_and_code(lab: Lab) -> None:
    one = Authenticator()
    lab.add_passkey(one)
    lab.enrol()
    status, value, _cookie = lab.log_in_by(one)
    assert status == 200 and value["session"]["by"] == "passkey"
    assert lab.log_in()[0] == 401


def test_the_passkey_of_a_user_who_was_removed(lab: Lab) -> None:
    one = Authenticator()
    lab.add_passkey(one)
    lab.file.write_text("owen pw write@own\n")
    lab.moved += 120
    status, _value, cookie = lab.log_in_by(one)
    assert (status, cookie) == (403, "")


def test_a_server_without_factors(lab: Lab, tmp_path: Path) -> None:
    users = Users(str(lab.file))
    proofs = Proofs(KeptRecords(lab.master), users, Sessions(KeptRecords(lab.master), users))
    other = HttpLab(lambda: RestApplication(lab.master, Identities([users], proofs)))
    try:
        rest = Rest(other, lab.master)
        assert rest("GET", "/2/totp", user=JILL)[1] == {"active": False, "recovery_codes": 0}
        assert rest("GET", "/2/passkeys", user=JILL)[:2] == (200, [])
        assert rest("POST", "/2/totp", {"password": "pw"}, JILL)[0] == 403
        assert rest("POST", "/2/passkeys/challenge", {"password": "pw"}, JILL)[0] == 403
        assert rest("POST", "/2/login/passkey/challenge", user=None)[0] == 403
    finally:
        other.close()
