"""Evacuating a node: moving its instances to other nodes, each in its own job."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.ops.node.evacuation import (
    EvacuationUnit,
    check_target,
    evacuation_target,
    untouched,
)
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants import disk as disk_c
from ganeti.constants import node as node_c
from ganeti.objects import Instance, Node
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.opcodes.node import OpNodeEvacuate


@executes(OpNodeEvacuate)
class LUNodeEvacuate(EvacuationUnit[OpNodeEvacuate, list[list[OpCode]]]):
    """Submit jobs which move instances away from a node; it and its instances may be down."""

    def expand_names(self) -> None:
        op = self.op
        node = self._find_node()
        target = evacuation_target(self, op.remote_node, op.remote_node_uuid)
        instances = self._wanted(node)
        self.allocator: str | None = None
        if instances or (op.iallocator and target is not None):
            self.allocator = placement.choose_allocator(
                self,
                op.iallocator,
                what=f"the instances on node {node.name}",
                node_option="--new-secondary",
                node_given=target is not None,
            )
        self._lock(node, instances, target)

    def _wanted(self, node: Node) -> list[Instance]:
        primaries, secondaries = self.config.node_instances(node.uuid)
        found: list[Instance] = []
        if self.op.mode in (node_c.EVAC_PRIMARY, node_c.EVAC_ALL):
            found += primaries
        if self.op.mode in (node_c.EVAC_SECONDARY, node_c.EVAC_ALL):
            found += secondaries
        return found

    def check_prereq(self) -> list[list[OpCode]]:
        """Make the jobs."""
        instances = self._wanted(self.node)
        self._require_unchanged(instances)
        instances = prereq.without_forthcoming(self, instances, f"node {self.node.name}")
        if not instances:
            self.info(f"node {self.node.name} has no instances to evacuate")
            return []
        stuck = [
            f"{instance.name} ({reason})"
            for instance in instances
            if (reason := self._why_not(instance)) is not None
        ]
        if stuck:
            movable = [instance.name for instance in instances if self._why_not(instance) is None]
            raise errors.OpPrereqError(
                f"instances cannot be moved away from node {self.node.name}: {', '.join(stuck)}."
                f" {untouched(movable)}",
                errors.ECODE_STATE,
            )
        if self.target is None:
            return self._ask(instances)
        target = self.config.node(self.target.uuid)
        check_target(self.node, target)
        return [self._job(instance, target) for instance in instances]

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)

    def _why_not(self, instance: Instance) -> str | None:
        """Reason why an instance cannot be moved to another node; None if it can."""
        template = self.config.disk_template(instance)
        if template not in disk_c.MIRRORED:
            return f"disks of template {template} exist on one node only"
        if instance.primary_node == self.node.uuid and (
            instance.admin_state == prereq.ADMIN_OFFLINE
        ):
            return "it is marked offline"
        if (
            self.target is not None
            and template in disk_c.INT_MIRRORED
            and (self.target.uuid in self.config.instance_nodes(instance))
        ):
            if self.op.mode == node_c.EVAC_PRIMARY:
                return None
            return f"node {self.target.name} has a replica of its disks already"
        return None

    # -- with a target node ----------------------------------------------------

    def _job(self, instance: Instance, target: Node) -> list[OpCode]:
        """Make the job which moves one instance to the target, or to its secondary node."""
        if self.config.disk_template(instance) in disk_c.EXT_MIRRORED:
            self.info(f"instance {instance.name} will be moved to node {target.name}")
            return [self._migrate(instance, target)]
        job: list[OpCode] = []
        if instance.primary_node == self.node.uuid:
            # Only the secondary node has the other replica of its disks.
            self.info(f"instance {instance.name} will be moved to its secondary node")
            job.append(self._migrate(instance, None))
        if self.op.mode != node_c.EVAC_PRIMARY:
            self.info(f"instance {instance.name} will get node {target.name} as its secondary")
            job.append(
                OpInstanceReplaceDisks(
                    instance_name=instance.name,
                    mode=disk_c.REPLACE_NEW_SECONDARY,
                    disks=[],
                    remote_node=target.name,
                    early_release=self.op.early_release,
                )
            )
        return job

    def _migrate(self, instance: Instance, target: Node | None) -> OpCode:
        return OpInstanceMigrate(
            instance_name=instance.name,
            target_node=None if target is None else target.name,
            # An instance which does not run, or whose node is dead, is failed over.
            allow_failover=True,
            allow_runtime_changes=True,
        )

    # -- with an allocator -----------------------------------------------------

    def _ask(self, instances: Sequence[Instance]) -> list[list[OpCode]]:
        """Ask the allocator for the jobs which empty the node.

        :raises errors.OpPrereqError: it cannot be run, or does not move all instances.
        """
        assert self.allocator is not None
        config = self.config.snapshot()
        request = allocator.NodeEvacuate(
            tuple(instance.uuid for instance in instances),
            self.op.mode,
            ignore_soft_errors=bool(self.op.ignore_soft_errors),
        )
        moves = placement.ask_allocator(self, self.allocator, config, request)
        if moves.failed:
            stuck = [f"{name} ({reason or 'no reason given'})" for name, reason in moves.failed]
            movable = [f"{name} (to {', '.join(nodes)})" for name, _group, nodes in moves.moved]
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} cannot move instances away from node"
                f" {self.node.name}: {', '.join(stuck)}. {untouched(movable)}",
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
            self.info(f"instance {name} will be moved to node {', '.join(nodes)}")
        jobs = [list(job) for job in moves.jobs]
        for op in (op for job in jobs for op in job):
            if isinstance(op, OpInstanceReplaceDisks):
                op.early_release = self.op.early_release
        return jobs
