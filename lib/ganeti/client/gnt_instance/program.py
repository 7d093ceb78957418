"""The program ``gnt-instance``: create, remove, start, stop, move and show virtual machines."""

from __future__ import annotations

import sys

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import change_group, failures, jobs, listing, main, selector, tags, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.client.gnt_instance import (
    add,
    batch_create,
    copy,
    disks,
    foreign,
    modify,
    move,
    reinstall,
    rename,
    snapshots,
    start_stop,
    top,
)

if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode

LIST_FIELDS = ("name", "hypervisor", "os", "pnode", "status", "oper_ram")
# On a terminal: what fits into 80 columns, and with -o wide the most important first.
_PEOPLE_FIELDS = ("name", "status", "pnode", "oper_ram", "os")
_WIDE_FIELDS = (
    "name",
    "status",
    "uptime",
    "addresses",
    "oper_ram",
    "be/vcpus",
    "disk_usage",
    "pnode",
    "snodes",
    "disk_template",
    "os",
    "hypervisor",
    "tags",
)
_LISTS = (
    "addresses",
    "disk.sizes",
    "nic.bridges",
    "nic.ips",
    "nic.links",
    "nic.macs",
    "nic.modes",
    "nic.networks",
    "pending_changes",
    "snodes",
    "snodes.group",
    "snodes.group.uuid",
    "tags",
)
_FORMATTERS: dict[str, listing.Formatter] = {
    "uptime": listing.format_span,
    **dict.fromkeys(_LISTS, listing.join_list),
}


# -- showing --------------------------------------------------------------------------------------


