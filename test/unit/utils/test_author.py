"""Who submitted a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.utils import author

OF_PROCESS = author.of_process
TRAIL = [["gnt:user", "why", 1], ["gnt:client:gnt-node", "modify", 2], ["gnt:person", "alice", 3]]


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the user id of the login; nobody is logged in, and root runs the command."""
    path = tmp_path / "loginuid"
    path.write_text("4294967295", encoding="ascii")
    monkeypatch.setattr(author, "_LOGIN_FILE", str(path))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    return path


@pytest.mark.parametrize(
    ("environ", "uid", "name"),
    [
        ({}, "4294967295", ""),
        ({}, "0", "root"),
        ({}, "x", ""),
        ({}, "4000000001", ""),
        ({"SUDO_USER": "alice"}, "0", "alice"),
        ({"SUDO_USER": ""}, "0", "root"),
        ({"SUDO_USER": "DOMAIN\\alice.b-c@x"}, "0", "DOMAIN\\alice.b-c@x"),
        ({"SUDO_USER": "al ice"}, "0", ""),
        ({"SUDO_USER": "a\x1b[2J"}, "0", ""),
        ({"SUDO_USER": "alice\n"}, "0", ""),
        ({"SUDO_USER": "a" * 65}, "0", ""),
    ],
)
def test_who_runs_a_command(login: Path, environ: dict[str, str], uid: str, name: str) -> None:
    login.write_text(uid, encoding="ascii")
    assert OF_PROCESS(environ) == name


def test_a_kernel_without_logins(login: Path) -> None:
    login.unlink()
    assert OF_PROCESS({}) == ""


def test_a_user_who_is_not_root_is_the_person(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of another user proves nothing."""
    import pwd

    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam("daemon").pw_uid)
    assert OF_PROCESS({"SUDO_USER": "alice"}) == "daemon"


@pytest.mark.parametrize(
    ("trail", "text"),
    [
        (TRAIL, "alice (gnt-node)"),
        (TRAIL[:2], "gnt-node"),
        (TRAIL[2:], "alice"),
        ([["gnt:library:rlib2:tags", "", 1], ["gnt:person", "bob", 2]], "bob (REST)"),
        ([["gnt:watcher", "x", 1]], "watcher"),
        ([["gnt:person", "a (b)", 1], ["gnt:person", [], 1], [], 7, None, ["gnt:person"]], ""),
        (None, ""),
        ("gnt:person", ""),
    ],
)
def test_the_author_in_a_trail(trail: Any, text: str) -> None:
    assert author.of_trail(trail) == text


def test_persons_whom_a_client_names_are_left_out() -> None:
    assert author.without_persons([*TRAIL, 5, []]) == [*TRAIL[:2], 5, []]
    assert author.without_persons(None) == []
