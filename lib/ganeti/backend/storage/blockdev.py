"""Calls about block devices: create, assemble, link, remove.

A disk in use has a link ``RUN_DIR/instance-disks/<instance>:<index>`` that the hypervisor opens,
and an entry in ``RUN_DIR/bdev-cache`` that tells an administrator what a device belongs to. Both
are made when the disk is assembled and removed when it is shut down; neither is ever read back as
truth.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors, storage
from ganeti.backend.registry import serves
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import paths
from ganeti.storage import file as file_storage
from ganeti.storage.drbd import above
from ganeti.utils import fs
from ganeti.wire import calls

_SEPARATOR = ":"


# Links


def link_path(instance_name: str, index: int) -> str:
    """Where the hypervisor finds a disk of an instance."""
    if "/" in instance_name or instance_name.startswith("."):
        raise errors.BlockDeviceError(f"'{instance_name}' is no instance name")
    return paths.current().instance_disk_link(instance_name, index)


def make_link(instance_name: str, index: int, device_path: str) -> str:
    """Let the disk's link lead to a device; returns the link.

    :raises BlockDeviceError: it cannot be made.
    """
    link = link_path(instance_name, index)
    try:
        fs.make_dirs(os.path.dirname(link), 0o755)
        if os.path.islink(link) and os.readlink(link) == device_path:
            return link
        # In two steps under a name of its own, so that the link is never missing.
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
    """Remove a disk's link; one that is missing is no error."""
    fs.remove_file(link_path(instance_name, index))


