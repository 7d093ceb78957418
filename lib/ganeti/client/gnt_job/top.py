"""``gnt-job top``: what the queue does, again and again.

A look (:func:`look`) is three requests: which jobs have not ended, the queue as a whole, and, for
the jobs that will be seen, what each waits for. It is written as a table (:func:`lines`), on a
terminal over the last one. Only three control sequences are used (home, clear line, clear rest),
and none where ``TERM`` says that the terminal is dumb; keys are read without waiting for a line.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ganeti import errors
from ganeti.cli import failures, jobs, listing, table, terminal
from ganeti.cli import options as opt
from ganeti.client.gnt_job import explain
from ganeti.luxi import client as luxi

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.command import Values

# In this order they are shown; inside a state by priority, then by id.
_STATES = ("running", "canceling", "waiting", "queued")
_TITLES = ("ID", "Status", "Since", "Prio", "Job", "Why it waits, or what it says")
_COLUMNS = [table.Column(title, title in ("ID", "Since", "Prio")) for title in _TITLES]

# Ctrl-C in the moment before a wait begins is only noticed when that ends.
_WAIT_S = 0.5

# Without a terminal nobody knows how much fits.
_DEFAULT_ROWS = 20
_HEAD_LINES = 2

_HOME, _CLEAR_LINE, _CLEAR_REST = "\033[H", "\033[K", "\033[J"


class Look:
    """What was seen at one moment.

    :ivar counts: number of jobs by state.
    :ivar entries: the first of them, each with the ``job`` and its ``reasons``.
    """

    def __init__(
        self,
        queue: Mapping[str, Any],
        counts: Mapping[str, int],
        entries: Sequence[Mapping[str, Any]],
        now: float,
    ) -> None:
        self.queue = queue
        self.counts = counts
        self.entries = entries
        self.now = now

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "queue": dict(self.queue),
            "counts": dict(self.counts),
            "jobs": [dict(entry) for entry in self.entries],
        }


def look(client: luxi.Client, rows: int | None) -> Look:
    """Ask the master.

    :param rows: of how many jobs to tell what they wait for; None for all.
    """
    found = client.query(
        "job", ["id", "status", "priority"], listing.simple_filter("status", _STATES)
    )
    known = [(row[0][1], row[1][1], row[2][1]) for row in found["data"]]
    counts = dict.fromkeys(_STATES, 0)
    for _, status, _ in known:
        counts[status] += 1
    known.sort(key=lambda job: (_STATES.index(job[1]), job[2], job[0]))
    ids = [job_id for job_id, _, _ in known][:rows]
    # What ended since the first request is left out; the next look has it right.
    entries = [
        entry
        for entry in client.explain_jobs(ids)
        if entry is not None and entry["job"]["status"] in _STATES
    ]
    return Look(client.explain_queue(), counts, entries, time.time())


def head(seen: Look) -> str:
    """The queue in one line."""
    queue = seen.queue
    parts = [
        f"{seen.counts[state]} {state}"
        for state in _STATES
        if seen.counts[state] or state != "canceling"
    ]
    text = (
        f"{', '.join(parts)}; {queue['at_work']} of {queue['limit']} workers busy,"
        f" {queue['in_line']} jobs in line; {queue['ended_per_s']:.1f} jobs/s in the last"
        " minute"
    )
    if queue["drained"]:
        text += "; DRAINED"
    return text + ("; THE MASTER DAEMON IS ENDING" if queue["ending"] else "")


def lines(
    seen: Look, *, header: bool = True, separator: str | None = None, colour: bool = False
) -> list[str]:
    """The jobs as a table; times are whole seconds where a separator is given."""
    rows = []
    for entry in seen.entries:
        job = entry["job"]
        since = (
            "-"
            if job["since"] is None
            else explain.format_span(seen.now - job["since"])
            if separator is None
            else str(max(0, int(seen.now - job["since"])))
        )
        rows.append(
            [
                str(job["id"]),
                job["status"],
                since,
                str(job["priority"]),
                explain.work(job),
                " ".join(explain.brief(entry).split()),
            ]
        )
    return table.format_table(
        _COLUMNS, rows, header=header, separator=separator, painter=_paint if colour else None
    )


def _paint(row: int | None, column: int, text: str) -> str:
    if row is None:
        return terminal.paint(text, terminal.BOLD)
    colours = {
        "running": terminal.GREEN,
        "waiting": terminal.YELLOW,
        "canceling": terminal.YELLOW,
        "queued": terminal.BLUE,
    }
    return terminal.paint(text, colours[text]) if column == 1 and text in colours else text


def run(values: Values, arguments: list[str]) -> int:
    """``top``."""
    if values.interval < 1:
        raise errors.OpPrereqError(
            f"interval must be at least 1 second, not {values.interval}", errors.ECODE_INVAL
        )
    if values.number is not None and values.number < 0:
        raise errors.OpPrereqError(
            f"number of jobs must be 0 or more, not {values.number}", errors.ECODE_INVAL
        )
    client = jobs.connect()
    for_programs = values.output_format in opt.DATA_FORMATS or values.separator is not None
    if values.once or for_programs or not terminal.is_terminal(sys.stdout):
        _show_once(look(client, values.number), values)
    else:
        _show_live(client, values)
    return failures.EXIT_SUCCESS


def _show_once(seen: Look, values: Values) -> None:
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(seen.data(), values.output_format)
        return
    # A program that splits lines wants jobs and nothing else.
    if values.separator is None and not values.no_headers:
        terminal.out(head(seen))
    for line in lines(seen, header=not values.no_headers, separator=values.separator):
        terminal.out(line)


def _show_live(client: luxi.Client, values: Values) -> None:
    """Until the user has seen enough."""
    # A master that cannot be asked at the beginning is an error; one that goes away comes back.
    seen = look(client, _rows(values))
    trouble = ""
    with _keys() as pressed:
        try:
            while True:
                _write(seen, values, trouble)
                if pressed(values.interval):
                    return
                try:
                    seen, trouble = look(client, _rows(values)), ""
                except errors.LuxiError as err:
                    trouble = f"no news since {listing.format_time(seen.now)}: {err}"
        except KeyboardInterrupt:
            return
        finally:
            terminal.out("")


def _rows(values: Values) -> int:
    size = _size()
    fits = _DEFAULT_ROWS if size is None else max(0, size.lines - _HEAD_LINES - 2)
    return fits if values.number is None else min(fits, values.number)


def _size() -> os.terminal_size | None:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return size if size.columns > 0 and size.lines > 0 else None


def _write(seen: Look, values: Values, trouble: str) -> None:
    size = _size()
    width = 0 if size is None else size.columns
    shown = lines(seen, header=not values.no_headers)
    hidden = sum(seen.counts.values()) - len(seen.entries)
    if hidden > 0:
        shown.append(f"... and {hidden} more")
    text = [head(seen), trouble, *shown]
    if width:
        text = [line[: width - 1] for line in text]
    if terminal.wants_colour(sys.stdout):
        text = [_coloured(line) for line in text]
    if os.environ.get("TERM", "dumb") == "dumb":
        sys.stdout.write("\n".join(text) + "\n")
    else:
        sys.stdout.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\r\n" for line in text) + _CLEAR_REST)
    sys.stdout.flush()


def _coloured(line: str) -> str:
    """Paint the state in a line that was cut to the width already."""
    words = line.split(None, 2)
    if len(words) > 1 and words[0].isdigit() and words[1] in _STATES:
        return line.replace(words[1], _paint(0, 1, words[1]), 1)
    return line


@contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys meanwhile; yields a function that waits and tells whether to leave."""
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
            if not select.select([descriptor], [], [], min(left, _WAIT_S))[0]:
                continue
            key = os.read(descriptor, 1)
            # Nothing to read: the terminal is gone.
            if key in (b"q", b"Q", b""):
                return True
            if key in (b" ", b"\n", b"\r"):
                return False
        return False

    try:
        # Line by line off, but Ctrl-C and output processing stay.
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
