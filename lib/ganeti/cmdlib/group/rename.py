"""Renaming a node group."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.group.hooks import GroupHooks, require_new_name
from ganeti.locking import Level
from ganeti.objects import NodeGroup, updated
from ganeti.opcodes.group import OpGroupRename


@executes(OpGroupRename)
class LUGroupRename(LogicalUnit[OpGroupRename, NodeGroup]):
    """Rename a node group. Result: the new name."""

    HOOKS = GroupHooks("group-rename")

    def expand_names(self) -> None:
        self.group = self.config.expand_group(self.op.group_name)
        self.need(Level.NODEGROUP, [self.group.uuid])

    def hook_env(self, plan: NodeGroup) -> dict[str, object]:
        return {"OLD_NAME": self.group.name, "NEW_NAME": self.op.new_name}

    def hook_nodes(self, plan: NodeGroup) -> tuple[list[str], list[str]]:
        nodes = [node.uuid for node in self.config.group_nodes(self.group.uuid)]
        all_nodes = [self.config.master_node().uuid, *nodes]
        return all_nodes, all_nodes

    def check_prereq(self) -> NodeGroup:
        require_new_name(self.config, self.op.new_name, "node group")
        return self.config.group(self.group.uuid)

    def exec(self, plan: NodeGroup) -> str:
        with self.config.transaction() as change:
            change.groups.update(updated(plan, name=self.op.new_name))
        return self.op.new_name
