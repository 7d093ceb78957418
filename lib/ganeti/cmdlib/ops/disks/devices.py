"""Creating, removing, activating and deactivating the disks of instances.

Logical units call these functions, which act through node calls and raise the errors of the calls;
the caller decides what is undone. All of them may be repeated, except that creating a disk fails
when it exists.

A disk is a tree. A plain volume or a file is one device on the primary node; a DRBD disk is a
device with its children on two nodes. Each function calls every node which has a part of the disk;
:func:`disk_nodes` names these nodes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import ownership, replicas, together, wipe
from ganeti.constants.disk import FILE, LDS_OKAY, LDS_UNKNOWN, SHARED_FILE
from ganeti.objects import fill
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.wire.calls import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_FIND,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    FILE_STORAGE_DIR_CREATE,
    FILE_STORAGE_DIR_REMOVE,
)

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance, Node


class ActiveDisk(NamedTuple):
    """How an active disk is used on the primary node.

    :ivar device: path of the device.
    :ivar link: path of the link to the device.
    :ivar uri: URI by which the hypervisor opens the disk without the kernel, or None.
    """

    device: str | None
    link: str | None
    uri: str | None


#: Disk templates whose files are in a directory of the instance.
IN_OWN_DIRECTORY = (FILE, SHARED_FILE)


def info_text(instance: Instance) -> str:
    """Text which is stored with a new device, such as the tag of a logical volume."""
    return f"originstname+{instance.name}"


def disk_nodes(disk: Disk, primary_node: str) -> tuple[str, ...]:
    """UUIDs of the nodes which have a part of a disk, the primary node first."""
    return (primary_node, *disk.secondary_nodes(primary_node))


def exclusive_storage(unit: AnyUnit, node_uuid: str) -> bool:
    """Tell whether logical volumes of this node must not share a physical volume."""
    data = unit.config.snapshot()
    node = data.nodes[node_uuid]
    filled = fill.fill_nd(data.cluster, data.nodegroups.get(node.group), node)
    return bool(filled.get("exclusive_storage"))


def require_spindles_allowed(
    unit: AnyUnit, node_uuids: Iterable[str], given: Iterable[Mapping[str, Any]]
) -> None:
    """Refuse numbers of spindles for nodes which do not use exclusive storage.

    :param given: parameters of disks, as the user gave them.
    :raises errors.OpPrereqError: a disk has a number of spindles, and no node uses it.
    """
    if not any(params.get("spindles") is not None for params in given):
        return
    if not any(exclusive_storage(unit, uuid) for uuid in node_uuids):
        raise errors.OpPrereqError(
            "a number of spindles is possible only with exclusive storage, which no node of the"
            " instance uses (node parameter exclusive_storage)",
            errors.ECODE_INVAL,
        )


def mirrored_internally(disks: Iterable[Disk]) -> bool:
    """Tell whether a disk has a secondary node."""
    return any(disk.dev_type in INT_MIRRORED for disk in disks)


# -- directories of files --------------------------------------------------------


def storage_dir(disks: Sequence[Disk]) -> str | None:
    """Directory which holds the disk files of one instance; None when the disks are no files."""
    for disk in disks:
        if disk.dev_type in IN_OWN_DIRECTORY:
            return posixpath.dirname(str(disk.logical_id[1]))
    return None


def create_storage_dir(
    unit: AnyUnit, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Create the directory for the disk files of an instance.

    :param node_uuid: the node; by default the primary node of the instance.
    """
    directory = storage_dir(disks)
    if directory is not None:
        node = node_uuid or instance.primary_node
        unit.rpc.call(FILE_STORAGE_DIR_CREATE, node, path=directory).payload()


