"""OVA archives, and the checksums of an appliance.

An archive comes from somewhere else: only plain files without a directory in their names are taken
out of it, never more of them than an appliance has, and no more data than the file system has space
for (:mod:`ganeti.utils.free_space`). Its headers are small, and are not read otherwise. Zeros
become holes, and the holes of a sparse file are not even read.

Source: DMTF DSP0243 1.1, section 5.3; tar(5).
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import hashlib
import lzma
import os
import tarfile
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Final, cast

from ganeti import errors
from ganeti.foreign import ovf
from ganeti.utils import free_space

_MOST_FILES = 100
_BLOCK = 1 << 20
_SUFFIX = ".ovf"
# Descriptions have some kilobytes, and manifests and certificates are smaller.
_MOST_TEXT_BYTES = 4 << 20
# First bytes of packed archives.
_PACKED: Final[tuple[tuple[bytes, Callable[[IO[bytes]], object]], ...]] = (
    (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)
_BROKEN = (
    tarfile.TarError, FileExistsError, EOFError, ValueError, RecursionError, gzip.BadGzipFile,
    lzma.LZMAError, zlib.error,
)  # fmt: skip


def _no_sizes(_description: str) -> Mapping[str, int]:
    return {}


def extract(
    archive: str, directory: str, sizes: Callable[[str], Mapping[str, int]] = _no_sizes
) -> str:
    """Unpack an archive; return the path of its description.

    :param sizes: returns the largest sizes of files in bytes, by their names, from the text of a
        description. It is read first, wherever it is in the archive.
    :raises OpPrereqError: the file is not an OVA archive, cannot be trusted, or has files which are
        larger than they may be, or than the free space.
    """
    description = ""
    try:
        with _opened(archive) as opened:
            largest = sizes(_description_in(opened))
        with _opened(archive) as opened:
            for number, member in enumerate(opened):
                name = member.name.removeprefix("./")
                if not member.isreg() or "/" in name or name.startswith("."):
                    raise _wrong(archive, f"{member.name!r:.80} is not a plain file")
                if number >= _MOST_FILES:
                    raise _wrong(archive, f"it has more than {_MOST_FILES} files")
                path = os.path.join(directory, name)
                most = _MOST_TEXT_BYTES if _is_text(name) else largest.get(name)
                with open(path, "xb") as target:
                    _take_out(opened, member, target, most)
                if is_description(name):
                    description = description or path
    except free_space.NoSpace as err:
        raise errors.OpPrereqError(f"{archive}: {err}", errors.ECODE_NORES) from err
    except _BROKEN as err:
        raise _wrong(archive, str(err) or type(err).__name__) from err
    if not description:
        raise _wrong(archive, "it has no description (.ovf)")
    return description


@contextlib.contextmanager
def _opened(archive: str) -> Iterator[tarfile.TarFile]:
    with (
        open(archive, "rb") as raw,
        tarfile.open(fileobj=cast("IO[bytes]", _Blocks(_unpacked(raw))), mode="r:") as opened,
    ):
        yield opened


def _description_in(opened: tarfile.TarFile) -> str:
    """Return the text of the first description in an archive; empty if there is none."""
    for _number, member in zip(range(_MOST_FILES), opened, strict=False):
        if member.isreg() and is_description(member.name) and member.size <= _MOST_TEXT_BYTES:
            source = opened.extractfile(member)
            assert source is not None, "a plain file"
            text = b"".join(iter(functools.partial(source.read, _BLOCK), b""))
            return text.decode("utf-8", "replace")
    return ""


class _Blocks:
    """The archive, of which only as much is read at once as a block has.

    :mod:`tarfile` reads headers, whose sizes are in the archive, into memory as a whole.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek = stream.seek
        self.seekable = stream.seekable
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        """Read at most a block.

        :raises tarfile.ReadError: more is wanted.
        """
        if not 0 <= size <= _BLOCK:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        return self._stream.read(size)


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """Return the archive itself, when it is packed with one of the known programs."""
    head = raw.read(8)
    raw.seek(0)
    for magic, unpack in _PACKED:
        if head.startswith(magic):
            return cast("IO[bytes]", unpack(raw))
    return raw


