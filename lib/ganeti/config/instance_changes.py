"""The operations of a transaction on instances and their disks.

A disk belongs to at most one instance. Operations on disks also keep the record of replicas: which
node has an outdated replica, and which one may never run alone (``doc/design-data-safety.rst``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from ganeti import errors
from ganeti.config.change import Change
from ganeti.config.index import addresses, values_of
from ganeti.config.index_keys import INSTANCE_NAME, IP, MAC, MINOR
from ganeti.constants import instance as instance_const
from ganeti.objects import Disk, Instance, updated
from ganeti.objects.address_pool import AddressPool


class InstanceChanges(Change):
    """Changes of instances and disks."""

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
        # An instance which somebody starts does not belong to an unfinished import any more.
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

    def resume_disk(self, uuid: str, node_uuid: str) -> bool:
        """Record that the I/O of a disk is resumed without its peer, which misses writes then.

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

    # -- helpers ------------------------------------------------------------------------------

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
            self.release_port(device.drbd_id.port)


def _drbd_devices(disks: Iterable[Disk]) -> list[Disk]:
    return [device for disk in disks for device in disk.walk() if device.has_replicas]
