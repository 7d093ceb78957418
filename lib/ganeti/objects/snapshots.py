"""Names of snapshots: what both the master and the nodes know about them.

A snapshot lies beside the volume (or file) it was made of, and is called ``<volume>.snap.<name>``.
The configuration does not know it: whoever wants to know looks at the node. What an export makes
for itself is called ``<volume>.snap`` and is none of these.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import NamedTuple

from ganeti import errors
from ganeti.constants.disk import DRBD8
from ganeti.objects.disk import Disk

SEPARATOR = ".snap."
#: Volume, separator and name must fit in the 127 characters which LVM allows.
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
# The table of differences needs 16 bytes for each block of 4096, and some space for itself.
_TABLE_PART = 200
_TABLE_MIN_MIB = 8


class Found(NamedTuple):
    """A snapshot as its node sees it.

    :ivar size_bytes: of what can be read from it.
    :ivar made: seconds since 1970; None when the storage does not tell.
    :ivar usable: False when its content is lost.
    """

    name: str
    size_bytes: int
    made: float | None
    usable: bool


def wrong_name(name: str) -> str | None:
    """Why a snapshot cannot be called so, or None."""
    if not _NAME.fullmatch(name):
        return (
            f"{name!r:.60} is no name for a snapshot: it takes letters, digits, '-', '_' and"
            f" '.', a letter or digit first, at most {NAME_MAX_CHARS}"
        )
    if ".snap" in name:
        return f"a snapshot cannot be called {name}: '.snap' separates it from its volume"
    for part in _RESERVED:
        if part in name:
            return f"a snapshot cannot be called {name}: LVM keeps '{part}' for itself"
    return None


def default_name(now: float) -> str:
    """The time (UTC) as a name, such as ``20261121-101500``."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))


def volume_name(volume: str, name: str) -> str:
    """What the snapshot of a volume is called."""
    return f"{volume}{SEPARATOR}{name}"


def split(volume: str) -> tuple[str, str] | None:
    """Volume and name of a snapshot; None for a volume that is no snapshot."""
    origin, separator, name = volume.rpartition(SEPARATOR)
    if not (origin and separator) or wrong_name(name) is not None:
        return None
    return origin, name


def stored(disk: Disk) -> Disk:
    """The device with the content of a disk: of a mirrored one, the data volume."""
    return disk.children[0] if disk.dev_type == DRBD8 and disk.children else disk


def as_disk(disk: Disk, name: str) -> Disk:
    """A snapshot of a disk as a disk of its own, as node calls want it.

    :raises ParameterError: nothing can be called so.
    """
    problem = wrong_name(name)
    if problem is not None:
        raise errors.ParameterError(problem)
    below = stored(disk)
    kind, volume = below.logical_id
    return dataclasses.replace(
        below,
        logical_id=(kind, volume_name(str(volume), name)),
        iv_name="",
        children=(),
        dynamic_params=None,
    )


def room_mib(size_mib: int) -> int:
    """What a snapshot takes of a volume group to be good for ever, though all blocks of the disk
    are overwritten; LVM takes less when it needs less."""
    return size_mib + -(-size_mib // _TABLE_PART) + _TABLE_MIN_MIB
