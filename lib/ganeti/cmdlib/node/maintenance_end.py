"""Ending the maintenance of a node: it gets back its flags, its instances and its replicas."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.ops.node import maintenance
from ganeti.cmdlib.ops.node.maintenance import Return
from ganeti.locking import Level
from ganeti.objects import Maintenance, Node, updated
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.node import OpNodeMaintenanceEnd


@dataclass(frozen=True, slots=True)
class EndPlan:
    """What comes back.

    :ivar node: the node as it is now.
    :ivar mark: the record of the maintenance as it will be.
    :ivar flags: opcodes which give the node its flags.
    """

    node: Node
    mark: Maintenance
    flags: list[OpCode]
    instances: list[Return]


@executes(OpNodeMaintenanceEnd)
class LUNodeMaintenanceEnd(LogicalUnit[OpNodeMaintenanceEnd, EndPlan]):
    """Submit jobs which bring back what the node had before its maintenance."""

    def expand_names(self) -> None:
        node = self.lock_node(self.op.node_name, self.op.node_uuid, shared=True)
        self.node = node
        mark = node.maintenance or Maintenance(since=0)
        known = self.config.snapshot().instances
        recorded = maintenance.union(
            mark.primaries,
            mark.secondaries,
            mark.stopped,
            mark.visitors,
            mark.visiting_replicas,
        )
        # Jobs which still move them away end first.
        self.need(Level.INSTANCE, [uuid for uuid in recorded if uuid in known], shared=True)

    def check_prereq(self) -> EndPlan:
        node = self.config.node(self.node.uuid)
        mark = node.maintenance
        if mark is None:
            raise errors.OpPrereqError(
                f"node {node.name} is not in maintenance: that has ended, or never begun. Nothing"
                " was changed.",
                errors.ECODE_STATE,
            )
        if mark.returning:
            self.log.info(
                f"the end of the maintenance of node {node.name} was asked for before; only what is"
                " still missing there is brought back"
            )
        moved = maintenance.union(mark.primaries, mark.secondaries)
        if mark.drained and moved and self.op.move_back:
            self.log.info(
                f"node {node.name} was drained before, so that instances which have left it stay"
                f" where they are: {', '.join(maintenance.names(self.config, moved))}"
            )
        if mark.drained or not self.op.move_back:
            mark = updated(mark, primaries=(), secondaries=())
        mark = updated(mark, ready_at=None, returning=True)
        instances = [
            *maintenance.starts(self.config, node, mark),
            *maintenance.returns(self.config, self.log, node, mark),
        ]
        return EndPlan(node, mark, maintenance.flags_before(node, mark), instances)

    def steps(self, plan: EndPlan) -> list[str]:
        steps = [f"give node {plan.node.name} its former flags"] if plan.flags else []
        steps += [f"instance {one.instance.name}: {', '.join(one.steps)}" for one in plan.instances]
        return [*steps, f"remove the mark of the maintenance from node {plan.node.name}"]

    def exec(self, plan: EndPlan) -> ResultWithJobs:
        with self.config.transaction() as change:
            change.nodes.update(updated(self.config.node(plan.node.uuid), maintenance=plan.mark))
        jobs = [list(one.opcodes) for one in plan.instances]
        return ResultWithJobs(maintenance.in_order(plan.node, plan.flags, jobs))