def remove_links(instance_name: str) -> None:
    """Remove all links of an instance."""
    prefix = f"{instance_name}{_SEPARATOR}"
    directory = paths.current().instance_disks_dir
    try:
        names = fs.list_visible(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(prefix) and name[len(prefix) :].isdigit():
            fs.remove_file(f"{directory}/{name}")


# What a device belongs to


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
        # Information for people only.
        logging.warning("cannot note the owner of %s: %s", device_path, err)


def _forget_owner(device_path: str) -> None:
    try:
        fs.remove_file(_cache_file(device_path))
    except OSError as err:
        logging.warning("cannot remove the note about %s: %s", device_path, err)


# Trees of devices


def _assemble(disk: Disk, owner: str, on_primary: bool) -> storage.base.BlockDevice:
    # What lies below a mirrored disk that one assembles itself, as far as it is there.
    device = storage.device(disk)
    if on_primary or device.ASSEMBLED_ON_SECONDARY:
        device.assemble()
        if on_primary:
            device.open(exclusive=True)
        else:
            device.close()
        _note_owner(device.path, owner, on_primary, disk.iv_name)
    return device


def _devices(disks: Sequence[Disk]) -> Iterator[storage.base.BlockDevice]:
    """The devices of disks, each of which must exist.

    :raises BlockDeviceError: names the one that is missing.
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
    """Make a device, below-lying ones are there already; returns its name on this node."""
    for child in disk.children:
        storage.device(child).assemble()
    device = storage.device(disk)
    device.create(size_mib, exclusive=exclusive_storage, owner=owner)
    try:
        device.set_info(info)
        if on_primary or device.ASSEMBLED_ON_SECONDARY:
            device.assemble()
            if on_primary:
                # What was made just now is valid, whatever it is.
                device.open(exclusive=True, force=True)
            _note_owner(device.path, owner, on_primary, disk.iv_name)
    except errors.GenericError:
        # The caller was not told of the device, so nobody else would remove it.
        device.remove()
        raise
    return device.unique_id


@serves(calls.BLOCKDEV_REMOVE)
def remove(disk: Disk) -> None:
    """Destroy a device and what is below it."""
    device = storage.device(disk)
    try:
        device.remove()
    except errors.BlockDeviceError:
        # What is above it may be left over from an operation that was broken off.
        if disk.dev_type != disk_constants.PLAIN or not above.take_down(device.path):
            raise
        device.remove()
    _forget_owner(device.path)
    for child in disk.children:
        remove(child)


@serves(calls.BLOCKDEV_ASSEMBLE)
def assemble(disk: Disk, instance: FilledInstance, on_primary: bool, index: int) -> list[Any]:
    """Make a disk usable; on the primary also link it. Returns [device, link, uri]."""
    device = _assemble(disk, instance.name, on_primary)
    if not on_primary:
        return [True, True, None]
    uri = device.uri(instance.hypervisor)
    link = make_link(instance.name, index, device.path) if device.path else uri
    return [device.path or uri, link, uri]


@serves(calls.BLOCKDEV_SHUTDOWN)
def shutdown(disk: Disk) -> None:
    """Give a disk back to the system, from the top down."""
    device = storage.device(disk)
    if device.exists():
        device.shutdown()
    _forget_owner(device.path)
    _remove_links_to(device.path)
    for child in disk.children:
        shutdown(child)


def _remove_links_to(device_path: str) -> None:
    directory = paths.current().instance_disks_dir
    try:
        names = fs.list_visible(directory)
    except FileNotFoundError:
        return
    for name in names:
        link = f"{directory}/{name}"
        if os.path.islink(link) and os.readlink(link) == device_path:
            fs.remove_file(link)


@serves(calls.BLOCKDEV_FIND)
def find(disk: Disk) -> BlockDevStatus | None:
    """State of a disk, or None when it does not exist."""
    device = storage.device(disk)
    return device.sync_status() if device.exists() else None


@serves(calls.BLOCKDEV_OPEN)
def open_disks(instance_name: str, disks: Sequence[Disk], exclusive: bool) -> None:
    """Make disks writable and link them."""
    for index, device in enumerate(_devices(disks)):
        device.open(exclusive=exclusive)
        make_link(instance_name, index, device.path)


@serves(calls.BLOCKDEV_CLOSE)
def close_disks(instance_name: str, disks: Sequence[Disk]) -> None:
    """Make disks read-only, and remove their links first."""
    remove_links(instance_name)
    problems = []
    for device in _devices(disks):
        try:
            device.close()
        except errors.BlockDeviceError as err:
            # The others must be closed all the same, or the next node cannot have them.
            problems.append(str(err))
    if problems:
        raise errors.BlockDeviceError("; ".join(problems))


@serves(calls.BLOCKDEV_GETDIMENSIONS)
def dimensions(disks: Sequence[Disk]) -> list[list[int | None] | None]:
    """Size in bytes and spindles of each disk; None for one that does not exist."""
    result: list[list[int | None] | None] = []
    for disk in disks:
        device = storage.device(disk)
        result.append(list(device.dimensions()) if device.exists() else None)
    return result


@serves(calls.BLOCKDEV_GETMIRRORSTATUS)
def mirror_status(disks: Sequence[Disk]) -> list[BlockDevStatus]:
    """State of disks that must exist."""
    return [_combined_status(device) for device in _devices(disks)]


@serves(calls.BLOCKDEV_GETMIRRORSTATUS_MULTI)
def mirror_status_multi(disks: Sequence[Disk]) -> list[tuple[bool, BlockDevStatus | str]]:
    """State of disks of several instances; one that cannot be told does not hide the others."""
    found: list[tuple[bool, BlockDevStatus | str]] = []
    for disk in disks:
        try:
            (device,) = _devices([disk])
            found.append((True, _combined_status(device)))
        except errors.GenericError as err:
            found.append((False, str(err)))
    return found


def _combined_status(device: storage.base.BlockDevice) -> BlockDevStatus:
    """State of a device, no better than that of what is below it."""
    status = device.sync_status()
    for child in device.disk.children:
        below = storage.device(child)
        if not below.exists():
            status = replace(status, is_degraded=True, ldisk_status=disk_constants.LDS_FAULTY)
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
    """Add to the size of a disk."""
    for device in _devices([disk]):
        device.grow(
            amount_mib, dry_run=dry_run, backing_store=backing_store, exclusive=exclusive_storage
        )


@serves(calls.BLOCKDEV_RENAME)
def rename(renames: Sequence[tuple[Disk, tuple[Any, ...]]]) -> None:
    """Give devices new names; goes on after a failure and reports all of them."""
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
    """Attach a text to a disk, where its storage keeps one."""
    for device in _devices([disk]):
        device.set_info(info)


@serves(calls.FILE_STORAGE_DIR_CREATE)
def file_storage_dir_create(path: str) -> None:
    """Make a directory for an instance's disks."""
    file_storage.create_dir(path)


@serves(calls.FILE_STORAGE_DIR_REMOVE)
def file_storage_dir_remove(path: str) -> None:
    """Remove it, when it is empty."""
    file_storage.remove_dir(path)


@serves(calls.FILE_STORAGE_DIR_RENAME)
def file_storage_dir_rename(old_path: str, new_path: str) -> None:
    """Rename it, for an instance with a new name."""
    file_storage.rename_dir(old_path, new_path)
