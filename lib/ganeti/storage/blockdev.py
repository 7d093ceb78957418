"""Block devices which the administrator made (disk template ``blockdev``), usually on a SAN.

The ``logical_id`` is ``("manual", path)``. The cluster takes such a device as it is and leaves it
as it is; all nodes of a group see it under the same path.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice

#: Only names that stay the same over a reboot may be adopted.
ROOT = "/dev/disk/"
_DRIVER = "manual"


class ManualDevice(BlockDevice):
    """A block device of the administrator."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        what = f"disk {disk.uuid or disk.iv_name}"
        if len(fields) != 2 or fields[0] != _DRIVER or not isinstance(fields[1], str):
            raise errors.BlockDeviceError(f"{what}: id {list(fields)} is not ['{_DRIVER}', path]")
        # Not resolved: the names are links, and lead to another place after each reboot.
        if not fields[1].startswith(ROOT) or os.path.normpath(fields[1]) != fields[1]:
            raise errors.BlockDeviceError(f"{what}: path {fields[1]} is not below {ROOT}")
        self._path: str = fields[1]

    @property
    def path(self) -> str:
        """The link below ``/dev/disk``."""
        return self._path

    @property
    def unique_id(self) -> str:
        """The same."""
        return self._path

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Nothing is made; the device must be there."""
        self.assemble()

    def remove(self) -> None:
        """Nothing: it was there before, and stays."""

    def exists(self) -> bool:
        """Whether there is such a block device."""
        try:
            return stat.S_ISBLK(os.stat(self._path).st_mode)
        except OSError:
            return False

    def assemble(self) -> None:
        """The device must be there."""
        if not self.exists():
            raise self.fail("is no block device on this node")

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Its size is the administrator's business."""
        raise self.fail(f"disks of type '{disk_constants.BLOCK}' cannot grow")

    def rename(self, new_id: tuple[object, ...]) -> None:
        """So is its name."""
        raise self.fail(f"disks of type '{disk_constants.BLOCK}' cannot be renamed")

    def size_bytes(self) -> int:
        """Size as the kernel knows it."""
        try:
            with open(self._path, "rb") as stream:
                return stream.seek(0, os.SEEK_END)
        except OSError as err:
            raise self.fail("cannot be measured", err) from err

    def sync_status(self) -> BlockDevStatus:
        """In order when it is there."""
        try:
            number = os.stat(self._path).st_rdev
        except OSError as err:
            raise self.fail("cannot be looked at", err) from err
        return BlockDevStatus(
            dev_path=self._path,
            major=os.major(number),
            minor=os.minor(number),
            is_degraded=False,
            ldisk_status=disk_constants.LDS_OKAY,
        )
