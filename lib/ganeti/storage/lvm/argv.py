"""Commands of LVM; pure functions.

Sizes are in MiB, unless the name of a parameter or field says otherwise. Source: lvm(8) and the
manual pages of the single commands, LVM 2.03.
"""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = "|"
VOLUME_FIELDS = (
    "vg_name",
    "lv_name",
    "lv_size",
    "lv_attr",
    "lv_kernel_major",
    "lv_kernel_minor",
    "vg_extent_size",
    "stripes",
    "lv_tags",
    "devices",
)
PHYSICAL_FIELDS = ("pv_name", "vg_name", "pv_free", "pv_attr", "pv_size", "lv_name")
GROUP_FIELDS = ("vg_name", "vg_free", "vg_attr", "vg_size")
SNAPSHOT_FIELDS = ("vg_name", "lv_name", "origin", "origin_size", "lv_attr", "lv_time")
NODE_LIST_FIELDS = ("vg_name", "lv_name", "lv_size", "lv_attr")

#: Allocation policies for an extension, in the order of the attempts: next to the end of the
#: volume, on the same physical volume, anywhere.
GROW_POLICIES = ("contiguous", "cling", "normal")


def lvs_argv() -> list[str]:
    """List all logical volumes, with a line for each segment; sizes in KiB."""
    return _lvs("k", VOLUME_FIELDS)


def snapshots_argv() -> list[str]:
    """List all logical volumes with the origins of snapshots; sizes in KiB."""
    return _lvs("k", SNAPSHOT_FIELDS)


def lv_list_argv(groups: Sequence[str]) -> list[str]:
    """List the logical volumes of volume groups for verification.

    :param groups: empty for all groups.
    """
    return [*_lvs("m", NODE_LIST_FIELDS), *groups]


def _lvs(unit: str, fields: Sequence[str]) -> list[str]:
    return [
        "lvs",
        "--noheadings",
        f"--separator={SEPARATOR}",
        f"--units={unit}",
        "--nosuffix",
        f"-o{','.join(fields)}",
    ]


def pvs_argv() -> list[str]:
    """List all physical volumes, with a line for each logical volume on them."""
    return _query("pvs", PHYSICAL_FIELDS)


def vgs_argv() -> list[str]:
    """List all volume groups."""
    return _query("vgs", GROUP_FIELDS)


def _query(program: str, fields: Sequence[str]) -> list[str]:
    return [
        program,
        "--noheadings",
        "--nosuffix",
        "--units=m",
        "--unbuffered",
        f"--separator={SEPARATOR}",
        f"-o{','.join(fields)}",
    ]


def create_argv(
    group: str, name: str, size_mib: int, stripes: int, devices: Sequence[str], tag: str = ""
) -> list[str]:
    """Create a volume.

    :param stripes: number of physical volumes over which LVM distributes it.
    :param devices: physical volumes from which LVM chooses.
    """
    # -Wn: lvcreate does not ask whether to wipe a signature of a former owner.
    return [
        "lvcreate",
        "-Wn",
        f"-L{size_mib}m",
        f"-n{name}",
        f"-i{stripes}",
        *(["--addtag", tag] if tag else []),
        group,
        *devices,
    ]


def remove_argv(group: str, name: str) -> list[str]:
    """Remove a volume."""
    return ["lvremove", "-f", f"{group}/{name}"]


def rename_argv(group: str, old: str, new: str) -> list[str]:
    """Rename a volume within its group."""
    return ["lvrename", group, old, new]


def extend_argv(
    path: str, amount_kib: int, policy: str, *, dry_run: bool, devices: Sequence[str] = ()
) -> list[str]:
    """Make a volume larger.

    :param policy: one of :data:`GROW_POLICIES`.
    :param devices: physical volumes on which it must stay; empty for any.
    """
    return [
        "lvextend",
        "-L",
        f"+{amount_kib}k",
        *(["--test"] if dry_run else []),
        "--alloc",
        policy,
        path,
        *devices,
    ]


def snapshot_argv(path: str, name: str, size_mib: int, tags: Sequence[str] = ()) -> list[str]:
    """Take a snapshot.

    :param size_mib: by how much snapshot and origin may differ before the snapshot is lost.
    """
    return [
        "lvcreate",
        f"-L{size_mib}m",
        "-s",
        f"-n{name}",
        *(argument for tag in tags for argument in ("--addtag", tag)),
        path,
    ]


def activate_argv(path: str) -> list[str]:
    """Activate a volume, so that it has a device."""
    return ["lvchange", "-ay", path]


def add_tag_argv(path: str, tag: str) -> list[str]:
    """Add a tag to a volume."""
    return ["lvchange", "--addtag", tag, path]


def delete_tag_argv(path: str, tag: str) -> list[str]:
    """Remove a tag from a volume."""
    return ["lvchange", "--deltag", tag, path]
