"""Disconnecting a network from a node group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.cmdlib.ops.network.connection import ConnectionUnit
from ganeti.objects import Network, NodeGroup, updated
from ganeti.opcodes.network import OpNetworkDisconnect


@executes(OpNetworkDisconnect)
class LUNetworkDisconnect(ConnectionUnit[OpNetworkDisconnect]):
    """Disconnect a network from a node group whose instances do not use it."""

    HOOKS = NetworkHooks("network-disconnect")

    def expand_names(self) -> None:
        self._prepare(instances=True)

    def _connection(self, group: NodeGroup) -> Mapping[str, Any] | None:
        # From the old group, because the post hooks get these variables, too.
        return group.networks.get(self.network.uuid)

    def _change(self, network: Network, group: NodeGroup) -> NodeGroup | None:
        if network.uuid not in group.networks:
            self.log.warn(
                f"network {network.name} is not connected to node group {group.name}; nothing is"
                " changed"
            )
            return None
        users = checks.users(self.config, network.uuid, group.uuid)
        if users:
            raise errors.OpPrereqError(
                f"network {network.name} is used in node group {group.name} by instances"
                f" {checks.listed(users)}",
                errors.ECODE_STATE,
            )
        networks = {uuid: params for uuid, params in group.networks.items() if uuid != network.uuid}
        return updated(group, networks=networks)
