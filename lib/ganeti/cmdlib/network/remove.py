"""Removing a network."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network, NodeGroup, updated
from ganeti.opcodes.network import OpNetworkRemove


@executes(OpNetworkRemove)
class LUNetworkRemove(LogicalUnit[OpNetworkRemove, Network]):
    """Remove a network; with ``force``, disconnect it from all node groups first."""

    HOOKS = NetworkHooks("network-remove")

    def expand_names(self) -> None:
        self.network = self.config.expand_network(self.op.network_name)
        if self.op.force:
            self.need(Level.NODEGROUP, [group.uuid for group in self._groups()])
        self.need(Level.NETWORK, [self.network.uuid])

    def _groups(self) -> list[NodeGroup]:
        return [g for g in self.config.groups() if self.network.uuid in g.networks]

    def hook_env(self, plan: Network) -> dict[str, object]:
        return {"NETWORK_NAME": self.network.name}

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        return checks.master_only(self.config)

    def check_prereq(self) -> Network:
        network = self.config.network(self.network.uuid)
        users = checks.users(self.config, network.uuid)
        if users:
            raise errors.OpPrereqError(
                f"network {network.name} is used by instances {checks.listed(users)}",
                errors.ECODE_STATE,
            )
        groups = self._groups()
        if groups and not self.op.force:
            names = ", ".join(group.name for group in groups)
            raise errors.OpPrereqError(
                f"network {network.name} is connected to node groups {names}. Disconnect it, or"
                " use --force.",
                errors.ECODE_STATE,
            )
        if groups and not {g.uuid for g in groups} <= self.owned(Level.NODEGROUP):
            raise errors.OpPrereqError(
                f"network {network.name} was connected to another node group while the job"
                " waited. Please retry.",
                errors.ECODE_STATE,
            )
        return network

    def exec(self, plan: Network) -> None:
        with self.config.transaction() as change:
            for group in self._groups():
                networks = {
                    uuid: params for uuid, params in group.networks.items() if uuid != plan.uuid
                }
                change.groups.update(updated(group, networks=networks))
            change.networks.remove(plan.uuid)