def show_info(values: Values, arguments: list[str]) -> int:
    """Show all properties of instances (``info``)."""
    if not arguments and not values.show_all:
        terminal.err(
            "No instance selected. Please pass in --all if you want to query all"
            " instances.\nNote that this can take a long time on a big cluster."
        )
        return failures.EXIT_FAILURE
    if (arguments or values.multi_mode) and values.show_all:
        raise errors.OpPrereqError("give either names of instances or --all", errors.ECODE_INVAL)
    from ganeti.cli import output
    from ganeti.opcodes.instance import OpInstanceQueryData

    data = values.output_format in opt.DATA_FORMATS
    brief = terminal.is_terminal(sys.stdout) and not (
        values.all_parameters or values.roman_integers
    )
    client = jobs.connect()
    found = jobs.run_opcode(
        OpInstanceQueryData(
            instances=selector.names("instance", values, arguments, client),
            static=values.static,
            use_locking=not values.static,
            with_guest=(data or brief) or None,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if data:
        output.write_data(list(found.values()), values.output_format)
        return failures.EXIT_SUCCESS
    if brief:
        from ganeti.client.gnt_instance import summary

        summary.write(list(found.values()), client, static=values.static)
        return failures.EXIT_SUCCESS
    from ganeti.client.gnt_instance import info as instance_info

    number = output.roman if values.roman_integers else output.plain
    output.write_info([instance_info.describe(info, number) for info in found.values()])
    return failures.EXIT_SUCCESS


# -- making and removing --------------------------------------------------------------------------


def remove(values: Values, arguments: list[str]) -> int:
    """Stop instances and destroy them with their disks (``remove``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceRemove

    def make(name: str) -> OpCode:
        return OpInstanceRemove(
            instance_name=name,
            ignore_failures=values.ignore_failures,
            shutdown_timeout=values.shutdown_timeout,
            **jobs.common_params(values),
        )

    plan = "will be removed and their disks will be destroyed"
    question = "Instance {name} will be removed and its disks will be destroyed. Continue?"
    work = many.Work("instance", make, plan=plan, done="removed", question=question)
    return many.run(values, arguments, work)


def undo_change(values: Values, arguments: list[str]) -> int:
    """Undo the last change of an instance (``undo``)."""
    from ganeti.cli import undo

    return undo.of_instance(values, arguments)


# -- console --------------------------------------------------------------------------------------


def console(values: Values, arguments: list[str]) -> int:
    """Open the console of an instance (``console``)."""
    from ganeti.client.gnt_instance import console as instance_console
    from ganeti.opcodes.instance import OpInstanceConsole

    if values.log:
        if values.show_command:
            raise errors.OpPrereqError("give either --log or --show-cmd", errors.ECODE_INVAL)
        from ganeti.client.gnt_instance import console_log

        return console_log.show(jobs.connect(), arguments[0], values)
    if values.follow or values.lines is not None:
        raise errors.OpPrereqError(
            "--lines and --follow show the log of the console, so they need --log",
            errors.ECODE_INVAL,
        )
    client = jobs.connect()
    where = jobs.run_opcode(
        OpInstanceConsole(instance_name=arguments[0], **jobs.common_params(values)),
        values,
        client=client,
    )
    return instance_console.open_console(where, client, show_command=values.show_command)


# -- the table ------------------------------------------------------------------------------------


PROGRAM = Program(
    "gnt-instance",
    "Create, remove, start, stop, move and show virtual machines.",
    [
        add.ADD,
        batch_create.BATCH_CREATE,
        copy.COPY,
        foreign.IMPORT,
        Command(
            "remove",
            remove,
            [Argument("instance", 1)],
            [
                *selector.CHANGE_INSTANCES,
                opt.FORCE,
                opt.flag(
                    "--ignore-failures",
                    help="remove the instance from the configuration even if its disks remain",
                ),
                opt.SHUTDOWN_TIMEOUT,
                opt.DRY_RUN,
                opt.PRIORITY,
                *opt.SUBMIT_OPTIONS,
            ],
            "Stop instances, destroy their disks and remove them",
        ),
        *listing.commands(
            listing.Listing(
                "instance",
                LIST_FIELDS,
                _FORMATTERS,
                people=listing.PeopleForm(_PEOPLE_FIELDS, wide=_WIDE_FIELDS),
            ),
            "List instances",
            [*opt.LIST_OPTIONS, selector.TAGS, selector.NODE, selector.GROUP],
        ),
        Command(
            "info",
            show_info,
            [Argument("instance")],
            [
                opt.flag("--all", dest="show_all", help="show all instances"),
                *selector.INSTANCE_OPTIONS,
                opt.flag(
                    "-s",
                    "--static",
                    help="show only the data of the configuration; no node is asked",
                ),
                opt.flag(
                    "--all-parameters",
                    help="on a terminal, show everything, and not one screen with the state",
                ),
                opt.ROMAN,
                opt.PRIORITY,
                opt.OUTPUT_FORMAT,
            ],
            "Show all properties of instances",
        ),
        *start_stop.COMMANDS,
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
                opt.flag("--log", help="show what the instance has written to its console"),
                opt.number(
                    "--lines",
                    metavar="N",
                    help="with --log: how many of the last lines, 100 by default; 0 for none",
                ),
                opt.flag(
                    "-f", "--follow", help="with --log: wait, and show what the instance adds"
                ),
                opt.PRIORITY,
            ],
            "Open the console of an instance, or show its log",
        ),
        top.TOP,
        change_group.CHANGE_GROUP,
        move.MIGRATE,
        move.FAILOVER,
        move.MOVE,
        modify.MODIFY,
        reinstall.REINSTALL,
        rename.RENAME,
        Command(
            "undo",
            undo_change,
            [Argument("instance", 1, 1)],
            [opt.FORCE, opt.YES, opt.DRY_RUN, *opt.SUBMIT_OPTIONS, opt.PRIORITY],
            "Undo the last change of an instance with opposite jobs, which are shown first",
        ),
        *disks.COMMANDS,
        *snapshots.COMMANDS,
        *tags.commands("instance", "instance", "an instance"),
    ],
    aliases={"start": "startup", "stop": "shutdown", "show": "info"},
    env_commands=("list",),
    examples={
        "add": "-t drbd -s 20g -o debian+minimal -B memory=2g,vcpus=2 -n node1:node2 web1",
        "batch-create": "--dry-run instances.json",
        "copy": "--snapshot=before-upgrade web1 web2",
        "import": "--from=libvirt -t drbd web1.xml web1.example.com",
        "remove": "web1",
        "list": "-F 'status == \"ERROR_down\"'",
        "list-fields": "",
        "info": "web1",
        "startup": "web1 db1",
        "shutdown": "--timeout=60 web1",
        "reboot": "-t hard web1",
        "console": "--log --lines=50 web1",
        "top": "--sort-by=disk --node node1",
        "change-group": "--to=rack3 web1",
        "migrate": "web1",
        "failover": "-n node3 web1",
        "move": "-n node3 web1",
        "modify": "-B memory=4g,vcpus=4 web1",
        "reinstall": "-o debian+minimal web1",
        "rename": "web1 web2.example.com",
        "undo": "web1",
        "activate-disks": "web1",
        "deactivate-disks": "web1",
        "grow-disk": "web1 0 5g",
        "recreate-disks": "--disk 1 web1",
        "replace-disks": "--new-secondary=node4 web1",
        "snapshot": "--shutdown --snapshot-name before-upgrade web1",
        "list-snapshots": "web1",
        "remove-snapshot": "web1 before-upgrade",
        "restore-snapshot": "web1 before-upgrade",
        **tags.examples("web1"),
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
