"""Handlers of mirrored disks: connection, synchronisation, storage below them, usermode helper.

The master calls both nodes of a disk. Each call may be repeated without effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors, storage
from ganeti.backend.registry import attempt, serves
from ganeti.objects.disk import Disk
from ganeti.storage import busy
from ganeti.storage.drbd import device, status
from ganeti.storage.drbd.device import DrbdDevice
from ganeti.utils import retry
from ganeti.wire import calls

#: Time which two replicas may take to connect, in seconds.
_CONNECT_S = 60.0
_POLL = (0.1, 1.5, 5.0)


def _mirrored(disk: Disk) -> DrbdDevice:
    if not disk.has_replicas:
        raise errors.BlockDeviceError(
            f"disk {disk.iv_name or disk.uuid} of type '{disk.dev_type}' is not mirrored by this"
            " cluster"
        )
    return device.DrbdDevice(disk)


@serves(calls.DRBD_ATTACH_NET)
def attach_net(disks: Sequence[Disk], multimaster: bool) -> None:
    """Let the local replica of each disk connect to its peer.

    :raises BlockDeviceError: a replica is not active, or connected with other parameters; the
        other disks were connected.
    """
    _for_all(disks, lambda disk: _mirrored(disk).attach_net(multimaster=multimaster))


@serves(calls.DRBD_DISCONNECT_NET)
def disconnect_net(disks: Sequence[Disk]) -> None:
    """Disconnect the local replica of each disk from its peer.

    :raises BlockDeviceError: a replica is not active, or does not disconnect; the other disks were
        disconnected.
    """
    _for_all(disks, lambda disk: _mirrored(disk).disconnect_net())


@serves(calls.DRBD_WAIT_SYNC)
def wait_sync(disks: Sequence[Disk]) -> list[Any]:
    """Wait until the replicas have connected; return how far they are in sync.

    :returns: ``[all in sync, lowest percentage]``.
    :raises BlockDeviceError: a replica does not connect to its peer.
    """
    return _wait_sync(list(map(_mirrored, disks)))


def _wait_sync(
    devices: Sequence[DrbdDevice],
    sleep: Callable[[float], None] = time.sleep,
) -> list[Any]:
    all_done, lowest = True, 100.0
    for one in devices:

        def together(one: DrbdDevice = one) -> tuple[bool, float]:
            state = one.sync_progress()
            if not state.connected and not state.resyncing:
                raise retry.Again(state.connection)
            done = state.connected
            return done, 100.0 if done else state.sync_percent or 0.0

        try:
            done, percent = retry.until(together, timeout_s=_CONNECT_S, delay=_POLL, sleep=sleep)
        except errors.RetryTimeout as err:
            raise one.fail(
                f"does not connect to its peer; the state of its connection is {err}"
            ) from err
        all_done = all_done and done
        lowest = min(lowest, percent)
    return [all_done, lowest]


@serves(calls.DRBD_NEEDS_ACTIVATION)
def needs_activation(disks: Sequence[Disk]) -> list[str | Exception]:
    """Return the UUIDs of disks whose local replica is missing, unconnected or without storage.

    :returns: an error for each disk of which that is not known; the other disks are examined.
    """
    found: list[str | Exception] = []
    for disk in disks:
        lost = attempt(_needs_activation, disk)
        if isinstance(lost, Exception):
            found.append(errors.BlockDeviceError(f"{disk.iv_name or disk.uuid}: {lost}"))
        elif lost:
            found.append(disk.uuid)
    return found


def _needs_activation(disk: Disk) -> bool:
    return disk.has_replicas and _mirrored(disk).needs_activation()


@serves(calls.DRBD_WAIT_FOR_PEER)
def wait_for_peer(disks: Sequence[Disk]) -> list[str]:
    """Have the I/O of writable disks suspended when they lose their peers; return their UUIDs.

    :raises BlockDeviceError: a disk is not active, or a command of DRBD fails.
    """
    return [disk.uuid for disk in disks if _mirrored(disk).wait_for_peer()]


@serves(calls.DRBD_WRITE_ALONE)
def write_alone(disks: Sequence[Disk]) -> None:
    """Let disks confirm writes again although their peers do not have them.

    :raises BlockDeviceError: a disk is not active, or a command of DRBD fails; the other disks do
        so.
    """
    _for_all(disks, lambda disk: _mirrored(disk).resume_io())


@serves(calls.DRBD_RESUME_IO)
def resume_io(disks: Sequence[Disk]) -> None:
    """Resume the I/O of disks which is suspended because their peers are lost.

    A disk whose I/O is not suspended now stays as it is: the order comes late.

    :raises BlockDeviceError: a disk is not active, or a command of DRBD fails; the I/O of the other
        disks was resumed.
    """

    def resume(disk: Disk) -> None:
        one = _mirrored(disk)
        if one.sync_progress().suspended:
            one.resume_io()

    _for_all(disks, resume)


def _for_all(disks: Sequence[Disk], step: Callable[[Disk], None]) -> None:
    """Carry out a step for each disk, also after a failure.

    :raises BlockDeviceError: it failed for some disks.
    """
    results = [attempt(step, disk) for disk in disks]
    failures = [one for one in results if isinstance(one, Exception)]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise errors.BlockDeviceError("; ".join(map(str, failures)))


@serves(calls.DRBD_WAITING)
def suspended() -> list[int]:
    """Return the minors whose I/O is suspended because their peers are lost.

    :raises BlockDeviceError: the state of the kernel module cannot be read.
    """
    if not status.loaded():
        return []
    return [number for number, state in status.minors().items() if state.suspended]


@serves(calls.DRBD_HELPER)
def helper() -> str:
    """Return the program which the kernel module calls for its events.

    :raises BlockDeviceError: the kernel module is not loaded.
    """
    return status.usermode_helper()


@serves(calls.BLOCKDEV_ADDCHILDREN)
def add_children(disk: Disk, children: Sequence[Disk]) -> None:
    """Attach new storage to a mirrored disk, which is then filled from the peer.

    :raises BlockDeviceError: the disk has storage, or the new one cannot be used, for example
        because a program still works on it.
    """
    for child in children:
        busy.require_idle(child)
    _mirrored(disk).add_children(children)


@serves(calls.BLOCKDEV_REMOVECHILDREN)
def remove_children(disk: Disk, children: Sequence[Disk]) -> None:
    """Detach the storage of a mirrored disk.

    :raises BlockDeviceError: the disk has other storage, or no replica would have the data.
    """
    _mirrored(disk).remove_children(children)


@serves(calls.BLOCKDEV_PAUSE_RESUME_SYNC)
def pause_resume_sync(disks: Sequence[Disk], pause: bool) -> list[list[Any]]:
    """Pause or resume synchronisations; continue with the next disk after a failure.

    :returns: for each disk ``[True, None]`` or ``[False, reason]``.
    """
    results: list[list[Any]] = []
    for disk in disks:
        try:
            one = storage.device(disk)
            if isinstance(one, DrbdDevice):
                one.pause_sync() if pause else one.resume_sync()
            results.append([True, None])
        except errors.GenericError as err:
            results.append([False, str(err)])
    return results
