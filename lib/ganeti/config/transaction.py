"""Transactions: the operations which change the configuration.

A transaction begins with a state, collects changes and ends with a new state. Readers do not see
the states in between; an exception discards all changes. Every operation checks the references and
the values which must be unique, so that no caller can make the configuration inconsistent.

A caller changes an object by passing a new one, which it made from the present one. If another
transaction has changed the present object meanwhile, which the serial number shows, the operation
is refused instead of overwriting the other change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from ganeti import errors
from ganeti.config import ports
from ganeti.config.index import Index, addresses, values_of
from ganeti.config.index_keys import INSTANCE_NAME, IP, MAC, MINOR, NAMES, PORT
from ganeti.config.recent import RecentChanges
from ganeti.config.reservations import Reservations
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as instance_const
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    FilterRule,
    Instance,
    KeptDocument,
    Network,
    Node,
    NodeGroup,
    updated,
)
from ganeti.objects.address_pool import AddressPool

ObjectT = TypeVar("ObjectT", Node, NodeGroup, Instance, Network, Disk)

KINDS: Final = ("nodes", "nodegroups", "instances", "networks", "disks", "filters", "documents")
#: Kinds which other versions do not have: the file has their table only when there are objects.
OWN_KINDS: Final = frozenset({"documents"})
_LABELS: Final = {
    "nodes": "node",
    "nodegroups": "node group",
    "instances": "instance",
    "networks": "network",
    "disks": "disk",
    "filters": "filter rule",
    "documents": "document",
}
_KIND_OF: Final[dict[type, str]] = {
    Node: "nodes",
    NodeGroup: "nodegroups",
    Instance: "instances",
    Network: "networks",
    Disk: "disks",
    FilterRule: "filters",
    KeptDocument: "documents",
}

# Stands in the set of changed keys for the cluster object.
CLUSTER: Final = ("cluster", "")


class Transaction:
    """Changes of one state of the configuration; used by one thread.

    :param base: the state with which the transaction begins.
    :param index: the index of ``base``; each operation updates it.
    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self, base: ConfigData, index: Index, reservations: Reservations, now: Callable[[], float]
    ) -> None:
        self._base = base
        self._index = index
        # All updates of the index: kind, UUID, the old and the new object.
        self._indexed: list[tuple[str, str, Any, Any]] = []
        self._reservations = reservations
        self.now = now()
        self._tables: dict[str, dict[str, Any]] = {}
        self._cluster = base.cluster
        self._data: ConfigData | None = base
        self.changed: set[tuple[str, str]] = set()
        #: What the states before this one have changed.
        self.recent = RecentChanges()

    @property
    def base_serial(self) -> int:
        """Serial number of the state with which the transaction begins."""
        return self._base.serial_no

    def changed_since(self, serial_no: int) -> frozenset[tuple[str, str]] | None:
        """Return what may differ between an earlier state and :attr:`data`, by kind and UUID.

        :returns: None when that is not known.
        """
        before = self.recent.between(serial_no, self._base.serial_no)
        return None if before is None else before | self.changed

    @property
    def data(self) -> ConfigData:
        """The state with all changes made so far."""
        if self._data is None:
            tables: Any = {kind: dict(table) for kind, table in self._tables.items()}
            self._data = dataclasses.replace(self._base, cluster=self._cluster, **tables)
        return self._data

    def finish(self) -> ConfigData:
        """Return the new state, with the next serial number and the time of the transaction."""
        tables: Any = self._tables
        return dataclasses.replace(
            self._base,
            cluster=self._cluster,
            serial_no=self._base.serial_no + 1,
            mtime=self.now,
            **tables,
        )

    def abandon(self) -> None:
        """Discard the changes: restore the index of the base."""
        for kind, uuid, old, new in reversed(self._indexed):
            self._index.replace(kind, uuid, new, old)
        self._indexed.clear()

    # -- instances ----------------------------------------------------------------------------

    def add_instance(self, instance: Instance, disks: Collection[Disk], ec_id: str) -> None:
        """Add an instance together with its disks.

        :param ec_id: the execution which may have reserved name and addresses.
        :raises ConfigurationError: name, UUID or an address is in use, a node or network is
            unknown, or the disks are not those which the instance names.
        """
        what = f"instance {instance.name}"
        if instance.disks != tuple(disk.uuid for disk in disks):
            raise errors.ConfigurationError(
                f"{what}: the disks do not agree with its list of disks"
            )
        self._require("nodes", instance.primary_node, what)
        self._check_name("instances", instance.name, instance.uuid)
        if self._reservations.held_by_others(INSTANCE_NAME, instance.name, ec_id):
            raise errors.ReservationError(f"{what} is being added by another operation")
        self._check_nics(instance, ec_id)
        self._add(self._dated(instance))
        self._settle_addresses(None, instance)
        for disk in disks:
            self._add_disk(disk, what)

    def remove_instance(self, uuid: str) -> None:
        """Remove an instance with its disks; its port returns to the pool."""
        instance = self._get("instances", uuid)
        for disk_uuid in instance.disks:
            self._release_ports(self._drop("disks", disk_uuid))
        if instance.network_port is not None:
            self.release_port(instance.network_port)
        self._drop("instances", uuid)
        self._settle_addresses(instance, None)

    def commit_instance(self, instance: Instance, disks: Collection[Disk], ec_id: str) -> None:
        """Replace a forthcoming instance by a real one with its disks.

        :param instance: has the UUID and the serial number of the forthcoming one.
        :param disks: disks of the forthcoming instance which are not among them are removed.
        :raises ConfigurationError: the instance is not forthcoming, and as for
            :meth:`add_instance`.
        """
        what = f"instance {instance.name}"
        present = self._get("instances", instance.uuid)
        if not present.forthcoming:
            raise errors.ConfigurationError(f"{what} is not forthcoming")
        if instance.disks != tuple(disk.uuid for disk in disks):
            raise errors.ConfigurationError(
                f"{what}: the disks do not agree with its list of disks"
            )
        self._require("nodes", instance.primary_node, what)
        self._check_name("instances", instance.name, instance.uuid)
        self._check_nics(instance, ec_id)
        for uuid in present.disks:
            if uuid not in instance.disks:
                self._release_ports(self._drop("disks", uuid))
        if present.network_port not in (None, instance.network_port):
            self.release_port(present.network_port)
        for disk in disks:
            if disk.uuid in present.disks:
                self._replace(self._get("disks", disk.uuid), disk)
            else:
                self._add_disk(disk, what)
        self._replace(present, instance)
        self._settle_addresses(present, instance)

    def reserve_instance(self, uuid: str) -> None:
        """Make an instance which does not exist on any node (any more) a forthcoming one."""
        instance = self._get("instances", uuid)
        for disk_uuid in instance.disks:
            self._put(updated(self._get("disks", disk_uuid), now=self.now, forthcoming=True))
        self._put(
            updated(
                instance,
                now=self.now,
                forthcoming=True,
                disks_active=False,
                admin_state=instance_const.ADMIN_DOWN,
            )
        )

    def update_instance(self, instance: Instance, ec_id: str | None = None) -> None:
        """Replace an instance by a changed one; its disks are changed by other operations.

        :param ec_id: the execution which may have reserved MAC and IP addresses.
        """
        present = self._get("instances", instance.uuid)
        if present.disks != instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: the list of disks cannot be changed by update_instance"
            )
        self._require("nodes", instance.primary_node, f"instance {instance.name}")
        self._check_name("instances", instance.name, instance.uuid)
        self._check_nics(instance, ec_id)
        self._replace(present, instance)
        self._settle_addresses(present, instance)

    def mark_instance(
        self, uuid: str, admin_state: str, source: str = instance_const.SOURCE_ADMIN
    ) -> None:
        """Set the wanted state of an instance: ``up``, ``down`` or ``offline``.

        :param source: who wants the state: ``admin`` or ``user``.
        :raises ConfigurationError: there is no such state or source.
        """
        instance = self._get("instances", uuid)
        if admin_state not in instance_const.ADMIN_STATES:
            raise errors.ConfigurationError(
                f"instance {instance.name}: there is no state '{admin_state}'"
            )
        if source not in instance_const.ADMIN_STATE_SOURCES:
            raise errors.ConfigurationError(
                f"instance {instance.name}: there is no source '{source}' of its state"
            )
        active = {
            instance_const.ADMIN_UP: True,
            instance_const.ADMIN_OFFLINE: False,
        }.get(admin_state, instance.disks_active)
        # An instance which somebody starts is no rest of an import any more.
        importing = None if admin_state == instance_const.ADMIN_UP else instance.importing_since
        wanted = (admin_state, source, active, importing)
        present = (instance.admin_state, instance.admin_state_source, instance.disks_active)
        if (*present, instance.importing_since) != wanted:
            self._put(
                updated(
                    instance,
                    now=self.now,
                    admin_state=admin_state,
                    admin_state_source=source,
                    disks_active=active,
                    importing_since=importing,
                )
            )

    def set_disks_active(self, uuid: str, active: bool) -> None:
        """Set whether the watcher keeps the disks of an instance active."""
        instance = self._get("instances", uuid)
        if instance.disks_active != active:
            self._put(updated(instance, now=self.now, disks_active=active))

    def set_instance_primary(self, uuid: str, node_uuid: str) -> None:
        """Set the primary node of an instance; disks on a single node get that node, too."""
        instance = self._get("instances", uuid)
        self._require("nodes", node_uuid, f"instance {instance.name}")
        if instance.primary_node == node_uuid:
            return
        for disk_uuid in instance.disks:
            disk = self._get("disks", disk_uuid)
            if disk.nodes == (instance.primary_node,):
                self._put(updated(disk, now=self.now, nodes=(node_uuid,)))
        self._put(updated(instance, now=self.now, primary_node=node_uuid))

    # -- disks --------------------------------------------------------------------------------

    def mark_outdated(self, uuid: str, node_uuid: str) -> None:
        """Record that the replica of a mirrored disk on one of its nodes misses writes from now on.

        The time of an earlier record about the same node stays.
        """
        disk = self._get("disks", uuid)
        if node_uuid not in disk.all_node_uuids():
            raise errors.ConfigurationError(
                f"disk {uuid}: node {node_uuid} has no replica of it, which could miss writes"
            )
        if disk.outdated_node == node_uuid and disk.in_sync_at is None and disk.never_alone is None:
            return
        since = disk.outdated_since if disk.outdated_node == node_uuid else None
        self._put(
            updated(
                disk,
                now=self.now,
                outdated_node=node_uuid,
                outdated_since=self.now if since is None else since,
                in_sync_at=None,
                never_alone=None,
            )
        )

    def mark_in_sync(self, uuid: str) -> None:
        """Record that both replicas of an inactive mirrored disk were found equal."""
        disk = self._get("disks", uuid)
        self._put(
            updated(
                disk,
                now=self.now,
                outdated_node=None,
                outdated_since=None,
                in_sync_at=self.now,
                never_alone=None,
            )
        )

    def forget_in_sync(self, uuid: str) -> None:
        """Record that a mirrored disk may be written to, so that its replicas may differ soon."""
        disk = self._get("disks", uuid)
        if disk.in_sync_at is not None:
            self._put(updated(disk, now=self.now, in_sync_at=None))

    def mark_never_alone(self, uuid: str, node_uuid: str, serial_no: int) -> None:
        """Record on which node a mirrored disk is writable and confirms no write alone.

        The serial number of the disk stays, so that a job which changes the disk meanwhile goes on.

        :param serial_no: that of the disk when it was not known yet to miss writes; when it has
            changed, nothing is recorded.
        """
        disk = self._get("disks", uuid)
        if disk.serial_no != serial_no or (disk.outdated_node, disk.in_sync_at) != (None, None):
            return
        if node_uuid not in disk.all_node_uuids():
            raise errors.ConfigurationError(f"disk {uuid}: node {node_uuid} has no replica of it")
        self._put(dataclasses.replace(disk, never_alone=node_uuid))

    def forget_never_alone(self, uuid: str) -> None:
        """Record that a mirrored disk may confirm writes alone from now on."""
        disk = self._get("disks", uuid)
        if disk.never_alone is not None:
            self._put(dataclasses.replace(disk, never_alone=None))

    def conclude_outdated(self, uuid: str, node_uuid: str) -> bool:
        """Record that a dead node, on which a disk was never written to alone, is left behind.

        :returns: False when the record of the disk is another one by now; then nothing is changed.
        """
        if self._get("disks", uuid).never_alone != node_uuid:
            return False
        self.mark_outdated(uuid, node_uuid)
        return True

    def let_go_on(self, uuid: str, node_uuid: str) -> bool:
        """Record that a writable disk goes on without its peer, whose replica misses writes then.

        :returns: False when it may not, because its node is marked offline, or its own replica is
            the one which misses writes; then nothing is changed.
        """
        disk = self._get("disks", uuid)
        if self._get("nodes", node_uuid).offline or disk.outdated_node == node_uuid:
            return False
        (other,) = disk.secondary_nodes(node_uuid)
        self.mark_outdated(uuid, other)
        return True

    def forget_outdated(self, uuid: str) -> None:
        """Record that no replica of a mirrored disk is known to have missed writes any more."""
        disk = self._get("disks", uuid)
        if disk.outdated_node is not None:
            self._put(updated(disk, now=self.now, outdated_node=None, outdated_since=None))

    def add_disk(self, instance_uuid: str, disk: Disk, index: int = -1) -> None:
        """Add a disk to an instance.

        :param index: index of the disk; -1 stands for after the last one.
        """
        instance = self._get("instances", instance_uuid)
        place = len(instance.disks) if index == -1 else index
        if not 0 <= place <= len(instance.disks):
            raise errors.ConfigurationError(
                f"instance {instance.name}: a disk cannot have index {index}"
            )
        self._add_disk(disk, f"instance {instance.name}")
        uuids = (*instance.disks[:place], disk.uuid, *instance.disks[place:])
        self._set_disks(instance, uuids)

    def remove_disk(self, instance_uuid: str, disk_uuid: str) -> None:
        """Remove a disk from an instance and from the configuration."""
        instance = self._get("instances", instance_uuid)
        if disk_uuid not in instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: disk {disk_uuid} is not one of its disks"
            )
        self._release_ports(self._drop("disks", disk_uuid))
        self._set_disks(instance, tuple(uuid for uuid in instance.disks if uuid != disk_uuid))

    def detach_disk(self, instance_uuid: str, disk_uuid: str) -> None:
        """Detach a disk from its instance; it stays in the configuration."""
        instance = self._get("instances", instance_uuid)
        if disk_uuid not in instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: disk {disk_uuid} is not one of its disks"
            )
        disk = self._get("disks", disk_uuid)
        self._put(updated(disk, now=self.now, iv_name=""))
        self._set_disks(instance, tuple(uuid for uuid in instance.disks if uuid != disk_uuid))

    def attach_disk(self, instance_uuid: str, disk_uuid: str, index: int = -1) -> None:
        """Attach a detached disk to an instance.

        :param index: index of the disk; -1 stands for after the last one.
        """
        instance = self._get("instances", instance_uuid)
        self._get("disks", disk_uuid)
        for other in self._table("instances").values():
            if disk_uuid in other.disks:
                raise errors.ConfigurationError(
                    f"disk {disk_uuid} belongs to instance {other.name}"
                )
        place = len(instance.disks) if index == -1 else index
        if not 0 <= place <= len(instance.disks):
            raise errors.ConfigurationError(
                f"instance {instance.name}: a disk cannot have index {index}"
            )
        self._set_disks(instance, (*instance.disks[:place], disk_uuid, *instance.disks[place:]))

    def add_detached_disk(self, disk: Disk) -> None:
        """Add a detached disk."""
        self._add_disk(disk, f"disk {disk.uuid}")

    def remove_detached_disk(self, disk_uuid: str) -> None:
        """Remove a detached disk from the configuration."""
        for instance in self._table("instances").values():
            if disk_uuid in instance.disks:
                raise errors.ConfigurationError(
                    f"disk {disk_uuid} belongs to instance {instance.name}"
                )
        self._release_ports(self._drop("disks", disk_uuid))

    def replace_disks(self, instance_uuid: str, disk_uuids: Collection[str]) -> None:
        """Replace the disks of an instance by detached ones; its old disks become detached."""
        instance = self._get("instances", instance_uuid)
        for uuid in disk_uuids:
            self._get("disks", uuid)
        for uuid in instance.disks:
            if uuid not in disk_uuids:
                self._put(updated(self._get("disks", uuid), now=self.now, iv_name=""))
        self._set_disks(instance, tuple(disk_uuids))

    def update_disk(self, disk: Disk) -> None:
        """Replace a disk by a changed one.

        What is recorded about its replicas is forgotten when it gets another ``logical_id``, and
        with it other nodes, another peer, or another type.
        """
        for uuid in disk.nodes:
            self._require("nodes", uuid, f"disk {disk.uuid}")
        present = self._get("disks", disk.uuid)
        disk = dataclasses.replace(disk, never_alone=present.never_alone)
        if disk.logical_id != present.logical_id:
            disk = dataclasses.replace(
                disk, outdated_node=None, outdated_since=None, in_sync_at=None, never_alone=None
            )
        self._replace(present, disk)

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
            _successor(self._cluster, cluster, f"cluster {cluster.cluster_name}", self.now)
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

    def allocate_port(self) -> int:
        """Take a TCP port from the pool of the cluster and return it.

        :raises ConfigurationError: all ports are in use.
        """
        reserved = self._reservations.taken(PORT)
        for port in ports.free(self._cluster):
            if port not in reserved:
                self._take_port(port)
                return port
        raise ports.none_is_free()

    def _take_port(self, port: int) -> None:
        changed = ports.without(
            self._cluster, port, lambda one: self._index.has(PORT, one), self.now
        )
        if changed is not self._cluster:
            self._set_cluster(changed)

    def release_port(self, port: int) -> None:
        """Return a TCP port to the pool."""
        if port not in self._cluster.tcpudp_port_pool:
            pool = tuple(sorted((*self._cluster.tcpudp_port_pool, port)))
            self._set_cluster(updated(self._cluster, now=self.now, tcpudp_port_pool=pool))

    # -- helpers ------------------------------------------------------------------------------

    def _table(self, kind: str) -> dict[str, Any]:
        """Return the present objects of a kind. The caller must not change the dictionary."""
        table = self._tables.get(kind)
        found: dict[str, Any] = getattr(self._base, kind) if table is None else table
        return found

    def _writable(self, kind: str) -> dict[str, Any]:
        table = self._tables.get(kind)
        if table is None:
            # One copy for each transaction and kind, because others read the base.
            table = self._tables[kind] = dict(getattr(self._base, kind))
        return table

    def _put(self, obj: Any) -> None:
        kind = _KIND_OF[type(obj)]
        present = self._table(kind).get(obj.uuid)
        self._note(kind, obj.uuid, present, obj)
        self._writable(kind)[obj.uuid] = obj
        for what, value in values_of(kind, obj):
            if what == PORT and (present is None or (what, value) not in values_of(kind, present)):
                self._take_port(value)

    def _drop(self, kind: str, uuid: str) -> Any:
        obj = self._get(kind, uuid)
        self._note(kind, uuid, obj, None)
        del self._writable(kind)[uuid]
        return obj

    def _note(self, kind: str, uuid: str, old: Any, new: Any) -> None:
        self._index.replace(kind, uuid, old, new)
        self._indexed.append((kind, uuid, old, new))
        self.changed.add((kind, uuid))
        self._data = None

    def _set_cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.changed.add(CLUSTER)
        self._data = None

    def _get(self, kind: str, uuid: str) -> Any:
        obj = self._table(kind).get(uuid)
        if obj is None:
            raise errors.ConfigurationError(f"{_LABELS[kind]} {uuid} is not in the configuration")
        return obj

    def _require(self, kind: str, uuid: str, what: str) -> None:
        if uuid not in self._table(kind):
            raise errors.ConfigurationError(
                f"{what}: {_LABELS[kind]} {uuid} is not in the configuration"
            )

    def _dated(self, obj: ObjectT) -> ObjectT:
        """Return a new object with its first serial number and its times."""
        return dataclasses.replace(obj, serial_no=1, ctime=obj.ctime or self.now, mtime=self.now)

    def _add(self, obj: Any) -> None:
        if not obj.uuid:
            raise errors.ConfigurationError(f"{_LABELS[_KIND_OF[type(obj)]]} has no uuid")
        for kind in KINDS:
            if obj.uuid in self._table(kind):
                raise errors.ConfigurationError(
                    f"uuid {obj.uuid} is already in use by this kind of object: {_LABELS[kind]}"
                )
        self._put(obj)

    def _replace(self, present: Any, obj: Any) -> None:
        name = getattr(obj, "name", None) or obj.uuid
        self._put(_successor(present, obj, f"{_LABELS[_KIND_OF[type(obj)]]} {name}", self.now))

    def _check_name(self, kind: str, name: str, uuid: str) -> None:
        if not name:
            raise errors.ConfigurationError(f"{_LABELS[kind]} {uuid} has no name")
        # A changed object mostly keeps its name; then no other object can have it.
        present = self._table(kind).get(uuid)
        if present is not None and present.name == name:
            return
        for owner in self._index.owners(NAMES[kind], name):
            if owner != uuid:
                raise errors.ConfigurationError(f"{_LABELS[kind]} {name} exists already")

    def _check_nics(self, instance: Instance, ec_id: str | None) -> None:
        what = f"instance {instance.name}"
        present = self._table("instances").get(instance.uuid)
        if present is not None and present.nics == instance.nics:
            return
        for nic in instance.nics:
            if nic.network is not None:
                self._require("networks", nic.network, what)
        mine = [nic.mac.lower() for nic in instance.nics]
        for mac in mine:
            if mine.count(mac) > 1 or self._has_other(MAC, mac, instance.uuid, ec_id):
                raise errors.ConfigurationError(f"{what}: MAC address {mac} is already in use")
        taken = addresses(instance)
        for address in taken:
            if taken.count(address) > 1 or self._has_other(IP, address, instance.uuid, ec_id):
                raise errors.ConfigurationError(
                    f"{what}: IP address {address[1]} is already in use"
                )

    def _has_other(self, kind: str, value: Any, uuid: str, ec_id: str | None) -> bool:
        """Tell whether another object or another execution has a value."""
        return any(owner != uuid for owner in self._index.owners(kind, value)) or (
            ec_id is not None and self._reservations.held_by_others(kind, value, ec_id)
        )

    def _settle_addresses(self, old: Instance | None, new: Instance | None) -> None:
        """Mark the addresses of the NICs of an instance in the pools of their networks."""
        before = set() if old is None else set(addresses(old))
        after = set() if new is None else set(addresses(new))
        for uuid in sorted({network for network, _address in before ^ after}):
            network = self._table("networks").get(uuid)
            if network is None:
                continue
            pool = AddressPool(network)
            # Several NICs may have an address by an old error; it is free after the last one.
            gone = [
                address
                for other, address in before - after
                if other == uuid and address in pool and not self._index.has(IP, (uuid, address))
            ]
            taken = AddressPool(pool.released(gone)).taken(
                address for other, address in after - before if other == uuid
            )
            if taken != network:
                self._put(updated(taken, now=self.now))

    def _check_networks(self, group: NodeGroup) -> None:
        for uuid in group.networks:
            self._require("networks", uuid, f"node group {group.name}")

    def _add_disk(self, disk: Disk, what: str) -> None:
        for uuid in disk.nodes:
            self._require("nodes", uuid, f"{what}, disk {disk.uuid}")
        for kind, value in values_of("disks", disk):
            if kind == MINOR and self._has_other(kind, value, disk.uuid, None):
                raise errors.ConfigurationError(
                    f"{what}, disk {disk.uuid}: DRBD minor {value[1]} is already in use on node "
                    f"{value[0]}"
                )
        self._add(self._dated(disk))

    def _set_disks(self, instance: Instance, uuids: tuple[str, ...]) -> None:
        # The name of every disk contains its index.
        for place, uuid in enumerate(uuids):
            disk = self._get("disks", uuid)
            if disk.iv_name != f"disk/{place}":
                self._put(updated(disk, now=self.now, iv_name=f"disk/{place}"))
        self._put(updated(instance, now=self.now, disks=uuids))

    def _release_ports(self, disk: Disk) -> None:
        for device in _drbd_devices([disk]):
            self.release_port(device.logical_id[2])


def _drbd_devices(disks: Iterable[Disk]) -> list[Disk]:
    return [
        device for disk in disks for device in disk.walk() if device.dev_type == disk_const.DRBD8
    ]


def _successor(present: Any, obj: Any, what: str, now: float) -> Any:
    """Return the changed object as it is stored, if it was made from the present one."""
    if obj.serial_no == present.serial_no:
        return updated(obj, now=now)
    if obj.serial_no == present.serial_no + 1:
        return obj  # the caller has increased the serial number already
    raise errors.ConfigurationError(
        f"{what} was changed meanwhile: it has serial number {present.serial_no}, the change was "
        f"made for {obj.serial_no}"
    )
