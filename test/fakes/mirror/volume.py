"""Logical volumes that are files."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

from fakes.mirror.content import LVM, MIB, own_root
from fakes.mirror.replica import Replica
from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.objects import snapshots
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice


class Volume(BlockDevice):
    """A logical volume that is a file."""

    @property
    def path(self) -> str:
        return "/".join((own_root(), LVM, *map(str, self.disk.logical_id)))

    @property
    def unique_id(self) -> str:
        return "/".join(map(str, self.disk.logical_id))

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        try:
            with open(self.path, "xb") as stream:
                stream.truncate(size_mib * MIB)
        except FileExistsError as err:
            raise self.fail("the volume exists already") from err

    def remove(self) -> None:
        self.until_free(self._use)
        for path in (*self._snapshots(), Path(self.path)):
            path.unlink(missing_ok=True)

    def _use(self) -> errors.BlockDeviceError | None:
        for minor in Replica.kernel.minors.values():
            if self.path in (minor.data, minor.meta):
                return self.fail("is in use")
        return None

    def _snapshots(self) -> list[Path]:
        own = Path(self.path)
        return sorted(own.parent.glob(f"{own.name}{snapshots.SEPARATOR}*"))

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        start = len(Path(self.path).name + snapshots.SEPARATOR)
        return [
            snapshots.SnapshotInfo(path.name[start:], path.stat().st_size, None, True)
            for path in self._snapshots()
        ]

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def assemble(self) -> None:
        if not self.exists():
            raise self.fail("does not exist")

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        if self._snapshots():
            raise self.fail("cannot grow while it has snapshots")
        if backing_store and not dry_run:
            os.truncate(self.path, self.size_bytes() + amount_mib * MIB)

    def rename(self, new_id: tuple[object, ...]) -> None:
        new = Volume(dataclasses.replace(self.disk, logical_id=new_id))
        if new.exists():
            if self.exists():
                raise self.fail(f"cannot be renamed to {new.unique_id}, which exists")
            return  # it was renamed already, as the driver of LVM finds out, too
        self.assemble()
        os.rename(self.path, new.path)
        self.disk = new.disk

    def size_bytes(self) -> int:
        self.assemble()
        return os.stat(self.path).st_size

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        new = (self.disk.logical_id[0], name)
        shutil.copyfile(self.path, Volume(dataclasses.replace(self.disk, logical_id=new)).path)
        return new

    def sync_status(self) -> BlockDevStatus:
        return BlockDevStatus(dev_path=self.path, is_degraded=False, ldisk_status=disk_c.LDS_OKAY)
