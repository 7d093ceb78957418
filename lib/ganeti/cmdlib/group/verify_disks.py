"""Verifying the disks of the instances of a node group.

Only instances whose disks should be active are checked. Problems are reported and not repaired: the
watcher, which submits this job every few minutes, activates the disks of the instances in the
result. Which replica of a mirrored disk misses writes at that time is recorded in the configuration
(:mod:`ganeti.cmdlib.ops.disks.replicas`), so that the knowledge outlives the nodes. If LVM
self-repair is on for the group, its volume groups are checked, too, see
:mod:`ganeti.cmdlib.ops.verify.self_repair`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ganeti.cmdlib import locks
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks import replicas, suspended_io
from ganeti.cmdlib.ops.verify import self_repair
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node, disk_templates
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.rpc import Result
from ganeti.rpc.results import is_gone
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS, DRBD_NEEDS_ACTIVATION, LV_LIST
from ganeti.wire.calls.base import Call, Failed

_DisksOfNodes = dict[str, list[tuple[Disk, Instance]]]
VerifyDisksResult = tuple[dict[str, str], list[str], dict[str, list[list[str]]]]


@dataclass(slots=True)
class _ExpectedDisks:
    """The disks which the nodes should have, by UUID of the node.

    :ivar volumes: logical volume as ``group/volume`` -> its instance.
    :ivar mirrored: DRBD disks.
    :ivar others: files and block devices.
    """

    volumes: dict[str, dict[str, Instance]] = field(default_factory=dict)
    mirrored: _DisksOfNodes = field(default_factory=dict)
    others: _DisksOfNodes = field(default_factory=dict)


@dataclass(slots=True)
class _FoundDisks:
    """What the nodes report.

    :ivar unresponsive: name of a node -> why it could not be asked.
    :ivar gone: UUID of a node which is gone -> why. It is asked once, because its automatic
        failover waits for the locks of this job.
    :ivar inactive: names of the instances with disks which have to be activated.
    :ivar unexamined: name of a node, and a disk with the reason for which the node cannot tell
        about it, although it tells about others.
    :ivar missing: name of an instance -> missing devices, each as ``[node, device]``.
    """

    unresponsive: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    inactive: set[str] = field(default_factory=set)
    unexamined: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, list[list[str]]] = field(default_factory=dict)

    def answered(self, answers: dict[str, Result]) -> Iterator[tuple[str, str, Any]]:
        """Yield name, UUID and answer of the nodes which answered; note the others."""
        for uuid, answer in answers.items():
            if answer.failure is not None:
                self.unresponsive[answer.node_name] = why(answer.failure)
                if is_gone(answer.failure):
                    self.gone[uuid] = why(answer.failure)
            else:
                yield answer.node_name, uuid, answer.data

    def lacks(self, instance: Instance, node: str, device: str) -> None:
        self.missing.setdefault(instance.name, []).append([node, device])


@executes(OpGroupVerifyDisks)
class LUGroupVerifyDisks(LogicalUnit[OpGroupVerifyDisks, list[Instance]]):
    """Compare the disks of a group in the configuration with the devices on the nodes.

    Result: name of a node -> why it could not be asked; names of instances whose disks have to be
    activated; name of an instance -> missing devices, each as ``[node, device]``.
    """

    def expand_names(self) -> None:
        self.group = self.config.expand_group(self.op.group_name)
        self.need(Level.INSTANCE, locks.instances_of_group(self, self.group.uuid), shared=True)
        self.need(Level.NODEGROUP, [self.group.uuid], shared=True)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE:
            # The other replica of a disk may be in another node group.
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

    def exec(self, plan: list[Instance]) -> VerifyDisksResult:
        expected = self._expected(plan)
        found = _FoundDisks()
        self._check_volumes(expected.volumes, found)
        self._check_mirrored(expected.mirrored, found)
        self._record_replicas(plan, found.gone)
        self._protect(plan, found.gone)
        self._check_others(expected.others, found)
        if self_repair.is_enabled(self.config, self.group):
            self_repair.run(self.ctx, self.group, found.gone)
        for name, reason in found.unexamined:
            self.log.warn(f"node {name} could not examine disks: {reason}")
            if self.op.is_strict:
                found.unresponsive.setdefault(name, reason)
        if not self.op.is_strict:
            for name, reason in found.unresponsive.items():
                self.log.warn(f"node {name} could not be asked and is ignored: {reason}")
            found.unresponsive = {}
        # Missing disks cannot be activated.
        return found.unresponsive, sorted(found.inactive - set(found.missing)), found.missing

    def _check_volumes(self, expected: dict[str, dict[str, Instance]], found: _FoundDisks) -> None:
        groups = {
            uuid: sorted({volume.partition("/")[0] for volume in volumes})
            for uuid, volumes in expected.items()
        }
        per_node = {uuid: {"groups": names} for uuid, names in groups.items()}
        answers = self.rpc.call_many(LV_LIST, expected, per_node=per_node)
        for node, uuid, answer in found.answered(answers):
            unknown = {name: answer[name] for name in groups[uuid] if name in answer}
            found.unexamined += [
                (node, f"those in volume group {name}: {reason}")
                for name, reason in unknown.items()
            ]
            for volume, instance in expected[uuid].items():
                known = answer.get(volume)
                if volume.partition("/")[0] in unknown:
                    continue
                if known is None:
                    found.lacks(instance, node, volume)
                elif known[1]:
                    found.inactive.add(instance.name)

    def _check_mirrored(self, expected: _DisksOfNodes, found: _FoundDisks) -> None:
        for node, uuid, lost in self._ask(DRBD_NEEDS_ACTIVATION, expected, found):
            for one in lost:
                if isinstance(one, Failed):
                    found.unexamined.append((node, one.text))
            found.inactive.update(
                instance.name for disk, instance in expected[uuid] if disk.uuid in lost
            )

    def _check_others(self, expected: _DisksOfNodes, found: _FoundDisks) -> None:
        for node, uuid, sizes in self._ask(BLOCKDEV_GETDIMENSIONS, expected, found):
            for (disk, instance), size in zip(expected[uuid], sizes, strict=True):
                if isinstance(size, Failed):
                    text = f"{disk.iv_name} of instance {instance.name}: {size.text}"
                    found.unexamined.append((node, text))
                elif size is None:
                    found.lacks(instance, node, disk.stored_name)

    def _ask(
        self, call: Call, expected: _DisksOfNodes, found: _FoundDisks
    ) -> Iterator[tuple[str, str, Any]]:
        """Ask each node which is not gone about its disks."""
        pairs = {uuid: pairs for uuid, pairs in expected.items() if uuid not in found.gone}
        per_node = {uuid: {"disks": some} for uuid, some in pairs.items()}
        return found.answered(self.rpc.call_many(call, pairs, per_node=per_node))

    def _record_replicas(self, instances: list[Instance], gone: dict[str, str]) -> None:
        """Record which replicas miss writes."""
        pairs = [
            (disk, instance)
            for instance in instances
            for disk in self.config.instance_disks(instance)
        ]
        replicas.record_active(self.config, replicas.observe(self.config, self.rpc, pairs, gone))

    def _protect(self, instances: list[Instance], gone: dict[str, str]) -> None:
        """Let disks confirm no write alone where that is wanted, and only there."""
        for instance in instances:
            if instance.primary_node in gone:
                continue
            suspended_io.release(self.config, self.rpc, instance)
            if not _is_left_out(self.config.node(instance.primary_node)):
                suspended_io.protect(
                    self.config, self.rpc, instance, self.config.instance_disks(instance)
                )

    def _expected(self, instances: list[Instance]) -> _ExpectedDisks:
        expected = _ExpectedDisks()
        nodes = self.config.snapshot().nodes
        for instance in instances:
            for disk in self.config.instance_disks(instance):
                if disk.dev_type not in disk_templates.LVM_BASED:
                    if disk.dev_type in disk_templates.HAVE_PATH:
                        expected.others.setdefault(instance.primary_node, []).append(
                            (disk, instance)
                        )
                    continue
                places = disk.all_node_uuids() or (instance.primary_node,)
                for uuid in places:
                    for volume in _volumes(disk):
                        expected.volumes.setdefault(uuid, {})[volume] = instance
                    if disk.has_replicas:
                        expected.mirrored.setdefault(uuid, []).append((disk, instance))
        # Nodes which are marked offline, or in maintenance, are not checked.
        for table in (expected.volumes, expected.mirrored, expected.others):
            for uuid in [uuid for uuid in table if _is_left_out(nodes[uuid])]:
                del table[uuid]
        return expected


def _is_left_out(node: Node) -> bool:
    return node.offline or node.is_left_alone()


def _volumes(disk: Disk) -> list[str]:
    """Logical volumes of a disk, each as ``group/volume``."""
    return ["/".join(map(str, device.logical_id)) for device in disk.walk() if device.is_volume]
