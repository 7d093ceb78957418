"""The list and list-fields commands: one query, one table.

Which fields exist and what they mean is the master's knowledge: the answer of a query names the
kind of each column, and that decides how it is written.

============== ================================================================================
text, other    as it is; lists of names joined with commas
number, float  to the right
unit           to the right; ``64M``, ``1.5G``; bare MiB with a separator or ``--units``
bool           ``Y``, ``N``
timestamp      local time
============== ================================================================================

A value that is not there has a mark instead: ``?`` no data, ``-`` not available, ``*`` the node is
offline, ``??`` no such field (the command then ends with exit code 14).

Arguments are names (with ``*`` and ``?`` as in a shell) or, after ``-F`` or when they look like it,
one filter expression.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ganeti import errors
from ganeti.cli import failures, jobs, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Values
from ganeti.constants import query as const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

    #: How the value of one field is written, where the kind alone does not say.
    Formatter = Callable[[Any], str]

_MARKS = {
    const.RS_UNKNOWN: ("??", "(unknown)", "unknown"),
    const.RS_NODATA: ("?", "(nodata)", "nodata"),
    const.RS_UNAVAIL: ("-", "(unavail)", "unavail"),
    const.RS_OFFLINE: ("*", "(offline)", "offline"),
}
# So few fields are named where one of them was meant.
_FEW_FIELDS = 4
#: What ``-o`` takes instead of naming every field; no field is called so.
ALL_FIELDS = "all"
_RIGHT = frozenset((const.KIND_NUMBER, const.KIND_FLOAT, const.KIND_UNIT))
_KIND_NAMES = {
    const.KIND_TEXT: "Text",
    const.KIND_BOOL: "Boolean",
    const.KIND_NUMBER: "Number",
    const.KIND_FLOAT: "Floating-point number",
    const.KIND_UNIT: "Storage size",
    const.KIND_TIMESTAMP: "Timestamp",
    const.KIND_OTHER: "Custom",
    const.KIND_UNKNOWN: "(unknown)",
}

# A single argument with one of these can only be a filter expression. (Not taken from the query
# room: importing it costs 20 ms, and most lists have no filter.)
_FILTER_CHARACTERS = frozenset("\t\n\v\f\r !\"'()/<=>\\~")
_GLOB_CHARACTERS = frozenset("*?")

_STATUS_COLOURS = {
    "running": terminal.GREEN,
    "success": terminal.GREEN,
    "error": terminal.RED,
    "waiting": terminal.YELLOW,
    "canceling": terminal.YELLOW,
    "canceled": terminal.DIM,
    "queued": terminal.BLUE,
    "ADMIN_down": terminal.DIM,
    "ADMIN_offline": terminal.DIM,
    "USER_down": terminal.YELLOW,
}


def join_list(value: Any) -> str:
    """A list as ``a,b,c``."""
    return ",".join([str(item) for item in value])


def selected_fields(text: str | None, default: Sequence[str]) -> list[str]:
    """Fields to ask for: ``a,b`` replaces the default ones, ``+a,b`` adds to them.

    The word ``all`` comes back as it is; only the master knows what it stands for.

    :raises OpPrereqError: none is left.
    """
    if text is None:
        return list(default)
    adds = text.startswith("+")
    fields = [name for name in (text[1:] if adds else text).split(",") if name]
    if not fields:
        raise errors.OpPrereqError("no field is named after -o", errors.ECODE_INVAL)
    return [*default, *fields] if adds else fields


def make_filter(
    arguments: Sequence[str],
    *,
    force_filter: bool = False,
    name_field: str = "name",
    numeric: bool = False,
) -> Any:
    """The filter of a query from the arguments of a command.

    :param numeric: names are numbers (jobs).
    :returns: the published list form; None for everything.
    :raises OpPrereqError: not exactly one expression, or a name that is no number.
    :raises QueryFilterParseError: an expression that cannot be read.
    """
    looks_like_filter = len(arguments) == 1 and bool(_FILTER_CHARACTERS & set(arguments[0]))
    if force_filter or looks_like_filter:
        if len(arguments) != 1:
            raise errors.OpPrereqError(
                "a filter must be exactly one argument. Put quotes around it.", errors.ECODE_INVAL
            )
        from ganeti.query import filter as query_filter  # pyparsing: 40 ms, only for expressions

        return query_filter.parse(arguments[0])
    return simple_filter(
        name_field, [_name_filter(name, name_field, numeric) for name in arguments]
    )


def simple_filter(name_field: str, parts: Sequence[Any]) -> Any:
    """Parts joined with *or*; plain values become *equals* on ``name_field``."""
    if not parts:
        return None
    return ["|", *(part if isinstance(part, list) else ["==", name_field, part] for part in parts)]


def both_filters(first: Any, second: Any) -> Any:
    """Two filters joined with *and*; either may be None."""
    if first is None or second is None:
        return first if second is None else second
    return ["&", first, second]


def _name_filter(name: str, field: str, numeric: bool) -> list[Any]:
    if numeric:
        return ["==", field, job_id(name)]
    if _GLOB_CHARACTERS & set(name):
        from ganeti.query import filter as query_filter

        return ["=~", field, query_filter.glob_to_regex(name)]
    return ["==", field, name]


def job_id(text: str) -> int:
    """A job id from the command line.

    :raises OpPrereqError: not a number.
    """
    if not (text.isdecimal() and text.isascii()):
        raise errors.OpPrereqError(f"'{text}' is not a job id", errors.ECODE_INVAL)
    return int(text)


def run_list(
    resource: str,
    default_fields: Sequence[str],
    values: Values,
    arguments: Sequence[str],
    *,
    formatters: Mapping[str, Formatter] | None = None,
    name_field: str = "name",
    numeric: bool = False,
    extra_filter: Any = None,
    extra_fields: Sequence[str] = (),
    client: luxi.Client | None = None,
) -> int:
    """A whole list command: query, write, exit code.

    :param formatters: how fields of kind *other* are written.
    :param extra_filter: a condition from other options.
    :param extra_fields: added when they are not among the chosen ones.
    """
    client = client or jobs.connect()
    fields = selected_fields(values.output, default_fields)
    if fields == [ALL_FIELDS]:
        fields = [field["name"] for field in client.query_fields(resource)["fields"]]
    fields += [name for name in extra_fields if name not in fields]
    qfilter = both_filters(
        make_filter(
            arguments,
            force_filter=bool(values.get("force_filter")),
            name_field=name_field,
            numeric=numeric,
        ),
        extra_filter,
    )
    # A large answer is half a million small lists. Looking for circles in them, which are not
    # there, would take as long as reading it.
    gc.disable()
    try:
        return _query_and_write(client, resource, fields, qfilter, values, formatters or {})
    finally:
        gc.enable()


def _query_and_write(
    client: luxi.Client,
    resource: str,
    fields: list[str],
    qfilter: Any,
    values: Values,
    formatters: Mapping[str, Formatter],
) -> int:
    response = client.query(resource, fields, qfilter)
    write(response, values, formatters)
    return _warn_of_unknown(client, resource, response["fields"], values)


def write(
    response: Mapping[str, Any], values: Values, formatters: Mapping[str, Formatter] | None = None
) -> None:
    """An answer of a query, or what looks like one, in the format that was chosen."""
    if values.output_format == "csv":
        _write_csv(response, values)
    elif values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(as_objects(response), values.output_format)
    else:
        _write_table(response, values, formatters or {})


def _warn_of_unknown(
    client: luxi.Client, resource: str, fields: Sequence[Mapping[str, Any]], values: Values
) -> int:
    """Name the fields that do not exist, with what may have been meant; returns the exit code."""
    unknown = [field["name"] for field in fields if field["kind"] == const.KIND_UNKNOWN]
    if not unknown:
        return failures.EXIT_SUCCESS
    from ganeti.utils import suggest

    known = [field["name"] for field in client.query_fields(resource)["fields"]]
    hints = "".join(suggest.did_you_mean(name, [*known, *opt.FORMATS]) for name in unknown)
    where = (
        f"Known are {', '.join(sorted(known))}."
        if len(known) <= _FEW_FIELDS
        else f"See '{values.program} list-fields'."
    )
    terminal.err(f"Warning: unknown fields {', '.join(unknown)}.{hints} {where}")
    return failures.EXIT_UNKNOWN_FIELD


def as_objects(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of an answer for programs: field name to value.

    A value that is not there is null, and ``_status`` (only then present) says why per field.
    """
    names = [field["name"] for field in response["fields"]]
    rows = []
    for row in response["data"]:
        item = {
            name: value if status == const.RS_NORMAL else None
            for name, (status, value) in zip(names, row, strict=True)
        }
        why = {
            name: _MARKS.get(status, ("", "", str(status)))[2]
            for name, (status, _) in zip(names, row, strict=True)
            if status != const.RS_NORMAL
        }
        if why:
            item["_status"] = why
        rows.append(item)
    return rows


