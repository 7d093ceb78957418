"""Handlers of the content of disks: wiping, images, snapshots.

Each of them holds the lock of the disk (:mod:`ganeti.storage.busy`) until its last program has
ended, also when the caller gave up long before.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from typing import Any

from ganeti import errors, storage
from ganeti.backend.registry import attempt, serves
from ganeti.constants.rpc import TIMEOUT_SLOW_S
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import busy, content, copy, image_format
from ganeti.storage.base import BlockDevice
from ganeti.utils import free_space, process
from ganeti.wire import calls

_MIB = 1 << 20
_ADDRESS = re.compile(r"^(?:https?|ftp)://\S+$")


def _existing(disk: Disk) -> BlockDevice:
    device = storage.device(disk)
    if not device.exists():
        raise errors.BlockDeviceError(f"device {device.unique_id} does not exist")
    return device


def _is_block(path: str) -> bool:
    return stat.S_ISBLK(os.stat(path).st_mode)


def _run(
    work: busy.Work, device: BlockDevice, argv: list[str], problem: str, stdin: str | None = None
) -> None:
    try:
        process.run(argv, timeout_s=TIMEOUT_SLOW_S, stdin=stdin, keep_fds=work.fds)
    except errors.CommandError as err:
        raise device.fail(f"{problem}: {err}") from err


@serves(calls.BLOCKDEV_WIPE)
def wipe(disk: Disk, offset_mib: int, size_mib: int) -> None:
    """Overwrite a part of a disk with zeros.

    :param size_mib: how much; the last MiB of the disk may be an incomplete one.
    :raises BlockDeviceError: the part ends behind the end of the disk, or other work on the disk
        has not ended.
    """
    device = _existing(disk)
    with busy.working_on(disk, doing="being wiped") as work:
        size = device.size_bytes()
        end_mib = -(-size // _MIB)
        if offset_mib + size_mib > end_mib:
            raise device.fail(
                f"cannot wipe up to {offset_mib + size_mib} MiB, it has {end_mib} MiB"
            )
        size_bytes = min(size_mib * _MIB, size - offset_mib * _MIB)
        argv = copy.wipe_argv(device.path, offset_mib, size_bytes, is_block=_is_block(device.path))
        _run(work, device, argv, "cannot be wiped")


@serves(calls.BLOCKDEV_IMAGE)
def image(disk: Disk, image: str, size_mib: int) -> None:
    """Write an image to a disk.

    :raises BlockDeviceError: the image does not exist, is not raw, is too large, or cannot be
        written; or
        other work on the disk has not ended.
    """
    device = _existing(disk)
    # Also while the image is loaded: what is written after that must not hit a running guest.
    with busy.working_on(disk, doing="being filled with an image") as work:
        if not _ADDRESS.fullmatch(image):
            _write_image(work, device, image, size_mib, image)
            return
        with tempfile.TemporaryDirectory(prefix="ganeti-image-") as directory:
            path = f"{directory}/image"
            most = free_space.at_most(directory, size_mib << 20)
            _run(
                work,
                device,
                copy.fetch_argv(image, path, most),
                f"image {copy.shown_address(image)} cannot be loaded: the disk has {size_mib} MiB,"
                f" and {most >> 20} MiB may be written in {directory}",
                copy.fetch_input(image),
            )
            _write_image(work, device, path, size_mib, copy.shown_address(image))


def _is_secret(path: str) -> bool:
    """Return whether a file is in a directory of the system or of the cluster.

    A user who may create instances names the image, and reads it in the guest.
    """
    own = paths.current()
    places = (own.data_dir, own.conf_dir, own.log_dir, "/etc", "/proc", "/sys", "/root/.ssh")
    real = os.path.realpath(path)
    return any(real.startswith(f"{os.path.realpath(place)}/") for place in places)


def _write_image(
    work: busy.Work, device: BlockDevice, path: str, size_mib: int, shown: str
) -> None:
    """Write a raw image.

    :param shown: the image as the user named it.
    """
    if not os.path.isabs(path) or not os.path.isfile(path):
        raise device.fail(f"there is no image {path} on this node")
    if _is_secret(path):
        raise device.fail(f"cannot be filled: {path} is a file of the node, and no image")
    try:
        problem = image_format.not_raw(path, shown)
    except OSError as err:
        raise device.fail(f"image {shown} cannot be read", err) from err
    if problem is not None:
        raise device.fail(f"cannot be filled: {problem}")
    image_mib = -(-os.path.getsize(path) // _MIB)
    if image_mib > size_mib:
        raise device.fail(f"image {path} has {image_mib} MiB, the disk has {size_mib} MiB")
    image_bytes, size = os.path.getsize(path), device.size_bytes()
    if image_bytes > size:
        # The last MiB of the device is incomplete, or its recorded size is wrong.
        raise device.fail(f"image {path} has {image_bytes} bytes, the device has {size}")
    _run(
        work,
        device,
        copy.image_argv(path, device.path, size_mib, is_block=_is_block(device.path)),
        f"image {path} cannot be written",
    )


@serves(calls.BLOCKDEV_SNAPSHOT)
def snapshot(disk: Disk, snapshot_name: str, snapshot_size_mib: int) -> Any:
    """Make a snapshot of a disk for an export.

    :param snapshot_name: empty for the name of the volume with the suffix ``.snap``.
    :param snapshot_size_mib: capacity of the snapshot; 0 for the size of the disk.
    :returns: ``logical_id`` of the snapshot.
    :raises BlockDeviceError: disks of this kind have no snapshots, or the snapshot fails.
    """
    device = _existing(disk)
    inner = disk.children[0] if disk.children else disk
    name = snapshot_name or f"{inner.stored_name}.snap"
    return list(device.snapshot(name, snapshot_size_mib or disk.size))


@serves(calls.BLOCKDEV_SNAPSHOT_KEEP)
def keep_snapshots(
    disks: Sequence[Disk], name: str, sizes_mib: Sequence[int], at_rest: bool
) -> list[None | Exception]:
    """Make a snapshot of each disk; return None for each, or its failure."""
    return [
        attempt(keep_snapshot, disk, name, size_mib, at_rest)
        for disk, size_mib in zip(disks, sizes_mib, strict=True)
    ]


def keep_snapshot(disk: Disk, name: str, size_mib: int, at_rest: bool) -> None:
    """Make a snapshot of a disk which stays until it is removed.

    :param size_mib: capacity of the snapshot, where the storage needs one.
    :param at_rest: no program writes to the disk meanwhile.
    :raises DeviceCreationError: the name is malformed or taken, disks of this kind have no
        snapshots, or the snapshot fails. Nothing is left, unless ``created_devices`` names it.
    """
    try:
        device = _existing(disk)
        problem = snapshots.wrong_name(name)
        if problem is not None:
            raise device.fail(problem)
        with contextlib.ExitStack() as stack:
            if at_rest:
                # A file is copied, and no guest may be started during that.
                stack.enter_context(busy.working_on(disk, doing=f"being copied to snapshot {name}"))
            device.keep_snapshot(name, size_mib, at_rest=at_rest)
    except errors.DeviceCreationError:
        raise
    except errors.BlockDeviceError as err:
        raise errors.DeviceCreationError(str(err)) from err


@serves(calls.BLOCKDEV_SNAPSHOT_LIST)
def list_snapshots(disks: Sequence[Disk]) -> list[list[list[Any]] | Exception]:
    """List the snapshots of each disk, also of a lost disk, or say why they are not known."""
    return [attempt(_snapshots, disk) for disk in disks]


def _snapshots(disk: Disk) -> list[list[Any]]:
    return [list(found) for found in storage.device(disk).kept_snapshots()]


@serves(calls.BLOCKDEV_SNAPSHOT_RESTORE)
def restore_snapshot(disk: Disk, name: str) -> None:
    """Copy the content of a snapshot to its disk; the rest of a larger disk is not changed.

    :raises BlockDeviceError: disk or snapshot is missing, the disk is smaller, or the copy fails;
        then a part of the disk may be written.
    """
    device = _existing(disk)
    try:
        source = storage.device(snapshots.as_disk(disk, name))
    except errors.ParameterError as err:
        raise device.fail(str(err)) from err
    if not source.exists():
        raise device.fail(f"has no snapshot {name}")
    source.assemble()
    size, capacity = source.size_bytes(), device.size_bytes()
    if disk.children:
        # LVM rounds the sizes of volumes up; the mirrored disk above does not use the rest.
        below = storage.device(disk.children[0]).size_bytes()
        size = capacity if size <= below else size
    if size > capacity:
        raise device.fail(f"has {capacity} bytes, less than the {size} of its snapshot {name}")
    with busy.working_on(disk, doing=f"being restored from snapshot {name}"):
        device.open(exclusive=True)
        try:
            # Only differences are written: each write fills the snapshot and goes to the peer.
            content.copy(source.path, device.path, size, only_changes=True)
        except OSError as err:
            raise device.fail(f"cannot be restored from its snapshot {name}", err) from err
