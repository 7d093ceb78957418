"""The operations of a transaction on disks.

A disk belongs to at most one instance. The operations also keep the record of replicas: which node
has an outdated replica, and which one may never run alone (``doc/design-data-safety.rst``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ganeti import errors
from ganeti.config.draft import Draft
from ganeti.config.index import values_of
from ganeti.config.index_keys import MINOR
from ganeti.objects import Disk, Instance


class DiskChanges:
    """Changes of disks."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def mark_outdated(self, uuid: str, node_uuid: str) -> None:
        """Record that the replica of a mirrored disk on one of its nodes misses writes from now on.

        The time of an earlier record about the same node stays.
        """
        disk = self._draft.get("disks", uuid)
        if node_uuid not in disk.all_node_uuids():
            raise errors.ConfigurationError(
                f"disk {uuid}: node {node_uuid} has no replica of it, which could miss writes"
            )
        if disk.outdated_node == node_uuid and disk.in_sync_at is None and disk.never_alone is None:
            return
        since = disk.outdated_since if disk.outdated_node == node_uuid else None
        self._draft.amend(
            disk,
            outdated_node=node_uuid,
            outdated_since=self._draft.now if since is None else since,
            in_sync_at=None,
            never_alone=None,
        )

    def mark_in_sync(self, uuid: str) -> None:
        """Record that both replicas of an inactive mirrored disk were found equal."""
        disk = self._draft.get("disks", uuid)
        self._draft.amend(
            disk,
            outdated_node=None,
            outdated_since=None,
            in_sync_at=self._draft.now,
            never_alone=None,
        )

    def forget_in_sync(self, uuid: str) -> None:
        """Record that a mirrored disk may be written to, so that its replicas may differ soon."""
        disk = self._draft.get("disks", uuid)
        if disk.in_sync_at is not None:
            self._draft.amend(disk, in_sync_at=None)

    def mark_never_alone(self, uuid: str, node_uuid: str, serial_no: int) -> None:
        """Record on which node a mirrored disk is writable and confirms no write alone.

        The serial number of the disk stays, so that a job which changes the disk meanwhile goes on.

        :param serial_no: that of the disk when it was not known yet to miss writes; when it has
            changed, nothing is recorded.
        """
        disk = self._draft.get("disks", uuid)
        if disk.serial_no != serial_no or (disk.outdated_node, disk.in_sync_at) != (None, None):
            return
        if node_uuid not in disk.all_node_uuids():
            raise errors.ConfigurationError(f"disk {uuid}: node {node_uuid} has no replica of it")
        self._draft.put(dataclasses.replace(disk, never_alone=node_uuid))

    def forget_never_alone(self, uuid: str) -> None:
        """Record that a mirrored disk may confirm writes alone from now on."""
        disk = self._draft.get("disks", uuid)
        if disk.never_alone is not None:
            self._draft.put(dataclasses.replace(disk, never_alone=None))

    def conclude_outdated(self, uuid: str, node_uuid: str) -> bool:
        """Record that a dead node, on which a disk was never written to alone, is left behind.

        :returns: False when the record of the disk is another one by now; then nothing is changed.
        """
        if self._draft.get("disks", uuid).never_alone != node_uuid:
            return False
        self.mark_outdated(uuid, node_uuid)
        return True

    def resume(self, uuid: str, node_uuid: str) -> bool:
        """Record that the I/O of a disk is resumed without its peer, which misses writes then.

        :returns: False when it may not, because its node is marked offline, or its own replica is
            the one which misses writes; then nothing is changed.
        """
        disk = self._draft.get("disks", uuid)
        if self._draft.get("nodes", node_uuid).offline or disk.outdated_node == node_uuid:
            return False
        (other,) = disk.secondary_nodes(node_uuid)
        self.mark_outdated(uuid, other)
        return True

    def forget_outdated(self, uuid: str) -> None:
        """Record that no replica of a mirrored disk is known to have missed writes any more."""
        disk = self._draft.get("disks", uuid)
        if disk.outdated_node is not None:
            self._draft.amend(disk, outdated_node=None, outdated_since=None)

    def add(self, instance_uuid: str, disk: Disk, index: int = -1) -> None:
        """Add a disk to an instance.

        :param index: index of the disk; -1 stands for after the last one.
        """
        instance = self._draft.get("instances", instance_uuid)
        place = len(instance.disks) if index == -1 else index
        if not 0 <= place <= len(instance.disks):
            raise errors.ConfigurationError(
                f"instance {instance.name}: a disk cannot have index {index}"
            )
        add_disk(self._draft, disk, f"instance {instance.name}")
        uuids = (*instance.disks[:place], disk.uuid, *instance.disks[place:])
        self._set_disks(instance, uuids)

    def remove(self, instance_uuid: str, disk_uuid: str) -> None:
        """Remove a disk from an instance and from the configuration."""
        instance = self._draft.get("instances", instance_uuid)
        if disk_uuid not in instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: disk {disk_uuid} is not one of its disks"
            )
        drop_disk(self._draft, disk_uuid)
        self._set_disks(instance, tuple(uuid for uuid in instance.disks if uuid != disk_uuid))

    def detach(self, instance_uuid: str, disk_uuid: str) -> None:
        """Detach a disk from its instance; it stays in the configuration."""
        instance = self._draft.get("instances", instance_uuid)
        if disk_uuid not in instance.disks:
            raise errors.ConfigurationError(
                f"instance {instance.name}: disk {disk_uuid} is not one of its disks"
            )
        disk = self._draft.get("disks", disk_uuid)
        self._draft.amend(disk, iv_name="")
        self._set_disks(instance, tuple(uuid for uuid in instance.disks if uuid != disk_uuid))

    def attach(self, instance_uuid: str, disk_uuid: str, index: int = -1) -> None:
        """Attach a detached disk to an instance.

        :param index: index of the disk; -1 stands for after the last one.
        """
        instance = self._draft.get("instances", instance_uuid)
        self._draft.get("disks", disk_uuid)
        for other in self._draft.table("instances").values():
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

    def add_detached(self, disk: Disk) -> None:
        """Add a detached disk."""
        add_disk(self._draft, disk, f"disk {disk.uuid}")

    def remove_detached(self, disk_uuid: str) -> None:
        """Remove a detached disk from the configuration."""
        for instance in self._draft.table("instances").values():
            if disk_uuid in instance.disks:
                raise errors.ConfigurationError(
                    f"disk {disk_uuid} belongs to instance {instance.name}"
                )
        drop_disk(self._draft, disk_uuid)

    def replace(self, instance_uuid: str, disk_uuids: Collection[str]) -> None:
        """Replace the disks of an instance by detached ones; its old disks become detached."""
        instance = self._draft.get("instances", instance_uuid)
        for uuid in disk_uuids:
            self._draft.get("disks", uuid)
        for uuid in instance.disks:
            if uuid not in disk_uuids:
                self._draft.amend(self._draft.get("disks", uuid), iv_name="")
        self._set_disks(instance, tuple(disk_uuids))

    def update(self, disk: Disk) -> None:
        """Replace a disk by a changed one.

        What is recorded about its replicas is forgotten when it gets another ``logical_id``, and
        with it other nodes, another peer, or another type.
        """
        for uuid in disk.nodes:
            self._draft.require("nodes", uuid, f"disk {disk.uuid}")
        present = self._draft.get("disks", disk.uuid)
        disk = dataclasses.replace(disk, never_alone=present.never_alone)
        if disk.logical_id != present.logical_id:
            disk = dataclasses.replace(
                disk, outdated_node=None, outdated_since=None, in_sync_at=None, never_alone=None
            )
        self._draft.replace(present, disk)

    def _set_disks(self, instance: Instance, uuids: tuple[str, ...]) -> None:
        # The name of every disk contains its index.
        for place, uuid in enumerate(uuids):
            disk = self._draft.get("disks", uuid)
            if disk.iv_name != f"disk/{place}":
                self._draft.amend(disk, iv_name=f"disk/{place}")
        self._draft.amend(instance, disks=uuids)


def add_disk(draft: Draft, disk: Disk, what: str) -> None:
    """Add a disk whose nodes exist and whose minors are free.

    :param what: the object to which it belongs, for messages.
    """
    for uuid in disk.nodes:
        draft.require("nodes", uuid, f"{what}, disk {disk.uuid}")
    for kind, value in values_of("disks", disk):
        if kind == MINOR and draft.has_other(kind, value, disk.uuid, None):
            raise errors.ConfigurationError(
                f"{what}, disk {disk.uuid}: DRBD minor {value[1]} is already in use on node "
                f"{value[0]}"
            )
    draft.add(disk)


def drop_disk(draft: Draft, uuid: str) -> None:
    """Remove a disk; its ports return to the pool."""
    for device in draft.drop("disks", uuid).walk():
        if device.has_replicas:
            draft.release_port(device.drbd_id.port)
