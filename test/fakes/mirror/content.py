"""What is on the volumes of nodes: data, the metadata of replicas, and where devices are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ganeti.platform import paths

LVM = "lvm"
MIB = 1 << 20
_META_BYTES = 1024
_BLOCK_BYTES = 4096
_GENERATIONS = 50


def own_root() -> str:
    """The root directory of the node on which a call is carried out."""
    return paths.current().root


def short_name(root: str) -> str:
    return os.path.basename(root).split(".")[0]


class Meta(NamedTuple):
    """The metadata of a replica.

    ``generations`` of its data, newest first; none means that they are not valid. ``complete`` is
    False while they are copied from the peer.
    """

    generations: tuple[str, ...] = ()
    complete: bool = True
    outdated: bool = False

    @property
    def valid(self) -> bool:
        return bool(self.generations) and self.complete

    def newer_than(self, other: Meta) -> bool:
        """Whether the data of the other are an earlier state of these."""
        return self.valid and (not other.valid or other.generations[0] in self.generations)

    def write(self, path: str) -> None:
        text = json.dumps([self.generations[:_GENERATIONS], self.complete, self.outdated])
        with open(path, "r+b") as stream:
            stream.write(text.encode().ljust(_META_BYTES, b"\0"))

    @classmethod
    def read(cls, path: str) -> Meta:
        try:
            with open(path, "rb") as stream:
                text = stream.read(_META_BYTES).rstrip(b"\0").decode()
        except FileNotFoundError:  # the volume was lost while it was in use
            return cls()
        if not text:
            return cls()
        generations, complete, outdated = json.loads(text)
        return cls(tuple(generations), complete, outdated)


def agreed_sectors(meta: str) -> int:
    """The size on which replicas agreed, which is in the metadata behind the rest."""
    with open(meta, "rb") as stream:
        stream.seek(_META_BYTES)
        return int.from_bytes(stream.read(8), "big")


def agree_on(meta: str, sectors: int) -> None:
    """Write the size on which replicas agree."""
    with open(meta, "r+b") as stream:
        stream.seek(_META_BYTES)
        stream.write(sectors.to_bytes(8, "big"))


def device_path(root: str, number: int) -> str:
    """Path of the device of a minor."""
    return f"{root}/drbd{number}"


def beginning(path: Path) -> bytes:
    """What a test wrote to a volume: metadata are much smaller than their volume."""
    with path.open("rb") as stream:
        return stream.read(2 * MIB)


class Image(NamedTuple):
    """Size and content of a file, without its empty blocks: volumes are mostly holes.

    :ivar blocks: the blocks by their offset in bytes.
    """

    size: int
    blocks: dict[int, bytes]

    @classmethod
    def read(cls, path: Path) -> Image:
        """:raises FileNotFoundError: there is no such file."""
        blocks = {}
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            for start, stop in _written(stream.fileno(), size):
                for at in range(start, stop, _BLOCK_BYTES):
                    block = os.pread(stream.fileno(), _BLOCK_BYTES, at)
                    if block.count(0) != len(block):
                        blocks[at] = block
        return cls(size, blocks)

    def write(self, path: Path) -> None:
        """Make a file with this content, or replace it."""
        with path.open("wb") as stream:
            for at, block in self.blocks.items():
                os.pwrite(stream.fileno(), block, at)
            stream.truncate(self.size)


def copied(source: str, target: str, share: float = 1.0) -> None:
    """Copy the content of a volume, or the first part of it; holes are skipped, being zeros."""
    with open(source, "rb") as reading, open(target, "r+b") as writing:
        old, new = reading.fileno(), writing.fileno()
        end = int(os.fstat(old).st_size * share)
        for start, stop in (*_written(old, end), *_written(new, end)):
            content = os.pread(old, stop - start, start)
            if os.pread(new, stop - start, start) != content:
                os.pwrite(new, content, start)


def _written(descriptor: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a file before an end which are not holes."""
    at = 0
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # nothing more
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        if start < end:
            yield start, min(at, end)
