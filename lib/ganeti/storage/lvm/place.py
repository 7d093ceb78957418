"""Choosing the physical volumes of a new logical volume; pure functions.

When the volumes of an instance are spread over all physical disks of a node, the failure of any of
these disks affects the instance. So a new volume goes to the physical volumes which hold the other
volumes of the instance, if they have enough free space, and else to others. Tags say which volumes
belong to the instance. A volume which *replaces* another one (the last parts of their names are the
same, such as ``disk0_data``) is not put on the same physical volume, which may be failing.

Without other volumes of the instance, the physical volumes with most free space come first. With
exclusive storage a volume gets empty physical volumes for itself.

Source: Ganeti design 2.0, *Better LVM allocation*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from ganeti import errors
from ganeti.objects.transfer import LvmPvInfo
from ganeti.storage.lvm.parse import LogicalVolume

#: Shares of an exclusive physical volume for LVM's metadata and for rounding.
MARGIN = 0.01
RESERVED = 0.02

# Ends of the names of volumes which replace another one, or were replaced.
_REPLACED = re.compile(r"_(?:new|old|replaced-\d+)$")


def usable(physical: Iterable[LvmPvInfo], group: str) -> list[LvmPvInfo]:
    """Return the physical volumes of a group which accept new volumes, those with most free space
    first.

    Names with a colon are left out: the command line of LVM gives the colon a meaning.
    """
    found = [
        pv
        for pv in physical
        if pv.vg_name == group
        and pv.attributes.startswith("a")
        and ":" not in pv.name
        and not pv.name.startswith("[")
    ]
    return sorted(found, key=lambda pv: (-pv.free, pv.name))


def neighbours(
    volumes: Iterable[LogicalVolume], group: str, name: str, owner_tag: str
) -> list[str]:
    """Return the physical volumes which hold the other volumes of the owner, most used first.

    :returns: an empty list when the new volume replaces one of them.
    """
    role = _role(name)
    counts: dict[str, int] = {}
    for volume in volumes:
        if volume.group != group or owner_tag not in volume.tags or volume.name == name:
            continue
        if _role(volume.name) == role:
            return []
        for device in volume.devices:
            counts[device] = counts.get(device, 0) + 1
    return sorted(counts, key=lambda device: (-counts[device], device))


def _role(name: str) -> str:
    """Return the role of a volume for its instance, such as ``disk0_data``.

    It is the same when the volume is replaced.
    """
    return _REPLACED.sub("", name.rpartition(".")[2])


def candidates(
    physical: Sequence[LvmPvInfo], near: Sequence[str], size_mib: int, stripes: int
) -> list[tuple[int, tuple[str, ...]]]:
    """Attempts in the order of preference: number of stripes, and names of physical volumes.

    :param physical: those which may be used, with most free space first.
    :param near: names of the preferred ones.
    """
    free = {pv.name: pv.free for pv in physical}
    preferred = [name for name in near if name in free]
    ordered = [*preferred, *(pv.name for pv in physical if pv.name not in preferred)]
    attempts: list[tuple[int, tuple[str, ...]]] = []
    for count in range(min(stripes, len(ordered)), 0, -1):
        part_mib = math.ceil(size_mib / count)
        sufficient = [name for name in ordered if free[name] >= part_mib]
        if len(sufficient) >= count:
            # On as few as possible, the preferred ones first.
            attempts.append((count, tuple(sufficient[:count])))
        attempts.append((count, tuple(ordered)))
    return attempts


def exclusive(physical: Sequence[LvmPvInfo], size_mib: int, spindles: int | None) -> list[str]:
    """Return the empty physical volumes for a volume which shares none.

    :param spindles: number of physical volumes; None for as few as possible.
    :raises StorageError: too few are empty, or the volume needs more than ``spindles``.
    """
    empty = [pv for pv in physical if not pv.lv_list and pv.free >= pv.size * (1 - RESERVED)]
    if not empty:
        raise errors.StorageError("no physical volume is empty")
    smallest_mib = min(pv.size for pv in empty)
    needed = math.ceil(size_mib / (smallest_mib * (1 - MARGIN - RESERVED)))
    wanted = needed if spindles is None else spindles
    if needed > wanted:
        raise errors.StorageError(
            f"{size_mib} MiB need {needed} physical volumes of {smallest_mib:.0f} MiB, more than"
            f" the {wanted} spindles of the disk"
        )
    if len(empty) < wanted:
        raise errors.StorageError(
            f"{wanted} empty physical volumes are needed, there are {len(empty)}"
        )
    return [pv.name for pv in empty[:wanted]]
