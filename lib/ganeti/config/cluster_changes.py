"""The operations of a transaction on everything but instances and disks."""

from __future__ import annotations

from ganeti import errors
from ganeti.config import ports
from ganeti.config.draft import Draft, successor
from ganeti.config.index_keys import PORT
from ganeti.objects import (
    AccessRecord,
    Cluster,
    FilterRule,
    KeptDocument,
    Network,
    Node,
    NodeGroup,
    updated,
)
from ganeti.objects.address_pool import AddressPool


def _end_copied_reservations(draft: Draft, former: set[str]) -> None:
    """End what networks have reserved for addresses which nodes or the cluster had before.

    A network gets these reservations when it is added, as in the original. Addresses which still
    have an owner stay reserved, and those of isolated networks, which never got them.

    :param former: the addresses before the change.
    """
    cluster = draft.cluster
    gone = former - {cluster.master_ip}
    for node in draft.table("nodes").values() if gone else ():
        gone -= {node.primary_ip, node.secondary_ip}
    for network in list(draft.table("networks").values()) if gone else ():
        if network.isolated:
            continue
        pool = AddressPool(network)
        ended = [
            address
            for address in gone
            if address in pool
            and address not in (network.gateway, pool.address(0), pool.address(pool.size - 1))
            and pool.is_taken(address, external=True)
        ]
        if ended:
            draft.amend(pool.released(ended, external=True))


class PortChanges:
    """Changes of the TCP ports which the cluster gives to its objects."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def allocate(self) -> int:
        """Take a TCP port from the pool of the cluster and return it.

        :raises OpPrereqError: all ports are in use.
        """
        reserved = self._draft.reservations.taken(PORT)
        for port in ports.free(self._draft.cluster):
            if port not in reserved:
                self._draft.take_port(port)
                return port
        raise ports.none_is_free()

    def release(self, port: int) -> None:
        """Return a TCP port to the pool."""
        self._draft.release_port(port)


class ClusterChanges:
    """Changes of the cluster object."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def update(self, cluster: Cluster) -> None:
        """Replace the cluster object by a changed one."""
        what = f"cluster {cluster.cluster_name}"
        self._draft.require("nodes", cluster.master_node, what)
        former = self._draft.cluster.master_ip
        self._draft.set_cluster(successor(self._draft.cluster, cluster, what, self._draft.now))
        _end_copied_reservations(self._draft, {former})

    def set_candidate_cert(self, node_uuid: str, digest: str | None) -> None:
        """Set the digest of the client certificate of a master candidate, or remove it (None)."""
        cluster = self._draft.cluster
        certs = dict(cluster.candidate_certs)
        if digest is None:
            if certs.pop(node_uuid, None) is None:
                return
        else:
            self._draft.require("nodes", node_uuid, "candidate certificate")
            if certs.get(node_uuid) == digest:
                return
            certs[node_uuid] = digest
        self._draft.set_cluster(updated(cluster, now=self._draft.now, candidate_certs=certs))


class NodeChanges:
    """Changes of nodes.

    :param cluster: for the certificates of the master candidates.
    """

    def __init__(self, draft: Draft, cluster: ClusterChanges) -> None:
        self._draft = draft
        self._cluster = cluster

    def add(self, node: Node) -> None:
        """Add a node."""
        self._draft.require("nodegroups", node.group, f"node {node.name}")
        self._draft.check_name("nodes", node.name, node.uuid)
        self._draft.add(node)

    def update(self, node: Node) -> None:
        """Replace a node by a changed one; a former candidate loses its certificate."""
        present = self._draft.get("nodes", node.uuid)
        self._draft.require("nodegroups", node.group, f"node {node.name}")
        self._draft.check_name("nodes", node.name, node.uuid)
        self._draft.replace(present, node)
        if present.master_candidate and not node.master_candidate:
            self._cluster.set_candidate_cert(node.uuid, None)
        _end_copied_reservations(self._draft, {present.primary_ip, present.secondary_ip})

    def remove(self, uuid: str) -> None:
        """Remove a node to which no object refers.

        :raises ConfigurationError: the node is the master, or has instances or disks.
        """
        node = self._draft.get("nodes", uuid)
        if self._draft.cluster.master_node == uuid:
            raise errors.ConfigurationError(f"node {node.name} is the master")
        for instance in self._draft.table("instances").values():
            if instance.primary_node == uuid:
                raise errors.ConfigurationError(
                    f"node {node.name} is the primary node of instance {instance.name}"
                )
        for disk in self._draft.table("disks").values():
            if uuid in disk.nodes or uuid in disk.all_node_uuids():
                raise errors.ConfigurationError(f"node {node.name} has disk {disk.uuid}")
        self._cluster.set_candidate_cert(uuid, None)
        self._draft.drop("nodes", uuid)
        _end_copied_reservations(self._draft, {node.primary_ip, node.secondary_ip})


