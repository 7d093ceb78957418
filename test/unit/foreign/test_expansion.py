"""A small appliance that becomes large: limits, holes, and where it is unpacked."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.foreign import images, ova, reading, workplace
from ganeti.foreign.machine import Disk, Machine
from ganeti.utils import free_space, process

MIB = 1 << 20

needs_qemu = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Free space of each directory: ``left`` bytes, less what is in the directory ``used``."""
    found: dict[str, Any] = {"left": 20 * MIB}

    def available(_directory: str) -> int | None:
        if found["left"] is None:
            return None
        return int(found["left"]) - (used(found["used"]) if "used" in found else 0)

    monkeypatch.setattr(free_space, "available", available)
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def used(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir())


def member(name: str, size: int, **other: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for key, value in other.items():
        setattr(made, key, value)
    return made


class Zeros(io.RawIOBase):
    """Endless zeros, without memory for them."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


class Letters(Zeros):
    """Something that packs well and is not a hole."""

    def read(self, size: int = -1) -> bytes:
        return b"x" * size


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("content", [Zeros, Letters])
def test_a_packed_archive_is_refused_by_the_sizes_that_it_announces(
    tmp_path: Path, out: Path, space: dict[str, Any], mode: str, content: type[Zeros]
) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(path, mode) as opened:  # type: ignore[call-overload]
        opened.addfile(member("a.ovf", 4), io.BytesIO(b"text"))
        opened.addfile(member("disk.vmdk", 40 * MIB), content())
    assert path.stat().st_size < 100_000
    with pytest.raises(errors.OpPrereqError, match="disk.vmdk needs 40 MiB, but only 20 MiB"):
        ova.extract(str(path), str(out))
    assert used(out) < 10_000
    space["left"] = 50 * MIB
    other = tmp_path / "other"
    other.mkdir()
    assert ova.extract(str(path), str(other)) == str(other / "a.ovf")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["disk.raw", "my disk.raw"])
def test_a_file_of_an_archive_is_not_larger_than_the_description_says(
    tmp_path: Path, out: Path, first: bool, name: str
) -> None:
    """The description counts before anything is written, wherever it is in the archive."""
    path = tmp_path / "a.ova"
    text = _OVF.format(capacity=MIB).replace("disk.raw", name.replace(" ", "%20")).encode()
    parts = [(member("a.ovf", len(text)), io.BytesIO(text)), (member(name, 70 * MIB), Letters())]
    with tarfile.open(path, "w:gz") as opened:
        for one, content in parts if first else reversed(parts):
            opened.addfile(one, content)
    with pytest.raises(errors.OpPrereqError, match="has 70 MiB, but may have 65 MiB by the desc"):
        reading.read(reading.OVF, str(path), str(out))
    assert used(out) < 100_000


@pytest.mark.parametrize("name", ["a.ovf", "a.mf", "a.cert"])
def test_the_texts_of_an_archive_are_small(tmp_path: Path, out: Path, name: str) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(path, "w:gz") as opened:
        opened.addfile(member(name, 5 * MIB), Letters())
    with pytest.raises(errors.OpPrereqError, match=f"{name} has 5 MiB, but may have 4 MiB"):
        ova.extract(str(path), str(out))


def test_zeros_of_an_archive_become_holes(tmp_path: Path, out: Path) -> None:
    path = tmp_path / "a.ova"
    with tarfile.open(path, "w:gz") as opened:
        opened.addfile(member("a.ovf", 4), io.BytesIO(b"text"))
        opened.addfile(member("disk.raw", 40 * MIB), Zeros())
    ova.extract(str(path), str(out))
    assert (out / "disk.raw").stat().st_size == 40 * MIB
    assert used(out) < MIB


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is missing")
@pytest.mark.parametrize(
    "version", ["--format=gnu", "--sparse-version=0.0", "--sparse-version=1.0"]
)
def test_the_holes_of_a_sparse_file_are_kept_and_not_read(
    tmp_path: Path, out: Path, space: dict[str, Any], version: str
) -> None:
    """Ten kilobytes which say that they are a terabyte."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.ovf").write_text("text")
    with (source / "disk.raw").open("wb") as stream:
        stream.seek(100 << 30)
        stream.write(b"in the middle")
        stream.truncate(1 << 40)
    archive = tmp_path / "a.ova"
    form = [version] if "gnu" in version else ["--format=posix", version]
    subprocess.run(["tar", "-C", source, *form, "-Scf", archive, "a.ovf", "disk.raw"], check=True)
    assert archive.stat().st_size < 30_000
    ova.extract(str(archive), str(out))
    assert (out / "disk.raw").stat().st_size == 1 << 40
    assert used(out) < MIB
    with (out / "disk.raw").open("rb") as stream:
        stream.seek(100 << 30)
        assert stream.read(13) == b"in the middle"


