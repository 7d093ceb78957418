"""Handlers of the life of block devices: create, assemble, link, grow, rename, remove.

A disk in use has a link ``RUN_DIR/instance-disks/<instance>:<index>``, which the hypervisor opens,
and an entry in ``RUN_DIR/bdev-cache``, in which an administrator reads the owner of a device. Both
are made when the disk is assembled and removed when it is shut down; no decision depends on them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors, storage
from ganeti.backend.registry import attempt, serves
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import paths
from ganeti.storage import busy
from ganeti.storage import file as file_storage
from ganeti.storage.drbd import leftover
from ganeti.utils import fs
from ganeti.wire import calls

_log = logging.getLogger(__name__)


_SEPARATOR = ":"


# Links


def link_path(instance_name: str, index: int) -> str:
    """Return the path of the link by which the hypervisor finds a disk of an instance."""
    if "/" in instance_name or instance_name.startswith("."):
        raise errors.BlockDeviceError(f"'{instance_name}' is not the name of an instance")
    return paths.current().instance_disk_link(instance_name, index)


def make_link(instance_name: str, index: int, device_path: str) -> str:
    """Make the link of a disk lead to a device; return the path of the link.

    :raises BlockDeviceError: the link cannot be made.
    """
    link = link_path(instance_name, index)
    try:
        fs.make_dirs(os.path.dirname(link), 0o755)
        if os.path.islink(link) and os.readlink(link) == device_path:
            return link
        # Made under a temporary name and renamed, so that the link is never missing.
        temporary = f"{link}.{os.getpid()}.new"
        fs.remove_file(temporary)
        os.symlink(device_path, temporary)
        os.rename(temporary, link)
    except OSError as err:
        raise errors.BlockDeviceError(
            f"cannot make the link {link} for disk {index}: {err.strerror}"
        ) from err
    return link


def remove_link(instance_name: str, index: int) -> None:
    """Remove the link of a disk; a missing link is not an error."""
    fs.remove_file(link_path(instance_name, index))


def remove_links(instance_name: str) -> None:
    """Remove all links of an instance."""
    prefix = f"{instance_name}{_SEPARATOR}"
    for link in _links():
        name = os.path.basename(link)
        if name.startswith(prefix) and name[len(prefix) :].isdigit():
            fs.remove_file(link)


def _links() -> list[str]:
    """Return the paths of the links of all instances."""
    directory = paths.current().instance_disks_dir
    try:
        return [f"{directory}/{name}" for name in fs.list_visible(directory)]
    except FileNotFoundError:
        return []


# Owners of devices


def _cache_file(device_path: str) -> str:
    name = paths.current().to_virtual(device_path).replace("/", "_")
    return f"{paths.current().bdev_cache_dir}/bdev_{name}"


def _note_owner(device_path: str, owner: str, on_primary: bool, iv_name: str) -> None:
    side = "primary" if on_primary else "secondary"
    try:
        fs.make_dirs(paths.current().bdev_cache_dir, 0o755)
        fs.write_file(
            _cache_file(device_path), f"{owner} {side} {iv_name or 'not_visible'}\n", sync=False
        )
    except OSError as err:
        # Information for the administrator only.
        _log.warning("cannot note the owner of %s: %s", device_path, err)


def _forget_owner(device_path: str) -> None:
    if not device_path:
        return
    try:
        fs.remove_file(_cache_file(device_path))
    except OSError as err:
        _log.warning("cannot remove the note about %s: %s", device_path, err)


# Trees of devices


def _attach(disk: Disk, on_primary: bool) -> storage.base.BlockDevice:
    """Assemble a device, which nobody can use yet, with those below it, as far as they exist."""
    device = storage.device(disk)
    if on_primary or device.ASSEMBLED_ON_SECONDARY:
        device.assemble()
    return device


def _activate(
    device: storage.base.BlockDevice, instance: FilledInstance, on_primary: bool, index: int
) -> list[Any]:
    """Make an assembled device writable on the primary node, and read-only on others.

    :returns: the answer of ``blockdev_assemble``.
    """
    if not on_primary:
        if device.ASSEMBLED_ON_SECONDARY:
            device.close()
            _note_owner(device.path, instance.name, on_primary, device.disk.iv_name)
        return [True, True, None]
    device.open(exclusive=True)
    _note_owner(device.path, instance.name, on_primary, device.disk.iv_name)
    uri = device.uri(instance.hypervisor)
    link = make_link(instance.name, index, device.path) if device.path else uri
    return [device.path or uri, link, uri]


def _devices(disks: Sequence[Disk]) -> Iterator[storage.base.BlockDevice]:
    """Return the devices of disks.

    :raises BlockDeviceError: a device does not exist, or it is not known; the text names it.
    """
    for disk in disks:
        device = storage.device(disk)
        if not device.exists():
            raise errors.BlockDeviceError(f"device {device.unique_id} does not exist")
        yield device


# Calls


@serves(calls.BLOCKDEV_CREATE)
def create(
    disk: Disk, size_mib: int, owner: str, on_primary: bool, info: str, exclusive_storage: bool
) -> str | None:
    """Create a device, whose lower devices exist already; return its name on this node.

    :raises DeviceCreationError: it was not created. ``created_devices`` names what this call made
        and could not remove; when it is empty, nothing is left, and a device of that name is not of
        this call.
    """
    try:
        for child in disk.children:
            storage.device(child).assemble()
        device = storage.device(disk)
        device.create(size_mib, exclusive=exclusive_storage, owner=owner)
    except errors.DeviceCreationError:
        raise
    except errors.BlockDeviceError as err:
        raise errors.DeviceCreationError(str(err)) from err
    try:
        device.set_info(info)
        if on_primary or device.ASSEMBLED_ON_SECONDARY:
            device.assemble()
            if on_primary:
                # The content of a new device is valid.
                device.open(exclusive=True, force=True)
            _note_owner(device.path, owner, on_primary, disk.iv_name)
    except errors.GenericError as err:
        try:
            device.remove()
        except errors.GenericError as left:
            raise errors.DeviceCreationError(
                f"{err}; the new device cannot be removed again: {left}", [device.unique_id]
            ) from err
        raise errors.DeviceCreationError(str(err)) from err
    return device.unique_id


@serves(calls.BLOCKDEV_CREATE_MULTI)
def create_multi(
    disks: Sequence[Disk], owner: str, on_primary: bool, info: str, exclusive_storage: bool
) -> list[str | None | Exception]:
    """Create devices, whose lower devices exist already; return the name of each, or its failure.

    The failure of a device is that of ``blockdev_create``.
    """
    return [
        attempt(create, disk, disk.size, owner, on_primary, info, exclusive_storage)
        for disk in disks
    ]


@serves(calls.BLOCKDEV_REMOVE)
def remove(disk: Disk) -> None:
    """Remove a device and the devices below it.

    :raises BlockDeviceError: it cannot be removed, or a program works on it.
    """
    # Before a device above it is taken down.
    busy.require_idle(disk)
    device = storage.device(disk)
    path = "" if device.PATH_NEEDS_ASSEMBLY else _known_path(device)
    if disk.is_volume:
        # A device above it may be left from an interrupted operation.
        device.on_busy = lambda: leftover.take_down(path)
    device.remove()
    _forget_owner(path)
    for child in disk.children:
        remove(child)


@serves(calls.BLOCKDEV_REMOVE_MULTI)
def remove_multi(disks: Sequence[Disk]) -> list[None | Exception]:
    """Remove devices and the devices below them; return None for each, or its failure."""
    return [attempt(remove, disk) for disk in disks]


@serves(calls.BLOCKDEV_ASSEMBLE)
def assemble(disk: Disk, instance: FilledInstance, on_primary: bool, index: int) -> list[Any]:
    """Assemble a disk, on the primary node with its link; return [device, link, uri]."""
    return _activate(_attach(disk, on_primary), instance, on_primary, index)


@serves(calls.BLOCKDEV_ASSEMBLE_MULTI)
def assemble_multi(
    disks: Sequence[Disk], instance: FilledInstance, on_primary: bool, indexes: Sequence[int]
) -> list[list[Any] | Exception]:
    """Assemble disks; return the answer of ``blockdev_assemble`` for each, or its failure.

    All devices are assembled before the first one is opened, so that mirrored disks connect to
    their peers at the same time.
    """
    attached = [attempt(_attach, disk, on_primary) for disk in disks]
    return [
        device
        if isinstance(device, Exception)
        else attempt(_activate, device, instance, on_primary, index)
        for device, index in zip(attached, indexes, strict=True)
    ]


@serves(calls.BLOCKDEV_SHUTDOWN)
def shutdown(disk: Disk) -> None:
    """Shut a disk down, from the highest device to the lowest; one which is not there is no error.

    :raises BlockDeviceError: it stays active, or it is not known whether it is.
    """
    device = storage.device(disk)
    path = _known_path(device)
    device.shutdown()
    _forget_owner(path)
    _remove_links_to(path)
    for child in disk.children:
        shutdown(child)


@serves(calls.BLOCKDEV_SHUTDOWN_MULTI)
def shutdown_multi(disks: Sequence[Disk]) -> list[None | Exception]:
    """Shut disks down; return None for each, or its failure."""
    return [attempt(shutdown, disk) for disk in disks]


def _known_path(device: storage.base.BlockDevice) -> str:
    """Return the path of a device; empty when it has none now, or when it cannot be found out.

    It is read before the device goes: some kinds of devices have a path only while they are in use.
    """
    try:
        return device.path
    except errors.BlockDeviceError:
        return ""


def _remove_links_to(device_path: str) -> None:
    if not device_path:
        return
    for link in _links():
        if os.path.islink(link) and os.readlink(link) == device_path:
            fs.remove_file(link)


@serves(calls.BLOCKDEV_FIND)
def find(disk: Disk) -> BlockDevStatus | None:
    """Return the state of a disk, or None when it is surely absent.

    :raises BlockDeviceError: it is not known whether it exists, or in which state it is.
    """
    device = storage.device(disk)
    return device.sync_status() if device.exists() else None


@serves(calls.BLOCKDEV_FIND_MULTI)
def find_multi(disks: Sequence[Disk]) -> list[BlockDevStatus | None | Exception]:
    """Return the state of each disk, None when it is surely absent, or why that is not known."""
    return [attempt(find, disk) for disk in disks]


@serves(calls.BLOCKDEV_REACHABLE_MULTI)
def reachable_multi(disks: Sequence[Disk]) -> list[bool | None | Exception]:
    """Return for each disk whether this node can use it, None when it cannot tell, or why not."""
    return [attempt(_reachable, disk) for disk in disks]


def _reachable(disk: Disk) -> bool | None:
    return storage.device(disk).reachable()


@serves(calls.BLOCKDEV_OPEN)
def open_disks(instance_name: str, disks: Sequence[Disk], exclusive: bool) -> None:
    """Make disks writable and link them."""
    for index, device in enumerate(_devices(disks)):
        device.open(exclusive=exclusive)
        make_link(instance_name, index, device.path)


@serves(calls.BLOCKDEV_CLOSE)
def close_disks(instance_name: str, disks: Sequence[Disk]) -> None:
    """Remove the links of disks, and make the disks read-only."""
    remove_links(instance_name)
    problems = []
    for device in _devices(disks):
        try:
            device.close()
        except errors.BlockDeviceError as err:
            # The other disks are closed nevertheless, or the next node could not open them.
            problems.append(str(err))
    if problems:
        raise errors.BlockDeviceError("; ".join(problems))


@serves(calls.BLOCKDEV_GETDIMENSIONS)
def dimensions(disks: Sequence[Disk]) -> list[list[int | None] | None | Exception]:
    """Return [bytes, spindles] of each disk, None when it is surely absent, or why that is not
    known.
    """
    return [attempt(_dimensions, disk) for disk in disks]


def _dimensions(disk: Disk) -> list[int | None] | None:
    device = storage.device(disk)
    return list(device.dimensions()) if device.exists() else None


@serves(calls.BLOCKDEV_GETMIRRORSTATUS)
def mirror_status(disks: Sequence[Disk]) -> list[BlockDevStatus]:
    """Return the states of disks, all of which must exist."""
    return [_combined_status(device) for device in _devices(disks)]


@serves(calls.BLOCKDEV_GETMIRRORSTATUS_MULTI)
def mirror_status_multi(disks: Sequence[Disk]) -> list[tuple[bool, BlockDevStatus | str]]:
    """Return the states of disks of several instances; a failing disk does not hide the others."""
    found: list[tuple[bool, BlockDevStatus | str]] = []
    for disk in disks:
        try:
            (device,) = _devices([disk])
            found.append((True, _combined_status(device)))
        except (errors.GenericError, OSError) as err:
            found.append((False, str(err)))
    return found


def _combined_status(device: storage.base.BlockDevice) -> BlockDevStatus:
    """Return the state of a device, which is not better than that of the devices below it."""
    status = device.sync_status()
    for child in device.disk.children:
        below = storage.device(child)
        try:
            there, worst = below.exists(), disk_constants.LDS_FAULTY
        except errors.BlockDeviceError as err:
            # What the device above knows of itself and of its peer must not be hidden.
            _log.warning("the state of a device below %s is not known: %s", device.unique_id, err)
            there, worst = False, disk_constants.LDS_UNKNOWN
        if not there:
            worst = max(status.ldisk_status or 0, worst)
            status = replace(status, is_degraded=True, ldisk_status=worst)
            continue
        found = below.sync_status()
        status = replace(
            status,
            is_degraded=bool(status.is_degraded or found.is_degraded),
            ldisk_status=max(status.ldisk_status or 0, found.ldisk_status or 0) or None,
        )
    return status


@serves(calls.BLOCKDEV_GROW)
def grow(
    disk: Disk, amount_mib: int, dry_run: bool, backing_store: bool, exclusive_storage: bool
) -> None:
    """Grow a disk."""
    for device in _devices([disk]):
        device.grow(
            amount_mib, dry_run=dry_run, backing_store=backing_store, exclusive=exclusive_storage
        )


@serves(calls.BLOCKDEV_RENAME)
def rename(renames: Sequence[tuple[Disk, tuple[Any, ...]]]) -> None:
    """Rename devices; continue after a failure, and report all failures."""
    problems = []
    for disk, new_id in renames:
        try:
            device = storage.device(disk)
            old_path = device.path
            device.rename(tuple(new_id))
            if device.path != old_path:
                _forget_owner(old_path)
        except errors.GenericError as err:
            problems.append(str(err))
    if problems:
        raise errors.BlockDeviceError("; ".join(problems))


@serves(calls.BLOCKDEV_SETINFO)
def set_info(disk: Disk, info: str) -> None:
    """Attach a text to a disk, where its storage supports that."""
    for device in _devices([disk]):
        device.set_info(info)


@serves(calls.BLOCKDEV_SETINFO_MULTI)
def set_info_multi(disks: Sequence[Disk], info: str) -> list[None | Exception]:
    """Attach a text to disks; return None for each, or its failure."""
    return [attempt(set_info, disk, info) for disk in disks]


@serves(calls.FILE_STORAGE_DIR_CREATE)
def file_storage_dir_create(path: str) -> None:
    """Create the directory for the disks of an instance."""
    file_storage.create_dir(path)


@serves(calls.FILE_STORAGE_DIR_REMOVE)
def file_storage_dir_remove(path: str) -> None:
    """Remove the directory for the disks of an instance when it is empty."""
    file_storage.remove_dir(path)


@serves(calls.FILE_STORAGE_DIR_RENAME)
def file_storage_dir_rename(old_path: str, new_path: str) -> None:
    """Rename the directory for the disks of an instance which has a new name."""
    file_storage.rename_dir(old_path, new_path)
