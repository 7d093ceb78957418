"""Devices that come and go while the guest runs.

A device is two things in QEMU: the backend (a block node, a network client) and the card in front
of it. Adding makes the backend first; removing asks the guest to let the card go, waits until it
has, and then takes the backend away. A guest that does not answer keeps its device, and the caller
is told.

QEMU may have given up its privileges or sit in an empty directory, so it is not told to open
anything: files and interfaces are opened here and handed over through the control socket.

Every function takes the record of the running guest (:mod:`ganeti.hypervisor.kvm.runtime`) and
returns the changed one; who calls writes it down.

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
from ganeti.hypervisor.kvm import buses, devices, host, user_network
from ganeti.hypervisor.kvm.qmp import ObjectNotFound, Qmp, QmpError, UnplugPending
from ganeti.hypervisor.kvm.runtime import Runtime, RuntimeDisk, device_dict, words_of
from ganeti.hypervisor.net.interfaces import OpenInterface
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Nic

#: How long a guest may take to let a device go.
UNPLUG_TIMEOUT_S = 20.0

_GONE = "DEVICE_DELETED"
_REFUSED = ("DEVICE_UNPLUG_GUEST_ERROR", "DEVICE_UNPLUG_ERROR")

# Cards for which no guest can be told at run time.
_FIXED_DISK_TYPES = frozenset(("ide",)) | buses.UNSUPPORTED_DISK_TYPES
_FIXED_NIC_TYPES = frozenset(("ne2k_isa",))


def check_possible(record: Runtime, kind: str) -> None:
    """Refuse what cannot work with this guest's hardware.

    :param kind: ``disk`` or ``nic``.
    :raises HotplugError: says why.
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
    machine = next(iter(words_of(record, "-machine")), "")
    if not record.hvparams.get("acpi", True) and not buses.is_q35(machine):
        raise errors.HotplugError(
            "the guest runs without ACPI, which would tell it of devices (parameter acpi). "
            "After a restart it finds what was changed."
        )


def used_bus(record: Runtime) -> buses.Bus:
    """The free places of a running guest."""
    # As it was started: what is the default machine may have changed with a new QEMU since.
    machine = next(iter(words_of(record, "-machine")), "").partition(",")[0]
    bus = buses.bus_of(machine, record.hvparams)
    for device in (*record.nics, *(disk.disk for disk in record.disks)):
        bus.claim(device["hvinfo"])
    return bus


def _peripherals(control: Qmp) -> set[str]:
    """Ids of the devices QEMU has."""
    answer = control.execute("qom-list", {"path": "/machine/peripheral"})
    return {entry["name"] for entry in answer}


# Both kinds


