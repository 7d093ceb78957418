"""Whether an instance has a size which a policy permits."""

from __future__ import annotations

from ganeti.htools.instance import Instance
from ganeti.htools.node import Fail
from ganeti.htools.policy import Policy, Range


def violates(instance: Instance, policy: Policy, *, exclusive: bool) -> Fail | None:
    """Return why the size of an instance is not in any range of a policy.

    The result is None when it is in one.
    """
    if instance.template not in policy.templates:
        return Fail.DISK
    found: Fail | None = None
    for limits in policy.ranges:
        own = _outside(instance, limits, exclusive=exclusive)
        if own is None:
            return None
        found = found or own
    return found


def _outside(instance: Instance, limits: Range, *, exclusive: bool) -> Fail | None:
    low, high = limits.smallest, limits.largest
    if not low.memory <= instance.memory <= high.memory:
        return Fail.MEMORY
    if any(
        not low.disk_size <= disk.size <= high.disk_size
        for disk in instance.disks
        if not disk.special
    ):
        return Fail.DISK
    if not low.cpus <= instance.vcpus <= high.cpus:
        return Fail.CPU
    use = (instance.spindles or 0) if exclusive else instance.spindle_use
    if exclusive:
        if instance.spindles is None or any(
            not low.spindle_use <= (disk.spindles or 0) <= high.spindle_use
            for disk in instance.disks
        ):
            return Fail.SPINDLES
    elif not low.spindle_use <= use <= high.spindle_use:
        return Fail.SPINDLES
    if instance.template != "diskless" and not (
        low.disk_count <= len(instance.disks) <= high.disk_count
    ):
        return Fail.DISK_COUNT
    return None
