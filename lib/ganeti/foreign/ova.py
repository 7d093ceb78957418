"""OVA archives, and the checksums of an appliance.

An archive comes from somewhere else: only plain files without a directory in their names are taken
out of it, and never more of them than an appliance has.

Source: DMTF DSP0243 1.1, section 5.3.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.parse
from collections.abc import Sequence

from ganeti import errors
from ganeti.foreign import ovf

_MOST_FILES = 100
_BLOCK = 1 << 20
_SUFFIX = ".ovf"


def extract(archive: str, directory: str) -> str:
    """Unpack an archive; return the path of its description.

    :raises OpPrereqError: the file is not an OVA archive, or cannot be trusted.
    """
    description = ""
    try:
        with tarfile.open(archive, "r:*") as opened:
            for number, member in enumerate(opened):
                name = member.name.removeprefix("./")
                if not member.isreg() or "/" in name or name.startswith("."):
                    raise _wrong(archive, f"{member.name!r:.80} is not a plain file")
                if number >= _MOST_FILES:
                    raise _wrong(archive, f"it has more than {_MOST_FILES} files")
                source = opened.extractfile(member)
                if source is None:
                    raise _wrong(archive, f"{member.name!r:.80} cannot be read")
                path = os.path.join(directory, name)
                with open(path, "xb") as target:
                    shutil.copyfileobj(source, target, _BLOCK)
                if is_description(name):
                    description = description or path
    except (tarfile.TarError, FileExistsError) as err:
        raise _wrong(archive, str(err)) from err
    if not description:
        raise _wrong(archive, "it has no description (.ovf)")
    return description


def is_description(path: str) -> bool:
    """Tell whether a file is a description, by its name."""
    return path.lower().endswith(_SUFFIX)


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
