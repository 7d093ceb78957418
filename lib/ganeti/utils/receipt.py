"""What a receiver has written to a file: proof that the file is complete.

The receiver of a transfer writes the receipt beside the file, after both ends have ended without a
failure. Who finds a file with a fitting receipt knows that the file is complete, and with which
content; who finds none knows that the transfer was broken off.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from ganeti.utils import fs

SUFFIX = ".receipt"


class Tally:
    """Counts bytes, and computes their checksum."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        self.size += len(data)
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        """The checksum, in hexadecimal digits."""
        return self._digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Size in bytes and checksum of a file."""

    size: int
    sha256: str


def write(path: str, tally: Tally, device_and_inode: tuple[int, int]) -> None:
    """Write the receipt for a file.

    :param path: path of the file.
    :param device_and_inode: of the file which was written; another one may have its name now.
    :raises OSError: the receipt cannot be written.
    """
    device, inode = device_and_inode
    fs.write_file(path + SUFFIX, f"{tally.size} {tally.sha256} {device} {inode}\n", mode=0o600)


def check(path: str) -> Receipt:
    """Check that a file is the one of its receipt, and has its size.

    :raises ValueError: it is not, or has no receipt; the text is the rest of a sentence about it.
    :raises OSError: the file or its receipt cannot be read.
    """
    try:
        words = fs.read_file(path + SUFFIX).split()
    except FileNotFoundError:
        raise ValueError("was not received completely") from None
    try:
        size, sha256, device, inode = int(words[0]), words[1], int(words[2]), int(words[3])
    except (ValueError, IndexError):
        raise ValueError("has a damaged receipt") from None
    found = os.stat(path)
    if (found.st_dev, found.st_ino) != (device, inode):
        raise ValueError("is not the file that was received")
    if found.st_size != size:
        raise ValueError(f"has {found.st_size} bytes, but {size} were received")
    return Receipt(size, sha256)
