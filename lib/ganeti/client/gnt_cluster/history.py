"""The commands ``gnt-cluster history`` and ``undo``: commits of the configuration."""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.constants.cluster import OBJECT_KINDS
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    #: A serial number, or a list with a time (seconds since the epoch).
    Point = int | list[float]

_COLUMNS = (
    ("Serial", True),
    ("Time", False),
    ("Job", True),
    ("Opcode", False),
    ("Author", False),
    ("Changes", False),
    ("Reason", False),
)
_TIME_FORMATS = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M",
)
# The table names at most this number of changed objects.
_NAMED = 2
# Stands for a missing value.
_NOTHING = object()


def history(values: Values, arguments: list[str]) -> int:
    """Show commits of the configuration, a difference, or an old state (``history``).

    :raises OpPrereqError: wrong options or points.
    """
    if values.diff and values.at is not None:
        raise errors.OpPrereqError("--diff and --at cannot be used together", errors.ECODE_INVAL)
    if values.diff:
        if len(arguments) != 2:
            raise errors.OpPrereqError(
                "--diff needs two points, which are serial numbers or times", errors.ECODE_INVAL
            )
        return _show_changes(values, *map(parse_point, arguments))
    if arguments:
        raise errors.OpPrereqError(
            f"unexpected argument '{arguments[0]}'. Give points after --diff or --at.",
            errors.ECODE_INVAL,
        )
    if values.at is not None:
        return _show_state(values, parse_point(values.at))
    return _show_commits(values)


def parse_point(text: str) -> Point:
    """Read a serial number, or a local time, which becomes a list of seconds since the epoch.

    :raises OpPrereqError: the text is neither.
    """
    if is_number(text):
        return int(text)
    for form in _TIME_FORMATS:
        try:
            return [time.mktime(time.strptime(text, form))]
        except (ValueError, OverflowError):
            continue
    raise errors.OpPrereqError(
        f"'{text}' is neither a serial number nor a time. Times look like 2026-11-30 or "
        "'2026-11-30 18:45'.",
        errors.ECODE_INVAL,
    )


def _show_commits(values: Values) -> int:
    from ganeti.cli import listing, output, table

    if values.limit is not None and values.limit < 0:
        raise errors.OpPrereqError("--limit must not be less than 0", errors.ECODE_INVAL)
    commits = jobs.connect().query_config_history(values.limit or None)
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(commits, values.output_format)
        return failures.EXIT_SUCCESS
    columns = [table.Column(title, right) for title, right in _COLUMNS]
    for_people = values.separator is None and not values.no_headers
    rows = [
        [
            str(commit["serial"]),
            listing.format_time(commit["time"]),
            "-" if commit["job"] is None else str(commit["job"]),
            commit["opcode"] or "-",
            _author(commit, for_people),
            _summary(commit),
            commit["reason"] or "-",
        ]
        for commit in commits
    ]
    for line in table.format_table(
        columns, rows, header=not values.no_headers, separator=values.separator
    ):
        terminal.out(line.rstrip())
    return failures.EXIT_SUCCESS


def _author(commit: dict[str, Any], for_people: bool) -> str:
    """Return person and program for users; for programs, and without a person, the source."""
    from ganeti.utils import author

    source = commit["source"]
    if for_people and commit.get("person"):
        return author.describe(commit["person"], author.program_of(source) or source)
    return source or "-"


def _summary(commit: dict[str, Any]) -> str:
    if commit["count"] is None:
        return "too many to be kept"
    named = [
        f"{_label(kind, name)} {what}{_attributes(names)}"
        for kind, name, what, names in commit["changes"]
    ]
    # The disks of a changed instance come last, because they are less interesting.
    named.sort(key=lambda text: text.startswith("disk "))
    more = commit["count"] - _NAMED
    return ", ".join(named[:_NAMED]) + (f", and {more} more" if more > 0 else "") or "-"


def _attributes(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" ({', '.join(names[:_NAMED])}{more})"


def _label(kind: str, name: str) -> str:
    return "cluster" if kind == "cluster" else f"{OBJECT_KINDS.get(kind, kind)} {name}"


def _show_changes(values: Values, first: Point, last: Point) -> int:
    from ganeti.cli import output

    found = jobs.connect().query_config_changes(first, last)
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(found, values.output_format)
        return failures.EXIT_SUCCESS
    if not found["changes"]:
        terminal.out(f"No difference between serial numbers {found['first']} and {found['last']}.")
    for change in found["changes"]:
        uuid = "" if change["uuid"] in ("", change["name"]) else f" ({change['uuid']})"
        terminal.out(f"{_label(change['kind'], change['name'])}{uuid}: {change['what']}")
        for line in difference(change["old"], change["new"]):
            terminal.out(f"  {line}")
    return failures.EXIT_SUCCESS


def difference(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Iterator[str]:
    """Return a line for each different value.

    Dictionaries are compared key by key. For lists of names, the line contains the added and
    removed names.
    """
    if old is None or new is None:
        for path, value in _flat("", old or new or {}):
            yield f"{path}: {_text(value)}"
        return
    before, after = dict(_flat("", old)), dict(_flat("", new))
    for path in sorted({*before, *after}):
        was, now = before.get(path, _NOTHING), after.get(path, _NOTHING)
        # The lines of its keys show that a dictionary was or becomes empty.
        if was == now or {} in (was, now) and _NOTHING in (was, now):
            continue
        if _is_names(was) and _is_names(now) and sorted(was) != sorted(now):
            removed, added = sorted(set(was) - set(now)), sorted(set(now) - set(was))
            yield f"{path}: " + ", ".join(
                [f"+{_text(name)}" for name in added] + [f"-{_text(name)}" for name in removed]
            )
        else:
            yield f"{path}: {_text(was)} -> {_text(now)}"


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    )


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key in sorted(value):
            yield from _flat(f"{path}/{key}" if path else str(key), value[key])
    else:
        yield path, value


def _text(value: Any) -> str:
    if value is _NOTHING:
        return "(none)"
    import json  # the order of keys is not that of ganeti.wire.json

    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _show_state(values: Values, point: Point) -> int:
    from ganeti.cli import output

    state = jobs.connect().query_config_at(point)
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(state, values.output_format)
    else:
        terminal.out_data(output.to_json(state))
    return failures.EXIT_SUCCESS


def undo_commit(values: Values, arguments: list[str]) -> int:
    """Undo what the job of a commit changed (``undo``)."""
    from ganeti.cli import undo

    return undo.of_commit(values, arguments)


UNDO = Command(
    "undo",
    undo_commit,
    [Argument("unknown", 1, 1)],
    [opt.FORCE, opt.YES, opt.DRY_RUN, *opt.SUBMIT_OPTIONS, opt.PRIORITY],
    "Undo a change of the configuration with opposite jobs, which are shown first",
    usage="[<options>] <serial>",
)
COMMAND = Command(
    "history",
    history,
    [Argument("unknown", 0, 2)],
    [
        opt.flag(
            "--diff",
            help="show the differences between two points (serial numbers or times), the"
            " older one first",
        ),
        opt.text(
            "--at",
            metavar="POINT",
            help="show the whole configuration as it was at this point, with its secrets",
        ),
        opt.limit("show at most N commits; 50 by default, 0 for all"),
        opt.NO_HEADERS,
        opt.SEPARATOR,
        opt.OUTPUT_FORMAT,
    ],
    "Show the commits of the configuration, the newest first",
    usage="[--diff <point> <point> | --at=<point>]",
)
