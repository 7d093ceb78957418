"""Exports of instances on this node.

An export is a directory with a file for every disk and the description of the instance
(``config.ini``). While data arrive, the directory is called ``<instance>~new.<identity>``. When all
files are complete, which their receipts prove (:mod:`ganeti.utils.receipt`), it takes the place of
an older export in one step. So a listed export is always complete, and a failed or interrupted
export leaves the older one as it was; the next export of the instance removes what is left of it.

Several nodes may have one export directory, on a network file system. So an export is removed by
its identity (:func:`export_find`): a node which is asked to remove an older one never removes the
new one which has taken its place.

The description has size and checksum of each file. An export with a missing or short file is not
used (:func:`export_info`), and a file whose content has changed is not sent completely.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import hv
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import clock, fs, receipt
from ganeti.utils.digits import is_number
from ganeti.utils.receipt import Receipt
from ganeti.utils.text import new_uuid
from ganeti.wire import ini
from ganeti.wire.calls import backup as calls

CONFIG_FILE = "config.ini"
VERSION = 0
UNFINISHED = calls.UNFINISHED
# The older export, on a file system which cannot exchange two names.
_REPLACED = "~old"


def directory(name: str) -> str:
    """Return the directory of an export.

    :raises OpExecError: the text is not the name of an export.
    """
    if "/" in name or name.startswith(".") or not name:
        raise errors.OpExecError(f"{name!r:.80} is not the name of an export")
    return f"{paths.current().export_dir}/{name}"


def _is_leftover(name: str) -> bool:
    """Return True for a directory which an interrupted export has left, or works on."""
    return UNFINISHED in name or _REPLACED in name


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
        if not _is_leftover(name) and os.path.isfile(f"{directory(name)}/{CONFIG_FILE}")
    ]


@serves(calls.EXPORT_DETAILS)
def export_details() -> dict[str, dict[str, Any]]:
    """Return when each export was made, its size, and where it came from.

    An export whose description cannot be read is there, too, without these facts.
    """
    return {name: _details(directory(name)) for name in export_list()}


def _details(path: str) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("ctime", "size", "instance", "source"))
    with contextlib.suppress(errors.OpExecError, OSError):
        _text, sections = _description(path)
        made, instance = sections.get("export", {}), sections.get("instance", {})
        found["instance"] = instance.get("name") or None
        found["source"] = made.get("source") or None
        if is_number(made.get("timestamp", ""), 12):
            found["ctime"] = int(made["timestamp"])
        found["size"] = sum(os.stat(f"{path}/{name}").st_size for _, name in _dumps(instance))
    return found


@serves(calls.EXPORT_INFO)
def export_info(path: str) -> str:
    """Return the text of ``config.ini`` of an export whose files are complete.

    :raises OpExecError: the export does not exist, a section is missing, or the file of a disk is
        missing or has another size.
    """
    found = local_path(path)
    text, sections = _description(found)
    missing = [name for name in ("export", "instance") if name not in sections]
    if missing:
        raise errors.OpExecError(
            f"{CONFIG_FILE} of the export in {found} has no section {', '.join(missing)}"
        )
    section = sections["instance"]
    problems = [
        f"disk {index}: file {name} {problem}"
        for index, name in _dumps(section)
        if (problem := _wrong_file(f"{found}/{name}", section.get(f"disk{index}_bytes")))
    ]
    if problems:
        raise errors.OpExecError(f"the export in {found} is damaged: {'; '.join(problems)}")
    return text


def _description(directory_path: str) -> tuple[str, dict[str, dict[str, str]]]:
    """Read ``config.ini`` of an export: its text, and its sections.

    :raises OpExecError: it is missing, or cannot be read.
    """
    try:
        text = fs.read_file(f"{directory_path}/{CONFIG_FILE}")
    except (FileNotFoundError, NotADirectoryError):
        raise errors.OpExecError(f"there is no export in {directory_path}") from None
    try:
        return text, ini.parse(text).sections
    except errors.ParseError as err:
        raise errors.OpExecError(f"{CONFIG_FILE} of the export in {directory_path}: {err}") from err


def _dumps(section: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Numbers of disks, and the names of their files; the master judges other values."""
    count = section.get("disk_count", "")
    for index in range(int(count) if is_number(count, 4) else 0):
        name = section.get(f"disk{index}_dump")
        if name and "/" not in name:
            yield index, name


