"""Looking for disks of a group which are not usable as they should be.

Only instances whose disks the cluster keeps in use are looked at. What is found is told, not
repaired: the caller activates the disks of the instances named, which is what the watcher does
every few minutes. Only groups which want it repair their volume groups on this occasion, see
:mod:`ganeti.cmdlib.ops.disks.self_repair`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ganeti.cmdlib import locks
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks import self_repair
from ganeti.constants import disk as disk_c
from ganeti.locking import Level
from ganeti.objects import Disk, Instance
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.rpc import Result
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS, DRBD_NEEDS_ACTIVATION, LV_LIST

Found = tuple[dict[str, str], list[str], dict[str, list[list[str]]]]


@dataclass(slots=True)
class _Wanted:
    """What should be there, by node uuid."""

    # (volume group/volume) -> instance
    volumes: dict[str, dict[str, Instance]] = field(default_factory=dict)
    mirrored: dict[str, list[tuple[Disk, Instance]]] = field(default_factory=dict)
    others: dict[str, list[tuple[Disk, Instance]]] = field(default_factory=dict)


@executes(OpGroupVerifyDisks)
class LUGroupVerifyDisks(LogicalUnit[OpGroupVerifyDisks, list[Instance]]):
    """Compare the disks of a group with what its nodes have.

    Result: node -> why it could not be asked, instances whose disks have to be activated, instance
    -> missing devices as [node, device].
    """

    def expand_names(self) -> None:
        self.group = self.config.expand_group(self.op.group_name)
        self.need(Level.INSTANCE, locks.instances_of_group(self, self.group.uuid), shared=True)
        self.need(Level.NODEGROUP, [self.group.uuid], shared=True)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE:
            # A mirror may have its other half in another group.
            nodes = {
                uuid
                for instance in self._instances()
                for uuid in self.config.instance_nodes(instance)
            }
            self.need(level, nodes | locks.nodes_of_group(self, self.group.uuid), shared=True)

    def _instances(self) -> list[Instance]:
        data = self.config.snapshot()
        return [
            data.instances[uuid] for uuid in sorted(locks.instances_of_group(self, self.group.uuid))
        ]

    def check_prereq(self) -> list[Instance]:
        locks.require_still_same(
            self.owned(Level.INSTANCE),
            locks.instances_of_group(self, self.group.uuid),
            f"the set of instances in group {self.group.name}",
        )
        return [
            instance
            for instance in self._instances()
            if instance.disks_active and not instance.forthcoming
        ]

    def exec(self, plan: list[Instance]) -> Found:
        wanted = self._wanted(plan)
        unresponsive: dict[str, str] = {}
        inactive: set[str] = set()
        missing: dict[str, list[list[str]]] = {}

        def lacks(instance: Instance, node: str, device: str) -> None:
            missing.setdefault(instance.name, []).append([node, device])

        answers = self.rpc.call_many(LV_LIST, wanted.volumes, groups=[])
        for node, uuid, answer in self._answered(answers, unresponsive):
            for volume, instance in wanted.volumes[uuid].items():
                known = answer.get(volume)
                if known is None:
                    lacks(instance, node, volume)
                elif known[1]:
                    inactive.add(instance.name)
        answers = self.rpc.call_many(
            DRBD_NEEDS_ACTIVATION,
            wanted.mirrored,
            per_node={uuid: {"disks": pairs} for uuid, pairs in wanted.mirrored.items()},
        )
        for _node, uuid, lost in self._answered(answers, unresponsive):
            inactive.update(
                instance.name for disk, instance in wanted.mirrored[uuid] if disk.uuid in lost
            )
        answers = self.rpc.call_many(
            BLOCKDEV_GETDIMENSIONS,
            wanted.others,
            per_node={uuid: {"disks": pairs} for uuid, pairs in wanted.others.items()},
        )
        for node, uuid, sizes in self._answered(answers, unresponsive):
            for (disk, instance), size in zip(wanted.others[uuid], sizes, strict=True):
                if size is None:
                    lacks(instance, node, "/".join(str(part) for part in disk.logical_id[1:]))
        if self_repair.is_enabled(self, self.group):
            self_repair.run(self, self.group)
        if not self.op.is_strict:
            for name, reason in unresponsive.items():
                self.warn(f"node {name} could not be asked and is left out: {reason}")
            unresponsive = {}
        # What is missing cannot be activated.
        return unresponsive, sorted(inactive - set(missing)), missing

    def _wanted(self, instances: list[Instance]) -> _Wanted:
        wanted = _Wanted()
        nodes = self.config.snapshot().nodes
        for instance in instances:
            for disk in self.config.instance_disks(instance):
                if disk.dev_type not in (disk_c.PLAIN, disk_c.DRBD8):
                    if disk.dev_type in disk_c.FILE_BASED | {disk_c.BLOCK}:
                        wanted.others.setdefault(instance.primary_node, []).append((disk, instance))
                    continue
                places = disk.all_node_uuids() or (instance.primary_node,)
                for uuid in places:
                    for volume in _volumes(disk):
                        wanted.volumes.setdefault(uuid, {})[volume] = instance
                    if disk.dev_type == disk_c.DRBD8:
                        wanted.mirrored.setdefault(uuid, []).append((disk, instance))
        # Of a node that is marked offline nobody expects anything.
        for table in (wanted.volumes, wanted.mirrored, wanted.others):
            for uuid in [uuid for uuid in table if nodes[uuid].offline]:
                del table[uuid]
        return wanted

    @staticmethod
    def _answered(
        answers: dict[str, Result], unresponsive: dict[str, str]
    ) -> Iterator[tuple[str, str, Any]]:
        """Name, uuid and answer of the nodes which answered; the others are noted."""
        for uuid, answer in answers.items():
            if answer.failure is not None:
                unresponsive[answer.node_name] = why(answer.failure)
            else:
                yield answer.node_name, uuid, answer.data


def _volumes(disk: Disk) -> list[str]:
    """Logical volumes below a disk, as ``vg/lv``."""
    return [
        "/".join(map(str, device.logical_id))
        for device in disk.walk()
        if device.dev_type == disk_c.PLAIN
    ]
