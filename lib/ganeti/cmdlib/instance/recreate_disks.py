"""Make lost disks again, empty.

This is for disks which are lost with their machine or its storage: the instance keeps its name, its
parameters and the sizes of its disks, not their content. The disks may be made on other nodes.

Only a disk which is surely absent is lost; when it is not known, the command refuses. A disk which
exists is kept. And because storage may come back nevertheless, a disk which is made again gets new
names (:func:`ganeti.cmdlib.ops.disks.specs.renewed`): the old storage is never touched, and never
taken for the new one. The log of the job has its names.

The new names are written into the configuration before the devices are made, with the mark
*forthcoming*. So a disk with this mark has only devices which this command made: when the command
was interrupted and is repeated, it removes them. When it fails, it removes them itself, and the
disks get their old names again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, ownership, reach, snapshots, specs, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.specs import resized
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node
from ganeti.objects.disk_templates import FILE_BASED, MUST_ADOPT
from ganeti.opcodes.instance import OpInstanceRecreateDisks
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.rpc import Result

#: Parameters of a disk which may be changed when it is made again.
CHANGEABLE = frozenset(("size", "mode", "spindles"))


@dataclass(frozen=True, slots=True)
class RecreatePlan:
    """The disks to make.

    :ivar disks: number, and disk as it will be.
    :ivar nodes: the new nodes, the primary first; empty when the disks stay on their nodes.
    """

    instance: Instance
    disks: tuple[tuple[int, Disk], ...]
    nodes: tuple[Node, ...]


def with_changes(index: int, disk: Disk, changes: Mapping[str, Any]) -> Disk:
    """Return a disk with another size (MiB), mode or number of spindles.

    :raises errors.OpPrereqError: another parameter is given, or a value is not valid.
    """
    what = f"disk {index}"
    wrong = sorted(set(changes) - CHANGEABLE)
    if wrong:
        raise errors.OpPrereqError(
            f"{what}: {', '.join(wrong)} cannot be changed when it is made again, only"
            f" {', '.join(sorted(CHANGEABLE))}",
            errors.ECODE_INVAL,
        )
    if "size" in changes:
        disk = resized(disk, specs.checked_size(what, changes["size"]))
        specs.require_possible(disk.dev_type, what, disk.size)
    if "mode" in changes:
        disk = dataclasses.replace(disk, mode=specs.checked_mode(what, changes["mode"]))
    if "spindles" in changes:
        disk = dataclasses.replace(disk, spindles=int(changes["spindles"]))
    return disk


@executes(OpInstanceRecreateDisks)
class LUInstanceRecreateDisks(LogicalUnit[OpInstanceRecreateDisks, RecreatePlan]):
    """Make disks of a stopped instance again, on the same nodes or on others."""

    HOOKS = InstanceHooks("instance-recreate-disks")

    def expand_names(self) -> None:
        op = self.op
        self.changes = _by_index(op.disks)
        if op.iallocator and (op.nodes or op.node_uuids):
            raise errors.OpPrereqError(
                "give either nodes or an instance allocator, not both", errors.ECODE_INVAL
            )
        self.new_nodes = tuple(self.config.expand_node(name) for name in op.node_uuids or op.nodes)
        if len({node.uuid for node in self.new_nodes}) != len(self.new_nodes):
            raise errors.OpPrereqError("a node is given twice", errors.ECODE_INVAL)
        self.lock_instance(op.instance_name, op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level not in (Level.NODE, Level.NODE_RES) or self.instance is None:
            return
        uuids = {*self.config.instance_nodes(self.instance), *(n.uuid for n in self.new_nodes)}
        if self.op.iallocator:
            uuids |= placement.candidates(self.config.snapshot())
        self.need(level, uuids, shared=level is Level.NODE)

    def hook_nodes(self, plan: RecreatePlan) -> tuple[list[str], list[str]]:
        nodes = [
            self.config.master_node().uuid,
            *self.config.instance_nodes(plan.instance),
            *(node.uuid for node in plan.nodes),
        ]
        online = [uuid for uuid in dict.fromkeys(nodes) if not self.config.node(uuid).offline]
        return online, online

    def check_prereq(self) -> RecreatePlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "recreate disks of")
        disks = self.config.instance_disks(instance)
        if not disks:
            raise errors.OpPrereqError(f"instance {instance.name} has no disks", errors.ECODE_INVAL)
        for index in self.changes:
            prereq.disk_by_index(self.config, instance, index)
        primary = self.config.node(instance.primary_node)
        moves = bool(self.op.iallocator or self.new_nodes)
        if not moves:
            prereq.require_online(primary)
        location.require_stopped(self.ctx, instance, "recreate disks of", primary_may_be_off=moves)
        if any(disk.dev_type in MUST_ADOPT for disk in disks):
            raise errors.OpPrereqError(
                f"disks of instance {instance.name} were adopted and cannot be made again",
                errors.ECODE_INVAL,
            )
        chosen = [
            (index, with_changes(index, disk, self.changes.get(index, {})))
            for index, disk in enumerate(disks)
            if not self.changes or index in self.changes
        ]
        if moves and len(chosen) != len(disks):
            raise errors.OpPrereqError(
                "on other nodes all disks must be made again, not only some", errors.ECODE_INVAL
            )
        nodes = self._place(instance) if moves else ()
        if not moves:
            chosen = self._missing(instance, chosen)
        else:
            self._require_lost(instance, disks)
        snapshots.require_none(
            self.ctx,
            instance,
            "recreate disks of",
            # Volumes take their snapshots with them.
            disks=[index for index, disk in chosen if disk.dev_type in FILE_BASED],
            reason="the snapshots, perhaps the only data which are left, would belong to no disk",
        )
        disk_work.require_spindles_allowed(
            self.config,
            [node.uuid for node in nodes] or self.config.instance_nodes(instance),
            self.changes.values(),
        )
        self._check_free_space(instance, [disk for _index, disk in chosen], nodes)
        return RecreatePlan(instance, tuple(chosen), nodes)

    def _place(self, instance: Instance) -> tuple[Node, ...]:
        template = self.config.disk_template(instance)
        needed = allocator.required_nodes(template)
        if self.op.iallocator:
            name = placement.choose_allocator(
                self.config,
                self.op.iallocator,
                what=f"instance {instance.name}",
                node_option="--node",
                node_given=False,
            )
            chosen = placement.ask_allocator(
                self.rpc,
                self.log,
                name or "",
                self.config.snapshot(),
                self._request(instance, template),
            )
            nodes = tuple(self.config.node(uuid) for uuid in chosen)
            self.log.info(
                f"Selected nodes for instance {instance.name} via iallocator {name}:"
                f" {', '.join(node.name for node in nodes)}"
            )
        else:
            nodes = tuple(self.config.node(node.uuid) for node in self.new_nodes)
        if len(nodes) != needed:
            raise errors.OpPrereqError(
                f"disks of template {template} need {needed} node{'s' * (needed > 1)}, not"
                f" {len(nodes)}",
                errors.ECODE_INVAL,
            )
        reach.require_directory(self.ctx, template, nodes)
        for node in nodes:
            prereq.require_target(self.config, node, instance.hypervisor)
            policy.in_group_of(self.config, instance, node)
            disk_work.require_disks_allowed(self.config, instance, node)
        filled = self.config.filled(instance)
        policy.require_policy(
            self.config, self.log, filled, nodes[0], policy.Override(False, self.op.OP_ID)
        )
        return nodes

    def _request(self, instance: Instance, template: str) -> allocator.Allocate:
        filled = self.config.filled(instance)
        held = self.owned(Level.NODE_RES)
        candidates = held & placement.candidates(
            self.config.snapshot(), hypervisor=instance.hypervisor
        )
        reached = reach.with_directory(self.ctx, template, candidates)
        return allocator.Allocate(
            name=instance.name,
            hypervisor=instance.hypervisor,
            os=instance.os,
            memory_mib=filled.beparams["maxmem"],
            vcpus=filled.beparams["vcpus"],
            spindle_use=filled.beparams["spindle_use"],
            disk_template=template,
            disks=tuple({"size": d.size, "mode": d.mode} for d in filled.disks_info),
            nics=tuple(allocator.allocate_nic(nic, nic.nicparams) for nic in filled.nics),
            tags=instance.tags,
            only_nodes=candidates if reached is None else reached,
        )

    def _check_free_space(
        self, instance: Instance, disks: list[Disk], nodes: tuple[Node, ...]
    ) -> None:
        uuids = [node.uuid for node in nodes] or list(self.config.instance_nodes(instance))
        for uuid in uuids:
            prereq.require_online(self.config.node(uuid))
        needed = capacity.volumes_mib(specs.with_new_metadata(disk) for disk in disks)
        template = disks[0].dev_type if disks else ""
        asked = [disk.size for disk in disks]
        capacity.require_possible_files(self.config, self.rpc, uuids, template, asked)
        # On its present nodes a disk keeps its minors.
        minors = sum(disk.has_replicas for disk in disks) if nodes else 0
        capacity.require_free_space(self.config, self.rpc, uuids, needed, new_minors=minors)

    # -- act -------------------------------------------------------------------

    def steps(self, plan: RecreatePlan) -> list[str]:
        nodes = [node.name for node in plan.nodes]
        nodes = nodes or self.config.instance_node_names(plan.instance)
        return [
            f"make disk {index} of instance {plan.instance.name} with {disk.size} MiB on"
            f" {', '.join(nodes)}"
            for index, disk in plan.disks
        ]

    def exec(self, plan: RecreatePlan) -> None:
        self._remove_incomplete(plan)
        before = self.config.instance_disks(plan.instance)
        hint = f"Repeat 'gnt-instance recreate-disks {plan.instance.name}' when the cause is gone."
        with UndoStack(self.log.warn, hint=hint) as undo:
            # This step is undone last: the names stay while devices of these names are left.
            undo.add("the new names of the disks", self._put_back, plan, before, undo)
            self._record(plan)
            instance = self.config.instance(plan.instance.uuid)
            disks = self.config.instance_disks(instance)
            if plan.nodes:
                undo.add(
                    "the disk directory", disk_work.remove_storage_dir, self.ctx, instance, disks
                )
            disk_work.create_storage_dir(self.rpc, instance, disks)
            for index, disk in plan.disks:
                self.log.feedback(f"* making disk {index}, size {disk.size} MiB")
            new = [disks[index] for index, _disk in plan.disks]
            undo.add("new disks", disk_work.remove_disks, self.ctx, instance, new)
            disk_work.create_disks(self.ctx, instance, new)
            undo.commit()
        with self.config.transaction() as change:
            for index, _disk in plan.disks:
                change.disks.update(
                    dataclasses.replace(self.config.disk(disks[index].uuid), forthcoming=None)
                )
        disks = self.config.instance_disks(instance)
        mirrored = [disks[i] for i, _d in plan.disks if disks[i].has_replicas]
        if mirrored:
            disk_work.assemble_disks(self.ctx, instance, disks=mirrored)
            try:
                sync.require_in_sync(self.ctx, instance, mirrored)
            finally:
                disk_work.shutdown_disks(self.config, self.rpc, instance, disks=mirrored)

    def _require_lost(self, instance: Instance, disks: tuple[Disk, ...]) -> None:
        """Check that the disks do not exist on their present nodes, where they would stay.

        :raises errors.OpPrereqError: a disk exists.
        """
        uuids = [
            uuid
            for uuid in self.config.instance_nodes(instance)
            if not self.config.node(uuid).offline
        ]
        answers = self.rpc.call_many(
            BLOCKDEV_GETDIMENSIONS,
            uuids,
            disks=[(disk.data_device, instance) for disk in disks],
        )
        for uuid, answer in answers.items():
            sizes = _found(instance, answer)
            reason = _unknown(sizes)
            if reason is not None:
                raise errors.OpPrereqError(
                    f"cannot tell which disks of instance {instance.name} are lost on node"
                    f" {answer.node_name}: {reason}",
                    errors.ECODE_ENVIRON,
                )
            there = [
                str(i)
                for i, size in enumerate(sizes)
                if size is not None and not disks[i].forthcoming
            ]
            if there:
                way = (
                    "Use 'gnt-instance move' to move the instance"
                    if uuid == instance.primary_node
                    else "Use 'gnt-instance failover' to continue with that replica"
                )
                raise errors.OpPrereqError(
                    f"disk {', '.join(there)} of instance {instance.name} exists on node"
                    f" {answer.node_name}. {way}, or mark that node offline when it is lost.",
                    errors.ECODE_EXISTS,
                )

    def _missing(
        self, instance: Instance, chosen: list[tuple[int, Disk]]
    ) -> list[tuple[int, Disk]]:
        """Return the chosen disks which do not exist.

        A disk of which a node cannot tell is left alone; the others are recreated.

        :raises errors.OpPrereqError: no disk is missing, or a disk which was named exists, or it is
            not known whether it does.
        """
        present: set[int] = set()
        unknown: dict[int, str] = {}
        stored = self.config.instance_disks(instance)
        answers = self.rpc.call_many(
            BLOCKDEV_GETDIMENSIONS,
            self.config.instance_nodes(instance),
            disks=[(stored[index].data_device, instance) for index, _disk in chosen],
        )
        for answer in answers.values():
            for (index, _disk), size in zip(chosen, _found(instance, answer), strict=True):
                if isinstance(size, Failed):
                    unknown[index] = f"node {answer.node_name}: {size.text}"
                elif size is not None and not stored[index].forthcoming:
                    present.add(index)
        present -= unknown.keys()
        for index, reason in sorted(unknown.items()):
            if self.changes or len(unknown) == len(chosen):
                raise errors.OpPrereqError(
                    f"cannot tell whether disk {index} of instance {instance.name} is lost:"
                    f" {reason}",
                    errors.ECODE_ENVIRON,
                )
            self.log.warn(
                f"disk {index} is left alone, because it is not known whether it is lost: {reason}"
            )
        if self.changes and present:
            raise errors.OpPrereqError(
                f"disk {', '.join(str(i) for i in sorted(present))} of instance {instance.name}"
                " exists and will not be overwritten",
                errors.ECODE_EXISTS,
            )
        if unknown and len(present) + len(unknown) == len(chosen):
            raise errors.OpPrereqError(
                f"no disk of instance {instance.name} is known to be lost", errors.ECODE_ENVIRON
            )
        if len(present) == len(chosen):
            raise errors.OpPrereqError(
                f"all disks of instance {instance.name} exist. To get empty ones, reinstall it, or"
                " remove the disks first.",
                errors.ECODE_EXISTS,
            )
        for index in sorted(present):
            self.log.info(f"disk {index} exists and is kept")
        return [
            (index, disk) for index, disk in chosen if index not in present and index not in unknown
        ]

    def _remove_incomplete(self, plan: RecreatePlan) -> None:
        """Destroy what an interrupted run has made under new names; it has no content yet."""
        instance = plan.instance
        stored = self.config.instance_disks(instance)
        for index, _disk in plan.disks:
            disk = stored[index]
            nodes = [
                uuid
                for uuid in disk_work.disk_nodes(disk, instance.primary_node)
                if not self.config.node(uuid).offline
            ]
            if disk.forthcoming and nodes:
                disk_work.remove_disks(self.ctx, instance, [disk], nodes)

    def _record(self, plan: RecreatePlan) -> None:
        """Write the disks under their new names, and their nodes, into the configuration."""
        nodes = tuple(node.uuid for node in plan.nodes)
        stored = self.config.instance_disks(plan.instance)
        changed = []
        for index, disk in plan.disks:
            new = specs.renewed(self.config, disk, index, nodes)
            # Marked, so that an interrupted run can be repeated, and no incomplete disk is used.
            changed.append(dataclasses.replace(new, forthcoming=True))
            if not stored[index].forthcoming:
                self.log.info(
                    f"disk {index} was {_parts(stored[index])}; it is replaced by {_parts(new)}."
                    " If the old storage comes back, nothing uses or removes it."
                )
        with self.config.transaction() as change:
            for disk in changed:
                change.disks.update(disk)
            if nodes:
                change.instances.set_primary(plan.instance.uuid, nodes[0])

    def _put_back(self, plan: RecreatePlan, before: Sequence[Disk], undo: UndoStack) -> None:
        """Write the disks as they were into the configuration, and their nodes.

        :raises errors.OpExecError: devices under the new names are left, which only the next run
            can remove.
        """
        if undo.left:
            raise errors.OpExecError("kept in the configuration, so that they can be removed")
        with self.config.transaction() as change:
            for index, _disk in plan.disks:
                present = change.data.disks[before[index].uuid]
                change.disks.update(dataclasses.replace(before[index], serial_no=present.serial_no))
            if plan.nodes:
                change.instances.set_primary(plan.instance.uuid, plan.instance.primary_node)


def _found(instance: Instance, answer: Result) -> Sequence[Any]:
    """Return the sizes which a node has found, None for a disk which is surely absent.

    :raises errors.OpPrereqError: it is not known which disks are lost.
    """
    if answer.failure is not None:
        raise errors.OpPrereqError(
            f"cannot tell which disks of instance {instance.name} are lost on node"
            f" {answer.node_name}: {why(answer.failure)}",
            errors.ECODE_ENVIRON,
        ) from answer.failure
    return list(answer.data)


def _unknown(sizes: Sequence[Any]) -> str | None:
    """Return why a node cannot tell whether one of these disks exists."""
    return next((size.text for size in sizes if isinstance(size, Failed)), None)


def _parts(disk: Disk) -> str:
    """Return the names of the devices which hold content and metadata of a disk."""
    parts = [device for device in disk.walk() if not device.has_replicas]
    return " and ".join(ownership.shown(device) for device in parts)


def _by_index(given: list[Any]) -> dict[int, Mapping[str, Any]]:
    """Return the disks to make: number -> changes; empty for all disks."""
    changes: dict[int, Mapping[str, Any]] = {}
    for item in given:
        index, wanted = (item, {}) if isinstance(item, int) else (item[0], item[1])
        if index in changes:
            raise errors.OpPrereqError(f"disk {index} is given twice", errors.ECODE_INVAL)
        changes[index] = wanted
    return changes
