"""The commands of ``gnt-instance`` about snapshots."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import jobs, listing, row_list, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.constants import query as query_const
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ganeti.opcodes.base import OpCode

#: Field -> title and kind of the column.
FIELDS = {
    "instance": ("Instance", query_const.KIND_TEXT),
    "snapshot": ("Snapshot", query_const.KIND_TEXT),
    "disk": ("Disk", query_const.KIND_NUMBER),
    "disk_uuid": ("DiskUUID", query_const.KIND_TEXT),
    "node": ("Node", query_const.KIND_TEXT),
    "size": ("Size", query_const.KIND_UNIT),
    "ctime": ("CTime", query_const.KIND_TIMESTAMP),
    "usable": ("Usable", query_const.KIND_BOOL),
}
LIST_FIELDS = ("instance", "snapshot", "disk", "node", "size", "ctime", "usable")


def _numbers(text: str | None) -> list[int]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if not is_number(word):
            raise errors.OpPrereqError(f"'{word}' is not the number of a disk", errors.ECODE_INVAL)
    return [int(word) for word in words]


def take(values: Values, arguments: list[str]) -> int:
    """Make snapshots of disks and print their names (``snapshot``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceSnapshot

    arguments, snapshot = _snapshot_of(values, arguments)

    def make(name: str) -> OpCode:
        return OpInstanceSnapshot(
            instance_name=name,
            snapshot_name=snapshot,
            disks=_numbers(values.disks),
            shutdown=values.shutdown,
            shutdown_timeout=values.shutdown_timeout,
            **jobs.common_params(values),
        )

    def report(name: str, made: str, several: bool) -> bool:
        terminal.out(f"{name}: {made}" if several else made)
        return True

    plan = f"will get snapshot {snapshot}" if snapshot else "will get a snapshot"
    if values.shutdown:
        plan += " and be stopped meanwhile"
    return many.run(
        values,
        arguments,
        many.Work("instance", make, plan=plan, done="recorded in a snapshot", report=report),
    )


def _snapshot_of(values: Values, arguments: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments which select instances, and the name of the snapshot, if there is one.

    Of two words without another option the second one is the name, unless an instance has it.
    """
    from ganeti.cli import many

    if values.snapshot_name or selector.given(values) or len(arguments) != 2:
        return arguments, values.snapshot_name
    client = jobs.connect()
    many.known_names("instance", arguments[:1], client)
    try:
        many.known_names("instance", arguments[1:], client)
    except errors.OpPrereqError as err:
        if err.ecode != errors.ECODE_NOENT:
            raise
        return arguments[:1], arguments[1]
    return arguments, None


def list_snapshots(values: Values, arguments: list[str]) -> int:
    """List the snapshots of instances (``list-snapshots``)."""
    from ganeti.opcodes.instance import OpInstanceSnapshotList

    client = jobs.connect()

    def fetch(fields: list[str]) -> list[list[Any]]:
        names = selector.names("instance", values, arguments, client)
        found: list[Mapping[str, Any]] = jobs.run_opcode(
            OpInstanceSnapshotList(instances=names, **jobs.common_params(values)),
            values,
            client=client,
        )
        return [[row[field] for field in fields] for row in found]

    return row_list.run(
        LIST_FIELDS,
        tuple(FIELDS),
        values,
        fetch,
        lambda fields, rows: listing.table_lines(_response(fields, rows), values, {}),
        lambda fields, rows: listing.write(_response(fields, rows), values),
    )


def _response(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return rows in the shape of an answer of a query."""
    return {
        "fields": [
            {"name": field, "title": FIELDS[field][0], "kind": FIELDS[field][1]} for field in fields
        ],
        "data": [[_cell(value) for value in row] for row in rows],
    }


def _cell(value: Any) -> tuple[int, Any]:
    # Not every type of storage reports every value.
    return (query_const.RS_UNAVAIL if value is None else query_const.RS_NORMAL), value


def remove(values: Values, arguments: list[str]) -> int:
    """Remove a snapshot of instances (``remove-snapshot``).

    On a terminal it asks. Programs, which have none, are not stopped.
    """
    from ganeti.opcodes.instance import OpInstanceSnapshotRemove

    snapshot = arguments[-1]
    question = f"Snapshot {snapshot} of instance {{name}} will be removed. Continue?"
    plan = f"will lose snapshot {snapshot}"
    return _with_snapshot(
        values,
        arguments,
        OpInstanceSnapshotRemove,
        plan=plan,
        done=f"freed of snapshot {snapshot}",
        question=question if terminal.can_ask() else "",
        option="--yes",
    )


def restore(values: Values, arguments: list[str]) -> int:
    """Overwrite disks with their content in a snapshot (``restore-snapshot``)."""
    from ganeti.opcodes.instance import OpInstanceSnapshotRestore

    time = f"at the time of snapshot {arguments[-1]}"
    return _with_snapshot(
        values,
        arguments,
        OpInstanceSnapshotRestore,
        plan=f"will get the content of their disks {time}",
        done="restored",
        question="Disks of instance {name} will be overwritten with their content"
        f" {time}. Continue?",
    )


def _with_snapshot(
    values: Values,
    arguments: list[str],
    opcode: Callable[..., OpCode],
    *,
    plan: str,
    done: str,
    question: str,
    option: str = "--force",
) -> int:
    """Do something to the snapshot of each instance which the last argument names."""
    from ganeti.cli import many

    *instances, snapshot = arguments

    def make(name: str) -> OpCode:
        return opcode(instance_name=name, snapshot_name=snapshot, **jobs.common_params(values))

    work = many.Work("instance", make, plan=plan, done=done, question=question, option=option)
    return many.run(values, instances, work)


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)

COMMANDS = (
    Command(
        "snapshot",
        take,
        [Argument("instance", 1)],
        [
            *selector.CHANGE_INSTANCES,
            opt.text(
                "--disks",
                metavar="N,...",
                help="make a snapshot of the disks with these numbers only",
            ),
            opt.text(
                "--snapshot-name",
                metavar="NAME",
                help="name of the snapshot; by default the time (UTC), such as 20261121-101500",
            ),
            opt.flag("--shutdown", help="stop the instance during the snapshot and start it again"),
            opt.SHUTDOWN_TIMEOUT,
            *_JOB,
        ],
        "Keep the present content of disks of instances under a name",
        usage="[<options>] <instance>... | <instance> <snapshot>",
    ),
    Command(
        "list-snapshots",
        list_snapshots,
        [Argument("instance")],
        [
            *selector.INSTANCE_OPTIONS,
            *row_list.OPTIONS,
            opt.VERBOSE_LIST,
            opt.PRIORITY,
        ],
        "List the snapshots of instances",
    ),
    Command(
        "remove-snapshot",
        remove,
        [Argument("instance", 1), Argument("unknown", 1, 1)],
        [*selector.CHANGE_INSTANCES, *_JOB],
        "Remove a snapshot of instances",
        usage="[<options>] <instance>... <snapshot>",
    ),
    Command(
        "restore-snapshot",
        restore,
        [Argument("instance", 1), Argument("unknown", 1, 1)],
        [*selector.CHANGE_INSTANCES, opt.FORCE, *_JOB],
        "Overwrite the disks of stopped instances with their content in a snapshot",
        usage="[<options>] <instance>... <snapshot>",
    ),
)
