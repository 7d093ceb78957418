"""The space of a node for disks: storage units, and what is left while instances come to it.

A disk has one *desired storage unit*, and the disks of an instance must fit theirs one after the
other; the sum of all free space does not count. Source: *HTools support for multiple storage units
per node*, sections *Definitions* and *Interpretation*.
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti.htools.instance import Instance

#: A desired storage unit: its kind and its key.
Wanted = tuple[str, str]

#: Kinds of units which take the space of one volume group.
_LVM_KINDS = ("drbd8", "lvm-vg")


class StorageUnit:
    """A storage unit of a node: where disks of one kind lie (:doc:`htools`, *Storage units*).

    :ivar total: its size in MiB.
    :ivar free: free space in MiB.
    """

    __slots__ = ("arguments", "free", "total")

    def __init__(self, total: int, free: int, arguments: tuple[str, ...] = ()) -> None:
        self.total = total
        self.free = free
        self.arguments = arguments


def sharing(wanted: Wanted | None) -> tuple[Wanted, ...]:
    """Return the units whose free space a disk takes: all of its volume group, or its own."""
    if wanted is None:
        return ()
    kind, key = wanted
    return tuple((one, key) for one in _LVM_KINDS) if kind in _LVM_KINDS else (wanted,)


def _needed(instance: Instance) -> dict[Wanted | None, int]:
    """MiB which an instance takes of each desired storage unit."""
    needed: dict[Wanted | None, int] = {}
    for disk in instance.disks:
        needed[disk.unit] = needed.get(disk.unit, 0) + disk.size
    return needed


def units_fit(storage: Mapping[Wanted, StorageUnit], instance: Instance) -> bool:
    """Return True if every disk of an instance fits its storage unit, one after the other."""
    return not instance.takes_units or lacking_unit(storage, instance) is None


def lacking_unit(
    storage: Mapping[Wanted, StorageUnit], instance: Instance
) -> tuple[Wanted | None, int, int | None] | None:
    """Return the first storage unit which disks of an instance do not fit; None if there is none.

    :returns: the unit, MiB which the disks need of it, and MiB which are free; None for the latter
        if the node does not have the unit.
    """
    for wanted, size in _needed(instance).items():
        unit = None if wanted is None else storage.get(wanted)
        if unit is None or unit.free < size:
            return wanted, size, None if unit is None else unit.free
    return None


def units_after(
    storage: dict[Wanted, StorageUnit], instance: Instance, sign: int
) -> dict[Wanted, StorageUnit]:
    """Return the units of a node after an instance came to it.

    :param sign: 1; or -1 when the instance leaves the node.
    """
    if not instance.takes_units:
        return storage
    after = dict(storage)
    for disk in instance.disks:
        for wanted in sharing(disk.unit):
            unit = after.get(wanted)
            if unit is not None:
                after[wanted] = StorageUnit(
                    unit.total, unit.free - sign * disk.size, unit.arguments
                )
    return after


class Space:
    """What is left on a node while instances are installed on it, one after the other.

    :param disk: MiB of free disk space, which count when units are not known.
    :param storage: its storage units; None when they are not known.
    """

    __slots__ = ("_disk", "_units")

    def __init__(self, disk: int, storage: Mapping[Wanted, StorageUnit] | None) -> None:
        self._disk = disk
        self._units = (
            None if storage is None else {wanted: unit.free for wanted, unit in storage.items()}
        )

    def take(self, instance: Instance) -> bool:
        """Take the space for an instance; without enough of it take none, and return false."""
        if self._units is None:
            if instance.local_storage:
                if self._disk <= instance.disk:
                    return False
                self._disk -= instance.disk
            return True
        if not instance.takes_units:
            return True
        needed = _needed(instance)
        for wanted, size in needed.items():
            if wanted is None or self._units.get(wanted, -1) < size:
                return False
        for wanted, size in needed.items():
            for one in sharing(wanted):
                if one in self._units:
                    self._units[one] -= size
        return True
