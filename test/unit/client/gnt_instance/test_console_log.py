"""``gnt-instance console --log``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.client.gnt_instance import console_log

from ..conftest import Gnt


def part(text: str, position: str = "0:5", node: str = "node1", *, lost: bool = False) -> Any:
    return {"text": text, "position": position, "node": node, "lost": lost}


def test_last_lines(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["ReadConsoleLog"] = lambda *args: part("boot\r\nlogin: ")
    assert gnt("instance console --log web1") == (0, "boot\nlogin: \n", "")
    assert gnt("instance console --log --lines=7 web1").code == 0
    assert master.requests == [
        ("ReadConsoleLog", ["web1", 100, ""]),
        ("ReadConsoleLog", ["web1", 7, ""]),
    ]


def test_follow(gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        part("one\n", "0:4"),
        part("", "0:4"),
        part("two\n", "0:8"),
        part("three\n", "1:6", lost=True),
        part("four\n", "0:5", "node2"),
    ]
    slept: list[float] = []

    def answer(*args: Any) -> Any:
        return parts.pop(0) if parts else part("", "0:5", "node2")

    def pause(seconds: float) -> None:
        slept.append(seconds)
        if not parts:
            raise KeyboardInterrupt

    master.answers["ReadConsoleLog"] = answer
    # Only for this module: threads of the simulated master sleep, too.
    monkeypatch.setattr(console_log, "time", SimpleNamespace(sleep=pause))
    code, out, err = gnt("instance console --log --follow --lines 1 web1")
    assert (code, out) == (0, "one\ntwo\nthree\nfour\n")
    assert "some output is missing here" in err and "on node node2 now" in err
    assert [args for _, args in master.requests][:4] == [
        ["web1", 1, ""],
        ["web1", 0, "0:4"],
        ["web1", 0, "0:4"],
        ["web1", 0, "0:8"],
    ]
    assert slept == [1.0, 1.0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--lines=5 web1", "so they need --log"),
        ("--follow web1", "so they need --log"),
        ("--log --show-cmd web1", "either --log or --show-cmd"),
        ("--log --lines=-1 web1", "--lines must be between 0 and"),
    ],
)
def test_mistakes(gnt: Gnt, master: FakeMaster, line: str, words: str) -> None:
    code, _, err = gnt(f"instance console {line}")
    assert code == 1 and words in err
    assert master.requests == []


def test_an_error_of_the_master_is_shown(gnt: Gnt, master: FakeMaster) -> None:
    master.errors["ReadConsoleLog"] = errors.OpPrereqError("no log", errors.ECODE_STATE)
    assert gnt("instance console --log web1").code == 1


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (["\x1b[1;32mok\x1b[0m\n"], "ok\n"),
        (["\x1b]0;title\x07a\x1b]2;b\x1b\\b"], "ab"),
        (["\x1bca\x1b[2J\x1b[Hb"], "ab"),
        (["a\x1b[1", ";32mb"], "ab"),
        (["a\x1b", "[mb"], "ab"),
        (["\x1b]0;ti", "tle\x07a"], "a"),
        (["a\x9bb\x08"], "a\\x9bb\\x08"),
        (["a\0\r\nb\x07\n"], "a\nb\n"),
        (["\x1b#8a\x1b(Bb"], "ab"),
        (["a\x1b#", "8b"], "ab"),
        (["\x1b\x1b[mb"], "\\x1bb"),
    ],
)
def test_the_guest_does_not_act_on_the_terminal(parts: list[str], wanted: str) -> None:
    cleaner = console_log.Cleaner()
    assert "".join(cleaner.clean(one) for one in parts) == wanted
