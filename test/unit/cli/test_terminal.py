"""Writing, colours, questions."""

from __future__ import annotations

import io
import os
import pty
from typing import Any

import pytest

from ganeti.cli import terminal


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
