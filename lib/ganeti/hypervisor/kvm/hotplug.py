"""Plugging devices into a running guest, and unplugging them.

In QEMU a disk or NIC is two objects: the backend (a block node, a network client) and the device
which the guest sees. Plugging makes the backend first. Unplugging asks the guest to release the
device, waits until it has, and then removes the backend. A guest which does not answer keeps its
device, and the caller gets an error.

QEMU may have dropped privileges, or have an empty directory as its root, so it opens nothing
itself: files and interfaces are opened here and passed through the control socket.

Each function takes the record of the running guest (:mod:`ganeti.hypervisor.kvm.runtime`) and
returns the changed one; the caller saves it.

Source: QEMU's QMP reference (``blockdev-add``, ``netdev_add``, ``device_add``, ``device_del``,
``add-fd``, ``getfd``).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.constants import net
from ganeti.hypervisor import host
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.kvm import buses, devices, user_network
from ganeti.hypervisor.kvm.qmp import NoAnswer, ObjectNotFound, Qmp, QmpError, UnplugPending
from ganeti.hypervisor.kvm.runtime import Runtime, RuntimeDisk, device_dict, values_of
from ganeti.hypervisor.net.interfaces import OpenInterface
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Nic

#: Time for a guest to release a device.
UNPLUG_TIMEOUT_S = 20.0

_REMOVED = "DEVICE_DELETED"
_REFUSED = ("DEVICE_UNPLUG_GUEST_ERROR", "DEVICE_UNPLUG_ERROR")

# Types of devices which cannot be plugged into a running machine.
_FIXED_DISK_TYPES = frozenset(("ide",)) | buses.UNSUPPORTED_DISK_TYPES
_FIXED_NIC_TYPES = frozenset(("ne2k_isa",))


def check_possible(record: Runtime, kind: str) -> None:
    """Check that devices of a kind can be plugged into this guest's hardware.

    :param kind: ``disk`` or ``nic``.
    :raises HotplugError: they cannot; says why.
    """
    parameter, fixed = (
        ("disk_type", _FIXED_DISK_TYPES)
        if kind == net.HOTPLUG_TARGET_DISK
        else ("nic_type", _FIXED_NIC_TYPES)
    )
    value = record.hvparams.get(parameter)
    if value in fixed:
        raise errors.HotplugError(
            f"devices of {parameter} {value} cannot be changed while the instance runs"
        )
    machine = next(iter(values_of(record, "-machine")), "")
    if not record.hvparams.get("acpi", True) and not buses.is_q35(machine):
        raise errors.HotplugError(
            "the guest runs without ACPI, which would announce devices to it (parameter acpi). "
            "After a restart it finds the changed devices."
        )


def used_bus(record: Runtime) -> buses.Bus:
    """Return the buses of a running guest, with the addresses of its devices marked as used."""
    # The machine it was started with: a new QEMU may have another default.
    machine = next(iter(values_of(record, "-machine")), "").partition(",")[0]
    bus = buses.bus_of(machine, record.hvparams)
    for device in (*record.nics, *(disk.disk for disk in record.disks)):
        bus.claim(device["hvinfo"])
    return bus


def _peripherals(control: Qmp) -> set[str]:
    """Ids of the devices of the guest."""
    answer = control.execute("qom-list", {"path": "/machine/peripheral"})
    return {entry["name"] for entry in answer}


# Disks and NICs


def _add_device(control: Qmp, device_id: str, arguments: Mapping[str, Any]) -> None:
    """Give the guest a device.

    :raises HypervisorError: it does not have it.
    """
    try:
        control.execute("device_add", dict(arguments))
    except NoAnswer:
        # A busy QEMU has carried it out a moment later.
        if device_id not in _peripherals(control):
            raise


def _remove_device(control: Qmp, device_id: str, what: str) -> None:
    """Ask the guest to release a device, and wait until it has.

    :raises HotplugError: the guest refuses, or does not release it in time.
    """
    control.events.clear()
    try:
        control.execute("device_del", {"id": device_id})
    except ObjectNotFound:
        # The guest released the device after an earlier request had timed out.
        return
    except UnplugPending:
        pass
    except QmpError as err:
        if device_id in _peripherals(control):
            raise errors.HotplugError(f"cannot remove {what}: {err}") from err
    event = control.wait_event(
        lambda event: (
            event.get("data", {}).get("device") == device_id
            and event["event"] in (_REMOVED, *_REFUSED)
        ),
        UNPLUG_TIMEOUT_S,
    )
    if event is None:
        # The event may have come before this connection was opened.
        if device_id not in _peripherals(control):
            return
        raise errors.HotplugError(
            f"the guest did not release {what} within {UNPLUG_TIMEOUT_S:g} s. It may lack "
            "support for this, or still boot, or use the device."
        )
    if event["event"] != _REMOVED:
        raise errors.HotplugError(f"the guest refuses to release {what}")


def _remove_backend(control: Qmp, command: str, arguments: Mapping[str, Any]) -> None:
    """Remove a backend; one which does not exist is not an error."""
    try:
        control.execute(command, dict(arguments))
    except ObjectNotFound:
        pass
    except errors.HypervisorError as err:
        logging.warning("%s", err)


@contextlib.contextmanager
def _descriptors(opened: Sequence[int]) -> Iterator[Sequence[int]]:
    try:
        yield opened
    finally:
        for fd in opened:
            os.close(fd)


# Disks


def add_disk(
    control: Qmp,
    record: Runtime,
    attached: AttachedDisk,
    index: int,
    bus: buses.Bus,
    links: Callable[[int], str],
) -> Runtime:
    """Plug a disk into the guest.

    :param index: position among the disks.
    :param links: position -> path of the disk at the next start.
    :raises HotplugError: nothing is left behind.
    """
    hvp = record.hvparams
    disk, path, uri = attached
    device_id = buses.device_id("disk", disk.uuid)
    if any(known.hvinfo["id"] == device_id for known in record.disks):
        raise errors.HotplugError(f"{disk.title} is plugged in already")
    try:
        info = buses.disk_hvinfo(disk, hvp, bus)
    except errors.HypervisorError as err:
        raise errors.HotplugError(str(err)) from err
    new = RuntimeDisk(device_dict(disk, info), path, uri)
    read_only = disk.mode == disk_constants.RDONLY
    is_block = host.is_block_device(path) if uri is None else False
    fdset: int | None = None
    try:
        if uri is None:
            with _descriptors([_open_disk(path, read_only)]) as fds:
                fdset = int(control.execute("add-fd", fds=fds)["fdset-id"])
            new = replace(new, path=f"/dev/fdset/{fdset}")
        options = devices.disk_options(
            new,
            hvp,
            is_block=is_block,
            bootable=False,
            direct_works=uri is not None or host.direct_works(path),
        )
        control.execute("blockdev-add", devices.qmp_arguments(options.node))
        try:
            _add_device(
                control,
                device_id,
                {"driver": info["driver"], **devices.qmp_arguments(options.device, flat=True)},
            )
        except errors.HypervisorError:
            _remove_backend(control, "blockdev-del", {"node-name": device_id})
            raise
    except errors.HypervisorError as err:
        raise errors.HotplugError(f"cannot plug in {disk.title}: {err}") from err
    finally:
        if fdset is not None:
            # The block node has a copy of the descriptor; this one would keep the device open.
            _remove_backend(control, "remove-fd", {"fdset-id": fdset})
    disks = list(record.disks)
    disks.insert(index, new)
    return _with_disks(record, disks, links)


def remove_disk(control: Qmp, record: Runtime, disk: Disk, links: Callable[[int], str]) -> Runtime:
    """Unplug a disk; one which the guest lacks is not an error.

    :raises HotplugError: the guest still has it.
    """
    device_id = buses.device_id("disk", disk.uuid)
    _remove_device(control, device_id, disk.title)
    _remove_backend(control, "blockdev-del", {"node-name": device_id})
    return _with_disks(
        record, [known for known in record.disks if known.hvinfo["id"] != device_id], links
    )


def _with_disks(
    record: Runtime, disks: Sequence[RuntimeDisk], links: Callable[[int], str]
) -> Runtime:
    return replace(
        record, disks=tuple(replace(disk, path=links(index)) for index, disk in enumerate(disks))
    )


def _open_disk(path: str, read_only: bool) -> int:
    try:
        return os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
    except OSError as err:
        raise errors.HypervisorError(f"cannot open {path}: {err.strerror}") from err


# NICs


def add_nic(
    control: Qmp,
    record: Runtime,
    nic: Mapping[str, Any],
    index: int,
    interface: OpenInterface,
) -> Runtime:
    """Plug a NIC into the guest.

    :param nic: the NIC as the record has it, with driver, id and address in the guest.
    :param index: position among the NICs.
    :param interface: the host's interface, opened.
    :raises HotplugError: nothing is left behind in QEMU; the caller removes the host's interface.
    """
    new = dict(nic)
    info, uuid = new["hvinfo"], new["uuid"]
    device_id = info["id"]
    if any(known["hvinfo"]["id"] == device_id for known in record.nics):
        raise errors.HotplugError(f"NIC {uuid} is plugged in already")
    try:
        control.execute("netdev_add", _netdev(control, device_id, interface, new))
        try:
            _add_device(
                control,
                device_id,
                {
                    "driver": info["driver"],
                    **devices.qmp_arguments(
                        devices.nic_device(new, record.hvparams, tap=interface.name is not None),
                        flat=True,
                    ),
                },
            )
        except errors.HypervisorError:
            _remove_backend(control, "netdev_del", {"id": device_id})
            raise
    except errors.HypervisorError as err:
        raise errors.HotplugError(f"cannot plug in NIC {uuid}: {err}") from err
    nics = list(record.nics)
    nics.insert(index, new)
    return replace(record, nics=tuple(nics))


def _netdev(
    control: Qmp, device_id: str, interface: OpenInterface, nic: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of ``netdev_add``; passes open descriptors to QEMU."""
    if interface.name is None:
        arguments: dict[str, Any] = {"type": "user", "id": device_id}
        if user_network.is_communication(nic):
            options = dict(user_network.netdev_options(nic, user_network.forwarder()))
            arguments |= {**options, "restrict": True, "guestfwd": [{"str": options["guestfwd"]}]}
        return arguments

    def pass_descriptors(kind: str, fds: Sequence[int]) -> str:
        names = []
        for number, fd in enumerate(fds):
            name = f"{device_id}-{kind}{number}"
            control.execute("getfd", {"fdname": name}, fds=[fd])
            names.append(name)
        return ":".join(names)

    arguments = {"type": "tap", "id": device_id, "fds": pass_descriptors("tap", interface.tap_fds)}
    if interface.vhost_fds:
        arguments |= {"vhost": True, "vhostfds": pass_descriptors("vhost", interface.vhost_fds)}
    return arguments


def remove_nic(control: Qmp, record: Runtime, nic: Nic) -> tuple[Runtime, int | None]:
    """Unplug a NIC; one which the guest lacks is not an error.

    :returns: the record, and the position of the NIC, or None.
    :raises HotplugError: the guest still has it.
    """
    device_id = buses.device_id("nic", nic.uuid)
    _remove_device(control, device_id, f"NIC {nic.mac}")
    _remove_backend(control, "netdev_del", {"id": device_id})
    position = nic_position(record, nic)
    nics = tuple(known for known in record.nics if known["hvinfo"]["id"] != device_id)
    return replace(record, nics=nics), position


def nic_position(record: Runtime, nic: Nic) -> int | None:
    """Return the position of a NIC among those of the guest; None when it lacks the NIC."""
    device_id = buses.device_id("nic", nic.uuid)
    found = (number for number, one in enumerate(record.nics) if one["hvinfo"]["id"] == device_id)
    return next(found, None)
