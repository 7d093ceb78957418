"""Writes numbered, checksummed blocks to a device, and looks whether they are there.

This file is copied to a machine and runs there with Debian's Python alone:

    writer.py write DEVICE MARK [FIRST]       prints "confirmed N" when block N is there for good
    writer.py check DEVICE MARK LAST [FIRST]  exits 1 unless blocks FIRST (1) to LAST are all right

A block is only confirmed after a write with O_DIRECT and O_DSYNC came back, so every
confirmed block must survive a power failure. The content of a block depends on its number and on
the mark: a volume may be where another one was before, whose blocks must not be taken for its own.
"""

import hashlib
import mmap
import os
import sys

SIZE = 4096


def block(mark: str, number: int) -> bytes:
    """The one content that block `number` may have."""
    seed = hashlib.sha256(b"%s %d" % (mark.encode(), number)).digest()
    return (b"%-31d\n" % number + seed * (SIZE // len(seed)))[:SIZE]


def write(device: str, mark: str, number: int) -> None:
    """Write for ever."""
    fd = os.open(device, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
    page = mmap.mmap(-1, SIZE)
    while True:
        page[:] = block(mark, number)
        os.pwrite(fd, page, number * SIZE)
        print(f"confirmed {number}", flush=True)
        number += 1


def check(device: str, mark: str, last: int, first: int) -> int:
    """Number of blocks that are not what was written."""
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, SIZE)
    wrong = []
    for number in range(first, last + 1):
        # Beyond the end of the device there is nothing to read.
        if os.preadv(fd, [page], number * SIZE) != SIZE or page[:] != block(mark, number):
            wrong.append(number)
    print(f"{last - first + 1} blocks, {len(wrong)} wrong: {wrong[:20]}")
    return len(wrong)


if __name__ == "__main__":
    what, device, mark, *numbers = sys.argv[1:]
    if what == "write":
        write(device, mark, int(numbers[0]) if numbers else 1)
    last = int(numbers[0])
    sys.exit(1 if check(device, mark, last, int(numbers[1]) if numbers[1:] else 1) else 0)
