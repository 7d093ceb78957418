"""Exports of instances on this node.

An export is a directory with a file for every disk and the description of the instance
(``config.ini``). While data arrive, the directory is called ``<instance>.new``; it replaces an
older export when it is complete, so that a listed export is always complete.
"""

from __future__ import annotations

import configparser
import io
import logging
import os
import shutil
from collections.abc import Sequence

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import hv
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import clock, fs
from ganeti.wire.calls import backup as calls

CONFIG_FILE = "config.ini"
VERSION = 0
UNFINISHED = ".new"
_REPLACED = ".old"


def directory(name: str) -> str:
    """Return the directory of an export.

    :raises OpExecError: the text is not the name of an export.
    """
    if "/" in name or name.startswith(".") or not name:
        raise errors.OpExecError(f"{name!r:.80} is not the name of an export")
    return f"{paths.current().export_dir}/{name}"


def local_path(virtual_path: str) -> str:
    """Convert a path below the export directory to a path of this node.

    :raises OpExecError: the path is not below the export directory.
    """
    everywhere = paths.Paths().export_dir
    path = virtual_path if os.path.isabs(virtual_path) else f"{everywhere}/{virtual_path}"
    # The path may also be given in the form which is valid on this node only.
    path = paths.current().to_virtual(path) if paths.current().root else path
    normal = os.path.normpath(path)
    if not paths.is_below(everywhere, normal):
        raise errors.OpExecError(f"path {virtual_path!r:.200} is not below {everywhere}")
    return paths.current().to_local(normal)


@serves(calls.EXPORT_LIST)
def export_list() -> list[str]:
    """List the names of the complete exports on this node."""
    try:
        names = fs.list_visible(paths.current().export_dir)
    except FileNotFoundError:
        return []
    return [
        name
        for name in names
        if not name.endswith((UNFINISHED, _REPLACED))
        and os.path.isfile(f"{directory(name)}/{CONFIG_FILE}")
    ]


@serves(calls.EXPORT_INFO)
def export_info(path: str) -> str:
    """Return the text of ``config.ini`` of an export.

    :raises OpExecError: the export does not exist, or a section is missing.
    """
    found = local_path(path)
    try:
        text = fs.read_file(f"{found}/{CONFIG_FILE}")
    except FileNotFoundError:
        raise errors.OpExecError(f"there is no export in {found}") from None
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as err:
        raise errors.OpExecError(f"{CONFIG_FILE} of the export in {found}: {err}") from err
    missing = [name for name in ("export", "instance") if not parser.has_section(name)]
    if missing:
        raise errors.OpExecError(
            f"{CONFIG_FILE} of the export in {found} has no section {', '.join(missing)}"
        )
    return text


@serves(calls.EXPORT_REMOVE)
def export_remove(export: str) -> None:
    """Remove an export with its data, and the remains of an interrupted one."""
    path = directory(export)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if export.endswith(UNFINISHED):
            return
        raise errors.OpExecError(f"there is no export {export} on this node") from None
    fs.flush_dir(paths.current().export_dir)


@serves(calls.FINALIZE_EXPORT)
def finalize_export(instance: FilledInstance, disks: Sequence[Disk | None]) -> None:
    """Complete an export whose data have arrived: write ``config.ini``, and rename the directory.

    :raises OpExecError: the data of a disk have not arrived.
    """
    new, final = directory(instance.name + UNFINISHED), directory(instance.name)
    # Without disks nothing was sent, so the directory does not exist.
    fs.make_dirs(paths.current().export_dir, 0o750)
    fs.make_dirs(new, 0o750)
    for disk in disks:
        if disk is not None and not os.path.exists(f"{new}/{disk.uuid}"):
            raise errors.OpExecError(
                f"disk {disk.uuid} of instance {instance.name} has not arrived in {new}"
            )
    wanted = {disk.uuid for disk in disks if disk is not None}
    for name in os.listdir(new):
        if name not in wanted:  # from an earlier attempt which was interrupted
            fs.remove_file(f"{new}/{name}")
    fs.write_file(f"{new}/{CONFIG_FILE}", describe(instance, disks, int(clock.now())), mode=0o600)
    replaced = final + _REPLACED
    shutil.rmtree(replaced, ignore_errors=True)
    if os.path.exists(final):
        os.rename(final, replaced)
    os.rename(new, final)
    fs.flush_dir(os.path.dirname(final))
    shutil.rmtree(replaced, ignore_errors=True)
    logging.info("export of instance %s is complete in %s", instance.name, final)


def describe(instance: FilledInstance, disks: Sequence[Disk | None], timestamp: int) -> str:
    """Make the text of ``config.ini``.

    Sections and keys are published: programs read them, and other versions import what this one
    has exported.
    """
    sections: dict[str, dict[str, object]] = {
        "export": {
            "version": VERSION,
            "timestamp": timestamp,
            "source": instance.primary_node,
            "os": instance.os,
            "compression": "none",
        },
        "instance": _instance_section(instance, disks),
        "hypervisor": {
            key: value for key, value in instance.hvparams.items() if key not in hv.GLOBAL_PARAMS
        },
        "backend": dict(sorted(instance.beparams.items())),
        "os": dict(instance.osparams),
        "os_private": dict(instance.osparams_private),
    }
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    for name, values in sections.items():
        parser[name] = {key: str(value) for key, value in values.items()}
    stream = io.StringIO()
    parser.write(stream)
    return stream.getvalue()


def _instance_section(instance: FilledInstance, disks: Sequence[Disk | None]) -> dict[str, object]:
    backend = instance.beparams
    section: dict[str, object] = {
        "name": instance.name,
        "maxmem": backend["maxmem"],
        "minmem": backend["minmem"],
        # For programs which do not know minimum and maximum memory.
        "memory": backend["maxmem"],
        "vcpus": backend["vcpus"],
        "disk_template": instance.disk_template,
        "hypervisor": instance.hypervisor,
        "tags": " ".join(instance.tags),
    }
    for index, nic in enumerate(instance.nics):
        network = None if nic.netinfo is None else nic.netinfo.name
        section |= {
            f"nic{index}_mac": nic.mac,
            f"nic{index}_ip": nic.ip,
            f"nic{index}_network": network,
            f"nic{index}_name": nic.name,
        }
        section |= {
            f"nic{index}_{key}": nic.nicparams.get(key, "") for key in ("link", "mode", "vlan")
        }
    section["nic_count"] = len(instance.nics)
    count = 0
    for disk in disks:
        if disk is None:
            continue
        section |= {
            f"disk{count}_ivname": disk.iv_name,
            f"disk{count}_dump": disk.uuid,
            f"disk{count}_size": disk.size,
            f"disk{count}_name": disk.name,
        }
        count += 1
    section["disk_count"] = count
    return section
