"""``gnt-node``: roles and parameters, power, prepared commands, storage."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, listing, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.options import Option
from ganeti.cli.power_options import OOB_TIMEOUT, POWER_DELAY
from ganeti.constants import disk as disk_const
from ganeti.constants import query as query_const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ganeti.opcodes.base import OpCode

NO_CHANGE = "Please give at least one of the parameters."
RULER = "-" * 48


# -- modify ---------------------------------------------------------------------------------------


def modify(values: Values, arguments: list[str]) -> int:
    """``modify``."""
    from ganeti.cli import node_params
    from ganeti.opcodes.node import OpNodeSetParams

    hv_state = node_params.hv_state(values.hv_state)
    disk_state = node_params.disk_state(values.disk_state)
    wishes = (
        values.master_candidate,
        values.drained,
        values.offline,
        values.master_capable,
        values.vm_capable,
        values.secondary_ip,
        values.ndparams,
        values.node_powered,
    )
    if all(wish is None for wish in wishes) and not hv_state and not disk_state:
        terminal.err(NO_CHANGE)
        return failures.EXIT_FAILURE
    changes = jobs.run_opcode(
        OpNodeSetParams(
            node_name=arguments[0],
            master_candidate=values.master_candidate,
            offline=values.offline,
            drained=values.drained,
            master_capable=values.master_capable,
            vm_capable=values.vm_capable,
            secondary_ip=values.secondary_ip,
            powered=values.node_powered,
            ndparams=None if values.ndparams is None else node_params.node_params(values.ndparams),
            auto_promote=values.auto_promote,
            force=values.force,
            hv_state=hv_state or None,
            disk_state=disk_state or None,
            **jobs.common_params(values),
        ),
        values,
    )
    if changes:
        terminal.out(f"Modified node {arguments[0]}")
        for name, value in changes:
            terminal.out(f" - {name} -> {value}")
    return failures.EXIT_SUCCESS


# -- power ----------------------------------------------------------------------------------------

_POWER_COMMANDS = ("cycle", "off", "on", "status")
_POWER_ASK = ("cycle", "off")


def power(values: Values, arguments: list[str]) -> int:
    """``power``: let the out-of-band helper switch nodes, or ask it."""
    from ganeti.cli import nodes
    from ganeti.opcodes.misc import OpOobCommand
    from ganeti.opcodes.node import OpNodeSetParams

    command, names = arguments[0], arguments[1:]
    if command not in _POWER_COMMANDS:
        terminal.err(
            f"power subcommand '{command}' not supported. There are: {', '.join(_POWER_COMMANDS)}."
        )
        return failures.EXIT_FAILURE
    if command in _POWER_ASK:
        if not names:
            terminal.err("Please provide at least one node for this command")
            return failures.EXIT_FAILURE
        if not (values.force or values.dry_run):
            code = nodes.ask(f"Power {command} the nodes {', '.join(names)}?")
            if code is not None:
                return code
    common = jobs.common_params(values)
    opcodes: list[OpCode] = []
    if command == "off" and not values.ignore_status:
        _require_helpers(names)
        # One job: what is switched off is marked offline first.
        opcodes += [
            OpNodeSetParams(
                node_name=name, offline=True, auto_promote=values.auto_promote, **common
            )
            for name in names
        ]
    opcodes.append(
        OpOobCommand(
            node_names=names,
            command=f"power-{command}",
            ignore_status=values.ignore_status,
            timeout=values.oob_timeout,
            power_delay=values.power_delay,
            **common,
        )
    )
    result = jobs.run_opcodes(opcodes, values)[-1]
    if values.dry_run:
        return failures.EXIT_SUCCESS
    if values.output_format in opt.DATA_FORMATS:
        return _write_answers(
            result,
            values,
            "powered",
            lambda data: bool(data["powered"]) if command == "status" else command != "off",
        )
    return _show_answers(
        result, values, lambda data: [_power_text(data) if command == "status" else "invoked"]
    )


def _require_helpers(names: Sequence[str]) -> None:
    """Refuse before a node is marked offline which cannot be switched off then.

    :raises OpPrereqError: a node has no helper program, or is not known.
    """
    rows = jobs.connect().query_nodes(list(names), ["name", "powered"], False)
    without = [name for name, powered in rows if powered is None]
    if without:
        raise errors.OpPrereqError(
            f"nodes {', '.join(without)} have no out-of-band helper program. Set the node parameter"
            " oob_program.",
            errors.ECODE_STATE,
        )


def _power_text(data: Mapping[str, Any]) -> str:
    return "powered" if data["powered"] else "unpowered"


def health(values: Values, arguments: list[str]) -> int:
    """``health``: what the out-of-band helper says of nodes."""
    from ganeti.opcodes.misc import OpOobCommand

    result = jobs.run_opcode(
        OpOobCommand(
            node_names=arguments,
            command="health",
            timeout=values.oob_timeout,
            **jobs.common_params(values),
        ),
        values,
    )
    if values.output_format in opt.DATA_FORMATS:
        return _write_answers(result, values, "items", dict)
    return _show_answers(
        result, values, lambda data: [f"{item}={status}" for item, status in data] or [""]
    )


_MARKS = {
    query_const.RS_UNKNOWN: "(unknown)",
    query_const.RS_NODATA: "(nodata)",
    query_const.RS_UNAVAIL: "(unavail)",
    query_const.RS_OFFLINE: "(offline)",
}


def _write_answers(result: Any, values: Values, member: str, read: Callable[[Any], Any]) -> int:
    """The answers for programs, null where there is none; failure when it is missing for one."""
    from ganeti.cli import output

    output.write_data(
        [
            {"node": name, member: read(data) if status == query_const.RS_NORMAL else None}
            for (_, name), (status, data) in result
        ],
        values.output_format,
    )
    failed = any(status != query_const.RS_NORMAL for _, (status, _) in result)
    return failures.EXIT_FAILURE if failed else failures.EXIT_SUCCESS


def _show_answers(result: Any, values: Values, texts: Any) -> int:
    """A table of nodes with what the helper answered; failure when it did not for one."""
    rows: list[list[str]] = []
    failed = False
    for (_, name), (status, data) in result:
        if status != query_const.RS_NORMAL:
            failed = True
            rows.append([name, _MARKS.get(status, f"({status})")])
            continue
        for number, text in enumerate(texts(data)):
            rows.append([name if number == 0 else "", text])
    _write_table([table.Column("Node"), table.Column("Status")], rows, values)
    return failures.EXIT_FAILURE if failed else failures.EXIT_SUCCESS


def _write_table(
    columns: Sequence[table.Column], rows: Sequence[Sequence[str]], values: Values
) -> None:
    header = not values.no_headers
    lines = table.format_table(columns, rows, header=header, separator=values.separator)
    if header and values.separator is None and not columns[-1].right:
        # The titles of these tables are published with the blanks behind the last one.
        width = max([len(columns[-1].title), *(len(row[-1]) for row in rows)])
        lines[0] += " " * (width - len(columns[-1].title))
    for line in lines:
        terminal.out(line)


def powercycle(values: Values, arguments: list[str]) -> int:
    """``powercycle``: reset a node."""
    from ganeti.cli import nodes
    from ganeti.opcodes.node import OpNodePowercycle

    if not values.confirm:
        code = nodes.ask(f"Reset node {arguments[0]} the hard way?", "--yes")
        if code is not None:
            return code
    text = jobs.run_opcode(
        OpNodePowercycle(node_name=arguments[0], force=values.force, **jobs.common_params(values)),
        values,
    )
    if text:
        terminal.err(text)
    return failures.EXIT_SUCCESS


def restricted_command(values: Values, arguments: list[str]) -> int:
    """``restricted-command``: run a prepared command on nodes."""
    from ganeti.cli import nodes
    from ganeti.opcodes.misc import OpRestrictedCommand

    client = jobs.connect()
    names = [name for name, _, _ in nodes.online_nodes(client, arguments[1:], values.nodegroup)]
    if not names:
        raise errors.OpPrereqError(
            "there is no online node to run the command on", errors.ECODE_INVAL
        )
    result = jobs.run_opcode(
        OpRestrictedCommand(
            command=arguments[0],
            nodes=names,
            use_locking=values.do_locking,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if values.dry_run:
        return failures.EXIT_SUCCESS
    code = failures.EXIT_SUCCESS
    for name, (success, text) in zip(names, result, strict=True):
        terminal.out(RULER)
        if not success:
            code = failures.EXIT_FAILURE
            terminal.out(text)
        elif values.show_machine_names:
            for line in text.splitlines():
                terminal.out(f"{name}: {line}")
        else:
            terminal.out(f"Node: {name}")
            terminal.out(text)
    return code


# -- storage --------------------------------------------------------------------------------------

STORAGE_FIELDS = ("node", "type", "name", "size", "used", "free", "allocatable")
VOLUME_FIELDS = ("node", "phys", "vg", "name", "size", "instance")
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
}
_SIZES = ("size", "used", "free")
USER_STORAGE_TYPES = (
    disk_const.ST_FILE,
    disk_const.ST_GLUSTER,
    disk_const.ST_LVM_PV,
    disk_const.ST_LVM_VG,
    disk_const.ST_SHARED_FILE,
)


def list_storage(values: Values, arguments: list[str]) -> int:
    """``list-storage``."""
    from ganeti.opcodes.node import OpNodeQueryStorage

    fields = _fields(values, STORAGE_FIELDS)
    rows = jobs.run_opcode(
        OpNodeQueryStorage(
            nodes=arguments,
            storage_type=values.user_storage_type,
            output_fields=fields,
            **jobs.common_params(values),
        ),
        values,
    )
    _show_storage(fields, rows, values)
    return failures.EXIT_SUCCESS


def list_volumes(values: Values, arguments: list[str]) -> int:
    """``volumes``."""
    from ganeti.opcodes.node import OpNodeQueryvols

    fields = _fields(values, VOLUME_FIELDS)
    rows = jobs.run_opcode(
        OpNodeQueryvols(nodes=arguments, output_fields=fields, **jobs.common_params(values)), values
    )
    _show_storage(fields, rows, values)
    return failures.EXIT_SUCCESS


def _fields(values: Values, known: Sequence[str]) -> list[str]:
    """The chosen columns; these lists show all there are by default."""
    fields = listing.selected_fields(values.output, known)
    return list(known) if fields == [listing.ALL_FIELDS] else fields


def _show_storage(fields: Sequence[str], rows: Sequence[Sequence[Any]], values: Values) -> None:
    from ganeti.utils import text

    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(
            [dict(zip(fields, row, strict=True)) for row in rows], values.output_format
        )
        return
    unit = values.units or ("h" if values.separator is None else "m")

    def shown(field: str, value: Any) -> str:
        if field in _SIZES and isinstance(value, (int, float)):
            return text.format_unit(value, unit)
        if isinstance(value, bool):
            return "Y" if value else "N"
        return str(value)

    columns = [table.Column(_TITLES.get(field, field), field in _SIZES) for field in fields]
    cells = [
        [shown(field, value) for field, value in zip(fields, row, strict=True)] for row in rows
    ]
    for line in table.format_table(
        columns, cells, header=not values.no_headers, separator=values.separator
    ):
        terminal.out(line)


def modify_storage(values: Values, arguments: list[str]) -> int:
    """``modify-storage``."""
    from ganeti.opcodes.node import OpNodeModifyStorage

    node, storage_type, name = arguments
    _require_type(storage_type, (disk_const.ST_LVM_PV,))
    if values.allocatable is None:
        terminal.err("No changes to perform, exiting.")
        return failures.EXIT_SUCCESS
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
    """``repair-storage``."""
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
            f"storage of type '{given}' cannot be handled by this command, only"
            f" {', '.join(possible)}",
            errors.ECODE_INVAL,
        )


def list_drbd(values: Values, arguments: list[str]) -> int:
    """``list-drbd``: minors of a node, by the configuration daemons; needs no master daemon."""
    from ganeti.confd.client import Client
    from ganeti.constants import confd

    answer = Client.of_this_node().query(confd.REQ_NODE_DRBD, arguments[0])
    if not answer.ok:
        terminal.err(f"The configuration daemons do not know node {arguments[0]}")
        return failures.EXIT_FAILURE
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        names = ("node", "minor", "instance", "disk", "role", "peer")
        output.write_data(
            [dict(zip(names, row, strict=True)) for row in answer.answer], values.output_format
        )
        return failures.EXIT_SUCCESS
    columns = [
        table.Column("Node"),
        table.Column("Minor", True),
        table.Column("Instance"),
        table.Column("Disk"),
        table.Column("Role"),
        table.Column("PeerNode"),
    ]
    rows = [[str(cell) for cell in row] for row in answer.answer]
    for line in table.format_table(
        columns, rows, header=not values.no_headers, separator=values.separator
    ):
        terminal.out(line)
    return failures.EXIT_SUCCESS


# -- the rows of the table ------------------------------------------------------------------------

AUTO_PROMOTE = opt.flag(
    "--auto-promote", help="make another node a master candidate if there would be too few"
)
SHOW_NAMES = opt.flag(
    "-M", "--show-machine-names", help="put the name of the node before each line"
)
_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)
_YES_NO = "yes|no"


def _yes_no(*names: str, help_text: str, dest: str | None = None) -> Option:
    return Option(*names, kind="bool", metavar=_YES_NO, help=help_text, dest=dest)


COMMANDS = [
    Command(
        "modify",
        modify,
        [Argument("node", 1, 1)],
        [
            _yes_no(
                "-C",
                "--master-candidate",
                help_text="whether it keeps a copy of the configuration and can take over",
            ),
            _yes_no("-D", "--drained", help_text="whether its instances have to leave"),
            _yes_no("-O", "--offline", help_text="whether it is out of reach"),
            _yes_no("--master-capable", help_text="whether it may become the master"),
            _yes_no("--vm-capable", help_text="whether it may have instances"),
            _yes_no("--node-powered", help_text="whether it is switched on"),
            opt.SECONDARY_IP,
            opt.NODE_PARAMETERS,
            opt.HV_STATE,
            opt.DISK_STATE,
            AUTO_PROMOTE,
            opt.FORCE,
            opt.DRY_RUN,
            *_JOB,
        ],
        "Change the role and the parameters of a node",
    ),
    Command(
        "power",
        power,
        [Argument("choice", 1, 1, _POWER_COMMANDS), Argument("node")],
        [
            OOB_TIMEOUT,
            POWER_DELAY,
            AUTO_PROMOTE,
            opt.FORCE,
            opt.flag(
                "--ignore-status",
                help="switch off nodes that are not marked offline, and do not mark them",
            ),
            opt.NO_HEADERS,
            opt.SEPARATOR,
            opt.OUTPUT_FORMAT,
            opt.DRY_RUN,
            *_JOB,
        ],
        "Switch nodes, or show whether they are on",
        usage="[<options>] on|off|cycle|status [<node>...]",
    ),
    Command(
        "health",
        health,
        [Argument("node")],
        [OOB_TIMEOUT, opt.NO_HEADERS, opt.SEPARATOR, opt.PRIORITY, opt.OUTPUT_FORMAT],
        "Show what the hardware of nodes says of itself",
    ),
    Command(
        "powercycle",
        powercycle,
        [Argument("node", 1, 1)],
        [
            opt.flag("--yes", dest="confirm", help="do not ask"),
            opt.flag("-f", "--force", help="even when it is the master"),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Reset a node the hard way",
    ),
    Command(
        "restricted-command",
        restricted_command,
        [Argument("unknown", 1, 1), Argument("node")],
        [
            opt.NODE_GROUP,
            SHOW_NAMES,
            opt.flag("--sync", dest="do_locking", help="hold the nodes while it runs"),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Run a command prepared by the administrator on nodes",
        usage="[<options>] <command> [<node>...]",
    ),
    Command(
        "list-storage",
        list_storage,
        [Argument("node")],
        [
            Option(
                "-t",
                "--storage-type",
                dest="user_storage_type",
                choices=USER_STORAGE_TYPES,
                metavar="TYPE",
                help="kind of storage; that of the default disk template if not given",
            ),
            opt.NO_HEADERS,
            opt.SEPARATOR,
            opt.UNITS,
            opt.OUTPUT,
            opt.PRIORITY,
        ],
        "List storage units of nodes",
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
            _yes_no("--allocatable", help_text="whether new volumes may be put on it"),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Change a storage unit of a node",
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
                "--ignore-consistency", help="even when other copies of disks are not in order"
            ),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Repair a storage unit of a node",
        usage="[<options>] <node> lvm-vg <name>",
    ),
    Command(
        "volumes",
        list_volumes,
        [Argument("node")],
        [opt.NO_HEADERS, opt.SEPARATOR, opt.UNITS, opt.OUTPUT, opt.PRIORITY],
        "List logical volumes of nodes",
    ),
    Command(
        "list-drbd",
        list_drbd,
        [Argument("node", 1, 1)],
        [opt.NO_HEADERS, opt.SEPARATOR, opt.OUTPUT_FORMAT],
        "List the DRBD minors of a node",
    ),
]
