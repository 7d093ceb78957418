"""``gnt-debug metad``."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.metad import client

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"web1": {"started": True, "exit_code": 3, "log": "one\x1b[2J\ntwo\n", "contact": 5.0}}

    def report(name: str) -> dict[str, Any] | None:
        return known.get(name)

    monkeypatch.setattr(client, "echo", lambda text: text)
    monkeypatch.setattr(
        client,
        "instances",
        lambda: [
            ["web1", "169.254.0.7", "debian", "install", None],
            ["web2", "169.254.0.8", "", None, 0.0],
        ],
    )
    monkeypatch.setattr(client, "report", report)
    monkeypatch.setattr(client, "remove", lambda name: known.pop(name, None) is not None)


def test_echo(gnt: Gnt) -> None:
    assert gnt("debug metad echo hello") == (0, "hello\n", "")


def test_list(gnt: Gnt) -> None:
    first, second = gnt("debug metad list").out.splitlines()
    assert first == "web1 169.254.0.7 os=debian task=install contact=never"
    assert second.startswith("web2 169.254.0.8 os=- task=- contact=1970-01-01")


def test_report(gnt: Gnt) -> None:
    assert gnt("debug metad report web1").out == (
        "started: yes\nexit code: 3\n  one\\x1b[2J\n  two\n"
    )
    assert "does not know a guest 'web9'" in gnt("debug metad report web9").err


def test_forget(gnt: Gnt) -> None:
    assert gnt("debug metad forget web1") == (0, "", "")
    assert gnt("debug metad forget web1") == (
        1,
        "",
        "ganeti-metad of this node does not know a guest 'web1'\n",
    )


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ("", "at least 1 argument"),
        ("dance", "'dance' is not a request to ganeti-metad"),
        ("echo", "'echo' takes 1 argument, not 0"),
        ("list x", "'list' takes 0 arguments, not 1"),
    ],
)
def test_what_cannot_be_asked(gnt: Gnt, words: str, fragment: str) -> None:
    ended = gnt(f"debug metad {words}")
    assert ended.code == 1 and fragment in ended.err


def test_without_a_daemon(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_text: str) -> str:
        raise client.NotRunning("ganeti-metad does not run on this node")

    monkeypatch.setattr(client, "echo", fail)
    ended = gnt("debug metad echo hello")
    assert ended.code == 1 and "ganeti-metad does not run on this node" in ended.err
    assert issubclass(client.NotRunning, errors.GenericError)
