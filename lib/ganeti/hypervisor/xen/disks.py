"""The block devices which a guest under Xen gets as its disks.

A disk which is a device of this node is passed as it is, whether below it are a volume, a mirror or
a device of another machine. Xen's kernel side takes block devices only, so a file gets a loop
device. It reads and writes the file directly, past the memory of this node, so that another node
with the same file sees what the guest wrote.

Source: xl-disk-configuration(5); losetup(8).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor.xen.record import RecordedDisk
from ganeti.objects import disk_templates
from ganeti.objects.disk import FileId
from ganeti.utils import fs, process

_TIMEOUT_S = 60.0
# The kernel's side of the disks of all guests: one directory for each disk.
_BACKENDS = "/sys/bus/xen-backend/devices"
_BACKEND = re.compile(r"vbd-([0-9]+)-[0-9]+")
_SECTOR_BYTES = 512


def transferred_bytes() -> dict[int, tuple[int, int]]:
    """Return what the guests have read from and written to their disks, in bytes, by domain.

    A domain whose disks the kernel does not serve is not in the result.

    Source: Linux, ``Documentation/ABI/stable/sysfs-bus-xen-backend``.
    """
    try:
        names = fs.list_visible(_BACKENDS)
    except OSError:
        return {}
    found: dict[int, tuple[int, int]] = {}
    for name in names:
        match = _BACKEND.fullmatch(name)
        if match is None:
            continue
        # A disk may be unplugged in between.
        with contextlib.suppress(OSError, ValueError):
            counters = f"{_BACKENDS}/{name}/statistics"
            read = int(fs.read_file(f"{counters}/rd_sect")) * _SECTOR_BYTES
            written = int(fs.read_file(f"{counters}/wr_sect")) * _SECTOR_BYTES
            before = found.get(int(match[1]), (0, 0))
            found[int(match[1])] = (before[0] + read, before[1] + written)
    return found


def attach(disks: Sequence[RecordedDisk]) -> dict[str, str]:
    """Find or make the block devices of disks.

    :returns: name of each disk in the guest -> path of its device.
    :raises HypervisorError: a disk cannot be used; the loop devices made here are removed.
    """
    found: dict[str, str] = {}
    made: list[RecordedDisk] = []
    try:
        for disk in disks:
            found[disk.vdev] = device_of(disk, made)
    except BaseException:
        detach(made)
        raise
    return found


def device_of(disk: RecordedDisk, made: list[RecordedDisk]) -> str:
    """Return the block device of one disk.

    :param made: gets the disk when a loop device is made for it.
    :raises HypervisorError: it cannot be used.
    """
    try:
        mode = os.stat(disk.path).st_mode
    except OSError as err:
        raise errors.HypervisorError(f"disk {disk.path} cannot be used: {err.strerror}") from err
    if stat.S_ISBLK(mode):
        return disk.path
    _check_file_driver(disk.disk)
    present = _loops(os.path.realpath(disk.path))
    if present:
        return present[0]
    words = ["losetup", "--find", "--show", "--direct-io=on", os.path.realpath(disk.path)]
    try:
        device = process.run(words, timeout_s=_TIMEOUT_S).stdout.strip()
    except errors.CommandError as err:
        raise errors.HypervisorError(f"no loop device for disk {disk.path}: {err}") from err
    made.append(disk)
    return device


def _check_file_driver(disk: Mapping[str, Any]) -> None:
    logical_id = disk.get("logical_id") or ()
    driver = (
        FileId(*logical_id).driver
        if disk.get("dev_type") in disk_templates.FILE_BASED and logical_id
        else ""
    )
    if driver.startswith("blktap"):
        raise errors.HypervisorError(
            f"disk {disk.get('uuid', '')} has the file driver {driver}, which Xen has no more"
            " since release 4.13. Use the file driver loop."
        )


def detach(disks: Iterable[RecordedDisk]) -> None:
    """Remove the loop devices of disks; errors are logged, as the guest has ended."""
    for disk in disks:
        path = os.path.realpath(disk.path)
        if not os.path.isfile(path):
            continue
        try:
            for device in _loops(path):
                process.run(["losetup", "--detach", device], timeout_s=_TIMEOUT_S)
        except errors.GenericError as err:
            logging.warning("the loop device of %s was not removed: %s", path, err)


def _loops(path: str) -> list[str]:
    """Return the loop devices of a file.

    :raises HypervisorError: they are not known.
    """
    words = ["losetup", "--noheadings", "--output", "NAME", "--associated", path]
    try:
        return process.run(words, timeout_s=_TIMEOUT_S, log=False).stdout.split()
    except errors.CommandError as err:
        raise errors.HypervisorError(f"the loop devices of {path} are not known: {err}") from err
