"""Evacuating a node: moving its instances to other nodes, each in its own job."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.ops.node.evacuation import (
    EvacuationUnit,
    check_target,
    evacuation_target,
    untouched,
)
from ganeti.cmdlib.ops.node.move_jobs import MoveJobs
from ganeti.constants import node as node_c
from ganeti.objects import Instance, Node
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.node import OpNodeEvacuate


@executes(OpNodeEvacuate)
class LUNodeEvacuate(EvacuationUnit[OpNodeEvacuate, list[list[OpCode]]]):
    """Submit jobs which move instances away from a node; it and its instances may be down."""

    def expand_names(self) -> None:
        op = self.op
        node = self._find_node()
        target = evacuation_target(self.config, op.remote_node, op.remote_node_uuid)
        instances = self._wanted(node)
        self.allocator: str | None = None
        if instances or (op.iallocator and target is not None):
            self.allocator = self._choose_allocator(node, target, "--new-secondary")
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
        jobs = MoveJobs(
            self.ctx,
            self.node,
            None if self.target is None else self.config.node(self.target.uuid),
            self.op.mode,
            self.allocator,
            early_release=self.op.early_release,
            ignore_soft_errors=bool(self.op.ignore_soft_errors),
        )
        if not instances:
            self.log.info(f"node {self.node.name} has no instances to evacuate")
            return []
        stuck = [
            f"{instance.name} ({reason})"
            for instance in instances
            if (reason := jobs.why_not(instance)) is not None
        ]
        if stuck:
            movable = [instance.name for instance in instances if jobs.why_not(instance) is None]
            raise errors.OpPrereqError(
                f"instances cannot be moved away from node {self.node.name}: {', '.join(stuck)}."
                f" {untouched(movable)}",
                errors.ECODE_STATE,
            )
        if jobs.target is not None:
            check_target(self.config, self.node, jobs.target)
        return jobs.make(instances)

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)
