"""Overwriting new storage, so that a guest never reads what belonged to another one.

Done where the cluster parameter ``prealloc_wipe_disks`` says so, and only for storage which may
hold something old: logical volumes (those below mirrors, too) and external storage. A new file, or
a new image of a pool, reads as zeros anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.constants import disk as disk_c
from ganeti.utils import text
from ganeti.wire.calls import BLOCKDEV_WIPE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk, Instance

KINDS = frozenset((disk_c.PLAIN, disk_c.EXT))
# In pieces, so that whoever watches sees it go on and no call takes too long.
MAX_CHUNK_MIB = 1024
_SHARE = 10


def is_wanted(unit: LogicalUnit, device: Disk) -> bool:
    """Whether a new device has to be overwritten."""
    return unit.config.cluster().prealloc_wipe_disks and device.dev_type in KINDS


def wipe(
    unit: LogicalUnit,
    instance: Instance,
    device: Disk,
    node_uuid: str,
    *,
    offset_mib: int = 0,
    size_mib: int | None = None,
) -> None:
    """Overwrite a device on a node, or a part of it, where that is wanted.

    :param size_mib: how much; all of the rest by default.
    :raises errors.RpcError: it did not work.
    """
    total_mib = device.size - offset_mib if size_mib is None else size_mib
    if not is_wanted(unit, device) or total_mib <= 0:
        return
    node_name = unit.config.node(node_uuid).name
    what = "/".join(map(str, device.logical_id))
    unit.feedback(f"* wiping {text.format_unit(total_mib)} of {what} on node {node_name}")
    chunk_mib = max(1, min(MAX_CHUNK_MIB, total_mib * _SHARE // 100))
    done_mib = 0
    while done_mib < total_mib:
        piece_mib = min(chunk_mib, total_mib - done_mib)
        unit.rpc.call(
            BLOCKDEV_WIPE,
            node_uuid,
            disk=(device, instance),
            offset_mib=offset_mib + done_mib,
            size_mib=piece_mib,
        ).payload()
        done_mib += piece_mib
        if done_mib < total_mib:
            unit.feedback(f" - {what}: {100 * done_mib // total_mib} % wiped")
