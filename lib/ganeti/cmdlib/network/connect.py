"""Connecting a network to a node group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.cmdlib.ops.network.connection import ConnectionUnit
from ganeti.cmdlib.ops.nics import specs
from ganeti.objects import Network, NodeGroup, updated
from ganeti.objects.address_pool import AddressPool
from ganeti.opcodes.network import OpNetworkConnect
from ganeti.utils import net


@executes(OpNetworkConnect)
class LUNetworkConnect(ConnectionUnit[OpNetworkConnect]):
    """Connect a network to node groups."""

    HOOKS = NetworkHooks("network-connect")

    def expand_names(self) -> None:
        op = self.op
        self.connection = specs.connection(
            op.network_name, mode=op.network_mode, link=op.network_link, vlan=op.network_vlan
        )
        self._prepare(instances=op.conflicts_check)

    def _connection(self, group: NodeGroup) -> Mapping[str, Any]:
        return self.connection

    def _change(self, network: Network, group: NodeGroup) -> NodeGroup | None:
        present = group.networks.get(network.uuid)
        if present is not None:
            how = ", ".join(f"{key} {value}" for key, value in present.items() if value)
            self.log.warn(
                f"network {network.name} is already connected to node group {group.name} ({how});"
                " nothing is changed"
            )
            return None
        if self.op.conflicts_check:
            self._check_conflicts(network, group)
        return updated(group, networks={**group.networks, network.uuid: self.connection})

    def _check_conflicts(self, network: Network, group: NodeGroup) -> None:
        pool = AddressPool(network)
        found = [
            f"{instance.name} (interface {index}, {nic.ip})"
            for instance in self.config.instances()
            if instance.uuid in (self.guessed or {}).get(group.uuid, ())
            for index, nic in enumerate(instance.nics)
            if nic.ip is not None
            and nic.network != network.uuid
            and net.is_ipv4(nic.ip)
            and nic.ip in pool
        ]
        if found:
            raise errors.OpPrereqError(
                f"instances of node group {group.name} have addresses of network {network.name},"
                f" but are not in it: {checks.listed(found)}. Use --no-conflicts-check to connect"
                " it all the same.",
                errors.ECODE_STATE,
            )
