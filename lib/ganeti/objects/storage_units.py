"""Storage units of a node, and their free space.

A unit is described by its kind, a key and further arguments: ``["lvm-vg", "xenvg", [False]]`` is a
volume group for plain disks, with the flag of exclusive storage; ``["drbd8", "xenvg", []]`` the
same group for mirrored disks; ``file``, ``sharedfile`` and ``gluster`` have their directory as key.
A pool which several templates use is listed once for each of them. All functions are pure; sizes
are in MiB.

Source: Ganeti storage units design, *HTools support for multiple storage units per node*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ganeti.constants import disk as disk_c
from ganeti.objects import disk_templates

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk

#: ``[kind, key, arguments]``
StorageUnit = list[Any]


class UnitSpace(TypedDict):
    """A storage unit with its space in MiB, as allocators get it."""

    sunit: StorageUnit
    free: int
    total: int


# The last table of disks, and the volume groups in it. Tables of the configuration never change.
_known: tuple[Mapping[str, Disk], tuple[str, ...]] | None = None


def volume_groups(
    cluster: Cluster, disks: Mapping[str, Disk], more: Iterable[str] = ()
) -> list[str]:
    """Return the names of the volume groups of the cluster and of the given disks.

    :param disks: the table of a configuration, which does not change; the answer for the last one
        is kept, because a list of one node would read all disks otherwise.
    :param more: the names of others, perhaps without a disk.
    """
    global _known
    if not disk_templates.LVM_BASED & set(cluster.enabled_disk_templates):
        return []
    known = _known
    if known is None or known[0] is not disks:
        known = _known = (disks, _groups_of(disks.values()))
    found = [cluster.volume_group_name] if cluster.volume_group_name else []
    return list(dict.fromkeys([*found, *known[1], *more]))


def _groups_of(disks: Iterable[Disk]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for disk in disks:
        for device in disk.walk() if disk.children else (disk,):
            if device.is_volume and device.logical_id:
                group = device.volume_id.group
                if group:
                    found[group] = None
    return tuple(found)


def units(cluster: Cluster, groups: Iterable[str], *, exclusive: bool) -> list[StorageUnit]:
    """Return the storage units of a node with these volume groups."""
    enabled = set(cluster.enabled_disk_templates)
    found: list[StorageUnit] = []
    for group in groups:
        if disk_c.DRBD8 in enabled:
            found.append([disk_c.UNIT_DRBD, group, []])
        if disk_c.PLAIN in enabled:
            found.append([disk_c.ST_LVM_VG, group, [exclusive]])
    for template in disk_templates.directory_fields():
        directory = cluster.disk_directory(template)
        if template in enabled and directory:
            found.append([disk_templates.of(template).unit_kind, directory, []])
    return found


def questions(wanted: Iterable[StorageUnit], *, exclusive: bool) -> list[StorageUnit]:
    """Return the pools of storage units, each once, as arguments of a node call."""
    asked: dict[tuple[str, str], StorageUnit] = {}
    for kind, key, arguments in wanted:
        if kind == disk_c.UNIT_DRBD:
            kind, arguments = disk_c.ST_LVM_VG, [exclusive]
        asked[kind, key] = [kind, key, arguments]
    return list(asked.values())


def described(
    wanted: Iterable[StorageUnit], answers: Iterable[Mapping[str, Any]]
) -> list[UnitSpace]:
    """Return storage units with their space, for allocators; units without an answer are left out.

    :param answers: the pools in the answer of the node.
    """
    known = {(unit.get("type"), unit.get("name")): unit for unit in answers}
    found: list[UnitSpace] = []
    for kind, key, arguments in wanted:
        pool = known.get((disk_c.ST_LVM_VG if kind == disk_c.UNIT_DRBD else kind, key), {})
        free, total = pool.get("storage_free"), pool.get("storage_size")
        if isinstance(free, int) and isinstance(total, int):
            found.append({"sunit": [kind, key, arguments], "free": free, "total": total})
    return found