def remove_storage_dir(
    unit: AnyUnit, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Remove the directory for the disk files of an instance, which must be empty or missing.

    :param node_uuid: the node; by default the primary node of the instance.
    """
    directory = storage_dir(disks)
    if directory is not None:
        node = node_uuid or instance.primary_node
        unit.rpc.call(FILE_STORAGE_DIR_REMOVE, node, path=directory).payload()


# -- creating and removing -------------------------------------------------------


def create_disk(
    unit: AnyUnit, instance: Instance, disk: Disk, node_uuids: Sequence[str] | None = None
) -> None:
    """Create a disk on all its nodes at the same time, on each the children before the device.

    :param node_uuids: create the disk on these of its nodes only.
    :raises errors.RpcError: a node call failed; parts of the disk may be made on the other nodes.
    """
    primary = instance.primary_node
    nodes = node_uuids or disk_nodes(disk, primary)
    _create_tree(unit, instance, disk, {uuid: uuid == primary for uuid in nodes})


def create_device(
    unit: AnyUnit,
    instance: Instance,
    device: Disk,
    node_uuid: str,
    *,
    on_primary: bool,
    children: bool = True,
) -> None:
    """Create a device and its children on one node.

    What the node refuses to create is not of this operation, and is never removed by it.

    :param children: False when the children exist already.
    :raises errors.RpcError: a node call failed.
    """
    _create_tree(unit, instance, device, {node_uuid: on_primary}, children=children)


def _create_tree(
    unit: AnyUnit,
    instance: Instance,
    device: Disk,
    nodes: Mapping[str, bool],
    *,
    children: bool = True,
) -> None:
    """Create a device and its children on nodes.

    :param nodes: UUID of a node -> whether it is the primary node of the device.
    """
    for child in device.children if children else ():
        _create_tree(unit, instance, child, nodes)
    answers = unit.rpc.call_many(
        BLOCKDEV_CREATE,
        nodes,
        per_node={
            uuid: {"on_primary": primary, "exclusive_storage": exclusive_storage(unit, uuid)}
            for uuid, primary in nodes.items()
        },
        disk=(device, instance),
        size_mib=device.size,
        owner=instance.name,
        info=info_text(instance),
    )
    for uuid, answer in answers.items():
        if answer.failure is not None and not ownership.may_be_made(answer.failure):
            ownership.disown(unit, device, uuid)
    for answer in answers.values():
        answer.payload()
    for uuid in nodes:
        wipe.wipe(unit, instance, device, uuid)


def remove_disk(
    unit: AnyUnit, instance: Instance, disk: Disk, node_uuids: Sequence[str] | None = None
) -> None:
    """Remove a disk from all its nodes; a disk which does not exist is no error.

    Devices which this operation was refused to create stay. The replica on the primary node is
    removed last, and only when the others are removed: it is the one which has all data. What a
    secondary node which is marked offline has of the disk stays there, with a warning.

    :param node_uuids: remove the disk from these of its nodes only; all of them are called, even
        after a failure.
    :raises errors.RpcError: the first failure.
    """
    if node_uuids is None:
        primary, *others = disk_nodes(disk, instance.primary_node)
        if others:
            # While the primary uses the replica of its peer, DRBD does not let that one go. What
            # keeps the disk active there keeps it from being removed, too.
            unit.rpc.call(BLOCKDEV_SHUTDOWN, primary, disk=(disk, instance))
        for uuid in others:
            node = unit.config.node(uuid)
            if node.offline:
                unit.warn(
                    f"node {node.name} is marked offline and keeps its part of {disk.iv_name} of"
                    f" instance {instance.name}",
                    hint="Remove the volumes there by hand when the node comes back.",
                )
            else:
                remove_disk(unit, instance, disk, [uuid])
        node_uuids = [primary]
    failure: Exception | None = None
    for node_uuid in node_uuids:
        for part in ownership.to_remove(unit, disk, node_uuid):
            answer = unit.rpc.call(BLOCKDEV_REMOVE, node_uuid, disk=(part, instance))
            failure = failure or answer.failure
    if failure is not None:
        raise failure


# -- activating and deactivating -------------------------------------------------


def assemble_disks(
    unit: AnyUnit,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
    ignore_secondaries: bool = False,
    accept_loss: bool = False,
) -> list[tuple[str, str, str | None]]:
    """Activate disks of an instance, first on the secondary nodes, then on the primary.

    The primary replica of a mirrored disk becomes writable when it is connected to its peer. When
    the secondary node is marked offline, or its failure is ignored, the configuration first records
    that the replica there misses the writes from now on.

    :param node_uuid: the node which may write; by default the primary node of the instance.
    :param disks: disks of the instance to activate; all by default.
    :param ignore_secondaries: a failure on a secondary node is only a warning.
    :param accept_loss: use a replica on the primary node which is known to have missed writes, or
        does not connect to its peer.
    :returns: for each disk the name of the node, ``disk/N`` and the path of the device.
    :raises errors.OpExecError: a disk could not be activated; those before it stay active.
    """
    node = unit.config.node(node_uuid or instance.primary_node)
    chosen = unit.config.instance_disks(instance) if disks is None else disks
    active = _assemble_all(unit, instance, node, chosen, ignore_secondaries, accept_loss)
    if node.uuid == instance.primary_node:
        together.protect(unit, instance, chosen)
    return [(node.name, f"disk/{index}", one.device) for index, one in active]


def activate_disk(unit: AnyUnit, instance: Instance, disk: Disk) -> ActiveDisk:
    """Activate one disk on all its nodes.

    :raises errors.OpExecError: the disk could not be activated.
    """
    node = unit.config.node(instance.primary_node)
    ((_index, active),) = _assemble_all(unit, instance, node, [disk], False, False)
    together.protect(unit, instance, [disk])
    return active


def _assemble_all(
    unit: AnyUnit,
    instance: Instance,
    node: Node,
    chosen: Sequence[Disk],
    ignore_secondaries: bool,
    accept_loss: bool,
) -> list[tuple[int, ActiveDisk]]:
    indexes = _indexes(unit, instance)
    for disk in chosen:
        if disk.forthcoming:
            raise errors.OpExecError(
                f"disk {indexes[disk.uuid]} of instance {instance.name} was not created completely."
                f" Repeat 'gnt-instance recreate-disks {instance.name}'."
            )
    alone = [
        disk
        for disk in chosen
        if not _activate_mirrors(
            unit, instance, disk, indexes[disk.uuid], node.uuid, ignore_secondaries
        )
    ]
    for disk in alone:
        _require_usable_alone(unit, instance, disk, node, accept_loss=accept_loss)
    # Disks which were in sync when they were deactivated are equal on both nodes until now.
    latest = {
        disk.uuid
        for disk in replicas.mirrored(chosen)
        if replicas.is_latest(replicas.with_record(unit, disk), node.uuid)
    }
    replicas.record_use(
        unit,
        replicas.mirrored(chosen),
        [(disk, replicas.other_node(disk, node.uuid)) for disk in alone],
    )
    return [
        (
            indexes[disk.uuid],
            _activate(
                unit,
                instance,
                disk,
                indexes[disk.uuid],
                node.uuid,
                alone=accept_loss or disk.uuid in latest,
                latest=disk.uuid in latest,
            ),
        )
        for disk in chosen
    ]


def open_primary(unit: AnyUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    """Make sure that disks are writable on the primary node, without activating their peers.

    :raises errors.OpExecError: a disk is not active there, and its replica may have missed writes.
    """
    indexes = _indexes(unit, instance)
    for disk in disks:
        _activate(unit, instance, disk, indexes[disk.uuid], instance.primary_node)


def connect_replicas(
    unit: AnyUnit,
    instance: Instance,
    *,
    node_uuid: str | None = None,
    ignore_failures: bool = False,
) -> None:
    """Activate the mirrored disks of an instance on their nodes; no replica becomes writable.

    The replicas connect to each other in the background, so that they can be compared.

    :param node_uuid: activate them on this node only.
    :param ignore_failures: a failure is only a warning.
    :raises errors.OpExecError: a disk could not be activated.
    """
    for index, disk in enumerate(unit.config.instance_disks(instance)):
        if disk.dev_type not in INT_MIRRORED:
            continue
        for uuid in [node_uuid] if node_uuid else disk_nodes(disk, instance.primary_node):
            failure = _assemble(unit, instance, disk, uuid, index, False).failure
            if failure is None:
                continue
            text = (
                f"disk {index} of instance {instance.name} cannot be activated on node"
                f" {unit.config.node(uuid).name}: {why(failure)}"
            )
            if not ignore_failures:
                raise errors.OpExecError(text) from failure
            unit.warn(text)


def _indexes(unit: AnyUnit, instance: Instance) -> dict[str, int]:
    return {uuid: index for index, uuid in enumerate(unit.config.instance(instance.uuid).disks)}


def _activate_mirrors(
    unit: AnyUnit,
    instance: Instance,
    disk: Disk,
    index: int,
    primary_node: str,
    ignore_failures: bool,
) -> bool:
    """Activate a disk on its secondary nodes.

    :returns: whether that worked; otherwise the disk may be used without them.
    :raises errors.OpExecError: it did not work, and the disk may not be used.
    """
    complete = True
    for uuid in disk_nodes(disk, primary_node)[1:]:
        failure = _assemble(unit, instance, disk, uuid, index, False).failure
        if failure is not None:
            text = (
                f"disk {index} of instance {instance.name} cannot be activated on secondary node"
                f" {unit.config.node(uuid).name}: {why(failure)}"
            )
            if not (ignore_failures or isinstance(failure, errors.NodeOffline)):
                raise errors.OpExecError(text) from failure
            unit.warn(text)
            complete = False
    return complete


def _require_usable_alone(
    unit: AnyUnit, instance: Instance, disk: Disk, node: Node, *, accept_loss: bool
) -> None:
    """Check that a disk may be used with its replica on one node, without the other one.

    The primary node of an instance was the last one which wrote, unless there is a record which
    says that its replica missed writes.

    :raises errors.OpExecError: the replica is known to have missed writes.
    """
    present = replicas.with_record(unit, disk)
    if present.outdated_node != node.uuid:
        return
    loss = replicas.possible_loss(unit, present, node)
    if not accept_loss:
        other = unit.config.node(replicas.other_node(disk, node.uuid)).name
        raise errors.OpExecError(
            f"the disks of instance {instance.name} were not activated: {loss}, when this replica"
            f" is used. Bring node {other} back; or accept the loss with 'gnt-instance startup"
            f" --force {instance.name}'."
        )
    unit.warn(loss)


def _activate(
    unit: AnyUnit,
    instance: Instance,
    disk: Disk,
    index: int,
    node_uuid: str,
    *,
    alone: bool = False,
    latest: bool = False,
) -> ActiveDisk:
    """Activate a disk on its primary node.

    :param alone: use the replica there, even if it does not connect to its peer.
    :param latest: that replica is known to have all confirmed writes.
    """
    answer = _assemble(unit, instance, disk, node_uuid, index, True)
    if (
        answer.failure is not None
        and alone
        and _lacks_only_its_peer(unit, instance, disk, node_uuid)
    ):
        # Recorded first, as always when only one of the replicas is written to.
        reason = "it was in sync when it was deactivated"
        if not latest:
            reason = replicas.possible_loss(unit, disk, unit.config.node(node_uuid))
        unit.warn(
            f"disk {index} of instance {instance.name}: {why(answer.failure)}. Its replica on node"
            f" {answer.node_name} is used nevertheless: {reason}"
        )
        replicas.record_use(unit, [disk], [(disk, replicas.other_node(disk, node_uuid))])
        answer = _assemble(unit, instance, disk, node_uuid, index, True)
    if answer.failure is not None:
        raise errors.OpExecError(
            f"disk {index} of instance {instance.name} cannot be activated on node"
            f" {answer.node_name}: {why(answer.failure)}"
        ) from answer.failure
    # Nobody can have started a guest between the activation and this.
    wipe.finish(unit, instance, disk)
    return ActiveDisk(*[*(answer.data or ()), None, None, None][:3])


def _lacks_only_its_peer(unit: AnyUnit, instance: Instance, disk: Disk, node_uuid: str) -> bool:
    """Tell whether a node has a complete replica of a disk, which is not connected to its peer."""
    if disk.dev_type not in INT_MIRRORED:
        return False
    status = unit.rpc.call(BLOCKDEV_FIND, node_uuid, disk=(disk, instance)).data
    whole = (LDS_OKAY, LDS_UNKNOWN)
    return status is not None and status.ldisk_status in whole and bool(status.is_degraded)


def _assemble(
    unit: AnyUnit, instance: Instance, disk: Disk, node_uuid: str, index: int, on_primary: bool
) -> Any:
    together.forget(unit, [disk])
    return unit.rpc.call(
        BLOCKDEV_ASSEMBLE,
        node_uuid,
        disk=(replicas.with_record(unit, disk), instance),
        instance=instance,
        on_primary=on_primary,
        index=index,
    )


def shutdown_disks(
    unit: AnyUnit,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
) -> None:
    """Deactivate disks of an instance on one node, or on all their nodes.

    A failure does not keep the other disks from being deactivated; but a disk which stays active on
    the primary node stays active on the other nodes, too. A secondary node which is marked
    offline is not called. When a mirrored disk is deactivated on all its nodes, its replicas are
    compared before, and the configuration records whether they were equal, or which one missed
    writes.

    :param node_uuid: the node; all nodes of each disk by default.
    :param disks: disks of the instance to deactivate; all by default.
    :raises errors.OpExecError: some disks stay active; names them.
    """
    all_disks = unit.config.instance_disks(instance)
    indexes = {disk.uuid: index for index, disk in enumerate(all_disks)}
    failures: dict[str, list[str]] = {}
    chosen = all_disks if disks is None else disks
    seen = [] if node_uuid else replicas.observe(unit, [(disk, instance) for disk in chosen])
    replicas.record_active(unit, seen)
    for disk in chosen:
        nodes = [node_uuid] if node_uuid else disk_nodes(disk, instance.primary_node)
        in_use = False
        for uuid in nodes:
            node = unit.config.node(uuid)
            if node.offline and uuid != instance.primary_node:
                continue
            if in_use:
                # Its replica may be the only complete one which the primary node can reach.
                continue
            answer = unit.rpc.call(BLOCKDEV_SHUTDOWN, uuid, disk=(disk, instance))
            if answer.failure is not None:
                in_use = uuid == instance.primary_node and not isinstance(
                    answer.failure, errors.NodeOffline
                )
                label = indexes.get(disk.uuid, disk.iv_name)
                failures.setdefault(node.name, []).append(f"disk {label}: {why(answer.failure)}")
    failed_on_primary = unit.config.node(instance.primary_node).name in failures
    if seen and not failed_on_primary:
        replicas.record_equal(unit, instance, seen)
    if failures:
        text = "; ".join(
            f"on node {name}: {'; '.join(lines)}" for name, lines in sorted(failures.items())
        )
        raise errors.OpExecError(f"disks of instance {instance.name} stay active {text}")
