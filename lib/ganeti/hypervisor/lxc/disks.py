"""The disks of a container besides the first one, which has the root file system.

A disk with a file system is mounted on ``/mnt/disk1``, ``/mnt/disk2``, ... of the container, by
its position. A block device without one is the device ``/dev/disk1``, ..., which the container may
open.

Source: lxc.container.conf(5), *lxc.mount.entry*; fstab(5).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from ganeti import errors
from ganeti.hypervisor import rootfs


@dataclass(frozen=True, slots=True)
class DataDisk:
    """How a container gets a disk.

    :ivar mount_argv: mounts it in the container's view of the node; empty for a device.
    :ivar entry: the line which brings it into the container.
    :ivar device: the device which the container may open, such as ``b 147:3 rwm``, or empty.
    """

    mount_argv: Sequence[str]
    entry: str
    device: str = ""


def data_disk(path: str, place: str, index: int) -> DataDisk:
    """Return how the container gets a disk; looks what is on it.

    :param place: the empty directory on which it is mounted, before the container gets it.
    :param index: position of the disk, at least 1.
    :raises HypervisorError: it cannot be used.
    """
    try:
        argv = rootfs.mount_argv(path, place)
    except rootfs.NoFileSystem as err:
        found = os.stat(path)
        if not stat.S_ISBLK(found.st_mode):
            raise errors.HypervisorError(
                f"disk {index} is the file {path}, which has no file system. Make one on its node,"
                f" such as with 'mkfs.ext4 {path}'."
            ) from err
        number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
        entry = _entry(os.path.realpath(path), f"dev/disk{index}", "file")
        return DataDisk((), entry, f"b {number} rwm")
    return DataDisk(argv, _entry(place, f"mnt/disk{index}", "dir"))


def _entry(source: str, inside: str, kind: str) -> str:
    escaped = source.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    return f"{escaped} {inside} none bind,create={kind} 0 0"
