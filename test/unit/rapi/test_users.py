"""Users, their passwords and their rights."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi import pace, passwords, users
from ganeti.rapi.guesses import (
    ADDRESS_BURST,
    ADDRESS_INTERVAL_S,
    BURST,
    INTERVAL_S,
    PATIENCE_S,
    SITE_BURST,
    SITE_INTERVAL_S,
    Guesses,
    Place,
    Turns,
)
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.rights import Rights
from ganeti.rapi.users import Users
from ganeti.utils import fs

# A thousandth of the usual cost; one test pays the whole of it.
_CHEAP = (1 << 5, 8, 3)
HANDLERS = {resource.handler for resource in RESOURCES}
HA1 = hashlib.md5(b"jill:Ganeti Remote API:pw").hexdigest()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def incoming(authorization: str | None, address: str) -> Incoming:
    lines = ["GET /2/info HTTP/1.1", "Host: h"]
    if authorization is not None:
        lines.append(f"Authorization: {authorization}")
    return Incoming(messages.parse_head("\r\n".join(lines).encode("latin-1")), address)


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
        "{PAM}a/b",
        "{PAM}../x",
        "{pam}-x",
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
    assert found["u"].rights.may(frozenset(needed), handler, method) is may


class Lab:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.slept: list[float] = []
        self.users = Users(str(path), clock=lambda: self.now, sleep=self.sleep)
        # With a random key, two names share a counter in one of a thousand runs.
        self.users._guesses._key = bytes(32)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def identify(self, header: str | None, address: str = "192.0.2.1") -> users.User | None:
        return asyncio.run(self.users.identify(incoming(header, address)))

    def refused(self, header: str, address: str = "192.0.2.1") -> Refused:
        with pytest.raises(Refused) as caught:
            self.identify(header, address)
        return caught.value

    def use_up_address(self) -> None:
        """Guess at the passwords of many names until the address is refused."""
        statuses = [
            self.refused(basic(f"user{number}", "guess")).status
            for number in range(2 * ADDRESS_BURST)
        ]
        assert statuses[-1] == 429


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    # The time which a check for an unknown user takes, too.
    monkeypatch.setattr(passwords, "SCRYPT_COST", _CHEAP)
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


def test_wrong_passwords_wait_for_their_turn(lab: Lab) -> None:
    for _ in range(BURST):
        assert lab.refused(basic("jill", "guess")).status == 401
    assert lab.slept == []
    lab.refused(basic("jill", "guess"))
    lab.refused(basic("jill", "guess"))
    assert lab.slept == [INTERVAL_S, 2 * INTERVAL_S]
    # The others at the same address, and the same user at another one, go on at once.
    assert lab.identify(basic("jack", "secret"))
    assert lab.identify(basic("jill", "pw"), "192.0.2.2")
    assert len(lab.slept) == 2
    # The right password waits as well, because nobody knows before that it is right.
    assert lab.identify(basic("jill", "pw"))
    assert lab.slept == [INTERVAL_S, 2 * INTERVAL_S, 3 * INTERVAL_S]
    # Then the count begins anew.
    assert lab.identify(basic("jill", "pw")) and len(lab.slept) == 3


def test_guesses_have_a_rate_for_ever(lab: Lab) -> None:
    for _ in range(BURST):
        lab.refused(basic("nobody", "guess"))
    for _ in range(20):
        lab.now += INTERVAL_S
        assert lab.refused(basic("nobody", "guess")).status == 401
    assert lab.slept == []
    lab.now += BURST * INTERVAL_S
    for _ in range(BURST):
        lab.refused(basic("nobody", "guess"))
    assert lab.slept == []


@pytest.mark.parametrize("user", ["jack", "jill", "joe", "nobody"])
def test_guesses_in_parallel_do_not_pass_the_limit(lab: Lab, user: str) -> None:
    """Whoever knows the password of `jack` is among the 500, and must not be let in beside."""

    async def all_together() -> list[int]:
        async def one(number: int) -> int:
            header = basic(user, "secret" if number == 499 else f"guess{number}")
            try:
                await lab.users.identify(incoming(header, "192.0.2.1"))
            except Refused as err:
                return err.status
            return 200

        return await asyncio.gather(*(one(number) for number in range(500)))

    # Another client has logged in with the right password before.
    assert lab.identify(basic("jack", "secret"), "192.0.2.9")
    found = asyncio.run(all_together())
    checked = BURST + int(PATIENCE_S / INTERVAL_S)
    assert found.count(401) == checked and found.count(429) == 500 - checked
    assert lab.slept == [INTERVAL_S * (number + 1) for number in range(checked - BURST)]


def test_equal_requests_in_parallel_are_one_check(lab: Lab) -> None:
    """A program opens many connections at once; its password is not known yet."""

    async def all_together() -> list[users.User | None]:
        header = basic("joe", "pw")
        return await asyncio.gather(
            *(lab.users.identify(incoming(header, "192.0.2.1")) for _ in range(100))
        )

    assert all(user is not None for user in asyncio.run(all_together()))
    assert lab.slept == []


def test_a_program_which_logs_in_all_the_time_does_not_free_the_way(lab: Lab) -> None:
    assert lab.identify(basic("jack", "secret"))
    for _ in range(BURST):
        lab.refused(basic("jack", "guess"))
        assert lab.identify(basic("jack", "secret"))
    lab.refused(basic("jack", "guess"))
    assert lab.slept


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("-", "-", True),
    ],
)
def test_addresses(one: str, other: str, same: bool) -> None:
    counted = Guesses(lambda: 0.0)
    assert (counted.place("jack", one) == counted.place("jack", other)) is same
    assert counted.place("jack", one) == counted.place("jack", one)


def test_the_counters_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_MOST_COUNTERS", 5)
    counted = Guesses(lambda: 0.0)
    for number in range(100):
        counted.take(Place(f"192.0.2.{number}", 0))
        counted.take_of_address(Place(f"192.0.2.{number}", 0))
    assert len(counted._of_users) == len(counted._of_addresses) == 5


def test_many_names_give_an_address_no_more_guesses(lab: Lab) -> None:
    for number in range(ADDRESS_BURST):
        assert lab.refused(basic(f"user{number}", "guess")).status == 401
    assert lab.slept == []
    waiting = int(PATIENCE_S / ADDRESS_INTERVAL_S)
    for number in range(waiting):
        assert lab.refused(basic(f"other{number}", "guess")).status == 401
    assert lab.slept == [ADDRESS_INTERVAL_S * (number + 1) for number in range(waiting)]
    err = lab.refused(basic("further", "guess"))
    assert err.status == 429 and "too many wrong passwords from this address" in str(err)
    assert dict(err.headers)["Retry-After"] == str(waiting + 2)
    # Other addresses go on, and the time of waiting is that which the answer said.
    assert lab.identify(basic("jack", "secret"), "192.0.2.2")
    lab.now += waiting + 2
    assert lab.identify(basic("jack", "secret"))


def test_the_owner_of_many_networks_has_no_more_guesses(lab: Lab) -> None:
    def guess(number: int) -> Refused:
        return lab.refused(basic("jack", "guess"), f"2400:1:2:{number:x}::{number:x}")

    waiting = int(PATIENCE_S / SITE_INTERVAL_S)
    for number in range(SITE_BURST + waiting):
        assert guess(number).status == 401
    assert len(lab.slept) == waiting and max(lab.slept) == PATIENCE_S
    err = guess(SITE_BURST + waiting)
    assert err.status == 429 and "from this network" in str(err)
    # Other networks go on, and right passwords there do not count.
    for number in range(2 * SITE_BURST):
        assert lab.identify(basic("jack", "secret"), f"2400:1:3:{number:x}::1")
    assert lab.identify(basic("jack", "secret"), "192.0.2.1")
    lab.now += int(dict(err.headers)["Retry-After"])
    assert lab.identify(basic("jack", "secret"), "2400:1:2:ffff::1")


def test_a_refused_address_uses_up_nothing_of_its_network(lab: Lab) -> None:
    for number in range(5 * SITE_BURST):
        lab.refused(basic(f"user{number}", "guess"), "2400:1:2:1::1")
    slept = len(lab.slept)
    assert lab.identify(basic("jack", "secret"), "2400:1:2:2::1")
    assert lab.refused(basic("jack", "guess"), "2400:1:2:3::1").status == 401
    assert len(lab.slept) == slept


def test_who_has_logged_in_goes_on_beside_guesses_from_the_same_address(lab: Lab) -> None:
    assert lab.identify(basic("joe", "pw"))
    lab.use_up_address()
    slept = len(lab.slept)
    for _ in range(2 * BURST):
        assert lab.identify(basic("joe", "pw"))
    assert len(lab.slept) == slept


def test_an_address_that_is_refused_has_no_more_guesses_at_known_passwords(lab: Lab) -> None:
    """The answer to a password that needs no check comes before the limit of the address."""
    assert lab.identify(basic("joe", "pw"))
    lab.use_up_address()
    for number in range(BURST):
        assert "from this address" in str(lab.refused(basic("joe", f"guess{number}")))
    # From here on the right password waits as long as a wrong one.
    for number in range(100):
        lab.refused(basic("joe", f"guess{number}"))
    assert "for this user" in str(lab.refused(basic("joe", "pw")))


def test_right_passwords_are_not_counted_for_an_address(tmp_path: Path) -> None:
    path = tmp_path / "users"
    names = [f"user{number}" for number in range(3 * ADDRESS_BURST)]
    path.write_text("".join(f"{name} pw\n" for name in names))
    lab = Lab(path)
    for name in names:
        assert lab.identify(basic(name, "pw"))
    assert lab.slept == []


@pytest.mark.parametrize("name", ["jack", "jill", "joe", "dear", "nobody"])
def test_names_are_not_seen_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A check does the same work whatever is stored: each cost of the file once."""
    dear = (1 << 6, 8, 1)
    path = tmp_path / "users"
    path.write_text(
        f"jack secret\njill {{HA1}}{HA1}\njoe {passwords.hashed('pw', _CHEAP)}\n"
        f"dear {passwords.hashed('pw', dear)}\nother {passwords.hashed('pw', dear)}\n"
    )
    lab = Lab(path)
    done = []
    real = hashlib.scrypt

    def scrypt(password: bytes, **options: Any) -> bytes:
        done.append((options["n"], options["r"], options["p"]))
        return real(password, **options)

    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    assert lab.refused(basic(name, "guess")).status == 401
    assert done == [_CHEAP, dear]