def _take_out(
    opened: tarfile.TarFile, member: tarfile.TarInfo, target: IO[bytes], most: int | None
) -> None:
    """Write a file of an archive.

    :param most: its largest size in bytes; None for no limit but the free space.
    :raises NoSpace: it is larger, or there is not enough space.
    """
    source = opened.extractfile(member)
    assert source is not None, "a plain file"
    what = f"file {os.path.basename(target.name)}"
    if most is not None and member.size > most:
        raise free_space.NoSpace(
            f"{what} has {-(-member.size // _BLOCK)} MiB, but may have {most // _BLOCK} MiB by the"
            " description of the appliance"
        )
    # The types of the library have another one.
    extents = cast("Sequence[tuple[int, int]] | None", member.sparse)
    if extents is None:
        extents = [(0, member.size)]
        # Refused before anything is written, when that is clear.
        free_space.require(os.path.dirname(target.name), member.size, what)
    copy = free_space.SparseFile(target, what)
    for offset, size in extents:
        if not size:
            # An old form ends with empty parts.
            continue
        if not copy.size <= offset <= offset + size <= member.size:
            raise tarfile.ReadError("the parts of a sparse file are not in order")
        copy.skip(offset - copy.size)
        source.seek(offset)
        while size:
            data = source.read(min(size, _BLOCK))
            if not data:
                raise tarfile.ReadError("unexpected end of data")
            copy.write(data)
            size -= len(data)
    copy.skip(member.size - copy.size)
    copy.finish()


def is_description(path: str) -> bool:
    """Tell whether a file is a description, by its name."""
    return path.lower().endswith(_SUFFIX)


def _is_text(name: str) -> bool:
    return name.lower().endswith((_SUFFIX, ".mf", ".cert"))


def _wrong(archive: str, why: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"{archive} is not an OVA archive: {why}", errors.ECODE_INVAL)


def digest(path: str, kind: str) -> str:
    """Return the checksum of a file in hex; ``kind`` is SHA1, SHA256 or SHA512."""
    found = hashlib.new(kind.lower())
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def verify(description: str) -> bool:
    """Compare the files of an appliance with its manifest; return whether there is one.

    :param description: path of the ``.ovf`` file.
    :raises OpPrereqError: the manifest is not valid, or a file is missing or has another checksum.
    """
    path = f"{description[: -len(_SUFFIX)]}.mf"
    if not os.path.exists(path):
        return False
    try:
        if os.path.getsize(path) > _MOST_TEXT_BYTES:
            raise errors.ParseError("it is too large for a manifest")
        with open(path, encoding="utf-8", errors="replace") as stream:
            checksums = ovf.parse_manifest(stream.read())
    except errors.ParseError as err:
        raise errors.OpPrereqError(f"{path}: {err}", errors.ECODE_INVAL) from err
    for one in checksums:
        if one.file == os.path.basename(path):
            continue  # Its own checksum cannot be in it; some programs write one nevertheless.
        file = os.path.join(os.path.dirname(description), one.file)
        if not os.path.exists(file):
            file = os.path.join(os.path.dirname(description), _decoded(one.file))
        if not os.path.isfile(file):
            raise errors.OpPrereqError(
                f"{path} names {one.file}, which is missing", errors.ECODE_NOENT
            )
        if digest(file, one.kind) != one.digest:
            raise errors.OpPrereqError(
                f"{one.file} has another {one.kind} checksum than {path} says", errors.ECODE_INVAL
            )
    return True


def _decoded(name: str) -> str:
    """Return the name of a file for a URI, such as ``my%20disk.vmdk``; others stay as they are."""
    decoded = urllib.parse.unquote(name)
    return decoded if ovf.is_plain_name(decoded) else name


def manifest(directory: str, files: Sequence[str]) -> str:
    """Return the text of a manifest with SHA256 checksums."""
    return "".join(
        f"SHA256({name})= {digest(os.path.join(directory, name), 'SHA256')}\n" for name in files
    )


def pack(archive: str, directory: str, files: Sequence[str]) -> None:
    """Write an archive; the description comes first, as the standard wants it."""
    with tarfile.open(archive, "w:", format=tarfile.GNU_FORMAT) as opened:
        for name in files:
            member = opened.gettarinfo(os.path.join(directory, name), name)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o644
            with open(os.path.join(directory, name), "rb") as stream:
                opened.addfile(member, stream)
