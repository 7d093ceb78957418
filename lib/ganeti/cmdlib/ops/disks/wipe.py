"""Overwriting new storage, so that a guest never reads the data of another one.

New devices are overwritten when the cluster parameter ``prealloc_wipe_disks`` is set, and only on
storage which may hold old data: logical volumes (those of DRBD disks, too) and external storage. A
new file and a new RBD image read as zeros.

What a growth adds to a device is overwritten, too. A growth may end in between, for example because
the master died, and a guest can use the whole of a plain volume at its next start. So before the
storage grows, the configuration gets a mark: from which size on nothing was overwritten
(``Disk.unwiped_from``). The activation of such a disk overwrites the rest (:func:`finish`), and no
node starts a guest on a disk with the mark. So no guest reads old data, and nothing is overwritten
that a guest has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import sizes
from ganeti.objects import disk_templates, updated
from ganeti.utils import text
from ganeti.wire.calls import BLOCKDEV_WIPE

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner

KINDS = disk_templates.WIPED
# Devices are overwritten in pieces, so that the log of the job shows the progress and no node call
# takes too long.
MAX_CHUNK_MIB = 1024
_SHARE = 10


def is_wanted(config: Config, device: Disk) -> bool:
    """Return True if a new device has to be overwritten."""
    return config.cluster().prealloc_wipe_disks and device.dev_type in KINDS


def wipe(
    ctx: Context,
    instance: Instance,
    device: Disk,
    node_uuid: str,
    *,
    offset_mib: int = 0,
) -> None:
    """Overwrite a device on a node up to its end, if :func:`is_wanted`.

    LVM rounds sizes up, so the end may be behind the size in the configuration.

    :param offset_mib: where to begin.
    :raises errors.RpcError: the node call failed.
    """
    if not is_wanted(ctx.config, device):
        return
    present = sizes.present_bytes(ctx.rpc, instance, device, [node_uuid])[node_uuid]
    end_mib = device.size if present is None else sizes.rounded_up_mib(present)
    total_mib = end_mib - offset_mib
    if total_mib <= 0:
        return
    node_name = ctx.config.node(node_uuid).name
    what = "/".join(map(str, device.logical_id))
    ctx.log.feedback(f"* wiping {text.format_unit(total_mib)} of {what} on node {node_name}")
    chunk_mib = max(1, min(MAX_CHUNK_MIB, total_mib * _SHARE // 100))
    done_mib = 0
    while done_mib < total_mib:
        piece_mib = min(chunk_mib, total_mib - done_mib)
        ctx.rpc.call(
            BLOCKDEV_WIPE,
            node_uuid,
            disk=(device, instance),
            offset_mib=offset_mib + done_mib,
            size_mib=piece_mib,
        ).payload()
        done_mib += piece_mib
        if done_mib < total_mib:
            ctx.log.feedback(f" - {what}: {100 * done_mib // total_mib} % wiped")


def reached_mib(rpc: RpcRunner, instance: Instance, disk: Disk) -> int:
    """Return the size (MiB) of an active disk up to which a guest can read and write."""
    node_uuid = instance.primary_node
    present = sizes.present_bytes(rpc, instance, disk, [node_uuid])[node_uuid]
    return disk.size if present is None else sizes.rounded_up_mib(present)


def begin_growth(config: Config, disk: Disk, reached: int) -> None:
    """Record, if necessary, that the storage of a disk is about to grow.

    :param reached: size (MiB) behind which no guest can read now.
    """
    if is_wanted(config, disk.data_device):
        with config.transaction() as change:
            change.disks.update(updated(change.data.disks[disk.uuid], unwiped_from=reached))


def finish(ctx: Context, instance: Instance, disk: Disk) -> None:
    """Overwrite what an interrupted growth has added to an active disk, and remove the mark.

    A mirrored disk keeps the mark: the device above its storage hides what was added, until the
    growth is repeated.

    :raises errors.OpExecError: a node call failed; the mark stays.
    """
    # The caller may have an older object, and a guest may have written since then.
    present = ctx.config.snapshot().disks.get(disk.uuid)
    unwiped_from = None if present is None else present.unwiped_from
    if unwiped_from is None or disk.dev_type not in KINDS:
        return
    try:
        wipe(ctx, instance, disk, instance.primary_node, offset_mib=unwiped_from)
    except errors.RpcError as err:
        raise errors.OpExecError(
            f"{disk.iv_name} of instance {instance.name} may hold data of others after"
            f" its first {unwiped_from} MiB, from a growth which was not completed, and cannot be"
            f" wiped: {why(err)}"
        ) from err
    with ctx.config.transaction() as change:
        change.disks.update(updated(change.data.disks[disk.uuid], unwiped_from=None))


def require_finished(instance: Instance, index: int, disk: Disk) -> None:
    """Check that no growth has left data of others on a disk which gets another kind of storage.

    :raises errors.OpPrereqError: one may have left some.
    """
    if disk.unwiped_from is not None and disk.dev_type in KINDS:
        raise errors.OpPrereqError(
            f"a growth of disk {index} of instance {instance.name} was not completed, so"
            f" everything after its first {disk.unwiped_from} MiB may be data of others. Repeat the"
            f" growth, or activate the disks with 'gnt-instance activate-disks {instance.name}',"
            " which overwrites that.",
            errors.ECODE_STATE,
        )
