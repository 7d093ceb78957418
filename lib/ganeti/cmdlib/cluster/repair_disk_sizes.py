"""Correcting the sizes of disks in the configuration.

The size of a device may differ from the one in the configuration: LVM rounds sizes up, an
administrator may have grown a volume, or an old version may have stored another size. Placement and
the size of new replicas depend on the configuration. The last MiB of a device may be incomplete; it
counts.
"""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks.sizes import rounded_up_mib
from ganeti.locking import ALL, Level
from ganeti.objects import Disk, Instance, fill, updated
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS
from ganeti.wire.calls.base import Failed

_MIB = 1 << 20
Correction = tuple[str, int, str, int]


@executes(OpClusterRepairDiskSizes)
class LUClusterRepairDiskSizes(LogicalUnit[OpClusterRepairDiskSizes, list[Instance]]):
    """Correct the sizes of disks.

    Result: for each correction the name of the instance, the number of the disk, ``size`` (MiB) or
    ``spindles``, and the new value.
    """

    def expand_names(self) -> None:
        if self.op.instances:
            found = [self.config.expand_instance(name).uuid for name in self.op.instances]
            self.need(Level.INSTANCE, found)
        else:
            self.need(Level.INSTANCE, ALL)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE_RES:
            nodes = {instance.primary_node for instance in self._instances()}
            self.need(level, nodes, shared=True)

    def _instances(self) -> list[Instance]:
        held = self.owned(Level.INSTANCE)
        return [instance for instance in self.config.instances() if instance.uuid in held]

    def check_prereq(self) -> list[Instance]:
        return [instance for instance in self._instances() if not instance.forthcoming]

    def steps(self, plan: list[Instance]) -> list[str]:
        count = sum(len(instance.disks) for instance in plan)
        return [
            f"ask nodes for the sizes of {count} disks of {len(plan)} instances",
            "correct the sizes in the configuration which differ",
        ]

    def exec(self, plan: list[Instance]) -> list[Correction]:
        asked: dict[str, list[tuple[Disk, Instance]]] = {}
        for instance in plan:
            pairs = [(disk, instance) for disk in self.config.instance_disks(instance)]
            if pairs:
                asked.setdefault(instance.primary_node, []).extend(pairs)
        answers = self.rpc.call_many(
            BLOCKDEV_GETDIMENSIONS,
            asked,
            per_node={uuid: {"disks": pairs} for uuid, pairs in asked.items()},
        )
        found: list[Correction] = []
        for uuid, answer in answers.items():
            if answer.failure is not None:
                self.log.warn(
                    f"node {answer.node_name} did not report the sizes of its disks:"
                    f" {why(answer.failure)}"
                )
                continue
            for (disk, instance), dimensions in zip(asked[uuid], answer.data, strict=True):
                if isinstance(dimensions, Failed):
                    self.log.warn(
                        f"disk {instance.disks.index(disk.uuid)} of instance {instance.name} could"
                        f" not be measured: {dimensions.text}"
                    )
                    continue
                found += self._correct(instance, disk, dimensions)
        return found

    def _correct(self, instance: Instance, disk: Disk, dimensions: Any) -> list[Correction]:
        index = instance.disks.index(disk.uuid)
        label = f"disk {index} of instance {instance.name}"
        if dimensions is None:
            self.log.warn(f"{label} does not exist, so its size is not changed")
            return []
        if not _plausible(dimensions):
            self.log.warn(f"{label} has an impossible size: {dimensions!r:.200}")
            return []
        # DRBD is attached with the recorded size, and refuses storage which is smaller.
        whole = dimensions[0] // _MIB if disk.has_replicas else rounded_up_mib(dimensions[0])
        size_mib, spindles = whole, dimensions[1]
        changes: dict[str, Any] = {}
        found: list[Correction] = []
        if size_mib != disk.size:
            self.log.info(f"{label} has {size_mib} MiB, not {disk.size} MiB")
            changes["size"] = size_mib
            found.append((instance.name, index, "size", size_mib))
        if spindles is not None and spindles != disk.spindles and self._exclusive(instance):
            self.log.info(f"{label} has {spindles} spindles, not {disk.spindles}")
            changes["spindles"] = spindles
            found.append((instance.name, index, "spindles", spindles))
        children = _grown_children(disk, changes.get("size", disk.size))
        if children != disk.children:
            self.log.info(
                f"the data volume of {label} has {changes.get('size', disk.size)} MiB, too"
            )
            changes["children"] = children
        if changes:
            with self.config.transaction() as change:
                change.disks.update(updated(disk, **changes))
        return found

    def _exclusive(self, instance: Instance) -> bool:
        data = self.config.snapshot()
        node = data.nodes[instance.primary_node]
        return bool(
            fill.fill_nd(data.cluster, data.nodegroups[node.group], node)["exclusive_storage"]
        )


def _plausible(dimensions: Any) -> bool:
    return (
        isinstance(dimensions, (list, tuple))
        and len(dimensions) == 2
        and isinstance(dimensions[0], int)
        and dimensions[0] >= 0
    )


def _grown_children(disk: Disk, size_mib: int) -> tuple[Disk, ...]:
    """Return the children of a disk, with a data volume which is at least as large as the DRBD
    disk.
    """
    if not disk.has_replicas or not disk.children or disk.children[0].size >= size_mib:
        return disk.children
    data, *rest = disk.children
    return (updated(data, size=size_mib), *rest)
