"""Disk images of other programs: looking at them, and converting them with **qemu-img**.

The images come from somewhere else, so they are not trusted. **qemu-img** is not root, opens no
other file than the image and what it writes, and has limits of memory, time and output
(:mod:`ganeti.helpers.limited`). The format is never guessed from the
content when the description says it: a raw disk whose guest has written the header of a qcow2
image could otherwise name any file of this machine. An image which is based on another file is
refused for the same reason.

Source: qemu-img(1).
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import urllib.parse
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.foreign.machine import MIB, Machine, whole_mib
from ganeti.utils import free_space, process
from ganeti.wire import json

QEMU_IMG = "qemu-img"
#: Formats from which an image may be converted.
READABLE = ("raw", "qcow2", "qcow", "vmdk", "vdi", "vpc", "vhdx", "qed")
#: Published name of a format to write -> that of qemu-img.
WRITABLE = {"raw": "raw", "cow": "qcow2", "vmdk": "vmdk"}
_SECTOR = 512
_HEAD_BYTES = 512
# Forms in which export scripts write: name, place, and bytes at that place.
_PACKED = (
    ("packed with gzip", 0, b"\x1f\x8b"),
    ("packed with bzip2", 0, b"BZh"),
    ("packed with xz", 0, b"\xfd7zXZ\0"),
    ("packed with zstd", 0, b"\x28\xb5\x2f\xfd"),
    ("packed with lz4", 0, b"\x04\x22\x4d\x18"),
    ("packed with lzop", 0, b"\x89LZO"),
    ("an archive of tar", 257, b"ustar"),
    ("an archive of cpio", 0, b"07070"),
    ("an archive of dump(8)", 24, b"\x6c\xea\0\0"),
    ("an archive of dump(8)", 24, b"\0\0\xea\x6c"),
    ("written by partclone", 0, b"partclone-image"),
)
_INFO_S, _MEASURE_S, _CONVERT_S = 60.0, 600.0, 24 * 3600.0

# Bytes of memory, and seconds of a processor; a conversion gets more for a large disk.
_MEMORY = 2 << 30
_CPU_S, _MEASURE_CPU_S, _CONVERT_CPU_S = 30, 300, 600
_CONVERTED_MIB_PER_S = 4

Runner = Callable[..., process.Completed]


class ImageInfo(NamedTuple):
    """What qemu-img says about an image; ``based_on`` are other files which belong to it."""

    format: str
    size: int
    based_on: tuple[str, ...]


def info_argv(path: str, format_: str) -> list[str]:
    """Return the command which describes an image. The format is detected when it is empty."""
    return [QEMU_IMG, "info", "--output=json", *(["-f", format_] if format_ else []), path]


def convert_argv(source: str, source_format: str, target: str, target_format: str) -> list[str]:
    """Return the command which writes an image in another format."""
    extra = ["-o", "subformat=streamOptimized"] if target_format == "vmdk" else []
    return [
        QEMU_IMG, "convert", "-f", source_format, "-O", target_format, *extra, source, target,
    ]  # fmt: skip


def parse_info(text: str) -> ImageInfo:
    """Read the output of :func:`info_argv`.

    :raises ParseError: the text has another form.
    """
    try:
        found = json.loads(text)
    except ValueError as err:
        raise errors.ParseError(f"the output of qemu-img is not JSON: {err}") from err
    if not isinstance(found, dict):
        raise errors.ParseError("the output of qemu-img is not an object")
    kind, size = found.get("format"), found.get("virtual-size")
    if not isinstance(kind, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise errors.ParseError("the output of qemu-img has no format or no size")
    based_on = [found[key] for key in ("backing-filename", "full-backing-filename") if key in found]
    data = found.get("format-specific")
    data = data.get("data") if isinstance(data, dict) else None
    if isinstance(data, dict):
        if "data-file" in data:
            based_on.append(data["data-file"])
        extents = data.get("extents")
        if kind == "vmdk" and isinstance(extents, list):
            names = {str(one.get("filename")) for one in extents if isinstance(one, dict)}
            based_on += [name for name in names if name != found.get("filename")]
    return ImageInfo(kind, size, tuple(str(name) for name in based_on))


def _reason(err: errors.CommandError) -> str:
    """Return why qemu-img failed."""
    if shutil.which(QEMU_IMG) is None:
        return "qemu-img is missing on this node; Debian has it in the package qemu-utils"
    return str(err)


def _limited(
    argv: list[str],
    run: Runner,
    timeout_s: float,
    cpu_s: int,
    source: str,
    target: str = "",
    most: int = 0,
) -> str:
    """Run qemu-img with limits, and without other files than these; return its output.

    :param most: bytes of the largest file which it may write.
    :raises CommandError: it failed, or reached a limit.
    """
    limits = ["--read", source, *(["--write", target] if target else [])]
    limits += ["--memory", str(_MEMORY), "--cpu", str(cpu_s), "--file-size", str(most)]
    command = [sys.executable, "-m", "ganeti.helpers.limited", *limits, "--", *argv]
    env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        return run(command, timeout_s=timeout_s, env=env).stdout
    except errors.CommandTimeout as err:
        raise errors.CommandTimeout(argv, timeout_s, err.output) from err
    except errors.CommandError as err:
        raise errors.CommandError(argv, err.exit_code, err.output) from err


def inspect(path: str, format_: str, run: Runner = process.run, *, shown: str = "") -> ImageInfo:
    """Look at an image.

    :param format_: its format as the description says it; empty lets qemu-img detect it.
    :param shown: what errors name in place of the path.
    :raises OpPrereqError: the image cannot be read, or cannot be trusted.
    """
    name = shown or path
    try:
        found = parse_info(_limited(info_argv(path, format_), run, _INFO_S, _CPU_S, path))
    except errors.CommandError as err:
        raise errors.OpPrereqError(
            f"image {name} cannot be read: {_reason(err)}", errors.ECODE_ENVIRON
        ) from err
    if found.format not in READABLE:
        raise errors.OpPrereqError(
            f"image {name} has the format {found.format}, which is not supported",
            errors.ECODE_INVAL,
        )
    if found.based_on:
        raise errors.OpPrereqError(
            f"image {name} is based on another file ({found.based_on[0]}). Make one file of both"
            " with 'qemu-img convert', where you trust them",
            errors.ECODE_INVAL,
        )
    return found


def require_raw_dump(path: str, size_mib: int, os_name: str) -> None:
    """Check that the dump of an export is the content of the disk, byte by byte.

    The export script of the OS definition writes the dump, in any form that its import script
    understands: packed, or only the files of the guest. Such a dump is no image of a disk.

    :param size_mib: size of the disk; 0 when the export does not say it.
    :param os_name: the OS definition.
    :raises OpPrereqError: the dump is in another form, or cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            head = stream.read(_HEAD_BYTES)
            size = os.fstat(stream.fileno()).st_size
    except OSError as err:
        raise errors.OpPrereqError(
            f"dump {path} cannot be read: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    kind = next((name for name, at, magic in _PACKED if head[at:].startswith(magic)), "")
    # A disk has whole sectors, and is recorded with its size rounded to MiB.
    allowed = 0 if kind else MIB - 1
    too_small = size_mib > 0 and size + allowed < size_mib * MIB
    if size and not size % _SECTOR and not too_small and (size_mib or not kind):
        return
    shown = f", which is {kind}" if kind else ""
    wanted = f", but the disk has {size_mib} MiB" if size_mib else ""
    raise errors.OpPrereqError(
        f"dump {path} is not the image of a disk{shown}: it has {size} bytes{wanted}. The export"
        f" script of OS {os_name or 'definition'} writes it in a form of its own. Import the export"
        " into a cluster, convert the disk of that instance with 'qemu-img convert', or export an"
        " instance whose OS definition copies whole disks, such as 'image'.",
        errors.ECODE_INVAL,
    )


def convert(
    source: str,
    source_format: str,
    target: str,
    target_format: str,
    size: int,
    run: Runner = process.run,
) -> None:
    """Write an image in another format, without its holes.

    :param size: bytes of its disk.
    :raises OpPrereqError: it needs more than the free space.
    :raises OpExecError: qemu-img failed; no target is left.
    """
    require_space(source, source_format, os.path.dirname(target), run)
    size_mib = whole_mib(size)
    cpu_s = _CONVERT_CPU_S + size_mib // _CONVERTED_MIB_PER_S
    argv = convert_argv(source, source_format, target, target_format)
    # It may write files which exist, and make no other one.
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        _limited(argv, run, _CONVERT_S, cpu_s, source, target, most_bytes(size_mib))
    except errors.CommandError as err:
        if os.path.exists(target):
            os.unlink(target)
        raise errors.OpExecError(f"image {source} cannot be converted: {_reason(err)}") from err


def unpacked(path: str, directory: str, size_mib: int = 0) -> str:
    """Unpack an image which is compressed with gzip; return the path of the copy.

    :param size_mib: size of its disk as the description says it; 0 when it does not.
    :raises OpPrereqError: the file is not compressed with gzip, or becomes larger than its disk, or
        than the free space; no copy is left.
    """
    target = os.path.join(directory, os.path.basename(path).removesuffix(".gz") + ".unpacked")
    try:
        with gzip.open(path) as source, open(target, "xb") as stream:
            try:
                most = most_bytes(size_mib) if size_mib else None
                copy = free_space.SparseFile(stream, f"image {path}, unpacked,", most=most)
                copy.copy(source)
                copy.finish()
            except BaseException:
                os.unlink(target)
                raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as err:
        raise errors.OpPrereqError(
            f"image {path} is not compressed with gzip: {err}", errors.ECODE_INVAL
        ) from err
    except free_space.NoSpace as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_NORES) from err
    return target


