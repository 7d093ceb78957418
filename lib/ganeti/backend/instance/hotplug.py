"""Changes to the devices of a running guest."""

from __future__ import annotations

import os
from typing import Any

from ganeti import errors, hypervisor, storage
from ganeti.backend.registry import serves
from ganeti.backend.storage import blockdev
from ganeti.constants.net import (
    HOTPLUG_ACTION_ADD,
    HOTPLUG_ACTION_MODIFY,
    HOTPLUG_ACTION_REMOVE,
    HOTPLUG_TARGET_DISK,
)
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
    driver.hotplug_supported(instance)


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
    if isinstance(device, Disk) and action == HOTPLUG_ACTION_ADD:
        busy.require_idle(device)
    verb = {
        HOTPLUG_ACTION_ADD: driver.hot_add,
        HOTPLUG_ACTION_REMOVE: driver.hot_remove,
        HOTPLUG_ACTION_MODIFY: driver.hot_modify,
    }[action]
    try:
        return verb(instance, dev_type, device, extra, seq)
    finally:
        if dev_type == HOTPLUG_TARGET_DISK:
            _renew_links(instance.name, driver)


def _renew_links(instance_name: str, driver: hypervisor.base.Hypervisor) -> None:
    """Make the links of the disks anew, in the order in which the guest has them.

    Assembling a disk which was inserted before others has replaced the link of another disk, and a
    reboot finds the disks by their links.
    """
    disks = driver.plugged_disks(instance_name)
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
