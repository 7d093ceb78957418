"""Resume the I/O of mirrored disks which DRBD suspended when they lost their peers.

A disk of an instance which is failed over automatically confirms no write that its peer does not
have (:mod:`ganeti.cmdlib.ops.disks.suspended_io`): when its link breaks, its I/O is suspended on
the primary node. The master asks the nodes for such devices. It records first, on a majority of the
candidates, that the replica on the other node misses writes from now on; then it tells the node to
resume the I/O. A node which is marked offline never gets that order, because its instances may be
started elsewhere.

Source: ``doc/design-instance-failover.rst``, *A primary which stops*.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ganeti.config import Config
from ganeti.objects import ConfigData, Disk, Instance
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import DRBD_RESUME_IO

_log = logging.getLogger(__name__)


def are_expected(data: ConfigData) -> bool:
    """Tell whether the I/O of disks may be suspended."""
    return any(disk.never_alone is not None for disk in data.disks.values())


def resume(config: Config, rpc: RpcRunner, node_uuid: str, minors: Collection[int]) -> list[str]:
    """Resume the I/O of devices of a node without their peers.

    :param minors: minors of devices whose I/O is suspended.
    :returns: UUIDs of the disks whose I/O was resumed.
    :raises errors.GenericError: the record cannot be stored; then nothing is resumed.
    """
    data = config.snapshot()
    suspended = [
        (disk, instance)
        for instance in data.instances.values()
        if instance.primary_node == node_uuid
        for disk in map(data.disks.get, instance.disks)
        if disk is not None and _minor(disk, node_uuid) in minors
    ]
    if not suspended:
        return []
    with config.transaction() as change:
        allowed = [one for one in suspended if change.disks.resume(one[0].uuid, node_uuid)]
    # The record may be that of an earlier attempt, which reached too few candidates.
    config.require_committed()
    for disk, instance in allowed:
        _log.warning(
            "disk %s of instance %s has lost its peer; node %s resumes its I/O, and the other"
            " replica counts as outdated",
            disk.iv_name or disk.uuid,
            instance.name,
            data.nodes[node_uuid].name,
        )
    if allowed:
        disks = _with_records(config, allowed)
        rpc.call(DRBD_RESUME_IO, node_uuid, disks=disks).payload()
    return [disk.uuid for disk, _instance in allowed]


def _minor(disk: Disk, node_uuid: str) -> int | None:
    """Return the minor of a disk on a node; None when it has no replica there."""
    return disk.drbd_id.minors.get(node_uuid) if disk.has_replicas else None


def _with_records(
    config: Config, pairs: list[tuple[Disk, Instance]]
) -> list[tuple[Disk, Instance]]:
    stored = config.snapshot().disks
    return [(stored[disk.uuid], instance) for disk, instance in pairs]
