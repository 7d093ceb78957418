"""The commands list and list-fields: send one query and print its answer as a table.

The master defines which fields exist. The answer of a query contains the kind of each column, which
decides how its values are written.

============== ================================================================================
text, other    unchanged; lists of names are joined with commas
number, float  aligned to the right
unit           aligned to the right; ``64M``, ``1.5G``; with a separator a plain number of MiB
bool           ``Y``, ``N``
timestamp      local time
============== ================================================================================

A missing value is shown as a mark: ``?`` no data, ``-`` not available, ``*`` the node is offline,
``??`` no such field (then the exit code is 14).

Arguments are names, which may contain the patterns ``*`` and ``?``. After ``-F``, or when a single
argument cannot be a name, the argument is a filter expression.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, filters, jobs, selector, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.constants import query as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.command import Option
    from ganeti.luxi import client as luxi

    #: Executes a command; returns the exit code.
    Run = Callable[[Values, list[str]], int]
    #: Writes the value of one field, where the kind of the field is not enough.
    Formatter = Callable[[Any], str]

_MARKS = {
    const.RS_UNKNOWN: ("??", "(unknown)", "unknown"),
    const.RS_NODATA: ("?", "(nodata)", "nodata"),
    const.RS_UNAVAIL: ("-", "(unavail)", "unavail"),
    const.RS_OFFLINE: ("*", "(offline)", "offline"),
}
# If a resource has at most this many fields, an error lists all of them.
_FEW_FIELDS = 4
#: The word after ``-o`` which selects every field; no field has this name.
ALL_FIELDS = "all"
#: The word after ``-o`` which selects the default fields and those of :data:`WIDE`.
WIDE_FIELDS = "wide"
#: Kind of objects -> fields which users often want besides the default ones, in one word.
WIDE = {
    "export": ("ctime", "size", "instance", "source"),
    "filter": ("uuid",),
    "group": ("pinst_list", "uuid"),
    "instance": (
        "uptime",
        "addresses",
        "be/vcpus",
        "disk_template",
        "disk_usage",
        "snodes",
        "tags",
    ),
    "job": ("priority", "received_ts", "start_ts", "end_ts"),
    "lock": (),
    "network": ("free_count", "reserved_count", "inst_list", "tags"),
    "node": ("cnodes", "ctotal", "group", "role", "pip", "tags"),
    "os": ("api_versions", "parameters", "hidden", "blacklisted"),
}
#: Fields with names of machines, whose common domain is left out where a table is too wide.
_HOSTS = frozenset(
    ("name", "instance", "node", "pnode", "snodes", "pinst_list", "sinst_list", "source", "export")
)
_UNITS = {"m": "MiB", "g": "GiB", "t": "TiB"}
# Precedes a note below a row.
_INDENT = "    "
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
    "drained": terminal.YELLOW,
    "offline": terminal.RED,
}


class PeopleForm:
    """The table of a list command for people.

    :param fields: the fields which are queried.
    :param adapt: makes the table from the answer; both have the shape of an answer to a query.
    :param wide: the fields of ``-o wide``; those of the list for programs, if it is not given.
    """

    __slots__ = ("adapt", "fields", "wide")

    def __init__(
        self,
        fields: Sequence[str],
        adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        wide: Sequence[str] = (),
    ) -> None:
        self.fields = fields
        self.adapt = adapt
        self.wide = wide


def for_people(values: Values) -> bool:
    """Return True if a list is for people: a table on a terminal, with the default columns."""
    return values.output is None and on_screen(values)


def on_screen(values: Values) -> bool:
    """Return True if a list is a table with titles on a terminal."""
    return (
        values.separator is None
        and not values.no_headers
        and values.output_format not in opt.DATA_FORMATS
        and terminal.is_terminal(sys.stdout)
    )


def _fits(values: Values) -> bool:
    """Return True if a table is made to fit the terminal: its columns are not chosen one by one."""
    return on_screen(values) and values.get("output") in (None, ALL_FIELDS, WIDE_FIELDS)


class Listing:
    """How the objects of one kind are listed.

    :param resource: kind of objects, as queries name it.
    :param fields: the columns without ``-o``.
    :param formatters: field -> function that writes its value, for fields of kind *other*.
    :param name_field: the field with which names are compared.
    :param numeric: whether names are numbers, as of jobs.
    :param people: the table for people on a terminal, when it is another one.
    """

    __slots__ = ("_fields", "_formatters", "_name_field", "_numeric", "_people", "resource")

    def __init__(
        self,
        resource: str,
        fields: Sequence[str],
        formatters: Mapping[str, Formatter] | None = None,
        *,
        name_field: str = "name",
        numeric: bool = False,
        people: PeopleForm | None = None,
    ) -> None:
        self.resource = resource
        self._fields = fields
        self._formatters = formatters or {}
        self._name_field = name_field
        self._numeric = numeric
        self._people = people

    def run(
        self,
        values: Values,
        arguments: Sequence[str],
        *,
        extra_filter: Any = None,
        extra_fields: Sequence[str] = (),
        client: luxi.Client | None = None,
    ) -> int:
        """Execute a list command: send the query and print the answer.

        :param arguments: names, or one filter expression.
        :param extra_filter: a condition from other options.
        :param extra_fields: fields which are added if they are not selected.
        :returns: the exit code.
        :raises OpPrereqError: wrong arguments, or no field.
        """
        client = client or jobs.connect()
        people = self._people if for_people(values) else None
        fields = self._selected_fields(values, client) if people is None else [*people.fields]
        fields += [name for name in extra_fields if name not in fields]
        qfilter = filters.both_filters(self.condition(values, arguments, client), extra_filter)
        # The locks of gnt-debug have an older --interval of their own.
        if self.resource != "lock":
            require_watch(values)

        def ask() -> Mapping[str, Any]:
            response = query(client, self.resource, fields, qfilter, values)
            adapt = None if people is None else people.adapt
            return response if adapt is None else adapt(response)

        if values.get("watch"):
            return watch(lambda: table_lines(ask(), values, self._formatters), values)
        # A large answer consists of 500,000 small lists without reference cycles. The garbage
        # collector would take as long as the parser.
        gc.disable()
        try:
            response = ask()
            if not (on_screen(values) and _unknown(response["fields"])):
                write(response, values, self._formatters)
            return _warn_of_unknown(client, self.resource, response["fields"], values)
        finally:
            gc.enable()

    def _selected_fields(self, values: Values, client: luxi.Client) -> list[str]:
        fields = selected_fields(values.output, self._fields)
        if fields == [ALL_FIELDS]:
            return [field["name"] for field in client.query_fields(self.resource)["fields"]]
        if fields == [WIDE_FIELDS]:
            if self._people is not None and self._people.wide and on_screen(values):
                return list(self._people.wide)
            more = (name for name in WIDE[self.resource] if name not in self._fields)
            return [*self._fields, *more]
        return fields

    def condition(self, values: Values, arguments: Sequence[str], client: luxi.Client) -> Any:
        """Return the filter of the arguments and of the option which says what they name.

        :returns: the filter in list form; None selects everything.
        :raises OpPrereqError: wrong arguments.
        """
        mode = values.get("multi_mode")
        if mode is None:
            return filters.make_filter(
                arguments,
                force_filter=bool(values.get("force_filter")),
                name_field=self._name_field,
                numeric=self._numeric,
            )
        if values.get("force_filter"):
            raise errors.OpPrereqError(f"give either --filter or --{mode}", errors.ECODE_INVAL)
        return selector.condition(self.resource, mode, arguments, client)


def commands(
    kind: Listing,
    summary: str,
    options: Sequence[Option] = opt.LIST_OPTIONS,
    *,
    run: Run | None = None,
    argument: str | None = None,
    usage: str | None = None,
) -> list[Command]:
    """Return the commands ``list`` and ``list-fields`` for one kind of objects.

    :param summary: text of ``list`` in the list of commands.
    :param run: executes ``list``, if that is more than a query.
    :param argument: kind of the arguments, if it is not the resource.
    :param usage: as of :class:`ganeti.cli.command.Command`; names or a filter, if it is not given.
    """
    return [
        Command(
            "list",
            run or kind.run,
            [Argument(argument or kind.resource)],
            options,
            summary,
            usage=f"[<options>] [<{kind.resource}>...|<filter>]" if usage is None else usage,
        ),
        Command(
            "list-fields",
            _field_lister(kind.resource),
            [Argument("unknown")],
            opt.LIST_FIELDS_OPTIONS,
            "List the fields that list can show",
            usage="[<options>] [<field>...]",
        ),
    ]


def _field_lister(resource: str) -> Run:
    def run(values: Values, arguments: list[str]) -> int:
        return run_list_fields(resource, values, arguments)

    return run


def show_objects(
    values: Values,
    fields: Sequence[str],
    rows: Iterable[Sequence[Any]],
    show: Callable[[list[dict[str, Any]]], None],
) -> int:
    """Write the objects of a command ``info``, for programs or for users.

    :param rows: values of each object, in the order of the fields.
    :param show: writes objects (dictionaries of field and value) for users.
    :returns: the exit code.
    """
    found = [dict(zip(fields, row, strict=True)) for row in rows]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(found, values.output_format)
    elif found:
        show(found)
    return failures.EXIT_SUCCESS


def join_list(value: Any) -> str:
    """Return a list as the text ``a,b,c``."""
    return ",".join([str(item) for item in value])


def selected_fields(text: str | None, default: Sequence[str]) -> list[str]:
    """Return the fields of ``-o``: ``a,b`` replaces the default ones, ``+a,b`` adds to them.

    The words ``all`` and ``wide`` are returned unchanged; :class:`Listing` knows their fields, and
    :func:`fields_of_job` returns all for both.

    :raises OpPrereqError: the option names no field.
    """
    if text is None:
        return list(default)
    adds = text.startswith("+")
    fields = [name for name in (text[1:] if adds else text).split(",") if name]
    if not fields:
        raise errors.OpPrereqError("no field is given after -o", errors.ECODE_INVAL)
    return [*default, *fields] if adds else fields


def fields_of_job(text: str | None, default: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the fields of ``-o``, for a list which a job makes: it has few fields.

    :param known: all fields.
    :raises OpPrereqError: the option names no field.
    """
    fields = selected_fields(text, default)
    return list(known) if fields in ([ALL_FIELDS], [WIDE_FIELDS]) else fields


