"""Disk images: the commands of qemu-img, what is refused, and real conversions; OVA archives."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.foreign import images, ova, reading
from ganeti.foreign.machine import Disk, Machine

DATA = Path(__file__).resolve().parents[2] / "data" / "ovf"
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img (qemu-utils) is not installed"
)


def info(**values: object) -> str:
    return json.dumps({"format": "qcow2", "virtual-size": 5 << 20, "filename": "a", **values})


def test_commands() -> None:
    assert images.info_argv("a", "")[-2:] == ["--output=json", "a"]
    assert images.info_argv("a", "raw")[-3:] == ["-f", "raw", "a"]
    assert images.convert_argv("a", "vmdk", "b", "raw") == [
        "qemu-img", "convert", "-f", "vmdk", "-O", "raw", "a", "b",
    ]  # fmt: skip
    assert "subformat=streamOptimized" in images.convert_argv("a", "raw", "b", "vmdk")


@pytest.mark.parametrize(
    "values",
    [
        {"backing-filename": "/etc/shadow"},
        {"format-specific": {"data": {"data-file": "/etc/shadow"}}},
        {
            "format": "vmdk",
            "format-specific": {"data": {"extents": [{"filename": "/etc/shadow"}]}},
        },
    ],
)
def test_images_with_other_files_are_found(values: dict[str, object]) -> None:
    assert images.parse_info(info(**values)).based_on == ("/etc/shadow",)


def test_an_image_alone() -> None:
    assert images.parse_info(info()) == ("qcow2", 5 << 20, ())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "raw", "virtual-size": true}'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        images.parse_info(text)


def test_where_images_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("disk.qcow2", "vm-101-disk-0.raw", "other/disk.qcow2"):
        (tmp_path / name).write_text("")
    description = str(tmp_path / "a.xml")
    found = images.locate("/nowhere/disk.qcow2", description)
    assert found == str(tmp_path / "disk.qcow2")
    found = images.locate("/nowhere/disk.qcow2", description, [str(tmp_path / "other")])
    assert found == str(tmp_path / "other/disk.qcow2")
    assert images.locate("vm-101-disk-0", description).endswith("disk-0.raw")
    with pytest.raises(errors.OpPrereqError, match="no image for disk"):
        images.locate("x", description)


@needs_qemu
@pytest.mark.programs
def test_a_real_conversion(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096 + b"\0" * (1 << 20)
    (tmp_path / "a.raw").write_bytes(content)
    subprocess.run(
        [
            "qemu-img",
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            tmp_path / "a.raw",
            tmp_path / "a.qcow2",
        ],
        check=True,
    )
    (tmp_path / "a.gz").write_bytes(gzip.compress((tmp_path / "a.qcow2").read_bytes()))
    (tmp_path / "out").mkdir()
    machine = Machine(
        name="a", memory_mib=1, vcpus=1, disks=(Disk("a.qcow2"), Disk("a.gz", "qcow2", gzip=True))
    )
    found = images.to_raw(machine, str(tmp_path / "a.ovf"), str(tmp_path / "out"))
    assert found == [("disk0.raw", 2), ("disk1.raw", 2)]
    for name in ("disk0.raw", "disk1.raw"):
        assert (tmp_path / "out" / name).read_bytes() == content
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["disk0.raw", "disk1.raw"]


@needs_qemu
@pytest.mark.programs
def test_a_real_image_with_a_backing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").write_bytes(b"\0" * (1 << 20))
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", tmp_path / "base",
         tmp_path / "a.qcow2"], check=True,
    )  # fmt: skip
    with pytest.raises(errors.OpPrereqError, match="based on another file"):
        images.inspect(str(tmp_path / "a.qcow2"), "qcow2")
    # The same bytes as a raw disk are only bytes.
    assert images.inspect(str(tmp_path / "a.qcow2"), "raw").based_on == ()


@needs_qemu
@pytest.mark.programs
def test_the_disks_of_the_samples(tmp_path: Path) -> None:
    machine, description = reading.read("ovf", str(DATA / "virtualbox.ovf"), str(tmp_path))
    assert [size for _name, size in images.to_raw(machine, description, str(tmp_path))] == [1, 1]


def test_an_appliance_without_its_image(tmp_path: Path) -> None:
    machine, description = reading.read("ovf", str(DATA / "corrupted_resources.ovf"), "")
    with pytest.raises(errors.OpPrereqError, match="no image for disk 'other_disk.vmdk'"):
        images.to_raw(machine, description, str(tmp_path))


def archive(path: Path, *members: tuple[str, bytes], **other: object) -> Path:
    with tarfile.open(path, "w") as opened:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in other.items():
                setattr(member, key, value)
            opened.addfile(member, io.BytesIO(content))
    return path


def test_an_archive_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = archive(tmp_path / "a.ova", ("a.ovf", b"text"), ("./disk.vmdk", b"disk"))
    assert ova.extract(str(path), str(tmp_path / "out")) == str(tmp_path / "out/a.ovf")
    assert (tmp_path / "out/disk.vmdk").read_bytes() == b"disk"


@pytest.mark.parametrize(
    ("members", "other"),
    [
        ([("../a.ovf", b"")], {}),
        ([("/etc/a.ovf", b"")], {}),
        ([(".a.ovf", b"")], {}),
        ([("a.ovf", b""), ("a.ovf", b"")], {}),
        ([("disk.vmdk", b"")], {}),
        ([("a.ovf", b"")], {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
    ],
)
def test_archives_which_cannot_be_trusted(
    tmp_path: Path, members: list[tuple[str, bytes]], other: dict[str, object]
) -> None:
    (tmp_path / "out").mkdir()
    path = archive(tmp_path / "a.ova", *members, **other)
    with pytest.raises(errors.OpPrereqError, match="not an OVA archive"):
        ova.extract(str(path), str(tmp_path / "out"))


@pytest.mark.parametrize("name", ["no_ovf.ova", "wrong_ova.ova"])
def test_broken_samples_of_archives(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.OpPrereqError, match="not an OVA archive"):
        ova.extract(str(DATA / name), str(tmp_path))


def test_checksums(tmp_path: Path) -> None:
    for name in ("ganeti.ovf", "ganeti.mf", "new_disk.vmdk"):
        shutil.copy(DATA / name, tmp_path)
    description = str(tmp_path / "ganeti.ovf")
    assert not ova.verify(str(tmp_path / "other.ovf"))
    (tmp_path / "ganeti.mf").write_text(
        ova.manifest(str(tmp_path), ["ganeti.ovf", "new_disk.vmdk"])
    )
    assert ova.verify(description)
    (tmp_path / "new_disk.vmdk").write_bytes(b"changed")
    with pytest.raises(errors.OpPrereqError, match="another SHA256 checksum"):
        ova.verify(description)
    (tmp_path / "new_disk.vmdk").unlink()
    with pytest.raises(errors.OpPrereqError, match="which is missing"):
        ova.verify(description)


def test_archives_are_reproducible(tmp_path: Path) -> None:
    (tmp_path / "a.ovf").write_text("a")
    ova.pack(str(tmp_path / "1.ova"), str(tmp_path), ["a.ovf"])
    (tmp_path / "out").mkdir()
    assert ova.extract(str(tmp_path / "1.ova"), str(tmp_path / "out")).endswith("/a.ovf")


@pytest.mark.parametrize("kind", reading.KINDS)
def test_other_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.ovf"
    path.write_bytes(b"\xff\xfe nonsense")
    with pytest.raises(errors.OpPrereqError, match="not a description"):
        reading.read(kind, str(path), str(tmp_path))
    with pytest.raises(errors.OpPrereqError, match="cannot read"):
        reading.read(kind, str(tmp_path / "missing.ovf"), str(tmp_path))


@pytest.mark.parametrize(
    ("content", "size_mib", "why"),
    [
        # What export scripts write: packed, shorter than the disk, in another form.
        (
            gzip.compress(b"\0" * 1024, mtime=0),
            10,
            "packed with gzip: it has .* but the disk has 10 MiB",
        ),
        (b"\0" * 5120, 10, "is not the image of a disk: it has 5120 bytes"),
        (b"\0" * 257 + b"ustar" + b"\0" * (10240 - 262), 1, "an archive of tar"),
        (b"\0" * 24 + b"\x6c\xea\0\0" + b"\0" * 484, 0, r"an archive of dump\(8\)"),
        (b"\xfd7zXZ\0" + b"\0" * 506, 0, "packed with xz"),
        # A packed dump may be longer than the disk.
        (b"\x1f\x8b" + b"\1" * ((1 << 20) + 77), 1, "packed with gzip"),
        (b"", 0, "it has 0 bytes"),
    ],
    ids=["gzip", "short", "tar", "dump", "xz", "long", "empty"],
)
def test_a_dump_that_is_no_disk(tmp_path: Path, content: bytes, size_mib: int, why: str) -> None:
    (tmp_path / "dump").write_bytes(content)
    with pytest.raises(errors.OpPrereqError, match=why) as caught:
        images.require_raw_dump(str(tmp_path / "dump"), size_mib, "debootstrap")
    assert "script of OS debootstrap" in str(caught.value)


@pytest.mark.parametrize(
    ("size", "size_mib"),
    # Whole, of half a MiB more than was recorded, rounded up, and rounded up by LVM.
    [(1 << 20, 1), (5120, 0), ((17 << 19), 8), ((17 << 19), 9), (4 << 20, 1)],
)
def test_a_dump_that_is_a_disk(tmp_path: Path, size: int, size_mib: int) -> None:
    with open(tmp_path / "dump", "wb") as stream:
        stream.truncate(size)
    images.require_raw_dump(str(tmp_path / "dump"), size_mib, "image")


def test_a_disk_may_begin_like_an_archive(tmp_path: Path) -> None:
    """A guest may have written an archive to its second disk."""
    (tmp_path / "dump").write_bytes(b"\x1f\x8b" + b"\0" * ((1 << 20) - 2))
    images.require_raw_dump(str(tmp_path / "dump"), 1, "image")
