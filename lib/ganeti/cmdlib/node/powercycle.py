"""Power-cycling a node with its hypervisor."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.objects import Node, fill
from ganeti.opcodes.node import OpNodePowercycle
from ganeti.wire.calls import NODE_POWERCYCLE


@executes(OpNodePowercycle)
class LUNodePowercycle(LogicalUnit[OpNodePowercycle, Node]):
    """Let a node reset itself. No locks are taken, because other jobs may hang on the node."""

    def expand_names(self) -> None:
        self.node = self.find_node(self.op.node_name, self.op.node_uuid)

    def check_prereq(self) -> Node:
        if self.node.uuid == self.config.cluster().master_node and not self.op.force:
            raise errors.OpPrereqError(
                f"node {self.node.name} is the master node. Use --force to reset it all the same.",
                errors.ECODE_INVAL,
            )
        return self.node

    def exec(self, plan: Node) -> str:
        cluster = self.config.cluster()
        group = self.config.group(plan.group)
        (name,) = fill.group_hypervisors(cluster, group)[:1] or (cluster.primary_hypervisor,)
        answer = self.rpc.call(
            NODE_POWERCYCLE,
            plan.uuid,
            hypervisor=name,
            hvparams=dict(cluster.hvparams.get(name, {})),
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {plan.name} cannot be reset: {why(answer.failure)}"
            ) from answer.failure
        text: str = answer.data
        return text
