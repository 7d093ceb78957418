"""The catalogue of disk images from which instances are installed.

It is a directory, the same on each node: for each image an entry ``NAME.json``, and the image
itself in ``SHA256.FORMAT``, which several entries may name. An entry is written after its image is
complete, and by one rename, so an interrupted program leaves at most files which no entry names.
:func:`sweep` removes them.

Source: ``doc/design-images.rst``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import filelock, fs, suggest
from ganeti.wire import json

ENTRY_SUFFIX = ".json"
FORMATS = ("raw", "qcow2")
#: Name of an image: a word without "/" and ":", so that it is neither a path nor an address.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", re.ASCII)
#: Begin and end of the names of unfinished files.
PART_PREFIX, PART_SUFFIX = ".new-", ".part"
_DATA = re.compile(r"[0-9a-f]{64}\.(raw|qcow2)", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LOCK = ".lock"
_NUMBERS = frozenset(("size", "file_size", "fetched"))


class Image(NamedTuple):
    """One entry of the catalogue.

    :ivar size: size of the disk in the image, in bytes.
    :ivar file_size: size of the file, in bytes.
    :ivar sha256: checksum of the file, 64 hexadecimal digits.
    :ivar source: the path or the address from which the image was fetched.
    :ivar verified: what proved the content: ``signature``, ``checksum``, or nothing.
    :ivar fetched: when it was fetched, in seconds since 1970.
    """

    name: str
    format: str
    size: int
    file_size: int
    sha256: str
    source: str
    verified: str
    fetched: int

    @property
    def data_file(self) -> str:
        """The name of the file with the image, in the directory of the catalogue."""
        return f"{self.sha256}.{self.format}"

    @property
    def entry_file(self) -> str:
        """The name of the entry, in the directory of the catalogue."""
        return self.name + ENTRY_SUFFIX


def directory() -> str:
    """Return the directory of the catalogue on this node."""
    return paths.current().images_dir


def lock(top: str) -> filelock.FileLock:
    """Take the lock of those who change the catalogue; makes the directory when it is missing.

    :raises LockError: another program changes the catalogue.
    :raises OSError: the directory cannot be made.
    """
    fs.make_dirs(top, 0o755)
    found = filelock.FileLock(f"{top}/{_LOCK}")
    try:
        found.acquire(timeout_s=0)
    except errors.LockError as err:
        found.close()
        raise errors.LockError(
            "another 'gnt-os images' changes the catalogue now. Try again when it has ended."
        ) from err
    return found


def require_name(name: str) -> str:
    """Return the name when an image may have it.

    :raises OpPrereqError: the name has other characters.
    """
    if not NAME.fullmatch(name):
        raise errors.OpPrereqError(
            f"'{name:.120}' cannot be the name of an image. A name has only letters, digits and"
            " . _ + -, and begins with a letter or a digit.",
            errors.ECODE_INVAL,
        )
    return name


def parse_entry(text: str) -> Image:
    """Read an entry.

    :raises ParseError: the text is not an entry; the message says why.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise errors.ParseError("it is not an object")
    values: dict[str, Any] = {}
    for key in Image._fields:
        value = found.get(key)
        if not isinstance(value, int if key in _NUMBERS else str) or isinstance(value, bool):
            raise errors.ParseError(f"{key} is missing or has the wrong type")
        if isinstance(value, int) and value < 0:
            raise errors.ParseError(f"{key} is below zero")
        values[key] = value
    image = Image(**values)
    if not NAME.fullmatch(image.name) or image.format not in FORMATS:
        raise errors.ParseError("the name or the format is wrong")
    if not _SHA256.fullmatch(image.sha256):
        raise errors.ParseError("the checksum is wrong")
    return image


def read(top: str) -> tuple[dict[str, Image], list[str]]:
    """Read all entries.

    :returns: the images by name, and a text for each entry which cannot be used.
    :raises OSError: the directory cannot be read; a missing one is an empty catalogue.
    """
    found: dict[str, Image] = {}
    problems = []
    try:
        names = sorted(os.listdir(top))
    except FileNotFoundError:
        return {}, []
    for name in names:
        if name.startswith(".") or not name.endswith(ENTRY_SUFFIX):
            continue
        try:
            image = parse_entry(fs.read_file(f"{top}/{name}"))
            if image.entry_file != name:
                raise errors.ParseError(f"it is the entry of image {image.name}")
        except (OSError, errors.ParseError, UnicodeDecodeError) as err:
            problems.append(f"entry {top}/{name} cannot be used: {err}")
            continue
        found[image.name] = image
    return found, problems


def require(images: Mapping[str, Image], name: str) -> Image:
    """Return the image of a name.

    :raises OpPrereqError: there is no such image; the message has a hint.
    """
    if name in images:
        return images[name]
    hint = suggest.did_you_mean(name, images)
    raise errors.OpPrereqError(
        f"there is no image '{name:.120}'.{hint} 'gnt-os images list' shows all,"
        f" 'gnt-os images fetch NAME SOURCE' adds one.",
        errors.ECODE_NOENT,
    )


def add(top: str, image: Image, part: str) -> None:
    """Put a complete file into the catalogue, in place of an image with the same name.

    The caller holds the lock.

    :param part: path of the file, in the directory of the catalogue; it is renamed.
    :raises OSError: the file or its entry cannot be written.
    """
    os.chmod(part, 0o644)
    os.rename(part, f"{top}/{image.data_file}")
    fs.flush_dir(top)
    fs.write_file(f"{top}/{image.entry_file}", json.dumps_pretty(image._asdict()), mode=0o644)
    sweep(top)


def remove(top: str, image: Image) -> None:
    """Remove an image from the catalogue. The caller holds the lock.

    :raises OSError: the entry cannot be removed.
    """
    fs.remove_file(f"{top}/{image.entry_file}")
    sweep(top)


def sweep(top: str) -> list[str]:
    """Remove unfinished files, and images which no entry names. The caller holds the lock.

    Nothing is removed while an entry cannot be read, because it may name an image.

    :returns: the names of the removed files.
    """
    images, problems = read(top)
    wanted = {image.data_file for image in images.values()}
    gone = []
    for name in sorted(os.listdir(top)):
        if is_part(name) or (_DATA.fullmatch(name) and name not in wanted and not problems):
            fs.remove_file(f"{top}/{name}")
            gone.append(name)
    return gone


def is_part(name: str) -> bool:
    """Return True if a file of the directory is an unfinished one."""
    return name.startswith(PART_PREFIX) and name.endswith(PART_SUFFIX)


def surplus(names: list[str], images: Mapping[str, Image]) -> list[str]:
    """Return those files of a node's directory which belong to a catalogue, but not to this one."""
    wanted = {name for image in images.values() for name in (image.data_file, image.entry_file)}
    return [
        name
        for name in names
        if name not in wanted
        and (
            is_part(name)
            or _DATA.fullmatch(name)
            or (name.endswith(ENTRY_SUFFIX) and NAME.fullmatch(name))
        )
    ]
