"""Users, their passwords and their rights."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.rapi import passwords, users
from ganeti.rapi.users import FAILURES, WINDOW_S, Users

# A thousandth of the usual cost; one test pays the whole of it.
_CHEAP = (1 << 5, 8, 3)
HA1 = hashlib.md5(b"jill:Ganeti Remote API:pw").hexdigest()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("text", "user", "right"),
    [
        ("secret", "jack", "secret"),
        ("{CLEARTEXT}secret", "jack", "secret"),
        ("{cleartext}{x}", "jack", "{x}"),
        ("{HA1}" + HA1, "jill", "pw"),
        ("{ha1}" + HA1.upper(), "jill", "pw"),
        (
            "{SCRYPT}32,8,3$NYs4HkPeKfQ/U5o5I4ppcw==$oO+uAtS4tLvTwMGBYM7JoqvAMnrH4/jYhbAxhTBH8qA=",
            "anybody",
            "p\xe4ss",
        ),
    ],
)
def test_forms_of_passwords(text: str, user: str, right: str) -> None:
    password = passwords.parse(text)
    assert passwords.matches(password, user, right)
    assert not passwords.matches(password, user, right + "x")
    assert not passwords.matches(password, user, "")


def test_the_usual_cost() -> None:
    text = passwords.hashed("pw")
    assert text.startswith("{SCRYPT}32768,8,3$")
    assert passwords.matches(passwords.parse(text), "", "pw")


def test_a_digest_is_for_one_user() -> None:
    assert not passwords.matches(passwords.parse("{HA1}" + HA1), "jack", "pw")


@pytest.mark.parametrize(
    "text",
    [
        "{HA1}xyz",
        "{HA1}" + HA1[:-1],
        "{MD5}x",
        "{open",
        "{SCRYPT}",
        "{SCRYPT}1,2,3$x$y",
        "{SCRYPT}32769,8,3$MDEyMzQ1Njc4OWFiY2RlZg==$MDEyMzQ1Njc4OWFiY2RlZg==",
        "{SCRYPT}1073741824,8,1$MDEyMzQ1Njc4OWFiY2RlZg==$MDEyMzQ1Njc4OWFiY2RlZg==",
        "{SCRYPT}16384,8,1$MDEyMzQ1Njc4OWFiY2RlZg==$MDEy",
    ],
)
def test_passwords_that_cannot_be(text: str) -> None:
    with pytest.raises(errors.ParseError):
        passwords.parse(text)


def test_the_file() -> None:
    found, problems = users.parse(
        "# comment\n\n  jack secret  write\njill {HA1}" + HA1 + " read,@operator\nmute x\n"
        "broken {MD5}x write\nlong a b c d\njack other\nodd pw nodes:GET,nonsense\n",
        {"nodes"},
    )
    assert set(found) == {"jack", "jill", "mute", "odd"}
    assert [problem.partition(":")[0] for problem in problems] == [
        "line 6",
        "line 7 is not 'user password [right,...]'",
        "line 8",
        "line 9",
    ]
    assert not any("secret" in problem or HA1 in problem for problem in problems)
    assert found["jack"].password.value == "secret"


@pytest.mark.parametrize(
    ("rights", "needed", "handler", "method", "may"),
    [
        ("", (), "nodes", "GET", True),
        ("", ("read", "write"), "query", "GET", False),
        (" read", ("read", "write"), "query", "GET", True),
        (" read", ("write",), "tags", "PUT", False),
        (" write", ("write",), "tags", "PUT", True),
        (" @admin", ("write",), "tags", "PUT", True),
        (" @readonly", ("read", "write"), "instances_name_console", "GET", True),
        (" @readonly", ("write",), "jobs_id", "DELETE", False),
        (" @operator", ("write",), "instances_name_startup", "PUT", True),
        (" @operator", ("write",), "instances_name", "DELETE", False),
        (" tags", ("write",), "tags", "DELETE", True),
        (" tags:PUT", ("write",), "tags", "DELETE", False),
        (" @readonly,tags:PUT", ("write",), "tags", "PUT", True),
    ],
)
def test_rights(rights: str, needed: tuple[str, ...], handler: str, method: str, may: bool) -> None:
    found, _problems = users.parse(f"u p{rights}", {"tags"})
    assert found["u"].may(frozenset(needed), handler, method) is may


class Lab:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.users = Users(str(path), clock=lambda: self.now)

    def identify(self, header: str | None, address: str = "192.0.2.1") -> users.User | None:
        return asyncio.run(self.users.identify(header, address))

    def refused(self, header: str, address: str = "192.0.2.1") -> Refused:
        with pytest.raises(Refused) as caught:
            self.identify(header, address)
        return caught.value


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    path = tmp_path / "users"
    path.write_text(f"jack secret write\njill {{HA1}}{HA1}\njoe {passwords.hashed('pw', _CHEAP)}\n")
    return Lab(path)


def test_who_it_is(lab: Lab) -> None:
    for header in (
        basic("jack", "secret"),
        basic("jill", "pw"),
        basic("joe", "pw"),
        basic("joe", "pw"),
        basic("jack", "secret").replace("Basic", "basic"),
    ):
        found = lab.identify(header)
        assert found is not None
    assert lab.identify(None) is None


@pytest.mark.parametrize(
    "header",
    [
        basic("jack", "wrong"),
        basic("nobody", "secret"),
        basic("", "secret"),
        "Basic !!",
        "Bearer x",
        "Basic",
        "Basic " + base64.b64encode(b"jack").decode(),
        basic("joe", "wrong"),
        "Basic " + base64.b64encode(b"jack:\xff").decode(),
        basic("jack", ""),
    ],
)
def test_who_it_is_not(lab: Lab, header: str) -> None:
    err = lab.refused(header)
    assert err.status == 401
    assert dict(err.headers)["WWW-Authenticate"] == 'Basic realm="Ganeti Remote API"'


def test_too_many_tries(lab: Lab) -> None:
    assert lab.identify(basic("jack", "secret"))
    for _ in range(FAILURES):
        assert lab.refused(basic("jill", "guess")).status == 401
    err = lab.refused(basic("jill", "pw"))
    assert err.status == 429 and 0 < int(dict(err.headers)["Retry-After"]) <= WINDOW_S + 1
    # Another address, and a user who has already shown his password, go on.
    assert lab.identify(basic("jill", "pw"), "192.0.2.2")
    assert lab.identify(basic("jack", "secret"))
    lab.now += WINDOW_S + 1
    assert lab.identify(basic("jill", "pw"))


def test_the_file_changes(lab: Lab) -> None:
    assert lab.identify(basic("joe", "pw"))
    lab.path.write_text("jack other write\n")
    lab.now += 10
    lab.users.refresh_if_due()
    assert lab.refused(basic("jack", "secret")).status == 401
    assert lab.refused(basic("joe", "pw")).status == 401
    assert lab.identify(basic("jack", "other"))
    lab.path.unlink()
    lab.users.refresh()
    assert lab.refused(basic("jack", "other")).status == 401


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read(lab: Lab) -> None:
    lab.path.chmod(0)
    lab.path.touch()
    lab.users.refresh()
    assert lab.identify(basic("jack", "secret"))


def test_a_file_that_is_no_text(lab: Lab) -> None:
    lab.path.write_bytes(b"\xff\xfe\0 \xff x y\njack secret\n")
    lab.users.refresh()
    assert lab.identify(basic("jack", "secret"))
