"""Wiping disks and writing images to them, with files as disks and the real dd."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from ganeti import errors, storage
from ganeti.backend.storage import disk_content
from ganeti.objects import Disk
from ganeti.platform import paths
from ganeti.storage import copy

MIB = 1 << 20
pytestmark = pytest.mark.programs


@pytest.fixture
def disk(tmp_path):
    """A file disk of 4 MiB, full of ones."""
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as here:
        path = "/srv/ganeti/file-storage/web1/disk0"
        os.makedirs(os.path.dirname(here.to_local(path)))
        found = Disk(dev_type="file", logical_id=("loop", path), size=4, uuid="u1")
        Path(here.to_local(path)).write_bytes(b"1" * 4 * MIB)
        yield found


def content(disk):
    return Path(storage.device(disk).path).read_bytes()


def test_wiping_a_part(disk):
    disk_content.wipe(disk, 1, 2)
    assert content(disk) == b"1" * MIB + bytes(2 * MIB) + b"1" * MIB
    with pytest.raises(errors.BlockDeviceError, match="cannot wipe up to 5 MiB, it has 4 MiB"):
        disk_content.wipe(disk, 3, 2)


def test_wiping_the_end_of_a_volume_with_odd_extents(disk):
    os.truncate(storage.device(disk).path, 3 * MIB + 1536)
    disk_content.wipe(disk, 2, 2)
    assert content(disk) == b"1" * 2 * MIB + bytes(MIB + 1536)


def test_writing_an_image(disk, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(b"2" * MIB + b"end")
    disk_content.image(disk, str(image), 4)
    assert content(disk)[: MIB + 3] == b"2" * MIB + b"end"
    assert len(content(disk)) == 4 * MIB
    image.write_bytes(bytes(5 * MIB))
    with pytest.raises(errors.BlockDeviceError, match="has 5 MiB, the disk has 4"):
        disk_content.image(disk, str(image), 4)
    with pytest.raises(errors.BlockDeviceError, match="there is no image /nowhere"):
        disk_content.image(disk, "/nowhere", 4)
    link = tmp_path / "link"
    link.symlink_to("/etc/hostname")
    for secret in ("/etc/passwd", str(link)):
        with pytest.raises(errors.BlockDeviceError, match="is a file of the node, and no image"):
            disk_content.image(disk, secret, 4)


def test_an_image_which_is_larger_than_an_odd_device_is_refused_before_the_first_byte(
    disk, tmp_path
):
    os.truncate(storage.device(disk).path, 3 * MIB + 512)
    image = tmp_path / "image"
    image.write_bytes(b"2" * (3 * MIB + 512))
    disk_content.image(disk, str(image), 4)
    assert content(disk) == image.read_bytes()
    image.write_bytes(b"3" * (3 * MIB + 513))
    with pytest.raises(errors.BlockDeviceError, match="3146241 bytes, the device has 3146240"):
        disk_content.image(disk, str(image), 4)
    assert content(disk) == b"2" * (3 * MIB + 512)


@pytest.mark.parametrize("head", [b"QFI\xfb", b"KDMV", b"QED\0", b"vhdxfile"])
def test_an_image_which_is_not_raw_is_refused(disk, tmp_path, head):
    before = content(disk)
    image = tmp_path / "image"
    image.write_bytes(head + bytes(MIB))
    with pytest.raises(errors.BlockDeviceError, match=f"{image} is an image of format .* be raw"):
        disk_content.image(disk, str(image), 4)
    assert content(disk) == before


def test_what_a_guest_has_written_may_look_like_anything(disk, tmp_path):
    """The content of a disk is never taken for an image, only bytes which it holds."""
    path = Path(storage.device(disk).path)
    path.write_bytes(b"QFI\xfb" + bytes(4 * MIB - 4))
    assert storage.device(disk).size_bytes() == 4 * MIB
    disk_content.keep_snapshot(disk, "a", 0, True)
    path.write_bytes(bytes(4 * MIB))
    disk_content.restore_snapshot(disk, "a")
    assert content(disk) == b"QFI\xfb" + bytes(4 * MIB - 4)


def test_an_image_that_cannot_be_loaded(disk):
    before = content(disk)
    with pytest.raises(errors.BlockDeviceError, match="cannot be loaded"):
        disk_content.image(disk, "http://127.0.0.1:1/image", 4)
    assert content(disk) == before


def test_a_file_has_no_snapshot(disk):
    with pytest.raises(errors.BlockDeviceError, match="have no snapshots"):
        disk_content.snapshot(disk, "", 0)


def test_what_does_not_exist(disk):
    os.unlink(storage.device(disk).path)
    for call in (
        lambda: disk_content.wipe(disk, 0, 1),
        lambda: disk_content.snapshot(disk, "", 0),
        lambda: disk_content.image(disk, "/etc/hostname", 1),
    ):
        with pytest.raises(errors.BlockDeviceError, match="does not exist"):
            call()


def test_commands():
    assert " ".join(copy.wipe_argv("/dev/x", 5, 7 * MIB, is_block=True)) == (
        "dd if=/dev/zero seek=5 bs=1048576 oflag=direct of=/dev/x iflag=count_bytes count=7340032"
    )
    assert " ".join(copy.image_argv("/i", "/dev/x", 7, is_block=True)) == (
        "dd if=/i seek=0 bs=1048576 oflag=direct of=/dev/x count=7"
    )
    assert "conv=notrunc,fsync" in copy.image_argv("/i", "/f", 7, is_block=False)


def test_a_snapshot_and_back(disk):
    disk_content.keep_snapshot(disk, "a", 0, at_rest=True)
    (rows,) = disk_content.list_snapshots([disk])
    assert [(name, size, usable) for name, size, _made, usable in rows] == [("a", 4 * MIB, True)]
    with open(storage.device(disk).path, "r+b") as stream:
        stream.write(b"2" * MIB)
        stream.truncate(5 * MIB)
    disk_content.restore_snapshot(disk, "a")
    assert content(disk) == b"1" * 4 * MIB + bytes(MIB)
    disk_content.restore_snapshot(disk, "a")
    os.truncate(storage.device(disk).path, 3 * MIB)
    with pytest.raises(errors.BlockDeviceError, match="less than the 4194304 of its snapshot a"):
        disk_content.restore_snapshot(disk, "a")
    assert content(disk) == b"1" * 3 * MIB


def test_one_of_several_disks_which_fails_does_not_keep_the_others(disk):
    gone = dataclasses.replace(disk, logical_id=(disk.logical_id[0], f"{disk.logical_id[1]}-gone"))
    first, second, third = disk_content.keep_snapshots([disk, gone, disk], "a", [0, 0, 0], True)
    assert first is None
    assert "does not exist" in str(second)
    # The name is taken now.
    assert isinstance(third, errors.DeviceCreationError) and third.created_devices == []
    ((row,),) = disk_content.list_snapshots([disk])
    assert row[0] == "a"


@pytest.mark.parametrize("name", ["../x", "", "a.snap.b"])
def test_names_that_lead_elsewhere(disk, name):
    for call in (
        lambda: disk_content.keep_snapshot(disk, name, 0, at_rest=True),
        lambda: disk_content.restore_snapshot(disk, name),
    ):
        text = r"disk0: .*(cannot be the name|separates)"
        with pytest.raises(errors.BlockDeviceError, match=text):
            call()
    with pytest.raises(errors.BlockDeviceError, match="has no snapshot nosuch"):
        disk_content.restore_snapshot(disk, "nosuch")


class Mirror(storage.base.BlockDevice):
    """Above a file that is a volume; a little smaller than that, as LVM rounds."""

    path = unique_id = ""
    room = 4 * MIB - 1000
    below = None

    def size_bytes(self):
        return self.room

    def exists(self):
        return True

    create = remove = assemble = grow = rename = exists


def test_a_mirror_is_a_little_smaller_than_its_volume(disk, monkeypatch):
    real = storage.device
    made = []

    def device(asked):
        if asked.dev_type != "drbd":
            return real(asked)
        found = Mirror(asked)
        found.path = real(disk).path
        made.append(found)
        return found

    disk_content.keep_snapshot(disk, "a", 0, at_rest=True)
    Path(real(disk).path).write_bytes(b"2" * 4 * MIB)
    monkeypatch.setattr(storage, "device", device)
    top = Disk(
        dev_type="drbd", logical_id=("a", "b", 11000, 0, 1, ""), size=4, children=(disk, disk)
    )
    disk_content.restore_snapshot(top, "a")
    assert content(disk) == b"1" * Mirror.room + b"2" * 1000
    # It was made smaller: then something would be missing.
    os.truncate(real(disk).path, 3 * MIB)
    with pytest.raises(errors.BlockDeviceError, match="less than"):
        disk_content.restore_snapshot(top, "a")
