"""Fail an instance over: stop it, and start it on another node."""

from __future__ import annotations

from typing import TypeAlias

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.migration import cleanup, failover, failover_to_any
from ganeti.cmdlib.ops.migration.cleanup import CleanupPlan
from ganeti.cmdlib.ops.migration.failover_to_any import FailoverToAny, FailoverToAnyPlan
from ganeti.cmdlib.ops.migration.plan import MigrationOptions, MigrationPlan, plan_migration
from ganeti.cmdlib.ops.migration.unit import MigrationUnit
from ganeti.opcodes.instance import OpInstanceFailover

FailoverPlan: TypeAlias = MigrationPlan | CleanupPlan | FailoverToAnyPlan


@executes(OpInstanceFailover)
class LUInstanceFailover(MigrationUnit[OpInstanceFailover, FailoverPlan]):
    """Stop an instance (if its node still answers) and start it on another node."""

    HOOKS = InstanceHooks("instance-failover")
    ACTION = "fail over"

    def hook_env(self, plan: FailoverPlan) -> dict[str, object]:
        moves = plan.env() if isinstance(plan, FailoverToAnyPlan) else self.move_env(plan)
        return {
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "FAILOVER_CLEANUP": self.op.cleanup,
            **moves,
        }

    def hook_nodes(self, plan: FailoverPlan) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        # The source node may be dead: only its post hooks run, which cannot veto the operation.
        nodes = [uuid for uuid in self.nodes_with_hooks() if not self._only_source(uuid)]
        return nodes, list(dict.fromkeys([*nodes, self.instance.primary_node]))

    def _only_source(self, uuid: str) -> bool:
        assert self.instance is not None
        return uuid == self.instance.primary_node and uuid != self.config.master_node().uuid

    def check_prereq(self) -> FailoverPlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        target = self.chosen_target()
        partner = self.op.new_secondary
        if failover_to_any.applies(self.config, self.instance, target):
            return failover_to_any.plan(
                self.ctx,
                self.instance,
                target,
                self.override,
                ignore_consistency=self.op.ignore_consistency,
                partner=None if partner is None else self.config.expand_node(partner),
                wait_for_sync=bool(self.op.wait_for_sync),
            )
        if partner is not None or self.op.wait_for_sync:
            raise errors.OpPrereqError(
                f"instance {self.instance.name} gets no new replica on node {target.name}, so that"
                " there is no secondary node to choose and no synchronisation to wait for",
                errors.ECODE_INVAL,
            )
        options = MigrationOptions(
            failover=True,
            override=self.override,
            ignore_consistency=self.op.ignore_consistency,
        )
        return plan_migration(self.ctx, self.instance, target, options)

    def steps(self, plan: FailoverPlan) -> list[str]:
        return plan.steps(self.config)

    def exec(self, plan: FailoverPlan) -> None:
        if isinstance(plan, CleanupPlan):
            cleanup.clean_up(self.ctx, plan)
            return
        if isinstance(plan, FailoverToAnyPlan):
            FailoverToAny(
                self.ctx,
                plan,
                shutdown_timeout_s=self.op.shutdown_timeout,
                reason=self.op.reason,
                ignore_consistency=self.op.ignore_consistency,
            ).run()
            return
        failover.fail_over(
            self.ctx,
            plan,
            shutdown_timeout_s=self.op.shutdown_timeout,
            reason=self.op.reason,
            ignore_consistency=self.op.ignore_consistency,
        )
