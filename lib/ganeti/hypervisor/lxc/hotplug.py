"""NICs which are plugged into a running container, and out of it; disks cannot be.

LXC does not know of these changes. When the container restarts itself, LXC would prepare the NICs
which it had at its start. A file (:attr:`~ganeti.hypervisor.lxc.layout.Layout.changed_file`) makes
that restart fail, so that the watcher starts the container again, with the present NICs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.lxc import guests, record
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.hypervisor.lxc.record import Record
from ganeti.hypervisor.net import interfaces, veth
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.utils import fs


class LxcDevices(base.Devices):
    """NICs of running containers; their disks cannot be changed."""

    def check(self, instance: FilledInstance) -> None:
        """Check that the container runs and has a record.

        :raises HotplugError: its NICs cannot be changed.
        """
        with guests.locked(instance.name) as here:
            _record(here)

    def add_disk(self, instance: FilledInstance, attached: AttachedDisk, seq: int) -> None:
        """:raises HotplugError: always."""
        raise _fixed_disk(attached.disk)

    def remove_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """Do nothing if the container lacks the disk.

        :raises HotplugError: the container has it.
        """
        with guests.locked(instance.name) as here:
            if disk.uuid in _record(here).disk_paths():
                raise _fixed_disk(disk)

    def modify_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """:raises HotplugError: always."""
        raise _fixed_disk(disk)

    def add_nic(self, instance: FilledInstance, nic: FilledNic, seq: int) -> None:
        """Plug in a NIC."""
        with guests.locked(instance.name) as here:
            known = _record(here)
            if _position(known, nic.uuid) is None:
                device = dict(codec.to_dict(nic))
                _add(here, known, device, min(seq, len(known.nics)))

    def remove_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Unplug a NIC."""
        with guests.locked(instance.name) as here:
            known = _record(here)
            position = _position(known, nic.uuid)
            if position is not None:
                _remove(here, known, position)

    def modify_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Replace a NIC by a changed one."""
        with guests.locked(instance.name) as here:
            known = _record(here)
            position = _position(known, nic.uuid)
            if position is None:
                raise errors.HotplugError(f"the container has no NIC {nic.mac}")
            old = known.nics[position]
            known = _remove(here, known, position)
            try:
                _add(here, known, dict(codec.to_dict(nic)), position)
            except errors.HotplugError as err:
                with guest_errors.old_nic_again(err, "container", nic.uuid):
                    _add(here, known, old, position)
                raise


def _fixed_disk(disk: Disk) -> errors.HotplugError:
    return errors.HotplugError(
        f"{disk.title}: the disks of a container cannot be changed while it runs"
    )


def _record(here: Layout) -> Record:
    try:
        return guests.running_record(here)
    except errors.HypervisorError as err:
        raise errors.HotplugError(str(err)) from err


def _position(known: Record, uuid: str) -> int | None:
    return next((number for number, nic in enumerate(known.nics) if nic.get("uuid") == uuid), None)


def _add(here: Layout, known: Record, nic: dict[str, Any], position: int) -> None:
    """Plug in a NIC in the form of the record."""
    guest = guests.network(here, known.tags)
    count = len(known.nics)
    nics = [*known.nics[:position], nic, *known.nics[position:]]
    try:
        pid = guests.init_pid(here)
        _mark_changed(here)
        host = interfaces.add(nic, position, count, veth.VethPair(), guest)
        try:
            veth.give(host, pid)
            record.save(here.record_file, dataclasses.replace(known, nics=nics))
        except BaseException:
            interfaces.unplug(guest, position, count + 1)
            raise
    except (errors.GenericError, OSError) as err:
        raise errors.HotplugError(f"NIC {nic['uuid']} was not plugged in: {err}") from err


def _remove(here: Layout, known: Record, position: int) -> Record:
    nics = [*known.nics[:position], *known.nics[position + 1 :]]
    changed = dataclasses.replace(known, nics=nics)
    try:
        _mark_changed(here)
        # The container's end goes with the end of the node.
        interfaces.unplug(guests.network(here, known.tags), position, len(known.nics))
        record.save(here.record_file, changed)
    except (errors.GenericError, OSError) as err:
        uuid = known.nics[position].get("uuid")
        raise errors.HotplugError(f"NIC {uuid} was not unplugged: {err}") from err
    return changed


def _mark_changed(here: Layout) -> None:
    fs.write_file(here.changed_file, "", mode=0o600, sync=False)
