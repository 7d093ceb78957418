"""Snapshots of instances' disks, as several logical units see them.

The configuration does not know them: nodes are asked. What would destroy snapshots while it does
something else asks :func:`require_none` first.

A disk which is being given the content of a snapshot has a tag on its instance, from before the
first byte is written until the last one is: nobody shall start half of one state and half of
another by mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks.devices import disk_nodes
from ganeti.constants.disk import BLOCK, DRBD8, EXT, FILE, GLUSTER, PLAIN, RBD, SHARED_FILE
from ganeti.objects import snapshots
from ganeti.objects.base import updated
from ganeti.wire.calls import BLOCKDEV_SNAPSHOT_LIST

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk, Instance

#: Kinds of disks whose snapshots we can list, remove and restore.
KEPT = (PLAIN, DRBD8, FILE, SHARED_FILE)
#: Kinds of which we make none, and why.
REFUSED = {
    BLOCK: "the device belongs to the administrator, who may have means of his own",
    GLUSTER: "make one of the whole Gluster volume with 'gluster snapshot'",
    RBD: "make one with 'rbd snap create'",
}
#: Only made, by the script of the provider.
ONLY_MADE = (EXT,)

_TAG = "snapshot-restore:"


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot of one disk on one node."""

    instance: Instance
    index: int
    disk: Disk
    node_uuid: str
    found: snapshots.Found


# -- looking -----------------------------------------------------------------------


def look(
    unit: LogicalUnit,
    instances: Iterable[Instance],
    *,
    nodes: Collection[str] | None = None,
    disks: Collection[int] | None = None,
) -> tuple[list[Kept], dict[str, Exception]]:
    """Ask the nodes of instances for the snapshots of their disks.

    :param nodes: only these; likewise ``disks``, by number.
    :returns: what there is, by instance, disk, node and name; and per node (UUID) why it does not
        tell.
    """
    asked: dict[str, list[tuple[Instance, int, Disk]]] = {}
    order: dict[tuple[str, int], int] = {}
    for instance in instances:
        if instance.forthcoming:
            continue
        for index, disk in enumerate(unit.config.instance_disks(instance)):
            if disk.dev_type not in KEPT or (disks is not None and index not in disks):
                continue
            order[instance.uuid, index] = len(order)
            for node_uuid in disk_nodes(disk, instance.primary_node):
                if nodes is None or node_uuid in nodes:
                    asked.setdefault(node_uuid, []).append((instance, index, disk))
    if not asked:
        return [], {}
    answers = unit.rpc.call_many(
        BLOCKDEV_SNAPSHOT_LIST,
        list(asked),
        per_node={
            node_uuid: {
                "disks": [(snapshots.stored(disk), instance) for instance, _index, disk in items]
            }
            for node_uuid, items in asked.items()
        },
    )
    kept: list[Kept] = []
    silent: dict[str, Exception] = {}
    for node_uuid, answer in answers.items():
        if answer.failure is not None:
            silent[node_uuid] = answer.failure
            continue
        for (instance, index, disk), rows in zip(asked[node_uuid], answer.data, strict=True):
            kept += [Kept(instance, index, disk, node_uuid, snapshots.Found(*row)) for row in rows]
    # Stable: of the same disk, the primary node was asked first.
    kept.sort(key=lambda one: (order[one.instance.uuid, one.index], one.found.name))
    return kept, silent


def of_instance(unit: LogicalUnit, instance: Instance) -> list[Kept]:
    """The snapshots of an instance on its nodes, but for those which are marked offline.

    :raises errors.OpPrereqError: a node does not tell.
    """
    kept, silent = look(unit, [instance])
    for node_uuid, failure in silent.items():
        _point_out(unit, node_uuid, failure, may_be_dead=False)
    return kept


def _point_out(unit: LogicalUnit, node_uuid: str, failure: Exception, *, may_be_dead: bool) -> None:
    name = unit.config.node(node_uuid).name
    text = f"node {name} does not tell whether it has snapshots: {why(failure)}"
    if isinstance(failure, errors.NodeOffline):
        unit.warn(f"node {name} is marked offline: snapshots there are left alone")
    elif may_be_dead and isinstance(failure, errors.NodeUnreachable):
        unit.warn(text)
    else:
        raise errors.OpPrereqError(text, errors.ECODE_ENVIRON) from failure


def names(kept: Iterable[Kept]) -> str:
    """The names of snapshots, each once, for messages."""
    return ", ".join(dict.fromkeys(one.found.name for one in kept))


