"""Migrate an instance: it goes on running on another node."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.migration import (
    cleanup,
    failover,
    failover_to_any,
    live,
    migrate_to_any,
)
from ganeti.cmdlib.ops.migration.cleanup import CleanupPlan
from ganeti.cmdlib.ops.migration.failover_to_any import FailoverToAny, FailoverToAnyPlan
from ganeti.cmdlib.ops.migration.migrate_to_any import MigrateToAnyPlan
from ganeti.cmdlib.ops.migration.plan import MigrationOptions, MigrationPlan, plan_migration
from ganeti.cmdlib.ops.migration.unit import MigrationUnit
from ganeti.constants.hv import MIGRATION_LIVE
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.opcodes.instance import OpInstanceMigrate

if TYPE_CHECKING:
    from ganeti.objects import Instance, Node

MigratePlan: TypeAlias = MigrationPlan | MigrateToAnyPlan | FailoverToAnyPlan | CleanupPlan


@executes(OpInstanceMigrate)
class LUInstanceMigrate(MigrationUnit[OpInstanceMigrate, MigratePlan]):
    """Send a running instance to another node; or repair after an interrupted migration."""

    HOOKS = InstanceHooks("instance-migrate")
    ACTION = "migrate"

    def expand_names(self) -> None:
        if self.op.live is not None and self.op.mode is not None:
            raise errors.OpPrereqError(
                "parameters live and mode have the same meaning, only one of them may be given",
                errors.ECODE_INVAL,
            )
        super().expand_names()

    def hook_env(self, plan: MigratePlan) -> dict[str, object]:
        if isinstance(plan, MigrateToAnyPlan | FailoverToAnyPlan):
            moves = plan.env()
        else:
            moves = self.move_env(plan)
        return {
            "MIGRATE_LIVE": self._live(),
            "MIGRATE_CLEANUP": self.op.cleanup,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            **moves,
        }

    def hook_nodes(self, plan: MigratePlan) -> tuple[list[str], list[str]]:
        nodes = self.nodes_with_hooks()
        return nodes, nodes

    def _live(self) -> bool:
        assert self.instance is not None
        if self.op.live is not None:
            return self.op.live
        mode = self.op.mode
        if mode is None:
            hvparams = self.config.filled(self.instance).hvparams
            mode = hvparams.get("migration_mode", MIGRATION_LIVE)
        return mode == MIGRATION_LIVE

    def check_prereq(self) -> MigratePlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        target = self.chosen_target()
        found = self._plan(self.instance, target)
        if not failover_to_any.applies(self.config, self.instance, target):
            return found
        if found.failover:
            return failover_to_any.plan(self.ctx, self.instance, target, self.override)
        return migrate_to_any.plan(self.ctx, found, self.override)

    def _plan(self, instance: Instance, target: Node) -> MigrationPlan:
        options = MigrationOptions(
            failover=False,
            live=self._live(),
            allow_failover=self.op.allow_failover,
            allow_runtime_changes=self.op.allow_runtime_changes,
            override=self.override,
            ignore_versions=self.op.ignore_hvversions,
        )
        return plan_migration(self.ctx, instance, target, options)

    def steps(self, plan: MigratePlan) -> list[str]:
        return plan.steps(self.config)

    def exec(self, plan: MigratePlan) -> None:
        if isinstance(plan, CleanupPlan):
            cleanup.clean_up(self.ctx, plan)
        elif isinstance(plan, FailoverToAnyPlan):
            FailoverToAny(
                self.ctx,
                plan,
                shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
                reason=self.op.reason,
                ignore_consistency=False,
            ).run()
        elif isinstance(plan, MigrateToAnyPlan):
            uuid, target = plan.migration.instance.uuid, plan.migration.target

            def plan_again() -> MigrationPlan:
                return self._plan(self.config.instance(uuid), self.config.node(target.uuid))

            migrate_to_any.carry_out(
                self.ctx,
                plan,
                plan_again,
                shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
                reason=self.op.reason,
            )
        elif plan.failover:
            failover.fail_over(
                self.ctx,
                plan,
                shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
                reason=self.op.reason,
                ignore_consistency=False,
            )
        else:
            live.migrate(self.ctx, plan)
