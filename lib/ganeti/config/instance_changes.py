"""The operations of a transaction on instances."""

from __future__ import annotations

from collections.abc import Collection

from ganeti import errors
from ganeti.config.disk_changes import add_disk, drop_disk
from ganeti.config.draft import Draft
from ganeti.config.index import addresses
from ganeti.config.index_keys import INSTANCE_NAME, IP, MAC
from ganeti.constants import instance as instance_const
from ganeti.objects import Disk, Instance
from ganeti.objects.address_pool import AddressPool
from ganeti.objects.fill import connected_nics


class InstanceChanges:
    """Changes of instances."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def add(self, instance: Instance, disks: Collection[Disk], ec_id: str) -> None:
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
        self._draft.require("nodes", instance.primary_node, what)
        self._draft.check_name("instances", instance.name, instance.uuid)
        if self._draft.reservations.held_by_others(INSTANCE_NAME, instance.name, ec_id):
            raise errors.ReservationError(f"{what} is being added by another operation")
        self._check_nics(instance, ec_id)
        self._draft.add(instance)
        self._settle_addresses(None, instance)
        for disk in disks:
            add_disk(self._draft, disk, what)

    def remove(self, uuid: str) -> None:
        """Remove an instance with its disks; its port returns to the pool."""
        instance = self._draft.get("instances", uuid)
        for disk_uuid in instance.disks:
            drop_disk(self._draft, disk_uuid)
        if instance.network_port is not None:
            self._draft.release_port(instance.network_port)
        self._draft.drop("instances", uuid)
        self._settle_addresses(instance, None)

    def commit(self, instance: Instance, disks: Collection[Disk], ec_id: str) -> None:
        """Replace a forthcoming instance by a real one with its disks.

        :param instance: has the UUID and the serial number of the forthcoming one.
        :param disks: disks of the forthcoming instance which are not among them are removed.
        :raises ConfigurationError: the instance is not forthcoming, and as for :meth:`add`.
        """
        what = f"instance {instance.name}"
        present = self._draft.get("instances", instance.uuid)
        if not present.forthcoming:
            raise errors.ConfigurationError(f"{what} is not forthcoming")
        if instance.disks != tuple(disk.uuid for disk in disks):
            raise errors.ConfigurationError(
                f"{what}: the disks do not agree with its list of disks"
            )
        self._draft.require("nodes", instance.primary_node, what)
        self._draft.check_name("instances", instance.name, instance.uuid)
        self._check_nics(instance, ec_id)
        for uuid in present.disks:
            if uuid not in instance.disks:
                drop_disk(self._draft, uuid)
        if present.network_port not in (None, instance.network_port):
            self._draft.release_port(present.network_port)
        for disk in disks:
            if disk.uuid in present.disks:
                self._draft.replace(self._draft.get("disks", disk.uuid), disk)
            else:
                add_disk(self._draft, disk, what)
        self._draft.replace(present, instance)
        self._settle_addresses(present, instance)

    def reserve(self, uuid: str) -> None:
        """Make an instance which does not exist on any node (any more) a forthcoming one."""
        instance = self._draft.get("instances", uuid)
        for disk_uuid in instance.disks:
            self._draft.amend(self._draft.get("disks", disk_uuid), forthcoming=True)
        self._draft.amend(
            instance,
            forthcoming=True,
            disks_active=False,
            admin_state=instance_const.ADMIN_DOWN,
        )

    def update(self, instance: Instance, ec_id: str | None = None) -> None:
        """Replace an instance by a changed one; its disks are changed by other operations.

        :param ec_id: the execution which may have reserved MAC and IP addresses.
        """
        present = self._draft.get("instances", instance.uuid)
        if present.disks != instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: the list of disks cannot be changed by instances.update"
            )
        self._draft.require("nodes", instance.primary_node, f"instance {instance.name}")
        self._draft.check_name("instances", instance.name, instance.uuid)
        self._check_nics(instance, ec_id)
        self._draft.replace(present, instance)
        self._settle_addresses(present, instance)

    def mark(self, uuid: str, admin_state: str, source: str = instance_const.SOURCE_ADMIN) -> None:
        """Set the wanted state of an instance: ``up``, ``down`` or ``offline``.

        :param source: who wants the state: ``admin`` or ``user``.
        :raises ConfigurationError: there is no such state or source.
        """
        instance = self._draft.get("instances", uuid)
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
        # An instance which somebody starts does not belong to an unfinished import any more.
        importing = None if admin_state == instance_const.ADMIN_UP else instance.importing_since
        # The next start has all changes.
        pending = instance.pending_changes if admin_state == instance_const.ADMIN_UP else None
        wanted = (admin_state, source, active, importing, pending)
        present = (instance.admin_state, instance.admin_state_source, instance.disks_active)
        if (*present, instance.importing_since, instance.pending_changes) != wanted:
            self._draft.amend(
                instance,
                admin_state=admin_state,
                admin_state_source=source,
                disks_active=active,
                importing_since=importing,
                pending_changes=pending,
            )

    def forget_pending(self, uuid: str) -> None:
        """Record that the guest has got all changes, because it is started."""
        instance = self._draft.get("instances", uuid)
        if instance.pending_changes is not None:
            self._draft.amend(instance, pending_changes=None)

    def set_disks_active(self, uuid: str, active: bool) -> None:
        """Set whether the watcher keeps the disks of an instance active."""
        instance = self._draft.get("instances", uuid)
        if instance.disks_active != active:
            self._draft.amend(instance, disks_active=active)

    def set_primary(self, uuid: str, node_uuid: str) -> None:
        """Set the primary node of an instance; disks on a single node get that node, too.

        In another node group its NICs get the parameters of the connections of their networks.
        """
        instance = self._draft.get("instances", uuid)
        self._draft.require("nodes", node_uuid, f"instance {instance.name}")
        if instance.primary_node == node_uuid:
            return
        for disk_uuid in instance.disks:
            disk = self._draft.get("disks", disk_uuid)
            if disk.nodes == (instance.primary_node,):
                self._draft.amend(disk, nodes=(node_uuid,))
        nodes, nics = self._draft.table("nodes"), instance.nics
        old, new = nodes.get(instance.primary_node), nodes[node_uuid]
        if old is None or old.group != new.group:
            nics = connected_nics(nics, self._draft.get("nodegroups", new.group))
        self._draft.amend(instance, primary_node=node_uuid, nics=nics)

    def connect_nics(self, uuid: str) -> bool:
        """Give the NICs of an instance the parameters of the connections in its node group.

        :returns: whether one had others.
        """
        instance = self._draft.get("instances", uuid)
        node = self._draft.get("nodes", instance.primary_node)
        nics = connected_nics(instance.nics, self._draft.get("nodegroups", node.group))
        if nics == instance.nics:
            return False
        self._draft.amend(instance, nics=nics)
        return True

    def _check_nics(self, instance: Instance, ec_id: str | None) -> None:
        what = f"instance {instance.name}"
        present = self._draft.table("instances").get(instance.uuid)
        if present is not None and present.nics == instance.nics:
            return
        for nic in instance.nics:
            if nic.network is not None:
                self._draft.require("networks", nic.network, what)
        mine = [nic.mac.lower() for nic in instance.nics]
        for mac in mine:
            if mine.count(mac) > 1 or self._draft.has_other(MAC, mac, instance.uuid, ec_id):
                raise errors.ConfigurationError(f"{what}: MAC address {mac} is already in use")
        taken = addresses(instance)
        for address in taken:
            if taken.count(address) > 1 or self._draft.has_other(IP, address, instance.uuid, ec_id):
                raise errors.ConfigurationError(
                    f"{what}: IP address {address[1]} is already in use"
                )

    def _settle_addresses(self, old: Instance | None, new: Instance | None) -> None:
        """Mark the addresses of the NICs of an instance in the pools of their networks."""
        before = set() if old is None else set(addresses(old))
        after = set() if new is None else set(addresses(new))
        for uuid in sorted({network for network, _address in before ^ after}):
            network = self._draft.table("networks").get(uuid)
            if network is None:
                continue
            pool = AddressPool(network)
            # Several NICs may have an address by an old error; it is free after the last one.
            gone = [
                address
                for other, address in before - after
                if other == uuid and address in pool and not self._draft.has(IP, (uuid, address))
            ]
            # IPv6 addresses are not marked.
            taken = AddressPool(pool.released(gone)).taken(
                address for other, address in after - before if other == uuid and ":" not in address
            )
            if taken != network:
                self._draft.amend(taken)
