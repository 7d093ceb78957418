"""The command ``gnt-instance add``."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.instance_creation import OPTIONS, create
from ganeti.cli.options import Option
from ganeti.constants import instance as const


def add(values: Values, arguments: list[str]) -> int:
    """``add``."""
    return create(
        values,
        arguments[0],
        mode=const.CREATE,
        os_type=values.os,
        force_variant=values.force_variant,
        no_install=values.no_install,
        start=values.start,
        forthcoming=values.forthcoming,
        commit=values.commit,
        instance_communication=bool(values.instance_communication),
    )


_OPTIONS = (
    *OPTIONS,
    Option(
        "-o",
        "--os-type",
        kind="string",
        dest="os",
        metavar="<os>",
        completion="os",
        help="operating system to install, with its variant: debian+minimal",
    ),
    opt.flag("--force-variant", help="accept a variant the operating system does not list"),
    opt.flag("--no-install", help="make the disks, install nothing"),
    opt.flag(
        "--no-start", dest="start", default=True, value=False, help="do not start it afterwards"
    ),
    Option(
        "--hypervisor",
        kind="identkeyval",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        help="older spelling of --hypervisor-parameters",
    ),
    opt.flag("--forthcoming", help="only reserve its name, place and resources"),
    opt.flag(
        "--commit",
        help="make the instance that was reserved with --forthcoming; what is"
        " not said is as reserved",
    ),
    Option(
        "-c",
        "--communication",
        kind="bool",
        dest="instance_communication",
        metavar="yes|no",
        help="give it an interface to talk to its node",
    ),
)


ADD = Command(
    "add",
    add,
    [Argument("host", 1, 1)],
    _OPTIONS,
    "Make an instance and install an operating system on it",
    usage="[<options>] -t <template> -o <os> <instance>",
)
