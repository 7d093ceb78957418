"""The commands of ``gnt-instance`` about snapshots."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, row_list, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.client.gnt_instance import selection
from ganeti.constants import query as query_const
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

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
    """Make a snapshot of disks and print its name (``snapshot``)."""
    from ganeti.opcodes.instance import OpInstanceSnapshot

    name = jobs.run_opcode(
        OpInstanceSnapshot(
            instance_name=arguments[0],
            snapshot_name=values.snapshot_name,
            disks=_numbers(values.disks),
            shutdown=values.shutdown,
            shutdown_timeout=values.shutdown_timeout,
            **jobs.common_params(values),
        ),
        values,
    )
    if not values.dry_run:
        terminal.out(name)
    return failures.EXIT_SUCCESS


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
    """Remove a snapshot (``remove-snapshot``)."""
    from ganeti.opcodes.instance import OpInstanceSnapshotRemove

    instance, name = arguments
    jobs.run_opcode(
        OpInstanceSnapshotRemove(
            instance_name=instance, snapshot_name=name, **jobs.common_params(values)
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def restore(values: Values, arguments: list[str]) -> int:
    """Overwrite disks with their content in a snapshot (``restore-snapshot``)."""
    from ganeti.opcodes.instance import OpInstanceSnapshotRestore

    instance, name = arguments
    client = jobs.connect()
    code = selection.confirmed(
        values,
        instance,
        "Disks of instance {instance} will be overwritten with their content at the"
        f" time of snapshot {name}. Continue?",
        client,
    )
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceSnapshotRestore(
            instance_name=instance, snapshot_name=name, **jobs.common_params(values)
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)

COMMANDS = (
    Command(
        "snapshot",
        take,
        [Argument("instance", 1, 1)],
        [
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
        "Keep the present content of disks of an instance under a name",
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
        [Argument("instance", 1, 1), Argument("unknown", 1, 1)],
        _JOB,
        "Remove a snapshot",
        usage="[<options>] <instance> <snapshot>",
    ),
    Command(
        "restore-snapshot",
        restore,
        [Argument("instance", 1, 1), Argument("unknown", 1, 1)],
        [opt.FORCE, *_JOB],
        "Overwrite the disks of a stopped instance with their content in a snapshot",
        usage="[<options>] <instance> <snapshot>",
    ),
)
