"""The command ``gnt-job top``: show the jobs that have not ended, and update this.

A snapshot of the queue (:func:`take_snapshot`) needs three requests: the jobs that have not ended,
the reasons why the shown jobs wait, and the state of the whole queue. It is written as a table
(:func:`job_table`), on a terminal over the last one (:mod:`ganeti.cli.live`).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, filters, jobs, listing, live, table, terminal
from ganeti.cli import options as opt
from ganeti.luxi import client as luxi
from ganeti.luxi import explain_text as explain

if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.command import Values

# States of jobs in the order of the table; jobs with the same state are ordered by priority and id.
_STATES = ("running", "canceling", "waiting", "queued")
_TITLES = ("ID", "Status", "Since", "Prio", "Job", "Why it waits, or last line of log")
_COLUMNS = [table.Column(title, title in ("ID", "Since", "Prio")) for title in _TITLES]
_WORK, _REASON = 4, 5  # columns with texts which have no limit


class QueueSnapshot:
    """The jobs that have not ended, at one moment.

    :ivar queue: state of the queue as ``ExplainQueue`` returns it.
    :ivar counts: state -> number of jobs.
    :ivar entries: the first jobs, each with the members ``job`` and ``reasons``.
    :ivar now: time of the snapshot, in seconds since the epoch.
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
        """Return the snapshot for programs."""
        return {
            "queue": dict(self.queue),
            "counts": dict(self.counts),
            "jobs": [dict(entry) for entry in self.entries],
        }


def take_snapshot(client: luxi.Client, rows: int | None) -> QueueSnapshot:
    """Ask the master for a snapshot.

    :param rows: number of jobs whose reasons are queried; None means all.
    """
    found = client.query(
        "job", ["id", "status", "priority"], filters.simple_filter("status", _STATES)
    )
    known = [(row[0][1], row[1][1], row[2][1]) for row in found["data"]]
    counts = dict.fromkeys(_STATES, 0)
    for _, status, _ in known:
        counts[status] += 1
    known.sort(key=lambda job: (_STATES.index(job[1]), job[2], job[0]))
    ids = [job_id for job_id, _, _ in known][:rows]
    # Jobs that ended after the first request are left out; their counts are right in the next
    # snapshot.
    entries = [
        entry
        for entry in client.explain_jobs(ids)
        if entry is not None and entry["job"]["status"] in _STATES
    ]
    return QueueSnapshot(client.explain_queue(), counts, entries, time.time())


def queue_line(seen: QueueSnapshot) -> str:
    """Return the line about the whole queue."""
    queue = seen.queue
    parts = [
        f"{seen.counts[state]} {state}"
        for state in _STATES
        if seen.counts[state] or state != "canceling"
    ]
    text = (
        f"{', '.join(parts)}; {queue['at_work']} of {queue['limit']} workers busy,"
        f" {queue['in_line']} jobs wait for one; {queue['ended_per_s']:.1f} jobs/s in the last"
        " minute"
    )
    if queue["drained"]:
        text += "; DRAINED"
    if queue.get("paused"):
        text += f"; PAUSED: {queue['paused']}"
    return text + ("; THE MASTER DAEMON IS ENDING" if queue["ending"] else "")


def job_table(
    seen: QueueSnapshot,
    *,
    header: bool = True,
    separator: str | None = None,
    colour: bool = False,
    width: int | None = None,
) -> list[str]:
    """Return the jobs as lines of a table; with a separator, times are whole seconds.

    :param width: columns of the terminal on which it is shown to people.
    """
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
    painter = _paint if colour else None
    if width is not None:
        if table.line_width(_COLUMNS, rows) > width:
            rows = _without_domain(rows)
        return live.fitting_table(_COLUMNS, rows, width, header=header, painter=painter)
    return table.format_table(_COLUMNS, rows, header=header, separator=separator, painter=painter)


def _without_domain(rows: Sequence[list[str]]) -> list[list[str]]:
    """Leave out the domain of the cluster in the texts of jobs; other names stay as they are."""
    domain = live.cluster_name().partition(".")[2]
    if not domain:
        return list(rows)
    suffix = re.compile(rf"(?<=\w)\.{re.escape(domain)}(?![\w.-]*\w)")
    return [
        [suffix.sub("", text) if index in (_WORK, _REASON) else text
         for index, text in enumerate(row)]
        for row in rows
    ]  # fmt: skip


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
    """Execute ``gnt-job top``.

    :returns: the exit code.
    :raises OpPrereqError: wrong interval or number.
    """
    live.check_interval(values.interval)
    if values.number is not None and values.number < 0:
        raise errors.OpPrereqError(
            f"--number must be 0 or more, not {values.number}", errors.ECODE_INVAL
        )
    client = jobs.connect()
    for_programs = values.output_format in opt.DATA_FORMATS or values.separator is not None
    if values.once or for_programs or not terminal.is_terminal(sys.stdout):
        _show_once(take_snapshot(client, values.number), values)
    else:
        _show_live(client, values)
    return failures.EXIT_SUCCESS


def _show_once(seen: QueueSnapshot, values: Values) -> None:
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(seen.data(), values.output_format)
        return
    # With a separator the output is for a program, which needs only the jobs.
    if values.separator is None and not values.no_headers:
        terminal.out(terminal.wrapped(queue_line(seen), sys.stdout))
    width = terminal.width(sys.stdout) if listing.on_screen(values) else None
    for line in job_table(
        seen, header=not values.no_headers, separator=values.separator, width=width
    ):
        terminal.out(line)


def _show_live(client: luxi.Client, values: Values) -> None:
    """Show the jobs until the user ends the command."""

    def lines(area: os.terminal_size) -> list[str]:
        header = not values.no_headers
        fits = max(0, area.lines - 1 - header)
        seen = take_snapshot(client, fits if values.number is None else min(fits, values.number))
        head = live.folded(queue_line(seen), area)
        seen.entries, more = live.fitting_rows(
            seen.entries, sum(seen.counts.values()), area.lines - len(head), header=header
        )
        colour = terminal.wants_colour(sys.stdout)
        return [*head, *job_table(seen, header=header, colour=colour, width=area.columns), *more]

    live.show(lines, values.interval)
