"""Move an instance whose disks are on one node: copy the disks to another node.

The new disks are made on the target under their present names and filled, while the old ones stay
as they are. Then one change of the configuration makes the target the primary node, and only after
it the old disks are destroyed. The new disks are as large as the old ones really are, and the same
change of the configuration records that. Volumes which do not belong to the instance yet, or any
more, have the mark of :mod:`~ganeti.cmdlib.ops.disks.convert` in the configuration: when the master
dies, the next move, or the removal of the instance, destroys them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, convert, reach, sizes, snapshots, specs
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.policy import ratios
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.constants.disk import FILE
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node
from ganeti.objects.disk_templates import COPYABLE
from ganeti.opcodes.instance import OpInstanceMove
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import BLOCKDEV_ASSEMBLE_MULTI, BLOCKDEV_SHUTDOWN_MULTI
from ganeti.wire.calls.backup import RAW


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The nodes of the move.

    :ivar disks: the disks, with the sizes which they have on the source.
    :ivar up: the instance is marked up, so that it is started on the target afterwards.
    """

    instance: Instance
    source: Node
    target: Node
    disks: tuple[Disk, ...]
    up: bool


@executes(OpInstanceMove)
class LUInstanceMove(LogicalUnit[OpInstanceMove, MovePlan]):
    """Stop an instance, copy its disks to another node, start it there."""

    HOOKS = InstanceHooks("instance-move")

    def expand_names(self) -> None:
        op = self.op
        self.target = self.config.expand_node(op.target_node_uuid or op.target_node)
        disk_copy.require_compression(self.config, op.compress)
        self.lock_instance(op.instance_name, op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            uuids = {*self.config.instance_nodes(self.instance)[:1], self.target.uuid}
            self.need(level, uuids, shared=level is Level.NODE)

    def hook_env(self, plan: MovePlan) -> dict[str, object]:
        return {"TARGET_NODE": self.target.name, "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def hook_nodes(self, plan: MovePlan) -> tuple[list[str], list[str]]:
        nodes = [self.config.master_node().uuid, plan.source.uuid, plan.target.uuid]
        return nodes, nodes

    def check_prereq(self) -> MovePlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "move")
        prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), "move")
        source = self.config.node(instance.primary_node)
        target = self.config.node(self.target.uuid)
        if source.uuid == target.uuid:
            raise errors.OpPrereqError(
                f"instance {instance.name} is already on node {target.name}", errors.ECODE_STATE
            )
        for index, disk in enumerate(self.config.instance_disks(instance)):
            if disk.dev_type not in COPYABLE:
                raise errors.OpPrereqError(
                    f"disk {index} of instance {instance.name} has template {disk.dev_type}, which"
                    " is not copied to another node. Use migrate or failover.",
                    errors.ECODE_STATE,
                )
        prereq.require_online(source)
        prereq.require_target(self.config, target, instance.hypervisor)
        location.require_not_elsewhere(self.ctx, instance, certain_to="move")
        snapshots.require_none(self.ctx, instance, "move")
        filled = self.config.filled(policy.in_group_of(self.config, instance, target))
        facts = ratios.require_policy(
            self.ctx, filled, target, policy.Override(self.op.ignore_ipolicy, self.op.OP_ID)
        )
        up = instance.admin_state == prereq.ADMIN_UP
        if up:
            prereq.require_can_run(self.config, self.rpc, filled, target, facts, restart=True)
        else:
            prereq.instance_bridges_check(filled, target).make(self.rpc)
        reach.require_separate(self.ctx, self.config.instance_disks(instance), source, target)
        disks = sizes.real(self.rpc, instance, self.config.instance_disks(instance))
        capacity.require_free_space(
            self.config, self.rpc, [target.uuid], capacity.volumes_mib(disks)
        )
        files = [disk.size for disk in disks if disk.dev_type == FILE]
        capacity.require_possible_files(self.config, self.rpc, [target.uuid], FILE, files)
        return MovePlan(instance, source, target, disks, up)

    # -- act -------------------------------------------------------------------

    def steps(self, plan: MovePlan) -> list[str]:
        source, target = plan.source.name, plan.target.name
        count = len(plan.instance.disks)
        start = [f"start it on {target}"] if plan.up else []
        return [
            f"make {count} disk{'s' * (count != 1)} on {target}",
            f"stop instance {plan.instance.name} on {source}, and copy the content of its disks",
            f"make {target} its primary node",
            f"destroy the disks on {source}",
            *start,
        ]

    def exec(self, plan: MovePlan) -> None:
        instance, disks = plan.instance, plan.disks
        with UndoStack(self.log.warn) as undo:
            # The guest runs until the target has the disks: what is wrong there does not stop it.
            self._make(plan, disks, undo)
            pairs = self._pairs(plan, disks)
            self._stop(plan)
            if plan.up:
                # After a failure before the change it is started again on the source.
                undo.add(f"instance {instance.name} stopped", self._start_again, instance)
            self._copy(plan, pairs)
            self._record(plan, disks)
            undo.commit()
        self._destroy_source(plan, disks)
        if plan.up:
            self._start(plan)

    def _stop(self, plan: MovePlan) -> None:
        instance, source = plan.instance, plan.source
        self.log.info(f"Shutting down instance {instance.name} on source node {source.name}")
        answer = power.ask_to_stop(
            self.rpc, instance, source.uuid, self.op.shutdown_timeout, self.op.reason
        )
        if answer.failure is not None:
            text = (
                f"could not shut down instance {instance.name} on node {source.name}:"
                f" {why(answer.failure)}"
            )
            if not self.op.ignore_consistency:
                raise errors.OpExecError(text)
            self.log.warn(text, hint="Make sure that the instance does not run there.")

    def _record(self, plan: MovePlan, disks: Sequence[Disk]) -> None:
        """Make the target the primary node; mark the disks on the source as detached."""
        instance = plan.instance
        with self.config.transaction() as change:
            for detached in convert.marked(self.config, instance):
                change.disks.remove_detached(detached.uuid)
            for disk in disks:
                change.disks.add_detached(
                    convert.detached_part(self.config, instance, disk, plan.source.uuid)
                )
                change.disks.update(specs.resized(change.data.disks[disk.uuid], disk.size))
            change.instances.set_primary(instance.uuid, plan.target.uuid)

    def _start_again(self, instance: Instance) -> None:
        power.start(self.ctx, self.config.instance(instance.uuid), self.op.reason)

    def _make(self, plan: MovePlan, disks: Sequence[Disk], undo: UndoStack) -> None:
        """Make the disks on the target node."""
        instance, target = plan.instance, plan.target
        undo.add(
            f"disks of {instance.name} on node {target.name}", convert.clear, self.ctx, instance
        )
        convert.clear(self.ctx, instance)
        undo.add(
            f"directory of disks on node {target.name}",
            disk_work.remove_storage_dir,
            self.ctx,
            instance,
            disks,
            target.uuid,
        )
        disk_work.create_storage_dir(self.rpc, instance, disks, target.uuid)
        convert.add_parts(self.config, self.rpc, instance, disks, target.uuid)
        for index in range(len(disks)):
            self.log.feedback(f"* making disk {index} on node {target.name}")
        disk_work.create_devices(self.ctx, instance, {target.uuid: disks}, writable_on=target.uuid)

    def _pairs(
        self, plan: MovePlan, disks: Sequence[Disk]
    ) -> list[tuple[disk_copy.TransferEnd, disk_copy.TransferEnd]]:
        """Activate the disks on the target node, and say what is copied where."""
        instance, target = plan.instance, plan.target
        answers = call_for_disks(
            self.rpc,
            BLOCKDEV_ASSEMBLE_MULTI,
            {target.uuid: disks},
            instance,
            instance=instance,
            on_primary=True,
            indexes=list(range(len(disks))),
        )
        pairs = []
        for index, (disk, answer) in enumerate(zip(disks, answers[target.uuid], strict=True)):
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"disk {index} cannot be activated on node {target.name}: {why(answer.failure)}"
                ) from answer.failure
            io = (RAW, (disk, instance))
            pairs.append(
                disk_copy.pair(
                    self.config,
                    instance,
                    index,
                    source=(plan.source, io),
                    target=(target, io),
                    compress=self.op.compress,
                )
            )
        return pairs

    def _copy(
        self, plan: MovePlan, pairs: Sequence[tuple[disk_copy.TransferEnd, disk_copy.TransferEnd]]
    ) -> None:
        instance, target = plan.instance, plan.target
        disk_work.assemble_disks(self.ctx, instance)
        copied = disk_copy.copy_disks(self.rpc, self.log, pairs)
        failed = [str(index) for index, ok in enumerate(copied) if not ok]
        if failed:
            raise errors.OpExecError(
                f"disk {', '.join(failed)} of instance {instance.name} could not be copied to node"
                f" {target.name}"
            )

    def _destroy_source(self, plan: MovePlan, disks: Sequence[Disk]) -> None:
        self.log.feedback(f"* removing the disks on the source node {plan.source.name}")
        try:
            source = plan.source.uuid
            answers = call_for_disks(
                self.rpc, BLOCKDEV_SHUTDOWN_MULTI, {source: disks}, plan.instance
            )
            for answer in answers[source]:
                answer.payload()
            convert.clear(self.ctx, self.config.instance(plan.instance.uuid))
        except errors.GenericError as err:
            self.log.warn(
                f"disks of instance {plan.instance.name} stay on node {plan.source.name}:"
                f" {why(err)}",
                hint="The next move, or the removal of the instance, destroys them.",
            )

    def _start(self, plan: MovePlan) -> None:
        instance = self.config.instance(plan.instance.uuid)
        self.log.feedback(f"* starting the instance on the target node {plan.target.name}")
        try:
            power.start(self.ctx, instance, self.op.reason)
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err}. Instance {instance.name} is on node {plan.target.name} now, marked to run:"
                f" start it again with 'gnt-instance startup {instance.name}'."
            ) from err