def _write_csv(response: Mapping[str, Any], values: Values) -> None:
    """The answer as comma separated values: the columns that were asked for and no others."""
    from ganeti.cli import output

    sys.stdout.write(
        output.to_csv(
            [field["name"] for field in response["fields"]],
            ([value if not status else None for status, value in row] for row in response["data"]),
            header=not values.no_headers,
        )
    )
    sys.stdout.flush()


def _write_table(
    response: Mapping[str, Any], values: Values, formatters: Mapping[str, Formatter]
) -> None:
    fields = response["fields"]
    unit = values.get("units") or ("h" if values.separator is None else "m")
    verbose = 1 if values.verbose else 0
    writers = [_writer(field, formatters, unit) for field in fields]
    marks = {status: texts[verbose] for status, texts in _MARKS.items()}
    rows = [
        [
            write(value) if not status else marks.get(status, f"({status})")
            for write, (status, value) in zip(writers, row, strict=True)
        ]
        for row in response["data"]
    ]
    columns = [table.Column(field["title"], field["kind"] in _RIGHT) for field in fields]
    painter = (
        _painter(fields) if values.separator is None and terminal.wants_colour(sys.stdout) else None
    )
    lines = table.format_table(
        columns, rows, header=not values.no_headers, separator=values.separator, painter=painter
    )
    if lines:
        terminal.out("\n".join(lines))


