"""The last job of the start and of the end of a maintenance: it says what is true."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.node import guests, maintenance
from ganeti.objects import Maintenance, Node, updated
from ganeti.opcodes.node import OpNodeMaintenanceCheck
from ganeti.utils import clock


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The node, and its record after the check; None ends the maintenance."""

    node: Node
    mark: Maintenance | None


@executes(OpNodeMaintenanceCheck)
class LUNodeMaintenanceCheck(LogicalUnit[OpNodeMaintenanceCheck, CheckPlan]):
    """Mark a node in maintenance as ready, or end its maintenance, if that is true."""

    def expand_names(self) -> None:
        self.node = self.lock_node(self.op.node_name, self.op.node_uuid)

    def check_prereq(self) -> CheckPlan:
        """Compare the node with its record.

        :raises errors.OpPrereqError: the node is not in maintenance, or something is missing.
        """
        node = self.config.node(self.node.uuid)
        if node.maintenance is None:
            raise errors.OpPrereqError(
                f"node {node.name} is not in maintenance", errors.ECODE_STATE
            )
        if node.maintenance.returning:
            return self._check_back(node, node.maintenance)
        return self._check_empty(node, node.maintenance)

    def _check_empty(self, node: Node, mark: Maintenance) -> CheckPlan:
        again = f"When the cause is gone, repeat 'gnt-node maintenance start {node.name}'."
        if not node.drained and not node.offline:
            raise errors.OpPrereqError(
                f"node {node.name} is not ready: it could not be drained. {again}",
                errors.ECODE_STATE,
            )
        if node.offline:
            return CheckPlan(node, mark)
        left = maintenance.left(self.config, node, mark)
        if left:
            raise errors.OpPrereqError(
                f"node {node.name} is not ready: these have not left it: {', '.join(left)}. See the"
                f" jobs which should have moved them with 'gnt-job list'. {again}",
                errors.ECODE_STATE,
            )
        try:
            running = guests.running_on(self.config, self.rpc, node)
        except errors.RpcError as err:
            raise errors.OpPrereqError(
                f"node {node.name} does not tell which guests run there: {why(err)}. {again}",
                errors.ECODE_ENVIRON,
            ) from err
        if running:
            raise errors.OpPrereqError(
                f"node {node.name} is not ready: guests still run there: {', '.join(running)}."
                f" {again}",
                errors.ECODE_STATE,
            )
        return CheckPlan(node, updated(mark, ready_at=mark.ready_at or clock.now()))

    def _check_back(self, node: Node, mark: Maintenance) -> CheckPlan:
        missing = [
            f"{one.instance.name} ({', '.join(one.steps)})"
            for one in maintenance.returns(self.config, self.log, node, mark)
        ]
        missing += self._not_started(node, mark)
        if maintenance.flags_before(node, mark):
            missing.insert(0, "its former flags")
        if missing:
            raise errors.OpPrereqError(
                f"node {node.name} is still in maintenance; these are missing:"
                f" {', '.join(missing)}. When the cause is gone, repeat 'gnt-node maintenance end"
                f" {node.name}'; with --no-move-back, what has left the node stays where it is.",
                errors.ECODE_STATE,
            )
        return CheckPlan(node, None)

    def _not_started(self, node: Node, mark: Maintenance) -> list[str]:
        wanted = maintenance.starts(self.config, node, mark)
        if not wanted:
            return []
        running = guests.running_on(self.config, self.rpc, node)
        return [
            f"{one.instance.name} ({', '.join(one.steps)})"
            for one in wanted
            if one.instance.name not in running
        ]

    def exec(self, plan: CheckPlan) -> None:
        node = plan.node
        with self.config.transaction() as change:
            change.nodes.update(updated(self.config.node(node.uuid), maintenance=plan.mark))
        if plan.mark is None:
            self.log.info(f"the maintenance of node {node.name} has ended")
            return
        self.log.info(f"no guest runs on node {node.name}; it is safe to switch it off")
        alone = [one.name for one in self.config.node_instances(node.uuid)[1]]
        if alone:
            self.log.warn(
                "while it is off, these instances have one replica of their disks:"
                f" {', '.join(sorted(alone))}"
            )
