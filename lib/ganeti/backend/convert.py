"""Copying the content of one disk of this node to another, of whatever kinds they are."""

from __future__ import annotations

import errno
import os
import stat

from ganeti import errors, storage
from ganeti.backend.registry import serves
from ganeti.objects.disk import Disk
from ganeti.wire import calls

_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)


@serves(calls.BLOCKDEV_CONVERT)
def convert(source: Disk, target: Disk) -> None:
    """Copy a disk; both are assembled here, and nobody else writes to them.

    :raises BlockDeviceError: one is missing, the target is smaller, or reading or writing failed.
    """
    old, new = storage.device(source), storage.device(target)
    for device in (old, new):
        if not device.exists():
            raise errors.BlockDeviceError(f"device {device.unique_id} does not exist")
        device.assemble()
    size = old.size_bytes()
    if new.size_bytes() < size:
        raise new.fail(f"has {new.size_bytes()} bytes, less than the {size} to be copied")
    new.open(exclusive=True)
    try:
        copy(old.path, new.path, size)
    except OSError as err:
        raise new.fail(f"cannot copy {old.unique_id} to it", err) from err


def copy(source: str, target: str, size: int) -> None:
    """Copy so many bytes and flush them; holes of files stay holes.

    :raises OSError: as the system says, or the source ends early.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # A new file reads as zeros where nothing was written, a block device does not.
            sparse = stat.S_ISREG(os.fstat(writing).st_mode)
            offset = _data_from(reading, 0, size) if sparse else 0
            while offset < size:
                block = os.pread(reading, min(_BLOCK, size - offset), offset)
                if not block:
                    raise OSError(f"{source} ends after {offset} of {size} bytes")
                zeros = block == _ZEROS[: len(block)]
                if not (sparse and zeros):
                    _write(writing, block, offset)
                offset += len(block)
                if zeros and sparse:
                    offset = _data_from(reading, offset, size)
            os.fsync(writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _data_from(descriptor: int, offset: int, size: int) -> int:
    """Where the next data of a file begin; ``size`` when only a hole follows."""
    try:
        return min(os.lseek(descriptor, offset, os.SEEK_DATA), size)
    except OSError as err:
        if err.errno == errno.ENXIO:
            return size
        # Not every file system, and no block device, knows about holes.
        return offset


def _write(descriptor: int, block: bytes, offset: int) -> None:
    view = memoryview(block)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