def most_bytes(size_mib: int) -> int:
    """Return how large the image of a disk of this size may be, in any format.

    The tables of the formats take some bytes for each block.
    """
    return (size_mib * MIB) * 51 // 50 + 64 * MIB


def require_as_described(source: str, info: ImageInfo, size_mib: int) -> None:
    """Refuse an image whose disk is larger than its description says.

    :param size_mib: size of the disk in the description; 0 when it does not say it.
    :raises OpPrereqError: it is larger.
    """
    if size_mib and whole_mib(info.size) > size_mib:
        raise errors.OpPrereqError(
            f"image {source} has a disk of {whole_mib(info.size)} MiB, but its description says"
            f" {size_mib} MiB. Correct the description, if you trust the image.",
            errors.ECODE_INVAL,
        )


def parse_measure(text: str) -> int:
    """Read the output of :func:`measure_argv`: bytes of a file with all data of the image.

    :raises ParseError: the text has another form.
    """
    try:
        found = json.loads(text)
    except ValueError as err:
        raise errors.ParseError(f"the output of qemu-img is not JSON: {err}") from err
    needed = found.get("required") if isinstance(found, dict) else None
    if not isinstance(needed, int) or isinstance(needed, bool) or needed < 0:
        raise errors.ParseError("the output of qemu-img has no size")
    return needed


