"""The command ``gnt-debug iallocator``: show the request to an allocator, or its answer."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as const
from ganeti.constants.node import EVAC_MODES

if TYPE_CHECKING:
    from typing import Any

# Modes which accept several existing instances.
_SEVERAL = ("change-group", "node-evacuate")
# Modes which are about new instances.
_NEW = ("allocate", "multi-allocate")
_NIC_FORM = ("mac", "ip", "bridge")


def try_allocator(values: Values, arguments: list[str]) -> int:
    """Show the request to an allocator, or run it and show its answer (``iallocator``)."""
    from ganeti.opcodes.test import OpTestAllocator

    if values.output_format in opt.DATA_FORMATS and not values.explain:
        raise errors.OpPrereqError("--output needs --explain", errors.ECODE_INVAL)
    if len(arguments) > 1 and values.mode not in _SEVERAL:
        raise errors.OpPrereqError(
            f"mode {values.mode} takes one name, not {len(arguments)}", errors.ECODE_INVAL
        )
    if values.mode in _NEW:
        missing = [
            option
            for option, value in (
                ("the disk template (-t)", values.disk_template),
                ("the operating system (-o)", values.os),
            )
            if value is None
        ]
        if missing:
            raise errors.OpPrereqError(
                f"mode {values.mode} needs {' and '.join(missing)} of the new instance",
                errors.ECODE_INVAL,
            )
    result = jobs.run_opcode(
        OpTestAllocator(
            direction=values.direction,
            mode=values.mode,
            name=arguments[0],
            instances=arguments,
            iallocator=values.iallocator,
            memory=values.memory,
            vcpus=values.vcpus,
            os=values.os,
            disk_template=values.disk_template,
            disks=disk_sizes(values.disks),
            nics=interfaces(values.nics),
            tags=[tag for tag in (values.tags or "").split(",") if tag],
            spindle_use=values.spindle_use,
            count=values.count,
            evac_mode=values.evac_mode,
            target_groups=values.target_groups,
            explain=values.explain or None,
            **jobs.common_params(values),
        ),
        values,
    )
    if values.explain and result:
        _show_explanations(str(result), values)
    else:
        terminal.out(str(result))
    return failures.EXIT_SUCCESS


def _show_explanations(text: str, values: Values) -> None:
    """Show why nodes were or were not chosen, as tables or in the format of ``--output``."""
    from ganeti.htools import explain
    from ganeti.wire import json

    found = json.loads(text)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(found, values.output_format)
        return
    terminal.out(explain.text(found))


def disk_sizes(text: str) -> list[dict[str, Any]]:
    """Read disks from ``4096,1g`` (MiB, or with a unit).

    :raises OpPrereqError: a part is not a size.
    """
    from ganeti.utils.text import parse_unit

    disks = []
    for size in filter(None, text.split(",")):
        try:
            disks.append({"size": parse_unit(size), "mode": disk_const.RDWR})
        except errors.UnitParseError as err:
            raise errors.OpPrereqError(f"--disks: {err}", errors.ECODE_INVAL) from err
    return disks


def interfaces(text: str) -> list[dict[str, Any]]:
    """Read network interfaces from ``MAC[/IP[/BRIDGE]],...``.

    :raises OpPrereqError: an interface has more parts.
    """
    nics = []
    for item in filter(None, text.split(",")):
        parts = item.split("/")
        if len(parts) > len(_NIC_FORM):
            raise errors.OpPrereqError(
                f"--nics: '{item}' is not of the form MAC/IP/BRIDGE", errors.ECODE_INVAL
            )
        nics.append({key: value or None for key, value in zip(_NIC_FORM, parts, strict=False)})
    return nics


COMMAND = Command(
    "iallocator",
    try_allocator,
    [Argument("unknown", 1)],
    [
        opt.DRY_RUN,
        opt.PRIORITY,
        opt.IALLOCATOR,
        Option(
            "--dir",
            dest="direction",
            choices=const.IALLOCATOR_DIRECTIONS,
            default="in",
            help="in: show the request (the default); out: run the allocator and show its answer",
        ),
        Option(
            "-m",
            "--mode",
            choices=const.IALLOCATOR_MODES,
            default="relocate",
            help="mode of the request; relocate by default",
        ),
        Option(
            "--memory",
            kind="unit",
            default=128,
            metavar="SIZE",
            help="memory of the new instance; 128 MiB by default",
        ),
        opt.number(
            "-p",
            "--vcpus",
            default=1,
            metavar="N",
            help="virtual processors of the new instance; 1 by default",
        ),
        Option(
            "--disks",
            kind="string",
            default="4096,4096",
            metavar="SIZE,...",
            help="sizes of the disks of the new instance; two of 4 GiB by default",
        ),
        Option(
            "-t",
            "--disk-template",
            choices=opt.disk_template_names,
            metavar="TEMPL",
            help="disk template of the new instance",
        ),
        Option(
            "--nics",
            kind="string",
            default="00:11:22:33:44:55",
            metavar="MAC[/IP[/BRIDGE]],...",
            help="network interfaces of the new instance",
        ),
        opt.os_type("operating system of the new instance"),
        opt.text("--tags", metavar="TAG,...", help="tags of the new instance"),
        opt.number(
            "--spindle-use",
            default=1,
            metavar="N",
            help="spindles which the new instance uses; 1 by default",
        ),
        opt.number(
            "--count",
            default=2,
            metavar="N",
            help="number of instances, for multi-allocate; 2 by default",
        ),
        Option(
            "--evac-mode",
            choices=EVAC_MODES,
            default="all",
            help="which instances leave the node, for node-evacuate; all by default",
        ),
        Option(
            "--target-groups",
            kind="string",
            action="append",
            metavar="GROUP",
            help="target node group, for change-group; may be given several times",
        ),
        opt.flag(
            "--explain",
            help="show for each node why it was or was not chosen, for allocate and multi-allocate",
        ),
        opt.OUTPUT_FORMAT,
    ],
    "Show the request which an allocator would get, or its answer",
    usage="[<options>] <instance>...",
)
