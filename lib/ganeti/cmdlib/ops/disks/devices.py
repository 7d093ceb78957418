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
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import wipe
from ganeti.constants.disk import FILE, INT_MIRRORED, SHARED_FILE
from ganeti.objects import fill
from ganeti.wire.calls import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN,
    FILE_STORAGE_DIR_CREATE,
    FILE_STORAGE_DIR_REMOVE,
)

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance


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
    """Create a disk on all its nodes, on each the children before the device.

    :param node_uuids: create the disk on these of its nodes only.
    :raises errors.RpcError: a node call failed.
    """
    primary = instance.primary_node
    for node_uuid in node_uuids or disk_nodes(disk, primary):
        create_device(unit, instance, disk, node_uuid, on_primary=node_uuid == primary)


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

    :param children: False when the children exist already.
    :raises errors.RpcError: a node call failed.
    """
    for child in device.children if children else ():
        create_device(unit, instance, child, node_uuid, on_primary=on_primary)
    unit.rpc.call(
        BLOCKDEV_CREATE,
        node_uuid,
        disk=(device, instance),
        size_mib=device.size,
        owner=instance.name,
        on_primary=on_primary,
        info=info_text(instance),
        exclusive_storage=exclusive_storage(unit, node_uuid),
    ).payload()
    wipe.wipe(unit, instance, device, node_uuid)


def remove_disk(
    unit: AnyUnit, instance: Instance, disk: Disk, node_uuids: Sequence[str] | None = None
) -> None:
    """Remove a disk from all its nodes; a disk which does not exist is no error.

    All nodes are called, even after a failure.

    :param node_uuids: remove the disk from these of its nodes only.
    :raises errors.RpcError: the first failure.
    """
    failure: Exception | None = None
    for node_uuid in node_uuids or disk_nodes(disk, instance.primary_node):
        answer = unit.rpc.call(BLOCKDEV_REMOVE, node_uuid, disk=(disk, instance))
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
) -> list[tuple[str, str, str | None]]:
    """Activate disks of an instance, first on the secondary nodes, then on the primary.

    :param node_uuid: the node which may write; by default the primary node of the instance.
    :param disks: disks of the instance to activate; all by default.
    :param ignore_secondaries: a failure on a secondary node is only a warning.
    :returns: for each disk the name of the node, ``disk/N`` and the path of the device.
    :raises errors.OpExecError: a disk could not be activated; those before it stay active.
    """
    node = unit.config.node(node_uuid or instance.primary_node)
    indexes = _indexes(unit, instance)
    chosen = unit.config.instance_disks(instance) if disks is None else disks
    for disk in chosen:
        if disk.forthcoming:
            raise errors.OpExecError(
                f"disk {indexes[disk.uuid]} of instance {instance.name} was not created completely."
                f" Repeat 'gnt-instance recreate-disks {instance.name}'."
            )
    for disk in chosen:
        _activate_mirrors(unit, instance, disk, indexes[disk.uuid], node.uuid, ignore_secondaries)
    found = []
    for disk in chosen:
        index = indexes[disk.uuid]
        device = _activate(unit, instance, disk, index, node.uuid).device
        found.append((node.name, f"disk/{index}", device))
    return found


def activate_disk(unit: AnyUnit, instance: Instance, disk: Disk) -> ActiveDisk:
    """Activate one disk on all its nodes.

    :raises errors.OpExecError: the disk could not be activated.
    """
    index = _indexes(unit, instance)[disk.uuid]
    _activate_mirrors(unit, instance, disk, index, instance.primary_node, False)
    return _activate(unit, instance, disk, index, instance.primary_node)


def _indexes(unit: AnyUnit, instance: Instance) -> dict[str, int]:
    return {uuid: index for index, uuid in enumerate(unit.config.instance(instance.uuid).disks)}


def _activate_mirrors(
    unit: AnyUnit,
    instance: Instance,
    disk: Disk,
    index: int,
    primary_node: str,
    ignore_failures: bool,
) -> None:
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


def _activate(
    unit: AnyUnit, instance: Instance, disk: Disk, index: int, node_uuid: str
) -> ActiveDisk:
    answer = _assemble(unit, instance, disk, node_uuid, index, True)
    if answer.failure is not None:
        raise errors.OpExecError(
            f"disk {index} of instance {instance.name} cannot be activated on node"
            f" {answer.node_name}: {why(answer.failure)}"
        ) from answer.failure
    return ActiveDisk(*[*(answer.data or ()), None, None, None][:3])


def _assemble(
    unit: AnyUnit, instance: Instance, disk: Disk, node_uuid: str, index: int, on_primary: bool
) -> Any:
    return unit.rpc.call(
        BLOCKDEV_ASSEMBLE,
        node_uuid,
        disk=(disk, instance),
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

    A failure does not keep the other disks from being deactivated. A secondary node which is marked
    offline is not called.

    :param node_uuid: the node; all nodes of each disk by default.
    :param disks: disks of the instance to deactivate; all by default.
    :raises errors.OpExecError: some disks stay active; names them.
    """
    all_disks = unit.config.instance_disks(instance)
    indexes = {disk.uuid: index for index, disk in enumerate(all_disks)}
    failures: dict[str, list[str]] = {}
    for disk in all_disks if disks is None else disks:
        nodes = [node_uuid] if node_uuid else disk_nodes(disk, instance.primary_node)
        for uuid in nodes:
            node = unit.config.node(uuid)
            if node.offline and uuid != instance.primary_node:
                continue
            answer = unit.rpc.call(BLOCKDEV_SHUTDOWN, uuid, disk=(disk, instance))
            if answer.failure is not None:
                label = indexes.get(disk.uuid, disk.iv_name)
                failures.setdefault(node.name, []).append(f"disk {label}: {why(answer.failure)}")
    if failures:
        text = "; ".join(
            f"on node {name}: {'; '.join(lines)}" for name, lines in sorted(failures.items())
        )
        raise errors.OpExecError(f"disks of instance {instance.name} stay active {text}")
