"""Block devices which the administrator has made (disk template ``blockdev``), usually on a SAN.

The ``logical_id`` is ``("manual", path)``; all nodes of a group have the device under the same
path. The cluster never creates, changes or removes such a device.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice

#: Only names which stay the same over a reboot may be adopted.
ROOT = "/dev/disk/"
_DRIVER = "manual"


class ManualDevice(BlockDevice):
    """A block device of the administrator."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or fields[0] != _DRIVER or not isinstance(fields[1], str):
            raise self.wrong(f"id {list(fields)} is not ['{_DRIVER}', path]")
        # The path is not resolved: it is a link, whose target changes with each reboot.
        if not fields[1].startswith(ROOT) or os.path.normpath(fields[1]) != fields[1]:
            raise self.wrong(f"path {fields[1]} is not below {ROOT}")
        self._path: str = fields[1]

    @property
    def path(self) -> str:
        """The link below ``/dev/disk``."""
        return self._path

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Check that the device exists; nothing is created.

        :raises BlockDeviceError: it does not exist.
        """
        self.assemble()

    def remove(self) -> None:
        """Do nothing: the device belongs to the administrator."""

    def exists(self) -> bool:
        """Return True if there is such a block device; never False.

        A node which does not see a device at the moment cannot tell whether the storage still has
        it: only the administrator, to whom the device belongs, knows that.

        :raises BlockDeviceError: this node does not see it, or it is something else.
        """
        try:
            found = os.stat(self._path)
        except OSError as err:
            raise self.fail("is not a block device on this node now", err) from err
        if not stat.S_ISBLK(found.st_mode):
            raise self.fail("is not a block device on this node")
        return True

    def assemble(self) -> None:
        """Check that the device exists.

        :raises BlockDeviceError: it does not exist.
        """
        self.exists()

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Refuse: only the administrator changes the size.

        :raises BlockDeviceError: always.
        """
        raise self.fail(f"disks of type '{disk_constants.BLOCK}' cannot grow")

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Refuse: only the administrator changes the name.

        :raises BlockDeviceError: always.
        """
        raise self.fail(f"disks of type '{disk_constants.BLOCK}' cannot be renamed")

    def size_bytes(self) -> int:
        """Return the size of the device in bytes."""
        try:
            with open(self._path, "rb") as stream:
                return stream.seek(0, os.SEEK_END)
        except OSError as err:
            raise self.fail("cannot be measured", err) from err

    def sync_status(self) -> BlockDevStatus:
        """In sync when the device exists.

        :raises BlockDeviceError: it does not exist.
        """
        try:
            number = os.stat(self._path).st_rdev
        except OSError as err:
            raise self.fail("cannot be examined", err) from err
        return self.in_sync(self._path, number)
