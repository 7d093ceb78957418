"""All names of a device: links, partitions, multipath, volumes, loop devices, RBD images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.objects.device_names import DeviceNames, rbd_image
from ganeti.storage import device_names

LUN = "naa.60014055a1b2c3d4e5f60718293a4b5c"


class Sysfs:
    """The directories of the kernel about block devices."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def block(self, name: str, number: str, slaves: tuple[str, ...] = (), **facts: str) -> None:
        """Add a device; ``sda/sda1`` is a partition, and ``a__b`` stands for the file ``a/b``."""
        directory = self.root / "block" / name
        facts = {"dev": number, **facts}
        for file, text in facts.items():
            path = directory / file.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        for slave in slaves:
            (directory / "slaves").mkdir(exist_ok=True)
            (directory / "slaves" / slave.rpartition("/")[2]).symlink_to(
                self.root / "block" / slave
            )
        numbers = self.root / "dev" / "block"
        numbers.mkdir(parents=True, exist_ok=True)
        (numbers / number).symlink_to(directory)

    def names(self, number: str) -> DeviceNames:
        """Ask about a device as if a path had led to it."""
        return device_names._block_device(
            number, os.path.realpath(self.root / "dev" / "block" / number)
        )


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sysfs:
    monkeypatch.setattr(device_names, "SYSFS", str(tmp_path))
    made = Sysfs(tmp_path)
    made.block("sda", "8:0", device__wwid=LUN)
    made.block("sda/sda1", "8:1", partition="1")
    made.block("sda/sda2", "8:2", partition="2")
    made.block("sdb", "8:16", device__wwid=LUN)
    made.block("sdb/sdb1", "8:17", partition="1")
    made.block("sdc", "8:32", device__wwid="t10.ATA     QEMU HARDDISK")
    made.block("sdd", "8:48", device__wwid="t10.ATA     QEMU HARDDISK")
    made.block("sde", "8:64", device__wwid="naa.60000000000000000e00000000010001")
    made.block("sdf", "8:80", device__wwid="naa.60000000000000000e00000000010001")
    made.block("dm-0", "253:0", ("sda", "sdb"), dm__uuid=f"mpath-3{LUN[4:]}")
    made.block("dm-1", "253:1", ("dm-0",), dm__uuid=f"part1-mpath-3{LUN[4:]}")
    made.block("dm-2", "253:2", ("sdc",), dm__uuid="LVM-aaa")
    made.block("dm-3", "253:3", ("sdc",), dm__uuid="LVM-bbb")
    return made


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("8:0", "8:0", True),
        # Two paths of a SAN, with multipath above them and without it.
        ("8:0", "8:16", True),
        ("253:0", "8:0", True),
        # A partition is a part of the whole, on every path; two partitions are apart.
        ("8:0", "8:1", True),
        ("8:16", "8:1", True),
        ("253:0", "8:1", True),
        ("8:1", "8:2", False),
        ("8:1", "8:17", True),
        ("253:1", "8:17", True),
        ("253:1", "8:2", False),
        ("253:1", "8:0", True),
        # A volume and the device on which it is; two volumes are apart.
        ("253:2", "8:32", True),
        ("253:2", "253:3", False),
        # IDs which are no identity: of a model, and without a vendor.
        ("8:32", "8:48", False),
        ("8:64", "8:80", False),
    ],
)
def test_which_devices_are_one(sysfs: Sysfs, first: str, second: str, is_one: bool) -> None:
    one, other = sysfs.names(first), sysfs.names(second)
    assert one.overlaps(other) is is_one
    assert other.overlaps(one) is is_one


def test_loop_devices_of_one_file(sysfs: Sysfs, tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.write_bytes(b"x")
    (tmp_path / "link").symlink_to(file)
    os.link(file, tmp_path / "hard")
    for index, offset in enumerate(("0", "0", "4096")):
        sysfs.block(f"loop{index}", f"7:{index}", loop__backing_file=str(file), loop__offset=offset)
    whole, again, part = (sysfs.names(f"7:{index}") for index in range(3))
    for name in ("disk", "link", "hard"):
        found = device_names.find(str(tmp_path / name))
        assert all(found.overlaps(one) for one in (whole, again, part))
    assert whole.overlaps(again) and whole.overlaps(part)
    file.unlink()
    (tmp_path / "hard").unlink()
    assert not sysfs.names("7:0").overlaps(sysfs.names("7:1"))


def test_a_mapped_image_and_its_snapshot(sysfs: Sysfs, tmp_path: Path) -> None:
    for index, snapshot, namespace in ((0, "-", ""), (1, "old", ""), (2, "-", "tenant")):
        sysfs.block(f"rbd{index}", f"252:{index * 16}")
        about = tmp_path / "bus" / "rbd" / "devices" / str(index)
        about.mkdir(parents=True)
        facts = {"pool": "vms", "name": "img", "current_snap": snapshot, "pool_ns": namespace}
        for file, text in facts.items():
            (about / file).write_text(f"{text}\n")
    image = DeviceNames(frozenset([rbd_image("vms", "img")]))
    assert [sysfs.names(f"252:{16 * index}").overlaps(image) for index in range(3)] == [
        True,
        False,
        False,
    ]


def test_names_of_a_partition_on_a_san_are_not_those_of_the_whole(sysfs: Sysfs) -> None:
    assert sysfs.names("8:0").san == {f"san:{LUN}"}
    assert sysfs.names("253:1").san == sysfs.names("8:17").san == {f"san:{LUN}-part1"}


def test_two_links_to_a_real_device(tmp_path: Path) -> None:
    numbers = os.listdir("/dev/block") if os.path.isdir("/dev/block") else []
    devices = [
        f"/dev/{name}" for name in os.listdir("/dev") if Path("/dev", name).is_block_device()
    ]
    devices += [f"/dev/block/{number}" for number in numbers]
    if not devices:
        pytest.skip("this machine has no block device")
    (tmp_path / "one").symlink_to(devices[0])
    (tmp_path / "other").symlink_to(tmp_path / "one")
    names = [device_names.find(str(tmp_path / link)) for link in ("one", "other")]
    number = os.stat(devices[0]).st_rdev
    assert names[0] == names[1] and names[0].overlaps(names[1])
    assert f"dev:{os.major(number)}:{os.minor(number)}" in names[0].own


def test_what_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(errors.BlockDeviceError, match="cannot be examined"):
        device_names.find(str(tmp_path / "nothing"))
    with pytest.raises(errors.BlockDeviceError, match="is not a block device"):
        device_names.find("/dev/null")


def test_names_travel() -> None:
    names = DeviceNames(frozenset(["dev:8:1"]), frozenset(["dev:8:0", "san:x"]))
    assert DeviceNames.parse(names.wire()) == names
    for wrong in (None, [], [["a"]], [["a"], ["b"], ["c"]], [["a"], "b"], [[1], []]):
        with pytest.raises(errors.ParseError):
            DeviceNames.parse(wrong)
