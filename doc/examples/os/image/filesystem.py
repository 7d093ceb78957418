"""Extend an ext2, ext3 or ext4 file system to the end of its partition, with resize2fs.

This is done only when the parameter ``grow`` says so: the programs read the file system as root,
and an image from somewhere else could be made to harm them. Without it, the guest grows the file
system when it boots.

Source: e2fsck(8) and resize2fs(8); both accept ``?offset=BYTES`` behind the name of a disk.
"""

import os
import shutil
import stat
import struct
import subprocess
import tempfile
from typing import BinaryIO

from settings import ScriptError

_SUPERBLOCK, _MAGIC_AT = 1024, 56
_PROGRAM_S = 3600
_CHUNK = 1 << 20
_WORK_DIR = "/var/tmp"


def grow(disk: str, partition: tuple[int, int]) -> str:
    """Enlarge the file system of a partition, and return a text for the log.

    :param partition: begin and length in bytes.
    :raises ScriptError: a program failed.
    """
    start, length = partition
    with open(disk, "rb") as stream:
        regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(start + _SUPERBLOCK)
        block = stream.read(_SUPERBLOCK)
    if length <= 2 * _SUPERBLOCK or block[_MAGIC_AT : _MAGIC_AT + 2] != b"\x53\xef":
        return "no ext file system in the last partition: the guest has to grow its own"
    if start + length > size:
        # Otherwise a partition table which lies would make a disk in a file larger than it is.
        return (
            "the last partition ends behind the end of the disk, so its file system stays as it is"
        )
    for program in ("e2fsck", "resize2fs"):
        if shutil.which(program) is None:
            return f"{program} is not installed: the guest has to grow its file system"
    if regular:
        _grow_in_file(disk, start, length, min(_size(block), length))
    else:
        _resize(f"{disk}?offset={start}", length)
    with open(disk, "rb") as stream:
        stream.seek(start + _SUPERBLOCK)
        return f"the file system has {_size(stream.read(_SUPERBLOCK)) >> 20} MiB now"


def _size(block: bytes) -> int:
    """Return the size of a file system in bytes, from its superblock."""
    blocks: int = struct.unpack_from("<I", block, 4)[0]
    return blocks << (10 + min(block[24], 6))


def _grow_in_file(disk: str, start: int, length: int, used: int) -> None:
    # resize2fs cuts a file to the size of the file system without regard to the offset.
    with tempfile.NamedTemporaryFile(dir=_WORK_DIR) as work, open(disk, "r+b") as target:
        work.truncate(length)
        _copy(target, start, work, 0, used)
        work.flush()
        _resize(work.name, length)
        os.truncate(work.name, length)
        _copy(work, 0, target, start, length)
        target.flush()
        os.fsync(target.fileno())


def _copy(source: BinaryIO, begin: int, target: BinaryIO, to: int, length: int) -> None:
    """Copy what differs, so that holes stay holes."""
    for done in range(0, length, _CHUNK):
        count = min(_CHUNK, length - done)
        source.seek(begin + done)
        data = source.read(count)
        target.seek(to + done)
        if data != target.read(count):
            target.seek(to + done)
            target.write(data)


def _resize(place: str, length: int) -> None:
    # Exit code 1: mistakes were found and corrected.
    _run((0, 1), "e2fsck", "-f", "-p", place)
    _run((0,), "resize2fs", place, f"{length >> 10}K")


def _run(good: tuple[int, ...], *argv: str) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PROGRAM_S,
        check=False,
    )
    if done.returncode not in good:
        raise ScriptError(f"{' '.join(argv)} failed: {done.stdout.strip()}")
