"""Which physical volumes a new logical volume goes to: pure functions.

Seed 001 *Better LVM allocation*: when the parts of an instance's disks are spread over the physical
disks of a node, each of them that dies costs the instance a repair. So new volumes of an instance
go where its other volumes are, as long as there is room, and spill over when there is not. Which
volumes belong to the instance, their tags say. A volume that shall *replace* one (they have the
same last part in their names, ``disk0_data``) is not put beside it: that place may be what is
dying.

Without such a wish the emptiest physical volumes come first. With exclusive storage a volume gets
physical volumes of its own, which must be empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from ganeti import errors
from ganeti.objects.transfer import LvmPvInfo
from ganeti.storage.lvm.parse import LogicalVolume

#: Share of an exclusive physical volume that LVM's own records and rounding may take.
MARGIN = 0.01
RESERVED = 0.02

# Volumes which take another one's place, or have lost theirs.
_REPLACED = re.compile(r"_(?:new|old|replaced-\d+)$")


def usable(physical: Iterable[LvmPvInfo], group: str) -> list[LvmPvInfo]:
    """Physical volumes of a group that take new volumes, emptiest first.

    LVM cannot be told of names with a colon, so these are left out.
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
    """Physical volumes which hold the other volumes of the owner, most used first.

    :returns: nothing when one of them is to be replaced by this one.
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
    """What a volume is for an instance: ``disk0_data``; also while it is being replaced."""
    return _REPLACED.sub("", name.rpartition(".")[2])


def candidates(
    physical: Sequence[LvmPvInfo], near: Sequence[str], size_mib: int, stripes: int
) -> list[tuple[int, tuple[str, ...]]]:
    """Attempts in order of preference: number of stripes, and physical volumes to take from.

    :param physical: those that may be used, emptiest first.
    :param near: where the volume would best be.
    """
    free = {pv.name: pv.free for pv in physical}
    preferred = [name for name in near if name in free]
    ordered = [*preferred, *(pv.name for pv in physical if pv.name not in preferred)]
    attempts: list[tuple[int, tuple[str, ...]]] = []
    for count in range(min(stripes, len(ordered)), 0, -1):
        part_mib = math.ceil(size_mib / count)
        roomy = [name for name in ordered if free[name] >= part_mib]
        if len(roomy) >= count:
            # On as few as possible, the preferred ones first.
            attempts.append((count, tuple(roomy[:count])))
        attempts.append((count, tuple(ordered)))
    return attempts


def exclusive(physical: Sequence[LvmPvInfo], size_mib: int, spindles: int | None) -> list[str]:
    """Empty physical volumes for a volume that shares none.

    :param spindles: how many it shall have; None for as few as possible.
    :raises StorageError: there are not enough.
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
