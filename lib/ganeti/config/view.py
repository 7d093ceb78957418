"""Queries of one state of the configuration.

:class:`View` answers them for a snapshot, :class:`ganeti.config.api.Config` for the present state.
An object which is requested by UUID must exist, because UUIDs come from the configuration; its
absence is a :class:`errors.ConfigurationError`. A name comes from a user; an unknown one is a
:class:`errors.OpPrereqError`.
"""

from __future__ import annotations

import abc
import bisect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from ganeti import errors
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    FilledInstance,
    FilterRule,
    Instance,
    Network,
    Node,
    NodeGroup,
    fill,
    filled_instance,
)
from ganeti.objects.by_node import instances_of_node
from ganeti.replication import quorum
from ganeti.utils import suggest, text


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def uuid(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)
T = TypeVar("T")

# Number of new objects up to which they are inserted into a sorted list, instead of sorting again.
_FEW: Final = 100

_natural_key = lru_cache(maxsize=100_000)(text.natural_key)


class Questions(abc.ABC):
    """The queries which every state of the configuration answers."""

    def __init__(self) -> None:
        # For each kind, the dictionary from which an index was made, and the index. A dictionary of
        # the configuration never changes, so an index is valid for the same dictionary only.
        self._indexes: dict[str, tuple[object, dict[str, str]]] = {}
        self._sorted: dict[str, tuple[object, tuple[Any, ...]]] = {}

    @abc.abstractmethod
    def snapshot(self) -> ConfigData:
        """Return the whole state, an object which never changes."""

    # -- the cluster --------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        """Return the cluster object."""
        return self.snapshot().cluster

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self.snapshot().cluster.cluster_name

    def master_node(self) -> Node:
        """Return the master node."""
        data = self.snapshot()
        return self._node(data, data.cluster.master_node)

    # -- by UUID ------------------------------------------------------------------------------

    def node(self, uuid: str) -> Node:
        """Return a node.

        :raises ConfigurationError: there is no node with this UUID. The methods below raise the
            same error for their objects.
        """
        return self._node(self.snapshot(), uuid)

    def instance(self, uuid: str) -> Instance:
        """Return an instance."""
        return _known(self.snapshot().instances, uuid, "instance")

    def group(self, uuid: str) -> NodeGroup:
        """Return a node group."""
        return _known(self.snapshot().nodegroups, uuid, "node group")

    def network(self, uuid: str) -> Network:
        """Return a network."""
        return _known(self.snapshot().networks, uuid, "network")

    def disk(self, uuid: str) -> Disk:
        """Return a disk."""
        return _known(self.snapshot().disks, uuid, "disk")

    def filter_rule(self, uuid: str) -> FilterRule:
        """Return a filter rule."""
        return _known(self.snapshot().filters, uuid, "filter rule")

    # -- by a name which a user gave ----------------------------------------------------------

    def expand_node(self, name: str) -> Node:
        """Return the node with this name, UUID, or unique leading part of a name (``node1``).

        :raises OpPrereqError: unknown_entity: no node has it, or several have it. The methods below
            raise the same error for their objects.
        """
        return self._expand("nodes", "node", self.snapshot().nodes, name)

    def expand_instance(self, name: str) -> Instance:
        """Return the instance with this name, UUID, or unique leading part of a name."""
        return self._expand("instances", "instance", self.snapshot().instances, name)

    def expand_group(self, name: str) -> NodeGroup:
        """Return the node group with exactly this name or UUID."""
        return self._expand(
            "nodegroups", "node group", self.snapshot().nodegroups, name, parts=False
        )

    def expand_network(self, name: str) -> Network:
        """Return the network with exactly this name or UUID."""
        return self._expand("networks", "network", self.snapshot().networks, name, parts=False)

    def node_by_name(self, name: str) -> Node | None:
        """Return the node with exactly this name, or None."""
        return self._by_name("nodes", self.snapshot().nodes, name)

    def instance_by_name(self, name: str) -> Instance | None:
        """Return the instance with exactly this name, or None."""
        return self._by_name("instances", self.snapshot().instances, name)

    def network_by_name(self, name: str) -> Network | None:
        """Return the network with exactly this name, or None."""
        return self._by_name("networks", self.snapshot().networks, name)

    # -- lists, in natural order of names -----------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        return self._in_order("nodes")

    def instances(self) -> tuple[Instance, ...]:
        """Return all instances."""
        return self._in_order("instances")

    def groups(self) -> tuple[NodeGroup, ...]:
        """Return all node groups."""
        return self._in_order("nodegroups")

    def networks(self) -> tuple[Network, ...]:
        """Return all networks."""
        return self._in_order("networks")

    def filters(self) -> tuple[FilterRule, ...]:
        """Return all filter rules in the order in which they are applied."""
        return tuple(
            sorted(
                self.snapshot().filters.values(),
                key=lambda rule: (rule.priority, rule.watermark, rule.uuid),
            )
        )

    def master_candidates(self) -> tuple[Node, ...]:
        """Return the master candidates, including the master."""
        return tuple(node for node in self.nodes() if node.master_candidate)

    def other_candidates(self) -> list[str]:
        """Return the UUIDs of the online master candidates without the master."""
        return quorum.other_candidates(self.snapshot())

    def online_nodes(self) -> tuple[Node, ...]:
        """Return the nodes which are not marked offline."""
        return tuple(node for node in self.nodes() if not node.offline)

    def vm_capable_nodes(self) -> tuple[Node, ...]:
        """Return the nodes which may run instances."""
        return tuple(node for node in self.nodes() if node.vm_capable)

    def group_nodes(self, group_uuid: str) -> tuple[Node, ...]:
        """Return the nodes of a node group."""
        return tuple(node for node in self.nodes() if node.group == group_uuid)

    # -- instances, their disks and nodes -----------------------------------------------------

    def instance_disks(self, instance: Instance) -> tuple[Disk, ...]:
        """Return the disks of an instance in order."""
        return fill.instance_disks(self.snapshot(), instance)

    def disk_template(self, instance: Instance) -> str:
        """Return the disk template of an instance, or ``diskless``, or ``mixed``."""
        return fill.disk_template(self.instance_disks(instance))

    def secondary_nodes(self, instance: Instance) -> tuple[str, ...]:
        """Return the UUIDs of the secondary nodes of an instance."""
        return fill.secondary_nodes(instance, self.instance_disks(instance))

    def instance_nodes(self, instance: Instance) -> tuple[str, ...]:
        """Return the UUIDs of the nodes of an instance, the primary first.

        A forthcoming instance whose nodes are not chosen yet has none.
        """
        if not instance.primary_node:
            return ()
        return (instance.primary_node, *self.secondary_nodes(instance))

    def instance_node_names(self, instance: Instance) -> list[str]:
        """Return the names of the nodes of an instance, the primary first."""
        return [self.node(uuid).name for uuid in self.instance_nodes(instance)]

    def node_instances(self, node_uuid: str) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
        """Return the instances of which a node is primary, and those of which it is secondary."""
        primaries, secondaries = instances_of_node(self.snapshot(), node_uuid)
        return tuple(sorted(primaries, key=_key_of)), tuple(sorted(secondaries, key=_key_of))

    def filled(self, instance: Instance, **overrides: Any) -> FilledInstance:
        """Return an instance with all inherited parameters, in the form which nodes get.

        :param overrides: ``hvparams``, ``beparams``, ``osparams``, ``disks`` of
            :func:`ganeti.objects.fill.filled_instance`.
        """
        return filled_instance(self.snapshot(), instance, **overrides)

    # -- helpers ------------------------------------------------------------------------------

    @staticmethod
    def _node(data: ConfigData, uuid: str) -> Node:
        return _known(data.nodes, uuid, "node")

    def _index(self, kind: str, table: Mapping[str, NamedT]) -> dict[str, str]:
        cached = self._indexes.get(kind)
        if cached is not None and cached[0] is table:
            return cached[1]
        index = {item.name: uuid for uuid, item in table.items()}
        self._indexes[kind] = (table, index)
        return index

    def _in_order(self, kind: str) -> tuple[Any, ...]:
        table = getattr(self.snapshot(), kind)
        cached = self._sorted.get(kind)
        if cached is not None and cached[0] is table:
            return cached[1]
        items = None if cached is None else _adapted(cached[1], table)
        if items is None:
            items = tuple(sorted(table.values(), key=_key_of))
        self._sorted[kind] = (table, items)
        return items

    def _by_name(self, kind: str, table: Mapping[str, NamedT], name: str) -> NamedT | None:
        # Most commits change no name, so the last index is mostly still valid.
        cached = self._indexes.get(kind)
        if cached is not None:
            found = table.get(cached[1].get(name, ""))
            if found is not None and found.name == name:
                return found
        uuid = self._index(kind, table).get(name)
        return None if uuid is None else table[uuid]

    def _expand(
        self, kind: str, label: str, table: Mapping[str, NamedT], name: str, *, parts: bool = True
    ) -> NamedT:
        if name in table:
            return table[name]
        known = self._by_name(kind, table, name)
        if known is not None:
            return known
        index = self._index(kind, table)
        uuid = None
        if parts and name:
            found = text.match_name_component(name, index, case_sensitive=False)
            uuid = None if found is None else index[found]
        if uuid is not None:
            return table[uuid]
        likely = sorted(
            other
            for other in index
            if parts and name and other.lower().startswith(f"{name.lower()}.")
        )
        if likely:
            raise errors.OpPrereqError(
                f"{label} name '{name}' is not unique: it matches {', '.join(likely[:5])}",
                errors.ECODE_NOENT,
            )
        hint = suggest.did_you_mean(name, index)
        raise errors.OpPrereqError(
            f"{label} '{name}' is not in the cluster{'.' if hint else ''}{hint}", errors.ECODE_NOENT
        )


class View(Questions):
    """Queries of a given state of the configuration. Threads may share an object."""

    def __init__(self, data: ConfigData) -> None:
        super().__init__()
        self._data = data

    def snapshot(self) -> ConfigData:
        """Return the state of this view."""
        return self._data


def _adapted(items: tuple[Any, ...], table: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the sorted objects of a table, made from the sorted objects of an earlier one.

    :returns: None if sorting is quicker, because many objects are different.
    """
    found = []
    for old in items:
        new = table.get(old.uuid)
        if new is old or (new is not None and new.name == old.name):
            found.append(new)
        elif new is not None:
            return None
    if len(found) != len(table):
        known = {item.uuid for item in items}
        added = [item for uuid, item in table.items() if uuid not in known]
        if len(added) > _FEW:
            return None
        for item in added:
            bisect.insort(found, item, key=_key_of)
    return tuple(found)


def _key_of(item: _Named) -> Any:
    return _natural_key(item.name)


def _known(table: Mapping[str, T], uuid: str, label: str) -> T:
    found = table.get(uuid)
    if found is None:
        raise errors.ConfigurationError(f"{label} {uuid} is not in the configuration")
    return found
