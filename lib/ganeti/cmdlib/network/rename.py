"""Renaming a network."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.group.hooks import require_new_name
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network, updated
from ganeti.opcodes.network import OpNetworkRename


@executes(OpNetworkRename)
class LUNetworkRename(LogicalUnit[OpNetworkRename, Network]):
    """Rename a network. Result: the new name."""

    HOOKS = NetworkHooks("network-rename")

    def expand_names(self) -> None:
        self.network = self.config.expand_network(self.op.network_name)
        self.need(Level.NETWORK, [self.network.uuid])

    def hook_env(self, plan: Network) -> dict[str, object]:
        return {"OLD_NAME": self.network.name, "NEW_NAME": self.op.new_name}

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        groups = {g.uuid for g in self.config.groups() if self.network.uuid in g.networks}
        nodes = [node.uuid for node in self.config.nodes() if node.group in groups]
        all_nodes = [self.config.master_node().uuid, *nodes]
        return all_nodes, all_nodes

    def check_prereq(self) -> Network:
        require_new_name(self.config, self.op.new_name, "network")
        return self.config.network(self.network.uuid)

    def exec(self, plan: Network) -> str:
        with self.config.transaction() as change:
            change.networks.update(updated(plan, name=self.op.new_name))
        return self.op.new_name
