"""Inventory of a queue directory: short enough to be sent and compared with another one.

A master candidate which was away does not know what it missed, and a master daemon which has just
started does not know it either. So the candidate sends the size and checksum of each live job, and
one checksum for each part of the archive (:func:`take`); :func:`compare` finds the files which have
to be sent. ``gnt-cluster verify`` uses the same functions.

Only the published files of a queue directory count (Ganeti design 2.0, *Queue structure*); all
other files are ignored.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.jobstore.files import ARCHIVE, DRAIN, SERIAL, VERSION, ids_in, job_file
from ganeti.utils import fs

#: In place of the digest of a file which cannot be read.
UNREADABLE = "unreadable"

_PLAIN = (SERIAL, VERSION)


class Inventory(NamedTuple):
    """Content of a queue directory.

    :ivar live: digest of each live job's file, by job id.
    :ivar plain: content of ``serial`` and ``version``; None for one that does not exist.
    :ivar drained: whether the queue is marked to take no new jobs.
    :ivar archive: digest of each part of the archive, by its number.
    :ivar archived: size in bytes of each job's file, by id, in the wanted parts, by number.
    """

    live: dict[int, str]
    plain: dict[str, str | None]
    drained: bool
    archive: dict[int, str]
    archived: dict[int, dict[int, int]]

    def to_wire(self) -> dict[str, Any]:
        """Return the inventory as JSON values, with text as keys."""
        return {
            "live": {str(job_id): digest for job_id, digest in self.live.items()},
            "plain": self.plain,
            "drained": self.drained,
            "archive": {str(part): digest for part, digest in self.archive.items()},
            "archived": {
                str(part): {str(job_id): size for job_id, size in sizes.items()}
                for part, sizes in self.archived.items()
            },
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Inventory:
        """Read the result of :meth:`to_wire`.

        :raises errors.ParseError: the value is not an inventory.
        """
        try:
            return cls(
                {int(job_id): str(digest) for job_id, digest in wire["live"].items()},
                {name: wire["plain"][name] for name in _PLAIN},
                bool(wire["drained"]),
                {int(part): str(digest) for part, digest in wire["archive"].items()},
                {
                    int(part): {int(job_id): int(size) for job_id, size in sizes.items()}
                    for part, sizes in wire["archived"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise errors.ParseError(
                f"not the inventory of a job queue: {type(err).__name__} {err}"
            ) from err


class Difference(NamedTuple):
    """The differences between a copy and its original.

    :ivar files: names of missing or different files: live jobs, ``serial`` and ``version``.
    :ivar moved: ids of jobs which are live in the copy and archived in the original.
    :ivar parts: numbers of the parts of the archive which differ.
    :ivar unknown: ids of jobs which are live in the copy and missing in the original.
    """

    files: list[str]
    moved: list[int]
    parts: list[int]
    unknown: list[int]


def digest(content: bytes) -> str:
    """Return size and checksum of a file, as text."""
    return f"{len(content):x}-{zlib.crc32(content):08x}"


def take(directory: str, parts: Iterable[int] = ()) -> Inventory:
    """Make the inventory of a queue directory; a missing directory counts as empty.

    Reads every live job, and only the names and sizes of archived ones.

    :param parts: parts of the archive whose jobs shall be named.
    :raises OSError: the directory cannot be read.
    """
    live = {}
    for job_id in _ids(directory):
        try:
            content = _read(f"{directory}/{job_file(job_id)}")
        except OSError:
            # One damaged file must not keep the others from being compared.
            live[job_id] = UNREADABLE
            continue
        if content is not None:  # else archived meanwhile
            live[job_id] = digest(content)
    plain = {}
    for name in _PLAIN:
        content = _read(f"{directory}/{name}")
        plain[name] = None if content is None else content.decode("utf-8", "surrogateescape")
    archive = {
        part: sizes for part in _parts(directory) if (sizes := sizes_of_part(directory, part))
    }
    return Inventory(
        live,
        plain,
        os.path.exists(f"{directory}/{DRAIN}"),
        {part: part_digest(sizes) for part, sizes in archive.items()},
        {part: archive.get(part, {}) for part in parts},
    )


def sizes_of_part(directory: str, part: int) -> dict[int, int]:
    """Return the size in bytes of each job's file in a part of the archive, by job id.

    :raises OSError: it cannot be read.
    """
    sizes = {}
    for job_id in _ids(f"{directory}/{ARCHIVE}/{part}"):
        try:
            sizes[job_id] = os.stat(f"{directory}/{ARCHIVE}/{part}/{job_file(job_id)}").st_size
        except FileNotFoundError:
            continue
    return sizes


def compare(here: Inventory, there: Inventory, is_archived: Callable[[int], bool]) -> Difference:
    """Compare an original (`here`) with its copy (`there`).

    :param is_archived: whether a job which is live only in the copy is archived in the original.
    """
    files = [
        name
        for name in _PLAIN
        if here.plain[name] is not None and here.plain[name] != there.plain[name]
    ]
    files += [
        job_file(job_id)
        for job_id, found in sorted(here.live.items())
        if there.live.get(job_id) != found
    ]
    moved: list[int] = []
    unknown: list[int] = []
    for job_id in sorted(there.live.keys() - here.live.keys()):
        (moved if is_archived(job_id) else unknown).append(job_id)
    parts = [
        part for part, found in sorted(here.archive.items()) if there.archive.get(part) != found
    ]
    return Difference(files, moved, parts, unknown)


def part_digest(sizes: Mapping[int, int]) -> str:
    """Return the digest of a part of the archive.

    :param sizes: size in bytes of each job's file, by job id.
    """
    text = "".join(f"{job_id} {size}\n" for job_id, size in sorted(sizes.items()))
    return digest(text.encode("ascii"))


def _parts(directory: str) -> list[int]:
    try:
        names = os.listdir(f"{directory}/{ARCHIVE}")
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def _ids(directory: str) -> list[int]:
    try:
        return ids_in(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: str) -> bytes | None:
    try:
        return fs.read_bytes(path)
    except FileNotFoundError:
        return None
