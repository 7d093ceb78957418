"""Migrate an instance: it goes on running on another node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.guest import dry_run_steps
from ganeti.cmdlib.ops.migration import cleanup, live, stopped
from ganeti.cmdlib.ops.migration.cleanup import CleanupPlan
from ganeti.cmdlib.ops.migration.plan import MigrationPlan, plan_migration
from ganeti.cmdlib.ops.migration.unit import MigrationUnit
from ganeti.constants.hv import MIGRATION_LIVE
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.opcodes.instance import OpInstanceMigrate


@executes(OpInstanceMigrate)
class LUInstanceMigrate(MigrationUnit[OpInstanceMigrate, MigrationPlan | CleanupPlan]):
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

    def hook_env(self, plan: MigrationPlan | CleanupPlan) -> dict[str, object]:
        return {
            "MIGRATE_LIVE": self._live(),
            "MIGRATE_CLEANUP": self.op.cleanup,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            **self.move_env(plan),
        }

    def hook_nodes(self, plan: MigrationPlan | CleanupPlan) -> tuple[list[str], list[str]]:
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

    def check_prereq(self) -> MigrationPlan | CleanupPlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        return plan_migration(
            self,
            self.instance,
            self.chosen_target(),
            failover=False,
            live=self._live(),
            allow_failover=self.op.allow_failover,
            allow_runtime_changes=self.op.allow_runtime_changes,
            ignore_policy=self.op.ignore_ipolicy,
            ignore_versions=self.op.ignore_hvversions,
        )

    def steps(self, plan: MigrationPlan | CleanupPlan) -> list[str]:
        return dry_run_steps.migrate(self, plan)

    def exec(self, plan: MigrationPlan | CleanupPlan) -> None:
        if isinstance(plan, CleanupPlan):
            cleanup.clean_up(self, plan)
        elif plan.failover:
            stopped.fail_over(
                self, plan, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S, ignore_consistency=False
            )
        else:
            live.migrate(self, plan)
