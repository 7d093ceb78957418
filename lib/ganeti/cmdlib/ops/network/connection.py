"""The base class of the logical units which connect networks to node groups or disconnect them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.locks import instances_of_group, require_still_same
from ganeti.locking import Level
from ganeti.objects import Network, NodeGroup
from ganeti.opcodes.network import OpNetworkConnect, OpNetworkDisconnect

ConnectionOpT = TypeVar("ConnectionOpT", bound=OpNetworkConnect | OpNetworkDisconnect)


class ConnectionUnit(LogicalUnit[ConnectionOpT, "ConnectionPlan"]):
    """Locks and hooks of the units, and the change of the group."""

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
        """Return the present network and group, after a check that the right instances are locked.

        :raises errors.OpPrereqError: the group has other instances now.
        """
        if self.guessed is not None:
            now = instances_of_group(self, self.group.uuid)
            require_still_same(self.guessed, now, f"instances of node group {self.group.name}")
        return self.config.network(self.network.uuid), self.config.group(self.group.uuid)

    def exec(self, plan: ConnectionPlan) -> None:
        if plan.new is not None:
            with self.config.transaction() as change:
                change.update_group(plan.new)


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """The node group with its new connections; None if nothing has to be changed."""

    new: NodeGroup | None
