"""Migrating an instance: it goes on running on another node."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import migration
from ganeti.cmdlib.instance.migration import CleanupPlan, MovePlan
from ganeti.constants.hv import MIGRATION_LIVE
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.locking import Level
from ganeti.objects import Node
from ganeti.opcodes.instance import OpInstanceMigrate


@executes(OpInstanceMigrate)
class LUInstanceMigrate(LogicalUnit):
    """Send a running instance to another node; or repair after an interrupted attempt."""

    op: OpInstanceMigrate
    HOOKS = InstanceHooks("instance-migrate")

    def expand_names(self) -> None:
        if self.op.live is not None and self.op.mode is not None:
            raise errors.OpPrereqError(
                "parameters live and mode say the same thing, only one may be given",
                errors.ECODE_INVAL,
            )
        self.target: Node | None = None
        if not self.op.cleanup:
            self.target = migration.target_name(
                self, self.op.target_node, self.op.target_node_uuid, self.op.iallocator
            )
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level not in (Level.NODE, Level.NODE_RES) or self.instance is None:
            return
        primary = self.config.node(self.instance.primary_node)
        uuids = {primary.uuid}
        if self.target is not None:
            uuids.add(self.target.uuid)
        else:
            uuids.update(n.uuid for n in self.config.nodes() if n.group == primary.group)
        # Memory and disks of the nodes are what is worked on, the nodes themselves stay as they
        # are.
        self.need(level, uuids, shared=level is Level.NODE)

    def hook_env(self, plan: Any) -> dict[str, object]:
        assert self.instance is not None
        primary = self.config.node(self.config.instance(self.instance.uuid).primary_node)
        target = primary if isinstance(plan, CleanupPlan) else plan.target
        return {
            "MIGRATE_LIVE": self._live(),
            "MIGRATE_CLEANUP": self.op.cleanup,
            "OLD_PRIMARY": primary.name,
            "NEW_PRIMARY": target.name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
            "OLD_SECONDARY": "",
            "NEW_SECONDARY": "",
        }

    def hook_nodes(self, plan: Any) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        nodes = [self.config.master_node().uuid, *self.config.instance_nodes(self.instance)]
        if self.target is not None:
            nodes.append(self.target.uuid)
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
            return migration.plan_cleanup(self, self.instance)
        assert self.target is not None
        return migration.plan_move(
            self,
            self.instance,
            self.config.node(self.target.uuid),
            failover=False,
            live=self._live(),
            allow_failover=self.op.allow_failover,
            allow_runtime_changes=self.op.allow_runtime_changes,
            ignore_policy=self.op.ignore_ipolicy,
            ignore_versions=self.op.ignore_hvversions,
        )

    def exec(self, plan: MovePlan | CleanupPlan) -> None:
        if isinstance(plan, CleanupPlan):
            migration.clean_up(self, plan)
        elif plan.failover:
            migration.move_stopped(
                self, plan, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S, ignore_consistency=False
            )
        else:
            migration.move_running(self, plan)
