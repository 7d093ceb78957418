"""Failing an instance over: it is stopped and started on another node."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import migration
from ganeti.cmdlib.instance.migration import CleanupPlan, MovePlan
from ganeti.cmdlib.instance.moving import MovingUnit
from ganeti.opcodes.instance import OpInstanceFailover


@executes(OpInstanceFailover)
class LUInstanceFailover(MovingUnit):
    """Stop an instance (when its node still answers) and bring it up on another node."""

    op: OpInstanceFailover
    HOOKS = InstanceHooks("instance-failover")
    ACTION = "fail over"

    def hook_env(self, plan: Any) -> dict[str, object]:
        return {
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "FAILOVER_CLEANUP": self.op.cleanup,
            **self.move_env(plan),
        }

    def hook_nodes(self, plan: Any) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        # The old node may be dead: it is told afterwards, when nobody waits for its veto.
        nodes = [uuid for uuid in self.nodes_told() if not self._only_source(uuid)]
        return nodes, list(dict.fromkeys([*nodes, self.instance.primary_node]))

    def _only_source(self, uuid: str) -> bool:
        assert self.instance is not None
        return uuid == self.instance.primary_node and uuid != self.config.master_node().uuid

    def check_prereq(self) -> MovePlan | CleanupPlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        return migration.plan_move(
            self,
            self.instance,
            self.chosen_target(),
            failover=True,
            ignore_policy=self.op.ignore_ipolicy,
        )

    def exec(self, plan: MovePlan | CleanupPlan) -> None:
        if isinstance(plan, CleanupPlan):
            migration.clean_up(self, plan)
            return
        migration.move_stopped(
            self,
            plan,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_consistency=self.op.ignore_consistency,
        )
