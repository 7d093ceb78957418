"""Changes to the devices of a running guest."""

from __future__ import annotations

import os
from typing import Any

from ganeti import errors, hypervisor, storage
from ganeti.backend.registry import serves
from ganeti.backend.storage import blockdev
from ganeti.constants import net
from ganeti.hypervisor.base import AttachedDisk, Devices, Hypervisor
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths
from ganeti.storage import busy
from ganeti.wire import calls


@serves(calls.HOTPLUG_SUPPORTED)
def hotplug_supported(instance: FilledInstance) -> None:
    """Check that devices of this guest can be changed while it runs.

    :raises HotplugError: they cannot; the text has the reason.
    """
    driver = hypervisor.of(instance.hypervisor)
    if not driver.is_running(instance.name):
        raise errors.HotplugError(f"instance {instance.name} does not run")
    driver.devices.check(instance)


@serves(calls.HOTPLUG_DEVICE)
def hotplug_device(
    instance: FilledInstance,
    action: str,
    dev_type: str,
    device: Disk | FilledNic,
    extra: list[Any] | None,
    seq: int,
) -> Any:
    """Plug a device into a running guest, change it, or unplug it."""
    driver = hypervisor.of(instance.hypervisor)
    if not driver.is_running(instance.name):
        raise errors.HotplugError(f"instance {instance.name} does not run")
    if isinstance(device, Disk) and action == net.HOTPLUG_ACTION_ADD:
        busy.require_idle(device)
    try:
        if isinstance(device, Disk):
            _change_disk(driver.devices, instance, action, device, extra, seq)
        else:
            _change_nic(driver.devices, instance, action, device, seq)
    finally:
        if dev_type == net.HOTPLUG_TARGET_DISK:
            _renew_links(instance.name, driver)


def _change_disk(
    devices: Devices,
    instance: FilledInstance,
    action: str,
    disk: Disk,
    extra: list[Any] | None,
    seq: int,
) -> None:
    """Change a disk of a running guest.

    :param extra: link and URI, or None, of a disk that is plugged in.
    """
    match action:
        case net.HOTPLUG_ACTION_ADD:
            link, uri = extra or ("", None)
            devices.add_disk(instance, AttachedDisk(disk, link, uri), seq)
        case net.HOTPLUG_ACTION_REMOVE:
            devices.remove_disk(instance, disk)
        case _:
            devices.modify_disk(instance, disk)


def _change_nic(
    devices: Devices, instance: FilledInstance, action: str, nic: FilledNic, seq: int
) -> None:
    match action:
        case net.HOTPLUG_ACTION_ADD:
            devices.add_nic(instance, nic, seq)
        case net.HOTPLUG_ACTION_REMOVE:
            devices.remove_nic(instance, nic)
        case _:
            devices.modify_nic(instance, nic)


def _renew_links(instance_name: str, driver: Hypervisor) -> None:
    """Make the links of the disks anew, in the order in which the guest has them.

    Assembling a disk which was inserted before others has replaced the link of another disk, and a
    reboot finds the disks by their links.
    """
    disks = driver.devices.plugged_disks(instance_name)
    if disks is None:
        return
    for index, disk in enumerate(disks):
        device = storage.device(disk)
        if device.uri(driver.name) is None:
            blockdev.make_link(instance_name, index, device.path)
    index = len(disks)
    while os.path.islink(paths.current().instance_disk_link(instance_name, index)):
        blockdev.remove_link(instance_name, index)
        index += 1