def measure_argv(path: str, format_: str) -> list[str]:
    """Return the command which measures the data in an image, without its holes.

    What it prints is the size of a qcow2 image: that of a raw one contains the holes.
    """
    return [QEMU_IMG, "measure", "--output=json", "-f", format_, "-O", "qcow2", path]


def require_space(source: str, format_: str, directory: str, run: Runner = process.run) -> None:
    """Refuse to convert an image whose data need more than the free space.

    :raises OpPrereqError: they do.
    """
    try:
        needed = parse_measure(
            _limited(measure_argv(source, format_), run, _MEASURE_S, _MEASURE_CPU_S, source)
        )
    except (errors.CommandError, errors.ParseError):
        # Not every format can be measured. The whole disk is the most that it can need.
        needed = inspect(source, format_, run).size
    try:
        free_space.require(directory, needed, f"image {source}, converted,")
    except free_space.NoSpace as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_NORES) from err


def locate(path: str, description: str, directories: Sequence[str] = ()) -> str:
    """Find the image of a disk.

    :param path: the path in the description. A file of this name beside the description counts more
        than the one in another place.
    :param description: path of the description; its directory is looked in, too.
    :param directories: where to look first.
    :raises OpPrereqError: there is no such file.
    """
    beside = os.path.dirname(os.path.abspath(description))
    # References of OVF are URIs, in which a space is %20; not every program writes them so.
    names = dict.fromkeys((os.path.basename(path), os.path.basename(urllib.parse.unquote(path))))
    places = [os.path.join(directory, name) for directory in directories for name in names]
    places += [os.path.join(beside, name) for name in names]
    places += [path] if os.path.isabs(path) else []
    # A volume of Proxmox has no suffix; a copy of it may have one.
    places += [place + suffix for place in places for suffix in (".raw", ".img")]
    for place in places:
        if os.path.exists(place):
            return place
    raise errors.OpPrereqError(
        f"there is no image for disk {path!r:.120}; looked at {', '.join(places[:4])}",
        errors.ECODE_NOENT,
    )


def is_elsewhere(image: str, description: str, directories: Sequence[str] = ()) -> bool:
    """Tell whether only the description says that a file of this machine is an image.

    It is neither in one of the directories which the administrator names nor, really, in the one of
    the description: a link there may lead to any file.

    :param image: what :func:`locate` has found.
    """
    if os.path.dirname(image) in [directory.rstrip("/") for directory in directories]:
        return False
    beside = os.path.dirname(os.path.abspath(description))
    return os.path.dirname(os.path.realpath(image)) != os.path.realpath(beside)


def to_raw(
    machine: Machine,
    description: str,
    target: str,
    *,
    directories: Sequence[str] = (),
    work: str | None = None,
    run: Runner = process.run,
) -> list[tuple[str, int]]:
    """Write all disks of a machine as raw images into a directory.

    :param work: directory for copies that are unpacked, and removed; None for `target`.
    :returns: for each disk the name of its file and its size in MiB.
    :raises OpPrereqError: an image is missing, or cannot be used.
    :raises OpExecError: a conversion failed.
    """
    found = []
    for number, disk in enumerate(machine.disks):
        source = locate(disk.path, description, directories)
        copy = unpacked(source, work or target, disk.size_mib) if disk.gzip else ""
        try:
            source = copy or source
            info = inspect(source, disk.format, run)
            require_as_described(source, info, disk.size_mib)
            name = f"disk{number}.raw"
            convert(source, info.format, os.path.join(target, name), "raw", info.size, run)
        finally:
            if copy:
                os.unlink(copy)
        found.append((name, max(1, whole_mib(info.size))))
    return found
