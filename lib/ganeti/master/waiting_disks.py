"""Lets mirrored disks go on which lost their peers and wait for the master.

A disk of an instance which is failed over automatically confirms no write alone
(:mod:`ganeti.cmdlib.ops.disks.together`): when its link breaks, its requests wait on the primary
node. The master asks the nodes for such devices. It records first, on a majority of the candidates,
that the replica on the other node misses writes from now on; then it tells the node to go on. A
node which is marked offline never gets that order, because its instances may be started elsewhere.

Source: ``doc/design-instance-failover.rst``, *A primary which stops*.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ganeti.config import Config
from ganeti.constants.disk import DRBD8
from ganeti.objects import ConfigData, Disk, Instance
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import DRBD_GO_ON_ALONE

_log = logging.getLogger(__name__)


def are_expected(data: ConfigData) -> bool:
    """Tell whether disks may wait for the master."""
    return any(disk.never_alone is not None for disk in data.disks.values())


def let_go_on(config: Config, rpc: RpcRunner, node_uuid: str, minors: Collection[int]) -> list[str]:
    """Let devices of a node go on without their peers.

    :param minors: minors of devices which wait.
    :returns: UUIDs of the disks which got the order to go on.
    :raises errors.GenericError: the record cannot be stored; then nothing goes on.
    """
    data = config.snapshot()
    waiting = [
        (disk, instance)
        for instance in data.instances.values()
        if instance.primary_node == node_uuid
        for disk in map(data.disks.get, instance.disks)
        if disk is not None and _minor(disk, node_uuid) in minors
    ]
    if not waiting:
        return []
    with config.transaction() as change:
        allowed = [one for one in waiting if change.let_go_on(one[0].uuid, node_uuid)]
    # The record may be that of an earlier attempt, which reached too few candidates.
    config.require_committed()
    for disk, instance in allowed:
        _log.warning(
            "disk %s of instance %s has lost its peer; node %s goes on without it, and the other"
            " replica counts as outdated",
            disk.iv_name or disk.uuid,
            instance.name,
            data.nodes[node_uuid].name,
        )
    if allowed:
        disks = _with_records(config, allowed)
        rpc.call(DRBD_GO_ON_ALONE, node_uuid, disks=disks).payload()
    return [disk.uuid for disk, _instance in allowed]


def _minor(disk: Disk, node_uuid: str) -> int | None:
    """Return the minor of a disk on a node; None when it has no replica there."""
    return disk.drbd_id.minors.get(node_uuid) if disk.dev_type == DRBD8 else None


def _with_records(
    config: Config, pairs: list[tuple[Disk, Instance]]
) -> list[tuple[Disk, Instance]]:
    stored = config.snapshot().disks
    return [(stored[disk.uuid], instance) for disk, instance in pairs]