def require_none(
    unit: LogicalUnit,
    instance: Instance,
    action: str,
    *,
    nodes: Collection[str] | None = None,
    disks: Collection[int] | None = None,
    reason: str = "that would destroy snapshots of it",
    also_lost: bool = False,
    may_be_dead: bool = False,
) -> None:
    """No snapshot stands in the way of an operation. Nodes which are marked offline are not asked.

    :param action: what is to be done with the instance; this and ``reason`` are for the message.
    :param nodes: only on these; likewise ``disks``, by number.
    :param also_lost: one whose content is lost counts, too.
    :param may_be_dead: go on when a node cannot be reached; what it has is lost anyway.
    :raises errors.OpPrereqError: names the snapshots and how to get rid of them.
    """
    kept, silent = look(unit, [instance], nodes=nodes, disks=disks)
    for node_uuid, failure in silent.items():
        if not isinstance(failure, errors.NodeOffline):
            _point_out(unit, node_uuid, failure, may_be_dead=may_be_dead)
    kept = [one for one in kept if also_lost or one.found.usable]
    if not kept:
        return
    first = kept[0]
    raise errors.OpPrereqError(
        f"cannot {action} instance {instance.name}: {reason} ({names(kept)}, on node"
        f" {unit.config.node(first.node_uuid).name}). Remove them before with 'gnt-instance"
        f" remove-snapshot {instance.name} {first.found.name}'.",
        errors.ECODE_STATE,
    )


# -- disks which are half restored ---------------------------------------------------


def mark_half_restored(
    unit: LogicalUnit, instance: Instance, disks: Iterable[Disk], name: str
) -> None:
    """Note that disks are about to be written to."""
    _change_tags(unit, instance, add=[f"{_TAG}{name}:{disk.uuid}" for disk in disks])


def unmark(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk] | None = None) -> None:
    """Disks (all by default) are whole again, or taken as they are."""
    uuids = None if disks is None else {disk.uuid for disk in disks}
    gone = [
        tag
        for tag in unit.config.instance(instance.uuid).tags
        if tag.startswith(_TAG) and (uuids is None or tag.rpartition(":")[2] in uuids)
    ]
    if gone:
        _change_tags(unit, instance, remove=gone)


def _change_tags(
    unit: LogicalUnit, instance: Instance, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> None:
    present = unit.config.instance(instance.uuid)
    tags = {*present.tags, *add}.difference(remove)
    if tags != set(present.tags):
        unit.config.update_instance(updated(present, tags=tuple(sorted(tags))))


def half_restored(unit: LogicalUnit, instance: Instance) -> list[tuple[int, str]]:
    """Number of each disk which is written in part, and the snapshot it was to be."""
    places = {uuid: index for index, uuid in enumerate(instance.disks)}
    found = []
    for tag in instance.tags:
        if tag.startswith(_TAG):
            name, _colon, uuid = tag.removeprefix(_TAG).rpartition(":")
            if uuid in places:
                found.append((places[uuid], name))
    return sorted(found)


def require_whole(unit: LogicalUnit, instance: Instance, *, force: bool = False) -> None:
    """No disk is half restored.

    :param force: only say so.
    :raises errors.OpPrereqError: one is.
    """
    half = half_restored(unit, instance)
    if not half:
        return
    text = "; ".join(
        f"disk {index} of instance {instance.name} was not written completely when snapshot {name}"
        " was restored"
        for index, name in half
    )
    if force:
        unit.warn(f"{text}. It is used as it is")
        return
    raise errors.OpPrereqError(
        f"{text}. Repeat 'gnt-instance restore-snapshot {instance.name} {half[0][1]}', or use the"
        f" disk as it is with 'gnt-instance startup --force {instance.name}'.",
        errors.ECODE_STATE,
    )


def named(unit: LogicalUnit, instance: Instance, name: str) -> list[Kept]:
    """The snapshots of an instance with this name, one for each disk and node.

    :raises errors.OpPrereqError: there is none.
    """
    prereq.require_not_forthcoming(instance, "look for snapshots of")
    kept = of_instance(unit, instance)
    found = [one for one in kept if one.found.name == name]
    if not found:
        foreign = {
            disk.dev_type
            for disk in unit.config.instance_disks(instance)
            if disk.dev_type in ONLY_MADE
        }
        if foreign:
            raise errors.OpPrereqError(
                f"instance {instance.name} has disks of kind {', '.join(sorted(foreign))}, whose"
                f" snapshots only their storage provider knows; there is no snapshot {name} of"
                " another disk",
                errors.ECODE_NOENT,
            )
        others = f"; it has {names(kept)}" if kept else ", nor any other"
        raise errors.OpPrereqError(
            f"instance {instance.name} has no snapshot {name}{others}", errors.ECODE_NOENT
        )
    return found
