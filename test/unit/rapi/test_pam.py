"""Passwords which the machine checks: the real PAM with services of the tests, and what it lacks.

``libpam_wrapper.so`` lets PAM read its services from a directory of the test.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest

from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi import passwords
from ganeti.rapi.guesses import BURST, INTERVAL_S
from ganeti.rapi.pam import FRESH_S, Pam, missing
from ganeti.rapi.users import User, Users
from ganeti.utils import fs

pytestmark = pytest.mark.programs

_WRAPPER = "libpam_wrapper.so"
#: The helper, with the library which reads the services of the test.
_HELPER = f"""
import ctypes.util, sys
real = ctypes.util.find_library
ctypes.util.find_library = lambda name: {_WRAPPER!r} if name == "pam" else real(name)
from ganeti.helpers import pam_check
sys.exit(pam_check.main())
"""
ADDRESS = "192.0.2.1"


@functools.cache
def _missing() -> str:
    """What these tests lack; empty for nothing."""
    pytest.importorskip("pamela", reason="make venv installs it")
    if find_library("pam") is None:
        return "needs the library of PAM"
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({_WRAPPER!r})"],
        capture_output=True,
        check=False,
    )
    return "needs libpam-wrapper" if done.returncode else ""


class Lab:
    """Services of PAM, and a program ``check`` which gets the password of most of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.services = directory / "pam.d"
        self.services.mkdir()
        #: What the program has seen.
        self.seen = directory / "seen"
        program = directory / "check"
        program.write_text(
            "#!/bin/sh\n"
            f'env > {self.seen}; tr "\\0" "\\n" < /proc/$PPID/cmdline > {self.seen}.argv\n'
            f'[ "$(cat)" = "$(cat {directory}/right)" ]\n'
        )
        program.chmod(0o755)
        self.change_password("s3cr\xe4t")
        self.service("login", f"pam_exec.so quiet expose_authtok {program}", "pam_permit.so")

    def change_password(self, right: str) -> None:
        (self.directory / "right").write_text(right)

    def service(self, name: str, auth: str, account: str) -> None:
        (self.services / name).write_text(f"auth required {auth}\naccount required {account}\n")

    def pam(self, **more: float) -> Pam:
        return Pam(command=[sys.executable, "-c", _HELPER], **more)

    def check(self, password: str, service: str = "login", user: str = "jack") -> bool:
        return asyncio.run(self.pam().check(service, user, password, ADDRESS))

    def refused(self, service: str, password: str = "s3cr\xe4t") -> Refused:
        with pytest.raises(Refused) as caught:
            self.check(password, service)
        assert password not in str(caught.value)
        return caught.value


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    if why := _missing():
        pytest.skip(why)
    found = Lab(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", _WRAPPER)
    monkeypatch.setenv("PAM_WRAPPER", "1")
    monkeypatch.setenv("PAM_WRAPPER_SERVICE_DIR", str(found.services))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    yield found


def test_right_and_wrong_passwords(lab: Lab) -> None:
    assert lab.check("s3cr\xe4t")
    seen = lab.seen.read_text()
    assert "PAM_USER=jack\n" in seen and f"PAM_RHOST={ADDRESS}\n" in seen
    assert "PAM_TTY=ganeti-rapi\n" in seen and "PAM_SERVICE=login\n" in seen
    # Neither the words of the command nor its environment have the password.
    assert "s3cr" not in seen + Path(f"{lab.seen}.argv").read_text()
    assert not lab.check("wrong")
    assert not lab.check("s3cr\xe4t\nx")


@pytest.mark.parametrize("password", ["", "s3cr\xe4t\0x"])
def test_passwords_about_which_pam_is_not_asked(lab: Lab, password: str) -> None:
    lab.service("open", "pam_permit.so", "pam_permit.so")
    assert not lab.check(password, "open")
    assert lab.check("anything", "open")


@pytest.mark.parametrize(
    "word", ["auth_err", "perm_denied", "user_unknown", "maxtries", "system_err"]
)
def test_what_is_a_wrong_password(lab: Lab, word: str) -> None:
    lab.service("odd", f"pam_debug.so auth={word}", "pam_permit.so")
    assert not lab.check("anything", "odd")


@pytest.mark.parametrize("word", ["acct_expired", "new_authtok_reqd", "perm_denied", "auth_err"])
def test_an_account_which_must_not_be_used(lab: Lab, word: str) -> None:
    lab.service("odd", "pam_permit.so", f"pam_debug.so acct={word}")
    err = lab.refused("odd")
    assert err.status == 403 and "account of user 'jack' must not be used" in str(err)
    lab.service("odd", "pam_deny.so", f"pam_debug.so acct={word}")
    assert not lab.check("anything", "odd")


@pytest.mark.parametrize("word", ["authinfo_unavail", "buf_err", "service_err", "abort"])
def test_what_pam_cannot_decide(lab: Lab, word: str, caplog: pytest.LogCaptureFixture) -> None:
    lab.service("odd", f"pam_debug.so auth={word}", "pam_permit.so")
    err = lab.refused("odd")
    assert err.status == 503 and dict(err.headers)["Retry-After"]
    assert "PAM service 'odd' says" in caplog.text and "s3cr" not in caplog.text


def test_a_module_which_is_missing(lab: Lab) -> None:
    lab.service("odd", "pam_no_such_module.so", "pam_permit.so")
    assert lab.refused("odd").status == 503


def test_a_module_which_hangs_is_ended(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.service("odd", "pam_exec.so quiet /bin/sleep 600", "pam_permit.so")
    with pytest.raises(Refused) as caught:
        asyncio.run(lab.pam(time_s=0.5).check("odd", "jack", "pw", ADDRESS))
    assert caught.value.status == 503 and "no answer after 0.5 s" in caplog.text


def test_a_process_which_dies(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    for program in ("import os; os.abort()", "print('[')", "print('3')", "raise SystemExit(3)"):
        caplog.clear()
        pam = Pam(command=[sys.executable, "-c", program])
        with pytest.raises(Refused) as caught:
            asyncio.run(pam.check("login", "jack", "s3cr\xe4t", ADDRESS))
        assert caught.value.status == 503
        assert "has ended with" in caplog.text and "s3cr" not in caplog.text


def test_a_missing_library_has_its_name(caplog: pytest.LogCaptureFixture) -> None:
    program = (
        "import sys; sys.modules['pamela'] = None\n"
        "from ganeti.helpers import pam_check\nsys.exit(pam_check.main())"
    )
    with pytest.raises(Refused) as caught:
        asyncio.run(Pam(command=[sys.executable, "-c", program]).check("x", "u", "pw", ADDRESS))
    assert caught.value.status == 503 and "python3-pamela" in caplog.text


class Door:
    """A users file with users of PAM, and others."""

    def __init__(self, lab: Lab, text: str) -> None:
        path = lab.directory / "users"
        path.write_text(text)
        self.now = 0.0
        self.slept: list[float] = []
        self.users = Users(str(path), clock=lambda: self.now, sleep=self._sleep, pam=lab.pam())

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def open(self, name: str, password: str) -> User | int:
        words = base64.b64encode(f"{name}:{password}".encode()).decode()
        head = messages.parse_head(
            f"GET /2/info HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {words}".encode()
        )
        try:
            found = asyncio.run(self.users.identify(Incoming(head, ADDRESS)))
        except Refused as err:
            return err.status
        assert found is not None
        return found


def test_users_of_the_file(lab: Lab) -> None:
    scrypt = passwords.hashed("pw", (1 << 5, 8, 1))
    door = Door(lab, f"jack {{PAM}}login write\njoe {scrypt} read\njill {{PAM}}\n")
    found = door.open("jack", "s3cr\xe4t")
    assert isinstance(found, User) and found.name == "jack" and str(found.rights) == "write"
    assert door.open("joe", "pw")
    # The name of the service is not a password.
    for guess in ("login", "{PAM}login", "ganeti-rapi", "wrong", ""):
        assert door.open("jack", guess) == 401
    assert door.open("nobody", "s3cr\xe4t") == 401


def test_a_right_password_is_checked_again_after_a_time(lab: Lab) -> None:
    door = Door(lab, "jack {PAM}login write\n")
    assert isinstance(door.open("jack", "s3cr\xe4t"), User)
    lab.change_password("another")
    lab.seen.unlink()
    door.now += FRESH_S
    assert isinstance(door.open("jack", "s3cr\xe4t"), User)
    assert not lab.seen.exists()
    door.now += 1
    assert door.open("jack", "s3cr\xe4t") == 401
    assert isinstance(door.open("jack", "another"), User)


def test_other_names_take_as_long_as_those_of_pam(lab: Lab) -> None:
    door = Door(lab, "jack {PAM}login write\njoe pw read\n")
    assert door.open("jack", "guess") == 401 and door.slept == []
    assert door.open("nobody", "guess") == 401 and door.open("joe", "guess") == 401
    assert len(door.slept) == 2 and isinstance(door.open("joe", "pw"), User)
    assert len(door.slept) == 2


def test_all_but_right_passwords_count_as_guesses(lab: Lab) -> None:
    lab.service("odd", "pam_debug.so auth=authinfo_unavail", "pam_permit.so")
    lab.service("old", "pam_permit.so", "pam_debug.so acct=acct_expired")
    door = Door(lab, "jack {PAM}odd write\njoe {PAM}old write\n")
    for _ in range(BURST):
        assert door.open("joe", "s3cr\xe4t") == 403
        assert door.open("jack", "s3cr\xe4t") == 503
    assert door.open("joe", "s3cr\xe4t") == 403 and door.slept == []
    # What is undecided may be a guess.
    assert door.open("jack", "s3cr\xe4t") == 503 and door.slept == [INTERVAL_S]


def test_what_a_node_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [passwords.parse(text) for text in ("pw", "{PAM}here", "{PAM}gone", "{PAM}gone")]
    (tmp_path / "here").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    (found,) = missing(stored, ["/none", str(tmp_path)])
    assert "no service 'gone'" in found and "/none/gone" in found
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert "python3-pamela" in missing(stored, [str(tmp_path)])[0]
    assert missing(stored[:1], []) == []


def test_the_shipped_service() -> None:
    text = fs.read_file(str(Path(__file__).parents[3] / "packaging/pam.d/ganeti-rapi"))
    used = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert used == [["@include", "common-auth"], ["@include", "common-account"]]