def _remove_card(control: Qmp, device_id: str, what: str) -> None:
    """Ask the guest to let a card go, and wait until it has.

    :raises HotplugError: it does not.
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
            and event["event"] in (_GONE, *_REFUSED)
        ),
        UNPLUG_TIMEOUT_S,
    )
    if event is None:
        # The event may have gone by before we asked.
        if device_id not in _peripherals(control):
            return
        raise errors.HotplugError(
            f"the guest does not let go of {what} within {UNPLUG_TIMEOUT_S:g} s. It may lack "
            "support for it, or still boot, or use the device."
        )
    if event["event"] != _GONE:
        raise errors.HotplugError(f"the guest refuses to let go of {what}")


def _take_away(control: Qmp, command: str, arguments: Mapping[str, Any]) -> None:
    """Remove a backend; one that is not there is no error."""
    try:
        control.execute(command, dict(arguments))
    except ObjectNotFound:
        pass
    except QmpError as err:
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
    disk: Disk,
    path: str,
    uri: str | None,
    index: int,
    bus: buses.Bus,
    links: Callable[[int], str],
) -> Runtime:
    """Plug a disk in.

    :param path: the device or file, which is opened here.
    :param index: position among the disks.
    :param links: position -> path by which the next start finds the disk.
    :raises HotplugError: nothing is left behind.
    """
    hvp = record.hvparams
    device_id = buses.device_id("disk", disk.uuid)
    if any(known.hvinfo["id"] == device_id for known in record.disks):
        raise errors.HotplugError(f"disk {disk.uuid} is plugged in already")
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
            control.execute(
                "device_add",
                {"driver": info["driver"], **devices.qmp_arguments(options.device, flat=True)},
            )
        except errors.HypervisorError:
            _take_away(control, "blockdev-del", {"node-name": device_id})
            raise
    except errors.HypervisorError as err:
        raise errors.HotplugError(f"cannot plug in disk {disk.uuid}: {err}") from err
    finally:
        if fdset is not None:
            # The block node has its own copy by now; ours would keep the device busy for ever.
            _take_away(control, "remove-fd", {"fdset-id": fdset})
    disks = list(record.disks)
    disks.insert(index, new)
    return _with_disks(record, disks, links)


def remove_disk(control: Qmp, record: Runtime, disk: Disk, links: Callable[[int], str]) -> Runtime:
    """Unplug a disk; one that is not there is no error.

    :raises HotplugError: the guest keeps it.
    """
    device_id = buses.device_id("disk", disk.uuid)
    _remove_card(control, device_id, f"disk {disk.uuid}")
    _take_away(control, "blockdev-del", {"node-name": device_id})
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


# Network cards


def add_nic(
    control: Qmp,
    record: Runtime,
    card: Nic,
    index: int,
    info: Mapping[str, Any],
    interface: OpenInterface,
) -> Runtime:
    """Plug a network card in.

    :param index: position among the cards.
    :param info: its place in the guest.
    :param interface: the host's interface, opened.
    :raises HotplugError: nothing is left behind in QEMU; the caller removes the host's interface.
    """
    new = device_dict(card, info)
    device_id = info["id"]
    if any(known["hvinfo"]["id"] == device_id for known in record.nics):
        raise errors.HotplugError(f"NIC {card.uuid} is plugged in already")
    try:
        control.execute("netdev_add", _netdev(control, device_id, interface, new))
        try:
            control.execute(
                "device_add",
                {
                    "driver": info["driver"],
                    **devices.qmp_arguments(
                        devices.nic_device(new, record.hvparams, tap=interface.name is not None),
                        flat=True,
                    ),
                },
            )
        except errors.HypervisorError:
            _take_away(control, "netdev_del", {"id": device_id})
            raise
    except errors.HypervisorError as err:
        raise errors.HotplugError(f"cannot plug in NIC {card.uuid}: {err}") from err
    nics = list(record.nics)
    nics.insert(index, new)
    return replace(record, nics=tuple(nics))


def _netdev(
    control: Qmp, device_id: str, interface: OpenInterface, card: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of ``netdev_add``; hands over what is open."""
    if interface.name is None:
        arguments: dict[str, Any] = {"type": "user", "id": device_id}
        if user_network.is_communication(card):
            options = dict(user_network.netdev_options(card, user_network.forwarder()))
            arguments |= {**options, "restrict": True, "guestfwd": [{"str": options["guestfwd"]}]}
        return arguments

    def hand_over(kind: str, fds: Sequence[int]) -> str:
        names = []
        for number, fd in enumerate(fds):
            name = f"{device_id}-{kind}{number}"
            control.execute("getfd", {"fdname": name}, fds=[fd])
            names.append(name)
        return ":".join(names)

    arguments = {"type": "tap", "id": device_id, "fds": hand_over("tap", interface.tap_fds)}
    if interface.vhost_fds:
        arguments |= {"vhost": True, "vhostfds": hand_over("vhost", interface.vhost_fds)}
    return arguments


def remove_nic(control: Qmp, record: Runtime, card: Nic) -> tuple[Runtime, int | None]:
    """Unplug a network card; one that is not there is no error.

    :returns: the record, and the position the card had.
    :raises HotplugError: the guest keeps it.
    """
    device_id = buses.device_id("nic", card.uuid)
    _remove_card(control, device_id, f"NIC {card.uuid}")
    _take_away(control, "netdev_del", {"id": device_id})
    position = next(
        (number for number, known in enumerate(record.nics) if known["hvinfo"]["id"] == device_id),
        None,
    )
    nics = tuple(known for known in record.nics if known["hvinfo"]["id"] != device_id)
    return replace(record, nics=nics), position