def query(
    client: luxi.Client, resource: str, fields: list[str], qfilter: Any, values: Values
) -> Mapping[str, Any]:
    """Ask the master, and sort the rows as ``--sort-by`` says.

    :param qfilter: a filter in list form; None selects everything.
    :returns: the answer, which has the shape that :func:`write` describes.
    :raises OpPrereqError: the field to sort by does not exist.
    """
    order = sort_order(values.get("sort_by"))
    # Fields which are only for the order are asked for, too, and not shown.
    hidden = [name for name, _ in order if name not in fields]
    response = client.query(resource, [*fields, *hidden], qfilter)
    if not order:
        return response
    names = [field["name"] for field in response["fields"]]
    unknown = [
        field["name"]
        for field in response["fields"][len(fields) :]
        if field["kind"] == const.KIND_UNKNOWN
    ]
    if unknown:
        known = [field["name"] for field in client.query_fields(resource)["fields"]]
        raise cannot_sort_by(unknown[0], known)
    from ganeti.query import order as query_order  # a program needs it only for --sort-by

    columns = {name: names.index(name) for name, _ in order}

    def value_of(row: Sequence[Any], name: str) -> Any:
        status, value = row[columns[name]]
        return value if status == const.RS_NORMAL else query_order.MISSING

    shown = len(fields)
    rows = query_order.ordered(response["data"], order, value_of)
    return {"fields": response["fields"][:shown], "data": [row[:shown] for row in rows]}


