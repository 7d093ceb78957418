"""The interfaces of a guest: made and connected before it starts, removed after it ended.

The directory of the guest (:class:`~ganeti.hypervisor.net.connect.GuestNetwork`) holds a file for
each NIC, named after its position, with the name of the interface. There :func:`remove` finds the
interfaces of a guest that ended unexpectedly.

A list of NICs has None in the place of a NIC for which the virtual machine monitor needs no
interface on the host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor.net import communication, script, tap
from ganeti.hypervisor.net import connect as connections
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.hypervisor.net.tap import TapFeatures
from ganeti.hypervisor.net.veth import VethPair
from ganeti.utils import fs


def check(nic: Mapping[str, Any], guest: GuestNetwork) -> None:
    """Check that an interface for a NIC can be made and connected on this node.

    :raises HypervisorError: names the instance, the NIC and the reason.
    """
    mode = nic["nicparams"].get("mode")
    what = f"instance {guest.instance_name}: NIC mode"
    if mode not in connections.MODES:
        raise errors.HypervisorError(f"{what} '{mode}' is not known")
    if os.geteuid() != 0:
        raise errors.HypervisorError(
            f"{what} {mode} needs root. "
            f"A virtual cluster of an ordinary user has mode {net.NIC_MODE_USER}."
        )
    if shutil.which("ip") is None:
        # Without this check we would make an interface which we could not delete again.
        raise errors.HypervisorError(f"{what} {mode} needs the program ip (package iproute2)")
    try:
        connections.check(nic, guest)
    except errors.HypervisorError as err:
        raise errors.HypervisorError(f"instance {guest.instance_name}: {err}") from err


def create(
    nics: Sequence[Mapping[str, Any] | None],
    features: TapFeatures | VethPair,
    guest: GuestNetwork,
    *,
    incoming: bool = False,
) -> list[str | None]:
    """Make and connect the interfaces of a guest.

    :param features: the kind of interfaces which the guest expects.
    :param incoming: the guest still runs on another node; :func:`finish_incoming` connects the
        NICs which must wait for the end of the migration.
    :returns: for each NIC its interface, or None.
    :raises HypervisorError: nothing is left behind.
    """
    for nic in nics:
        if nic is not None:
            check(nic, guest)
    try:
        return [
            None if nic is None else _create_one(nic, index, features, guest, incoming=incoming)
            for index, nic in enumerate(nics)
        ]
    except BaseException:
        remove(guest)
        raise


def _create_one(
    nic: Mapping[str, Any],
    index: int,
    features: TapFeatures | VethPair,
    guest: GuestNetwork,
    *,
    incoming: bool = False,
) -> str:
    """Make and connect the interface of one NIC; a failure leaves its file for :func:`remove`."""
    name = communication.TAP_NAME if communication.is_communication(nic) else tap.TAP_NAME
    with _naming_instance(guest):
        interface = features.make(name, nic)
        try:
            fs.make_dirs(guest.directory, 0o755)
            fs.write_file(guest.interface_file(index), interface, mode=0o644, sync=False)
        except OSError:
            tap.delete(interface)
            raise
        if not (incoming and connections.waits_for_migration(nic)):
            connections.connect(
                interface, index, nic, guest, phase=script.PHASE_PRE if incoming else None
            )
    return interface


def finish_incoming(nics: Sequence[Mapping[str, Any] | None], guest: GuestNetwork) -> None:
    """Connect the interfaces which have waited for the end of a migration.

    The administrator's program runs for mode ``ext`` a second time.

    :raises HypervisorError: an interface cannot be connected.
    """
    for index, nic in enumerate(nics):
        if nic is None:
            continue
        if connections.waits_for_migration(nic) or nic["nicparams"]["mode"] == net.NIC_MODE_EXT:
            with _naming_instance(guest):
                interface = fs.read_file(guest.interface_file(index)).strip()
                connections.connect(interface, index, nic, guest)


@contextlib.contextmanager
def _naming_instance(guest: GuestNetwork) -> Iterator[None]:
    """Name the instance in every error inside."""
    try:
        yield
    except (errors.GenericError, OSError) as err:
        raise errors.HypervisorError(
            f"cannot set up the network of instance {guest.instance_name}: {err}"
        ) from err


def remove(guest: GuestNetwork) -> None:
    """Disconnect and delete all interfaces of a guest; none is not an error."""
    try:
        names = fs.list_visible(guest.directory)
    except FileNotFoundError:
        return
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            interface = fs.read_file(f"{guest.directory}/{name}").strip()
            connections.disconnect(interface, int(name), guest)
            tap.delete(interface)
    shutil.rmtree(guest.directory, ignore_errors=True)


def transferred_bytes(guest: GuestNetwork) -> tuple[int | None, int | None]:
    """Return what a guest has received and sent over its interfaces, in bytes.

    :returns: None for both when it has no interface on this node.
    """
    received = sent = 0
    try:
        names = fs.list_visible(guest.directory)
    except FileNotFoundError:
        names = []
    counted = False
    for name in names:
        # An interface may be removed in between.
        with contextlib.suppress(OSError, ValueError):
            interface = fs.read_file(f"{guest.directory}/{name}").strip()
            counters = f"/sys/class/net/{interface}/statistics"
            # The host sends what the guest receives.
            received += int(fs.read_file(f"{counters}/tx_bytes"))
            sent += int(fs.read_file(f"{counters}/rx_bytes"))
            counted = True
    return (received, sent) if counted else (None, None)


# NICs which are plugged in and out while the guest runs


@dataclass(frozen=True, slots=True)
class OpenInterface:
    """An interface which is opened for the virtual machine monitor."""

    name: str | None  # None when the monitor needs no interface on the host
    tap_fds: Sequence[int] = ()  # one for each pair of queues
    vhost_fds: Sequence[int] = ()  # as many, or none when the monitor itself moves the packets


def add(
    nic: Mapping[str, Any],
    index: int,
    count: int,
    features: TapFeatures | VethPair,
    guest: GuestNetwork,
) -> str:
    """Make and connect the interface of a new NIC of a running guest.

    :param index: position of the NIC among the NICs of the guest.
    :param count: number of NICs so far; those from ``index`` on move up.
    :returns: the name of the interface.
    :raises HypervisorError: nothing is left behind.
    """
    check(nic, guest)
    shift_up(guest, index, count)
    try:
        return _create_one(nic, index, features, guest)
    except BaseException:
        unplug(guest, index, count + 1)
        raise


@contextlib.contextmanager
def plug(
    nic: Mapping[str, Any] | None,
    index: int,
    count: int,
    features: TapFeatures,
    guest: GuestNetwork,
) -> Iterator[OpenInterface]:
    """Make, connect and open the interface of a NIC; an error inside removes it again.

    :param index: position of the NIC among the NICs of the guest.
    :param count: number of NICs so far; those from ``index`` on move up.
    :raises HypervisorError: nothing is left behind.
    """
    if nic is not None:
        check(nic, guest)
    shift_up(guest, index, count)
    fds: list[int] = []
    try:
        if nic is None:
            yield OpenInterface(None)
            return
        interface = _create_one(nic, index, features, guest)
        try:
            taps = [tap.open_tap(interface, features) for _ in range(features.queues)]
            fds += taps
            vhosts = (
                [tap.open_vhost() for _ in taps] if features.vhost and tap.vhost_works() else []
            )
            fds += vhosts
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot open the interface {interface} of instance {guest.instance_name}: "
                f"{err.strerror}"
            ) from err
        yield OpenInterface(interface, taps, vhosts)
    except BaseException:
        unplug(guest, index, count + 1)
        raise
    finally:
        for fd in fds:
            os.close(fd)


def shift_up(guest: GuestNetwork, index: int, count: int) -> None:
    """Move the files of the NICs from ``index`` on up, for a new NIC.

    :param count: number of NICs so far.
    """
    for number in reversed(range(index, count)):
        _renumber(guest, number, number + 1)


def unplug(guest: GuestNetwork, index: int, count: int) -> None:
    """Remove the interface of the NIC at ``index``; the NICs after it move down.

    :param count: number of NICs before.
    """
    path = guest.interface_file(index)
    with contextlib.suppress(FileNotFoundError):
        interface = fs.read_file(path).strip()
        connections.disconnect(interface, index, guest)
        tap.delete(interface)
        fs.remove_file(path)
    for number in range(index + 1, count):
        _renumber(guest, number, number - 1)


def _renumber(guest: GuestNetwork, old: int, new: int) -> None:
    # A NIC without an interface on the host has no file.
    with contextlib.suppress(FileNotFoundError):
        os.rename(guest.interface_file(old), guest.interface_file(new))
