"""Calls about LVM and about block devices which no disk stands for (yet)."""

from __future__ import annotations

import os
import stat

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.storage.lvm import facts
from ganeti.wire import calls

_MIB = 1 << 20


@serves(calls.VG_LIST)
def vg_list() -> dict[str, int]:
    """Size of every volume group.

    :raises StorageError: LVM cannot be asked; the same below.
    """
    return {group.name: int(group.size_mib) for group in facts.here().groups()}


@serves(calls.LV_LIST)
def lv_list(groups: list[str]) -> dict[str, list[object]]:
    """Logical volumes of some groups, or of all.

    :returns: ``vg/lv`` -> [size in MiB as text, inactive, open].
    """
    for name in groups:
        if name.startswith("-"):
            raise errors.StorageError(f"{name!r:.80} is no name of a volume group")
    return facts.here().listed(groups)


@serves(calls.BDEV_SIZES)
def bdev_sizes(devices: list[str]) -> dict[str, int]:
    """Sizes of those of the paths that are block devices."""
    found = {}
    for path in devices:
        try:
            if stat.S_ISBLK(os.stat(path).st_mode):
                with open(path, "rb") as stream:
                    found[path] = stream.seek(0, os.SEEK_END) // _MIB
        except OSError:
            # A path which cannot be looked at is no device one could use.
            continue
    return found