def cannot_sort_by(field: str, known: Sequence[str]) -> errors.OpPrereqError:
    """Make the error about a field of ``--sort-by`` which does not exist, with a similar name."""
    from ganeti.query import order as query_order

    return errors.OpPrereqError(query_order.cannot_sort_by(field, known), errors.ECODE_INVAL)


def sort_order(text: str | None) -> list[tuple[str, bool]]:
    """Read the value of ``--sort-by``, such as ``a,-b``.

    :returns: pairs of a field and whether its order is reversed.

    :raises OpPrereqError: no field is given, or one is given twice.
    """
    if text is None:
        return []
    from ganeti.query import order as query_order

    try:
        return query_order.parse_order(text, "--sort-by")
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def require_watch(values: Values) -> None:
    """Refuse ``--interval`` without ``--watch``.

    :raises OpPrereqError: only the first one is given.
    """
    if values.get("interval") is not None and not values.get("watch"):
        raise errors.OpPrereqError("--interval needs --watch", errors.ECODE_INVAL)


def watch(
    take: Callable[[], list[str]],
    values: Values,
    default_s: int | None = None,
    *,
    newest_last: bool = False,
) -> int:
    """Show a list again and again until the user ends it (``--watch``).

    :param take: makes the lines of the table.
    :param default_s: seconds between two lists without ``--interval``.
    :param newest_last: the last lines, below the titles, are kept if there are too many.
    :returns: the exit code.
    :raises OpPrereqError: the output is not a table on a terminal, or ``--interval`` is wrong.
    """
    from ganeti.cli import live

    interval_s = values.get("interval")
    if interval_s is None:
        interval_s = default_s or live.INTERVAL_S
    live.check_interval(interval_s)
    if values.output_format in opt.DATA_FORMATS or not terminal.is_terminal(sys.stdout):
        raise errors.OpPrereqError(
            "--watch shows a table on a terminal. Programs repeat the command, or use the events of"
            " the REST interface.",
            errors.ECODE_INVAL,
        )

    def lines(area: os.terminal_size) -> list[str]:
        found = take()
        if len(found) > area.lines and newest_last:
            return [found[0], *found[len(found) - area.lines + 1 :]]
        if len(found) > area.lines:
            found[area.lines - 1 :] = [f"... and {len(found) - area.lines + 1} more"]
        return found

    live.show(lines, interval_s)
    return failures.EXIT_SUCCESS


