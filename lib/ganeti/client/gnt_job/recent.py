"""The list of jobs for people, and the jobs of an object (``gnt-job list``).

Without arguments the list has the last jobs which change something, and those which have not ended.
It can also be asked for the jobs which work on an instance or on another object. Programs get the
published list of all jobs.
"""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import closing, failures, filters, listing, terminal
from ganeti.constants import job as const
from ganeti.luxi import explain_text as explain
from ganeti.utils import author, digits

if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.command import Values
    from ganeti.luxi import client as luxi

#: The fields from which :func:`adapt` makes the table.
FIELDS = ("id", "received_ts", "start_ts", "end_ts", "status", "summary", "ops", "opresult")
#: So many jobs are listed without ``--all``.
LAST = 20
#: Operations which change nothing. The tests compare them with the kinds of opcodes.
READING = frozenset(
    (
        "BACKUP_PREPARE",
        "CLUSTER_CONFIG_QUERY",
        "CLUSTER_QUERY",
        "CLUSTER_VERIFY",
        "CLUSTER_VERIFY_CONFIG",
        "CLUSTER_VERIFY_DISKS",
        "CLUSTER_VERIFY_GROUP",
        "EXT_STORAGE_DIAGNOSE",
        "GROUP_VERIFY_DISKS",
        "INSTANCE_CONSOLE",
        "INSTANCE_QUERY_DATA",
        "INSTANCE_SNAPSHOT_LIST",
        "NODE_QUERYVOLS",
        "NODE_QUERY_STORAGE",
        "OS_DIAGNOSE",
        "QUERY",
        "QUERY_FIELDS",
        "TAGS_GET",
        "TAGS_SEARCH",
    )
)

# Parts of summaries -> the words which the commands have for them.
_WORDS = (
    ("INSTANCE_CREATE", "INSTANCE_ADD"),
    ("SET_PARAMS", "MODIFY"),
    ("QUERY_DATA", "INFO"),
    ("REDIST_CONF", "REDIST-CONF"),
    ("TAGS_SET", "ADD-TAGS"),
    ("TAGS_DEL", "REMOVE-TAGS"),
)
# Parameters of opcodes which name objects.
_NAMING = re.compile(r"(?:.*_)?(?:name|[ps]?nodes?|groups?|networks?|instances)", re.ASCII)
_OWN_NAMES = ("instance_name", "node_name", "group_name", "network_name")
_OBJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_TITLES = ("ID", "Age", "Took", "Status", "What", "Author")
_RIGHT = frozenset(("ID", "Age", "Took"))
# Errors are not longer than so many lines.
_NOTE_LINES = 2
# "What" is not made shorter than this.
_SHORTEST = 20


def is_object(word: str) -> bool:
    """Return True for an argument which can name an object, and is not the number of a job."""
    return not digits.is_number(word) and _OBJECT.fullmatch(word) is not None


def numbers(client: luxi.Client, arguments: Sequence[str], fields: Sequence[str]) -> list[int]:
    """Return the numbers of the jobs which are given by number, or by an object they work on.

    :param fields: further fields to ask for; with ``archived`` archived jobs are found, too.
    :raises OpPrereqError: no job works on an object with such a name.
    """
    names = [word for word in arguments if is_object(word)]
    if not names:
        return []
    found = [filters.job_id(word) for word in arguments if word not in names]
    rows = client.query("job", ["id", "ops", *fields], None)["data"]
    for name in names:
        ids = [row[0][1] for row in rows if any(_works_on(op, name) for op in row[1][1] or ())]
        if not ids:
            raise errors.OpPrereqError(
                f"no job in the queue works on '{name}'. An argument is the number of a job, or"
                " the name of an instance, node, node group or network.",
                errors.ECODE_NOENT,
            )
        found += ids
    return sorted(set(found))