def test_a_file_without_slow_passwords_has_quick_checks_for_all_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users"
    path.write_text(f"jack secret\njill {{HA1}}{HA1}\n")
    lab = Lab(path)
    monkeypatch.delattr(hashlib, "scrypt")
    for name in ("jack", "jill", "nobody"):
        assert lab.refused(basic(name, "guess")).status == 401


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Checks:
    """Checks which end when the test says so."""

    def __init__(self, at_once: int, guesses: Mapping[str, float] | None = None) -> None:
        self.turns = Turns(at_once, lambda address: (guesses or {}).get(address, 0))
        self.begun: list[str] = []
        self.working: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, *names: str) -> None:
        """Add checks; the first letter of a name is the address."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self._work(name))
        await _settle()

    async def _work(self, name: str) -> None:
        async with self.turns.of(name[0]):
            self.begun.append(name)
            self.working[name] = asyncio.Event()
            try:
                await self.working[name].wait()
            finally:
                del self.working[name]

    async def end(self, name: str) -> None:
        self.working[name].set()
        await _settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await _settle()


def test_addresses_take_turns() -> None:
    async def run() -> None:
        checks = Checks(2)
        await checks.add(*(f"a{number}" for number in range(5)))
        # One at a time, although there is room for two.
        assert checks.begun == ["a0"]
        await checks.add("b0", "b1", "c0")
        assert checks.begun == ["a0", "b0"]
        for name, after in (("a0", "c0"), ("c0", "a1"), ("b0", "b1"), ("b1", "-"), ("a1", "a2")):
            begun = len(checks.begun)
            await checks.end(name)
            assert checks.begun[begun:] == ([after] if after != "-" else [])
        await checks.add("d0")
        assert checks.begun[-1] == "d0"
        for name in ("d0", "a2", "a3", "a4"):
            await checks.end(name)
        assert checks.working == {} and checks.turns._waiting == {} and checks.turns._free == 2

    asyncio.run(run())


def test_every_second_turn_belongs_to_the_address_with_the_fewest_guesses() -> None:
    async def run() -> None:
        checks = Checks(1, {"a": 2, "b": 3, "c": 1})
        await checks.add("a0", "b0", "b1", "c0", "a1", "a2", "c1", "c2")
        for _ in range(7):
            (name,) = checks.working
            await checks.end(name)
        # The others are those that have waited longest.
        assert checks.begun == ["a0", "b0", "c0", "a1", "c1", "b1", "c2", "a2"]

    asyncio.run(run())


def test_many_addresses_do_not_delay_a_user_elsewhere(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong guesses from 100 addresses, three from each; then a right password from another one."""
    order: list[str] = []
    real = passwords.check

    def check(
        password: passwords.Password | None, user: str, given: str, costs: list[passwords.Cost]
    ) -> bool:
        order.append(user)
        return real(password, user, given, costs)

    monkeypatch.setattr(passwords, "check", check)

    async def run() -> None:
        wrong = [
            asyncio.create_task(
                lab.users.identify(incoming(basic(f"user{number}", "guess"), f"192.0.2.{address}"))
            )
            for address in range(100)
            for number in range(3)
        ]
        await asyncio.sleep(0)
        assert await lab.users.identify(incoming(basic("joe", "pw"), "198.51.100.1"))
        assert order.index("joe") <= 4
        await asyncio.gather(*wrong, return_exceptions=True)
        assert len(order) == 301

    asyncio.run(run())


