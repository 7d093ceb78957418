"""The recording of a terminal, and the animation which the manual has of it."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from devel import terminal_recording
from devel.html_pages import recordings


@pytest.mark.programs
def test_the_output_of_a_command_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "one.cast"
    program = "import os, sys; print(os.getcwd()); print(sys.stdout.isatty())"
    assert terminal_recording.main([str(target), sys.executable, "-c", program]) == 0
    header, *events = map(json.loads, target.read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    assert "".join(event[2] for event in events) == "~/ganeti\r\nTrue\r\n"
    assert [event[1] for event in events] == ["o"] * len(events)
    assert [event[0] for event in events] == sorted(event[0] for event in events)
    assert capsys.readouterr().out == f"{os.getcwd()}\nTrue\n"


@pytest.mark.programs
def test_a_command_which_fails_leaves_no_recording(tmp_path: Path) -> None:
    target = tmp_path / "one.cast"
    target.write_text("the recording before\n")
    assert terminal_recording.main([str(target), sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert target.read_text() == "the recording before\n"
    assert list(tmp_path.iterdir()) == [target]


def _cast(path: Path, *events: tuple[float, str]) -> Path:
    lines = [json.dumps({"version": 2, "width": 20, "height": 3})]
    lines += [json.dumps([at, "o", text]) for at, text in events]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pauses_are_shortened_and_quick_outputs_are_one_screen(tmp_path: Path) -> None:
    cast = _cast(
        tmp_path / "x.cast",
        (0.0, "on"),
        (0.01, "e\r\n"),
        (60.0, "\033[31mtwo\033[0m <3"),
        (60.5, ""),
    )
    first, last = recordings.frames(cast)
    assert first.seconds == 1.2
    assert re.sub("<.*?>", "", first.rows[0]) == "one"
    assert last.seconds == 5.0
    assert "two" in last.rows[1] and "#f38b8b" in last.rows[1]
    assert "&lt;3" in last.rows[1]


def test_the_picture_shows_one_screen_after_the_other(tmp_path: Path) -> None:
    cast = _cast(tmp_path / "x.cast", (0.0, "one\r\n"), (1.0, "two\r\n"), (2.0, "three"))
    drawn = recordings.animation(cast, "x")
    assert drawn.count("<g class=") == drawn.count("@keyframes") == 3
    assert "prefers-reduced-motion" in drawn
    assert drawn.index(">one<") < drawn.index(">two<") < drawn.index(">three<")