def _works_on(op: Any, name: str) -> bool:
    """Return True if a parameter of an opcode has a name, or the host name that begins with it."""
    if not isinstance(op, Mapping):
        return False
    return any(
        one == name or one.startswith(f"{name}.") or name.startswith(f"{one}.")
        for key, value in op.items()
        if _NAMING.fullmatch(key)
        for one in _names_in(value)
    )


def _names_in(value: Any) -> Iterator[str]:
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, Mapping):  # of INSTANCE_MULTI_ALLOC
            yield str(one.get("instance_name"))
        elif isinstance(one, str) and one:
            yield one


class Choice:
    """Which jobs a list for people has.

    :ivar names: names of objects, and numbers of jobs; empty if jobs are not chosen by objects.
    :ivar qfilter: another condition; None for none.
    :ivar states: the states which the user asked for, as a filter; None for all.
    :ivar every: also older jobs, and those which only read.
    """

    def __init__(self, names: Sequence[str], qfilter: Any, states: Any, *, every: bool) -> None:
        self.names = names
        self.qfilter = filters.both_filters(qfilter, states)
        self.states = states
        self.every = every

    def last(self, client: luxi.Client, fields: Sequence[str]) -> tuple[Any, str]:
        """Return the filter of the jobs to list, and a line about those which are not listed.

        :raises OpPrereqError: no job works on an object with such a name.
        """
        chosen = filters.simple_filter("id", numbers(client, self.names, fields))
        condition = filters.both_filters(chosen, self.qfilter)
        if self.every:
            return condition, ""
        rows = client.query("job", ["id", "summary", "status", *fields], condition)["data"]
        # Who asks for jobs in a state wants to see what is under way, or what failed.
        kept = [row for row in rows if self.states or not _only_reads(row[1][1] or ())]
        older = [row[0][1] for row in kept[:-LAST] if row[2][1] not in const.FINALIZED]
        shown = older + [row[0][1] for row in kept[-LAST:]]
        hidden = []
        if len(kept) > len(shown):
            hidden.append(_jobs(len(kept) - len(shown), "older job"))
        if len(rows) > len(kept):
            hidden.append(_jobs(len(rows) - len(kept), "job which only read"))
        note = f"Not shown: {' and '.join(hidden)} (--all shows them)" if hidden else ""
        # No job has the number 0.
        return filters.simple_filter("id", shown or [0]), note


def _jobs(count: int, kind: str) -> str:
    return f"{count} {kind if count == 1 else kind.replace('job', 'jobs')}"


def _only_reads(summary: Sequence[Any]) -> bool:
    return bool(summary) and all(str(one).partition("(")[0] in READING for one in summary)


def show(values: Values, client: luxi.Client, choice: Choice, fields: Sequence[str]) -> int:
    """Write the list of jobs for people, once or again and again; return the exit code.

    :param fields: further fields to ask for.
    """

    def lines() -> list[str]:
        condition, note = choice.last(client, fields)
        response = listing.query(client, "job", [*FIELDS, *fields], condition, values)
        found = adapt(response, _names(client, response), time.time())
        return [*listing.table_lines(found, values, {}), *([note] if note else [])]

    if values.watch:
        return listing.watch(lines, values, newest_last=True)
    for line in lines():
        terminal.out(line)
    return failures.EXIT_SUCCESS


