"""The command ``gnt-instance top``: show what running guests use, and update this.

The master asks the node daemons of all nodes at once (``QueryGuestsUsage``); they read files of the
kernel. Processor time and bytes are counted from the start of a guest, so rates need two
measurements; the clock of the node, which comes with each, gives the time between them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, live, selector, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.luxi import client as luxi

if TYPE_CHECKING:
    from typing import Any

# Counter of a measurement -> name of its rate.
_RATES = {
    "disk_read": "disk_read_bytes_per_s",
    "disk_written": "disk_written_bytes_per_s",
    "net_in": "net_in_bytes_per_s",
    "net_out": "net_out_bytes_per_s",
}
# Key of --sort-by -> members of a row which are added up; the largest is the first.
SORT_KEYS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_percent",),
    "memory": ("memory_mib",),
    "disk": ("disk_read_bytes_per_s", "disk_written_bytes_per_s"),
    "net": ("net_in_bytes_per_s", "net_out_bytes_per_s"),
    "name": (),
    "node": (),
}
_COLUMNS = [
    table.Column("Instance"),
    table.Column("Node"),
    table.Column("CPU %", right=True),
    table.Column("VCPUs", right=True),
    table.Column("MiB", right=True),
    table.Column("Read/s", right=True),
    table.Column("Written/s", right=True),
    table.Column("Net in/s", right=True),
    table.Column("Net out/s", right=True),
]
# On a terminal the titles are shorter, so that the table has no more than 80 columns.
_SCREEN_COLUMNS = [
    table.Column("Instance", hosts=True),
    table.Column("Node", hosts=True),
    table.Column("CPU %", right=True),
    table.Column("VCPUs", right=True),
    table.Column("MiB", right=True),
    table.Column("Read/s", right=True),
    table.Column("Write/s", right=True),
    table.Column("Recv/s", right=True),
    table.Column("Sent/s", right=True),
]
_MEMBERS = ("cpu_percent", "vcpus", "memory_mib", *_RATES.values())
# Between the two measurements of a single table.
_SHORT_S = 1.0


class Meter:
    """Makes rates from successive measurements."""

    def __init__(self, client: luxi.Client) -> None:
        self._client = client
        self._before: dict[tuple[str, str], Mapping[str, Any]] = {}
        #: Name of a node -> why it did not answer the last time.
        self.failures: dict[str, str] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Measure; return a row for each guest. Without an earlier measurement a rate is None."""
        found = self._client.query_guests_usage()
        self.failures = dict(found["failures"])
        rows = [self._row(guest) for guest in found["guests"]]
        self._before = {(guest["node"], guest["name"]): guest for guest in found["guests"]}
        return rows

    def _row(self, guest: Mapping[str, Any]) -> dict[str, Any]:
        before = self._before.get((guest["node"], guest["name"]))
        cpu = _rate(before, guest, "cpu_s")
        return {
            "name": guest["name"],
            "node": guest["node"],
            "cpu_percent": None if cpu is None else round(100 * cpu, 1),
            "vcpus": guest["vcpus"],
            "memory_mib": guest["memory"],
            **{rate: _whole(_rate(before, guest, counter)) for counter, rate in _RATES.items()},
        }


