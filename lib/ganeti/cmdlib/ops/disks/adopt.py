"""Taking over volumes which exist already as the disks of a new instance.

A logical volume gets a name of ours, so that nobody takes it for his own any more; a block device
of the administrator stays as it is. When the creation fails, the volumes get their old names again
and are never removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks import capacity
from ganeti.constants.disk import BLOCK, DRBD_META_SIZE_MIB, INT_MIRRORED, LVM_BASED, PLAIN
from ganeti.objects import Disk, snapshots
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS, BLOCKDEV_RENAME

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.cmdlib.undo import Undo
    from ganeti.objects import ConfigData, Instance

_MIB = 1 << 20


class _OnNode(NamedTuple):
    """Stands for the instance which does not exist yet: what decides about disk parameters."""

    primary_node: str
    name: str = "to be added"


def existing_id(template: str, wish: Mapping[str, Any]) -> tuple[Any, ...]:
    """The ``logical_id`` which the adopted device has now."""
    if template == BLOCK:
        return ("manual", str(wish["adopt"]))
    return (wish["vg"], str(wish["adopt"]))


def require_unused(config: ConfigData, template: str, wishes: Sequence[Mapping[str, Any]]) -> None:
    """No instance has one of the devices, and none is given twice."""
    used = {device.logical_id: device for disk in config.disks.values() for device in disk.walk()}
    seen: set[tuple[Any, ...]] = set()
    for wish in wishes:
        identity = existing_id(template, wish)
        name = "/".join(str(part) for part in identity if part != "manual")
        if identity in used:
            raise errors.OpPrereqError(
                f"device {name} is a disk of an instance already", errors.ECODE_NOTUNIQUE
            )
        if identity in seen:
            raise errors.OpPrereqError(
                f"device {name} is given for two disks", errors.ECODE_NOTUNIQUE
            )
        seen.add(identity)
        of = None if template == BLOCK else snapshots.split(identity[1])
        if of is not None and (identity[0], of[0]) in used:
            raise errors.OpPrereqError(
                f"volume {name} is a snapshot of a disk of an instance", errors.ECODE_NOTUNIQUE
            )
        if template == BLOCK and not str(wish["adopt"]).startswith("/dev/"):
            raise errors.OpPrereqError(
                f"{wish['adopt']!r} is not a path below /dev", errors.ECODE_INVAL
            )


def measure_wishes(
    unit: LogicalUnit, node_uuid: str, template: str, wishes: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Sizes (MiB) of the devices on a node.

    :raises errors.OpPrereqError: one does not exist.
    """
    disks = [
        Disk(dev_type=template, logical_id=existing_id(template, wish), size=0) for wish in wishes
    ]
    answer = unit.rpc.call(
        BLOCKDEV_GETDIMENSIONS, node_uuid, disks=[(disk, _OnNode(node_uuid)) for disk in disks]
    )
    sizes = []
    for disk, found in zip(disks, answer.payload(), strict=True):
        if found is None:
            name = "/".join(str(part) for part in disk.logical_id if part != "manual")
            raise errors.OpPrereqError(
                f"device {name} does not exist on node {answer.node_name}", errors.ECODE_NOENT
            )
        sizes.append(int(found[0]) // _MIB)
    return sizes


def require_storage(
    unit: LogicalUnit,
    template: str,
    node_uuids: Sequence[str],
    wishes: Sequence[dict[str, Any]],
    reserved: Instance | None = None,
) -> None:
    """Devices to be adopted exist and are free, which also fills in their sizes; for others there
    is room.

    :param node_uuids: nodes of the new instance, the primary first.
    :param reserved: what had been reserved for it, which is free for it.
    """
    if any(wish.get("adopt") for wish in wishes):
        require_unused(unit.config.snapshot(), template, wishes)
        sizes = measure_wishes(unit, node_uuids[0], template, wishes)
        for wish, size_mib in zip(wishes, sizes, strict=True):
            wish["size"] = size_mib
        return
    if template not in LVM_BASED:
        return
    needed: dict[str, int] = {}
    for wish in wishes:
        needed[wish["vg"]] = needed.get(wish["vg"], 0) + wish["size"]
        if template in INT_MIRRORED:
            needed[wish["metavg"]] = needed.get(wish["metavg"], 0) + DRBD_META_SIZE_MIB
    capacity.require_free_space(unit, node_uuids, needed, reserved=reserved)


def rename(
    unit: LogicalUnit, undo: Undo, instance: Instance, pairs: Sequence[tuple[Disk, Disk]]
) -> None:
    """Give adopted volumes their new names; ``pairs`` are each disk as it was and as it will be.

    :raises errors.OpExecError: not all could be renamed.
    """
    pairs = [(old, new) for old, new in pairs if old.dev_type == PLAIN]
    if not pairs:
        return
    undo.add("new names of adopted volumes", _rename, unit, instance, [(n, o) for o, n in pairs])
    _rename(unit, instance, pairs)


def _rename(unit: LogicalUnit, instance: Instance, pairs: Sequence[tuple[Disk, Disk]]) -> None:
    answer = unit.rpc.call(
        BLOCKDEV_RENAME,
        instance.primary_node,
        renames=[(old, instance, new.logical_id) for old, new in pairs],
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not rename volumes of instance {instance.name} on node {answer.node_name}:"
            f" {why(answer.failure)}"
        ) from answer.failure


def as_it_is(disk: Disk, template: str, wish: Mapping[str, Any]) -> Disk:
    """The adopted device under its present name."""
    return dataclasses.replace(disk, logical_id=existing_id(template, wish))
