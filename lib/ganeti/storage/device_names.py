"""Finds all names of a block device or file of this node; see :mod:`ganeti.objects.device_names`.

Source: the directories ``/sys/dev/block`` and ``/sys/bus/rbd`` of Linux
(``Documentation/ABI/stable/sysfs-block`` and ``testing/sysfs-bus-rbd``), multipath(8).
"""

from __future__ import annotations

import os
import re
import stat

from ganeti import errors
from ganeti.objects.device_names import (
    DEVICE,
    INODE,
    SAN_VOLUME,
    DeviceNames,
    rbd_image,
    united,
)
from ganeti.utils import fs

#: Where Linux describes its devices.
SYSFS = "/sys"

_MULTIPATH = re.compile(r"(?:part(?P<part>\d+)-)?mpath-")
# IDs which the vendor makes unique. Others, such as ``t10.`` with a text, may be equal on machines
# of the same model; so may those without the number of a vendor.
_UNIQUE_ID = re.compile(r"(?:naa\.(?![2356]000000)|eui\.(?!0000000)|uuid\.)[0-9a-f-]{16,}")
# The kernel allows no deeper stacks of devices in practice; a limit in case of a circle.
_DEEPEST = 16


def find(path: str) -> DeviceNames:
    """Return the names of a block device or of a regular file.

    :param path: links are followed.
    :raises BlockDeviceError: there is no such device, or it cannot be examined.
    """
    try:
        found = os.stat(path)
    except OSError as err:
        raise errors.BlockDeviceError(f"{path} cannot be examined: {err.strerror}") from err
    if stat.S_ISREG(found.st_mode):
        return DeviceNames(frozenset([_inode(found)]))
    if not stat.S_ISBLK(found.st_mode):
        raise errors.BlockDeviceError(f"{path} is not a block device")
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return _block_device(number, os.path.realpath(f"{SYSFS}/dev/block/{number}"))


def _inode(found: os.stat_result) -> str:
    return f"{INODE}{os.major(found.st_dev)}:{os.minor(found.st_dev)}/{found.st_ino}"


def _block_device(number: str, directory: str, depth: int = 0) -> DeviceNames:
    """Return the names of a block device.

    :param directory: of the kernel about the device; it may be missing, as in a container.
    """
    own = {f"{DEVICE}{number}", *_san_ids(directory), *_image(directory)}
    below: set[str] = set()
    if depth < _DEEPEST:
        part = _read(f"{directory}/partition")
        if part:
            parent = _of_directory(os.path.dirname(directory), depth)
            own |= _parts(parent, part)
            below |= parent.own | parent.below
        slaves = united(_of_directory(os.path.realpath(one), depth) for one in _slaves(directory))
        multipath = _MULTIPATH.match(_read(f"{directory}/dm/uuid"))
        if multipath is None:
            below |= slaves.own | slaves.below
        elif multipath["part"]:
            own |= _parts(slaves, multipath["part"])
            below |= slaves.own | slaves.below
        else:
            # Each path is the whole device.
            own |= slaves.own
            below |= slaves.below
    file = _backing_file(directory)
    if file is not None:
        (own if _read(f"{directory}/loop/offset") in ("", "0") else below).add(file)
    return DeviceNames(frozenset(own), frozenset(below - own))


def _of_directory(directory: str, depth: int) -> DeviceNames:
    number = _read(f"{directory}/dev")
    return _block_device(number, directory, depth + 1) if number else DeviceNames(frozenset())


def _slaves(directory: str) -> list[str]:
    try:
        return [f"{directory}/slaves/{name}" for name in sorted(os.listdir(f"{directory}/slaves"))]
    except OSError:
        return []


def _parts(whole: DeviceNames, part: str) -> set[str]:
    """Return the names of a partition, which every path to the whole device shows."""
    return {f"{name}-part{part}" for name in whole.san}


def _san_ids(directory: str) -> set[str]:
    # The first one is of SCSI, the second one of NVMe.
    ids = {_read(f"{directory}/{name}").lower() for name in ("device/wwid", "wwid")}
    return {f"{SAN_VOLUME}{one}" for one in ids if _UNIQUE_ID.fullmatch(one)}


def _image(directory: str) -> set[str]:
    """Return the name of the RBD image which is mapped to the device."""
    name = os.path.basename(directory)
    if not name.startswith("rbd"):
        return set()
    about = f"{SYSFS}/bus/rbd/devices/{name.removeprefix('rbd')}"
    pool, image = _read(f"{about}/pool"), _read(f"{about}/name")
    if not pool or not image:
        return set()
    snapshot = _read(f"{about}/current_snap")
    return {rbd_image(pool, image, _read(f"{about}/pool_ns"), "" if snapshot == "-" else snapshot)}


def _backing_file(directory: str) -> str | None:
    """Return the name of the file behind a loop device."""
    path = _read(f"{directory}/loop/backing_file")
    try:
        return _inode(os.stat(path)) if path else None
    except OSError:
        # It is deleted, so that no other disk can have it.
        return None


def _read(path: str) -> str:
    """Return the text of a file of the kernel; an empty text when it has none."""
    try:
        return fs.read_file(path).strip()
    except OSError:
        return ""
