"""Access tokens of the REST interface: who a request with one is, and what it may do."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import credentials, tokens
from ganeti.rapi.identify import Identities
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.rights import READ, WRITE
from ganeti.rapi.users import User, Users

NOW = 1_800_000_000.0


class Kept:
    """The records, as the daemon keeps them."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], AccessRecord] = {}
        self.noted: list[tuple[str, str]] = []
        self.asked: list[str] = []

    async def get(self, kind: str, key: str) -> AccessRecord | None:
        self.asked.append(key)
        return self.records.get((kind, key))

    def used(self, kind: str, key: str) -> None:
        self.noted.append((kind, key))


class Lab:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "users"
        self.kept = Kept()
        self.clock = 0.0
        self.write("jack x write\njill x read,console@tag:web\nola x write@own\n")
        roles = directory / "roles"
        roles.write_text("role looker = view\n", encoding="utf-8")
        self.users = Users(
            str(self.file), {"jobs_id", "tags"}, roles_path=str(roles), clock=lambda: self.clock
        )
        kept = cast(KeptRecords, self.kept)
        self.way = Identities([tokens.Tokens(kept, self.users), self.users])

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")
        self.clock += 100

    def add(self, owner: str, rights: str = "", **more: Any) -> str:
        secret, record = tokens.make(credentials.Wanted(owner, NOW, rights=rights, **more))
        self.kept.records[record.kind, record.key] = record
        return secret

    def ask(self, *headers: str) -> User | None:
        text = "\r\n".join(("GET /2/info HTTP/1.1", "Host: h", *headers))
        head = messages.parse_head(text.encode())
        return asyncio.run(self.way.identify(Incoming(head, "192.0.2.1")))

    def user(self, secret: str) -> User:
        found = self.ask(f"Authorization: Bearer {secret}")
        assert found is not None
        return found

    def refused(self, *headers: str) -> Refused:
        with pytest.raises(Refused) as caught:
            self.ask(*headers)
        assert caught.value.status == 401
        return caught.value


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def may(user: User, right: str) -> bool:
    return user.may({right, WRITE}, "nodes", "GET")


def test_a_token_stands_for_its_owner(lab: Lab) -> None:
    secret = lab.add("jack")
    user = lab.user(secret)
    assert (user.name, user.by) == ("jack", "token") and may(user, WRITE)
    assert lab.kept.noted == [("token", lab.kept.asked[0])]
    assert lab.ask(f"Authorization: bearer  {secret} ") == user
    assert lab.ask() is None


def test_a_token_has_its_rights_and_never_more_than_the_owner(lab: Lab) -> None:
    reading, writing = lab.add("jack", "read"), lab.add("jill", "write")
    assert may(lab.user(reading), READ) and not lab.user(reading).may({WRITE}, "nodes", "PUT")
    assert may(lab.user(writing), READ) and not lab.user(writing).may({WRITE}, "nodes", "PUT")
    # The rights of the owner change: those of the token do as well.
    lab.write("jack x tags\njill x write\n")
    assert not may(lab.user(reading), READ)
    assert lab.user(reading).rights.area("jack", {READ}, "tags", "GET") is None
    assert lab.user(writing).may({WRITE}, "nodes", "PUT")


def test_a_limited_owner_has_limited_tokens(lab: Lab) -> None:
    user = lab.user(lab.add("ola", "write"))
    area = user.rights.area("ola", {WRITE}, "instances_name_startup", "PUT")
    assert user.rights.limited and area is not None and str(area) == "own"
    narrow = lab.user(lab.add("jack", "operator@tag:web"))
    area = narrow.rights.area("jack", {WRITE}, "jobs_id", "DELETE")
    assert area is not None and str(area) == "tag:web"


def test_a_role_that_is_gone_gives_nothing(lab: Lab) -> None:
    assert may(lab.user(lab.add("jack", "@looker")), READ)
    assert not may(lab.user(lab.add("jack", "@nosuch")), READ)
    assert lab.user(lab.add("jack", "@nosuch")).rights.limited