class GroupChanges:
    """Changes of node groups."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def add(self, group: NodeGroup) -> None:
        """Add a node group."""
        self._draft.check_name("nodegroups", group.name, group.uuid)
        self._check_networks(group)
        self._draft.add(group)

    def update(self, group: NodeGroup) -> None:
        """Replace a node group by a changed one."""
        present = self._draft.get("nodegroups", group.uuid)
        self._draft.check_name("nodegroups", group.name, group.uuid)
        self._check_networks(group)
        self._draft.replace(present, group)

    def remove(self, uuid: str) -> None:
        """Remove an empty node group.

        :raises ConfigurationError: the group has nodes, or is the last one.
        """
        group = self._draft.get("nodegroups", uuid)
        for node in self._draft.table("nodes").values():
            if node.group == uuid:
                raise errors.ConfigurationError(f"node group {group.name} has node {node.name}")
        if len(self._draft.table("nodegroups")) == 1:
            raise errors.ConfigurationError(f"node group {group.name} is the last one")
        self._draft.drop("nodegroups", uuid)

    def _check_networks(self, group: NodeGroup) -> None:
        for uuid in group.networks:
            self._draft.require("networks", uuid, f"node group {group.name}")


class NetworkChanges:
    """Changes of networks."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def add(self, network: Network) -> None:
        """Add a network."""
        self._draft.check_name("networks", network.name, network.uuid)
        self._draft.add(network)

    def update(self, network: Network) -> None:
        """Replace a network by a changed one."""
        present = self._draft.get("networks", network.uuid)
        self._draft.check_name("networks", network.name, network.uuid)
        self._draft.replace(present, network)

    def remove(self, uuid: str) -> None:
        """Remove a network to which no group is connected and which no instance uses."""
        network = self._draft.get("networks", uuid)
        for group in self._draft.table("nodegroups").values():
            if uuid in group.networks:
                raise errors.ConfigurationError(
                    f"network {network.name} is connected to node group {group.name}"
                )
        for instance in self._draft.table("instances").values():
            if any(nic.network == uuid for nic in instance.nics):
                raise errors.ConfigurationError(
                    f"network {network.name} is used by instance {instance.name}"
                )
        self._draft.drop("networks", uuid)


class FilterChanges:
    """Changes of filter rules."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def put(self, rule: FilterRule) -> None:
        """Add a filter rule, or replace the one with the same UUID."""
        self._draft.put(rule)

    def remove(self, uuid: str) -> None:
        """Remove a filter rule."""
        self._draft.drop("filters", uuid)


class DocumentChanges:
    """Changes of documents."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def put(self, document: KeptDocument) -> None:
        """Add a document, or replace the one with the same UUID.

        :raises ConfigurationError: another document has its name.
        """
        for other in self._draft.table("documents").values():
            if other.name == document.name and other.uuid != document.uuid:
                raise errors.ConfigurationError(f"document {document.name} exists already")
        self._draft.put(document)

    def remove(self, uuid: str) -> None:
        """Remove a document."""
        self._draft.drop("documents", uuid)


class AccessChanges:
    """Changes of access records."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def put(self, record: AccessRecord) -> None:
        """Add an access record, or replace the one with the same UUID."""
        self._draft.put(record)

    def remove(self, uuid: str) -> None:
        """Remove an access record."""
        self._draft.drop("access_records", uuid)
