"""Whether the cluster demands a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.http_lab import HttpLab
from fakes.rest_client import Rest
from fakes.rest_master import FakeMaster
from ganeti.rapi.application import RestApplication
from ganeti.rapi.demand import POLL_S, Demand
from ganeti.rapi.identify import Identities
from ganeti.rapi.users import Users


class Choice:
    """The file on a node, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 100.0
        self.demand = Demand(str(path), clock=lambda: self.now)

    def now_is(self, text: str | bytes | None) -> bool:
        self.path.unlink(missing_ok=True)
        if text is not None:
            self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.now += POLL_S + 0.1
        return bool(self.demand)


@pytest.fixture
def choice(tmp_path: Path) -> Choice:
    return Choice(tmp_path / "ssconf_rapi_require_authentication")


def test_the_file_decides(choice: Choice) -> None:
    assert not choice.demand  # an older cluster
    assert choice.now_is("True\n")
    assert not choice.now_is("False\n")
    assert choice.now_is("True\n")
    assert not choice.now_is(None)


@pytest.mark.parametrize("text", ["", "garbage", b"\xff\xfe"])
def test_a_damaged_file_demands_a_password(choice: Choice, text: str | bytes) -> None:
    assert choice.now_is(text)
    assert not choice.now_is("False\n")


def test_it_is_not_read_for_each_request(choice: Choice) -> None:
    assert not choice.demand
    choice.path.write_text("True\n")
    assert not choice.demand
    choice.now += POLL_S + 0.1
    assert choice.demand


def test_the_option_of_the_daemon_is_stronger(tmp_path: Path) -> None:
    path = tmp_path / "choice"
    path.write_text("False\n")
    assert Demand(str(path), always=True)


@pytest.fixture
def rest(tmp_path: Path, choice: Choice) -> Iterator[Rest]:
    users = tmp_path / "users"
    users.write_text("root pw write\n")
    master = FakeMaster()
    lab = HttpLab(
        lambda: RestApplication(
            master, Identities([Users(str(users))]), require_authentication=choice.demand
        )
    )
    yield Rest(lab, master)
    lab.close()


def test_the_running_daemon_follows(rest: Rest, choice: Choice) -> None:
    assert rest("GET", "/2/instances", user=None)[0] == 200
    assert choice.now_is("True\n")
    assert rest("GET", "/2/instances", user=None)[0] == 401
    assert rest("GET", "/2/instances")[0] == 200
