"""Connecting a network to a node group, and disconnecting it.

The connection says how the interfaces of instances in this group are attached: mode, link, VLAN.
While a network is connected, its addresses are for interfaces in it only.
"""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.instance import nics
from ganeti.cmdlib.locks import instances_of_group, require_still_same
from ganeti.cmdlib.network import checks
from ganeti.cmdlib.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network, NodeGroup, updated
from ganeti.objects.address_pool import AddressPool
from ganeti.opcodes.network import OpNetworkConnect, OpNetworkDisconnect
from ganeti.utils import net


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """The group with its new connections; None when nothing has to be done."""

    new: NodeGroup | None


class _ConnectionUnit(LogicalUnit):
    """Locks and hooks of both units."""

    def _prepare(self, network_name: str, group_name: str, *, instances: bool) -> None:
        self.network = self.config.expand_network(network_name)
        self.group = self.config.expand_group(group_name)
        self.guessed: frozenset[str] | None = None
        if instances:
            self.guessed = instances_of_group(self, self.group.uuid)
            self.need(Level.INSTANCE, self.guessed, shared=True)
        self.need(Level.NODEGROUP, [self.group.uuid])
        self.need(Level.NETWORK, [self.network.uuid], shared=True)

    def hook_nodes(self, plan: ConnectionPlan) -> tuple[list[str], list[str]]:
        nodes = [node.uuid for node in self.config.group_nodes(self.group.uuid)]
        return nodes, nodes

    def _present(self) -> tuple[Network, NodeGroup]:
        """Both as they are, after the look whether the right instances are locked."""
        if self.guessed is not None:
            now = instances_of_group(self, self.group.uuid)
            require_still_same(self.guessed, now, f"instances of node group {self.group.name}")
        return self.config.network(self.network.uuid), self.config.group(self.group.uuid)

    def exec(self, plan: ConnectionPlan) -> None:
        if plan.new is not None:
            self.config.update_group(plan.new)


@executes(OpNetworkConnect)
class LUNetworkConnect(_ConnectionUnit):
    """Connect a network to a group."""

    op: OpNetworkConnect
    HOOKS = NetworkHooks("network-connect")

    def expand_names(self) -> None:
        op = self.op
        self.connection = nics.connection(
            op.network_name, mode=op.network_mode, link=op.network_link, vlan=op.network_vlan
        )
        self._prepare(op.network_name, op.group_name, instances=op.conflicts_check)

    def hook_env(self, plan: ConnectionPlan) -> dict[str, object]:
        return {"GROUP_NAME": self.group.name, **checks.connection_env(self.connection)}

    def check_prereq(self) -> ConnectionPlan:
        network, group = self._present()
        present = group.networks.get(network.uuid)
        if present is not None:
            how = ", ".join(f"{key} {value}" for key, value in present.items() if value)
            self.warn(
                f"network {network.name} is connected to node group {group.name} already ({how});"
                " nothing is changed"
            )
            return ConnectionPlan(None)
        if self.op.conflicts_check:
            self._check_conflicts(network, group)
        networks = {**group.networks, network.uuid: self.connection}
        return ConnectionPlan(updated(group, networks=networks))

    def _check_conflicts(self, network: Network, group: NodeGroup) -> None:
        pool = AddressPool(network)
        found = [
            f"{instance.name} (interface {index}, {nic.ip})"
            for instance in self.config.instances()
            if instance.uuid in (self.guessed or ())
            for index, nic in enumerate(instance.nics)
            if nic.ip is not None
            and nic.network != network.uuid
            and net.is_ipv4(nic.ip)
            and nic.ip in pool
        ]
        if found:
            raise errors.OpPrereqError(
                f"instances of node group {group.name} have addresses of network {network.name}"
                f" without being in it: {checks.listed(found)}. Use --no-conflicts-check to"
                " connect it all the same.",
                errors.ECODE_STATE,
            )


@executes(OpNetworkDisconnect)
class LUNetworkDisconnect(_ConnectionUnit):
    """Disconnect a network which no instance of the group uses."""

    op: OpNetworkDisconnect
    HOOKS = NetworkHooks("network-disconnect")

    def expand_names(self) -> None:
        self._prepare(self.op.network_name, self.op.group_name, instances=True)

    def hook_env(self, plan: ConnectionPlan) -> dict[str, object]:
        # Told before and after; afterwards the group itself does not know any more.
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
