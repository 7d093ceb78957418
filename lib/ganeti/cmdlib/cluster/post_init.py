"""The first job of a cluster, submitted by its initialisation: SSH, ``/etc/hosts``, hooks."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import ClusterHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.opcodes.cluster import OpClusterPostInit


@executes(OpClusterPostInit)
class LUClusterPostInit(LogicalUnit):
    """Set up what needs the daemons, and run the hooks which follow the initialisation."""

    op: OpClusterPostInit
    HOOKS = ClusterHooks("cluster-init")
    REQ_BGL = True

    def hook_env(self, plan: Any) -> dict[str, object]:
        return {"OP_TARGET": self.config.cluster_name}

    def hook_nodes(self, plan: Any) -> tuple[list[str], list[str]]:
        return [], [self.config.master_node().uuid]

    def exec(self, plan: Any) -> bool:
        ssh_keys.name_in_etc_hosts(self, self.config.master_node(), add=True)
        ssh_keys.distribute(self)
        return True
