"""``gnt-debug iallocator``: see what an allocator is told, and what it answers."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.options import Option
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as const
from ganeti.constants.node import EVAC_MODES

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

# Modes about several instances that exist.
_SEVERAL = ("change-group", "node-evacuate")
_NIC_FORM = ("mac", "ip", "bridge")


def try_allocator(values: Values, arguments: list[str]) -> int:
    """``iallocator``."""
    from ganeti.opcodes.test import OpTestAllocator

    if len(arguments) > 1 and values.mode not in _SEVERAL:
        raise errors.OpPrereqError(
            f"mode {values.mode} is about one name, not {len(arguments)}", errors.ECODE_INVAL
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
            **jobs.common_params(values),
        ),
        values,
    )
    terminal.out(str(result))
    return failures.EXIT_SUCCESS


def disk_sizes(text: str) -> list[dict[str, Any]]:
    """Disks from ``4096,1g``.

    :raises OpPrereqError: one is no size.
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
    """Network interfaces from ``MAC[/IP[/BRIDGE]],...``.

    :raises OpPrereqError: one has more parts.
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
            help="in: show what the allocator is told; out: run it and show its answer",
        ),
        Option(
            "-m",
            "--mode",
            choices=const.IALLOCATOR_MODES,
            default="relocate",
            help="kind of request",
        ),
        Option(
            "--memory", kind="unit", default=128, metavar="SIZE", help="memory of the new instance"
        ),
        Option(
            "-p",
            "--vcpus",
            kind="int",
            default=1,
            metavar="N",
            help="processors of the new instance",
        ),
        Option(
            "--disks",
            kind="string",
            default="4096,4096",
            metavar="SIZE,...",
            help="disks of the new instance",
        ),
        Option(
            "-t",
            "--disk-template",
            choices=disk_const.TEMPLATES,
            metavar="TEMPL",
            help="kind of its disks",
        ),
        Option(
            "--nics",
            kind="string",
            default="00:11:22:33:44:55",
            metavar="MAC[/IP[/BRIDGE]],...",
            help="its network interfaces",
        ),
        Option(
            "-o",
            "--os-type",
            kind="string",
            dest="os",
            metavar="<os>",
            completion="os",
            help="its operating system",
        ),
        Option("--tags", kind="string", metavar="TAG,...", help="its tags"),
        Option(
            "--spindle-use",
            kind="int",
            default=1,
            metavar="N",
            help="for how many spindles it counts",
        ),
        Option(
            "--count",
            kind="int",
            default=2,
            metavar="N",
            help="how many instances, in mode multi-allocate",
        ),
        Option(
            "--evac-mode",
            choices=EVAC_MODES,
            default="all",
            help="what has to leave, in mode node-evacuate",
        ),
        Option(
            "--target-groups",
            kind="string",
            action="append",
            metavar="GROUP",
            help="where to, in mode change-group; may be given several times",
        ),
    ],
    "Show what an instance allocator is told, or answers",
    usage="[<options>] <instance>...",
)
