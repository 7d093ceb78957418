"""``/2/tokens`` and ``/2/certificates``: who sees, makes and removes which."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.access_master import AccessMaster
from fakes.http_lab import HttpLab
from fakes.rest_client import Rest
from ganeti.http.event_server import Incoming
from ganeti.rapi import certificates, credentials
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.tokens import Tokens
from ganeti.rapi.users import User, Users
from ganeti.utils import clock, x509

USERS = "root pw write\njack pw read\nola pw write@own\nkeeper pw tokens_id\n"


class TokenRest(Rest):
    """Requests with a password or a token, and what the daemon keeps."""

    def bearer(self, secret: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, value, _headers = self(
            method, path, body, user=None, Authorization=f"Bearer {secret}"
        )
        return status, value

    def add(self, user: str, **body: Any) -> dict[str, Any]:
        status, value, headers = self("POST", "/2/tokens", body, user=f"{user}:pw")
        assert status == 200, value
        assert headers["cache-control"] == "no-store"
        return dict(value)

    def ids(self, user: str, path: str = "/2/tokens") -> list[str]:
        status, value, _headers = self("GET", path, user=f"{user}:pw")
        assert status == 200, value
        return [one["id"] for one in value]


class FromElsewhere:
    """The way in of a user whose session has rights of its own."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def identify(self, incoming: Incoming) -> User | None:
        name = incoming.head.headers.get("x-user")
        if name is None:
            return None
        return User(name, self._users.rights("read")[0], "session", "b" * 20)


@contextlib.contextmanager
def lab_of(directory: Path) -> Iterator[TokenRest]:
    file = directory / "users"
    file.write_text(USERS, encoding="utf-8")
    master = AccessMaster()

    def application() -> RestApplication:
        records, users = KeptRecords(master), Users(str(file), {"tokens_id"})
        ways = [Tokens(records, users), users, FromElsewhere(users)]
        return RestApplication(master, Identities(ways, Proofs(records, users)))

    lab = HttpLab(application)
    try:
        yield TokenRest(lab, master)
    finally:
        lab.close()


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[TokenRest]:
    with lab_of(tmp_path) as made:
        yield made


def test_a_token_of_ones_own(rest: TokenRest) -> None:
    made = rest.add("jack", label="ci", rights="read")
    assert (made["owner"], made["label"], made["rights"]) == ("jack", "ci", "read")
    assert abs(made["expires"] - clock.now() - 90 * 86400) < 3600 and made["used"] is None
    assert rest.bearer(made["token"], "GET", "/2/tokens")[0] == 200
    ((_, found),) = [rest.bearer(made["token"], "GET", "/2/tokens")]
    assert [one["id"] for one in found] == [made["id"]] and found[0]["used"] is not None
    assert "token" not in found[0]
    # At once.
    status, _value, _headers = rest("DELETE", f"/2/tokens/{made['id']}", user="jack:pw")
    assert status == 200
    status, value = rest.bearer(made["token"], "GET", "/2/tokens")
    assert status == 401 and "the token is not valid" in value["explain"]


def test_whose_tokens_a_user_sees_and_removes(rest: TokenRest) -> None:
    of_jack, of_ola, of_root = (rest.add(user)["id"] for user in ("jack", "ola", "root"))
    assert rest.ids("jack") == [of_jack] and rest.ids("ola") == [of_ola]
    assert rest.ids("root") == [of_jack, of_ola, of_root]
    for user in ("jack", "ola"):
        assert rest("DELETE", f"/2/tokens/{of_root}", user=f"{user}:pw")[0] == 404
    assert rest("DELETE", "/2/tokens/nosuch")[0] == 404
    assert rest("DELETE", f"/2/tokens/{of_jack}")[0] == 200
    # A right for the resource is enough.
    assert rest("DELETE", f"/2/tokens/{of_ola}", user="keeper:pw")[0] == 200
    assert rest.ids("root") == [of_root]
    assert rest("GET", "/2/tokens", user=None)[0] == 401


def test_a_token_makes_no_tokens(rest: TokenRest) -> None:
    first, second = rest.add("jack"), rest.add("jack")
    admin = rest.add("root")["token"]
    for secret in (first["token"], admin):
        status, value = rest.bearer(secret, "POST", "/2/tokens", {})
        assert status == 403 and "a token cannot make a token" in value["explain"]
    path = f"/2/tokens/{second['id']}"
    assert rest.bearer(first["token"], "DELETE", path)[0] == 403
    assert rest.bearer(admin, "DELETE", path)[0] == 200
    narrow = rest.add("root", rights="read")["token"]
    assert rest.bearer(narrow, "DELETE", f"/2/tokens/{first['id']}")[0] == 403


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"rights": "wirte"}, "'wirte' is not a right"),
        ({"rights": "read@nosuch:x"}, "is not a right"),
        ({"label": "a\nb"}, "which can be printed"),
        ({"expires": 5}, "in the past"),
        ({"expires": "soon"}, "expires"),
        ({"owner": "root"}, "owner"),
    ],
)
def test_wrong_tokens(rest: TokenRest, body: dict[str, Any], expected: str) -> None:
    status, value, _headers = rest("POST", "/2/tokens", body, user="jack:pw")
    assert status == 400 and expected in value["explain"]
    assert rest.ids("root") == []


def test_tokens_of_a_user_whom_another_server_knows(rest: TokenRest) -> None:
    assert isinstance(rest.master, AccessMaster)
    session = {"kind": "session", "key": "b" * 64, "owner": "ann", "ctime": 1.0, "used": None}
    rest.master.answers["ChangeAccessRecords"](
        [["put", {**session, "expires": None, "data": {"rights": "read"}}]]
    )

    def ask(user: str, body: dict[str, Any]) -> tuple[int, Any]:
        head = {"X_User": user, "Origin": "http://h"}
        status, value, _headers = rest("POST", "/2/tokens", body, user=None, **head)
        return status, value

    status, value = ask("bob", {})
    assert status == 403 and "no line in the users file" in value["explain"]
    status, value = ask("ann", {"expires": clock.now() + 91 * 86400})
    assert status == 400 and "at most 90 days" in value["explain"]
    status, token = ask("ann", {"rights": "write"})
    assert status == 200 and token["owner"] == "ann"
    # The rights of the login are the bound.
    assert rest.bearer(token["token"], "GET", "/2/tokens")[0] == 200
    assert rest.bearer(token["token"], "PUT", "/2/queue/drain")[0] == 403


def test_no_batch_has_a_secret(rest: TokenRest) -> None:
    body = {"operations": [{"method": "POST", "path": "/2/tokens", "body": {}}], "check": "each"}
    assert rest("POST", "/2/batch", body)[1][0]["status"] == 400


def test_certificates(rest: TokenRest) -> None:
    kept = []
    for owner in ("jack", "ola"):
        wanted = credentials.Wanted(owner, clock.now(), owner)
        record = certificates.make(wanted, x509.create_self_signed(owner), "(text)")
        assert isinstance(rest.master, AccessMaster)
        rest.master.answers["ChangeAccessRecords"](
            [["put", {name: getattr(record, name) for name in record.__slots__ if name != "uuid"}]]
        )
        kept.append(record.key[:12])
    path = "/2/certificates"
    assert rest.ids("jack", path) == kept[:1] and rest.ids("root", path) == kept
    assert rest("DELETE", f"{path}/{kept[0]}", user="ola:pw")[0] == 404
    assert rest("DELETE", f"{path}/{kept[0]}", user="jack:pw")[0] == 200
    assert rest("DELETE", f"{path}/{kept[1]}")[0] == 200
    assert rest.ids("root", path) == []
