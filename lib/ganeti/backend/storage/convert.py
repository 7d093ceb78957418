"""Copy of the content of one disk of this node to another one, of the same or another kind.

The handler holds the locks of both disks (:mod:`ganeti.storage.busy`) until it has ended, also when
the caller gave up long before.
"""

from __future__ import annotations

from ganeti import errors, storage
from ganeti.backend.registry import serves
from ganeti.objects.disk import Disk
from ganeti.storage import busy
from ganeti.storage.content import copy
from ganeti.wire import calls


@serves(calls.BLOCKDEV_CONVERT)
def convert(source: Disk, target: Disk) -> None:
    """Copy a disk; both are assembled on this node, and no other program writes to them.

    :raises BlockDeviceError: a disk is missing, the source may lack writes, the target is smaller,
        other work on one of them has not ended, or the copy failed.
    """
    old, new = storage.device(source), storage.device(target)
    for device in (old, new):
        if not device.exists():
            raise errors.BlockDeviceError(f"device {device.unique_id} does not exist")
        device.assemble()
    old.require_latest_data()
    size = old.size_bytes()
    if new.size_bytes() < size:
        raise new.fail(f"has {new.size_bytes()} bytes, fewer than the {size} to be copied")
    doing = f"part of a copy from {old.unique_id} to {new.unique_id}"
    with busy.working_on(source, target, doing=doing):
        new.open(exclusive=True)
        try:
            copy(old.path, new.path, size)
        except OSError as err:
            raise new.fail(f"cannot copy {old.unique_id} to it", err) from err
