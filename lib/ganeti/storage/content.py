"""Content of files and devices: copied, or shared with a copy.

A file system which knows how (XFS, Btrfs) lets two files share their blocks until one of them is
written to. That takes no time and no space, and nobody's writes come in between.
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
    """Let a file have the content of another one, as it is at this moment.

    :param reading: descriptor of the one, ``writing`` of the other.
    :returns: False, and nothing was done, when the file system cannot.
    :raises OSError: it can, but did not.
    """
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as err:
        if err.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def copy(source: str, target: str, size: int, *, only_changes: bool = False) -> None:
    """Copy so many bytes and flush them; holes of files stay holes, and files share what they can.

    :param only_changes: read the target as well, and write only what differs.
    :raises OSError: as the system says, or the source ends early.
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
    """Copy so many bytes between descriptors; the target can be read as well.

    :param only_changes: as for :func:`copy`.
    :raises EOFError: the source ends early.
    """
    source = os.fstat(reading)
    if stat.S_ISREG(source.st_mode) and source.st_size < size:
        raise EOFError(f"ends after {source.st_size} of {size} bytes")
    # Where both have a hole there is nothing to do. Block devices do not tell about theirs.
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
