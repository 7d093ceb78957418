"""The command ``gnt-cluster audit``: shows and verifies the audit log of this node."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.over_rest import address

if TYPE_CHECKING:
    from typing import Any

_COLUMNS = (("Line", True), ("Time", False), ("Job", True), ("Event", False), ("Status", False))
_OPCODES = ("Opcodes", False)
# Largest number of lines of one answer of the REST interface.
_PAGE = 1000


def audit(values: Values, arguments: list[str]) -> int:
    """Show the audit log, or verify it (``audit``).

    :raises OpPrereqError: a file cannot be read.
    """
    if address.is_given():
        return _from_afar(values, arguments)
    from ganeti.jobstore import audit as log

    lines: list[dict[str, Any]] = []
    problems = []
    try:
        files = arguments or _own_files()
        while files:
            # Without a verification, old files are read only as far as their lines are shown.
            part = files if arguments or values.verify else files[-1:]
            files = files[: -len(part)]
            found = list(log.verify(part))
            lines[:0] = [data for data, _problem in found]
            problems += [problem for _data, problem in found if problem is not None]
            if not values.verify and values.limit and len(lines) >= values.limit:
                break
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read the audit log {err.filename}: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    if values.verify:
        return _report(values, lines, problems)
    _show(values, lines[-values.limit :] if values.limit else lines)
    return failures.EXIT_SUCCESS


def _from_afar(values: Values, arguments: list[str]) -> int:
    """Show the lines of the master's audit log, which the REST interface gives without its seals.

    :raises OpPrereqError: wrong_input: files or a verification are wanted.
    """
    if arguments or values.verify:
        raise errors.OpPrereqError(
            "files are read, and the log is verified, on the node which has them",
            errors.ECODE_INVAL,
        )
    lines: list[dict[str, Any]] = []
    client = jobs.connect()
    before = None
    while not values.limit or len(lines) < values.limit:
        wanted = min(_PAGE, values.limit - len(lines)) if values.limit else _PAGE
        page = client.call("FindAuditLines", {}, wanted, before)
        lines += [{"n": entry.pop("line"), **entry} for entry in page["entries"]]
        before = page["next"]
        if before is None:
            break
    _show(values, lines[::-1])
    return failures.EXIT_SUCCESS


def _own_files() -> list[str]:
    """Return the audit log of this node with the files which were rotated, the oldest one first."""
    from ganeti.jobstore import audit as log
    from ganeti.platform import paths

    path = paths.current().log_audit_file
    found = log.files(path)
    if not found:
        raise errors.OpPrereqError(
            f"there is no audit log {path}; the master writes it", errors.ECODE_NOENT
        )
    return found


def _report(values: Values, lines: list[dict[str, Any]], problems: list[Any]) -> int:
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(
            {"lines": len(lines), "problems": [list(problem) for problem in problems]},
            values.output_format,
        )
    else:
        for place, text in problems:
            terminal.out(f"{place}: {text}")
        terminal.out(
            f"{len(lines)} lines, {len(problems)} problems"
            if problems
            else f"{len(lines)} lines; none was changed or removed between the first and the last"
        )
    return failures.EXIT_FAILURE if problems else failures.EXIT_SUCCESS


def _show(values: Values, lines: list[dict[str, Any]]) -> None:
    from ganeti.cli import listing, output, table
    from ganeti.utils import author

    if values.output_format in opt.DATA_FORMATS:
        output.write_data(lines, values.output_format)
        return
    for_people = values.separator is None and not values.no_headers
    last = [("Author", False)] if for_people else []
    columns = [table.Column(title, right) for title, right in (*_COLUMNS, _OPCODES, *last)]
    rows = [
        [
            str(line["n"]),
            listing.format_time(line["time"]),
            str(line["job"]),
            str(line["event"]),
            str(line["status"]),
            ", ".join(line["ops"]),
            *([author.of_trail(line.get("reason"))] if for_people else []),
        ]
        for line in lines
        if {"n", "time", "job", "event", "status", "ops"} <= line.keys()
    ]
    for text in table.format_table(
        columns, rows, header=not values.no_headers, separator=values.separator
    ):
        terminal.out(text.rstrip())


COMMAND = Command(
    "audit",
    audit,
    [Argument("file", 0, None)],
    [
        opt.flag("--verify", help="check that no line was changed or removed"),
        opt.limit("show at most the last N lines; 50 by default, 0 for all"),
        opt.OUTPUT_FORMAT,
        opt.NO_HEADERS,
        opt.SEPARATOR,
    ],
    "Show or verify the log of all jobs, oldest file first",
    usage="[<options>] [<file>...]",
)
