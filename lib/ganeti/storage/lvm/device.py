"""A logical volume as a block device.

Its ``logical_id`` is ``(volume group, name)``. A volume is active from its creation on.
``assemble`` runs a program only after a reboot, or when an administrator has deactivated the
volume.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice
from ganeti.storage.lvm import argv, facts, parse, place
from ganeti.storage.lvm.parse import LogicalVolume, Snapshot

_NAME = re.compile(r"^[a-zA-Z0-9+_.-]+$")
_RESERVED = (".", "..", "snapshot", "pvmove")
_RESERVED_PARTS = ("_mlog", "_mimage")
_MIB = 1 << 20


def check_name(name: object, what: str) -> str:
    """Check the name of a volume group or logical volume, and return it.

    :param what: ``volume group`` or ``logical volume``.
    :raises BlockDeviceError: LVM would refuse it.
    """
    if (
        not isinstance(name, str)
        or not _NAME.fullmatch(name)
        or name.startswith("-")
        or name in _RESERVED
        or any(part in name for part in _RESERVED_PARTS)
    ):
        raise errors.BlockDeviceError(f"{name!r:.80} is not a valid name for a {what}")
    return name


class LogicalVolumeDevice(BlockDevice):
    """A disk which is a logical volume."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2:
            raise self.wrong(f"id {list(fields)} is not [volume group, name]")
        self.group = check_name(fields[0], "volume group")
        self.name = check_name(fields[1], "logical volume")
        # The tags of a volume which this object has created; no query is needed for them.
        self._created_with: tuple[str, ...] | None = None

    @property
    def path(self) -> str:
        """The path of the device, a link which udev makes."""
        return f"/dev/{self.group}/{self.name}"

    @property
    def unique_id(self) -> str:
        """Volume group and name."""
        return f"{self.group}/{self.name}"

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Create the volume, if possible on physical volumes which hold others of its owner."""
        if size_mib <= 0:
            raise self.fail(f"a size of {size_mib} MiB is not possible")
        if self._known() is not None:
            raise self.fail("the volume exists already, and will not be overwritten")
        lvm = facts.here()
        tag = parse.safe_tag(f"originstname+{owner}") if owner else ""
        physical = place.usable(lvm.physical(self.group), self.group)
        self._require_one_group()
        if not physical:
            raise self.fail(
                f"volume group {self.group} has no physical volume which accepts new volumes"
            )
        if exclusive:
            try:
                names = place.exclusive(physical, size_mib, self.disk.spindles)
            except errors.StorageError as err:
                raise self.fail(str(err)) from err
            attempts = [(len(names), tuple(names))]
        else:
            free_mib = sum(pv.free for pv in physical)
            if free_mib < size_mib:
                raise self.fail(
                    f"volume group {self.group} has {free_mib:.0f} MiB free, but {size_mib} MiB"
                    " are needed"
                )
            near = place.neighbours(lvm.volumes(self.group).values(), self.group, self.name, tag)
            stripes = int((self.disk.params or {}).get("stripes", 1))
            attempts = place.candidates(physical, near, size_mib, max(stripes, 1))
        self._try_to_create(size_mib, attempts, tag)

    def _try_to_create(
        self, size_mib: int, attempts: list[tuple[int, tuple[str, ...]]], tag: str
    ) -> None:
        problem = ""
        for stripes, devices in attempts:
            command = argv.create_argv(self.group, self.name, size_mib, stripes, devices, tag)
            try:
                done = facts.here().change(command, check=False)
            except errors.CommandError as err:
                problem = str(err)
                break
            if not done.failed:
                self._created_with = (tag,) if tag else ()
                return
            problem = done.problem
        # It did not exist before, so what is there now is of these commands.
        self.clean_up(f"cannot be created: {problem}", lambda: self._known() is not None)

    def remove(self) -> None:
        """Remove the volume; one which does not exist is not an error."""
        self.until_free(self._try_to_remove)

    def _try_to_remove(self) -> errors.BlockDeviceError | None:
        # Its existence is checked only after a failure: a query takes as long as the removal.
        done = facts.here().change(argv.remove_argv(self.group, self.name), check=False)
        if done.failed and self.exists():
            return self.fail(f"cannot be removed: {done.problem}")
        return None

    def exists(self) -> bool:
        """Return True if the volume exists; absent is only a volume of a complete volume group.

        :raises BlockDeviceError: LVM cannot be queried, or the volume is not listed and its volume
            group is missing or lacks physical volumes: it may come back with its data.
        """
        if self._known() is not None:
            return True
        try:
            found = facts.here().groups(self.group)
            groups = [group for group in found if group.name == self.group]
            facts.here().require_one(self.group)
        except errors.StorageError as err:
            raise self.fail(str(err)) from err
        if not groups:
            raise self.fail(
                f"it is not known whether it exists: there is no volume group {self.group} on this"
                " node now. Make it available. If it is really lost, make a new one of that name."
            )
        if any(group.partial for group in groups):
            raise self.fail(
                "it is not known whether it exists: physical volumes of volume group"
                f" {self.group} are missing. Make them available. If they are really lost, remove"
                f" them with 'vgreduce --removemissing {self.group}'."
            )
        return False

    def assemble(self) -> None:
        """Activate the volume, if it is not active."""
        if self.is_block_device():
            return
        self._change(argv.activate_argv(self.unique_id), "cannot be activated")
        if not self.is_block_device():
            raise self.fail(f"was activated, but {self.path} does not exist")

    def is_block_device(self) -> bool:
        """Return True if its device exists; runs no program."""
        try:
            return stat.S_ISBLK(os.stat(self.path).st_mode)
        except OSError:
            return False

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Make the volume larger: next to its end, else on the same device, else anywhere."""
        if not backing_store:
            return
        if amount_mib < 0:
            raise self.fail(f"cannot grow by {amount_mib} MiB")
        info = self._require()
        if info.is_origin:
            # LVM refuses this for an active volume, and a volume in use is always active.
            raise self.fail(
                "cannot grow while it has snapshots"
                f" ({', '.join(sorted(one.name for one in self._snapshots()))})"
            )
        # LVM rounds up, but extends striped volumes by whole rows of extents only.
        row_kib = max(info.extent_bytes * max(info.stripes, 1) // 1024, 1)
        amount_kib = -(-amount_mib * 1024 // row_kib) * row_kib
        devices = info.devices if exclusive else ()
        problem = ""
        for policy in argv.GROW_POLICIES:
            done = facts.here().change(
                argv.extend_argv(self.path, amount_kib, policy, dry_run=dry_run, devices=devices),
                check=False,
            )
            if not done.failed:
                return
            problem = done.problem
        raise self.fail(f"cannot grow by {amount_mib} MiB: {problem}")

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the volume within its volume group."""
        if len(new_id) != 2:
            raise self.fail(f"{list(new_id)} is not [volume group, name]")
        group, name = check_name(new_id[0], "volume group"), check_name(new_id[1], "logical volume")
        if group != self.group:
            raise self.fail(f"cannot be renamed into another volume group ({group})")
        if name == self.name:
            return
        done = facts.here().change(argv.rename_argv(group, self.name, name), check=False)
        if done.failed:
            there = self._volumes()
            if (group, name) not in there:
                raise self.fail(f"cannot be renamed to {name}: {done.problem}")
            if (self.group, self.name) in there:
                raise self.fail(f"cannot be renamed to {name}, which exists")
            # An interrupted operation, which runs again, has already renamed it.
        self.name = name

    def set_info(self, text: str) -> None:
        """Make the text the only tag of the volume."""
        tag = parse.safe_tag(text)
        # The tags of a new volume are known, and a query takes as long as setting one.
        present = self._require().tags if self._created_with is None else self._created_with
        self._created_with = None
        for old in present:
            if old != tag:
                self._change(argv.delete_tag_argv(self.path, old), f"cannot remove its tag {old}")
        if tag and tag not in present:
            self._change(argv.add_tag_argv(self.path, tag), f"cannot add the tag {tag}")

    def size_bytes(self) -> int:
        """Return the size from LVM in bytes; the volume need not be active."""
        info = self._require()
        if info.is_snapshot:
            # Its own size is the capacity for differences.
            return self._all_snapshots()[self.group, self.name].size_bytes
        return info.size_bytes

    def dimensions(self) -> tuple[int, int | None]:
        """Return the size in bytes, and number of physical volumes."""
        return self.size_bytes(), len(self._require().devices)

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Take a snapshot in the same volume group."""
        target = check_name(name, "logical volume")
        groups = facts.here().groups(self.group)
        free_mib = sum(vg.free_mib for vg in groups if vg.name == self.group)
        self._require_one_group()
        if free_mib < size_mib:
            raise self.fail(
                f"cannot take a snapshot: volume group {self.group} has {free_mib:.0f} MiB free,"
                f" but {size_mib} MiB are needed"
            )
        tags = self._require().tags
        made = LogicalVolumeDevice(replace(self.disk, logical_id=(self.group, target)))
        if made.exists():
            raise self.fail(f"cannot take a snapshot: {made.unique_id} exists already")
        try:
            facts.here().change(argv.snapshot_argv(self.path, target, size_mib, tags))
        except errors.CommandError as err:
            made.clean_up(f"cannot be taken as a snapshot of {self.unique_id}: {err}", made.exists)
        return (self.group, target)

    def keep_snapshot(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Take a snapshot; LVM delays writes for a moment."""
        # LVM would activate the volume for the snapshot only.
        self.assemble()
        super().keep_snapshot(name, size_mib, at_rest=at_rest)

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        """Return the snapshots of the volume whose names are those of kept snapshots."""
        found = []
        for one in self._snapshots():
            parts = snapshots.split(one.name)
            if parts is not None and parts[0] == self.name:
                found.append(snapshots.SnapshotInfo(parts[1], one.size_bytes, one.made, one.usable))
        return sorted(found)

    def sync_status(self) -> BlockDevStatus:
        """Degraded while one of its physical volumes is missing."""
        info = self._require()
        degraded = info.degraded
        return BlockDevStatus(
            dev_path=self.path,
            major=info.major,
            minor=info.minor,
            is_degraded=degraded,
            ldisk_status=disk_constants.LDS_FAULTY if degraded else disk_constants.LDS_OKAY,
        )

    def _volumes(self) -> dict[tuple[str, str], LogicalVolume]:
        try:
            return facts.here().volumes(self.group)
        except errors.StorageError as err:
            raise self.fail(str(err)) from err

    def _all_snapshots(self) -> dict[tuple[str, str], Snapshot]:
        try:
            return facts.here().snapshots(self.group)
        except errors.StorageError as err:
            raise self.fail(str(err)) from err

    def _snapshots(self) -> list[Snapshot]:
        """Return all snapshots of this volume, also those of an administrator."""
        return [
            one
            for one in self._all_snapshots().values()
            if (one.group, one.origin) == (self.group, self.name)
        ]

    def _known(self) -> LogicalVolume | None:
        found = self._volumes().get((self.group, self.name))
        self._require_one_group()
        return found

    def _require_one_group(self) -> None:
        try:
            facts.here().require_one(self.group)
        except errors.StorageError as err:
            raise self.fail(str(err)) from err

    def _require(self) -> LogicalVolume:
        known = self._known()
        if known is None:
            raise self.fail("does not exist")
        return known

    def _change(self, command: list[str], problem: str) -> None:
        try:
            facts.here().change(command)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err