def _writer(field: Mapping[str, Any], formatters: Mapping[str, Formatter], unit: str) -> Formatter:
    """How the values of one column are written."""
    own = formatters.get(field["name"])
    if own is not None:
        return own
    kind = field["kind"]
    if kind == const.KIND_BOOL:
        return _format_bool
    if kind == const.KIND_TIMESTAMP:
        return format_time
    if kind == const.KIND_FLOAT:
        return _format_float
    if kind == const.KIND_UNIT:
        from ganeti.utils import text

        def format_size(value: Any) -> str:
            # A size the node could not measure is no number.
            return text.format_unit(value, unit) if isinstance(value, (int, float)) else str(value)

        return format_size
    return str


def _format_bool(value: Any) -> str:
    return "Y" if value else "N"


def _format_float(value: Any) -> str:
    # JSON has one kind of number; 1.0 is written as it was meant.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def format_time(seconds: Any) -> str:
    """Local time, to the second."""
    if not isinstance(seconds, (int, float)):
        return str(seconds)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def format_stamp(stamp: Any) -> str:
    """A job's ``[seconds, microseconds]`` as local time with microseconds."""
    if not (isinstance(stamp, (list, tuple)) and len(stamp) == 2):
        return "?"
    return f"{format_time(stamp[0])}.{stamp[1]:06d}"


def _painter(fields: Sequence[Mapping[str, Any]]) -> table.Painter:
    status_columns = frozenset(
        index for index, field in enumerate(fields) if field["name"] in ("status", "opstatus")
    )

    def paint(row: int | None, column: int, text: str) -> str:
        if row is None:
            return terminal.paint(text, terminal.BOLD)
        if column not in status_columns:
            return text
        colour = terminal.RED if text.startswith("ERROR") else _STATUS_COLOURS.get(text)
        return terminal.paint(text, colour) if colour else text

    return paint


def run_list_fields(
    resource: str, values: Values, arguments: Sequence[str], *, client: luxi.Client | None = None
) -> int:
    """A whole list-fields command; arguments are names of fields, none means all."""
    client = client or jobs.connect()
    fields = client.query_fields(resource, list(arguments))["fields"]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data([dict(field) for field in fields], values.output_format)
    else:
        columns = [table.Column(title) for title in ("Name", "Type", "Title", "Description")]
        rows = [
            [
                field["name"],
                _KIND_NAMES.get(field["kind"], field["kind"]),
                field["title"],
                field["doc"],
            ]
            for field in fields
        ]
        for line in table.format_table(
            columns, rows, header=not values.no_headers, separator=values.separator
        ):
            terminal.out(line)
    return _warn_of_unknown(client, resource, fields, values)
