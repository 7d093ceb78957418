"""Disks of instances, as the logical units see them: made, removed, activated, deactivated.

The functions act through node calls and raise what the calls raise; the caller decides what is
taken back. All of them may be repeated: creating is the only one which fails when it was done
before.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.constants.disk import FILE, SHARED_FILE
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

#: Kinds of disks which this version makes as files.
FILE_BASED = (FILE, SHARED_FILE)


def info_text(instance: Instance) -> str:
    """What is written beside a volume, where volumes can carry a remark."""
    return f"originstname+{instance.name}"


def storage_dir(disks: Sequence[Disk]) -> str | None:
    """Directory made for the disks of one instance; None when their kind needs none."""
    for disk in disks:
        if disk.dev_type in FILE_BASED:
            return posixpath.dirname(str(disk.logical_id[1]))
    return None


def create_storage_dir(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    """Make the directory in which the disk files of the instance will lie."""
    directory = storage_dir(disks)
    if directory is not None:
        unit.rpc.call(FILE_STORAGE_DIR_CREATE, instance.primary_node, path=directory).payload()


def remove_storage_dir(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    """Remove that directory, which must be empty (or gone already)."""
    directory = storage_dir(disks)
    if directory is not None:
        unit.rpc.call(FILE_STORAGE_DIR_REMOVE, instance.primary_node, path=directory).payload()


def create_disk(unit: LogicalUnit, instance: Instance, disk: Disk) -> None:
    """Make one disk on the primary node."""
    unit.rpc.call(
        BLOCKDEV_CREATE,
        instance.primary_node,
        disk=(disk, instance),
        size_mib=disk.size,
        owner=instance.name,
        on_primary=True,
        info=info_text(instance),
        exclusive_storage=False,
    ).payload()


def remove_disk(unit: LogicalUnit, instance: Instance, disk: Disk) -> None:
    """Remove one disk; its being gone already is not an error."""
    unit.rpc.call(BLOCKDEV_REMOVE, instance.primary_node, disk=(disk, instance)).payload()


def assemble_disks(unit: LogicalUnit, instance: Instance, node_uuid: str | None = None) -> None:
    """Make all disks usable on a node (by default the primary), in order.

    :raises errors.OpExecError: a disk could not be activated; those before it remain active.
    """
    node = unit.config.node(node_uuid or instance.primary_node)
    for index, disk in enumerate(unit.config.instance_disks(instance)):
        answer = unit.rpc.call(
            BLOCKDEV_ASSEMBLE,
            node.uuid,
            disk=(disk, instance),
            instance=instance,
            on_primary=True,
            index=index,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"disk {index} of instance {instance.name} cannot be activated on node {node.name}:"
                f" {why(answer.failure)}"
            ) from answer.failure


def shutdown_disks(unit: LogicalUnit, instance: Instance, node_uuid: str | None = None) -> None:
    """Deactivate all disks on a node (by default the primary).

    Every disk is tried.

    :raises errors.OpExecError: names the disks which stay active.
    """
    node = unit.config.node(node_uuid or instance.primary_node)
    failures = []
    for index, disk in enumerate(unit.config.instance_disks(instance)):
        answer = unit.rpc.call(BLOCKDEV_SHUTDOWN, node.uuid, disk=(disk, instance))
        if answer.failure is not None:
            failures.append(f"disk {index}: {why(answer.failure)}")
    if failures:
        raise errors.OpExecError(
            f"disks of instance {instance.name} stay active on node {node.name}:"
            f" {'; '.join(failures)}"
        )
