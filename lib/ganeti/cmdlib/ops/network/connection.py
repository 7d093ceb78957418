"""The base class of the logical units which connect networks to node groups or disconnect them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.locks import instances_of_group, require_still_same
from ganeti.cmdlib.ops.network import checks
from ganeti.locking import Level
from ganeti.objects import Network, NodeGroup
from ganeti.opcodes.network import OpNetworkConnect, OpNetworkDisconnect

ConnectionOpT = TypeVar("ConnectionOpT", bound=OpNetworkConnect | OpNetworkDisconnect)


class ConnectionUnit(LogicalUnit[ConnectionOpT, "ConnectionPlan"], ABC):
    """Locks and hooks of the units, and the change of the groups: all of them, or none."""

    def _prepare(self, *, instances: bool) -> None:
        op = self.op
        self.network = self.config.expand_network(op.network_name)
        named = [
            self.config.expand_group(name) for name in (op.group_name, *(op.more_groups or ()))
        ]
        self.groups = list({group.uuid: group for group in named}.values())
        self.guessed: dict[str, frozenset[str]] | None = None
        if instances:
            self.guessed = {
                group.uuid: instances_of_group(self, group.uuid) for group in self.groups
            }
            self.need(Level.INSTANCE, frozenset().union(*self.guessed.values()), shared=True)
        self.need(Level.NODEGROUP, [group.uuid for group in self.groups])
        self.need(Level.NETWORK, [self.network.uuid], shared=True)

    def hook_env(self, plan: ConnectionPlan) -> dict[str, object]:
        return self._group_env(self.groups[0])

    def hook_env_of_node(self, plan: ConnectionPlan, node_uuid: str) -> dict[str, object]:
        uuid = self.config.node(node_uuid).group
        group = next((group for group in self.groups if group.uuid == uuid), None)
        return {} if group is None else self._group_env(group)

    def _group_env(self, group: NodeGroup) -> dict[str, object]:
        """Return the variables of a group and of its connection."""
        return {"GROUP_NAME": group.name, **checks.connection_env(self._connection(group))}

    @abstractmethod
    def _connection(self, group: NodeGroup) -> Mapping[str, Any] | None:
        """Return the connection of a group, for the hooks."""

    def hook_nodes(self, plan: ConnectionPlan) -> tuple[list[str], list[str]]:
        nodes = [node.uuid for group in self.groups for node in self.config.group_nodes(group.uuid)]
        return nodes, nodes

    @abstractmethod
    def _change(self, network: Network, group: NodeGroup) -> NodeGroup | None:
        """Return a group with its new connections; None if nothing has to be changed.

        :raises errors.OpPrereqError: it cannot be changed.
        """

    def check_prereq(self) -> ConnectionPlan:
        """Check all groups, so that nothing is changed when one of them cannot be.

        :raises errors.OpPrereqError: a group cannot be changed, or has other instances now.
        """
        network = self.config.network(self.network.uuid)
        changed = []
        for group in self.groups:
            if self.guessed is not None:
                now = instances_of_group(self, group.uuid)
                require_still_same(
                    self.guessed[group.uuid], now, f"instances of node group {group.name}"
                )
            new = self._change(network, self.config.group(group.uuid))
            if new is not None:
                changed.append(new)
        return ConnectionPlan(tuple(changed))

    def exec(self, plan: ConnectionPlan) -> None:
        if plan.new:
            with self.config.transaction() as change:
                for group in plan.new:
                    change.groups.update(group)


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """The node groups with their new connections, without those which need no change."""

    new: tuple[NodeGroup, ...]