def _rate(before: Mapping[str, Any] | None, now: Mapping[str, Any], counter: str) -> float | None:
    """Return how fast a counter grows, per second; None when that cannot be said."""
    if before is None or before[counter] is None or now[counter] is None:
        return None
    seconds = now["clock"] - before["clock"]
    grown = now[counter] - before[counter]
    # The guest was started again, or its node.
    if seconds <= 0 or grown < 0:
        return None
    return float(grown / seconds)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def ordered(rows: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Sort rows; with the same value, and for the keys ``name`` and ``node``, by name."""
    from ganeti.utils import text

    by_name = sorted(rows, key=lambda row: text.natural_key(row["name"]))
    if key == "node":
        return sorted(by_name, key=lambda row: text.natural_key(row["node"]))
    members = SORT_KEYS[key]
    if not members:
        return by_name
    return sorted(by_name, key=lambda row: -sum(row[member] or 0 for member in members))


def _short(number: float | None) -> str:
    """Return a number of bytes with a unit, such as ``1.5M``."""
    if number is None:
        return "-"
    for unit in ("", "K", "M", "G"):
        if number < 1000 or unit == "G":
            return f"{number:.0f}{unit}" if number >= 10 or not unit else f"{number:.1f}{unit}"
        number /= 1024
    raise AssertionError("unreachable")


def _cells(row: Mapping[str, Any], *, plain: bool) -> list[str]:
    """Return the cells of a row; plain ones are for programs."""
    cells = [row["name"], row["node"]]
    for member in _MEMBERS:
        value = row[member]
        if member in _RATES.values() and not plain:
            cells.append(_short(value))
        elif value is None:
            cells.append("" if plain else "-")
        else:
            cells.append(f"{value:.1f}" if isinstance(value, float) else str(value))
    return cells


def summary(rows: Sequence[Mapping[str, Any]], meter: Meter) -> str:
    """Return the line about all guests."""
    cpu = sum(row["cpu_percent"] or 0 for row in rows)
    memory_mib = sum(row["memory_mib"] or 0 for row in rows)
    line = (
        f"{len(rows)} guests on {len({row['node'] for row in rows})} nodes: {cpu:.0f} % of a"
        f" processor, {memory_mib} MiB"
    )
    if meter.failures:
        line += f"; no answer from {', '.join(sorted(meter.failures))}"
    return line


def guest_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    header: bool = True,
    separator: str | None = None,
    width: int | None = None,
) -> list[str]:
    """Return the guests as lines of a table.

    With a separator, for programs, bytes are whole numbers.

    :param width: columns of the terminal on which it is shown to people.
    """
    if width is not None:
        cells = [_cells(row, plain=False) for row in rows]
        return live.fitting_table(_SCREEN_COLUMNS, cells, width, header=header)
    return table.format_table(
        _COLUMNS,
        [_cells(row, plain=separator is not None) for row in rows],
        header=header,
        separator=separator,
    )


def run(values: Values, arguments: list[str]) -> int:
    """Execute ``gnt-instance top``.

    :returns: the exit code; 1 when a node did not answer a single measurement.
    :raises OpPrereqError: wrong interval, number or key, or an unknown instance.
    """
    live.check_interval(values.interval)
    if values.number is not None and values.number < 0:
        raise errors.OpPrereqError(
            f"--number must be 0 or more, not {values.number}", errors.ECODE_INVAL
        )
    if values.sort_by not in SORT_KEYS:
        raise errors.OpPrereqError(
            f"--sort-by: '{values.sort_by}' is none of {', '.join(SORT_KEYS)}", errors.ECODE_INVAL
        )
    client = jobs.connect()
    wanted = _wanted(client, values, arguments)
    meter = Meter(client)
    for_programs = values.output_format in opt.DATA_FORMATS or values.separator is not None
    if values.once or for_programs or not terminal.is_terminal(sys.stdout):
        return _show_once(meter, wanted, values)
    _show_live(meter, wanted, values)
    return failures.EXIT_SUCCESS


def _wanted(client: luxi.Client, values: Values, arguments: Sequence[str]) -> frozenset[str] | None:
    """Return the full names of the instances which are shown; None for all."""
    if not arguments and not values.multi_mode:
        return None
    names = selector.names("instance", values, arguments, client)
    return frozenset(row[0] for row in client.query_instances(names, ["name"]))


def _take(
    meter: Meter, wanted: frozenset[str] | None, values: Values
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure; return all wanted rows, and those which are shown."""
    rows = [row for row in meter.rows() if wanted is None or row["name"] in wanted]
    rows = ordered(rows, values.sort_by)
    return rows, rows if values.number is None else rows[: values.number]


def _show_once(meter: Meter, wanted: frozenset[str] | None, values: Values) -> int:
    # Rates need a second measurement.
    meter.rows()
    time.sleep(_SHORT_S)
    rows, shown = _take(meter, wanted, values)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data({"guests": shown, "failures": meter.failures}, values.output_format)
    else:
        if values.separator is None and not values.no_headers:
            terminal.out(terminal.wrapped(summary(rows, meter), sys.stdout))
        width = terminal.width(sys.stdout) if listing.on_screen(values) else None
        for line in guest_table(
            shown, header=not values.no_headers, separator=values.separator, width=width
        ):
            terminal.out(line)
    for node, problem in sorted(meter.failures.items()):
        terminal.err(f"Node {node} did not answer: {problem}")
    return failures.EXIT_FAILURE if meter.failures else failures.EXIT_SUCCESS


def _show_live(meter: Meter, wanted: frozenset[str] | None, values: Values) -> None:
    def lines(area: os.terminal_size) -> list[str]:
        rows, asked = _take(meter, wanted, values)
        head = live.folded(summary(rows, meter), area)
        header = not values.no_headers
        shown, more = live.fitting_rows(asked, len(rows), area.lines - len(head), header=header)
        made = guest_table(shown, header=header, width=area.columns)
        if made and header and terminal.wants_colour(sys.stdout):
            made[0] = terminal.paint(made[0], terminal.BOLD)
        return [*head, *made, *more]

    live.show(lines, values.interval)


TOP = Command(
    "top",
    run,
    [Argument("instance")],
    [
        *selector.INSTANCE_OPTIONS,
        opt.flag("--once", help="measure for one second, show the table and exit"),
        opt.number(
            "--interval",
            default=live.INTERVAL_S,
            metavar="SECONDS",
            help=f"update the table every SECONDS; {live.INTERVAL_S} by default",
        ),
        opt.number(
            "-n",
            "--number",
            metavar="NUMBER",
            help="show at most NUMBER guests; by default as many as fit on the terminal",
        ),
        Option(
            "--sort-by",
            kind="string",
            default="cpu",
            metavar="KEY",
            help=f"which guests are the first: {', '.join(SORT_KEYS)}; cpu by default",
        ),
        opt.NO_HEADERS,
        opt.SEPARATOR,
        opt.OUTPUT_FORMAT,
    ],
    "Show what running guests use, and update this until the user presses q",
)