def write(
    response: Mapping[str, Any], values: Values, formatters: Mapping[str, Formatter] | None = None
) -> None:
    """Print an answer of a query, or data of the same shape, in the chosen format.

    :param response: ``fields`` (dictionaries with name, title and kind) and ``data`` (rows of pairs
        of status and value).
    """
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
    """Warn of fields that do not exist, with similar names; return the exit code.

    For people, who see no table then, it is an error.
    """
    unknown = _unknown(fields)
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
    word = "Error" if on_screen(values) else "Warning"
    terminal.err(f"{word}: unknown fields {', '.join(unknown)}.{hints} {where}")
    return failures.EXIT_UNKNOWN_FIELD


def _unknown(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    return [field["name"] for field in fields if field["kind"] == const.KIND_UNKNOWN]


def as_objects(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an answer for programs, as dictionaries of field name and value.

    A missing value is None. If a row has missing values, its member ``_status`` gives the reason
    for each such field.
    """
    names = [field["name"] for field in response["fields"]]
    rows = []
    for row in response["data"]:
        item = {
            name: value if status == const.RS_NORMAL else None
            for name, (status, value) in zip(names, row, strict=True)
        }
        reasons = {
            name: _MARKS.get(status, ("", "", str(status)))[2]
            for name, (status, _) in zip(names, row, strict=True)
            if status != const.RS_NORMAL
        }
        if reasons:
            item["_status"] = reasons
        rows.append(item)
    return rows


def _write_csv(response: Mapping[str, Any], values: Values) -> None:
    """Print the selected columns of an answer as comma separated values."""
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
    lines = table_lines(response, values, formatters)
    if lines:
        terminal.out("\n".join(lines))


def table_lines(
    response: Mapping[str, Any], values: Values, formatters: Mapping[str, Formatter]
) -> list[str]:
    """Return the lines of the table for an answer of a query; on a terminal with colours.

    :param response: as of :func:`write`. It may have ``notes``, a text for each row, which follows
        the row if it is not empty; its first word is coloured.
    """
    fields = response["fields"]
    unit = values.get("units") or ("h" if values.separator is None else "m")
    verbose = 1 if values.get("verbose") else 0
    plain = values.separator is not None
    writers = [_writer(field, formatters, unit, plain=plain) for field in fields]
    marks = {status: texts[verbose] for status, texts in _MARKS.items()}
    rows = [
        [
            write(value) if not status else marks.get(status, f"({status})")
            for write, (status, value) in zip(writers, row, strict=True)
        ]
        for row in response["data"]
    ]
    columns = [
        table.Column(
            _title(field, unit) if on_screen(values) else field["title"],
            field["kind"] in _RIGHT,
            hosts=field["name"] in _HOSTS,
        )
        for field in fields
    ]
    painter = (
        _painter(fields) if values.separator is None and terminal.wants_colour(sys.stdout) else None
    )
    if _fits(values) and "notes" not in response:
        from ganeti.cli import fitting  # a program needs it only for people

        return fitting.table_lines(
            columns,
            rows,
            _width(values),
            painter,
            whole=values.get("output") == ALL_FIELDS,
        )
    lines = table.format_table(
        columns, rows, header=not values.no_headers, separator=values.separator, painter=painter
    )
    if "notes" in response:
        return _with_notes(lines, response["notes"])
    return lines


def _with_notes(lines: Sequence[str], notes: Sequence[str]) -> list[str]:
    """Return the lines of a table with titles, and a note below each row that has one."""
    found = [lines[0]]
    for line, note in zip(lines[1:], notes, strict=True):
        found.append(line)
        if note:
            first, *others = terminal.wrapped(f"{_INDENT}{note}", sys.stdout).split("\n")
            word, colon, rest = first.partition(":")
            if terminal.wants_colour(sys.stdout):
                word = terminal.paint(word, terminal.RED)
            found += [word + colon + rest, *others]
    return found


def _width(values: Values) -> int:
    """Return the columns which a table may have; ``--watch`` leaves the last one free."""
    return terminal.width(sys.stdout) - bool(values.get("watch"))


def _title(field: Mapping[str, Any], unit: str) -> str:
    """Return a title, with the unit if the values below it are plain numbers."""
    title = str(field["title"])
    return f"{title}({_UNITS[unit]})" if field["kind"] == const.KIND_UNIT and unit != "h" else title


def _writer(
    field: Mapping[str, Any], formatters: Mapping[str, Formatter], unit: str, *, plain: bool
) -> Formatter:
    """Return the function which writes the values of one column.

    :param plain: write spans of time as numbers of seconds.
    """
    own = formatters.get(field["name"])
    if own is not None and not (plain and own is format_span):
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
            # A size which the node could not measure is not a number.
            return text.format_unit(value, unit) if isinstance(value, (int, float)) else str(value)

        return format_size
    return str


def _format_bool(value: Any) -> str:
    return "Y" if value else "N"


def _format_float(value: Any) -> str:
    # JSON has one type of numbers; 1.0 is written as 1.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def format_time(seconds: Any) -> str:
    """Return a time (seconds since the epoch) as local time, exact to the second."""
    if not isinstance(seconds, (int, float)):
        return str(seconds)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def format_span(seconds: Any) -> str:
    """Return a span of time in its two largest units; with a separator it stays a number."""
    from ganeti.utils import clock

    return clock.format_span(seconds) if isinstance(seconds, (int, float)) else str(seconds)


def format_stamp(stamp: Any) -> str:
    """Return a time ``[seconds, microseconds]`` of a job as local time with microseconds."""
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
        first = text.partition(",")[0]
        colour = terminal.RED if text.startswith("ERROR") else _STATUS_COLOURS.get(first)
        return terminal.paint(text, colour) if colour else text

    return paint


def run_list_fields(
    resource: str, values: Values, arguments: Sequence[str], *, client: luxi.Client | None = None
) -> int:
    """Execute a list-fields command.

    :param arguments: names of fields; none means all.
    :returns: the exit code.
    """
    client = client or jobs.connect()
    fields = client.query_fields(resource, list(arguments))["fields"]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data([dict(field) for field in fields], values.output_format)
    elif on_screen(values):
        from ganeti.cli import fitting  # a program needs it only for people

        pairs = fitting.series([(field["name"], field["doc"]) for field in fields])
        for line in fitting.described(("Name", "Description"), pairs, terminal.width(sys.stdout)):
            terminal.out(line)
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
