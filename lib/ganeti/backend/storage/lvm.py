"""Handlers of LVM, and of block devices which do not belong to a disk."""

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
    """Return the size of every volume group, in MiB.

    :raises StorageError: the LVM programs fail.
    """
    return {group.name: int(group.size_mib) for group in facts.here().groups()}


@serves(calls.LV_LIST)
def lv_list(groups: list[str]) -> dict[str, list[object] | str]:
    """Return the logical volumes of some groups, or of all.

    :returns: ``vg/lv`` -> [size in MiB as text, inactive, open]; and, if groups are given, the name
        of each one which cannot be read -> why.
    """
    for name in groups:
        if name.startswith("-"):
            raise errors.StorageError(f"{name!r:.80} is not a name of a volume group")
    return facts.here().listed_apart(groups)


@serves(calls.BDEV_SIZES)
def bdev_sizes(devices: list[str]) -> dict[str, int]:
    """Return the sizes of those paths which are block devices, in MiB."""
    found = {}
    for path in devices:
        try:
            if stat.S_ISBLK(os.stat(path).st_mode):
                with open(path, "rb") as stream:
                    found[path] = stream.seek(0, os.SEEK_END) // _MIB
        except OSError:
            # A path which cannot be examined is not a usable device.
            continue
    return found
