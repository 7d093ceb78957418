"""Failing an instance over: it is stopped and started on another node."""

from __future__ import annotations

from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.guest import dry_run_steps
from ganeti.cmdlib.ops.migration import failover_to_any, procedure
from ganeti.cmdlib.ops.migration.failover_to_any import AnywherePlan
from ganeti.cmdlib.ops.migration.procedure import CleanupPlan, MovePlan
from ganeti.cmdlib.ops.migration.unit import MigrationUnit
from ganeti.opcodes.instance import OpInstanceFailover


@executes(OpInstanceFailover)
class LUInstanceFailover(MigrationUnit[OpInstanceFailover, MovePlan | CleanupPlan | AnywherePlan]):
    """Stop an instance (when its node still answers) and bring it up on another node."""

    HOOKS = InstanceHooks("instance-failover")
    ACTION = "fail over"
    ANYWHERE = True

    def hook_env(self, plan: MovePlan | CleanupPlan | AnywherePlan) -> dict[str, object]:
        moves = plan.env() if isinstance(plan, AnywherePlan) else self.move_env(plan)
        return {
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "FAILOVER_CLEANUP": self.op.cleanup,
            **moves,
        }

    def hook_nodes(
        self, plan: MovePlan | CleanupPlan | AnywherePlan
    ) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        # The old node may be dead: it is told afterwards, when nobody waits for its veto.
        nodes = [uuid for uuid in self.nodes_told() if not self._only_source(uuid)]
        return nodes, list(dict.fromkeys([*nodes, self.instance.primary_node]))

    def _only_source(self, uuid: str) -> bool:
        assert self.instance is not None
        return uuid == self.instance.primary_node and uuid != self.config.master_node().uuid

    def check_prereq(self) -> MovePlan | CleanupPlan | AnywherePlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        target = self.chosen_target()
        if failover_to_any.applies(self, self.instance, target):
            return failover_to_any.plan(
                self, self.instance, target, ignore_policy=self.op.ignore_ipolicy
            )
        return procedure.plan_move(
            self,
            self.instance,
            target,
            failover=True,
            ignore_policy=self.op.ignore_ipolicy,
        )

    def steps(self, plan: MovePlan | CleanupPlan | AnywherePlan) -> list[str]:
        return dry_run_steps.move(self, plan)

    def exec(self, plan: MovePlan | CleanupPlan | AnywherePlan) -> None:
        if isinstance(plan, CleanupPlan):
            procedure.clean_up(self, plan)
            return
        if isinstance(plan, AnywherePlan):
            failover_to_any.carry_out(
                self,
                plan,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_consistency=self.op.ignore_consistency,
            )
            return
        procedure.move_stopped(
            self,
            plan,
            shutdown_timeout_s=self.op.shutdown_timeout,
            ignore_consistency=self.op.ignore_consistency,
        )
