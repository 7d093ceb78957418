"""Which devices belong to an operation, so that it may remove them again.

A failed operation removes what it has made, and nothing else. Three rules ensure that:

* The name of a new device is made for it, with a new UUID; or :func:`require_absent` proves that
  no device has the name, before the configuration records the device as one to be created.
* A node which refuses to create a device says so (:func:`may_be_made`). Then the device is not one
  of this operation: :func:`disown` takes it out of the records, and :func:`to_remove` leaves it out
  of every later removal by this operation.
* An answer which is lost leaves open whether the device was created. Because nothing had the name
  before, the device can be removed: there is none, or it is the one of this operation.

The functions of :mod:`~ganeti.cmdlib.ops.disks.devices` which create and remove devices obey the
second rule, so no operation can pass it by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import DeviceKey, why
from ganeti.rpc.results import whole
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner


def require_absent(rpc: RpcRunner, instance: Instance, parts: Sequence[tuple[Disk, str]]) -> None:
    """Check that nodes have no devices under the names of those which will be created.

    :param parts: each device with the UUID of its node.
    :raises errors.OpExecError: a device is there, or it is not known.
    """
    by_node: dict[str, list[Disk]] = {}
    for device, node_uuid in parts:
        by_node.setdefault(node_uuid, []).append(device)
    for node_uuid, devices in by_node.items():
        answer = whole(
            rpc.call(
                BLOCKDEV_GETDIMENSIONS, node_uuid, disks=[(device, instance) for device in devices]
            )
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"cannot tell whether the names of new devices of instance {instance.name} are"
                f" free on node {answer.node_name}: {why(answer.failure)}; nothing was created"
            ) from answer.failure
        taken = [
            shown(device)
            for device, size in zip(devices, answer.data, strict=True)
            if size is not None
        ]
        if taken:
            raise errors.OpExecError(
                f"{', '.join(taken)} exists on node {answer.node_name} already, and instance"
                f" {instance.name} needs the name for a new device; nothing was created. If nobody"
                " needs it, remove or rename it."
            )


def shown(device: Disk) -> str:
    """Return the name of a device for messages."""
    return "/".join(str(part) for part in device.logical_id)


def may_be_made(failure: Exception) -> bool:
    """Return True if a node may have, or keep, a device although the call which creates it
    failed.
    """
    if isinstance(failure, errors.NodeOffline | errors.NodeRefused):
        return False
    cause = failure.cause if isinstance(failure, errors.NodeCallFailed) else None
    return not isinstance(cause, errors.DeviceCreationError) or bool(cause.created_devices)


def disown(config: Config, refused: set[DeviceKey], device: Disk, node_uuid: str) -> None:
    """Remember that a node refused to create a device, and forget a record of it.

    Without the record, no later operation takes the device for one which this one has left.

    :param refused: the devices which nodes refused to create for this operation; gets this one.
    """
    refused.add(_key(device, node_uuid))
    data = config.snapshot()
    owned = {uuid for instance in data.instances.values() for uuid in instance.disks}
    records = [
        disk.uuid
        for disk in data.disks.values()
        if disk.uuid not in owned
        and (disk.dev_type, disk.logical_id) == (device.dev_type, device.logical_id)
        and disk.nodes == (node_uuid,)
    ]
    if records:
        with config.transaction() as change:
            for uuid in records:
                change.disks.remove_detached(uuid)


def to_remove(refused: Collection[DeviceKey], disk: Disk, node_uuid: str) -> Iterator[Disk]:
    """Yield the trees of a disk which may be removed from a node: those without refused devices."""
    if not any(_key(device, node_uuid) in refused for device in disk.walk()):
        yield disk
        return
    if _key(disk, node_uuid) not in refused:
        yield dataclasses.replace(disk, children=())
    for child in disk.children:
        yield from to_remove(refused, child, node_uuid)


def _key(device: Disk, node_uuid: str) -> DeviceKey:
    return (node_uuid, device.dev_type, device.logical_id)
