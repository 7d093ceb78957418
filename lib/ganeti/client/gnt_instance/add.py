"""The command ``gnt-instance add``."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.cli.instance_creation import OPTIONS, create
from ganeti.constants import instance as const


def add(values: Values, arguments: list[str]) -> int:
    """Create an instance (``add``)."""
    if values.image is not None or values.metadata:
        from ganeti.client.gnt_instance import from_image

        from_image.prepare(values)
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
        explain=values.explain or None,
        instance_communication=bool(values.instance_communication),
    )


_OPTIONS = (
    *OPTIONS,
    opt.os_type("OS definition to install, with its variant: debian+minimal"),
    opt.flag("--force-variant", help="accept a variant which the OS definition does not list"),
    opt.flag("--no-install", help="create the disks, but install nothing"),
    opt.negative("--no-start", dest="start", help="do not start the instance afterwards"),
    Option(
        "--image",
        kind="string",
        metavar="<image>",
        completion="image",
        help="install this image of 'gnt-os images'; gives the OS definition, the sizes of the"
        " disks, and a disk for cloud-init",
    ),
    Option(
        "--metadata",
        kind="keyval",
        action="append",
        metavar="KEY=FILE,...",
        help="what cloud-init gets: ssh-key=FILE with public keys, user-data=FILE; may be given"
        " several times",
    ),
    Option(
        "--hypervisor",
        kind="identkeyval",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        help="older spelling of --hypervisor-parameters",
    ),
    opt.flag(
        "--forthcoming", help="only reserve the name, the nodes, the capacity and the addresses"
    ),
    opt.flag(
        "--commit",
        help="create the instance that was reserved with --forthcoming; settings"
        " without an option are taken from the reservation",
    ),
    opt.flag(
        "--explain",
        help="show for each node why the allocator chose it or not; with --dry-run, nothing is"
        " created",
    ),
    opt.COMMUNICATION,
)


ADD = Command(
    "add",
    add,
    [Argument("host", 1, 1)],
    _OPTIONS,
    "Create an instance and install an operating system on it",
    usage="[<options>] {-t <template> -o <os> | --image <image>} <instance>",
)
