"""Checks of free disk space and other limits, which logical units make before they create disks.

Only the free space of volume groups is checked: they are the one kind of storage whose space is
taken when a disk is created. Files are sparse, and only their largest size is checked. External
storage has its own rules.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.ops.disks.devices import exclusive_storage
from ganeti.constants.disk import DRBD8, FILE, SHARED_FILE, ST_LVM_VG
from ganeti.objects import disk_templates, fill
from ganeti.utils import text
from ganeti.wire.calls import DIRECTORY_SPACE, NODE_INFO

if TYPE_CHECKING:
    from ganeti.cmdlib.base import Context
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Disk, Instance, Node
    from ganeti.rpc import RpcRunner


def volumes_mib(disks: Iterable[Disk]) -> dict[str, int]:
    """Sum up the space which disks take of volume groups.

    :returns: name of the volume group -> size in MiB.
    """
    needed: dict[str, int] = {}
    for disk in disks:
        for device in disk.walk():
            if device.is_volume:
                group = device.volume_id.group
                needed[group] = needed.get(group, 0) + device.size
    return needed


def needed_mib(template: str, planned: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Sum up the space which new disks will take of volume groups, with their metadata.

    :param planned: specs as :func:`.specs.plan_disk` returns them, with their sizes.
    :returns: name of the volume group -> size in MiB.
    """
    needed: dict[str, int] = {}
    for spec in planned:
        parts = [(spec.get("vg"), spec["size"])]
        if spec.get("metavg"):
            parts.append((spec["metavg"], disk_templates.metadata_mib(template, spec["size"])))
        for group, size_mib in parts:
            if group:
                needed[group] = needed.get(group, 0) + size_mib
    return needed


