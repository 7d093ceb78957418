"""Disconnecting a network from a node group."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.cmdlib.ops.network.connection import ConnectionPlan, ConnectionUnit
from ganeti.objects import updated
from ganeti.opcodes.network import OpNetworkDisconnect


@executes(OpNetworkDisconnect)
class LUNetworkDisconnect(ConnectionUnit[OpNetworkDisconnect]):
    """Disconnect a network from a node group whose instances do not use it."""

    HOOKS = NetworkHooks("network-disconnect")

    def expand_names(self) -> None:
        self._prepare(self.op.network_name, self.op.group_name, instances=True)

    def hook_env(self, plan: ConnectionPlan) -> dict[str, object]:
        # From the old group, because the post hooks get these variables, too.
        connection = self.group.networks.get(self.network.uuid)
        return {"GROUP_NAME": self.group.name, **checks.connection_env(connection)}

    def check_prereq(self) -> ConnectionPlan:
        network, group = self._present()
        if network.uuid not in group.networks:
            self.warn(
                f"network {network.name} is not connected to node group {group.name}; nothing is"
                " changed"
            )
            return ConnectionPlan(None)
        users = checks.users(self, network.uuid, group.uuid)
        if users:
            raise errors.OpPrereqError(
                f"network {network.name} is used in node group {group.name} by instances"
                f" {checks.listed(users)}",
                errors.ECODE_STATE,
            )
        networks = {uuid: params for uuid, params in group.networks.items() if uuid != network.uuid}
        return ConnectionPlan(updated(group, networks=networks))
