"""Show something on the terminal again and again, over the last state (``--watch``, ``top``).

The first line is about the screen itself: the cluster, the time of what is shown, and the keys.
Below it, a line which is wider than the terminal is cut, with a mark at its end.

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
from ganeti.cli import table, terminal
from ganeti.utils.net import wait_readable

if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

#: Seconds between two states.
INTERVAL_S = 2
#: The size of a terminal which does not tell it.
DEFAULT_SIZE = os.terminal_size((80, 24))

# A Ctrl-C just before a wait begins is noticed at the end of the wait, so waits are short.
_WAIT_S = 0.5
# The status line, and the last line, which is for the cursor.
_OWN_LINES = 2
#: Stands at the end of a line which is cut.
MARK = ">"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\033[H", "\033[K", "\033[J"


def check_interval(seconds: int) -> None:
    """Check the time between two states.

    :raises OpPrereqError: it is less than one second.
    """
    if seconds < 1:
        raise errors.OpPrereqError(
            f"--interval must be at least 1 second, not {seconds}", errors.ECODE_INVAL
        )


def show(take: Callable[[os.terminal_size], Sequence[str]], interval_s: int) -> None:
    """Show lines again and again until the user ends the command.

    When the master does not answer at the beginning, its error is raised; later the last lines stay
    with a note, and the next request may succeed.

    :param take: returns the lines; its argument is the size of the part of the terminal which is
        for them. A line may have colours.
    :param interval_s: seconds between two states.
    """
    cluster = cluster_name()
    lines, taken, trouble = take(_area()), time.time(), ""
    with _keys() as pressed:
        keys = _keys_text(interval_s)
        try:
            while True:
                area = _area()
                status = status_line(cluster, taken, keys, area.columns)
                notes = folded(trouble, area) if trouble else []
                _write([_dim(status), *notes, *lines])
                if pressed(interval_s):
                    return
                try:
                    lines, taken, trouble = take(_area()), time.time(), ""
                except errors.LuxiError as err:
                    since = time.strftime("%H:%M:%S", time.localtime(taken))
                    trouble = f"this is the state of {since}: {err}"
        except KeyboardInterrupt:
            return
        finally:
            terminal.out("")


def cluster_name() -> str:
    """Return the name of the cluster of this node; empty when this machine does not know it."""
    # Each command of a program with such a screen loads this module; few show one.
    from ganeti.constants import ssconf
    from ganeti.platform import paths
    from ganeti.utils import fs

    try:
        return fs.read_file(paths.current().ssconf_file(ssconf.CLUSTER_NAME)).strip()
    except OSError:
        return ""


def status_line(cluster: str, taken: float, keys: str, columns: int) -> str:
    """Return the line about the screen: the cluster and the time at the left, keys at the right.

    :param taken: when the shown state was asked for, in seconds since 1970.
    :param columns: a line which would be longer has no keys, and then a shorter name.
    """
    shown_at = time.strftime("%H:%M:%S", time.localtime(taken))
    left = f"{cluster}  {shown_at}" if cluster else shown_at
    if len(left) + 2 + len(keys) <= columns:
        return left + keys.rjust(columns - len(left))
    short = f"{cluster.partition('.')[0]}  {shown_at}" if cluster else shown_at
    if len(short) + 2 + len(keys) <= columns:
        return short + keys.rjust(columns - len(short))
    return left if len(left) <= columns else shown_at


def _keys_text(interval_s: int) -> str:
    every = f"every {interval_s} s"
    if terminal.is_terminal(sys.stdin):
        return f"{every}  space: now  q: quit"
    return f"{every}  Ctrl-C: quit"


def _dim(line: str) -> str:
    return terminal.paint(line, terminal.DIM) if terminal.wants_colour(sys.stdout) else line


def folded(text: str, area: os.terminal_size) -> list[str]:
    """Return a text as lines which fit, broken between words.

    It gets at most a quarter of the lines; then the last one is too wide, and is cut.
    """
    import textwrap

    lines = textwrap.wrap(text, area.columns, break_on_hyphens=False)
    most = max(1, area.lines // 4)
    return lines if len(lines) <= most else [*lines[: most - 1], " ".join(lines[most - 1 :])]


def fitting_table(
    columns: Sequence[table.Column],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    header: bool = True,
    painter: table.Painter | None = None,
) -> list[str]:
    """Return the lines of a table which is made to fit a terminal.

    :param width: columns of the terminal. A table which cannot be made so narrow is wider.
    """
    if table.line_width(columns, rows) > width:
        from ganeti.cli import fitting

        columns, rows = fitting.fit(columns, rows, width) or (columns, rows)
    return table.format_table(columns, rows, header=header, painter=painter)


def fitting_rows(
    rows: Sequence[T], total: int, lines: int, *, header: bool
) -> tuple[Sequence[T], list[str]]:
    """Return the rows of a table which fit the terminal, and a line about those which are hidden.

    :param total: number of all rows; some may be left out already.
    :param lines: lines which the terminal has for the table.
    """
    lines -= header
    if total > len(rows) or total > lines:
        rows = rows[: max(0, lines - 1)]
    hidden = total - len(rows)
    return rows, [f"... and {hidden} more"] if hidden > 0 else []


def _size() -> os.terminal_size | None:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return size if size.columns > 0 and size.lines > 0 else None


def _area() -> os.terminal_size:
    """Return the size of the part of the terminal which is for the lines of the command.

    Some terminals go to the next line after the last column, so that stays free.
    """
    size = _size() or DEFAULT_SIZE
    return os.terminal_size((max(1, size.columns - 1), max(1, size.lines - _OWN_LINES)))


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


def _marked(text: str, columns: int) -> str:
    """Cut a text which is too wide, with a mark at its end."""
    without_colours = "".join(
        part.partition("m")[2] if index else part for index, part in enumerate(text.split("\033["))
    )
    return text if len(without_colours) <= columns else cut(text, columns - 1) + MARK


def _write(lines: Sequence[str]) -> None:
    size = _size()
    text = [terminal.shown(line) for line in lines]
    if size is not None:
        text = [_marked(line, size.columns - 1) for line in text[: size.lines - 1]]
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