def test_checks_that_are_stopped_leave_their_place() -> None:
    async def run() -> None:
        checks = Checks(1)
        await checks.add("a0", "b0", "c0", "c1")
        await checks.cancel("b0")
        await checks.cancel("a0")
        assert checks.begun == ["a0", "c0"]
        # It is stopped in the moment in which it gets its turn.
        checks.working["c0"].set()
        checks.tasks["c1"].cancel()
        await _settle()
        assert checks.working == {} and checks.turns._waiting == {}
        await checks.add("d0")
        assert checks.begun == ["a0", "c0", "d0"]

    asyncio.run(run())


def test_wrong_guesses_do_not_delay_a_user_elsewhere(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 guesses from one address; then one check of theirs runs, and the others wait."""
    order: list[str] = []
    real = passwords.check

    def check(
        password: passwords.Password | None, user: str, given: str, costs: list[passwords.Cost]
    ) -> bool:
        order.append(user)
        return real(password, user, given, costs)

    monkeypatch.setattr(passwords, "check", check)

    async def run() -> None:
        guesses_of_one = [
            asyncio.create_task(
                lab.users.identify(incoming(basic(f"user{number}", "guess"), "192.0.2.1"))
            )
            for number in range(150)
        ]
        await asyncio.sleep(0)
        user = await lab.users.identify(incoming(basic("joe", "pw"), "192.0.2.2"))
        assert user is not None and user.name == "joe"
        checked_before = order.index("joe")
        found = await asyncio.gather(*guesses_of_one, return_exceptions=True)
        most = ADDRESS_BURST + int(PATIENCE_S / ADDRESS_INTERVAL_S)
        statuses = [err.status for err in found if isinstance(err, Refused)]
        assert statuses.count(401) == most and statuses.count(429) == 150 - most
        assert checked_before <= 2

    asyncio.run(run())


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


def test_a_byte_order_mark_locks_nobody_out(tmp_path: Path) -> None:
    text = "\ufeffjack secret write\nprobe word\n"
    found, problems = users.parse(text)
    assert list(found) == ["jack", "probe"] and problems == []
    path = tmp_path / "users"
    path.write_text(text, encoding="utf-8")
    assert fs.read_edited_file(str(path)) == text[1:]


def test_roles_come_from_a_file(tmp_path: Path) -> None:
    file, roles = tmp_path / "users", tmp_path / "roles"
    file.write_text("jack pw @tenant\njill pw @operator\n")
    found = Users(str(file), HANDLERS, roles_path=str(roles))
    start = (frozenset({"write"}), "instances_name_startup", "PUT")

    def rights(name: str) -> Rights:
        return found._accounts[name].rights

    # Without the file there is no such role, and it stands for no instance at all.
    assert rights("jack").limited and not rights("jack").may(*start)
    assert rights("jill").may(*start)
    roles.write_text("role tenant = write@own\nrule\n")
    found.refresh()
    assert str(rights("jack")) == "write@own" and rights("jack").may(*start)
    assert found.rules.lines == {"role tenant": 1}
    assert str(found.rights("@tenant,read")[0]) == "read,write@own"
    # A file that cannot be read changes nothing.
    roles.unlink()
    roles.mkdir()
    found.refresh()
    assert rights("jack").may(*start)
    roles.rmdir()
    found.refresh()
    assert not rights("jack").may(*start)
