"""The commands of ``gnt-node`` about storage units, logical volumes and DRBD minors."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, row_list, selector, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.constants import disk as disk_const

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


STORAGE_FIELDS = ("node", "type", "name", "size", "used", "free", "allocatable")


VOLUME_FIELDS = ("node", "phys", "vg", "name", "size", "instance")


DRBD_FIELDS = ("node", "minor", "instance", "disk", "role", "peer")


_TITLES = {
    "node": "Node",
    "type": "Type",
    "name": "Name",
    "size": "Size",
    "used": "Used",
    "free": "Free",
    "allocatable": "Allocatable",
    "phys": "PhysDev",
    "vg": "VG",
    "instance": "Instance",
    "minor": "Minor",
    "disk": "Disk",
    "role": "Role",
    "peer": "PeerNode",
}


_SIZES = ("size", "used", "free")
_RIGHT = (*_SIZES, "minor")


USER_STORAGE_TYPES = (
    disk_const.ST_FILE,
    disk_const.ST_GLUSTER,
    disk_const.ST_LVM_PV,
    disk_const.ST_LVM_VG,
    disk_const.ST_SHARED_FILE,
)


def list_storage(values: Values, arguments: list[str]) -> int:
    """List storage units of nodes (``list-storage``)."""
    from ganeti.opcodes.node import OpNodeQueryStorage

    client = jobs.connect()

    def fetch(fields: list[str]) -> Sequence[Sequence[Any]]:
        names = selector.names("node", values, arguments, client)
        rows: Sequence[Sequence[Any]] = jobs.run_opcode(
            OpNodeQueryStorage(
                nodes=names,
                storage_type=values.user_storage_type,
                output_fields=fields,
                **jobs.common_params(values),
            ),
            values,
            client=client,
        )
        return rows

    return _run(STORAGE_FIELDS, values, fetch)


def list_volumes(values: Values, arguments: list[str]) -> int:
    """List logical volumes of nodes (``volumes``)."""
    from ganeti.opcodes.node import OpNodeQueryvols

    client = jobs.connect()

    def fetch(fields: list[str]) -> Sequence[Sequence[Any]]:
        names = selector.names("node", values, arguments, client)
        rows: Sequence[Sequence[Any]] = jobs.run_opcode(
            OpNodeQueryvols(nodes=names, output_fields=fields, **jobs.common_params(values)),
            values,
            client=client,
        )
        return rows

    return _run(VOLUME_FIELDS, values, fetch)


def _run(
    known: Sequence[str],
    values: Values,
    fetch: Callable[[list[str]], Sequence[Sequence[Any]]],
) -> int:
    def lines(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
        return _lines(fields, rows, values)

    def write(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if values.output_format in opt.DATA_FORMATS:
            from ganeti.cli import output

            output.write_data(
                [dict(zip(fields, row, strict=True)) for row in rows], values.output_format
            )
            return
        for line in lines(fields, rows):
            terminal.out(line)

    return row_list.run(known, known, values, fetch, lines, write)


def _lines(fields: Sequence[str], rows: Sequence[Sequence[Any]], values: Values) -> list[str]:
    from ganeti.utils import text

    unit = values.get("units") or ("h" if values.separator is None else "m")

    def shown(field: str, value: Any) -> str:
        if field in _SIZES and isinstance(value, (int, float)):
            return text.format_unit(value, unit)
        if isinstance(value, bool):
            return "Y" if value else "N"
        return str(value)

    columns = [table.Column(_TITLES.get(field, field), field in _RIGHT) for field in fields]
    cells = [
        [shown(field, value) for field, value in zip(fields, row, strict=True)] for row in rows
    ]
    return table.format_table(
        columns, cells, header=not values.no_headers, separator=values.separator
    )


def modify_storage(values: Values, arguments: list[str]) -> int:
    """Change a physical volume of a node (``modify-storage``)."""
    from ganeti.opcodes.node import OpNodeModifyStorage

    node, storage_type, name = arguments
    if values.allocatable is None:
        # Also for a type of which nothing can be changed.
        _require_type(storage_type, disk_const.STORAGE_TYPES)
        terminal.err("No changes to perform, exiting.")
        return failures.EXIT_SUCCESS
    _require_type(storage_type, (disk_const.ST_LVM_PV,))
    jobs.run_opcode(
        OpNodeModifyStorage(
            node_name=node,
            storage_type=storage_type,
            name=name,
            changes={"allocatable": values.allocatable},
            **jobs.common_params(values),
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def repair_storage(values: Values, arguments: list[str]) -> int:
    """Remove lost devices from a volume group of a node (``repair-storage``)."""
    from ganeti.opcodes.node import OpRepairNodeStorage

    node, storage_type, name = arguments
    _require_type(storage_type, (disk_const.ST_LVM_VG,))
    jobs.run_opcode(
        OpRepairNodeStorage(
            node_name=node,
            storage_type=storage_type,
            name=name,
            ignore_consistency=values.ignore_consistency,
            **jobs.common_params(values),
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def _require_type(given: str, possible: Sequence[str]) -> None:
    if given not in possible:
        raise errors.OpPrereqError(
            f"this command does not work with storage of type '{given}', only with"
            f" {', '.join(possible)}",
            errors.ECODE_INVAL,
        )


def list_drbd(values: Values, arguments: list[str]) -> int:
    """List the DRBD minors of a node (``list-drbd``).

    The configuration daemons answer, so the command works without a master daemon.
    """
    from ganeti.confd.client import Client
    from ganeti.constants import confd

    confd_client = Client.of_this_node()

    def fetch(fields: list[str]) -> list[list[Any]]:
        answer = confd_client.query(confd.REQ_NODE_DRBD, arguments[0])
        if not answer.ok:
            raise errors.OpPrereqError(
                f"the configuration daemons do not know node {arguments[0]}", errors.ECODE_NOENT
            )
        places = [DRBD_FIELDS.index(field) for field in fields]
        return [[row[place] for place in places] for row in answer.answer]

    return _run(DRBD_FIELDS, values, fetch)


_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)


COMMANDS = (
    Command(
        "list-storage",
        list_storage,
        [Argument("node")],
        [
            *selector.OPTIONS,
            Option(
                "-t",
                "--storage-type",
                dest="user_storage_type",
                choices=USER_STORAGE_TYPES,
                metavar="TYPE",
                help="type of storage; by default that of the first enabled disk template on nodes",
            ),
            *row_list.OPTIONS,
            opt.PRIORITY,
        ],
        "List the storage units of nodes",
    ),
    Command(
        "modify-storage",
        modify_storage,
        [
            Argument("node", 1, 1),
            Argument("choice", 1, 1, (disk_const.ST_LVM_PV,)),
            Argument("file", 1, 1),
        ],
        [
            opt.yes_no(
                "--allocatable",
                help="whether new logical volumes may be put on the physical volume",
            ),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Change a physical volume of a node",
        usage="[<options>] <node> lvm-pv <name>",
    ),
    Command(
        "repair-storage",
        repair_storage,
        [
            Argument("node", 1, 1),
            Argument("choice", 1, 1, (disk_const.ST_LVM_VG,)),
            Argument("file", 1, 1),
        ],
        [
            opt.flag(
                "--ignore-consistency",
                help="continue even if the replicas on other nodes are not in order",
            ),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Remove lost devices from a volume group of a node",
        usage="[<options>] <node> lvm-vg <name>",
    ),
    Command(
        "volumes",
        list_volumes,
        [Argument("node")],
        [*selector.OPTIONS, *row_list.OPTIONS, opt.PRIORITY],
        "List the logical volumes of nodes",
    ),
    Command(
        "list-drbd",
        list_drbd,
        [Argument("node", 1, 1)],
        [opt.NO_HEADERS, opt.SEPARATOR, opt.OUTPUT, opt.SORT_BY, opt.WATCH, opt.INTERVAL],
        "List the DRBD minors of a node",
    ),
)
