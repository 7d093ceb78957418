"""Commands of LVM, as lists of words.

Source: lvm(8) and the pages of the single commands, LVM 2.03. Sizes are in MiB unless a name says
otherwise.
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

#: In what order an extension is tried: next to the present end, on the same device, anywhere.
GROW_POLICIES = ("contiguous", "cling", "normal")


def lvs_argv() -> list[str]:
    """All logical volumes; a line for each segment of each. Sizes in KiB."""
    return [
        "lvs",
        "--noheadings",
        f"--separator={SEPARATOR}",
        "--units=k",
        "--nosuffix",
        f"-o{','.join(VOLUME_FIELDS)}",
    ]


def snapshots_argv() -> list[str]:
    """All logical volumes with what they are snapshots of. Sizes in KiB."""
    return [
        "lvs",
        "--noheadings",
        f"--separator={SEPARATOR}",
        "--units=k",
        "--nosuffix",
        f"-o{','.join(SNAPSHOT_FIELDS)}",
    ]


def lv_list_argv(groups: Sequence[str]) -> list[str]:
    """The short list of volumes which verification wants; no groups means all."""
    return [
        "lvs",
        "--noheadings",
        "--units=m",
        "--nosuffix",
        f"--separator={SEPARATOR}",
        f"-o{','.join(NODE_LIST_FIELDS)}",
        *groups,
    ]


def pvs_argv() -> list[str]:
    """All physical volumes; a line for each logical volume on each."""
    return _query("pvs", PHYSICAL_FIELDS)


def vgs_argv() -> list[str]:
    """All volume groups."""
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
    """Make a volume on some of these physical volumes."""
    # -Wn: what a former owner left is overwritten by its new one, not asked about.
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
    """Destroy a volume."""
    return ["lvremove", "-f", f"{group}/{name}"]


def rename_argv(group: str, old: str, new: str) -> list[str]:
    """Rename a volume within its group."""
    return ["lvrename", group, old, new]


def extend_argv(
    path: str, amount_kib: int, policy: str, *, dry_run: bool, devices: Sequence[str] = ()
) -> list[str]:
    """Add to a volume."""
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
    """Make a snapshot which may differ by so much from its origin."""
    return [
        "lvcreate",
        f"-L{size_mib}m",
        "-s",
        f"-n{name}",
        *(word for tag in tags for word in ("--addtag", tag)),
        path,
    ]


def activate_argv(path: str) -> list[str]:
    """Make the device of a volume appear."""
    return ["lvchange", "-ay", path]


def add_tag_argv(path: str, tag: str) -> list[str]:
    """Attach a text to a volume."""
    return ["lvchange", "--addtag", tag, path]


def delete_tag_argv(path: str, tag: str) -> list[str]:
    """Remove a text from a volume."""
    return ["lvchange", "--deltag", tag, path]
