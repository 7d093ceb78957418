"""Write to standard output and standard error, use colours, ask questions.

Colours are used only on a terminal, and not when ``NO_COLOR`` is set or the terminal does not
support them (``TERM=dumb``). A question is asked on the controlling terminal, so that a command
with redirected input can still ask; without a terminal the answer is no.

Texts may come from other people and machines: reasons of jobs, lines of OS scripts, names which a
node reports. So everything that is written here goes through :func:`shown`, which replaces control
characters: no such text can move the cursor, hide a line or change the terminal. Only data in a
format for programs is written as it is (:func:`out_data`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

RED = "31"
GREEN = "32"
YELLOW = "33"
BLUE = "34"
DIM = "2"
BOLD = "1"


_FIRST_WORDS = {"Error": RED, "Failure": RED, "Warning": YELLOW}

# On a narrower terminal the lines are not made shorter.
_NARROWEST = 30

# Precedes our own control sequences until they are written; nobody else can guess it.
_OWN = "\033" + os.urandom(8).hex()

#: Codes of characters which act on a terminal instead of being shown.
CONTROLS = (
    *(code for code in range(0x20) if chr(code) not in "\t\n"),
    *range(0x7F, 0xA0),
    # Marks which change the direction of writing, and so the apparent order of a line.
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
)
_VISIBLE = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}


def shown(text: str) -> str:
    """Return a text as it is written for people: with visible escapes for control characters.

    New lines, tabs, and the colours of :func:`paint` are kept.
    """
    return "\033".join([part.translate(_VISIBLE) for part in text.split(_OWN)])


def out(text: str) -> None:
    """Write one line to standard output and flush it, so that the reader of a pipe gets it."""
    _write(sys.stdout, shown(text))


def out_data(text: str) -> None:
    """Write one line of data for programs to standard output."""
    _write(sys.stdout, text)


def err(text: str) -> None:
    """Write one line to standard error.

    On a terminal it is wrapped between words, and its first word is coloured if it is one of
    ``Error:``, ``Failure:`` (red) and ``Warning:`` (yellow).
    """
    text = wrapped(text, sys.stderr)
    first = text.partition(":")[0]
    colour = _FIRST_WORDS.get(first)
    if colour and wants_colour(sys.stderr):
        text = paint(first, colour) + text[len(first) :]
    _write(sys.stderr, shown(text))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(f"{text}\n")
    except UnicodeEncodeError:
        # The locale does not have all characters of the text; escapes replace the missing ones.
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if colours may be written to this stream."""
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") == "dumb":
        return False
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Return True if this stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def width(stream: TextIO, otherwise: int = 80) -> int:
    """Return the number of columns of a terminal; `otherwise` when the stream is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except (OSError, ValueError):
        return otherwise


def wrapped(text: str, stream: TextIO, indent: str = "") -> str:
    """Return a text whose lines fit the terminal, broken between words.

    Without a terminal the lines stay as they are, so that programs find whole sentences.

    :param indent: precedes the further lines of a line which is broken.
    """
    if not is_terminal(stream):
        return text
    columns = max(_NARROWEST, width(stream))
    lines = text.split("\n")
    if all(len(line) <= columns for line in lines):
        return text
    import textwrap  # needed for long lines only

    found = []
    for line in lines:
        before = line[: len(line) - len(line.lstrip())]
        found += textwrap.wrap(
            line,
            columns,
            subsequent_indent=before + indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [line]
    return "\n".join(found)


def paint(text: str, colour: str) -> str:
    """Return a text with the control sequences of a colour, for :func:`out` or :func:`shown`."""
    return f"{_OWN}[{colour}m{text}{_OWN}[0m"


def can_ask() -> bool:
    """Return True if there is a controlling terminal for questions."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def ask_line(question: str) -> str | None:
    """Ask for a line of text.

    :returns: the line without white space around it; None when there is no terminal.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as tty:
        tty.write(shown(question).encode(errors="backslashreplace"))
        return tty.readline(1000).decode(errors="replace").strip()


def confirm(question: str) -> bool:
    """Ask a question whose answer is yes or no.

    :returns: True only for an explicit yes; False when there is no terminal.
    """
    asked = ask_line(f"{wrapped(question, sys.stderr)}\ny/[n]: ")
    return (asked or "").lower() in ("y", "yes")
