"""Listing the logical volumes of nodes."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import AnyUnit, executes
from ganeti.cmdlib.ops.node.storage_query import NAME, NODE, NodeQueryUnit
from ganeti.objects import Disk, snapshots
from ganeti.opcodes.node import (
    OpNodeQueryvols,
)
from ganeti.wire.calls import (
    NODE_VOLUMES,
)

VOLUME_FIELDS = ("instance", NAME, NODE, "phys", "size", "vg")


def volume_owners(unit: AnyUnit) -> dict[tuple[str, str], str]:
    """Map each logical volume of a disk, as (UUID of the node, "vg/lv"), to its instance's name."""
    owners = {}
    for instance in unit.config.instances():
        for disk in unit.config.instance_disks(instance):
            for node_uuid in unit.config.instance_nodes(instance):
                for volume in _volumes_of(disk):
                    owners[node_uuid, volume] = instance.name
    return owners


def _volumes_of(disk: Disk) -> list[str]:
    return [str(device.volume_id) for device in disk.walk() if device.is_volume]


@executes(OpNodeQueryvols)
class LUNodeQueryvols(NodeQueryUnit[OpNodeQueryvols, None]):
    """List logical volumes, with the instances they belong to."""

    FIELDS = VOLUME_FIELDS

    def exec(self, plan: None) -> list[list[Any]]:
        if not self.config.cluster().volume_group_name:
            # Without a volume group the nodes need not have LVM.
            return []
        nodes = [self.config.node(uuid) for uuid in self.node_uuids]
        answers = self._ask(NODE_VOLUMES, nodes, apart=True)
        owners = volume_owners(self)
        rows = []
        for node in nodes:
            listed = []
            for row in answers.get(node.uuid, ()):
                if "problem" in row:
                    self._warn(node, f"the volumes of volume group {row['vg']}", row["problem"])
                else:
                    listed.append(row)
            for volume in sorted(listed, key=lambda v: (v["dev"], v["vg"], v["name"])):
                full = f"{volume['vg']}/{volume['name']}"
                owner = owners.get((node.uuid, full))
                parts = snapshots.split(full)
                if owner is None and parts is not None:
                    # A snapshot belongs to the owner of its volume.
                    owner = owners.get((node.uuid, parts[0]))
                values = {
                    NODE: node.name,
                    "phys": volume["dev"],
                    "vg": volume["vg"],
                    NAME: volume["name"],
                    "size": volume["size"],
                    "instance": owner or "-",
                }
                rows.append([values[field] for field in self.op.output_fields])
        return rows
