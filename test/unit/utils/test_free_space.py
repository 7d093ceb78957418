"""Files from elsewhere never fill the file system."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from ganeti.utils import free_space
from ganeti.utils.free_space import Allowance, NoSpace, SparseFile

MIB = 1 << 20
GIB = 1 << 30


class Found(NamedTuple):
    f_bavail: int
    f_blocks: int
    f_frsize: int = 4096


class FileSystem:
    """A file system of some size; `used` grows when the test says so."""

    def __init__(self, size: int, free: int) -> None:
        self.size = size
        self.free = free

    def __call__(self, _path: str) -> Found:
        return Found(self.free // 4096, self.size // 4096)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    made = FileSystem(100 * GIB, 6 * GIB)
    monkeypatch.setattr(os, "statvfs", made)
    return made


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (100 * MIB, 25 * MIB),
        (2 * GIB, 256 * MIB),
        (20 * GIB, GIB),
        (1 << 50, 4 * GIB),
    ],
)
def test_a_part_is_kept_free(size: int, kept: int) -> None:
    assert free_space.kept_free(size) == kept


def test_what_is_available(disk: FileSystem) -> None:
    assert free_space.available("/") == 2 * GIB
    assert free_space.measured("/", removed=GIB) == 3 * GIB
    disk.free = GIB
    # What is removed first fills what is kept free.
    assert free_space.measured("/", removed=2 * GIB) == 0
    disk.free = 6 * GIB
    free_space.require("/", 2 * GIB, "image a")
    with pytest.raises(NoSpace, match=r"image a needs 2049 MiB, but only 2048 MiB may be .* in /x"):
        free_space.require("/x", 2 * GIB + 1, "image a")
    disk.free = GIB
    assert free_space.available("/") == 0


def test_what_cannot_be_measured_is_not_full() -> None:
    assert free_space.available("/nonexistent/directory") is None
    free_space.require("/nonexistent/directory", 1 << 60, "x")
    Allowance("/nonexistent/directory", "x").take(1 << 60)


def test_what_is_written_counts(disk: FileSystem) -> None:
    allowance = Allowance("/", "file a")
    for _ in range(2 * 1024):
        allowance.take(MIB)
        disk.free -= MIB
    with pytest.raises(NoSpace, match="file a needs"):
        allowance.take(MIB)


def test_what_others_write_counts(disk: FileSystem) -> None:
    allowance = Allowance("/", "file a")
    allowance.take(MIB)
    disk.free = 4 * GIB
    with pytest.raises(NoSpace):
        for _ in range(100):
            allowance.take(MIB)


def test_zeros_become_holes(tmp_path: Path) -> None:
    content = b"a" * 100_000 + bytes(10 * MIB) + b"b" * 5 + bytes(3 * MIB)
    path = tmp_path / "file"
    with path.open("xb") as stream:
        made = SparseFile(stream, "file")
        made.copy(io.BytesIO(content))
        made.skip(2 * MIB)
        made.finish()
    assert path.read_bytes() == content + bytes(2 * MIB)
    assert made.size == path.stat().st_size
    assert path.stat().st_blocks * 512 <= MIB


def test_a_hole_needs_no_space(disk: FileSystem, tmp_path: Path) -> None:
    disk.free = 0
    with (tmp_path / "file").open("xb") as stream:
        made = SparseFile(stream, "file a")
        made.skip(100 * GIB)
        made.write(bytes(MIB))
        with pytest.raises(NoSpace, match="file a needs more than 0 MiB, but only 0 MiB"):
            made.write(b"x")


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    with (tmp_path / "file").open("xb") as stream:
        made = SparseFile(stream, "file a", most=3 * MIB)
        made.write(bytes(2 * MIB))
        with pytest.raises(NoSpace, match="file a is larger than 3 MiB, which it may have"):
            made.skip(MIB + 1)
        with pytest.raises(NoSpace):
            made.write(bytes(MIB + 1))
        made.write(b"x" * MIB)
