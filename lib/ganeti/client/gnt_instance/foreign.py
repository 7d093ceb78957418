"""The command ``gnt-instance import``: make an instance of a machine of another program."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.cli.instance_creation import OPTIONS, create
from ganeti.constants import instance as const

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.foreign.machine import Machine
    from ganeti.objects.description import Given

_KINDS = ("libvirt", "ovf", "proxmox")
#: Options of instances which an import decides itself.
_OWN = ("disks", "sd_size", "dry_run", "submit_only", "print_jobid")


def import_machine(values: Values, arguments: list[str]) -> int:
    """Make an instance of a machine of another program (``import``).

    The disks are converted into an export on the master, of which the cluster makes the instance.
    """
    import shutil

    from ganeti.foreign.workplace import work_directory
    from ganeti.platform import paths

    if values.source_kind is None:
        raise errors.OpPrereqError(
            f"it is not known what wrote {arguments[0]}. Write --from={'|'.join(_KINDS)}.",
            errors.ECODE_INVAL,
        )
    # On another node than the master, this is the place where the user learns it.
    client = jobs.connect()
    here = paths.current()
    with work_directory(here.import_dir) as unpack, work_directory(here.export_dir, 0o750) as work:
        converted = _convert(values, arguments, (unpack, work), client.query_cluster_info())
    if converted is None:
        terminal.out("Nothing was changed, because of --dry-run.")
        return failures.EXIT_SUCCESS
    name, target, os_type = converted
    # The export says what the disks are.
    values.set("disks", [])
    values.set("sd_size", None)
    try:
        create(
            values,
            name,
            mode=const.IMPORT,
            start=False,
            src_node=client.query_config_values(["master_node"])[0],
            src_path=name,
            os_type=os_type,
            # The job reads the export as any other one.
            accept_from_description=opt.accepted(values) or None,
        )
    except errors.GenericError:
        terminal.err(
            f"The converted disks are in {target}. Remove them with 'gnt-backup remove {name}'."
        )
        raise
    shutil.rmtree(target)
    terminal.out(f"Start the instance with 'gnt-instance startup {name}'.")
    return failures.EXIT_SUCCESS


def _convert(
    values: Values, arguments: list[str], places: tuple[str, str], info: Mapping[str, Any]
) -> tuple[str, str, str] | None:
    """Convert the machine into an export, unless this is a dry run.

    :param places: the directory where the appliance is unpacked, and the one for the export until
        it is complete, in that of the exports.
    :param info: what the cluster says about itself.
    :returns: name of the instance, path of its export, and OS definition; None after a dry run.
    """
    import dataclasses
    import os

    from ganeti.foreign import images, reading, taking
    from ganeti.foreign.export import CONFIG_FILE, Dump, describe
    from ganeti.objects import description as texts
    from ganeti.platform import machine
    from ganeti.utils import fs

    unpack, work = places
    found, description = reading.read(values.source_kind, arguments[0], unpack)
    name = (arguments[1] if len(arguments) > 1 else found.name).lower()
    _require_name(name, arguments[0])
    if values.no_nics:
        found = dataclasses.replace(found, nics=())
    directories = [values.disks_from] if values.disks_from else []
    default, enabled = info["default_hypervisor"], info["enabled_hypervisors"]
    given = _given(values, None if found.hypervisor in enabled else default)
    found, taken = taking.taken(found, arguments[0], given, texts.defaults_of_info(info), default)
    _show(found, name, texts.accepted_notes(taken))
    refused = taking.refused_images(found, description, directories, given.accepted)
    texts.require(arguments[0], [*taken.refused, *refused])
    for disk in found.disks:
        path = images.locate(disk.path, description, directories)
        if not disk.gzip:
            images.inspect(path, disk.format)
    if values.dry_run:
        return None
    target = os.path.join(os.path.dirname(work), name)
    if os.path.exists(target):
        raise errors.OpPrereqError(
            f"there is an export of {name} already. Remove it with 'gnt-backup remove"
            f" {name}', or give another name.",
            errors.ECODE_EXISTS,
        )
    export = os.path.join(work, "export")
    os.mkdir(export, 0o700)
    terminal.out("Converting the disks...")
    dumps = images.to_raw(found, description, export, directories=directories, work=unpack)
    node = machine.current().hostname()
    text = describe(found, name, [Dump(*one) for one in dumps], source=node)
    fs.write_file(os.path.join(export, CONFIG_FILE), text, mode=0o600)
    os.rename(export, target)
    return name, target, given.os or found.os or texts.DEFAULT_OS


def _given(values: Values, hypervisor: str | None) -> Given:
    """Return what the options say.

    :param hypervisor: which counts when none is given; None for the one of the description.
    """
    from ganeti.cli import instance_options
    from ganeti.objects.description import Given

    chosen, hvparams = instance_options.hypervisor(values)
    return Given(
        hypervisor=chosen or hypervisor,
        hvparams=hvparams.keys(),
        os=values.os,
        osparams={
            *values.osparams,
            *(values.osparams_private or ()),
            *(values.osparams_secret or ()),
        },
        nics=bool(values.nics),
        tags=bool(values.tags),
        accepted=opt.accepted(values),
    )


def _require_name(name: str, path: str) -> None:
    from ganeti.foreign.machine import is_name

    if not is_name(name):
        raise errors.OpPrereqError(
            f"{path} names the machine {name!r:.60}, which cannot be the name of an instance."
            " Write the name of the instance after the file.",
            errors.ECODE_INVAL,
        )


def _show(found: Machine, name: str, accepted: list[str]) -> None:
    terminal.out(
        f"Instance {name}: memory {found.memory_mib} MiB, virtual processors {found.vcpus},"
        f" disks {len(found.disks)}, network interfaces {len(found.nics)}"
    )
    for note in (*found.notes, *accepted):
        terminal.out(f"  - NOTICE: {note}")


IMPORT = Command(
    "import",
    import_machine,
    [Argument("file", 1, 1), Argument("unknown", 0, 1)],
    [
        Option(
            "--from",
            choices=_KINDS,
            dest="source_kind",
            metavar="KIND",
            help="what wrote the description: libvirt (virsh dumpxml), proxmox (a file of"
            " /etc/pve/qemu-server), or ovf (also OVA archives)",
        ),
        Option(
            "--disks-from",
            kind="string",
            metavar="DIRECTORY",
            completion="file",
            help="where the images of the disks are, if not in the places which the description"
            " names or beside it",
        ),
        opt.os_type("OS definition of the instance; image by default"),
        opt.ACCEPT_FROM_DESCRIPTION,
        opt.DRY_RUN,
        *(option for option in OPTIONS if option.dest not in _OWN),
    ],
    "Make an instance of a machine of libvirt, Proxmox or OVF",
    usage="--from=KIND [<options>] <file> [<instance>]",
)
