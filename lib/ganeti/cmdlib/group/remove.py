"""Removing a node group."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.group.hooks import GroupHooks
from ganeti.locking import Level
from ganeti.objects import NodeGroup
from ganeti.opcodes.group import OpGroupRemove


@executes(OpGroupRemove)
class LUGroupRemove(LogicalUnit[OpGroupRemove, NodeGroup]):
    """Remove a node group which has no nodes and is not the only one."""

    HOOKS = GroupHooks("group-remove")

    def expand_names(self) -> None:
        self.group = self.config.expand_group(self.op.group_name)
        self.need(Level.NODEGROUP, [self.group.uuid])

    def hook_env(self, plan: NodeGroup) -> dict[str, object]:
        return {"GROUP_NAME": self.group.name}

    def hook_nodes(self, plan: NodeGroup) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> NodeGroup:
        group = self.config.group(self.group.uuid)
        nodes = self.config.group_nodes(group.uuid)
        if nodes:
            raise errors.OpPrereqError(
                f"node group {group.name} is not empty: it has the nodes"
                f" {', '.join(node.name for node in nodes)}",
                errors.ECODE_STATE,
            )
        if len(self.config.groups()) == 1:
            raise errors.OpPrereqError(
                f"node group {group.name} is the only one and cannot be removed",
                errors.ECODE_STATE,
            )
        return group

    def exec(self, plan: NodeGroup) -> None:
        with self.config.transaction() as change:
            change.groups.remove(plan.uuid)
