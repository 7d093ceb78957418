"""What is known about the two replicas of a mirrored disk, and how it is recorded.

A replica which missed writes does not know it. So the configuration remembers three facts about
each DRBD disk (see :class:`ganeti.objects.disk.Disk`), which outlive nodes and masters:

* ``outdated_node``: the replica on this node is known to miss writes which the other one has, since
  ``outdated_since``. It is recorded *before* the other replica is used alone.
* ``in_sync_at``: the disk is inactive, and when it was deactivated both replicas were compared and
  found equal. It is forgotten before the disk becomes writable again.

* ``never_alone``: the disk is writable on this node, both replicas were equal when that was
  recorded, and DRBD confirms no write there without its peer until the master allows it. The master
  does so only after it has recorded ``outdated_node``. So when the node is dead, the other replica
  has all confirmed writes (:mod:`.suspended_io`).

None of them means: nobody knows. ``doc/design-data-safety.rst`` has the rules which follow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti.constants.disk import LDS_FAULTY, LDS_OKAY
from ganeti.utils import clock
from ganeti.wire.calls import BLOCKDEV_GETMIRRORSTATUS_MULTI

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.config.transaction import Transaction
    from ganeti.objects import BlockDevStatus, Disk, Instance, Node
    from ganeti.rpc import RpcRunner

#: The protocol of DRBD which confirms a write after both nodes have it.
SYNCHRONOUS = "C"


def mirrored(disks: Iterable[Disk]) -> list[Disk]:
    """Return the disks which have a replica on a second node."""
    return [disk for disk in disks if disk.has_replicas]


def other_node(disk: Disk, node_uuid: str) -> str:
    """Return the UUID of the node with the other replica of a mirrored disk."""
    (other,) = disk.secondary_nodes(node_uuid)
    return other


def is_latest(disk: Disk, node_uuid: str) -> bool:
    """Tell whether the record shows that the replica on a node has all confirmed writes.

    It is known while the disk is inactive and was in sync, and while the other replica is the one
    which missed writes.
    """
    if disk.in_sync_at is not None:
        return True
    return disk.outdated_node is not None and disk.outdated_node != node_uuid


def since(disk: Disk) -> str:
    """Return the time from which on a replica misses writes, for messages."""
    if disk.outdated_since is None:
        return "an unknown time"
    return clock.format_time(disk.outdated_since)


def possible_loss(config: Config, disk: Disk, node: Node) -> str:
    """Say what is lost when the replica on a node is used without comparing it with the other."""
    other = config.node(other_node(disk, node.uuid)).name
    if disk.outdated_node == node.uuid:
        return (
            f"the replica of {disk.iv_name} on node {node.name} is known to miss the writes since"
            f" {since(disk)}: those which only node {other} has are lost"
        )
    return (
        f"the replica of {disk.iv_name} on node {node.name} cannot be compared with that on node"
        f" {other}: if the two were not connected until the end, the writes which only node {other}"
        " has are lost"
    )


def with_record(config: Config, disk: Disk) -> Disk:
    """Return a disk with the record which the configuration has of it now."""
    stored = config.snapshot().disks.get(disk.uuid)
    if stored is None:
        return disk
    return dataclasses.replace(
        disk,
        outdated_node=stored.outdated_node,
        outdated_since=stored.outdated_since,
        in_sync_at=stored.in_sync_at,
    )


def record_use(
    config: Config, disks: Sequence[Disk], outdated: Iterable[tuple[Disk, str]] = ()
) -> None:
    """Record that disks become writable, and whose replicas miss the writes from now on.

    This is called before the writable replica is opened.

    :param outdated: disk, and UUID of the node whose replica is not written to.
    :raises errors.ConfigurationError: a majority of the candidates does not have the record.
    """
    stored = config.snapshot().disks
    used = [disk.uuid for disk in disks if disk.uuid in stored]
    left = [(disk.uuid, node) for disk, node in outdated if disk.uuid in stored]
    if not left and all(stored[uuid].in_sync_at is None for uuid in used):
        return
    with config.transaction() as change:
        for uuid in used:
            change.disks.forget_in_sync(uuid)
        for uuid, node in left:
            change.disks.mark_outdated(uuid, node)
    if left:
        # The record may be that of an earlier attempt, which reached too few candidates.
        config.require_committed()


def forget_outdated(config: Config, disks: Sequence[Disk]) -> None:
    """Record that no replica of these disks misses writes: they were seen in sync."""
    stored = config.snapshot().disks
    known = [
        disk.uuid
        for disk in disks
        if disk.uuid in stored and stored[disk.uuid].outdated_node is not None
    ]
    if known:
        with config.transaction() as change:
            for uuid in known:
                change.disks.forget_outdated(uuid)


def record_new_primary(
    change: Transaction, disks: Iterable[Disk], source: Node, *, good: bool
) -> None:
    """Record what is known about mirrored disks whose other node becomes the primary node.

    It belongs into the transaction which changes the primary node.

    :param source: the former primary node.
    :param good: the replicas on the new primary node are known to have all confirmed writes.
    """
    for disk in mirrored(disks):
        if not good:
            change.disks.mark_outdated(disk.uuid, source.uuid)
        elif not source.offline:
            change.disks.forget_outdated(disk.uuid)


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """What the nodes reported about the replicas of one disk.

    :ivar equal: both are connected, valid and in sync.
    :ivar outdated: UUID of the node whose replica misses writes; None if that was not seen.
    """

    disk: Disk
    equal: bool
    outdated: str | None


def observe(
    config: Config,
    rpc: RpcRunner,
    pairs: Sequence[tuple[Disk, Instance]],
    gone: Collection[str] = (),
) -> list[Observation]:
    """Ask the nodes for the state of the replicas of mirrored disks.

    Nodes which do not answer, or are marked offline, are treated as if they reported nothing.

    :param pairs: disks, of one or several instances; disks of other types are left out.
    :param gone: UUIDs of nodes which have not answered a moment before; they are not asked again.
    """
    asked: dict[str, list[tuple[Disk, Instance]]] = {}
    chosen = [(disk, instance) for disk, instance in pairs if disk.has_replicas]
    for disk, instance in chosen:
        for uuid in disk.all_node_uuids():
            if uuid not in gone and not config.node(uuid).offline:
                asked.setdefault(uuid, []).append((disk, instance))
    if not asked:
        return []
    answers = rpc.call_many(
        BLOCKDEV_GETMIRRORSTATUS_MULTI,
        asked,
        per_node={uuid: {"disks": disks} for uuid, disks in asked.items()},
    )
    states: dict[tuple[str, str], BlockDevStatus] = {}
    for uuid, answer in answers.items():
        if answer.failure is None:
            for (disk, _instance), (known, state) in zip(asked[uuid], answer.data, strict=True):
                if known:
                    states[disk.uuid, uuid] = state
    return [_observation(disk, instance, states) for disk, instance in chosen]


def _observation(
    disk: Disk, instance: Instance, states: dict[tuple[str, str], BlockDevStatus]
) -> Observation:
    primary, secondary = instance.primary_node, other_node(disk, instance.primary_node)
    own, peer = states.get((disk.uuid, primary)), states.get((disk.uuid, secondary))
    outdated = None
    equal = False
    if own is not None and own.ldisk_status == LDS_OKAY:
        if peer is not None and not own.is_degraded and not peer.is_degraded:
            equal = peer.ldisk_status == LDS_OKAY
        if own.is_degraded and own.writable:
            # It was promoted under the rule of DrbdDevice.open, so it has all data.
            outdated = secondary
    elif own is not None and peer is not None and peer.ldisk_status == LDS_OKAY:
        # The primary node works with the replica of its peer.
        lost = own.ldisk_status == LDS_FAULTY and not peer.is_degraded
        outdated = primary if lost or own.sync_percent is not None else None
    return Observation(disk, equal, outdated)


def record_active(config: Config, seen: Sequence[Observation]) -> None:
    """Record what was observed of disks which are in use: which replica misses writes, if any."""
    stored = config.snapshot().disks
    changes = [
        one
        for one in seen
        if one.disk.uuid in stored
        and (
            (one.outdated is not None and stored[one.disk.uuid].outdated_node != one.outdated)
            or (one.equal and stored[one.disk.uuid].outdated_node is not None)
        )
    ]
    if not changes:
        return
    with config.transaction() as change:
        for one in changes:
            if one.outdated is not None:
                change.disks.mark_outdated(one.disk.uuid, one.outdated)
            else:
                change.disks.forget_outdated(one.disk.uuid)


def record_equal(config: Config, instance: Instance, seen: Sequence[Observation]) -> None:
    """Record that disks which are inactive now had equal replicas before.

    Only the synchronous protocol guarantees that: with the others, the last writes may still be on
    their way to the peer.
    """
    filled = {disk.uuid: disk for disk in config.filled(instance).disks_info}
    equal = [
        one.disk.uuid
        for one in seen
        if one.equal
        and one.disk.uuid in filled
        and (filled[one.disk.uuid].params or {}).get("protocol", SYNCHRONOUS) == SYNCHRONOUS
    ]
    if equal:
        with config.transaction() as change:
            for uuid in equal:
                change.disks.mark_in_sync(uuid)
