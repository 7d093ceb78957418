"""NICs which are plugged into a running container, and out of it; disks cannot be.

LXC does not know of these changes. When the container restarts itself, LXC would prepare the NICs
which it had at its start. A file (:attr:`~ganeti.hypervisor.lxc.layout.Layout.changed_file`) makes
that restart fail, so that the watcher starts the container again, with the present NICs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base
from ganeti.hypervisor.lxc import guests, record
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.hypervisor.lxc.record import Record
from ganeti.hypervisor.net import interfaces, veth
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.utils import fs


class LxcHotplug(base.Hypervisor):
    """The operations which change the NICs of a running container."""

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Check that the container runs and has a record.

        :raises HotplugError: its NICs cannot be changed.
        """
        with guests.locked(instance.name) as here:
            _record(here)

    def hot_add(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Plug a NIC into the running container.

        :raises HotplugError: it is not plugged in; or the device is a disk.
        """
        nic = _nic(device)
        with guests.locked(instance.name) as here:
            known = _record(here)
            if _position(known, nic.uuid) is None:
                _add(here, known, nic, min(seq, len(known.nics)))

    def hot_remove(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Unplug a NIC from the running container; a device that it lacks is not an error.

        :raises HotplugError: it is still plugged in; or the device is a disk of the container.
        """
        with guests.locked(instance.name) as here:
            known = _record(here)
            if isinstance(device, Disk) and device.uuid not in known.disk_paths():
                return
            position = _position(known, _nic(device).uuid)
            if position is not None:
                _remove(here, known, position)

    def hot_modify(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Replace a NIC by a changed one.

        :raises HotplugError: the container has the old one, or none when the message says so; or
            the device is a disk.
        """
        nic = _nic(device)
        with guests.locked(instance.name) as here:
            known = _record(here)
            position = _position(known, nic.uuid)
            if position is None:
                raise errors.HotplugError(f"the container has no NIC {nic.uuid}")
            known = _remove(here, known, position)
            try:
                _add(here, known, nic, position)
            except errors.HotplugError as err:
                raise errors.HotplugError(
                    f"{err}. The container is left without NIC {nic.uuid}."
                ) from err


def _nic(device: Disk | FilledNic) -> FilledNic:
    if isinstance(device, Disk):
        raise errors.HotplugError(
            f"disk {device.uuid}: the disks of a container cannot be changed while it runs"
        )
    return device


def _record(here: Layout) -> Record:
    try:
        return guests.running_record(here)
    except errors.HypervisorError as err:
        raise errors.HotplugError(str(err)) from err


def _position(known: Record, uuid: str) -> int | None:
    return next((number for number, nic in enumerate(known.nics) if nic.get("uuid") == uuid), None)


def _add(here: Layout, known: Record, device: FilledNic, position: int) -> None:
    nic = dict(codec.to_dict(device))
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
        raise errors.HotplugError(f"NIC {device.uuid} was not plugged in: {err}") from err


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
