"""Images which are not raw are recognised, and refused where a raw one is meant."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.storage import image_format
from ganeti.utils import process

FORMATS = ("qcow2", "qed", "vmdk", "vhdx", "vdi", "vpc", "parallels", "qcow")
MIB = 1 << 20


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")
@pytest.mark.parametrize("name", FORMATS)
def test_images_of_qemu(tmp_path: Path, name: str) -> None:
    path = tmp_path / "image"
    argv = ["qemu-img", "create", "-q", "-f", name, str(path), "8M"]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip(f"this qemu-img makes no images of format {name}")
    problem = image_format.not_raw(str(path), "image of web1")
    assert problem is not None
    assert problem.startswith(f"image of web1 is an image of format {name}, but must be raw")
    # The advice works.
    raw = tmp_path / "raw"
    process.run(["qemu-img", "convert", "-f", name, "-O", "raw", str(path), str(raw)], timeout_s=60)
    assert image_format.not_raw(str(raw)) is None
    assert raw.stat().st_size >= 8 * MIB


@pytest.mark.parametrize(
    "content",
    [b"", b"QF", bytes(4096), b"\xeb\x63\x90" + bytes(4093), bytes(4) + b"QFI\xfb", b"\x7fELF"],
)
def test_raw_images(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)
    assert image_format.not_raw(str(path)) is None


def test_a_description_in_text(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"# Disk DescriptorFile\nversion=1\n")
    assert "format vmdk" in str(image_format.not_raw(str(path)))


def test_a_file_which_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        image_format.not_raw(str(tmp_path / "image"))
