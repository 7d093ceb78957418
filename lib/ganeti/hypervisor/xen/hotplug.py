"""Devices of a running guest: disks and NICs which are plugged in and out.

The record of the guest is changed with each device, so that a reboot gives the guest what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import adoption, config, nics, record, xl
from ganeti.hypervisor.xen import disks as block_devices
from ganeti.hypervisor.xen.guests import XenGuests
from ganeti.hypervisor.xen.parse import Domain
from ganeti.hypervisor.xen.record import Record, RecordedDisk, RecordedNic
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic


class XenHotplug(XenGuests):
    """The operations which change the devices of a running guest."""

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Check that the guest runs, has a record, and knows the devices of Xen.

        :raises HotplugError: its devices cannot be changed.
        """
        with self._locked(instance.name):
            self._changeable(instance)

    def hot_add(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Plug a device into the running guest.

        :raises HotplugError: it is not plugged in.
        """
        with self._locked(instance.name):
            domain, known = self._changeable(instance)
            if isinstance(device, Disk):
                self._add_disk(domain, known, device, str((extra or [""])[0]), seq)
            else:
                self._add_nic(domain, known, device, seq, record.free_devid(known))

    def hot_remove(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Unplug a device from the running guest; one that the guest lacks is not an error.

        :raises HotplugError: it is still plugged in.
        """
        with self._locked(instance.name):
            domain, known = self._changeable(instance)
            if isinstance(device, Disk):
                self._remove_disk(domain, known, device)
            else:
                self._remove_nic(domain, known, device)

    def hot_modify(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Replace a NIC by a changed one with the same number.

        :raises HotplugError: the guest has the old one, or none when the message says so.
        """
        if isinstance(device, Disk):
            raise errors.HotplugError(
                f"disk {device.uuid}: a disk cannot be modified while the guest runs"
            )
        with self._locked(instance.name):
            domain, known = self._changeable(instance)
            position = _position(known.nics, device.uuid)
            if position is None:
                raise errors.HotplugError(f"the guest has no NIC {device.uuid}")
            devid = known.nics[position].devid
            known = self._remove_nic(domain, known, device)
            try:
                self._add_nic(domain, known, device, position, devid)
            except errors.HotplugError as err:
                raise errors.HotplugError(
                    f"{err}. The guest is left without NIC {device.uuid}."
                ) from err

    def plugged_disks(self, instance_name: str) -> Sequence[Disk]:
        """Return the disks in the record, in order.

        :raises HypervisorError: the record is missing or damaged.
        """
        return [
            codec.from_any_release(Disk, dict(one.disk)) for one in record.load(instance_name).disks
        ]

    def _changeable(self, instance: FilledInstance) -> tuple[Domain, Record]:
        """Return the domain and the record of a guest. The caller holds its lock.

        :raises HotplugError: its devices cannot be changed.
        """
        instance_name = instance.name
        try:
            domain = self._require_running(instance_name)
            known = adoption.record_of(instance, domain)
        except errors.HypervisorError as err:
            raise errors.HotplugError(str(err)) from err
        if known.state != record.COMPLETE:
            raise errors.HotplugError(f"instance {instance_name} is {known.state}")
        if known.hypervisor == hv.XEN_HVM and not config.has_paravirtual_devices(known.hvparams):
            raise errors.HotplugError(
                f"instance {instance_name} has emulated devices only, which Xen cannot change while"
                " the guest runs (parameters disk_type and nic_type)"
            )
        return domain, known

    def _add_disk(self, domain: Domain, known: Record, disk: Disk, path: str, seq: int) -> None:
        if _position(known.disks, disk.uuid) is not None:
            return
        recorded = RecordedDisk(record.disk_dict(disk), path, _checked(record.free_vdev, known))
        made: list[RecordedDisk] = []
        try:
            target = block_devices.device_of(recorded, made)
            xl.run("block-attach", str(domain.id), config.disk_spec(recorded, target))
            entries = list(known.disks)
            entries.insert(seq, recorded)
            record.save(replace(known, disks=tuple(entries)))
        except errors.HypervisorError as err:
            self._undo_disk(domain, recorded)
            block_devices.detach(made)
            raise errors.HotplugError(f"disk {disk.uuid} was not plugged in: {err}") from err

    def _undo_disk(self, domain: Domain, recorded: RecordedDisk) -> None:
        """Take back a disk of which it is not known whether the guest has it."""
        try:
            xl.run("block-detach", str(domain.id), recorded.vdev)
        except errors.HypervisorError as err:
            logging.info("disk %s: %s", recorded.vdev, err)

    def _remove_disk(self, domain: Domain, known: Record, disk: Disk) -> None:
        position = _position(known.disks, disk.uuid)
        if position is None:
            return
        recorded = known.disks[position]
        try:
            xl.run("block-detach", str(domain.id), recorded.vdev)
        except errors.HypervisorError as err:
            raise errors.HotplugError(
                f"the guest does not give disk {disk.uuid} ({recorded.vdev}) back: {err}"
            ) from err
        rest = (*known.disks[:position], *known.disks[position + 1 :])
        _saved(replace(known, disks=rest))
        block_devices.detach([recorded])

    def _add_nic(
        self, domain: Domain, known: Record, nic: FilledNic, seq: int, devid: int
    ) -> Record:
        if _position(known.nics, nic.uuid) is not None:
            return known
        guest = nics.guest_network(known.name, known.tags)
        recorded = RecordedNic(record.nic_dict(nic), devid)
        entries = list(known.nics)
        entries.insert(seq, recorded)
        planned = replace(known, nics=tuple(entries))
        try:
            interfaces.check(recorded.nic, guest)
            script = nics.program(known.hvparams)
            words = config.vif_spec(recorded, known, script).split(",")
            interfaces.shift_up(guest, min(seq, len(known.nics)), len(known.nics))
            # Saved first: the program which connects the interface reads the record.
            record.save(planned)
            xl.run("network-attach", str(domain.id), *words)
        except errors.HypervisorError as err:
            self._undo_nic(domain, recorded)
            interfaces.unplug(guest, min(seq, len(known.nics)), len(planned.nics))
            _saved(known)
            raise errors.HotplugError(f"NIC {nic.uuid} was not plugged in: {err}") from err
        return planned

    def _undo_nic(self, domain: Domain, recorded: RecordedNic) -> None:
        """Take back a NIC of which it is not known whether the guest has it."""
        try:
            xl.run("network-detach", str(domain.id), str(recorded.devid))
        except errors.HypervisorError as err:
            logging.info("NIC %s: %s", recorded.devid, err)

    def _remove_nic(self, domain: Domain, known: Record, nic: FilledNic) -> Record:
        position = _position(known.nics, nic.uuid)
        if position is None:
            return known
        recorded = known.nics[position]
        try:
            xl.run("network-detach", str(domain.id), str(recorded.devid))
        except errors.HypervisorError as err:
            raise errors.HotplugError(
                f"the guest does not give NIC {nic.uuid} back: {err}"
            ) from err
        guest = nics.guest_network(known.name, known.tags)
        interfaces.unplug(guest, position, len(known.nics))
        changed = replace(known, nics=(*known.nics[:position], *known.nics[position + 1 :]))
        _saved(changed)
        return changed


def _position(devices: Sequence[RecordedDisk | RecordedNic], uuid: str) -> int | None:
    described = [one.disk if isinstance(one, RecordedDisk) else one.nic for one in devices]
    return next((number for number, one in enumerate(described) if one.get("uuid") == uuid), None)


def _checked(choose: Any, known: Record) -> Any:
    try:
        return choose(known)
    except errors.HypervisorError as err:
        raise errors.HotplugError(str(err)) from err


def _saved(known: Record) -> None:
    try:
        record.save(known)
    except errors.HypervisorError as err:
        raise errors.HotplugError(str(err)) from err
