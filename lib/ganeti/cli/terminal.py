"""Writing to the person or program in front: standard output and error, colours, questions.

Colour is only for people: never when the stream is not a terminal, when ``NO_COLOR`` is set, or
when the terminal says it cannot (``TERM=dumb``). A question is asked on the controlling terminal,
so that a command with redirected input still asks; where there is none the answer is no.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import TextIO

RED = "31"
GREEN = "32"
YELLOW = "33"
BLUE = "34"
DIM = "2"
BOLD = "1"


def out(text: str) -> None:
    """One line for standard output, at once: a reader at the other end of a pipe sees progress."""
    _write(sys.stdout, text)


def err(text: str) -> None:
    """One line for standard error."""
    _write(sys.stderr, text)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(f"{text}\n")
    except UnicodeEncodeError:
        # A name in the C locale: an escape is better than no answer.
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether colours may be written to this stream."""
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads this stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def width(stream: TextIO, otherwise: int = 80) -> int:
    """Columns of the terminal behind a stream; `otherwise` where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except (OSError, ValueError):
        return otherwise


def paint(text: str, colour: str) -> str:
    """Text in a colour."""
    return f"\033[{colour}m{text}\033[0m"


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def ask_line(question: str) -> str | None:
    """Ask for a line of text.

    :returns: the line without white space around it; None when nobody can be asked.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as tty:
        tty.write(question.encode(errors="backslashreplace"))
        return tty.readline(1000).decode(errors="replace").strip()


def confirm(question: str) -> bool:
    """Ask a question whose answer is yes or no.

    :returns: True only for an explicit yes; False when nobody can be asked.
    """
    return (ask_line(f"{question}\ny/[n]: ") or "").lower() in ("y", "yes")
