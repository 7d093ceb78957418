"""Make a snapshot of some or all disks of an instance.

LVM, or the file system, makes the snapshot of one disk at one moment: its content is as after a
loss of power. The snapshots of several disks of a running guest are of different moments. To get
them of one moment, the user asks for a shutdown meanwhile. ``admin_state`` stays *up* then: if the
master dies in between, the watcher starts the instance again.

When the snapshot of a disk fails, those of the other disks are removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, ownership, snapshots
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node, disk_templates
from ganeti.objects import snapshots as naming
from ganeti.objects.disk_templates import FOREIGN_SNAPSHOTS, LVM_BASED
from ganeti.opcodes.instance import OpInstanceSnapshot
from ganeti.utils import clock
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import (
    BLOCKDEV_REMOVE,
    BLOCKDEV_SHUTDOWN_MULTI,
    BLOCKDEV_SNAPSHOT_KEEP,
)


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The snapshot to make.

    :ivar disks: number and disk.
    :ivar stop: the instance runs, and is stopped meanwhile.
    """

    instance: Instance
    node: Node
    name: str
    disks: tuple[tuple[int, Disk], ...]
    running: bool
    stop: bool


@executes(OpInstanceSnapshot)
class LUInstanceSnapshot(LogicalUnit[OpInstanceSnapshot, SnapshotPlan]):
    """Make a snapshot of disks on the primary node."""

    HOOKS = InstanceHooks("instance-snapshot")

    def expand_names(self) -> None:
        self.name = self.op.snapshot_name or naming.default_name(clock.now())
        problem = naming.wrong_name(self.name)
        if problem is not None:
            raise errors.OpPrereqError(problem, errors.ECODE_INVAL)
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        assert self.instance is not None
        if level is Level.NODE:
            self.lock_nodes_of(self.instance, shared=True)
        elif level is Level.NODE_RES and self._lvm_based():
            # Exclusive: space which is free in check_prereq must still be free in exec.
            self.need(level, [self.instance.primary_node])

    def _lvm_based(self) -> bool:
        assert self.instance is not None
        disks = self.config.instance_disks(self.config.instance(self.instance.uuid))
        return any(disk.dev_type in LVM_BASED for disk in disks)

    def hook_env(self, plan: SnapshotPlan) -> dict[str, object]:
        return {
            "SNAPSHOT_NAME": self.name,
            "SNAPSHOT_DISKS": " ".join(str(index) for index, _disk in plan.disks),
            "SNAPSHOT_DO_SHUTDOWN": self.op.shutdown,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def dry_run_result(self, plan: SnapshotPlan) -> str:
        return plan.name

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> SnapshotPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "make a snapshot of")
        prereq.require_whole_disks(self.config, instance)
        node = prereq.require_online_primary(self.config, instance)
        snapshots.require_restored(self.log, instance, force=True)
        disks = self.config.instance_disks(instance)
        if not disks:
            raise errors.OpPrereqError(f"instance {instance.name} has no disks", errors.ECODE_INVAL)
        chosen = [
            (index, prereq.disk_by_index(self.config, instance, index))
            for index in sorted(set(self.op.disks) or range(len(disks)))
        ]
        for index, disk in chosen:
            self._require_kind(instance, index, disk, node)
        taken = [
            one for one in snapshots.of_instance(self.ctx, instance) if one.found.name == self.name
        ]
        if taken:
            numbers = ", ".join(str(number) for number in sorted({one.index for one in taken}))
            raise errors.OpPrereqError(
                f"instance {instance.name} already has a snapshot {self.name} (disk {numbers})."
                " Choose another name, or remove it with 'gnt-instance remove-snapshot"
                f" {instance.name} {self.name}'.",
                errors.ECODE_EXISTS,
            )
        running = prereq.is_running(location.require_only_on_primary(self.ctx, instance))
        needed: dict[str, int] = {}
        for _index, disk in chosen:
            if disk.dev_type in LVM_BASED:
                group = disk.data_device.volume_id.group
                needed[group] = needed.get(group, 0) + naming.volume_size_mib(disk.size)
        capacity.require_free_space(self.config, self.rpc, [node.uuid], needed)
        return SnapshotPlan(
            instance, node, self.name, tuple(chosen), running, running and self.op.shutdown
        )

    def _require_kind(self, instance: Instance, index: int, disk: Disk, node: Node) -> None:
        what = f"disk {index} of instance {instance.name} has template {disk.dev_type}"
        advice = disk_templates.of(disk.dev_type).snapshot_advice
        if advice:
            raise errors.OpPrereqError(
                f"{what}, of which no snapshots can be made: {advice}",
                errors.ECODE_STATE,
            )
        if disk.dev_type in LVM_BASED and disk_work.exclusive_storage(self.config, node.uuid):
            raise errors.OpPrereqError(
                f"{what}, and node {node.name} has exclusive storage: a snapshot would share"
                " physical volumes with other disks",
                errors.ECODE_STATE,
            )

    # -- act -------------------------------------------------------------------

    def steps(self, plan: SnapshotPlan) -> list[str]:
        steps = [
            f"make snapshot {plan.name} of disk {index} ({disk.dev_type}, {disk.size} MiB) on"
            f" {plan.node.name}"
            for index, disk in plan.disks
        ]
        if not plan.stop:
            return steps
        name = plan.instance.name
        return [
            f"stop instance {name} on {plan.node.name}, at the latest after"
            f" {self.op.shutdown_timeout} s",
            *steps,
            f"start instance {name} on {plan.node.name}",
        ]

    def exec(self, plan: SnapshotPlan) -> str:
        instance = plan.instance
        if plan.stop:
            self.log.feedback(f"Shutting down instance {instance.name}")
            power.stop(self.config, self.rpc, instance, self.op.shutdown_timeout, self.op.reason)
        elif plan.running and len(plan.disks) > 1:
            self.log.warn(
                f"instance {instance.name} goes on running: the snapshot of each disk is as after"
                " a loss of power, and the snapshots are of different moments",
                hint="To get snapshots of one moment, stop the instance meanwhile with --shutdown.",
            )
        made = False
        try:
            self._make_of_active(plan)
            made = True
        finally:
            if plan.stop:
                self._start_again(plan, made=made)
        return plan.name

    def _make_of_active(self, plan: SnapshotPlan) -> None:
        instance = plan.instance
        mirrored = [disk for _index, disk in plan.disks if disk.has_replicas]
        if not mirrored:
            self._make(plan)
            return
        try:
            if not instance.disks_active:
                disk_work.assemble_disks(self.ctx, instance, disks=mirrored)
            self._make(plan)
        finally:
            if not instance.disks_active:
                try:
                    disk_work.shutdown_disks(self.config, self.rpc, instance, disks=mirrored)
                except errors.OpExecError as err:
                    self.log.warn(
                        str(err), hint=f"Repeat 'gnt-instance deactivate-disks {instance.name}'."
                    )

    def _make(self, plan: SnapshotPlan) -> None:
        instance, node = plan.instance, plan.node
        hint = (
            f"Remove it with 'gnt-instance remove-snapshot {instance.name} {plan.name}' when"
            " the cause is gone."
        )
        ownership.require_absent(
            self.rpc,
            instance,
            [
                (naming.as_disk(disk, plan.name), node.uuid)
                for _index, disk in plan.disks
                if disk.dev_type not in FOREIGN_SNAPSHOTS
            ],
        )
        with UndoStack(self.log.warn, hint=hint) as undo:
            for index, disk in plan.disks:
                self.log.feedback(f"* making snapshot {plan.name} of disk {index} on {node.name}")
                if disk.dev_type in FOREIGN_SNAPSHOTS:
                    self.log.warn(
                        f"snapshot {naming.volume_name(disk.stored_name, plan.name)} of"
                        f" disk {index} belongs to its storage provider from now on",
                        hint="It is listed, restored and removed with the provider's own tools.",
                    )
            self._keep(plan, undo)
            undo.commit()

    def _keep(self, plan: SnapshotPlan, undo: UndoStack) -> None:
        instance, node = plan.instance, plan.node
        disks = [disk for _index, disk in plan.disks]
        answers = call_for_disks(
            self.rpc,
            BLOCKDEV_SNAPSHOT_KEEP,
            {node.uuid: disks},
            instance,
            name=plan.name,
            sizes_mib=[naming.volume_size_mib(disk.size) for disk in disks],
            at_rest=plan.stop or not plan.running,
        )[node.uuid]
        for (index, disk), answer in zip(plan.disks, answers, strict=True):
            made = answer.failure is None or ownership.may_be_made(answer.failure)
            if made and disk.dev_type not in FOREIGN_SNAPSHOTS:
                undo.add(
                    f"snapshot {plan.name} of disk {index} on node {node.name}",
                    self._remove,
                    plan,
                    disk,
                )
        if not instance.disks_active:
            # The call has attached these disks on the node.
            foreign = [disk for disk in disks if disk.dev_type in FOREIGN_SNAPSHOTS]
            call_for_disks(self.rpc, BLOCKDEV_SHUTDOWN_MULTI, {node.uuid: foreign}, instance)
        for (index, _disk), answer in zip(plan.disks, answers, strict=True):
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"could not make a snapshot of disk {index} of instance {instance.name} on"
                    f" node {node.name}: {why(answer.failure)}"
                ) from answer.failure

    def _remove(self, plan: SnapshotPlan, disk: Disk) -> None:
        self.rpc.call(
            BLOCKDEV_REMOVE, plan.node.uuid, disk=(naming.as_disk(disk, plan.name), plan.instance)
        ).payload()

    def _start_again(self, plan: SnapshotPlan, *, made: bool) -> None:
        name = plan.instance.name
        self.log.feedback(f"Starting instance {name}")
        try:
            power.start(self.ctx, self.config.instance(plan.instance.uuid), self.op.reason)
        except errors.OpExecError as err:
            hint = f"Start it with 'gnt-instance startup {name}'."
            if made:
                raise errors.OpExecError(f"{err}; snapshot {plan.name} was made. {hint}") from err
            # This failure must not hide the reason why there is no snapshot.
            self.log.warn(str(err), hint=hint)
