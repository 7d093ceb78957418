"""A snapshot of the configuration with the look-ups which fields need.

A view serves one query: values which are derived from the snapshot (instances by node, filled
parameters) are computed at most once, and only if a field needs them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ganeti.objects import ConfigData, Disk, Instance, Node, NodeGroup, addresses
from ganeti.objects import fill as object_fill
from ganeti.objects.by_node import instances_of_node
from ganeti.utils.text import natural_key

# Number of prefixes up to which each is searched by itself; above that, the parts of names are
# compared.
_MANY = 8


def prefixes(name: str) -> list[str]:
    """Return the short forms of a host name: ``a``, ``a.b``, ``a.b.c`` for ``a.b.c``."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def by_name(objects: Any) -> list[Any]:
    """Return objects sorted by name in natural order: node2 before node10."""
    return sorted(objects, key=lambda obj: natural_key(obj.name))


class View:
    """The data of one query.

    :ivar live: live data by name.
    :ivar facts: single values which are not in the configuration.
    """

    def __init__(self, config: ConfigData, facts: dict[str, Any] | None = None) -> None:
        self.config = config
        self.cluster = config.cluster
        self.live: dict[str, Any] = {}
        self.facts = facts or {}
        self._names: dict[str, set[str]] = {}
        self._hv: dict[str, dict[str, Any]] = {}
        self._be: dict[str, dict[str, Any]] = {}
        self._nics: dict[str, list[dict[str, Any]]] = {}
        self._nd: dict[str, dict[str, Any]] = {}
        self._members: dict[str, tuple[list[Instance], list[Instance]]] = {}

    def pick(
        self, table: str, field: str, values: frozenset[str], *, components: bool
    ) -> list[Any]:
        """Return the objects of a table with one of these names or UUIDs, in any order.

        All names are compared, which takes 1 ms for 10,000 instances; an index of names would cost
        more with each change.

        :param components: a value also matches names which begin with it and a dot.
        """
        objects: dict[str, Any] = getattr(self.config, table)
        if field == "uuid":
            return [objects[uuid] for uuid in values if uuid in objects]
        if not components:
            return [obj for obj in objects.values() if obj.name in values]
        if len(values) > _MANY:
            return [
                obj
                for obj in objects.values()
                if obj.name in values or not values.isdisjoint(prefixes(obj.name))
            ]
        dotted = tuple(f"{value}." for value in values)
        return [
            obj for obj in objects.values() if obj.name in values or obj.name.startswith(dotted)
        ]

    def has_name(self, table: str, name: str) -> bool:
        """Tell whether an object of a table has exactly this name."""
        names = self._names.get(table)
        if names is None:
            names = {obj.name for obj in getattr(self.config, table).values()}
            self._names[table] = names
        return name in names

    # -- nodes and groups

    def node_name(self, uuid: str) -> str:
        """Return the name of a node, or its UUID if the node is not in the configuration."""
        node = self.config.nodes.get(uuid)
        return uuid if node is None else node.name

    def group_of(self, node_uuid: str) -> NodeGroup | None:
        """Return the group of a node, or None."""
        node = self.config.nodes.get(node_uuid)
        return None if node is None else self.config.nodegroups.get(node.group)

    def filled_nd(self, node: Node) -> dict[str, Any]:
        """Return all parameters of a node."""
        filled = self._nd.get(node.uuid)
        if filled is None:
            group = self.config.nodegroups.get(node.group)
            filled = self._nd[node.uuid] = object_fill.fill_nd(self.cluster, group, node)
        return filled

    @cached_property
    def nodes_of_group(self) -> dict[str, list[Node]]:
        """The nodes of each group, sorted by name, by UUID of the group."""
        found: dict[str, list[Node]] = {}
        for node in by_name(self.config.nodes.values()):
            found.setdefault(node.group, []).append(node)
        return found

    # -- instances

    def primaries(self, node: Node) -> list[Instance]:
        """Return the instances of which a node is primary, in no order.

        To sort all instances of a large cluster takes longer than a list of one node.
        """
        return self._members_of(node)[0]

    def secondaries(self, node: Node) -> list[Instance]:
        """Return the instances of which a node is secondary, in no order."""
        return self._members_of(node)[1]

    def _members_of(self, node: Node) -> tuple[list[Instance], list[Instance]]:
        found = self._members.get(node.uuid)
        if found is None:
            found = self._members[node.uuid] = instances_of_node(self.config, node.uuid)
        return found

    def disks(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance in order, without those not in the configuration."""
        disks = self.config.disks
        return [disks[uuid] for uuid in instance.disks if uuid in disks]

    def secondary_nodes(self, instance: Instance) -> tuple[str, ...]:
        """Return the UUIDs of the secondary nodes of an instance."""
        return object_fill.secondary_nodes(instance, self.disks(instance))

    def filled_hv(self, instance: Instance) -> dict[str, Any]:
        """Return the hypervisor parameters of an instance, without those of the cluster only."""
        filled = self._hv.get(instance.uuid)
        if filled is None:
            filled = self._hv[instance.uuid] = object_fill.instance_hv(
                self.cluster, instance, skip_globals=True
            )
        return filled

    def filled_be(self, instance: Instance) -> dict[str, Any]:
        """Return the backend parameters of an instance."""
        filled = self._be.get(instance.uuid)
        if filled is None:
            filled = self._be[instance.uuid] = object_fill.fill_be(self.cluster, instance.beparams)
        return filled

    def filled_nics(self, instance: Instance) -> list[dict[str, Any]]:
        """Return the parameters of the NICs of an instance."""
        filled = self._nics.get(instance.uuid)
        if filled is None:
            filled = self._nics[instance.uuid] = [
                object_fill.fill_nic(self.cluster, nic.nicparams) for nic in instance.nics
            ]
        return filled

    def network_name(self, uuid: str | None) -> str | None:
        """Return the name of a network, or None."""
        network = self.config.networks.get(uuid) if uuid else None
        return None if network is None else network.name

    @cached_property
    def cluster_addresses(self) -> dict[str, str]:
        """The addresses of the cluster and its nodes, each with its owner, for people."""
        return addresses.of_cluster(self.config)

    @cached_property
    def instances_of_network(self) -> dict[str, list[Instance]]:
        """The instances with a NIC in each network, sorted by name, by UUID of the network."""
        found: dict[str, list[Instance]] = {}
        for instance in by_name(self.config.instances.values()):
            for uuid in dict.fromkeys(nic.network for nic in instance.nics if nic.network):
                found.setdefault(uuid, []).append(instance)
        return found
