"""Transactions: the operations which change the configuration.

A transaction begins with a state, collects changes and ends with a new state. Readers do not see
the states in between; an exception discards all changes. Every operation checks the references and
the values which must be unique, so that no caller can make the configuration inconsistent. The
operations on instances and disks are in :mod:`.instance_changes`; :mod:`.change` has what all of
them share.

A caller changes an object by passing a new one, which it made from the present one. If another
transaction has changed the present object meanwhile, which the serial number shows, the operation
is refused instead of overwriting the other change.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.config.change import successor
from ganeti.config.instance_changes import InstanceChanges
from ganeti.objects import (
    Cluster,
    FilterRule,
    KeptDocument,
    Network,
    Node,
    NodeGroup,
    updated,
)


class Transaction(InstanceChanges):
    """Changes of one state of the configuration; used by one thread."""

    # -- nodes, groups, networks --------------------------------------------------------------

    def add_node(self, node: Node, ec_id: str) -> None:
        """Add a node."""
        self._require("nodegroups", node.group, f"node {node.name}")
        self._check_name("nodes", node.name, node.uuid)
        self._add(self._dated(node))

    def update_node(self, node: Node) -> None:
        """Replace a node by a changed one; a former candidate loses its certificate."""
        present = self._get("nodes", node.uuid)
        self._require("nodegroups", node.group, f"node {node.name}")
        self._check_name("nodes", node.name, node.uuid)
        self._replace(present, node)
        if present.master_candidate and not node.master_candidate:
            self.set_candidate_cert(node.uuid, None)

    def remove_node(self, uuid: str) -> None:
        """Remove a node to which no object refers.

        :raises ConfigurationError: the node is the master, or has instances or disks.
        """
        node = self._get("nodes", uuid)
        if self._cluster.master_node == uuid:
            raise errors.ConfigurationError(f"node {node.name} is the master")
        for instance in self._table("instances").values():
            if instance.primary_node == uuid:
                raise errors.ConfigurationError(
                    f"node {node.name} is the primary node of instance {instance.name}"
                )
        for disk in self._table("disks").values():
            if uuid in disk.nodes or uuid in disk.all_node_uuids():
                raise errors.ConfigurationError(f"node {node.name} has disk {disk.uuid}")
        self.set_candidate_cert(uuid, None)
        self._drop("nodes", uuid)

    def add_group(self, group: NodeGroup, ec_id: str) -> None:
        """Add a node group."""
        self._check_name("nodegroups", group.name, group.uuid)
        self._check_networks(group)
        self._add(self._dated(group))

    def update_group(self, group: NodeGroup) -> None:
        """Replace a node group by a changed one."""
        present = self._get("nodegroups", group.uuid)
        self._check_name("nodegroups", group.name, group.uuid)
        self._check_networks(group)
        self._replace(present, group)

    def remove_group(self, uuid: str) -> None:
        """Remove an empty node group.

        :raises ConfigurationError: the group has nodes, or is the last one.
        """
        group = self._get("nodegroups", uuid)
        for node in self._table("nodes").values():
            if node.group == uuid:
                raise errors.ConfigurationError(f"node group {group.name} has node {node.name}")
        if len(self._table("nodegroups")) == 1:
            raise errors.ConfigurationError(f"node group {group.name} is the last one")
        self._drop("nodegroups", uuid)

    def add_network(self, network: Network, ec_id: str) -> None:
        """Add a network."""
        self._check_name("networks", network.name, network.uuid)
        self._add(self._dated(network))

    def update_network(self, network: Network) -> None:
        """Replace a network by a changed one."""
        present = self._get("networks", network.uuid)
        self._check_name("networks", network.name, network.uuid)
        self._replace(present, network)

    def remove_network(self, uuid: str) -> None:
        """Remove a network to which no group is connected and which no instance uses."""
        network = self._get("networks", uuid)
        for group in self._table("nodegroups").values():
            if uuid in group.networks:
                raise errors.ConfigurationError(
                    f"network {network.name} is connected to node group {group.name}"
                )
        for instance in self._table("instances").values():
            if any(nic.network == uuid for nic in instance.nics):
                raise errors.ConfigurationError(
                    f"network {network.name} is used by instance {instance.name}"
                )
        self._drop("networks", uuid)

    # -- filters ------------------------------------------------------------------------------

    def put_filter(self, rule: FilterRule) -> None:
        """Add a filter rule, or replace the one with the same UUID."""
        self._put(rule)

    def remove_filter(self, uuid: str) -> None:
        """Remove a filter rule."""
        self._get("filters", uuid)
        self._drop("filters", uuid)

    # -- documents ----------------------------------------------------------------------------

    def put_document(self, document: KeptDocument) -> None:
        """Add a document, or replace the one with the same UUID.

        :raises ConfigurationError: another document has its name.
        """
        for other in self._table("documents").values():
            if other.name == document.name and other.uuid != document.uuid:
                raise errors.ConfigurationError(f"document {document.name} exists already")
        self._put(document)

    def remove_document(self, uuid: str) -> None:
        """Remove a document."""
        self._drop("documents", uuid)

    # -- the cluster --------------------------------------------------------------------------

    def update_cluster(self, cluster: Cluster) -> None:
        """Replace the cluster object by a changed one."""
        self._require("nodes", cluster.master_node, f"cluster {cluster.cluster_name}")
        self._set_cluster(
            successor(self._cluster, cluster, f"cluster {cluster.cluster_name}", self.now)
        )

    def set_candidate_cert(self, node_uuid: str, digest: str | None) -> None:
        """Set the digest of the client certificate of a master candidate, or remove it (None)."""
        certs = dict(self._cluster.candidate_certs)
        if digest is None:
            if certs.pop(node_uuid, None) is None:
                return
        else:
            self._require("nodes", node_uuid, "candidate certificate")
            if certs.get(node_uuid) == digest:
                return
            certs[node_uuid] = digest
        self._set_cluster(updated(self._cluster, now=self.now, candidate_certs=certs))

    def _check_networks(self, group: NodeGroup) -> None:
        for uuid in group.networks:
            self._require("networks", uuid, f"node group {group.name}")
