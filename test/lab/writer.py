"""Writes numbered, checksummed blocks to a device, and looks whether they are there.

This file is copied to a machine and runs there with Debian's Python alone:

    writer.py write DEVICE [FIRST [COUNT]]  prints "confirmed N" when block N is there for good
    writer.py check DEVICE LAST             exits 1 unless blocks 1 to LAST are all right

A block is only confirmed after a write with O_DIRECT and O_DSYNC came back, so every
confirmed block must survive a power failure.
"""

import hashlib
import mmap
import os
import sys

SIZE = 4096


def block(number: int) -> bytes:
    """The one content that block `number` may have."""
    seed = hashlib.sha256(b"laboratory %d" % number).digest()
    return (b"%-31d\n" % number + seed * (SIZE // len(seed)))[:SIZE]


def write(device: str, first: int, count: int) -> None:
    """Write for ever, or so many blocks."""
    fd = os.open(device, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
    page = mmap.mmap(-1, SIZE)
    number = first
    while not count or number < first + count:
        page[:] = block(number)
        os.pwrite(fd, page, number * SIZE)
        print(f"confirmed {number}", flush=True)
        number += 1


def check(device: str, last: int) -> int:
    """Number of blocks that are not what was written."""
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, SIZE)
    wrong = []
    for number in range(1, last + 1):
        os.preadv(fd, [page], number * SIZE)
        if page[:] != block(number):
            wrong.append(number)
    print(f"{last} blocks, {len(wrong)} wrong: {wrong[:20]}")
    return len(wrong)


if __name__ == "__main__":
    given = [*sys.argv[3:], "0", "0"]
    if sys.argv[1] == "write":
        write(sys.argv[2], int(given[0]) or 1, int(given[1]))
        sys.exit(0)
    sys.exit(1 if check(sys.argv[2], int(given[0])) else 0)
