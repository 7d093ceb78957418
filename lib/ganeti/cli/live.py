"""Show something on the terminal again and again, over the last state (``--watch``, ``top``).

Only three control sequences are used (home, clear line, clear rest), and none if the terminal does
not support them (``TERM=dumb``). Keys are read one by one: ``q`` ends the command, the space bar
shows the present state at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import terminal
from ganeti.utils.net import wait_readable

if TYPE_CHECKING:
    from typing import Any

#: Seconds between two states.
INTERVAL_S = 2
#: Number of lines when the size of the terminal is unknown.
DEFAULT_LINES = 24

# A Ctrl-C just before a wait begins is noticed at the end of the wait, so waits are short.
_WAIT_S = 0.5
_HOME, _CLEAR_LINE, _CLEAR_REST = "\033[H", "\033[K", "\033[J"


def check_interval(seconds: int) -> None:
    """Check the time between two states.

    :raises OpPrereqError: it is less than one second.
    """
    if seconds < 1:
        raise errors.OpPrereqError(
            f"--interval must be at least 1 second, not {seconds}", errors.ECODE_INVAL
        )


def show(take: Callable[[int], Sequence[str]], interval_s: int) -> None:
    """Show lines again and again until the user ends the command.

    When the master does not answer at the beginning, its error is raised; later the last lines stay
    with a note, and the next request may succeed.

    :param take: returns the lines; its argument is the number of lines which the terminal has. A
        line may have colours.
    :param interval_s: seconds between two states.
    """
    lines, taken, trouble = take(_lines()), time.time(), ""
    with _keys() as pressed:
        try:
            while True:
                _write([trouble, *lines] if trouble else lines)
                if pressed(interval_s):
                    return
                try:
                    lines, taken, trouble = take(_lines()), time.time(), ""
                except errors.LuxiError as err:
                    since = time.strftime("%H:%M:%S", time.localtime(taken))
                    trouble = f"this is the state of {since}: {err}"
        except KeyboardInterrupt:
            return
        finally:
            terminal.out("")


def _size() -> os.terminal_size | None:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return size if size.columns > 0 and size.lines > 0 else None


def _lines() -> int:
    size = _size()
    return DEFAULT_LINES if size is None else size.lines


def cut(text: str, columns: int) -> str:
    """Cut a text which :func:`ganeti.cli.terminal.shown` has made to a number of columns.

    Colours take no columns, and do not continue behind the end.
    """
    parts = text.split("\033[")
    found, left = [parts[0][:columns]], columns - len(parts[0][:columns])
    for part in parts[1:]:
        code, _, rest = part.partition("m")
        found.append(f"\033[{code}m{rest[:left]}")
        left -= len(rest[:left])
    return "".join(found)


def _write(lines: Sequence[str]) -> None:
    size = _size()
    text = [terminal.shown(line) for line in lines]
    if size is not None:
        text = [cut(line, size.columns - 1) for line in text[: size.lines - 1]]
    if os.environ.get("TERM", "dumb") == "dumb":
        sys.stdout.write("\n".join(text) + "\n\n")
    else:
        sys.stdout.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in text) + _CLEAR_REST)
    sys.stdout.flush()


@contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys.

    Yields a function that waits some seconds or until a key, and returns whether to exit.
    """
    if not terminal.is_terminal(sys.stdin):

        def sleep(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0:
                time.sleep(min(left, _WAIT_S))
            return False

        yield sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not wait_readable([descriptor], min(left, _WAIT_S)):
                continue
            key = os.read(descriptor, 1)
            # An empty read means that the terminal was closed.
            if key in (b"q", b"Q", b""):
                return True
            if key in (b" ", b"\n", b"\r"):
                return False
        return False

    try:
        # Keys are read without Enter; Ctrl-C and output processing stay enabled.
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
