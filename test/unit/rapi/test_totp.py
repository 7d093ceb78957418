"""One-time codes: the values of the standard, enrolment, use, limits, and what is kept."""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import Any

import pytest

from fakes.kept_records import Kept
from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi import totp, totp_factor
from ganeti.rapi.identify import PasswordAlone
from ganeti.rapi.rights import Rights
from ganeti.rapi.sealed import Seal
from ganeti.rapi.totp_factor import BEGUN_S, BURST, INTERVAL_S, TotpFactor
from ganeti.rapi.users import User
from ganeti.wire import json

pyotp = pytest.importorskip("pyotp", reason="make venv installs it")

NOW = 1_800_000_000.0
# RFC 6238, appendix B, the rows of SHA-1; the last six digits.
RFC_SECRET = base64.b32encode(b"12345678901234567890").decode()
RFC_CODES = {
    59: "287082",
    1111111109: "081804",
    1111111111: "050471",
    1234567890: "005924",
    2000000000: "279037",
    20000000000: "353130",
}


class Lab:
    def __init__(self) -> None:
        self.kept = Kept(NOW)
        self.clock = 1000.0
        self.factor = self.daemon()
        self.secret = ""

    def daemon(self, key: bytes = b"key") -> TotpFactor:
        return TotpFactor(self.kept, Seal(key), lambda: "cluster.example.org", lambda: self.clock)

    def code(self, steps: int = 0) -> str:
        return str(pyotp.TOTP(self.secret).generate_otp(int(self.kept.time // 30) + steps))

    def wrong(self) -> str:
        return f"{(int(self.code()) + 500_000) % 1_000_000:06d}"

    def enrol(self, owner: str = "jill") -> list[str]:
        self.secret = asyncio.run(self.factor.begin(owner)).secret
        return asyncio.run(self.factor.confirm(owner, self.code()))

    def check(self, code: str, owner: str = "jill") -> None:
        asyncio.run(self.factor.check(owner, code))

    def later(self, seconds: float) -> None:
        self.kept.time += seconds
        self.clock += seconds


@pytest.fixture
def lab() -> Lab:
    return Lab()


def status(run: Any, *args: Any) -> int:
    with pytest.raises(Refused) as caught:
        run(*args)
    return caught.value.status


@pytest.mark.parametrize("at", RFC_CODES)
def test_codes_of_the_standard(at: int) -> None:
    assert totp.step_of(RFC_SECRET, RFC_CODES[at], at) == at // 30


@pytest.mark.parametrize(("late_s", "right"), [(-31, False), (0, True), (29, True), (59, True)])
def test_clocks_may_differ_by_a_step(late_s: int, right: bool) -> None:
    made_at = 60_000
    code = pyotp.TOTP(RFC_SECRET).generate_otp(made_at // 30)
    assert (totp.step_of(RFC_SECRET, code, made_at + late_s) is not None) == right
    assert totp.step_of(RFC_SECRET, code, made_at + 60) is None
    assert totp.step_of(RFC_SECRET, code, made_at - 30) is not None


def test_enrolment(lab: Lab) -> None:
    assert not asyncio.run(lab.factor.needed("jill"))
    assert asyncio.run(lab.factor.recovery_left("jill")) is None
    begun = asyncio.run(lab.factor.begin("jill"))
    assert begun.uri.startswith("otpauth://totp/cluster.example.org:jill?")
    assert f"secret={begun.secret}" in begun.uri
    # Until it is confirmed, nothing changes for the user.
    assert not asyncio.run(lab.factor.needed("jill")) and not lab.kept.records
    codes = lab.enrol()
    assert len(set(codes)) == 10
    assert asyncio.run(lab.factor.needed("jill"))
    assert asyncio.run(lab.factor.recovery_left("jill")) == 10
    assert not asyncio.run(lab.factor.needed("jack"))
    assert status(lab.enrol) == 409
    assert status(asyncio.run, lab.factor.confirm("jill", lab.code())) == 409


def test_the_code_of_the_enrolment_counts_no_second_time(lab: Lab) -> None:
    lab.enrol()
    assert status(lab.check, lab.code()) == 401
    lab.later(30)
    lab.check(lab.code())


def test_a_code_counts_once(lab: Lab) -> None:
    lab.enrol()
    lab.later(60)
    lab.check(f" {lab.code()[:3]} {lab.code()[3:]} ")
    assert status(lab.check, lab.code()) == 401
    # Nor does an earlier one, which is within the allowed difference of the clocks.
    assert status(lab.check, lab.code(-1)) == 401
    lab.check(lab.code(1))
    # Another daemon has the same records.
    lab.factor = lab.daemon()
    assert status(lab.check, lab.code(1)) == 401


def test_a_code_which_comes_twice_at_once(lab: Lab) -> None:
    lab.enrol()
    lab.later(60)

    async def both() -> list[Any]:
        lab.factor = lab.daemon()
        return await asyncio.gather(
            *(lab.factor.check("jill", lab.code()) for _number in range(2)), return_exceptions=True
        )

    answers = asyncio.run(both())
    assert [one for one in answers if one is None] == [None]
    assert [one.status for one in answers if one is not None] == [401]


def test_recovery_codes(lab: Lab) -> None:
    codes = lab.enrol()
    lab.check(codes[3])
    assert status(lab.check, codes[3]) == 401
    lab.check(codes[0].lower().replace("-", " "))
    assert asyncio.run(lab.factor.recovery_left("jill")) == 8
    assert status(lab.check, "AAAA-AAAA-AAAA-AAAA") == 401
    # They are not those of another user.
    assert status(lab.check, codes[1], "jack") == 401


@pytest.mark.parametrize(
    "code", ["", "12345", "1234567", "abcdef", "１２３４５６", "x" * 5000, "\0"]
)
def test_what_is_not_a_code(lab: Lab, code: str) -> None:
    lab.enrol()
    assert status(lab.check, code) == 401


def test_guesses_are_limited_for_all_addresses(lab: Lab) -> None:
    codes = lab.enrol()
    lab.later(60)
    for _number in range(BURST):
        assert status(lab.check, lab.wrong()) == 401
    with pytest.raises(Refused) as caught:
        lab.check(lab.code())
    assert caught.value.status == 429 and dict(caught.value.headers)["Retry-After"]
    # A user under attack has a way in, and other users are not concerned.
    lab.check(codes[0])
    lab.enrol("jack")
    lab.later(INTERVAL_S)
    lab.check(lab.code(), "jack")
    lab.secret = ""


def test_right_codes_are_not_counted(lab: Lab) -> None:
    lab.enrol()
    for _number in range(BURST * 2):
        lab.later(30)
        lab.check(lab.code())


def test_wrong_confirmations(lab: Lab) -> None:
    assert status(asyncio.run, lab.factor.confirm("jill", "123456")) == 409
    lab.secret = asyncio.run(lab.factor.begin("jill")).secret
    assert status(asyncio.run, lab.factor.confirm("jill", lab.wrong())) == 400
    former = lab.secret
    lab.secret = asyncio.run(lab.factor.begin("jill")).secret
    assert former != lab.secret
    lab.later(BEGUN_S)
    assert status(asyncio.run, lab.factor.confirm("jill", lab.code())) == 409
    for _number in range(BURST):
        lab.secret = asyncio.run(lab.factor.begin("jack")).secret
        assert status(asyncio.run, lab.factor.confirm("jack", lab.wrong())) == 400
    assert status(asyncio.run, lab.factor.confirm("jack", lab.code())) == 429
    assert not lab.kept.records


def test_the_record_tells_neither_the_secret_nor_the_codes(lab: Lab) -> None:
    codes = lab.enrol()
    (record,) = lab.kept.records.values()
    text = json.dumps(record.data)
    assert lab.secret not in text and base64.b32decode(lab.secret).hex() not in text
    assert not any(code in text or totp.plain(code) in text for code in codes)
    assert len(text) < 2000


def test_another_confd_key(lab: Lab) -> None:
    codes = lab.enrol()
    lab.factor = lab.daemon(b"another")
    lab.later(30)
    with pytest.raises(Refused, match="another confd key.*recovery code") as caught:
        lab.check(lab.code())
    assert caught.value.status == 503
    lab.check(codes[0])


def test_the_secret_of_another_user(lab: Lab) -> None:
    """Who can write into the configuration cannot give a user the secret of his own."""
    seal = Seal(b"key")
    text = seal.close(b"secret", "totp/jill")
    assert seal.open(text, "totp/jill") == b"secret"
    for wrong, purpose in ((text, "totp/jack"), (text[:-4] + "AAA=", "totp/jill"), ("?", "x")):
        with pytest.raises(errors.ParseError):
            seal.open(wrong, purpose)


def test_without_a_confd_key(lab: Lab) -> None:
    codes = lab.enrol()
    lab.factor = TotpFactor(lab.kept, None, lambda: "c", lambda: lab.clock)
    assert status(asyncio.run, lab.factor.begin("jack")) == 503
    assert status(lab.check, "123456") == 503
    lab.check(codes[0])


def test_without_the_package(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = lab.enrol()
    lab.later(30)
    code = lab.code()
    monkeypatch.setitem(sys.modules, "pyotp", None)
    with pytest.raises(Refused, match="python3-pyotp") as caught:
        asyncio.run(lab.factor.begin("jack"))
    assert caught.value.status == 503
    assert status(lab.check, code) == 503
    lab.check(codes[0])


class Inner:
    user: User | None = User("jill", Rights())

    async def identify(self, incoming: Incoming) -> User | None:
        return self.user


def test_a_password_alone(lab: Lab) -> None:
    way = PasswordAlone(Inner(), lab.factor)
    request = Incoming(messages.parse_head(b"GET /2/info HTTP/1.1\r\nHost: h"), "192.0.2.1")
    assert asyncio.run(way.identify(request)) == Inner.user
    lab.enrol()
    with pytest.raises(Refused, match="POST /2/login.*rapi-passwd token add") as caught:
        asyncio.run(way.identify(request))
    # The browser would ask for another password.
    assert caught.value.status == 403 and not caught.value.headers
    lab.kept.failure = Refused(503, "no master")
    with pytest.raises(Refused, match="no master"):
        asyncio.run(way.identify(request))


def test_the_name_of_the_factor() -> None:
    assert TotpFactor.name == totp_factor.NAME == "totp"
