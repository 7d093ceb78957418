"""The jobs which move instances and replicas away from a node, one or more for each instance.

An evacuation and the start of a maintenance make them. With a target node they follow from the
disks of each instance; otherwise an allocator is asked once for all instances (manual page
**ganeti-iallocator**, mode ``node-evacuate``), which checks policy, capacity and N+1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.node.evacuation import untouched
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants import disk as disk_c
from ganeti.constants import node as node_c
from ganeti.objects import Instance, Node, disk_templates
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate, OpInstanceReplaceDisks


@dataclass(frozen=True, slots=True)
class MoveJobs:
    """Makes the jobs which move instances away from a node.

    :ivar ctx: reads the configuration and asks the allocator.
    :ivar node: the node which gives instances up.
    :ivar target: where they go; None lets the allocator choose.
    :ivar mode: one of ``constants.node.EVAC_*``.
    :ivar allocator: name of the allocator; None where all instances have only one possible node.
    """

    ctx: Context
    node: Node
    target: Node | None
    mode: str
    allocator: str | None
    early_release: bool = False
    ignore_soft_errors: bool = False

    def why_not(self, instance: Instance) -> str | None:
        """Return the reason why an instance cannot be moved to another node; None if it can."""
        config = self.ctx.config
        template = config.disk_template(instance)
        if template not in disk_templates.MIRRORED:
            return f"disks of template {template} exist on one node only"
        if instance.primary_node == self.node.uuid and (
            instance.admin_state == prereq.ADMIN_OFFLINE
        ):
            return "it is marked offline"
        if (
            self.target is not None
            and template in disk_templates.INT_MIRRORED
            and (self.target.uuid in config.instance_nodes(instance))
        ):
            if self.mode == node_c.EVAC_PRIMARY:
                return None
            return f"node {self.target.name} has a replica of its disks already"
        return None

    def make(self, instances: Sequence[Instance]) -> list[list[OpCode]]:
        """Make the jobs; nothing is changed.

        :param instances: instances for which :meth:`why_not` returns None.
        :raises errors.OpPrereqError: the allocator cannot be run, or does not move all instances.
        """
        if not instances:
            return []
        if self.target is None and self.allocator is not None:
            return self._ask(instances)
        return [self._job(instance) for instance in instances]

    def _job(self, instance: Instance) -> list[OpCode]:
        """Make the job which moves one instance to the target, or to its secondary node."""
        info, target = self.ctx.log.info, self.target
        template = self.ctx.config.disk_template(instance)
        if template in disk_templates.EXT_MIRRORED:
            assert target is not None
            info(f"instance {instance.name} will be moved to node {target.name}")
            return [self._migrate(instance, target)]
        job: list[OpCode] = []
        if instance.primary_node == self.node.uuid:
            # Only the secondary node has the other replica of its disks.
            info(f"instance {instance.name} will be moved to its secondary node")
            job.append(self._migrate(instance, None))
        if self.mode != node_c.EVAC_PRIMARY:
            assert target is not None
            info(f"instance {instance.name} will get node {target.name} as its secondary")
            job.append(
                OpInstanceReplaceDisks(
                    instance_name=instance.name,
                    mode=disk_c.REPLACE_NEW_SECONDARY,
                    disks=[],
                    remote_node=target.name,
                    early_release=self.early_release,
                )
            )
        return job

    @staticmethod
    def _migrate(instance: Instance, target: Node | None) -> OpCode:
        return OpInstanceMigrate(
            instance_name=instance.name,
            target_node=None if target is None else target.name,
            # An instance which does not run, or whose node is dead, is failed over.
            allow_failover=True,
            allow_runtime_changes=True,
        )

    def _ask(self, instances: Sequence[Instance]) -> list[list[OpCode]]:
        """Ask the allocator for the jobs which empty the node.

        :raises errors.OpPrereqError: it cannot be run, or does not move all instances.
        """
        assert self.allocator is not None
        ctx = self.ctx
        request = allocator.NodeEvacuate(
            tuple(instance.uuid for instance in instances),
            self.mode,
            ignore_soft_errors=self.ignore_soft_errors,
        )
        others = placement.candidates(ctx.config.snapshot(), self.node.group) - {self.node.uuid}
        config = reach.config_without(ctx, instances, others)
        moves = placement.ask_allocator(ctx.rpc, ctx.log, self.allocator, config, request)
        if moves.failed:
            stuck = [f"{name} ({reason or 'no reason given'})" for name, reason in moves.failed]
            movable = [f"{name} (to {', '.join(nodes)})" for name, _group, nodes in moves.moved]
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} cannot move instances away from node"
                f" {self.node.name}: {', '.join(stuck)}. {untouched(movable)} A node which"
                " you name as their target is used without an allocator.",
                errors.ECODE_NORES,
            )
        moved = {name for name, _group, _nodes in moves.moved}
        left = [instance.name for instance in instances if instance.name not in moved]
        if left:
            raise errors.OpPrereqError(
                f"the answer of instance allocator {self.allocator} lacks instance"
                f" {', '.join(left)}. Nothing was moved.",
                errors.ECODE_ENVIRON,
            )
        for name, _group, nodes in moves.moved:
            ctx.log.info(f"instance {name} will be moved to node {', '.join(nodes)}")
        return [[self._completed_op(op) for op in job] for job in moves.jobs]

    def _completed_op(self, op: OpCode) -> OpCode:
        """Return an opcode of the allocator with the options of the user."""
        if isinstance(op, OpInstanceReplaceDisks):
            return op.replace(early_release=self.early_release)
        return op
