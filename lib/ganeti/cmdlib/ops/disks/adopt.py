"""Adopting existing volumes as the disks of a new instance.

An adopted logical volume is renamed to the name of a disk, so that nobody takes it for another
volume; an administrator's block device keeps its name. When the creation of the instance fails, the
volumes get their old names again. They are never removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks import capacity, same_device
from ganeti.cmdlib.ops.disks.sizes import rounded_up_mib
from ganeti.constants.disk import BLOCK, DRBD8
from ganeti.objects import Disk, snapshots
from ganeti.objects.disk_templates import LVM_BASED
from ganeti.rpc.results import whole
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS, BLOCKDEV_RENAME

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.disks.specs import DiskSpec
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Instance
    from ganeti.rpc import RpcRunner
    from ganeti.utils.undo import UndoStack


class _OnNode(NamedTuple):
    """Stands for the new instance in node calls: name and primary node decide on the parameters."""

    primary_node: str
    name: str = "to be added"


def existing_id(template: str, spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the ``logical_id`` of the device to be adopted, under its present name."""
    if template == BLOCK:
        return ("manual", str(spec["adopt"]))
    return (spec["vg"], str(spec["adopt"]))


def require_unused(
    config: ConfigData, template: str, disk_specs: Sequence[Mapping[str, Any]]
) -> None:
    """Check that no instance has one of the devices, and that no device is named twice.

    :raises errors.OpPrereqError: a device is in use, named twice, a snapshot, or not below /dev.
    """
    used = {device.logical_id: device for disk in config.disks.values() for device in disk.walk()}
    seen: set[tuple[Any, ...]] = set()
    for spec in disk_specs:
        identity = existing_id(template, spec)
        name = "/".join(str(part) for part in identity if part != "manual")
        if identity in used:
            raise errors.OpPrereqError(
                f"device {name} is already a disk of an instance", errors.ECODE_NOTUNIQUE
            )
        if identity in seen:
            raise errors.OpPrereqError(
                f"device {name} is named for two disks", errors.ECODE_NOTUNIQUE
            )
        seen.add(identity)
        of = None if template == BLOCK else snapshots.split(identity[1])
        if of is not None and (identity[0], of[0]) in used:
            raise errors.OpPrereqError(
                f"volume {name} is a snapshot of a disk of an instance", errors.ECODE_NOTUNIQUE
            )
        if template == BLOCK and not str(spec["adopt"]).startswith("/dev/"):
            raise errors.OpPrereqError(
                f"{spec['adopt']!r} is not a path below /dev", errors.ECODE_INVAL
            )


def measure_devices(
    rpc: RpcRunner, node_uuid: str, template: str, disk_specs: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Ask a node for the sizes of the devices to be adopted, in MiB.

    The last MiB of a device may be incomplete; it counts.

    :raises errors.OpPrereqError: a device does not exist.
    :raises errors.RpcError: the node did not answer.
    """
    disks = [
        Disk(dev_type=template, logical_id=existing_id(template, spec), size=0)
        for spec in disk_specs
    ]
    answer = whole(
        rpc.call(
            BLOCKDEV_GETDIMENSIONS, node_uuid, disks=[(disk, _OnNode(node_uuid)) for disk in disks]
        )
    )
    sizes = []
    for disk, found in zip(disks, answer.payload(), strict=True):
        if found is None:
            name = "/".join(str(part) for part in disk.logical_id if part != "manual")
            raise errors.OpPrereqError(
                f"device {name} does not exist on node {answer.node_name}", errors.ECODE_NOENT
            )
        sizes.append(rounded_up_mib(int(found[0])))
    return sizes


def require_storage(
    config: Config,
    rpc: RpcRunner,
    template: str,
    node_uuids: Sequence[str],
    disk_specs: Sequence[DiskSpec],
    reserved: Instance | None = None,
    directory: str | None = None,
) -> None:
    """Check the storage of a new instance: adopted devices, or free space for new disks.

    Devices to be adopted must exist and be unused; their sizes are written into the specs.

    :param node_uuids: UUIDs of the nodes of the new instance, the primary node first.
    :param reserved: the forthcoming instance which becomes real; its reservation counts as free.
    :param directory: of disk files; None for other disks.
    :raises errors.OpPrereqError: a device cannot be adopted, or a node has too little free space.
    """
    if any(spec.get("adopt") for spec in disk_specs):
        require_unused(config.snapshot(), template, disk_specs)
        sizes = measure_devices(rpc, node_uuids[0], template, disk_specs)
        _require_own_devices(config, rpc, template, node_uuids[0], disk_specs)
        for spec, size_mib in zip(disk_specs, sizes, strict=True):
            spec["size"] = size_mib
        return
    if template not in LVM_BASED:
        asked = [spec["size"] for spec in disk_specs]
        capacity.require_possible_files(config, rpc, node_uuids, template, asked, directory)
        return
    needed = capacity.needed_mib(template, disk_specs)
    minors = len(disk_specs) if template == DRBD8 and reserved is None else 0
    capacity.require_free_space(
        config, rpc, node_uuids, needed, reserved=reserved, new_minors=minors
    )


def _require_own_devices(
    config: Config,
    rpc: RpcRunner,
    template: str,
    node_uuid: str,
    disk_specs: Sequence[Mapping[str, Any]],
) -> None:
    """Check that no disk is the same device under another name.

    :raises errors.OpPrereqError: one is, or the node cannot tell.
    """
    ids = [existing_id(template, spec) for spec in disk_specs]
    if template == BLOCK:
        paths = [str(path) for _driver, path in ids]
        same_device.require_own_device(config, rpc, node_uuid, paths, must_be_found=True)
    elif same_device.has_devices_of_administrators(config.snapshot()):
        paths = [same_device.volume_path(*identity) for identity in ids]
        # A volume which is not active has no path, and nobody uses it.
        same_device.require_own_device(config, rpc, node_uuid, paths, must_be_found=False)


def rename(
    rpc: RpcRunner, undo: UndoStack, instance: Instance, pairs: Sequence[tuple[Disk, Disk]]
) -> None:
    """Rename adopted volumes; the undo gives them their old names.

    :param pairs: each disk with its old and with its new name.
    :raises errors.OpExecError: a volume could not be renamed.
    """
    pairs = [(old, new) for old, new in pairs if old.is_volume]
    if not pairs:
        return
    undo.add("new names of adopted volumes", _rename, rpc, instance, [(n, o) for o, n in pairs])
    _rename(rpc, instance, pairs)


def _rename(rpc: RpcRunner, instance: Instance, pairs: Sequence[tuple[Disk, Disk]]) -> None:
    answer = rpc.call(
        BLOCKDEV_RENAME,
        instance.primary_node,
        renames=[(old, instance, new.logical_id) for old, new in pairs],
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not rename volumes of instance {instance.name} on node {answer.node_name}:"
            f" {why(answer.failure)}"
        ) from answer.failure


def present_device(disk: Disk, template: str, spec: Mapping[str, Any]) -> Disk:
    """Return the disk of an adopted device under the present name of the device."""
    return dataclasses.replace(disk, logical_id=existing_id(template, spec))
