"""Copying the content of disks on a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.backend.storage import convert
from ganeti.objects import Disk
from ganeti.storage import content
from ganeti.storage.file import FileDevice

MIB = 1 << 20


def disk(here, name: str, size_mib: int, template: str = "file") -> Disk:
    path = f"/srv/ganeti/file-storage/web/{name}"
    local = Path(here.to_local(path))
    local.parent.mkdir(parents=True, exist_ok=True)
    with local.open("wb") as stream:
        stream.truncate(size_mib * MIB)
    return Disk(dev_type=template, logical_id=("loop", path), size=size_mib)


def local(here, one: Disk) -> Path:
    return Path(here.to_local(one.logical_id[1]))


def test_the_content_arrives_and_holes_stay_holes(here):
    source, target = disk(here, "old", 8), disk(here, "new", 8)
    with local(here, source).open("r+b") as stream:
        stream.seek(3 * MIB + 5)
        stream.write(b"precious")
        stream.seek(8 * MIB - 4)
        stream.write(b"last")
    convert.convert(source, target)
    assert local(here, target).read_bytes() == local(here, source).read_bytes()
    assert local(here, target).stat().st_blocks * 512 < 4 * MIB


def test_a_larger_target_keeps_its_size(here):
    source, target = disk(here, "old", 1), disk(here, "new", 2)
    local(here, source).write_bytes(b"x" * MIB)
    convert.convert(source, target)
    assert local(here, target).read_bytes() == b"x" * MIB + bytes(MIB)


def test_what_cannot_be_copied(here):
    source, small = disk(here, "old", 2), disk(here, "small", 1)
    with pytest.raises(errors.BlockDeviceError, match="fewer than"):
        convert.convert(source, small)
    missing = Disk(dev_type="file", logical_id=("loop", "/srv/ganeti/file-storage/web/no"), size=1)
    for pair in ((missing, source), (source, missing)):
        with pytest.raises(errors.BlockDeviceError, match="does not exist"):
            convert.convert(*pair)


def test_a_source_which_may_lack_writes_is_not_copied(here, monkeypatch):
    source, target = disk(here, "old", 1), disk(here, "new", 1)
    local(here, source).write_bytes(b"x" * MIB)

    def refuse(self: FileDevice) -> None:
        raise self.fail("may lack writes")

    monkeypatch.setattr(FileDevice, "require_latest_data", refuse)
    with pytest.raises(errors.BlockDeviceError, match="old: may lack writes"):
        convert.convert(source, target)
    assert local(here, target).read_bytes() == bytes(MIB)


def test_a_source_that_ends_early_is_an_error(here, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "b").write_bytes(bytes(20))
    with pytest.raises(OSError, match="ends after 10 of 20"):
        content.copy(str(tmp_path / "a"), str(tmp_path / "b"), 20)


def test_short_writes_are_continued(here, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "b").write_bytes(bytes(4096))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data[:100]), at))
    content.copy(str(tmp_path / "a"), str(tmp_path / "b"), 4096)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
