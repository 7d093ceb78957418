"""Sessions: login, the cookie, limits, lists, and what ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.access_master import AccessMaster
from fakes.http_lab import HttpLab
from fakes.rest_client import Rest
from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi import kept_records, sessions
from ganeti.rapi.application import RestApplication
from ganeti.rapi.challenge import SESSION_COOKIE
from ganeti.rapi.guesses import BURST
from ganeti.rapi.identify import Identities
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.login import SecondFactor
from ganeti.rapi.pace import TooMany
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.sessions import Limits, Sessions
from ganeti.rapi.users import Users

NOW = time.time()
USERS = "root pw write\njill pw read\nowen pw write@own\n"
PAGE = {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}


class Lab:
    """A REST daemon over HTTP, as behind TLS, with a clock which the test moves."""

    def __init__(self, path: Path) -> None:
        self.file = path / "users"
        self.file.write_text(USERS)
        self.moved = 0.0
        self.master = AccessMaster()
        self.factors: list[SecondFactor] = []
        self.proofs: Proofs
        self.lab = HttpLab(self.daemon)
        self.rest = Rest(self.lab, self.master)

    def now(self) -> float:
        return NOW + self.moved

    def daemon(self, *, tls: bool = True) -> RestApplication:
        users = Users(str(self.file), clock=self.clock)
        records = KeptRecords(self.master, self.clock, wall=self.now)
        found = Sessions(records, users, Limits(60, 600), tls=tls, clock=self.clock)
        self.proofs = Proofs(records, users, found, self.factors)
        return RestApplication(self.master, Identities([users, found], self.proofs))

    def clock(self) -> float:
        return time.monotonic() + self.moved

    def log_in(
        self, user: str = "jill", password: str = "pw", **headers: str
    ) -> tuple[int, Any, str]:
        """Log in from a page; return status, body and cookie."""
        body = {"user": user, "password": password}
        status, value, found = self.rest("POST", "/2/login", body, None, **{**PAGE, **headers})
        return status, value, found.get("set-cookie", "").partition(";")[0]

    def ask(
        self, cookie: str, method: str = "GET", path: str = "/2/session", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request from a page with a cookie."""
        return self.rest(method, path, None, None, **{**PAGE, "cookie": cookie, **headers})

    @property
    def stored(self) -> list[dict[str, Any]]:
        return [one for one in self.master.records.values() if one["kind"] == sessions.KIND]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.lab.close()


def test_a_login_begins_a_session_and_a_logout_ends_it(lab: Lab) -> None:
    body = {"user": "jill", "password": "pw"}
    status, value, headers = lab.rest("POST", "/2/login", body, None, user_agent="Browser/1")
    assert status == 200, value
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"]
    name, _, secret = cookie.partition("=")
    assert name == SESSION_COOKIE and len(secret) == 43
    assert "no-store" in headers["cache-control"]
    (record,) = lab.stored
    assert secret not in str(record) and record["owner"] == "jill"
    status, value, _headers = lab.ask(cookie)
    session = value.pop("session")
    assert value == {
        "user": "jill", "rights": "read", "limited": False, "by": "session", "groups": [],
    }  # fmt: skip
    assert session["agent"] == "Browser/1" and session["address"] == "127.0.0.1"
    assert session["current"] and session["idle_s"] == 60 and session["by"] == "password"
    assert session["id"] in record["key"] and session["id"] != record["key"]
    # The rights are those of the user.
    assert lab.ask(cookie, path="/2/queue")[0] != 403
    assert lab.ask(cookie, "PUT", "/2/tags?tag=a")[0] == 403

    status, _value, headers = lab.ask(cookie, "POST", "/2/logout")
    assert (status, lab.stored) == (200, [])
    assert headers["set-cookie"].startswith(f"{SESSION_COOKIE}=; Max-Age=0; Path=/; Secure")
    assert lab.ask(cookie)[0] == 401
    # A second logout, and one without a cookie, do no harm.
    assert lab.ask(cookie, "POST", "/2/logout")[0] == 200
    assert lab.rest("POST", "/2/logout", user=None)[0] == 200


def test_a_page_gets_no_window_of_the_browser(lab: Lab) -> None:
    body = {"user": "jill", "password": "wrong"}
    status, _value, headers = lab.rest("POST", "/2/login", body, None, **PAGE)
    assert status == 401 and "www-authenticate" not in headers
    status, _value, headers = lab.ask(f"{SESSION_COOKIE}={kept_records.secret()}")
    assert status == 401 and "www-authenticate" not in headers


def test_a_wrong_cookie_asks_the_master_only_if_it_can_be_one(lab: Lab) -> None:
    asked = len(lab.master.asked)
    assert lab.ask(f"{SESSION_COOKIE}=x")[0] == 401
    assert len(lab.master.asked) == asked
    # An ended session does not hinder the next login.
    status, _value, cookie = lab.log_in(cookie=f"{SESSION_COOKIE}={kept_records.secret()}")
    assert status == 200 and lab.ask(cookie)[0] == 200


