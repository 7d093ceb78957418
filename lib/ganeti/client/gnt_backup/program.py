"""The program ``gnt-backup``: exports of instances, and instances made from them."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, filters, instance_creation, jobs, listing, main, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program, Values

if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode

LIST_FIELDS = ("node", "export")
_LISTING = listing.Listing(
    "export",
    LIST_FIELDS,
    name_field="export",
    people=listing.PeopleForm(("export", "node", "ctime", "size", "source")),
)


def list_exports(values: Values, arguments: list[str]) -> int:
    """List the exports on the nodes (``list``)."""
    client = jobs.connect()
    nodes = values.nodes
    if nodes:
        # A wrong name is an error; a filter by it would select nothing.
        nodes = [row[0] for row in client.query_nodes(nodes, ["name"], False)]
    on_nodes = filters.simple_filter("node", nodes)
    return _LISTING.run(values, arguments, extra_filter=on_nodes, client=client)


def export(values: Values, arguments: list[str]) -> int:
    """Export instances to a node (``export``)."""
    from ganeti.cli import many
    from ganeti.constants import instance as const
    from ganeti.opcodes.backup import OpBackupExport

    if values.node is None:
        raise errors.OpPrereqError(
            f"no target node is given for the export of instance {arguments[0]}. Write --node"
            " NODE.",
            errors.ECODE_INVAL,
        )

    def make(name: str) -> OpCode:
        return OpBackupExport(
            instance_name=name,
            target_node=values.node,
            mode=const.EXPORT_LOCAL,
            compress=values.transport_compression,
            shutdown=values.shutdown,
            shutdown_timeout=values.shutdown_timeout,
            remove_instance=values.remove_instance,
            ignore_remove_failures=values.ignore_remove_failures,
            zero_free_space=values.zero_free_space,
            zeroing_timeout_fixed=values.zeroing_timeout_fixed,
            zeroing_timeout_per_mib=values.zeroing_timeout_per_mib,
            long_sleep=values.long_sleep,
            **jobs.common_params(values),
        )

    removed = " and removed" if values.remove_instance else ""
    question = "Instance {name} will be removed after its export. Continue?" if removed else ""
    work = many.Work(
        "instance",
        make,
        plan=f"will be exported to node {values.node}{removed}",
        done=f"exported{removed}",
        question=question,
        report=_report_export,
    )
    return many.run(values, arguments, work)


def _report_export(name: str, answer: tuple[bool, list[bool]] | None, several: bool) -> bool:
    """Name the disks which were not exported; return whether all were."""
    result, disks = answer or (True, [])
    lost = [str(index) for index, exported in enumerate(disks) if not exported]
    if lost:
        terminal.err(f"These disks of instance {name} were not exported: {', '.join(lost)}")
    elif several and result:
        terminal.out(f"{name}: exported")
    return bool(result) and not lost


def import_instance(values: Values, arguments: list[str]) -> int:
    """Create an instance from an export (``import``)."""
    from ganeti.constants import instance as const

    return instance_creation.create(
        values,
        arguments[0],
        mode=const.IMPORT,
        start=False,
        src_node=values.src_node,
        src_path=values.src_dir,
        identify_defaults=values.identify_defaults,
        compress=values.compress,
        os_type=values.os,
        accept_from_description=opt.accepted(values) or None,
    )


def remove(values: Values, arguments: list[str]) -> int:
    """Remove the exports of an instance (``remove``)."""
    from ganeti.opcodes.backup import OpBackupRemove

    jobs.run_opcode(
        OpBackupRemove(instance_name=arguments[0], **jobs.common_params(values)), values
    )
    return failures.EXIT_SUCCESS


# -- the table ------------------------------------------------------------------------------------

_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)


PROGRAM = Program(
    "gnt-backup",
    "Exports of instances, and instances made from them.",
    [
        *listing.commands(
            _LISTING,
            "List the exports on the nodes",
            [
                opt.node(
                    "-n",
                    "--node",
                    action="append",
                    dest="nodes",
                    help="list only the exports on this node; may be given several times",
                ),
                *opt.LIST_OPTIONS,
            ],
            run=list_exports,
            argument="unknown",
        ),
        Command(
            "export",
            export,
            [Argument("instance", 1)],
            [
                *selector.CHANGE_WITH_NODE,
                opt.node("-n", "--node", help="node which gets the export; required"),
                opt.negative(
                    "--noshutdown",
                    dest="shutdown",
                    help="do not stop the guest; the exported disks may be inconsistent",
                ),
                opt.SHUTDOWN_TIMEOUT,
                opt.flag(
                    "--long-sleep",
                    help="allow the instance to stay down until everything is exported",
                ),
                opt.flag("--remove-instance", help="remove the instance after the export"),
                opt.flag(
                    "--ignore-remove-failures",
                    help="continue when parts of the instance cannot be removed",
                ),
                opt.FORCE,
                Option(
                    "--transport-compression",
                    kind="string",
                    default="none",
                    metavar="TOOL",
                    help="compress the data during the transfer with this tool of the"
                    " cluster; none by default",
                ),
                opt.flag("--zero-free-space", help="overwrite the free space in the disks first"),
                opt.number(
                    "--zeroing-timeout-fixed",
                    metavar="SECONDS",
                    help="fixed part of the time limit for overwriting; 300 by default",
                ),
                Option(
                    "--zeroing-timeout-per-mib",
                    kind="float",
                    metavar="SECONDS",
                    help="additional time for each MiB of the disks; 0.05 by default",
                ),
                opt.DRY_RUN,
                *_JOB,
            ],
            "Export instances to a node",
        ),
        Command(
            "import",
            import_instance,
            [Argument("instance", 1, 1)],
            [
                *instance_creation.OPTIONS,
                opt.os_type("OS definition of the instance, in place of the one of the export"),
                opt.ACCEPT_FROM_DESCRIPTION,
                opt.node("--src-node", help="node with the export; by default all nodes are asked"),
                opt.text(
                    "--src-dir",
                    metavar="<dir>",
                    help="name of the export; the name of the instance by default",
                ),
                opt.flag(
                    "--identify-defaults",
                    help="use the default of the cluster for parameters with the same value",
                ),
                opt.COMPRESS,
            ],
            "Create an instance from an export",
        ),
        Command(
            "remove",
            remove,
            [Argument("unknown", 1, 1)],
            [opt.DRY_RUN, *_JOB],
            "Remove the exports of an instance from all nodes",
            usage="[<options>] <instance>",
        ),
    ],
    examples={
        "list": "-n node3",
        "list-fields": "",
        "export": "-n node3 web1",
        "import": "-t plain -n node2 --src-node=node3 --src-dir=web1 web1-copy",
        "remove": "web1",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