def metadata_mib(planned: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Sum up the space which the metadata of new mirrored disks will take of volume groups.

    :param planned: as for :func:`needed_mib`.
    :returns: name of the volume group -> size in MiB.
    """
    needed: dict[str, int] = {}
    for spec in planned:
        size_mib = disk_templates.metadata_mib(DRBD8, spec["size"])
        needed[spec["metavg"]] = needed.get(spec["metavg"], 0) + size_mib
    return needed


def reserved_mib(config: ConfigData, node_uuid: str, reserved: Instance | None) -> dict[str, int]:
    """Sum up the space which is reserved for forthcoming instances on a node.

    :param reserved: an instance whose reservation does not count.
    :returns: name of the volume group -> size in MiB.
    """
    return volumes_mib(
        part
        for instance in config.instances.values()
        if instance.forthcoming and (reserved is None or instance.uuid != reserved.uuid)
        for disk in fill.instance_disks(config, instance)
        for part in disk.walk()
        if part.is_volume and part.logical_id and node_uuid in part.nodes
    )


def require_free_space(
    config: Config,
    rpc: RpcRunner,
    node_uuids: Collection[str],
    needed_mib: Mapping[str, int],
    reserved: Instance | None = None,
    *,
    new_minors: int = 0,
) -> None:
    """Check the free space of volume groups, without the space reserved for forthcoming instances.

    :param node_uuids: nodes, each of which needs the space.
    :param needed_mib: name of the volume group -> size in MiB.
    :param reserved: the instance which needs the space; its own reservation counts as free.
    :param new_minors: how many DRBD minors each of these nodes gets.
    :raises errors.OpPrereqError: a node has too little free space, or did not report it, or its
        DRBD module has not so many minors.
    """
    if not needed_mib:
        return
    groups = sorted(needed_mib)
    answers = rpc.call_many(
        NODE_INFO,
        list(node_uuids),
        hv_specs=[],
        per_node={
            uuid: {
                "storage_units": [
                    [ST_LVM_VG, group, [exclusive_storage(config, uuid)]] for group in groups
                ]
            }
            for uuid in node_uuids
        },
    )
    for node_uuid, answer in answers.items():
        _boot_id, units, _facts = answer.payload()
        _require_minors(config, config.node(node_uuid), units, new_minors)
        found = {unit_["name"]: unit_.get("storage_free") for unit_ in units if unit_}
        problems = {unit_["name"]: unit_.get("problem") for unit_ in units if unit_}
        for group in groups:
            free = found.get(group)
            if not isinstance(free, int):
                raise errors.OpPrereqError(
                    f"node {answer.node_name} did not report the free space of volume group"
                    f" {group}" + (f": {problems[group]}" if problems.get(group) else ""),
                    errors.ECODE_ENVIRON,
                )
            taken = reserved_mib(config.snapshot(), node_uuid, reserved).get(group, 0)
            if free < needed_mib[group] + taken:
                # Only a refusal needs the sentences.
                from ganeti.htools.reasons import amounts

                needed, there, promised = amounts(needed_mib[group], free, taken)
                reservation = (
                    f", {promised} of them reserved for forthcoming instances" if taken else ""
                )
                raise errors.OpPrereqError(
                    f"not enough space on node {answer.node_name}: {needed}"
                    f" needed in volume group {group}, {there} free{reservation}. Choose"
                    " another node or smaller disks, or enlarge the volume group [FailDisk]",
                    errors.ECODE_NORES,
                )


def _require_minors(
    config: Config, node: Node, units: Iterable[Mapping[str, Any]], count: int
) -> None:
    """Check that a node and its DRBD module have the minors which new disks would get now.

    Only a module before 8.4 has a limit: it makes its minors when it is loaded.
    """
    minors = config.next_minors(node.uuid, count)
    if len(minors) < count:
        raise errors.OpPrereqError(
            f"node {node.name} has {len(minors)} free DRBD minors, and {count} are needed",
            errors.ECODE_NORES,
        )
    limits = [unit["drbd_minors"] for unit in units if isinstance(unit.get("drbd_minors"), int)]
    if minors and limits and minors[-1] >= min(limits):
        raise errors.OpPrereqError(
            f"the DRBD module of node {node.name} was loaded for {min(limits)} minors, but the new"
            f" disk would be minor {minors[-1]}. Load the module with a larger minor_count there"
            " ('modprobe drbd minor_count=255'), when no DRBD device of the node is in use.",
            errors.ECODE_NORES,
        )


#: Each file system can have files of nearly this size (MiB); so nobody is asked for smaller ones.
_ANY_FILE_MIB = 4096


def require_possible_files(
    config: Config,
    rpc: RpcRunner,
    node_uuids: Collection[str],
    template: str,
    sizes_mib: Iterable[int],
    directory: str | None = None,
) -> None:
    """Check that nodes can have the files of new disks, which ext4 limits to 16 TiB, FAT to 4 GiB.

    A node which does not answer is no error here: the disks are made only where it does.

    :param directory: of the files; None for the one of the cluster.
    :raises errors.OpPrereqError: the file system of a node cannot have the largest of them.
    """
    largest = max(sizes_mib, default=0)
    directory = directory or config.cluster().disk_directory(template)
    if template not in (FILE, SHARED_FILE) or largest < _ANY_FILE_MIB or not directory:
        return
    answers = rpc.call_many(
        DIRECTORY_SPACE, list(node_uuids), files={directory: largest << 20}, removed=[], sparse=True
    )
    for answer in answers.values():
        if answer.failure is None and isinstance(answer.data.get(directory), str):
            raise errors.OpPrereqError(
                f"node {answer.node_name} cannot have a disk of template {template} with"
                f" {largest} MiB: {answer.data[directory]}",
                errors.ECODE_NORES,
            )


def warn_of_little_space(ctx: Context, instance: Instance, disk: Disk, more_mib: int) -> None:
    """Warn when files of a disk become larger than the space which their file systems have free.

    Files are sparse, so this is no error. A node which does not answer is none, either.

    :param more_mib: by how much the disk grows.
    """
    if disk.dev_type not in (FILE, SHARED_FILE):
        return
    directory = os.path.dirname(disk.logical_id[1])
    answer = ctx.rpc.call(
        DIRECTORY_SPACE, instance.primary_node, files={directory: 0}, removed=[], sparse=True
    )
    free = None if answer.failure is not None else answer.data.get(directory)
    if isinstance(free, int) and free < more_mib << 20:
        ctx.log.warn(
            f"the disk of instance {instance.name} becomes {text.format_unit(more_mib)} larger,"
            f" and node {answer.node_name} has only {text.format_unit(free >> 20)} free in"
            f" {directory}. The guest gets errors from its disk when that is full. Free some space,"
            " or move the instance, before it writes so much."
        )
