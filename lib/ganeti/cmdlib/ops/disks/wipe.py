"""Overwriting new storage, so that a guest never reads the data of another one.

New devices are overwritten when the cluster parameter ``prealloc_wipe_disks`` is set, and only on
storage which may hold old data: logical volumes (those of DRBD disks, too) and external storage. A
new file and a new RBD image read as zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.constants import disk as disk_c
from ganeti.utils import text
from ganeti.wire.calls import BLOCKDEV_WIPE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import Disk, Instance

KINDS = frozenset((disk_c.PLAIN, disk_c.EXT))
# Devices are overwritten in pieces, so that the log of the job shows the progress and no node call
# takes too long.
MAX_CHUNK_MIB = 1024
_SHARE = 10


def is_wanted(unit: AnyUnit, device: Disk) -> bool:
    """Whether a new device has to be overwritten."""
    return unit.config.cluster().prealloc_wipe_disks and device.dev_type in KINDS


def wipe(
    unit: AnyUnit,
    instance: Instance,
    device: Disk,
    node_uuid: str,
    *,
    offset_mib: int = 0,
    size_mib: int | None = None,
) -> None:
    """Overwrite a device on a node, or a part of it, if :func:`is_wanted`.

    :param offset_mib: where to begin.
    :param size_mib: how much to overwrite; by default everything from the offset on.
    :raises errors.RpcError: the node call failed.
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
