"""Failing an instance over: it is stopped and started on another node."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import migration
from ganeti.cmdlib.instance.migration import CleanupPlan, MovePlan
from ganeti.locking import Level
from ganeti.objects import Node
from ganeti.opcodes.instance import OpInstanceFailover


@executes(OpInstanceFailover)
class LUInstanceFailover(LogicalUnit):
    """Stop an instance (when its node still answers) and bring it up on another node."""

    op: OpInstanceFailover
    HOOKS = InstanceHooks("instance-failover")

    def expand_names(self) -> None:
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
        self.need(level, uuids, shared=level is Level.NODE)

    def hook_env(self, plan: Any) -> dict[str, object]:
        assert self.instance is not None
        primary = self.config.node(self.config.instance(self.instance.uuid).primary_node)
        target = primary if isinstance(plan, CleanupPlan) else plan.target
        return {
            "IGNORE_CONSISTENCY": self.op.ignore_consistency,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "OLD_PRIMARY": primary.name,
            "NEW_PRIMARY": target.name,
            "FAILOVER_CLEANUP": self.op.cleanup,
            "OLD_SECONDARY": "",
            "NEW_SECONDARY": "",
        }

    def hook_nodes(self, plan: Any) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        nodes = [self.config.master_node().uuid, *self.config.secondary_nodes(self.instance)]
        if self.target is not None:
            nodes.append(self.target.uuid)
        return nodes, [*nodes, self.instance.primary_node]

    def check_prereq(self) -> MovePlan | CleanupPlan:
        assert self.instance is not None
        if self.op.cleanup:
            return migration.plan_cleanup(self, self.instance)
        assert self.target is not None
        return migration.plan_move(
            self,
            self.instance,
            self.config.node(self.target.uuid),
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
