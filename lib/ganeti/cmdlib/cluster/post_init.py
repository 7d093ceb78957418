"""The first job of a cluster, from ``gnt-cluster init``: SSH keys, ``/etc/hosts``, hooks."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import ClusterHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.opcodes.cluster import OpClusterPostInit


@executes(OpClusterPostInit)
class LUClusterPostInit(LogicalUnit[OpClusterPostInit, None]):
    """Do the part of the initialisation which needs the daemons, and run the hooks."""

    HOOKS = ClusterHooks("cluster-init")
    REQ_BGL = True

    def hook_env(self, plan: None) -> dict[str, object]:
        return {"OP_TARGET": self.config.cluster_name}

    def hook_nodes(self, plan: None) -> tuple[list[str], list[str]]:
        return [], [self.config.master_node().uuid]

    def exec(self, plan: None) -> bool:
        ssh_keys.name_in_etc_hosts(self.ctx, self.config.master_node(), add=True)
        ssh_keys.distribute(self.ctx)
        return True
