"""Is there room for disks? Asked before anything is made.

Only volume groups are asked: they are the one kind of storage whose free space is taken when a disk
is made. Files are sparse, and external storage has its own rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.instance.disks import exclusive_storage
from ganeti.constants.disk import PLAIN, ST_LVM_VG
from ganeti.wire.calls import NODE_INFO

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk


def volumes_mib(disks: Iterable[Disk]) -> dict[str, int]:
    """What disks take of each volume group."""
    needed: dict[str, int] = {}
    for disk in disks:
        for device in disk.walk():
            if device.dev_type == PLAIN:
                group = str(device.logical_id[0])
                needed[group] = needed.get(group, 0) + device.size
    return needed


def require_free_space(
    unit: LogicalUnit, node_uuids: Collection[str], needed_mib: Mapping[str, int]
) -> None:
    """Every node has so much free in these volume groups.

    :raises errors.OpPrereqError: names node, group, what is needed and what there is.
    """
    if not needed_mib:
        return
    groups = sorted(needed_mib)
    answers = unit.rpc.call_many(
        NODE_INFO,
        list(node_uuids),
        hv_specs=[],
        per_node={
            uuid: {
                "storage_units": [
                    [ST_LVM_VG, group, [exclusive_storage(unit, uuid)]] for group in groups
                ]
            }
            for uuid in node_uuids
        },
    )
    for answer in answers.values():
        _boot_id, units, _facts = answer.payload()
        found = {unit_["name"]: unit_.get("storage_free") for unit_ in units if unit_}
        for group in groups:
            free = found.get(group)
            if not isinstance(free, int):
                raise errors.OpPrereqError(
                    f"node {answer.node_name} does not tell what is free in volume group {group}",
                    errors.ECODE_ENVIRON,
                )
            if free < needed_mib[group]:
                raise errors.OpPrereqError(
                    f"not enough space on node {answer.node_name}: {needed_mib[group]} MiB needed"
                    f" in volume group {group}, {free} MiB free",
                    errors.ECODE_NORES,
                )
