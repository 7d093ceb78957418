"""Disks of instances, as the logical units see them: made, removed, activated, deactivated.

The functions act through node calls and raise what the calls raise; the caller decides what is
taken back. All of them may be repeated: creating is the only one which fails when it was done
before.

A disk is a tree. A plain volume or a file is one device on the primary node; a mirrored disk has
the same device with its children on two nodes. Each function goes to every node which has a part of
the disk; on which nodes that is, :func:`disk_nodes` says.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import why
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
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk, Instance

#: Kinds of disks whose files lie in a directory of the instance.
IN_OWN_DIRECTORY = (FILE, SHARED_FILE)


def info_text(instance: Instance) -> str:
    """What is written beside a volume, where volumes can carry a remark."""
    return f"originstname+{instance.name}"


def disk_nodes(disk: Disk, primary_node: str) -> tuple[str, ...]:
    """Uuids of the nodes which have a part of a disk, the primary first."""
    return (primary_node, *disk.secondary_nodes(primary_node))


def exclusive_storage(unit: LogicalUnit, node_uuid: str) -> bool:
    """Shall volumes on this node share no physical disk?"""
    data = unit.config.snapshot()
    node = data.nodes[node_uuid]
    filled = fill.fill_nd(data.cluster, data.nodegroups.get(node.group), node)
    return bool(filled.get("exclusive_storage"))


def mirrored_internally(disks: Iterable[Disk]) -> bool:
    """Do some of the disks have a secondary node?"""
    return any(disk.dev_type in INT_MIRRORED for disk in disks)


# -- directories of files --------------------------------------------------------


def storage_dir(disks: Sequence[Disk]) -> str | None:
    """Directory made for the disks of one instance; None when their kind needs none."""
    for disk in disks:
        if disk.dev_type in IN_OWN_DIRECTORY:
            return posixpath.dirname(str(disk.logical_id[1]))
    return None


def create_storage_dir(
    unit: LogicalUnit, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Make the directory in which the disk files of the instance will lie."""
    directory = storage_dir(disks)
    if directory is not None:
        node = node_uuid or instance.primary_node
        unit.rpc.call(FILE_STORAGE_DIR_CREATE, node, path=directory).payload()


def remove_storage_dir(
    unit: LogicalUnit, instance: Instance, disks: Sequence[Disk], node_uuid: str | None = None
) -> None:
    """Remove that directory, which must be empty (or gone already)."""
    directory = storage_dir(disks)
    if directory is not None:
        node = node_uuid or instance.primary_node
        unit.rpc.call(FILE_STORAGE_DIR_REMOVE, node, path=directory).payload()


# -- made and removed ------------------------------------------------------------


def create_disk(
    unit: LogicalUnit, instance: Instance, disk: Disk, node_uuids: Sequence[str] | None = None
) -> None:
    """Make one disk on all its nodes, the children of each device before it.

    :param node_uuids: only on these nodes.
    """
    primary = instance.primary_node
    for node_uuid in node_uuids or disk_nodes(disk, primary):
        create_device(unit, instance, disk, node_uuid, on_primary=node_uuid == primary)


