"""Snapshots of files and of logical volumes; content that is copied or shared."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors, storage
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import content, file
from ganeti.storage.base import BlockDevice
from ganeti.storage.lvm import argv, facts, parse
from ganeti.storage.lvm.device import LogicalVolumeDevice
from ganeti.utils.process import Completed

DIRECTORY = "/srv/ganeti/file-storage/web1"
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        file.create_dir(DIRECTORY)
        yield tmp_path / DIRECTORY[1:]


def device(name: str = "disk0", template: str = "file") -> BlockDevice:
    return storage.device(
        Disk(dev_type=template, logical_id=("loop", f"{DIRECTORY}/{name}"), size=4, uuid="u")
    )


@pytest.fixture
def cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(fcntl, "ioctl", refuse)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A file system which can; as one of them does it, to the descriptor that is written."""
    asked = []

    def clone(writing: int, request: int, reading: int) -> int:
        asked.append((request, os.fstat(reading).st_size))
        os.ftruncate(writing, max(os.fstat(writing).st_size, os.fstat(reading).st_size))
        os.pwrite(writing, os.pread(reading, os.fstat(reading).st_size, 0), 0)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    return asked


# -- files -------------------------------------------------------------------------------------


def test_a_copy_of_a_file_at_rest(root: Path, cannot_share: None) -> None:
    one = device()
    one.create(4)
    (root / "disk0").write_bytes(b"x" * 5 + bytes(4 * MIB - 5))
    os.truncate(root / "disk0", 8 * MIB)
    one.keep_snapshot("a", 0, at_rest=True)
    copy = root / "disk0.snap.a"
    assert copy.read_bytes() == (root / "disk0").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o640
    assert copy.stat().st_blocks * 512 < 2 * MIB  # sparse
    (root / "disk0").write_bytes(b"new")
    assert copy.read_bytes()[:5] == b"x" * 5
    (found,) = one.kept_snapshots()
    assert (found.name, found.size_bytes, found.usable) == ("a", 8 * MIB, True)
    assert found.made == copy.stat().st_mtime


def test_no_copy_of_a_file_that_is_written_to(root: Path, cannot_share: None) -> None:
    one = device()
    one.create(4)
    with pytest.raises(errors.BlockDeviceError, match="Stop the instance first, or .*--shutdown"):
        one.keep_snapshot("a", 0, at_rest=False)
    assert os.listdir(root) == ["disk0"]


def test_a_file_system_which_can_share(root: Path, shares: list[tuple[int, int]]) -> None:
    one = device(template="sharedfile")
    one.create(4)
    (root / "disk0").write_bytes(b"x" * 100)
    one.keep_snapshot("a", 0, at_rest=False)
    assert shares == [(0x40049409, 100)]
    assert (root / "disk0.snap.a").read_bytes() == b"x" * 100


