"""Connecting a network to a node group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import executes, why
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.cmdlib.ops.network.connection import ConnectionUnit
from ganeti.cmdlib.ops.nics import links, specs
from ganeti.objects import Network, NodeGroup, updated
from ganeti.objects.address_pool import AddressPool
from ganeti.opcodes.network import OpNetworkConnect
from ganeti.utils import net
from ganeti.wire.calls import NODE_VERIFY


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
        self._tell_missing(network, group)
        return updated(group, networks={**group.networks, network.uuid: self.connection})

    def _tell_missing(self, network: Network, group: NodeGroup) -> None:
        """Warn about nodes which cannot attach interfaces of this connection."""
        nodes = [
            node
            for node in self.config.group_nodes(group.uuid)
            if node.vm_capable and not node.offline
        ]
        checks = links.node_checks(self.connection, [node.name for node in nodes])
        if not checks or not nodes:
            return
        answers = self.rpc.call_many(
            NODE_VERIFY,
            [node.uuid for node in nodes],
            checks=checks,
            cluster_name=self.config.cluster_name,
            all_hvparams={},
        )
        for answer in answers.values():
            if answer.failure is not None:
                self.log.warn(
                    f"node {answer.node_name} could not be asked whether it has"
                    f" {self.connection['link']}: {why(answer.failure)}"
                )
                continue
            for problem in links.problems(answer.data):
                self.log.warn(
                    f"node {answer.node_name}: {problem}, so instances with an interface in network"
                    f" {network.name} do not start there"
                )

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
