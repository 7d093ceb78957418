"""Writing, colours, questions."""

from __future__ import annotations

import io
import os
import pty
import unicodedata
from typing import Any

import pytest

from ganeti.cli import terminal

# New line and tab; soft hyphen, joiners and marks of single scripts, which change no order.
_HARMLESS = "\n\t\xad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u180e"
_HARMLESS += "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\u206a\u206b\u206c\u206d\u206e\u206f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colours_only_for_people(stream: Any, environ: dict[str, str], wanted: bool) -> None:
    assert terminal.wants_colour(stream, environ) is wanted


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not terminal.is_terminal(stream)


def test_a_character_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal.out("grün")
    assert raw.getvalue() == b"gr\\xfcn\n"


EVIL = "web\033[2J\033]0;title\a\r\b\x9b1m\x7f\u202e\0"
VISIBLE = r"web\x1b[2J\x1b]0;title\x07\x0d\x08\x9b1m\x7f\u202e\x00"


def test_texts_of_others_cannot_control_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.out(EVIL)
    terminal.err(f"two\nlines\tand {EVIL}")
    assert capsys.readouterr() == (f"{VISIBLE}\n", f"two\nlines\tand {VISIBLE}\n")


def test_only_our_own_colours_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A text of others cannot even use the colours which we use."""
    terminal.out(f"{terminal.paint(EVIL, terminal.RED)} \033[31mred\033[0m")
    assert capsys.readouterr().out == (f"\033[31m{VISIBLE}\033[0m " + r"\x1b[31mred\x1b[0m" + "\n")


def test_every_control_character_is_shown() -> None:
    for code in range(0x3000):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char not in _HARMLESS:
            assert terminal.shown(char).startswith("\\"), hex(code)
        else:
            assert terminal.shown(char) == char


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (b"y\n", True),
        (b"yes\n", True),
        (b"Y\n", True),
        (b"n\n", False),
        (b"\n", False),
        (b"maybe\n", False),
    ],
)
def test_questions(answer: bytes, meaning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, follower = pty.openpty()
    name = os.ttyname(follower)
    really_open = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, flags, *more: really_open(name if path == "/dev/tty" else path, flags, *more),
    )
    os.write(controller, answer)
    assert terminal.can_ask()
    assert terminal.confirm("Go on?") is meaning
    shown = b""
    while b"y/[n]" not in shown:  # the answer's echo may come by itself
        shown += os.read(controller, 1000)
    assert b"Go on?" in shown
    os.close(controller)
    os.close(follower)


def test_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError("no terminal")

    monkeypatch.setattr(os, "open", refuse)
    assert not terminal.can_ask()
    assert not terminal.confirm("Go on?")


def test_width_of_a_terminal_and_of_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda number: os.terminal_size((44, 10)))
    with open(os.devnull, "w", encoding="utf-8") as stream:
        assert terminal.width(stream) == 44
        monkeypatch.undo()
        assert terminal.width(stream) == 80
    assert terminal.width(io.StringIO(), 70) == 70
