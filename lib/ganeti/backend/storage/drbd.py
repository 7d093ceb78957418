"""Calls about mirrored disks: connection, synchronisation, storage below them; and the helper.

Each of them goes to both nodes of a disk. They may be repeated: what is so already stays so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors, storage
from ganeti.backend.registry import serves
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.storage.drbd import device, status
from ganeti.storage.drbd.device import DrbdDevice
from ganeti.utils import retry
from ganeti.wire import calls

#: So long two halves may take to find each other.
_CONNECT_S = 60.0
_POLL = (0.1, 1.5, 5.0)


def _mirrored(disk: Disk) -> DrbdDevice:
    if disk.dev_type != disk_constants.DRBD8:
        raise errors.BlockDeviceError(
            f"disk {disk.uuid or disk.iv_name} of type '{disk.dev_type}' is not mirrored by this"
            " cluster"
        )
    return device.DrbdDevice(disk)


@serves(calls.DRBD_ATTACH_NET)
def attach_net(disks: Sequence[Disk], multimaster: bool) -> None:
    """Let this half of each disk look for the other.

    :raises BlockDeviceError: one is not active, or connected in another way.
    """
    for one in map(_mirrored, disks):
        one.attach_net(multimaster=multimaster)


@serves(calls.DRBD_DISCONNECT_NET)
def disconnect_net(disks: Sequence[Disk]) -> None:
    """Cut this half of each disk from the other.

    :raises BlockDeviceError: one is not active, or does not let go.
    """
    for one in map(_mirrored, disks):
        one.disconnect_net()


@serves(calls.DRBD_WAIT_SYNC)
def wait_sync(disks: Sequence[Disk]) -> list[Any]:
    """Wait until the halves have found each other; tell how far they are in step.

    :returns: ``[all in step, lowest percentage]``.
    :raises BlockDeviceError: one stays alone.
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
            raise one.fail(f"does not find its peer, its connection is {err}") from err
        all_done = all_done and done
        lowest = min(lowest, percent)
    return [all_done, lowest]


@serves(calls.DRBD_NEEDS_ACTIVATION)
def needs_activation(disks: Sequence[Disk]) -> list[str]:
    """UUIDs of the disks whose half here is missing, stands alone, or lost its storage."""
    found = []
    for disk in disks:
        if disk.dev_type == disk_constants.DRBD8 and _mirrored(disk).needs_activation():
            found.append(disk.uuid)
    return found


@serves(calls.DRBD_HELPER)
def helper() -> str:
    """The program which the kernel module calls when something happens.

    :raises BlockDeviceError: the module is not loaded.
    """
    return status.usermode_helper()


@serves(calls.BLOCKDEV_ADDCHILDREN)
def add_children(disk: Disk, children: Sequence[Disk]) -> None:
    """Give a mirrored disk new storage, which is then filled from the other half.

    :raises BlockDeviceError: it has some, or the new one cannot be used.
    """
    _mirrored(disk).add_children(children)


@serves(calls.BLOCKDEV_REMOVECHILDREN)
def remove_children(disk: Disk, children: Sequence[Disk]) -> None:
    """Take its storage from a mirrored disk.

    :raises BlockDeviceError: it has another one, or the data would be nowhere.
    """
    _mirrored(disk).remove_children(children)


@serves(calls.BLOCKDEV_PAUSE_RESUME_SYNC)
def pause_resume_sync(disks: Sequence[Disk], pause: bool) -> list[list[Any]]:
    """Let synchronisations rest, or go on; goes on after a failure.

    :returns: for each disk ``[True, None]`` or ``[False, why not]``.
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
