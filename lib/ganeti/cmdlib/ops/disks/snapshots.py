"""Snapshots of the disks of instances: finding them, and protecting them and restored disks.

Snapshots are not in the configuration, so the nodes are asked for them. An operation which would
destroy snapshots calls :func:`require_none` first.

While a snapshot is restored, its instance has a tag for each disk which is written to. When the
operation is interrupted, the tag stays, and :func:`require_restored` keeps the instance from being
started with disks which are partly old and partly restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks.devices import disk_nodes
from ganeti.objects import snapshots
from ganeti.objects.base import updated
from ganeti.objects.disk_templates import FOREIGN_SNAPSHOTS, MANAGED_SNAPSHOTS
from ganeti.wire.calls import BLOCKDEV_SNAPSHOT_LIST
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner

_TAG = snapshots.RESTORE_TAG


@dataclass(frozen=True, slots=True)
class DiskSnapshot:
    """A snapshot of one disk on one node.

    :ivar index: number of the disk in the instance.
    :ivar found: name, time and state as the node reported them.
    """

    instance: Instance
    index: int
    disk: Disk
    node_uuid: str
    found: snapshots.SnapshotInfo


# -- finding snapshots -------------------------------------------------------------


def collect(
    config: Config,
    rpc: RpcRunner,
    instances: Iterable[Instance],
    *,
    nodes: Collection[str] | None = None,
    disks: Collection[int] | None = None,
) -> tuple[list[DiskSnapshot], dict[str, Exception]]:
    """Ask the nodes of instances for the snapshots of their disks.

    :param nodes: UUIDs of the nodes to ask; by default all nodes of the instances.
    :param disks: numbers of the disks to ask for; all by default.
    :returns: the snapshots, sorted by instance, disk and name, those on the primary node first;
        and UUID of a node -> why it did not report its snapshots.
    """
    asked: dict[str, list[tuple[Instance, int, Disk]]] = {}
    order: dict[tuple[str, int], int] = {}
    for instance in instances:
        if instance.forthcoming:
            continue
        for index, disk in enumerate(config.instance_disks(instance)):
            if disk.dev_type not in MANAGED_SNAPSHOTS or (disks is not None and index not in disks):
                continue
            order[instance.uuid, index] = len(order)
            for node_uuid in disk_nodes(disk, instance.primary_node):
                if nodes is None or node_uuid in nodes:
                    asked.setdefault(node_uuid, []).append((instance, index, disk))
    if not asked:
        return [], {}
    answers = rpc.call_many(
        BLOCKDEV_SNAPSHOT_LIST,
        list(asked),
        per_node={
            node_uuid: {"disks": [(disk.data_device, instance) for instance, _index, disk in items]}
            for node_uuid, items in asked.items()
        },
    )
    kept: list[DiskSnapshot] = []
    unresponsive: dict[str, Exception] = {}
    for node_uuid, answer in answers.items():
        if answer.failure is not None:
            unresponsive[node_uuid] = answer.failure
            continue
        for (instance, index, disk), rows in zip(asked[node_uuid], answer.data, strict=True):
            if isinstance(rows, Failed):
                unresponsive[node_uuid] = errors.NodeCallFailed(
                    answer.node_name, BLOCKDEV_SNAPSHOT_LIST.name, *rows
                )
                continue
            kept += [
                DiskSnapshot(instance, index, disk, node_uuid, snapshots.SnapshotInfo(*row))
                for row in rows
            ]
    # The sort is stable, and the primary node of each disk was asked first.
    kept.sort(key=lambda one: (order[one.instance.uuid, one.index], one.found.name))
    return kept, unresponsive


def of_instance(ctx: Context, instance: Instance) -> list[DiskSnapshot]:
    """Find the snapshots of an instance on its nodes; nodes which are marked offline are skipped.

    :raises errors.OpPrereqError: a node did not report its snapshots.
    """
    kept, unresponsive = collect(ctx.config, ctx.rpc, [instance])
    for node_uuid, failure in unresponsive.items():
        _point_out(ctx.config, ctx.log, node_uuid, failure, may_be_dead=False)
    return kept


def _point_out(
    config: Config, log: JobLog, node_uuid: str, failure: Exception, *, may_be_dead: bool
) -> None:
    name = config.node(node_uuid).name
    text = f"node {name} did not report its snapshots: {why(failure)}"
    if isinstance(failure, errors.NodeOffline):
        log.warn(f"node {name} is marked offline, so its snapshots are not changed")
    elif may_be_dead and isinstance(failure, errors.NodeUnreachable):
        log.warn(text)
    else:
        raise errors.OpPrereqError(text, errors.ECODE_ENVIRON) from failure


def names(kept: Iterable[DiskSnapshot]) -> str:
    """Return the names of snapshots, each once, for messages."""
    return ", ".join(dict.fromkeys(one.found.name for one in kept))


def require_none(
    ctx: Context,
    instance: Instance,
    action: str,
    *,
    nodes: Collection[str] | None = None,
    disks: Collection[int] | None = None,
    reason: str = "that would destroy snapshots of it",
    also_lost: bool = False,
    may_be_dead: bool = False,
) -> None:
    """Check that an instance has no snapshots which an operation would destroy.

    Nodes which are marked offline are not asked.

    :param action: verb for the error message: what is to be done with the instance.
    :param nodes: UUIDs of the nodes to ask; by default all nodes of the instance.
    :param disks: numbers of the disks to ask for; all by default.
    :param reason: why snapshots prevent the operation, for the error message.
    :param also_lost: count snapshots whose content is lost, too.
    :param may_be_dead: a node which cannot be reached is only a warning.
    :raises errors.OpPrereqError: there are snapshots, or a node did not report them.
    """
    kept, unresponsive = collect(ctx.config, ctx.rpc, [instance], nodes=nodes, disks=disks)
    for node_uuid, failure in unresponsive.items():
        if not isinstance(failure, errors.NodeOffline):
            _point_out(ctx.config, ctx.log, node_uuid, failure, may_be_dead=may_be_dead)
    kept = [one for one in kept if also_lost or one.found.usable]
    if not kept:
        return
    first = kept[0]
    raise errors.OpPrereqError(
        f"cannot {action} instance {instance.name}: {reason} ({names(kept)}, on node"
        f" {ctx.config.node(first.node_uuid).name}). Remove them first with 'gnt-instance"
        f" remove-snapshot {instance.name} {first.found.name}'.",
        errors.ECODE_STATE,
    )


# -- partly restored disks -------------------------------------------------------------


def mark_partly_restored(
    config: Config, instance: Instance, disks: Iterable[Disk], name: str
) -> None:
    """Tag an instance: these disks are about to be overwritten with the snapshot ``name``."""
    _change_tags(config, instance, add=[f"{_TAG}{name}:{disk.uuid}" for disk in disks])


def unmark(config: Config, instance: Instance, disks: Sequence[Disk] | None = None) -> None:
    """Remove the tags of :func:`mark_partly_restored` for these disks, by default for all."""
    uuids = None if disks is None else {disk.uuid for disk in disks}
    gone = [
        tag
        for tag in config.instance(instance.uuid).tags
        if tag.startswith(_TAG) and (uuids is None or tag.rpartition(":")[2] in uuids)
    ]
    if gone:
        _change_tags(config, instance, remove=gone)


def _change_tags(
    config: Config, instance: Instance, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> None:
    present = config.instance(instance.uuid)
    tags = {*present.tags, *add}.difference(remove)
    if tags != set(present.tags):
        with config.transaction() as change:
            change.instances.update(updated(present, tags=tuple(sorted(tags))))


def partly_restored(instance: Instance) -> list[tuple[int, str]]:
    """Return the number of each partly restored disk, and the name of the snapshot."""
    places = {uuid: index for index, uuid in enumerate(instance.disks)}
    found = []
    for tag in instance.tags:
        if tag.startswith(_TAG):
            name, _colon, uuid = tag.removeprefix(_TAG).rpartition(":")
            if uuid in places:
                found.append((places[uuid], name))
    return sorted(found)


def require_restored(log: JobLog, instance: Instance, *, force: bool = False) -> None:
    """Check that no disk of an instance is partly restored.

    :param force: a partly restored disk is only a warning.
    :raises errors.OpPrereqError: a disk is partly restored.
    """
    partly = partly_restored(instance)
    if not partly:
        return
    text = "; ".join(
        f"disk {index} of instance {instance.name} was not completely restored from snapshot {name}"
        for index, name in partly
    )
    if force:
        log.warn(f"{text}; it is used as it is")
        return
    raise errors.OpPrereqError(
        f"{text}. Repeat 'gnt-instance restore-snapshot {instance.name} {partly[0][1]}', or use the"
        f" disk as it is with 'gnt-instance startup --force {instance.name}'.",
        errors.ECODE_STATE,
    )


def named(ctx: Context, instance: Instance, name: str) -> list[DiskSnapshot]:
    """Find the snapshots of an instance with this name, one for each disk and node.

    :raises errors.OpPrereqError: there is none, or a node did not report its snapshots.
    """
    prereq.require_not_forthcoming(instance, "look for snapshots of")
    kept = of_instance(ctx, instance)
    found = [one for one in kept if one.found.name == name]
    if not found:
        foreign = {
            disk.dev_type
            for disk in ctx.config.instance_disks(instance)
            if disk.dev_type in FOREIGN_SNAPSHOTS
        }
        if foreign:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no snapshot {name} of its disks, except perhaps of"
                f" disks of template {', '.join(sorted(foreign))}, whose snapshots only the storage"
                " provider knows",
                errors.ECODE_NOENT,
            )
        others = f"; it has {names(kept)}" if kept else ", nor any other"
        raise errors.OpPrereqError(
            f"instance {instance.name} has no snapshot {name}{others}", errors.ECODE_NOENT
        )
    return found
