"""Snapshots: their names, and the space which they need; used by the master and the nodes.

A snapshot is beside the volume (or file) from which it was made, and is called
``<volume>.snap.<name>``. Snapshots are not in the configuration; the master asks the nodes for
them. The temporary snapshot of an export is called ``<volume>.snap`` and is not one of these.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable
from typing import NamedTuple

from ganeti import errors
from ganeti.objects.disk import Disk

SEPARATOR = ".snap."
#: The beginning of the tag which an instance has while a disk of it is being restored; the name of
#: the snapshot, a colon and the UUID of the disk follow.
RESTORE_TAG = "snapshot-restore:"
#: Volume, separator and name together may have the 127 characters which LVM allows.
NAME_MAX_CHARS = 32

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_MAX_CHARS - 1}}}")
# LVM uses these within the names of volumes of its own.
_RESERVED = (
    "_cdata",
    "_cmeta",
    "_corig",
    "_cpool",
    "_cvol",
    "_imeta",
    "_iorig",
    "_mimage",
    "_mlog",
    "_pmspare",
    "_rimage",
    "_rmeta",
    "_tdata",
    "_tmeta",
    "_vdata",
    "_vorigin",
    "_wcorig",
)
# The table of changed blocks needs 16 bytes for each block of 4096, and some space for itself.
_TABLE_PART = 200
_TABLE_MIN_MIB = 8


class SnapshotInfo(NamedTuple):
    """A snapshot on a node.

    :ivar size_bytes: size of its content.
    :ivar made: its time in seconds since 1970; None if the storage does not store it.
    :ivar usable: False if its content is lost.
    """

    name: str
    size_bytes: int
    made: float | None
    usable: bool


def wrong_name(name: str) -> str | None:
    """Return the reason why a snapshot cannot have a name, or None."""
    if not _NAME.fullmatch(name):
        return (
            f"{name!r:.60} cannot be the name of a snapshot. Allowed are at most {NAME_MAX_CHARS}"
            " letters, digits, '-', '_' and '.', a letter or digit first."
        )
    if ".snap" in name:
        return f"a snapshot cannot be called {name}: '.snap' separates it from its volume"
    for part in _RESERVED:
        if part in name:
            return f"a snapshot cannot be called {name}: LVM keeps '{part}' for itself"
    return None


def default_name(now: float) -> str:
    """Return a time as name, in UTC: ``20261121-101500``.

    :param now: the time in seconds since 1970.
    """
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))


def volume_name(volume: str, name: str) -> str:
    """Return the name of the volume of a snapshot."""
    return f"{volume}{SEPARATOR}{name}"


def split(volume: str) -> tuple[str, str] | None:
    """Return volume and name of a snapshot; None for a volume which is not a snapshot."""
    origin, separator, name = volume.rpartition(SEPARATOR)
    if not (origin and separator) or wrong_name(name) is not None:
        return None
    return origin, name


def partly_restored(tags: Iterable[str]) -> list[str]:
    """Return the names of snapshots from which disks of an instance were not completely restored.

    :param tags: of the instance.
    """
    found = {
        tag.removeprefix(RESTORE_TAG).rpartition(":")[0]
        for tag in tags
        if tag.startswith(RESTORE_TAG)
    }
    return sorted(found)


def as_disk(disk: Disk, name: str) -> Disk:
    """Return a snapshot of a disk as a disk of its own, for node calls.

    :raises ParameterError: no snapshot can have this name.
    """
    problem = wrong_name(name)
    if problem is not None:
        raise errors.ParameterError(problem)
    below = disk.data_device
    place, volume = below.logical_id
    return dataclasses.replace(
        below,
        logical_id=(place, volume_name(str(volume), name)),
        iv_name="",
        children=(),
        dynamic_params=None,
    )


def volume_size_mib(size_mib: int) -> int:
    """Return the space in MiB which a snapshot needs in a volume group, at most.

    It suffices even if all blocks of the disk are overwritten later.
    """
    return size_mib + -(-size_mib // _TABLE_PART) + _TABLE_MIN_MIB
