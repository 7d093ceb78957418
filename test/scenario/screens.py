"""What a person sees: commands typed into a terminal of a certain width, and the screen after each.

A *transcript* is a text file. A line which begins with ``$`` is a command, a line which begins with
``>`` is what the person answers to a question, all other lines are the screen. Colours are shown as
``<red>...</red>``. What differs from run to run (times, identifiers, sizes of the machine) is
replaced; see :func:`settle`.
"""

from __future__ import annotations

import itertools
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path

import pyte

from ganeti.utils.net import wait_readable

#: Rows of the screen: more than any command of a transcript prints.
ROWS = 400
_PATIENCE_S = 20.0
#: A program which prints nothing for this time may wait for an answer, and how often that may be.
_PAUSE_S = 0.2
_PAUSES = int(_PATIENCE_S / _PAUSE_S)
#: A question which waits for an answer.
_QUESTION = re.compile(r"(\?:?|\]:) *$")

#: What differs from run to run, and what stands for it. The replacement need not have the width.
_SETTLED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"/\S+/vc/node(?=\d)", "/ROOT/node"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"\baa:00:00(:[0-9a-f]{2}){3}\b", "MAC"),
        (r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}", "TIME"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"\b\d{8}-\d{6}\b", "TIME"),
        (r"\b\d+(\.\d+)? ?(ms|s|min|h)\b( \d+ (s|min)\b)*(?! ?/)", "DURATION"),
        (r"\b\d+(\.\d+)?[GT]\b", "SIZE"),
        (r"\b\d+(\.\d+)? [GT]iB\b", "SIZE"),
        (r"\b127\.\d+\.\d+\.\d+\b", "ADDRESS"),
        # Either end may be the first one.
        (r"(?m)^TIME disk/\d+ finished (receiving|sending) data\n", ""),
    )
)


def settle(text: str) -> str:
    """Replace what differs from run to run, and runs of spaces inside of a line by one.

    The width of a column of a table depends on the durations in it.
    """
    for pattern, replacement in _SETTLED:
        text = pattern.sub(replacement, text)
    return re.sub(r"(?<=\S) {2,}(?=\S)", " ", text)


@dataclass
class Step:
    """A command, the answers to its questions, its exit code, and the screen after it."""

    command: str
    answers: list[str] = field(default_factory=list)
    screen: str = ""
    exit_code: int = 0

    def text(self) -> str:
        """The step as it stands in a transcript."""
        lines = [f"$ {self.command}", *(f"> {answer}" for answer in self.answers)]
        if self.screen:
            lines.append(self.screen)
        if self.exit_code:
            lines.append(f"[exit code {self.exit_code}]")
        return "\n".join(lines) + "\n"


def read(path: Path) -> list[Step]:
    """Read a transcript."""
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:]))
        elif line.startswith("> "):
            steps[-1].answers.append(line[2:])
        elif found := re.fullmatch(r"\[exit code (\d+)\]", line):
            steps[-1].exit_code = int(found[1])
        elif line or steps[-1].screen:
            steps[-1].screen += f"{line}\n"
    for step in steps:
        step.screen = step.screen.rstrip("\n")
    return steps


class Terminal:
    """A terminal of ``columns`` columns.

    :param enter: the words before each command, such as a program which enters a cluster.
    """

    def __init__(self, columns: int, enter: Sequence[str], environment: dict[str, str]) -> None:
        self.columns = columns
        self._enter = list(enter)
        self._environment = environment | {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self._environment.pop(name, None)

    def type(self, command: str, answers: Sequence[str] = ()) -> Step:
        """Run a command, answer its questions in their order, and return what is on the screen.

        The step has the answers for which there was a question.

        :raises AssertionError: it asks more than there are answers, or goes on for too long.
        """
        screen = pyte.Screen(self.columns, ROWS)
        stream = pyte.ByteStream(screen)
        master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self.columns, 0, 0))
        child = subprocess.Popen(
            [*self._enter, "bash", "-c", command],
            stdin=slave, stdout=slave, stderr=slave, env=self._environment, start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        left = list(answers)
        try:
            for pauses in _until_closed(master, stream.feed):
                shown = _rows(screen)
                if left and shown and _QUESTION.search(shown[-1]):
                    os.write(master, f"{left.pop(0)}\n".encode())
                assert pauses < _PAUSES, f"{command} does not go on:\n{_text(screen)}"
            exit_code = child.wait(_PATIENCE_S)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            os.close(master)
        given = list(answers)[: len(answers) - len(left)]
        return Step(command, given, settle(_text(screen)), exit_code)


def _until_closed(master: int, feed: Callable[[bytes], None]) -> Iterator[int]:
    """Feed what a terminal shows; in each pause, yield how many pauses there were in a row."""
    pauses = 0
    while True:
        if not wait_readable([master], _PAUSE_S):
            pauses += 1
            yield pauses
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            data = b""
        if not data:
            return
        pauses = 0
        feed(data)


def _rows(screen: pyte.Screen) -> list[str]:
    rows = [row.rstrip() for row in screen.display]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _text(screen: pyte.Screen) -> str:
    """The screen with its colours."""
    lines = []
    for y in range(len(_rows(screen))):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        line = ""
        for colour, run in itertools.groupby(cells, key=lambda cell: str(cell.fg)):
            words = "".join(cell.data for cell in run)
            blank = colour == "default" or not words.strip()
            line += words if blank else f"<{colour}>{words}</{colour}>"
        lines.append(line.rstrip())
    return "\n".join(lines)
