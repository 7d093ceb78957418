"""Migrating an instance: it goes on running on another node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.guest import dry_run_steps
from ganeti.cmdlib.ops.migration import procedure
from ganeti.cmdlib.ops.migration.procedure import CleanupPlan, MovePlan
from ganeti.cmdlib.ops.migration.unit import MigrationUnit
from ganeti.constants.hv import MIGRATION_LIVE
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.opcodes.instance import OpInstanceMigrate


@executes(OpInstanceMigrate)
class LUInstanceMigrate(MigrationUnit[OpInstanceMigrate, MovePlan | CleanupPlan]):
    """Send a running instance to another node; or repair after an interrupted attempt."""

    HOOKS = InstanceHooks("instance-migrate")
    ACTION = "migrate"

    def expand_names(self) -> None:
        if self.op.live is not None and self.op.mode is not None:
            raise errors.OpPrereqError(
                "parameters live and mode say the same thing, only one may be given",
                errors.ECODE_INVAL,
            )
        super().expand_names()

    def hook_env(self, plan: MovePlan | CleanupPlan) -> dict[str, object]:
        return {
            "MIGRATE_LIVE": self._live(),
            "MIGRATE_CLEANUP": self.op.cleanup,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            **self.move_env(plan),
        }

    def hook_nodes(self, plan: MovePlan | CleanupPlan) -> tuple[list[str], list[str]]:
        nodes = self.nodes_told()
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

    def check_prereq(self) -> MovePlan | CleanupPlan:
        assert self.instance is not None
        if self.op.cleanup:
            return self.plan_cleanup()
        return procedure.plan_move(
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

    def steps(self, plan: MovePlan | CleanupPlan) -> list[str]:
        return dry_run_steps.move(self, plan)

    def exec(self, plan: MovePlan | CleanupPlan) -> None:
        if isinstance(plan, CleanupPlan):
            procedure.clean_up(self, plan)
        elif plan.failover:
            procedure.move_stopped(
                self, plan, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S, ignore_consistency=False
            )
        else:
            procedure.move_running(self, plan)
