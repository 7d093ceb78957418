"""Devices of a running guest: disks and NICs which are plugged in and out.

The record of the guest is changed with each device, so that a reboot gives the guest what it has.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import adoption, config, guests, nics, record, xl
from ganeti.hypervisor.xen import disks as block_devices
from ganeti.hypervisor.xen.parse import Domain
from ganeti.hypervisor.xen.record import Record, RecordedDisk, RecordedNic
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.utils import retry

#: Seconds for a guest to give a device back.
DETACH_S = 30

#: What ``xl`` (4.17) says of a device which the guest does not have.
_GONE = re.compile(r"Unknown device \S+\.|Device \S+ not connected\.")


class XenDevices(base.Devices):
    """Disks and NICs of running guests."""

    def check(self, instance: FilledInstance) -> None:
        """Check that the guest runs, has a record, and knows the devices of Xen.

        :raises HotplugError: its devices cannot be changed.
        """
        with _changeable(instance):
            pass

    def add_disk(self, instance: FilledInstance, attached: AttachedDisk, seq: int) -> None:
        """Plug in a disk, which gets the first free name in the guest."""
        with _changeable(instance) as (domain, known):
            _add_disk(domain, known, attached, seq)

    def remove_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """Unplug a disk."""
        with _changeable(instance) as (domain, known):
            _remove_disk(domain, known, disk)

    def modify_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """:raises HotplugError: always."""
        raise guest_errors.fixed_disk(disk.uuid)

    def add_nic(self, instance: FilledInstance, nic: FilledNic, seq: int) -> None:
        """Plug in a NIC, which gets the first free number in the guest."""
        with _changeable(instance) as (domain, known):
            new = RecordedNic(record.nic_dict(nic), record.free_devid(known))
            _add_nic(domain, known, new, seq)

    def remove_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Unplug a NIC."""
        with _changeable(instance) as (domain, known):
            _remove_nic(domain, known, nic)

    def modify_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Replace a NIC by a changed one with the same number."""
        with _changeable(instance) as (domain, known):
            position = _position(known.nics, nic.uuid)
            if position is None:
                raise errors.HotplugError(f"the guest has no NIC {nic.mac}")
            old = known.nics[position]
            known = _remove_nic(domain, known, nic)
            try:
                new = RecordedNic(record.nic_dict(nic), old.devid)
                _add_nic(domain, known, new, position)
            except errors.HotplugError as err:
                with guest_errors.old_nic_again(err, "guest", nic.uuid):
                    _add_nic(domain, known, old, position)
                raise

    def plugged_disks(self, instance_name: str) -> Sequence[Disk]:
        """Return the disks in the record, in order.

        :raises HypervisorError: the record is missing or damaged.
        """
        return [
            codec.from_any_release(Disk, dict(one.disk)) for one in record.load(instance_name).disks
        ]


@contextlib.contextmanager
def _changeable(instance: FilledInstance) -> Iterator[tuple[Domain, Record]]:
    """Lock a guest; the value is its domain and its record.

    :raises HotplugError: its devices cannot be changed.
    """
    with guests.locked(instance.name):
        try:
            domain = guests.require_running(instance.name)
            known = adoption.record_of(instance, domain)
        except errors.HypervisorError as err:
            raise errors.HotplugError(str(err)) from err
        if known.state != record.COMPLETE:
            raise errors.HotplugError(f"instance {instance.name} is {known.state}")
        if known.hypervisor == hv.XEN_HVM and not config.has_paravirtual_devices(known.hvparams):
            raise errors.HotplugError(
                f"instance {instance.name} has emulated devices only, which Xen cannot change"
                " while the guest runs (parameters disk_type and nic_type)"
            )
        yield domain, known


def _add_disk(domain: Domain, known: Record, attached: AttachedDisk, seq: int) -> None:
    disk = attached.disk
    if _position(known.disks, disk.uuid) is not None:
        return
    recorded = RecordedDisk(
        record.disk_dict(disk), attached.path, _checked(record.free_vdev, known)
    )
    made: list[RecordedDisk] = []
    try:
        target = block_devices.device_of(recorded, made)
        xl.run("block-attach", str(domain.id), config.disk_spec(recorded, target))
        entries = list(known.disks)
        entries.insert(seq, recorded)
        record.save(replace(known, disks=tuple(entries)))
    except errors.HypervisorError as err:
        _undo_disk(domain, recorded)
        block_devices.detach(made)
        raise errors.HotplugError(f"{disk.title} was not plugged in: {err}") from err


def _detach(command: str, domain: Domain, device: str) -> None:
    """Take a device out of a guest; repeated for :data:`DETACH_S`.

    ``xl`` waits ten seconds for the guest. A guest which is busy for longer keeps the device, and
    the command has to be given again.

    :param command: ``block-detach`` or ``network-detach``.
    :param device: the name of the disk or the number of the interface.
    :raises HypervisorError: the guest keeps it; the text is that of the last attempt.
    """
    attempts = 0

    def attempt() -> None:
        nonlocal attempts
        attempts += 1
        try:
            xl.run(command, str(domain.id), device)
        except errors.HypervisorError as err:
            if attempts > 1 and _GONE.search(str(err)):
                return
            raise retry.Again(err) from err

    try:
        retry.until(attempt, timeout_s=DETACH_S)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(str(err.args[0])) from err


def _undo_disk(domain: Domain, recorded: RecordedDisk) -> None:
    """Take back a disk of which it is not known whether the guest has it."""
    try:
        _detach("block-detach", domain, recorded.vdev)
    except errors.HypervisorError as err:
        logging.info("disk %s: %s", recorded.vdev, err)


def _remove_disk(domain: Domain, known: Record, disk: Disk) -> None:
    position = _position(known.disks, disk.uuid)
    if position is None:
        return
    recorded = known.disks[position]
    try:
        _detach("block-detach", domain, recorded.vdev)
    except errors.HypervisorError as err:
        raise errors.HotplugError(
            f"the guest does not give {disk.title} ({recorded.vdev}) back: {err}"
        ) from err
    rest = (*known.disks[:position], *known.disks[position + 1 :])
    _saved(replace(known, disks=rest))
    block_devices.detach([recorded])


def _add_nic(domain: Domain, known: Record, recorded: RecordedNic, seq: int) -> Record:
    uuid = str(recorded.nic["uuid"])
    if _position(known.nics, uuid) is not None:
        return known
    guest = nics.guest_network(known.name, known.tags)
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
        _undo_nic(domain, recorded)
        interfaces.unplug(guest, min(seq, len(known.nics)), len(planned.nics))
        _saved(known)
        raise errors.HotplugError(f"NIC {uuid} was not plugged in: {err}") from err
    return planned


def _undo_nic(domain: Domain, recorded: RecordedNic) -> None:
    """Take back a NIC of which it is not known whether the guest has it."""
    try:
        _detach("network-detach", domain, str(recorded.devid))
    except errors.HypervisorError as err:
        logging.info("NIC %s: %s", recorded.devid, err)


def _remove_nic(domain: Domain, known: Record, nic: FilledNic) -> Record:
    position = _position(known.nics, nic.uuid)
    if position is None:
        return known
    recorded = known.nics[position]
    try:
        _detach("network-detach", domain, str(recorded.devid))
    except errors.HypervisorError as err:
        raise errors.HotplugError(f"the guest does not give NIC {nic.mac} back: {err}") from err
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