def create_device(
    unit: LogicalUnit,
    instance: Instance,
    device: Disk,
    node_uuid: str,
    *,
    on_primary: bool,
    children: bool = True,
) -> None:
    """Make one device on one node, with what is below it.

    :param children: False when what is below is there already.
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
    unit: LogicalUnit, instance: Instance, disk: Disk, node_uuids: Sequence[str] | None = None
) -> None:
    """Remove one disk from all its nodes; its being gone already is not an error.

    Every node is tried.

    :param node_uuids: only from these nodes.
    :raises errors.RpcError: the first failure.
    """
    failure: Exception | None = None
    for node_uuid in node_uuids or disk_nodes(disk, instance.primary_node):
        answer = unit.rpc.call(BLOCKDEV_REMOVE, node_uuid, disk=(disk, instance))
        failure = failure or answer.failure
    if failure is not None:
        raise failure


# -- activated and deactivated ---------------------------------------------------


def assemble_disks(
    unit: LogicalUnit,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
    ignore_secondaries: bool = False,
) -> list[tuple[str, str, str | None]]:
    """Make disks usable on a node (by default the primary), in order; the mirrors first.

    :param disks: these of the instance's disks; all by default.
    :param ignore_secondaries: a mirror which cannot be activated is only a warning.
    :returns: for each disk the name of the node, ``disk/N`` and the device.
    :raises errors.OpExecError: a disk could not be activated; those before it remain active.
    """
    node = unit.config.node(node_uuid or instance.primary_node)
    places = _places(unit, instance)
    chosen = unit.config.instance_disks(instance) if disks is None else disks
    for disk in chosen:
        if disk.forthcoming:
            raise errors.OpExecError(
                f"disk {places[disk.uuid]} of instance {instance.name} was not made completely."
                f" Repeat 'gnt-instance recreate-disks {instance.name}'."
            )
    for disk in chosen:
        _activate_mirrors(unit, instance, disk, places[disk.uuid], node.uuid, ignore_secondaries)
    found = []
    for disk in chosen:
        index = places[disk.uuid]
        device = _activate(unit, instance, disk, index, node.uuid)[0]
        found.append((node.name, f"disk/{index}", device if isinstance(device, str) else None))
    return found


def activate_disk(unit: LogicalUnit, instance: Instance, disk: Disk) -> list[Any]:
    """Make one disk usable on the primary node.

    :returns: the device, its link and how the hypervisor reaches it without the kernel, or None.
    :raises errors.OpExecError: it could not be activated.
    """
    index = _places(unit, instance)[disk.uuid]
    _activate_mirrors(unit, instance, disk, index, instance.primary_node, False)
    return _activate(unit, instance, disk, index, instance.primary_node)


def _places(unit: LogicalUnit, instance: Instance) -> dict[str, int]:
    return {uuid: index for index, uuid in enumerate(unit.config.instance(instance.uuid).disks)}


def _activate_mirrors(
    unit: LogicalUnit,
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
    unit: LogicalUnit, instance: Instance, disk: Disk, index: int, node_uuid: str
) -> list[Any]:
    answer = _assemble(unit, instance, disk, node_uuid, index, True)
    if answer.failure is not None:
        raise errors.OpExecError(
            f"disk {index} of instance {instance.name} cannot be activated on node"
            f" {answer.node_name}: {why(answer.failure)}"
        ) from answer.failure
    return [*(answer.data or ()), None, None, None][:3]


def _assemble(
    unit: LogicalUnit, instance: Instance, disk: Disk, node_uuid: str, index: int, on_primary: bool
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
    unit: LogicalUnit,
    instance: Instance,
    node_uuid: str | None = None,
    *,
    disks: Sequence[Disk] | None = None,
) -> None:
    """Deactivate disks on a node, or without one on all their nodes.

    Every disk is tried. A secondary node which is marked offline is left alone.

    :param disks: these of the instance's disks; all by default.
    :raises errors.OpExecError: names the disks which stay active.
    """
    all_disks = unit.config.instance_disks(instance)
    places = {disk.uuid: index for index, disk in enumerate(all_disks)}
    failures: dict[str, list[str]] = {}
    for disk in all_disks if disks is None else disks:
        nodes = [node_uuid] if node_uuid else disk_nodes(disk, instance.primary_node)
        for uuid in nodes:
            node = unit.config.node(uuid)
            if node.offline and uuid != instance.primary_node:
                continue
            answer = unit.rpc.call(BLOCKDEV_SHUTDOWN, uuid, disk=(disk, instance))
            if answer.failure is not None:
                place = places.get(disk.uuid, disk.iv_name)
                failures.setdefault(node.name, []).append(f"disk {place}: {why(answer.failure)}")
    if failures:
        text = "; ".join(
            f"on node {name}: {'; '.join(lines)}" for name, lines in sorted(failures.items())
        )
        raise errors.OpExecError(f"disks of instance {instance.name} stay active {text}")
