"""Copying the content of files and devices.

A file system with reflinks (XFS, Btrfs) lets two files share their blocks until one of them is
written. Such a copy is immediate, takes no space, and is consistent while a program writes.

Source: ioctl_ficlone(2), lseek(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)
# From linux/fs.h: _IOW(0x94, 9, int).
_FICLONE = 0x40049409
_CANNOT_SHARE = frozenset(
    (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM)
)


def share(reading: int, writing: int) -> bool:
    """Make the content of a file that of another one, with shared blocks.

    :param reading: descriptor of the source.
    :param writing: descriptor of the target.
    :returns: False when the file system has no reflinks; nothing was done.
    :raises OSError: the file system has reflinks, but failed.
    """
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as err:
        if err.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def copy(source: str, target: str, size: int, *, only_changes: bool = False) -> None:
    """Copy the first bytes of a file or device, and flush them.

    Files share their blocks where the file system has reflinks, and holes stay holes.

    :param size: bytes to copy.
    :param only_changes: read the target, too, and write only blocks which differ.
    :raises OSError: reading or writing fails, or the source is too short.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(reading).st_size == size and share(reading, writing):
                os.fsync(writing)
            else:
                copy_open(reading, writing, size, only_changes=only_changes)
        except EOFError as err:
            raise OSError(f"{source} {err}") from None
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def copy_open(reading: int, writing: int, size: int, *, only_changes: bool = False) -> None:
    """Copy the first bytes between two descriptors, and flush them.

    :param writing: open for reading, too.
    :param size: bytes to copy.
    :param only_changes: write only blocks which differ.
    :raises EOFError: the source is too short.
    :raises OSError: reading or writing fails.
    """
    source = os.fstat(reading)
    if stat.S_ISREG(source.st_mode) and source.st_size < size:
        raise EOFError(f"ends after {source.st_size} of {size} bytes")
    # Nothing must be copied where both have a hole. The holes of block devices are not known.
    sparse = stat.S_ISREG(os.fstat(writing).st_mode)
    offset = 0
    while True:
        if sparse:
            offset = min(_data_from(reading, offset, size), _data_from(writing, offset, size))
        if offset >= size:
            break
        block = os.pread(reading, min(_BLOCK, size - offset), offset)
        if not block:
            raise EOFError(f"ends after {offset} of {size} bytes")
        compare = only_changes or (sparse and block == _ZEROS[: len(block)])
        if not (compare and _reads_as(writing, block, offset)):
            _write(writing, block, offset)
        offset += len(block)
    os.fsync(writing)


def _reads_as(descriptor: int, block: bytes, offset: int) -> bool:
    return os.pread(descriptor, len(block), offset) == block


def _data_from(descriptor: int, offset: int, size: int) -> int:
    """Return the offset at which the next data of a file begin.

    It is ``size`` when only a hole follows.
    """
    try:
        return min(os.lseek(descriptor, offset, os.SEEK_DATA), size)
    except OSError as err:
        if err.errno == errno.ENXIO:
            return size
        # Block devices and some file systems do not report holes.
        return offset


def _write(descriptor: int, block: bytes, offset: int) -> None:
    view = memoryview(block)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
