"""``gnt-instance``: make, remove, start, stop, move and look at virtual machines."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import (
    change_group,
    failures,
    instance_options,
    jobs,
    listing,
    main,
    tags,
    terminal,
)
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.cli.options import Option
from ganeti.client.gnt_instance import (
    add,
    batch_create,
    disks,
    modify,
    reinstall,
    select,
    snapshots,
)
from ganeti.constants import instance as const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode

LIST_FIELDS = ("name", "hypervisor", "os", "pnode", "status", "oper_ram")
_FORMATTERS = {
    name: listing.join_list
    for name in (
        "disk.sizes",
        "nic.bridges",
        "nic.ips",
        "nic.links",
        "nic.macs",
        "nic.modes",
        "nic.networks",
        "snodes",
        "snodes.group",
        "snodes.group.uuid",
        "tags",
    )
}


# -- looking --------------------------------------------------------------------------------------


def list_instances(values: Values, arguments: list[str]) -> int:
    """``list``."""
    return listing.run_list("instance", LIST_FIELDS, values, arguments, formatters=_FORMATTERS)


def list_fields(values: Values, arguments: list[str]) -> int:
    """``list-fields``."""
    return listing.run_list_fields("instance", values, arguments)


def show_info(values: Values, arguments: list[str]) -> int:
    """``info``."""
    if not arguments and not values.show_all:
        terminal.err(
            "No instance selected. Please pass in --all if you want to query all"
            " instances.\nNote that this can take a long time on a big cluster."
        )
        return failures.EXIT_FAILURE
    if arguments and values.show_all:
        raise errors.OpPrereqError("give either names or --all", errors.ECODE_INVAL)
    from ganeti.cli import output
    from ganeti.opcodes.instance import OpInstanceQueryData

    found = jobs.run_opcode(
        OpInstanceQueryData(
            instances=arguments,
            static=values.static,
            use_locking=not values.static,
            **jobs.common_params(values),
        ),
        values,
    )
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(list(found.values()), values.output_format)
        return failures.EXIT_SUCCESS
    from ganeti.client.gnt_instance import info as instance_info

    number = output.roman if values.roman_integers else output.plain
    output.write_info([instance_info.describe(info, number) for info in found.values()])
    return failures.EXIT_SUCCESS


# -- making and removing --------------------------------------------------------------------------


def remove(values: Values, arguments: list[str]) -> int:
    """``remove``."""
    from ganeti.opcodes.instance import OpInstanceRemove

    name = arguments[0]
    client = jobs.connect()
    code = select.confirmed(
        values, name, f"This removes instance {name} and destroys its disks. Go on?", client
    )
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceRemove(
            instance_name=name,
            ignore_failures=values.ignore_failures,
            shutdown_timeout=values.shutdown_timeout,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def _startup_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceStartup

    return OpInstanceStartup(
        instance_name=name,
        force=values.force,
        ignore_offline_nodes=values.ignore_offline,
        no_remember=values.no_remember,
        startup_paused=values.startup_paused,
        hvparams=instance_options.hypervisor_params(values.hvparams),
        beparams=instance_options.backend(values),
        **jobs.common_params(values),
    )


def _shutdown_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceShutdown

    return OpInstanceShutdown(
        instance_name=name,
        force=values.force,
        timeout=values.timeout,
        ignore_offline_nodes=values.ignore_offline,
        no_remember=values.no_remember,
        **jobs.common_params(values),
    )


def _reboot_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceReboot

    return OpInstanceReboot(
        instance_name=name,
        reboot_type=values.reboot_type,
        ignore_secondaries=values.ignore_secondaries,
        shutdown_timeout=values.shutdown_timeout,
        **jobs.common_params(values),
    )


startup = select.for_each("startup", _startup_opcode)
shutdown = select.for_each("shutdown", _shutdown_opcode)
reboot = select.for_each("reboot", _reboot_opcode)


# -- moving ---------------------------------------------------------------------------------------


def migrate(values: Values, arguments: list[str]) -> int:
    """``migrate``."""
    from ganeti.opcodes.instance import OpInstanceMigrate

    name = arguments[0]
    if values.migration_mode and not values.live:
        raise errors.OpPrereqError("give either --non-live or --migration-mode", errors.ECODE_INVAL)
    client = jobs.connect()
    what = (
        f"This cleans up after a failed migration of instance {name}"
        if values.cleanup
        else f"Instance {name} will be migrated to another node"
    )
    code = select.confirmed(values, name, f"{what}. Go on?", client)
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceMigrate(
            instance_name=name,
            mode=values.migration_mode or (None if values.live else "non-live"),
            target_node=values.dst_node,
            iallocator=values.iallocator,
            cleanup=values.cleanup,
            allow_runtime_changes=values.allow_runtime_chgs,
            allow_failover=values.allow_failover,
            ignore_ipolicy=values.ignore_ipolicy,
            ignore_hvversions=values.ignore_hvversions,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def failover(values: Values, arguments: list[str]) -> int:
    """``failover``."""
    from ganeti.opcodes.instance import OpInstanceFailover

    name = arguments[0]
    client = jobs.connect()
    code = select.confirmed(
        values, name, f"Instance {name} will be stopped and started on another node. Go on?", client
    )
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceFailover(
            instance_name=name,
            target_node=values.dst_node,
            iallocator=values.iallocator,
            cleanup=values.cleanup,
            ignore_consistency=values.ignore_consistency,
            ignore_ipolicy=values.ignore_ipolicy,
            shutdown_timeout=values.shutdown_timeout,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


# -- console --------------------------------------------------------------------------------------


def console(values: Values, arguments: list[str]) -> int:
    """``console``."""
    from ganeti.client.gnt_instance import console as instance_console
    from ganeti.opcodes.instance import OpInstanceConsole

    client = jobs.connect()
    where = jobs.run_opcode(
        OpInstanceConsole(instance_name=arguments[0], **jobs.common_params(values)),
        values,
        client=client,
    )
    return instance_console.open_console(where, client, show_command=values.show_command)


# -- the table ------------------------------------------------------------------------------------

_IGNORE_OFFLINE = opt.flag(
    "--ignore-offline", help="only note the state when the primary node is offline"
)
_NO_REMEMBER = opt.flag("--no-remember", help="do not keep this as the wanted state")
_CLEANUP = opt.flag("--cleanup", help="only clean up after a move that was broken off")
_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


PROGRAM = Program(
    "gnt-instance",
    "Make, remove, start, stop, move and look at virtual machines.",
    [
        add.ADD,
        batch_create.BATCH_CREATE,
        Command(
            "remove",
            remove,
            [Argument("instance", 1, 1)],
            [
                opt.FORCE,
                opt.flag("--ignore-failures", help="forget the instance even if its disks remain"),
                opt.SHUTDOWN_TIMEOUT,
                *_JOB,
            ],
            "Stop an instance and destroy it with its disks",
        ),
        Command(
            "list",
            list_instances,
            [Argument("instance")],
            opt.LIST_OPTIONS,
            "List instances",
            usage="[<options>] [<instance>...|<filter>]",
        ),
        Command(
            "list-fields",
            list_fields,
            [Argument("unknown")],
            opt.LIST_FIELDS_OPTIONS,
            "List the fields that list can show",
            usage="[<options>] [<field>...]",
        ),
        Command(
            "info",
            show_info,
            [Argument("instance")],
            [
                opt.flag("--all", dest="show_all", help="all instances"),
                opt.flag("-s", "--static", help="only what the configuration knows; asks no node"),
                opt.ROMAN,
                opt.PRIORITY,
                opt.OUTPUT_FORMAT,
            ],
            "Show everything about instances",
        ),
        Command(
            "startup",
            startup,
            [Argument("instance")],
            [
                opt.FORCE,
                *select.SELECTION,
                Option(
                    "-H",
                    "--hypervisor-parameters",
                    kind="keyval",
                    dest="hvparams",
                    default={},
                    metavar="KEY=VALUE,...",
                    help="hypervisor parameters for this run only",
                ),
                opt.BACKEND,
                _IGNORE_OFFLINE,
                _NO_REMEMBER,
                opt.flag("--paused", dest="startup_paused", help="leave the guest paused"),
                *_JOB,
            ],
            "Start instances",
        ),
        Command(
            "shutdown",
            shutdown,
            [Argument("instance")],
            [
                opt.FORCE,
                *select.SELECTION,
                Option(
                    "--timeout",
                    kind="int",
                    default=const.SHUTDOWN_TIMEOUT_S,
                    metavar="SECONDS",
                    help="how long the guest may take to stop by itself",
                ),
                _IGNORE_OFFLINE,
                _NO_REMEMBER,
                *_JOB,
            ],
            "Stop instances",
        ),
        Command(
            "reboot",
            reboot,
            [Argument("instance")],
            [
                Option(
                    "-t",
                    "--type",
                    dest="reboot_type",
                    choices=("soft", "hard", "full"),
                    default="hard",
                    metavar="<REBOOT>",
                    help="soft: let the guest do it; hard: stop and start the guest; full: also"
                    " its disks",
                ),
                *select.SELECTION,
                opt.flag("--ignore-secondaries", help="go on when a secondary node fails"),
                opt.SHUTDOWN_TIMEOUT,
                *_JOB,
            ],
            "Restart instances",
        ),
        Command(
            "migrate",
            migrate,
            [Argument("instance", 1, 1)],
            [
                opt.FORCE,
                opt.TARGET_NODE,
                opt.IALLOCATOR,
                opt.IGNORE_IPOLICY,
                opt.flag(
                    "--non-live",
                    dest="live",
                    default=True,
                    value=False,
                    help="freeze the guest while it moves",
                ),
                Option(
                    "--migration-mode",
                    choices=("live", "non-live"),
                    default=None,
                    help="let the guest run while it moves, or freeze it",
                ),
                opt.flag("--allow-failover", help="fail over when it cannot be migrated"),
                opt.flag(
                    "--no-runtime-changes",
                    dest="allow_runtime_chgs",
                    default=True,
                    value=False,
                    help="do not shrink its memory to make it fit",
                ),
                opt.flag("--ignore-hvversions", help="go on when the hypervisors differ"),
                _CLEANUP,
                *_JOB,
            ],
            "Move a running instance to another node without stopping it",
        ),
        Command(
            "failover",
            failover,
            [Argument("instance", 1, 1)],
            [
                opt.FORCE,
                opt.TARGET_NODE,
                opt.IALLOCATOR,
                opt.IGNORE_IPOLICY,
                opt.flag(
                    "--ignore-consistency",
                    help="go on when the disks are not in sync, or the"
                    " primary node cannot be asked",
                ),
                opt.SHUTDOWN_TIMEOUT,
                _CLEANUP,
                *_JOB,
            ],
            "Stop an instance and start it on another node",
        ),
        Command(
            "console",
            console,
            [Argument("instance", 1, 1)],
            [
                opt.flag(
                    "--show-cmd",
                    dest="show_command",
                    help="only show the command that opens the console",
                ),
                opt.PRIORITY,
            ],
            "Open the console of an instance",
        ),
        change_group.CHANGE_GROUP,
        disks.MOVE,
        modify.MODIFY,
        reinstall.REINSTALL,
        reinstall.RENAME,
        *disks.COMMANDS,
        *snapshots.COMMANDS,
        *tags.commands("instance", "instance", "an instance"),
    ],
    aliases={"start": "startup", "stop": "shutdown", "show": "info"},
    env_commands=("list",),
)


def run() -> int:
    """Entry point of the script."""
    return main.run(PROGRAM)
