"""Changing the devices of a guest while it runs."""

from __future__ import annotations

from typing import Any

from ganeti import errors, hypervisor
from ganeti.backend.registry import serves
from ganeti.constants.net import HOTPLUG_ACTION_ADD, HOTPLUG_ACTION_REMOVE
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.wire import calls


@serves(calls.HOTPLUG_SUPPORTED)
def hotplug_supported(instance: FilledInstance) -> None:
    """Whether devices of this guest can be changed while it runs.

    :raises HotplugError: they cannot; says why.
    """
    driver = hypervisor.of(instance.hypervisor)
    if not driver.is_running(instance.name):
        raise errors.HotplugError(f"instance {instance.name} does not run")
    driver.hotplug_supported(instance)


@serves(calls.HOTPLUG_DEVICE)
def hotplug_device(instance: FilledInstance, action: str, dev_type: str, device: Disk | FilledNic,
                   extra: list[Any] | None, seq: int) -> Any:
    """Plug a device into a running guest, change or unplug it."""
    driver = hypervisor.of(instance.hypervisor)
    if not driver.is_running(instance.name):
        raise errors.HotplugError(f"instance {instance.name} does not run")
    if action == HOTPLUG_ACTION_ADD:
        return driver.hot_add(instance, dev_type, device, extra, seq)
    if action == HOTPLUG_ACTION_REMOVE:
        return driver.hot_remove(instance, dev_type, device, extra, seq)
    return driver.hot_modify(instance, dev_type, device, extra, seq)
