"""Storage units: which pools of disk space a node has, and how full they are.

Seed 002 *HTools support for multiple storage units per node*. A unit is named by its kind, a key
and extra arguments: ``["lvm-vg", "xenvg", [False]]`` is a volume group for plain disks, with the
flag of exclusive storage; ``["drbd8", "xenvg", []]`` the same group for mirrored disks; then there
are ``file``, ``sharedfile`` and ``gluster`` with their directory. What several templates take from
one pool is listed once for each of them. Pure functions; sizes in MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ganeti.constants import disk as disk_c

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.disk import Disk

#: How the kind of mirrored volumes is called, which on a node is a volume group like any other.
MIRRORED = "drbd8"


def volume_groups(cluster: Cluster, disks: Iterable[Disk]) -> list[str]:
    """Volume groups which the cluster uses: its own, that of metadata, those of present disks."""
    if not disk_c.LVM_BASED & set(cluster.enabled_disk_templates):
        return []
    found = {cluster.volume_group_name: None} if cluster.volume_group_name else {}
    for disk in disks:
        for device in disk.walk():
            if device.dev_type == disk_c.PLAIN and device.logical_id:
                found[str(device.logical_id[0])] = None
    return [name for name in found if name]


def units(cluster: Cluster, groups: Iterable[str], *, exclusive: bool) -> list[list[Any]]:
    """The units of a node with these volume groups: ``[kind, key, arguments]`` each."""
    enabled = set(cluster.enabled_disk_templates)
    found: list[list[Any]] = []
    for group in groups:
        if disk_c.DRBD8 in enabled:
            found.append([MIRRORED, group, []])
        if disk_c.PLAIN in enabled:
            found.append([disk_c.ST_LVM_VG, group, [exclusive]])
    for template, kind, directory in (
        (disk_c.FILE, disk_c.ST_FILE, cluster.file_storage_dir),
        (disk_c.SHARED_FILE, disk_c.ST_SHARED_FILE, cluster.shared_file_storage_dir),
        (disk_c.GLUSTER, disk_c.ST_GLUSTER, cluster.gluster_storage_dir),
    ):
        if template in enabled and directory:
            found.append([kind, directory, []])
    return found


def questions(wanted: Iterable[list[Any]], *, exclusive: bool) -> list[list[Any]]:
    """What to ask the node to learn about units: each pool once."""
    asked: dict[tuple[str, str], list[Any]] = {}
    for kind, key, arguments in wanted:
        if kind == MIRRORED:
            kind, arguments = disk_c.ST_LVM_VG, [exclusive]
        asked[kind, key] = [kind, key, arguments]
    return list(asked.values())


def described(
    wanted: Iterable[list[Any]], answers: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Units with their space, as allocators are told; what the node does not know is left out."""
    known = {(unit.get("type"), unit.get("name")): unit for unit in answers}
    found = []
    for kind, key, arguments in wanted:
        pool = known.get((disk_c.ST_LVM_VG if kind == MIRRORED else kind, key), {})
        free, total = pool.get("storage_free"), pool.get("storage_size")
        if isinstance(free, int) and isinstance(total, int):
            found.append({"sunit": [kind, key, arguments], "free": free, "total": total})
    return found