def test_a_failing_copy_leaves_nothing(
    root: Path, cannot_share: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = device()
    one.create(4)
    (root / "disk0").write_bytes(b"x" * 5)

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(errors.BlockDeviceError, match="cannot take a snapshot: No space left"):
        one.keep_snapshot("a", 0, at_rest=True)
    assert os.listdir(root) == ["disk0"]


def test_a_snapshot_is_not_overwritten(root: Path, cannot_share: None) -> None:
    one = device()
    one.create(4)
    one.keep_snapshot("a", 0, at_rest=True)
    with pytest.raises(errors.BlockDeviceError, match="has a snapshot a already"):
        one.keep_snapshot("a", 0, at_rest=True)
    with pytest.raises(errors.BlockDeviceError, match="cannot be used"):
        device("disk9").keep_snapshot("a", 0, at_rest=True)


def test_only_what_has_a_good_name_is_a_snapshot(root: Path) -> None:
    for name in (
        "disk0",
        "disk0~",
        "disk0.snap",
        "disk0.snap.",
        "disk0.snap.a b",
        "disk0.snap.a",
        "disk0.snap.b~",
        "disk0.snap.c",
        "disk0.snap.c~",
        "disk01.snap.d",
        "other",
    ):
        (root / name).touch()
    assert [(found.name, found.usable) for found in device().kept_snapshots()] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    device().remove()
    assert sorted(os.listdir(root)) == [
        "disk0.snap",
        "disk0.snap.",
        "disk0.snap.a b",
        "disk01.snap.d",
        "disk0~",
        "other",
    ]


def test_removing_one_leaves_the_others(root: Path) -> None:
    for name in ("disk0", "disk0.snap.a", "disk0.snap.a~", "disk0.snap.ab", "disk0.snap.a.b"):
        (root / name).touch()
    device("disk0.snap.a").remove()
    device("disk0.snap.a").remove()
    assert sorted(os.listdir(root)) == ["disk0", "disk0.snap.a.b", "disk0.snap.ab"]


def test_a_lost_disk_still_tells_its_snapshots(root: Path) -> None:
    (root / "disk0.snap.a").touch()
    assert [found.name for found in device().kept_snapshots()] == ["a"]
    assert device("elsewhere/disk0").kept_snapshots() == []


def test_a_renamed_file_takes_them_along(root: Path) -> None:
    for name in ("disk0", "disk0.snap.a"):
        (root / name).touch()
    device().rename(("loop", f"{DIRECTORY}/disk1"))
    assert sorted(os.listdir(root)) == ["disk1", "disk1.snap.a"]


def test_other_kinds_have_none() -> None:
    manual = storage.device(Disk(dev_type="blockdev", logical_id=("manual", "/dev/disk/x"), size=4))
    assert manual.kept_snapshots() == []
    with pytest.raises(errors.BlockDeviceError, match="have no snapshots"):
        manual.keep_snapshot("a", 4, at_rest=True)


# -- content -----------------------------------------------------------------------------------


def test_a_hole_replaces_what_was_there(tmp_path: Path, cannot_share: None) -> None:
    """What is restored was a hole when the snapshot was made, and the disk has something there."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"s")
    os.truncate(source, 6 * MIB)
    target.write_bytes(b"t" * (3 * MIB))
    os.truncate(target, 6 * MIB)
    content.copy(str(source), str(target), 6 * MIB)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 <= 4 * MIB


@pytest.mark.parametrize("only_changes", [False, True])
def test_only_what_differs_is_written(
    tmp_path: Path, cannot_share: None, only_changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"s" * (3 * MIB) + b"end")
    target.write_bytes(b"s" * MIB + b"t" * MIB + b"s" * MIB + b"xxx")
    real, written = os.pwrite, []

    def write(descriptor: int, data: bytes, offset: int) -> int:
        written.append(offset)
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    content.copy(str(source), str(target), 3 * MIB + 3, only_changes=only_changes)
    assert target.read_bytes() == source.read_bytes()
    assert written == ([MIB, 3 * MIB] if only_changes else [0, MIB, 2 * MIB, 3 * MIB])


def test_files_share_only_what_is_as_long_as_it_should(
    tmp_path: Path, shares: list[tuple[int, int]]
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"s" * 20)
    target.write_bytes(b"t" * 30)
    content.copy(str(source), str(target), 20)
    assert len(shares) == 1 and target.read_bytes() == b"s" * 20 + b"t" * 10
    content.copy(str(source), str(target), 10)
    assert len(shares) == 1


def test_an_error_of_sharing_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "ioctl", broken)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(OSError, match="Input/output"):
        content.copy(str(tmp_path / "a"), str(tmp_path / "b"), 0)


# -- logical volumes ---------------------------------------------------------------------------

LVS = """\
  xenvg|u1.disk0|1048576.00|owi-aos---|253|2|4096.00|1|originstname+web1|/dev/sda(0)
  xenvg|u1.disk0.snap.a|1064960.00|swi-a-s---|253|5|4096.00|1||/dev/sda(256)
  xenvg|u2.disk0|1048576.00|-wi-------|-1|-1|4096.00|1||/dev/sda(600)
"""
# As LVM 2.03.16 prints them; the origin tells a size, too.
SNAPSHOTS = """\
  xenvg|u1.disk0||1048576.00|owi-aos---|2026-11-20 08:00:00 +0000
  xenvg|u1.disk0.snap.a|u1.disk0|1048576.00|swi-a-s---|2026-11-21 10:15:00 +0000
  xenvg|u1.disk0.snap.full|u1.disk0|1048576.00|swi-I-s---|2026-11-21 11:15:00 +0100
  xenvg|u1.disk0.snap.torn|u1.disk0|1048576.00|swi-a-s-p-|Sat Nov 21 2026
  xenvg|u1.disk0.snap|u1.disk0|1048576.00|swi-a-s---|2026-11-21 10:15:00 +0000
  xenvg|mine|u1.disk0|1048576.00|swi-a-s---|2026-11-21 10:15:00 +0000
  xenvg|u2.disk0.snap.x|u1.disk0|1048576.00|swi-a-s---|2026-11-21 10:15:00 +0000
  xenvg|u2.disk0|||-wi-------|2026-11-20 08:00:00 +0000
"""


class Tools:
    """LVM with fixed lists; remembers what is changed."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, words: list[str], **_options: object) -> Completed:
        self.commands.append(list(words))
        out = {"vgs": "  xenvg|13312.00|wz--n-|30720.00\n", "lvs": LVS}.get(words[0], "")
        if words == argv.snapshots_argv():
            out = SNAPSHOTS
        return Completed(tuple(words), 0, out, "", None)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    monkeypatch.setattr(LogicalVolumeDevice, "is_block_device", lambda self: True)
    found = Tools()
    with facts.use(facts.Lvm(found)):
        yield found


def volume(name: str) -> LogicalVolumeDevice:
    return LogicalVolumeDevice(Disk(dev_type="plain", logical_id=("xenvg", name), size=1024))


def test_the_command() -> None:
    assert " ".join(argv.snapshots_argv()) == (
        "lvs --noheadings --separator=| --units=k --nosuffix"
        " -ovg_name,lv_name,origin,origin_size,lv_attr,lv_time"
    )


def test_only_what_lvm_calls_a_snapshot_of_it_counts(tools: Tools) -> None:
    found = volume("u1.disk0").kept_snapshots()
    assert [(one.name, one.usable) for one in found] == [
        ("a", True),
        ("full", False),
        ("torn", False),
    ]
    assert found[0].size_bytes == 1 << 30
    # Both in the same second; the third in a format of the administrator.
    assert [one.made for one in found] == [1795256100.0, 1795256100.0, None]
    assert volume("u2.disk0").kept_snapshots() == []


def test_it_is_made_beside_its_volume(tools: Tools) -> None:
    volume("u1.disk0").keep_snapshot("b", 1038, at_rest=False)
    assert tools.commands[-1] == [
        "lvcreate",
        "-L1038m",
        "-s",
        "-nu1.disk0.snap.b",
        "--addtag",
        "originstname+web1",
        "/dev/xenvg/u1.disk0",
    ]
    with pytest.raises(errors.BlockDeviceError, match="cannot take a snapshot: volume group"):
        volume("u1.disk0").keep_snapshot("c", 20000, at_rest=False)


def test_an_inactive_volume_is_activated_first(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: list[int] = []
    monkeypatch.setattr(
        LogicalVolumeDevice, "is_block_device", lambda self: bool(active) or active.append(1)
    )
    volume("u2.disk0").keep_snapshot("b", 1038, at_rest=True)
    changes = [words[0] for words in tools.commands if words[0] not in ("lvs", "vgs")]
    assert changes == ["lvchange", "lvcreate"]


def test_the_content_of_a_snapshot_is_not_its_capacity(tools: Tools) -> None:
    assert volume("u1.disk0.snap.a").size_bytes() == 1 << 30
    assert volume("u1.disk0.snap.a").dimensions() == (1 << 30, 1)
    assert volume("u2.disk0").size_bytes() == 1 << 30
    assert tools.commands.count(argv.snapshots_argv()) == 1  # read once, and only when needed


def test_a_volume_with_snapshots_does_not_grow(tools: Tools) -> None:
    for dry_run in (True, False):
        with pytest.raises(errors.BlockDeviceError, match=r"while it has snapshots \(mine, u1"):
            volume("u1.disk0").grow(4, dry_run=dry_run, backing_store=True)
    assert all(words[0] == "lvs" for words in tools.commands)


def test_removing_a_volume_does_not_ask_about_its_snapshots(tools: Tools) -> None:
    volume("u1.disk0").remove()
    assert tools.commands == [["lvremove", "-f", "xenvg/u1.disk0"]]


@pytest.mark.parametrize(
    ("attributes", "usable"),
    [
        ("swi-a-s---", True),
        ("swi-aos---", True),
        ("swi---s---", True),
        ("swi-I-s---", False),
        ("swi-S-s---", False),
        ("Swi-a-s---", False),
        ("swi-a-s-p-", False),
    ],
)
def test_usable(attributes: str, usable: bool) -> None:
    (one,) = parse.parse_snapshots(f"vg|lv|[origin]|4.00|{attributes}|\n").values()
    assert (one.usable, one.origin, one.made) == (usable, "origin", None)
