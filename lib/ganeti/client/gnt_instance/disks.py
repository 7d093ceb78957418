"""The commands of ``gnt-instance`` about disks."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import change_group, instance_options, jobs, selector, terminal, value_types
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.constants import disk as disk_const
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.base import OpCode


def activate(values: Values, arguments: list[str]) -> int:
    """Activate the disks of instances and print node, disk and device (``activate-disks``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceActivateDisks

    def make(name: str) -> OpCode:
        return OpInstanceActivateDisks(
            instance_name=name,
            ignore_size=values.ignore_size,
            wait_for_sync=values.wait_for_sync,
            **jobs.common_params(values),
        )

    def report(instance: str, rows: Any, several: bool) -> bool:
        for node, name, device in rows or ():
            terminal.out(f"{f'{instance}: ' if several else ''}{node}:{name}:{device}")
        return True

    return many.run(
        values,
        arguments,
        many.Work(
            "instance", make, plan="will get their disks activated", done="ready", report=report
        ),
    )


def deactivate(values: Values, arguments: list[str]) -> int:
    """Deactivate the disks of stopped instances (``deactivate-disks``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceDeactivateDisks

    def make(name: str) -> OpCode:
        return OpInstanceDeactivateDisks(
            instance_name=name, force=values.force, **jobs.common_params(values)
        )

    return many.run(
        values,
        arguments,
        many.Work("instance", make, plan="will get their disks deactivated", done="ready"),
    )


def _disk_number(text: str) -> int:
    if not is_number(text):
        raise errors.OpPrereqError(f"'{text}' is not the number of a disk", errors.ECODE_INVAL)
    return int(text)


def grow(values: Values, arguments: list[str]) -> int:
    """Make a disk larger (``grow-disk``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceGrowDisk

    *instances, number, amount = arguments
    try:
        amount_mib = value_types.parse_size(amount)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    disk = _disk_number(number)

    def make(name: str) -> OpCode:
        return OpInstanceGrowDisk(
            instance_name=name,
            disk=disk,
            amount=amount_mib,
            absolute=values.absolute,
            wait_for_sync=values.wait_for_sync,
            ignore_ipolicy=values.ignore_ipolicy,
            **jobs.common_params(values),
        )

    size = f"to {amount_mib} MiB" if values.absolute else f"by {amount_mib} MiB"
    plan = f"will get disk {disk} enlarged {size}"
    return many.run(values, instances, many.Work("instance", make, plan=plan, done="ready"))


def recreate(values: Values, arguments: list[str]) -> int:
    """Create lost disks of a stopped instance again (``recreate-disks``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceRecreateDisks

    disks: list[Any] = []
    for ident, params in values.disks:
        if not isinstance(params, dict):
            raise errors.OpPrereqError(f"disk {ident} cannot be removed here", errors.ECODE_INVAL)
        disks.append([_disk_number(ident), instance_options.typed(f"disk {ident}", params)])
    if len({number for number, _params in disks}) != len(disks):
        raise errors.OpPrereqError("a disk is given twice", errors.ECODE_INVAL)
    nodes = [node for node in (values.node or "").split(":") if node]

    def make(name: str) -> OpCode:
        return OpInstanceRecreateDisks(
            instance_name=name,
            disks=disks,
            nodes=nodes,
            iallocator=values.iallocator,
            **jobs.common_params(values),
        )

    plan = "will get their lost disks again, without content"
    return many.run(values, arguments, many.Work("instance", make, plan=plan, done="ready"))


def replace(values: Values, arguments: list[str]) -> int:
    """Replace the volumes of mirrored disks (``replace-disks``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceReplaceDisks

    modes = {
        "--on-primary": values.on_primary,
        "--on-secondary": values.on_secondary,
        "--auto": values.auto,
        "--new-secondary": values.dst_node,
        "--iallocator": values.iallocator,
    }
    if sum(bool(value) for value in modes.values()) != 1:
        raise errors.OpPrereqError(f"give exactly one of {', '.join(modes)}", errors.ECODE_INVAL)
    if values.on_primary:
        mode = disk_const.REPLACE_ON_PRIMARY
    elif values.on_secondary:
        mode = disk_const.REPLACE_ON_SECONDARY
    elif values.auto:
        mode = disk_const.REPLACE_AUTO
    else:
        mode = disk_const.REPLACE_NEW_SECONDARY
    disks = [_disk_number(text) for text in (values.disks or "").split(",") if text]

    def make(name: str) -> OpCode:
        return OpInstanceReplaceDisks(
            instance_name=name,
            mode=mode,
            disks=disks,
            remote_node=values.dst_node,
            iallocator=values.iallocator,
            early_release=values.early_release,
            ignore_ipolicy=values.ignore_ipolicy,
            **jobs.common_params(values),
        )

    plan = "will get the volumes of their mirrored disks replaced"
    return many.run(values, arguments, many.Work("instance", make, plan=plan, done="ready"))


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)

COMMANDS = (
    Command(
        "activate-disks",
        activate,
        [Argument("instance", 1)],
        [
            *selector.CHANGE_INSTANCES,
            opt.flag(
                "--ignore-size", help="do not compare the sizes of disks with the recorded ones"
            ),
            opt.flag("--wait-for-sync", help="wait until mirrored disks are in sync"),
            opt.DRY_RUN,
            opt.PRIORITY,
            *opt.SUBMIT_OPTIONS,
        ],
        "Make the disks of instances usable on their nodes",
    ),
    Command(
        "deactivate-disks",
        deactivate,
        [Argument("instance", 1)],
        [
            *selector.CHANGE_INSTANCES,
            opt.flag(
                "-f", "--force", help="deactivate the disks even if the instance seems to run"
            ),
            *_JOB,
        ],
        "Deactivate the disks of stopped instances",
    ),
    Command(
        "grow-disk",
        grow,
        [Argument("instance", 1), Argument("unknown", 1, 1), Argument("unknown", 1, 1)],
        [
            *selector.CHANGE_INSTANCES,
            opt.flag("--absolute", help="the amount is the new size of the disk"),
            opt.IGNORE_IPOLICY,
            opt.NO_WAIT_FOR_SYNC,
            *_JOB,
        ],
        "Make a disk larger by an amount (MiB, or with a unit)",
        usage="[<options>] <instance>... <disk> <amount>",
    ),
    Command(
        "recreate-disks",
        recreate,
        [Argument("instance", 1)],
        [
            *selector.CHANGE_WITH_NODE,
            opt.keyed_values(
                "--disk",
                dest="disks",
                metavar="N[:size=SIZE,...]",
                help="create only this disk; size, mode and spindles may be changed; may be"
                " given several times",
            ),
            opt.new_nodes(
                "create all disks on these nodes, which become the nodes of the instance"
            ),
            opt.IALLOCATOR,
            *_JOB,
        ],
        "Create lost disks of stopped instances again, without content",
    ),
    Command(
        "replace-disks",
        replace,
        [Argument("instance", 1)],
        [
            *selector.CHANGE_INSTANCES,
            opt.flag("-p", "--on-primary", help="create new volumes on the primary node"),
            opt.flag("-s", "--on-secondary", help="create new volumes on the secondary node"),
            opt.new_secondary("make this node the secondary node instead of the present one"),
            opt.IALLOCATOR,
            opt.flag("-a", "--auto", help="replace damaged volumes"),
            opt.text("--disks", metavar="N,...", help="replace only the disks with these numbers"),
            change_group.EARLY_RELEASE,
            opt.IGNORE_IPOLICY,
            *_JOB,
        ],
        "Replace the volumes of mirrored disks without stopping the instances",
    ),
)