def _wrong_file(path: str, recorded_size: str | None) -> str | None:
    """Return what is wrong with the file of a disk; None when nothing is.

    :param recorded_size: in bytes; None in an export which another version has made.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return "is missing"
    if not stat.S_ISREG(found.st_mode):
        return "is not a file"
    if recorded_size is None:
        return None if found.st_size else "is empty"
    if str(found.st_size) != recorded_size:
        return f"has {found.st_size} bytes, but must have {recorded_size}"
    return None


def recorded_checksum(path: str) -> str | None:
    """Return the checksum of a file in an export, from the description; None when it has none."""
    directory_path, name = os.path.split(path)
    try:
        _text, sections = _description(directory_path)
    except errors.OpExecError:
        return None
    section = sections.get("instance", {})
    for index, dump in _dumps(section):
        if dump == name:
            return section.get(f"disk{index}_sha256")
    return None


@serves(calls.EXPORT_FIND)
def export_find(export: str) -> tuple[str | None, list[str]]:
    """Return the identity of an export, and the names of what interrupted ones of it have left.

    Two exports have different identities, wherever they are; one export which two nodes see has the
    same one on both. It is in the description. An export of another version, which has none there,
    is known by the digest of its description.

    :raises OpExecError: its description cannot be read.
    """
    directory(export)
    try:
        names = fs.list_visible(paths.current().export_dir)
    except FileNotFoundError:
        return None, []
    left = [name for name in names if name.startswith((export + UNFINISHED, export + _REPLACED))]
    return _identity(directory(export)), sorted(left)


def _identity(directory_path: str) -> str | None:
    """Return the identity of an export; None when there is none.

    :raises OpExecError: its description cannot be read.
    """
    try:
        found = fs.read_file(f"{directory_path}/{CONFIG_FILE}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise errors.OpExecError(
            f"{CONFIG_FILE} of the export in {directory_path} cannot be read: {err.strerror}"
        ) from err
    with contextlib.suppress(errors.ParseError):
        if identity := ini.parse(found).sections.get("export", {}).get("identity"):
            return identity
    return hashlib.sha256(found.encode("utf-8", "surrogateescape")).hexdigest()


@serves(calls.EXPORT_REMOVE)
def export_remove(export: str, identity: str = "") -> bool:
    """Remove an export with its data, or what is left of an interrupted one.

    Another node which has the same directory may do the same at the same time.

    :param identity: of the export to remove; empty for the one which has the name.
    :returns: whether it was there; False only when an identity is given.
    :raises OpExecError: there is no such export, or it cannot be removed.
    """
    name = export.partition(UNFINISHED)[0].removesuffix(_REPLACED)
    _settle(name)
    try:
        if UNFINISHED in export:
            _remove_tree(directory(export))
        elif export == name:
            return _remove_complete(export, identity)
        return True
    finally:
        if os.path.isdir(paths.current().export_dir):
            fs.flush_dir(paths.current().export_dir)


def _remove_complete(export: str, identity: str) -> bool:
    final = directory(export)
    if identity and _identity(final) != identity:
        return False
    _remove_tree(directory(export + UNFINISHED))
    # A part of an export would be in no list, so that the repeated command would not find it.
    aside = directory(calls.unfinished(export, new_uuid()))
    try:
        os.rename(final, aside)
    except FileNotFoundError:
        if identity:
            return False
        raise errors.OpExecError(f"there is no export {export} on this node") from None
    if identity:
        _require_identity(aside, final, identity)
    # A power failure must not keep the old name and lose a part of the data.
    fs.flush_dir(paths.current().export_dir)
    _remove_tree(aside)
    return True


def _require_identity(aside: str, final: str, identity: str) -> None:
    """Bring an export back which took the place of the one to be removed in the last moment.

    A network file system may have answered the question before from its memory.

    :raises OpExecError: it is another one, or it is not known.
    """
    try:
        found = _identity(aside)
        problem = "another export has taken its place"
    except errors.OpExecError as err:
        found, problem = None, str(err)
    if found == identity:
        return
    if os.path.lexists(final):
        problem += f"; what has its name now was not touched, and {aside} stays"
    else:
        os.rename(aside, final)
    raise errors.OpExecError(f"the export in {final} was not removed: {problem}")


def _remove_tree(path: str) -> None:
    """Remove a directory; what another node removes at the same time is not an error."""

    def failed(_function: object, _path: str, info: Any) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    shutil.rmtree(path, onerror=failed)


def _settle(name: str) -> None:
    """Bring an export back whose replacement was interrupted, or remove it if it was replaced."""
    final, replaced = directory(name), directory(name + _REPLACED)
    if not os.path.isdir(replaced):
        return
    if os.path.exists(final):
        _remove_tree(replaced)
    else:
        try:
            os.rename(replaced, final)
        except FileNotFoundError:
            return  # another node with the same directory has done it
    fs.flush_dir(paths.current().export_dir)


@serves(calls.FINALIZE_EXPORT)
def finalize_export(
    instance: FilledInstance, disks: Sequence[Disk | None], identity: str = ""
) -> None:
    """Complete an export whose data have arrived, and let it take the place of an older one.

    :param identity: random, of this export; empty from a master of the version before.
    :raises OpExecError: the data of a disk have not arrived completely; an older export stays.
    """
    new, final = directory(calls.unfinished(instance.name, identity)), directory(instance.name)
    # Without disks nothing was sent, so the directory does not exist.
    fs.make_dirs(paths.current().export_dir, 0o750)
    fs.make_dirs(new, 0o750)
    received = {
        disk.uuid: _received(instance, disk, f"{new}/{disk.uuid}")
        for disk in disks
        if disk is not None
    }
    for name in os.listdir(new):
        if name not in received:  # receipts, and files of an earlier attempt
            fs.remove_file(f"{new}/{name}")
    text = describe(instance, disks, int(clock.now()), received, identity)
    fs.write_file(f"{new}/{CONFIG_FILE}", text, mode=0o600)
    export_info(new)
    _replace(instance.name, new, final)
    logging.info("export of instance %s is complete in %s", instance.name, final)


def _received(instance: FilledInstance, disk: Disk, path: str) -> Receipt:
    what = f"disk {disk.uuid} of instance {instance.name}"
    try:
        return receipt.check(path)
    except FileNotFoundError:
        problem = "is missing"
    except ValueError as err:
        problem = str(err)
    raise errors.OpExecError(f"{what} has not arrived: {path} {problem}")


def _replace(name: str, new: str, final: str) -> None:
    """Let a new export take the place of an older one."""
    _settle(name)
    top = os.path.dirname(final)
    if not os.path.exists(final):
        os.rename(new, final)
    elif fs.exchange(new, final):
        fs.flush_dir(top)
        shutil.rmtree(new, ignore_errors=True)
    else:
        # When this is interrupted, _settle() brings the older export back.
        os.rename(final, final + _REPLACED)
        os.rename(new, final)
        fs.flush_dir(top)
        shutil.rmtree(final + _REPLACED, ignore_errors=True)
    fs.flush_dir(top)


def describe(
    instance: FilledInstance,
    disks: Sequence[Disk | None],
    timestamp: int,
    received: Mapping[str, Receipt],
    identity: str = "",
) -> str:
    """Make the text of ``config.ini``.

    Sections and keys are published: programs read them, and other versions import what this one
    has exported. The identity, and size and checksum of the files, are additions, which other
    versions ignore.

    :param received: for each disk its UUID, and what was received.
    :param identity: a random text which no other export has; empty for none.
    """
    sections: dict[str, Mapping[str, object]] = {
        "export": {
            "version": VERSION,
            "timestamp": timestamp,
            "source": instance.primary_node,
            "os": instance.os,
            "compression": "none",
            **({"identity": identity} if identity else {}),
        },
        "instance": _instance_section(instance, disks, received),
        "hypervisor": {
            key: value for key, value in instance.hvparams.items() if key not in hv.GLOBAL_PARAMS
        },
        "backend": dict(sorted(instance.beparams.items())),
        "os": dict(instance.osparams),
        "os_private": dict(instance.osparams_private),
    }
    return ini.describe(sections)


def _instance_section(
    instance: FilledInstance, disks: Sequence[Disk | None], received: Mapping[str, Receipt]
) -> dict[str, object]:
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
            **({f"nic{index}_ip6": nic.ip6} if nic.ip6 else {}),
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
            f"disk{count}_bytes": received[disk.uuid].size,
            f"disk{count}_sha256": received[disk.uuid].sha256,
        }
        count += 1
    section["disk_count"] = count
    return section