def test_a_header_is_not_read_into_memory(tmp_path: Path, out: Path) -> None:
    """An archive whose header says that it has a gigabyte; tarfile reads a header as a whole."""
    path = tmp_path / "a.ova"
    header = member("pax", 1 << 30, type=tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
    with gzip.open(path, "wb") as stream:
        stream.write(header)
        for _ in range(20):
            stream.write(bytes(MIB))
    with pytest.raises(errors.OpPrereqError, match="it has a header of 1073741824 bytes"):
        ova.extract(str(path), str(out))


@pytest.mark.parametrize("cut", [600, 3000])
def test_a_packed_archive_that_ends_early(tmp_path: Path, out: Path, cut: int) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as opened:
        opened.addfile(member("a.ovf", 4), io.BytesIO(b"text"))
        opened.addfile(member("disk.raw", 100_000), io.BytesIO(os.urandom(100_000)))
    path = tmp_path / "a.ova"
    path.write_bytes(whole.getvalue()[:cut])
    with pytest.raises(errors.OpPrereqError, match="not an OVA archive"):
        ova.extract(str(path), str(out))


def test_a_manifest_is_small(tmp_path: Path) -> None:
    (tmp_path / "a.ovf").write_text("text")
    with (tmp_path / "a.mf").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(errors.OpPrereqError, match="too large for a manifest"):
        ova.verify(str(tmp_path / "a.ovf"))


def packed(path: Path, size: int, piece: bytes = bytes(MIB)) -> str:
    with gzip.open(path, "wb") as stream:
        for _ in range(size // len(piece)):
            stream.write(piece)
    return str(path)


def test_a_packed_image_is_not_larger_than_its_description_says(tmp_path: Path, out: Path) -> None:
    path = packed(tmp_path / "disk.gz", 200 * MIB)
    assert os.path.getsize(path) < 300_000
    with pytest.raises(errors.OpPrereqError, match=r"disk.gz, unpacked, is larger than 75 MiB"):
        images.unpacked(path, str(out), 10)
    assert list(out.iterdir()) == []
    assert os.path.getsize(images.unpacked(path, str(out), 200)) == 200 * MIB
    assert used(out) < MIB


def test_a_packed_image_does_not_fill_the_file_system(
    tmp_path: Path, out: Path, space: dict[str, Any]
) -> None:
    path = packed(tmp_path / "disk.gz", 30 * MIB, b"x" * MIB)
    space["used"] = out
    with pytest.raises(
        errors.OpPrereqError, match="unpacked, needs more than 20 MiB, but only 20 MiB"
    ):
        images.unpacked(path, str(out))
    assert list(out.iterdir()) == []


def machine(*disks: Disk) -> Machine:
    return Machine(name="a", memory_mib=1, vcpus=1, disks=disks)


def qemu_img(*words: str | Path) -> None:
    subprocess.run(["qemu-img", *words], check=True, stdout=subprocess.DEVNULL)


@needs_qemu
@pytest.mark.programs
def test_an_image_with_a_larger_disk_than_its_description(tmp_path: Path, out: Path) -> None:
    qemu_img("create", "-f", "qcow2", tmp_path / "a.qcow2", "100G")
    with pytest.raises(errors.OpPrereqError, match="102400 MiB, but its description says 10 MiB"):
        images.to_raw(machine(Disk("a.qcow2", "qcow2", 10)), str(tmp_path / "a.ovf"), str(out))
    assert list(out.iterdir()) == []
    qemu_img("create", "-f", "qcow2", tmp_path / "b.qcow2", "10M")
    found = images.to_raw(machine(Disk("b.qcow2", "qcow2", 10)), str(tmp_path / "a.ovf"), str(out))
    assert found == [("disk0.raw", 10)]


@needs_qemu
@pytest.mark.programs
def test_the_data_of_an_image_need_space_and_its_holes_need_none(
    tmp_path: Path, out: Path, space: dict[str, Any]
) -> None:
    (tmp_path / "a.raw").write_bytes(b"x" * (30 * MIB))
    qemu_img("convert", "-c", "-O", "qcow2", tmp_path / "a.raw", tmp_path / "a.qcow2")
    assert (tmp_path / "a.qcow2").stat().st_size < MIB
    one = machine(Disk("a.qcow2", "qcow2"))
    with pytest.raises(errors.OpPrereqError, match="converted, needs .* only 20 MiB may be"):
        images.to_raw(one, str(tmp_path / "a.ovf"), str(out))
    assert list(out.iterdir()) == []
    qemu_img("create", "-f", "qcow2", tmp_path / "a.qcow2", "10G")
    assert images.to_raw(one, str(tmp_path / "a.ovf"), str(out)) == [("disk0.raw", 10240)]
    assert used(out) < MIB


def test_what_cannot_be_measured_needs_its_whole_size(
    tmp_path: Path, space: dict[str, Any]
) -> None:
    def run(argv: list[str], **_options: Any) -> process.Completed:
        if "measure" in argv:
            raise errors.CommandError(argv, 1, "", "not supported")
        text = '{"format": "raw", "virtual-size": 31457280}'
        return process.Completed(tuple(argv), 0, text, "", None)

    with pytest.raises(errors.OpPrereqError, match="needs 30 MiB, but only 20 MiB"):
        images.require_space("a", "raw", str(tmp_path), run)
    space["left"] = None
    images.require_space("a", "raw", str(tmp_path), run)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"required": -1}', '{"required": true}'])
def test_other_texts_than_sizes(text: str) -> None:
    with pytest.raises(errors.ParseError):
        images.parse_measure(text)


def test_a_sparse_disk_of_an_appliance_is_compared_before_its_checksum_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a terabyte of zeros takes an hour."""
    (tmp_path / "a.ovf").write_text(_OVF.format(capacity=10 * MIB))
    with (tmp_path / "disk.raw").open("wb") as stream:
        stream.truncate(1 << 40)
    (tmp_path / "a.mf").write_text(f"SHA256(disk.raw)= {hashlib.sha256().hexdigest()}\n")
    monkeypatch.delattr(ova, "digest")
    with pytest.raises(errors.OpPrereqError, match="disk.raw has 1048576 MiB, but .* 10 MiB"):
        reading.read(reading.OVF, str(tmp_path / "a.ovf"), str(tmp_path))


_OVF = """<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData">
  <References><File ovf:id="f1" ovf:href="disk.raw"/></References>
  <DiskSection><Disk ovf:diskId="d1" ovf:fileRef="f1" ovf:capacity="{capacity}"/></DiskSection>
  <VirtualSystem ovf:id="a"><Name>a</Name>
    <VirtualHardwareSection>
      <Item><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType>
        <rasd:VirtualQuantity>1</rasd:VirtualQuantity></Item>
      <Item><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType>
        <rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>
        <rasd:VirtualQuantity>64</rasd:VirtualQuantity></Item>
      <Item><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceType>17</rasd:ResourceType>
        <rasd:HostResource>ovf:/disk/d1</rasd:HostResource></Item>
    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>
"""


def test_work_is_in_a_directory_of_its_own(tmp_path: Path) -> None:
    top = tmp_path / "srv" / "import"
    with workplace.work_directory(str(top)) as work:
        assert os.path.dirname(work) == str(top)
        assert os.stat(work).st_mode & 0o777 == 0o700
        Path(work, "file").write_text("x")
    assert list(top.iterdir()) == []


def test_what_a_killed_program_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".import-left").mkdir()
    (tmp_path / ".import-left" / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / ".import-file").write_text("x")
    with (
        workplace.work_directory(str(tmp_path)) as one,
        workplace.work_directory(str(tmp_path)) as two,
    ):
        # Each of them is in use, so neither is removed.
        assert os.path.isdir(one) and os.path.isdir(two)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".import-file", "other"]


def test_a_file_system_without_locks_for_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / ".import-left").mkdir()
    with workplace.work_directory(str(tmp_path)) as work:
        assert os.path.isdir(work)
    # Nobody knows whether it is in use.
    assert [path.name for path in tmp_path.iterdir()] == [".import-left"]
