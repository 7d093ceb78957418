"""The image builder's formats, and what it says when nothing can be had."""

from __future__ import annotations

import gzip
import importlib.machinery
import importlib.util
import lzma
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "devel/tiny-image"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("tiny_image", str(TOOL))
    spec = importlib.util.spec_from_loader("tiny_image", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize(
    "packed, plain",
    [
        (b"\x30abc", b"abc"),  # literals only
        (b"\x14a\x01\x00\x10z", b"aaaaaaaaaz"),  # a copy that overlaps itself
        (b"\x40abcd\x04\x00\x00", b"abcdabcd"),
        (b"\x2fab\x02\x00\x01\x10c", b"ab" * 11 + b"c"),  # long match, extended length
        (b"\xf0\x05" + b"x" * 20, b"x" * 20),  # extended literal length
    ],
)
def test_lz4_blocks(tool: ModuleType, packed: bytes, plain: bytes) -> None:
    assert tool.lz4_block(packed) == plain


def test_lz4_refuses_to_look_before_the_start(tool: ModuleType) -> None:
    with pytest.raises(tool.ImageError, match="before its start"):
        tool.lz4_block(b"\x10a\x09\x00\x00")


def bzimage(payload: bytes) -> bytes:
    image = bytearray(1024)
    image[0x1F1] = 1
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", image, 0x248, 0, len(payload))
    return bytes(image) + payload


def test_kernel_is_unpacked(tool: ModuleType) -> None:
    kernel = b"\x7fELF and a note Xen\x00"
    lz4 = struct.pack("<IIB", 0x184C2102, len(kernel) + 2, 0xF0) + bytes([len(kernel) - 15])
    for payload in (
        gzip.compress(kernel),
        lzma.compress(kernel),
        lz4 + kernel + struct.pack("<I", len(kernel)),
    ):
        assert tool.unpack_kernel(bzimage(payload)) == kernel
    assert tool.unpack_kernel(kernel) == kernel


def test_kernel_that_stays_as_it_is(tool: ModuleType) -> None:
    for payload in (b"unknown packing", gzip.compress(b"\x7fELF without the note")):
        assert tool.unpack_kernel(bzimage(payload)) == bzimage(payload)
    with pytest.raises(tool.ImageError, match="not an x86 Linux kernel"):
        tool.unpack_kernel(b"MZ" * 1000)


def test_archive(tool: ModuleType) -> None:
    archive = tool.Archive()
    archive.directory("bin")
    archive.file("bin/x", b"12345")
    archive.link("init", "bin/x")
    data = gzip.decompress(archive.packed())
    found, at = [], 0
    while True:
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110 : at + 110 + fields[11] - 1].decode()
        at += (110 + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            break
        found.append((name, oct(fields[1]), data[at : at + fields[6]]))
        at += (fields[6] + 3) // 4 * 4
    assert found == [
        ("bin", "0o40755", b""),
        ("bin/x", "0o100755", b"12345"),
        ("init", "0o120777", b"bin/x"),
    ]


def test_modules_with_what_they_need(tool: ModuleType, tmp_path: Path) -> None:
    for name, needs in (
        ("virtio_pci", "virtio,virtio-ring"),
        ("virtio", ""),
        ("virtio-ring", "virtio"),
        ("other", ""),
    ):
        content = b"code\0depends=" + needs.encode() + b"\0license=GPL\0"
        if name == "virtio":
            (tmp_path / "virtio.ko.xz").write_bytes(lzma.compress(content))
        else:
            (tmp_path / f"{name}.ko").write_bytes(content)
    modules = tool.collect_modules(tmp_path, ("virtio_pci", "missing"))
    assert list(modules) == ["virtio", "virtio_ring", "virtio_pci"]
    assert modules["virtio"].startswith(b"code")


def test_nothing_to_be_had(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root").mkdir()
    output = tmp_path / "cache/image"
    assert tool.main(["-o", str(output), "--offline", "--system-root", f"{tmp_path}/root"]) == 1
    message = capsys.readouterr().err
    assert "found no readable kernel with modules and no static busybox" in message
    assert "As root, run: apt-get install busybox-static linux-image-cloud-amd64" in message
    # Nothing half made: only the lock of concurrent builds is there.
    assert [path.name for path in output.parent.iterdir()] == [".image.lock"]


def test_dynamic_busybox_is_refused(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["-o", f"{tmp_path}/image", "--busybox", "/etc/passwd"]) == 1
    assert "/etc/passwd is not a statically linked" in capsys.readouterr().err