def test_guesses_count_as_those_of_basic_authentication(lab: Lab) -> None:
    for _ in range(BURST // 2):
        assert lab.log_in(password="wrong")[0] == 401
        assert lab.rest("GET", "/2/queue", user="jill:bad")[0] == 401
    users = lab.proofs.users
    assert users is not None
    place = users._guesses.place("jill", "127.0.0.1")
    with pytest.raises(TooMany):
        while True:
            users._guesses.take(place)
    assert lab.log_in(password="wrong")[0] == 429
    assert lab.rest("GET", "/2/queue", user="jill:bad")[0] == 429


def test_the_limits(lab: Lab) -> None:
    _status, _value, cookie = lab.log_in()
    for _ in range(3):
        lab.moved += 50
        # This is no use of the session...
        assert lab.ask(cookie)[0] == 200
        # ... and this is one.
        assert lab.ask(cookie, path="/2/features")[0] == 200
    lab.moved += 59
    assert lab.ask(cookie)[1]["session"]["ends"] - lab.now() < 2
    lab.moved += 2
    status, value, _headers = lab.ask(cookie)
    assert status == 401 and "ended" in value["reason"]
    # The next login removes it.
    lab.log_in()
    assert len(lab.stored) == 1

    _status, _value, cookie = lab.log_in("root")
    for _ in range(12):
        assert lab.ask(cookie, path="/2/features")[0] == 200
        lab.moved += 50
    assert lab.ask(cookie, path="/2/features")[0] == 401


@pytest.mark.parametrize(
    "users",
    ["root pw write\n", "root pw write\njill other read\n", "root pw write\njill {PAM} read\n"],
    ids=["removed", "another password", "another form"],
)
def test_a_changed_user_loses_the_session(lab: Lab, users: str) -> None:
    _status, _value, cookie = lab.log_in()
    lab.file.write_text(users)
    lab.moved += 3
    assert lab.ask(cookie)[0] == 401
    assert lab.ask(cookie, path="/2/features")[0] == 401


def test_new_rights_count_at_the_next_request(lab: Lab) -> None:
    _status, _value, cookie = lab.log_in()
    lab.file.write_text("jill pw write\n")
    lab.moved += 3
    assert lab.ask(cookie)[1]["rights"] == "write"


def test_a_login_ends_the_former_session_of_the_browser(lab: Lab) -> None:
    first = lab.log_in()[2]
    second = lab.log_in("root", cookie=first)[2]
    assert lab.ask(first)[0] == 401 and lab.ask(second)[1]["user"] == "root"


def test_a_user_has_a_limited_number_of_sessions(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_USER", 3)
    cookies = []
    for _ in range(4):
        cookies.append(lab.log_in()[2])
        lab.moved += 1
    assert len(lab.stored) == 3
    assert [lab.ask(one)[0] for one in cookies] == [401, 200, 200, 200]


def test_too_many_logins_wait(lab: Lab) -> None:
    found = [lab.log_in()[0] for _ in range(sessions._LOGINS + 1)]
    assert found[-1] == 429 and set(found[:-1]) == {200}


def test_lists_and_the_end_of_a_session(lab: Lab) -> None:
    jill, root, owen = (lab.log_in(name)[2] for name in ("jill", "root", "owen"))
    assert [one["user"] for one in lab.ask(jill, path="/2/sessions")[1]] == ["jill"]
    listed = lab.ask(root, path="/2/sessions")[1]
    assert [one["user"] for one in listed] == ["jill", "root", "owen"]
    assert [one["current"] for one in listed] == [False, True, False]
    ids = {one["user"]: one["id"] for one in listed}
    assert lab.ask(jill, "DELETE", f"/2/sessions/{ids['root']}")[0] == 404
    assert lab.ask(owen, "DELETE", f"/2/sessions/{ids['owen']}")[0] == 200
    assert lab.ask(root, "DELETE", f"/2/sessions/{ids['jill']}")[0] == 200
    assert [lab.ask(one)[0] for one in (jill, root, owen)] == [401, 200, 401]


def test_a_change_says_from_which_page_it_comes(lab: Lab) -> None:
    _status, _value, cookie = lab.log_in("root")
    put = ("PUT", "/2/tags?tag=a", None, None)
    assert lab.rest(*put, cookie=cookie)[0] == 403
    assert lab.rest(*put, cookie=cookie, origin="http://h")[0] == 200
    assert lab.rest(*put, cookie=cookie, sec_fetch_site="same-origin")[0] == 200
    assert lab.rest(*put, cookie=cookie, sec_fetch_site="cross-site")[0] == 403
    assert lab.rest(*put, cookie=cookie, origin="http://other")[0] == 403
    assert lab.rest("GET", "/2/session", None, None, cookie=cookie)[0] == 200
    socket = {
        "connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert lab.rest("GET", "/2/events", None, None, cookie=cookie, **socket)[0] == 403


def test_another_daemon_knows_the_session(lab: Lab) -> None:
    """After a restart, or on another node with the same users file."""
    _status, _value, cookie = lab.log_in()
    lab.moved += 3
    other = HttpLab(lab.daemon)
    try:
        status, value, _headers = Rest(other, lab.master)(
            "GET", "/2/session", None, None, cookie=cookie
        )
        assert (status, value["user"]) == (200, "jill")
    finally:
        other.close()


def test_without_tls_there_is_no_login(lab: Lab) -> None:
    other = HttpLab(lambda: lab.daemon(tls=False))
    try:
        body = {"user": "jill", "password": "pw"}
        status, value, _headers = Rest(other, lab.master)("POST", "/2/login", body, None)
        assert status == 403 and "--no-ssl" in value["reason"]
    finally:
        other.close()


def test_the_master_does_not_answer(lab: Lab) -> None:
    _status, _value, cookie = lab.log_in()
    lab.master.failure = errors.NoMasterError("the master daemon does not run")
    assert lab.log_in("root")[0] == 502
    assert lab.ask(cookie)[0] == 200
    lab.moved += kept_records.KEPT_S + 1
    assert lab.ask(cookie)[0] == 502


class Factor:
    name = "totp"

    async def needed(self, name: str) -> bool:
        return name == "jill"

    async def check(self, name: str, code: str) -> None:
        if code != "123456":
            raise Refused(401, "the code is wrong")


def test_a_second_factor(lab: Lab) -> None:
    lab.factors.append(Factor())
    status, value, _cookie = lab.log_in()
    assert (status, value["factors"]) == (401, ["totp"]) and not lab.stored
    body = {"user": "jill", "password": "pw", "code": "1"}
    assert lab.rest("POST", "/2/login", body, None, **PAGE)[0] == 401
    status, value, _headers = lab.rest("POST", "/2/login", {**body, "code": "123456"}, None, **PAGE)
    assert status == 200 and value["session"]["by"] == "password+totp"
    assert lab.log_in("root")[0] == 200
    # A wrong password does not say that there is a second factor.
    assert "factors" not in lab.log_in(password="wrong")[1]


def test_rights_from_elsewhere(lab: Lab) -> None:
    """As for a user whom another server has identified."""
    request = Incoming(messages.parse_head(b"GET / HTTP/1.1\r\nHost: h"), "192.0.2.1")

    async def body() -> None:
        lab.daemon()
        found = lab.proofs.sessions
        assert found is not None
        opened = await found.open(
            "ann@example", "oidc", request, groups=["ops"], rights_text="read,console"
        )
        cookie = opened.cookie.partition(";")[0].encode()
        head = messages.parse_head(b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a=b; " + cookie)
        user = await found.identify(Incoming(head, "192.0.2.1"))
        assert user is not None and user.groups == ("ops",)
        assert (str(user.rights), user.by) == ("console,read", "session")
        with pytest.raises(Refused, match="not in the users file"):
            await found.open("ann@example", "passkey", request)

    asyncio.run(body())


def test_a_stream_of_events_ends_with_the_session(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.rapi import listeners

    monkeypatch.setattr(listeners, "CHECK_S", 0.01)
    _status, _value, cookie = lab.log_in()
    seen: list[int] = []

    async def work() -> None:
        while True:
            await asyncio.sleep(0.005)
            seen.append(1)

    async def parts() -> Any:
        while True:
            await asyncio.sleep(0.02)
            yield b"x"

    head = messages.parse_head(f"GET / HTTP/1.1\r\nHost: h\r\nCookie: {cookie}".encode())
    request = Incoming(head, "127.0.0.1")

    async def body() -> None:
        lab.daemon()
        found = lab.proofs.sessions
        assert found is not None
        user = await found.identify(request)
        assert user is not None
        identities = Identities([found], lab.proofs)
        used = lab.proofs.records._noted.copy()

        async def remains() -> bool:
            return await identities.remains(request, user, None)

        serving = asyncio.create_task(listeners.serve(work(), remains))
        stream = listeners.parts(parts(), remains)
        for _ in range(4):
            assert await anext(stream) == b"x"
        assert not serving.done() and seen
        # To listen is no use of the session.
        assert lab.proofs.records._noted == used
        await found.close(head)
        with pytest.raises(Refused) as caught:
            await serving
        assert caught.value.status == 401
        assert len([part async for part in stream]) <= 2

    asyncio.run(body())


def test_a_listener_with_a_password_ends_with_its_user(lab: Lab) -> None:
    async def body() -> None:
        lab.daemon()
        users = lab.proofs.users
        assert users is not None
        user = await users.check("jill", "pw", "192.0.2.1")
        assert user is not None
        identities = Identities([users], lab.proofs)
        request = Incoming(messages.parse_head(b"GET / HTTP/1.1\r\nHost: h"), "192.0.2.1")
        account = identities.account(user)
        assert await identities.remains(request, user, account)
        lab.file.write_text(USERS.replace("jill pw", "jill other"))
        lab.moved += 3
        assert not await identities.remains(request, user, account)
        account = identities.account(user)
        assert await identities.remains(request, user, account)
        lab.file.write_text("root pw write\n")
        lab.moved += 3
        assert not await identities.remains(request, user, account)

    asyncio.run(body())