def test_an_owner_without_a_line_has_no_tokens(lab: Lab) -> None:
    secret = lab.add("jack")
    assert lab.user(secret)
    lab.write("jill x read\n")
    err = lab.refused(f"Authorization: Bearer {secret}")
    assert "user jack, who does not exist" in str(err) and secret not in str(err)
    assert len(lab.kept.noted) == 1


def test_rights_of_an_owner_who_is_not_in_the_file(lab: Lab) -> None:
    secret = lab.add("oidc:ann", "write", owner_rights="read,jobs_id")
    user = lab.user(secret)
    assert user.name == "oidc:ann" and may(user, READ)
    assert not user.may({WRITE}, "nodes", "PUT")
    # A line with the same name gives this token no more.
    lab.write("oidc:ann x write\n")
    assert not lab.user(secret).may({WRITE}, "nodes", "PUT")


@pytest.mark.parametrize(
    "text", ["", "x", "gnt_", "gnt_" + "a" * 42, "gnt_" + "a" * 44, "gnt_" + "ä" * 43]
)
def test_what_is_not_a_token_is_refused_without_a_question(lab: Lab, text: str) -> None:
    err = lab.refused(f"Authorization: Bearer {text}")
    assert "begins with gnt_" in str(err) and lab.kept.asked == []


def test_a_token_that_is_not_known(lab: Lab) -> None:
    secret = lab.add("jack")
    lab.kept.records.clear()
    err = lab.refused(f"Authorization: Bearer {secret}")
    assert "rapi-passwd token list" in str(err) and secret not in str(err)
    assert dict(err.headers)["WWW-Authenticate"] == (
        'Bearer realm="Ganeti Remote API", error="invalid_token"'
    )
    assert lab.kept.noted == []
    # A script of a page gets no such header.
    assert not lab.refused(f"Authorization: Bearer {secret}", "Sec-Fetch-Mode: cors").headers


def test_wrong_tokens_lock_nobody_out(lab: Lab) -> None:
    for _ in range(200):
        lab.refused("Authorization: Bearer gnt_" + "a" * 43)
    assert lab.user(lab.add("jack"))
    assert lab.ask("Authorization: Basic amFjazp4") is not None


def test_another_scheme_is_not_ours(lab: Lab) -> None:
    assert "Basic" in dict(lab.refused("Authorization: Negotiate x").headers)["WWW-Authenticate"]


def test_what_is_shown_of_a_token() -> None:
    wanted = credentials.Wanted("jack", NOW, "ci", "read", NOW + 5)
    secret, record = tokens.make(wanted)
    other, _record = tokens.make(wanted)
    assert secret != other
    shown = credentials.shown(record)
    assert list(shown.values()) == [record.key[:12], "jack", "ci", "read", NOW, NOW + 5, None]
    assert secret not in repr(record)
    sent = credentials.as_change(record)
    assert AccessRecord(uuid="", **sent) == dataclasses.replace(record, uuid="")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("30d", 30 * 86400), ("8w", 8 * 7 * 86400), ("99999w", 99999 * 7 * 86400)],
)
def test_spans(text: str, seconds: int) -> None:
    assert credentials.parse_expires(text, NOW) == NOW + seconds


def test_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    found = credentials.parse_expires("2030-01-01", NOW)
    assert found is not None and 1893456000 - 86400 < found < 1893456000 + 86400
    assert credentials.parse_expires("never", NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0d",
        "-1d",
        "1",
        "d",
        "1.5d",
        "1m",
        "100000d",
        "2027",
        "2027-13-01",
        "0001-01-01",
        "\u0661d",
    ],
)
def test_what_is_no_end(text: str) -> None:
    with pytest.raises(errors.ParameterError):
        credentials.parse_expires(text, NOW)


@pytest.mark.parametrize(
    ("label", "expires"), [("a\0", None), ("x" * 101, None), ("", NOW), ("", NOW - 1)]
)
def test_tokens_that_cannot_be_made(label: str, expires: float | None) -> None:
    with pytest.raises(errors.ParameterError):
        tokens.make(credentials.Wanted("jack", NOW, label, expires=expires))
