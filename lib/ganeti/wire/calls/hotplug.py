"""Calls which change the devices of a running guest."""

from __future__ import annotations

from ganeti import ht
from ganeti.constants.net import (
    HOTPLUG_ACTION_ADD,
    HOTPLUG_ACTION_MODIFY,
    HOTPLUG_ACTION_REMOVE,
    HOTPLUG_TARGET_DISK,
    HOTPLUG_TARGET_NIC,
)
from ganeti.wire.calls.base import DEVICE, INSTANCE, PLAIN, Arg, Call, ResultCodec

#: Fails with the reason when devices of this guest cannot be changed while it runs.
HOTPLUG_SUPPORTED = Call("hotplug_supported", (Arg("instance", INSTANCE),), timeout_s=900)
#: ``extra``: for a disk [link, uri or None], else None; ``seq``: place of the device among those of
#: its kind. -> None, or what the hypervisor says about the device
HOTPLUG_DEVICE = Call(
    "hotplug_device",
    (
        Arg("instance", INSTANCE),
        Arg(
            "action",
            PLAIN,
            ht.OneOf(
                "hotplug action", (HOTPLUG_ACTION_ADD, HOTPLUG_ACTION_MODIFY, HOTPLUG_ACTION_REMOVE)
            ),
        ),
        Arg("dev_type", PLAIN, ht.OneOf("device type", (HOTPLUG_TARGET_DISK, HOTPLUG_TARGET_NIC))),
        Arg("device", DEVICE),
        Arg("extra", PLAIN, ht.Maybe(ht.ListOf(ht.Any))),
        Arg("seq", PLAIN, ht.NonNegInt),
    ),
    ResultCodec(ht.Any),
    timeout_s=900,
)
