"""Names of snapshots, and what they take."""

from __future__ import annotations

import pytest

from fakes.disks import drbd_of, plain_of
from ganeti import errors
from ganeti.objects import Disk, snapshots


@pytest.mark.parametrize("name", ["a", "20261121-101500", "Before_1.0", "x" * 32, "0"])
def test_good_names(name: str) -> None:
    assert snapshots.wrong_name(name) is None
    assert snapshots.split(snapshots.volume_name("u1.disk0_data", name)) == ("u1.disk0_data", name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "cannot be the name"),
        ("-f", "cannot be the name"),
        (".hidden", "cannot be the name"),
        ("a/b", "cannot be the name"),
        ("..", "cannot be the name"),
        ("a b", "cannot be the name"),
        ("ä", "cannot be the name"),
        ("x" * 33, "at most 32"),
        ("a\n", "cannot be the name"),
        ("a~", "cannot be the name"),
        ("a.snap.b", "separates it"),
        ("a.snap", "separ"),
        ("x_mlog", "LVM keeps '_mlog'"),
        ("a_rimage_0", "LVM keeps"),
        ("a:b", "cannot be the name"),
    ],
)
def test_wrong_names(name: str, why: str) -> None:
    assert why in (snapshots.wrong_name(name) or "")
    with pytest.raises(errors.ParameterError):
        snapshots.as_disk(plain_of("web"), name)


@pytest.mark.parametrize(
    "volume",
    [
        "u1.disk0",
        "u1.disk0.snap",
        ".snap.a",
        "u1.disk0.snap.",
        "u1.disk0.snap.a b",
        "u1.disk0.snapa",
    ],
)
def test_what_is_no_snapshot(volume: str) -> None:
    assert snapshots.split(volume) is None


def test_the_last_separator_counts() -> None:
    """A volume of the administrator which was adopted may be called anything."""
    assert snapshots.split("mine.snap.old.snap.new") == ("mine.snap.old", "new")


def test_the_time_is_a_name() -> None:
    assert snapshots.default_name(1795256100.9) == "20261121-101500"
    assert snapshots.wrong_name(snapshots.default_name(0)) is None


def test_as_disks() -> None:
    data = drbd_of("web").children[0]
    for disk, below in ((plain_of("web"), plain_of("web")), (drbd_of("web"), data)):
        found = snapshots.as_disk(disk, "a")
        assert found.logical_id == ("xenvg", f"{below.logical_id[1]}.snap.a")
        assert (found.dev_type, found.children) == ("plain", ())
    file = Disk(dev_type="file", logical_id=("loop", "/srv/web/disk0"), size=4)
    assert snapshots.as_disk(file, "a").logical_id == ("loop", "/srv/web/disk0.snap.a")


@pytest.mark.parametrize("size_mib", [1, 4, 1024, 1 << 20])
def test_space_for_all_blocks_and_the_table(size_mib: int) -> None:
    """Sixteen bytes for each block of 4 KiB, and a block that heads the table; whole extents."""
    blocks = size_mib * 256
    needed_kib = (blocks + -(-blocks // 256) + 1) * 4
    needed = snapshots.volume_size_mib(size_mib)
    assert needed_kib <= needed * 1024 <= needed_kib * 1.01 + 9 * 1024