def _names(client: luxi.Client, response: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the objects of which the summaries have only UUIDs."""
    column = FIELDS.index("summary")
    texts = [str(one) for row in response["data"] for one in row[column][1] or ()]
    wanted = {uuid for one in texts for uuid in _UUID.findall(one)}
    found: dict[str, str] = {}
    for kind in ("group", "node", "instance", "network"):
        if wanted <= found.keys():
            break
        rows = client.query(kind, ["uuid", "name"], filters.simple_filter("uuid", sorted(wanted)))
        found.update((uuid[1], name[1]) for uuid, name in rows["data"])
    return found


def adapt(response: Mapping[str, Any], names: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return the table for people, with the error of each failed job as a note below its row.

    :param response: an answer with the values of :data:`FIELDS`.
    :param names: UUIDs -> names.
    :param now: seconds since the epoch.
    """
    archived = "archived" in [field["name"] for field in response["fields"]]
    rows = [[cell[1] for cell in row] for row in response["data"]]
    table = [_row(row, names, now) for row in rows]
    _fit(table, terminal.width(sys.stdout))
    if archived:
        for cells, row in zip(table, rows, strict=True):
            cells.append("Y" if row[-1] else "N")
    titles = [*_TITLES, *(["Archived"] if archived else [])]
    return {
        "fields": [
            {
                "name": title.lower(),
                "title": title,
                "kind": "number" if title in _RIGHT else "text",
                "doc": title,
            }
            for title in titles
        ],
        "data": [[[0, cell] for cell in cells] for cells in table],
        "notes": [_error(row[4], row[7] or ()) for row in rows],
    }


def _row(row: Sequence[Any], names: Mapping[str, str], now: float) -> list[str]:
    job_id, received, start, end, status, summary, ops = row[:7]
    first = ops[0] if ops and isinstance(ops[0], Mapping) else {}
    clock = divmod(round(now * 1e6), 1000000)
    return [
        str(job_id),
        explain.format_span(now - received[0]) if received else "-",
        closing.duration(start, end or clock) if start else "-",
        str(status),
        what(summary or (), ops or (), names),
        author.of_trail(first.get("reason")),
    ]


def _fit(table: Sequence[list[str]], columns: int) -> None:
    """Cut the column "What" so that the table fits the terminal."""
    place = _TITLES.index("What")
    widths = [max(map(len, cells), default=0) for cells in zip(_TITLES, *table, strict=True)]
    space = max(_SHORTEST, columns - sum(widths) - len(widths) + 1 + widths[place])
    for cells in table:
        if len(cells[place]) > space:
            cells[place] = f"{cells[place][: space - 3]}..."


def what(summary: Iterable[Any], ops: Sequence[Any], names: Mapping[str, str]) -> str:
    """Return what a job does, in the words of the commands: ``instance startup web1``.

    :param summary: one text for each opcode: ``INSTANCE_STARTUP(web1)``.
    :param ops: the parameters of each opcode.
    :param names: UUIDs -> names.
    """
    found = []
    for place, one in enumerate(summary):
        operation, bracket, rest = str(one).partition("(")
        about = rest.removesuffix(")") if bracket else _subject(ops[place : place + 1])
        about = _UUID.sub(lambda match: names.get(match[0], match[0]), about)
        for old, new in _WORDS:
            operation = operation.replace(old, new)
        words = operation.lower().replace("_", " ")
        found.append(words if about in ("", "None") else f"{words} {about}")
    more = len(found) - 2
    return ", ".join(found[:2]) + (f", and {more} more" if more > 0 else "")


def _subject(ops: Sequence[Any]) -> str:
    """Return the name of the object on which an opcode works; empty when it names none."""
    op = ops[0] if ops and isinstance(ops[0], Mapping) else {}
    if str(op.get("OP_ID")).startswith("OP_TAGS_"):
        return " ".join(str(op[key]) for key in ("kind", "name") if op.get(key))
    return next((str(op[key]) for key in _OWN_NAMES if op.get(key)), "")


def _error(status: str, results: Iterable[Any]) -> str:
    """Return the first error of a failed job; empty when there is none."""
    if status != const.STATUS_ERROR:
        return ""
    from ganeti.wire import errors as wire_errors

    for result in results:
        error = wire_errors.decode(result)
        if error is not None:
            # The whole text is shown by "gnt-job info".
            limit = _NOTE_LINES * (terminal.width(sys.stdout) - len("    ")) - len("Error: ")
            return f"Error: {textwrap.shorten(failures.sentence(error), limit, placeholder=' ...')}"
    return "Error"
