"""A logical volume as a block device.

Its ``logical_id`` is ``(volume group, name)``. A volume is active from its creation on, and stays
so; only after a reboot, or when somebody deactivated it, does ``assemble`` have to run a program.
"""

from __future__ import annotations

import os
import re
import stat
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
    """A name of a volume group or logical volume.

    :raises BlockDeviceError: LVM would not accept it.
    """
    if (
        not isinstance(name, str)
        or not _NAME.match(name)
        or name.startswith("-")
        or name in _RESERVED
        or any(part in name for part in _RESERVED_PARTS)
    ):
        raise errors.BlockDeviceError(f"{name!r:.80} is no name for a {what}")
    return name


class LogicalVolumeDevice(BlockDevice):
    """A logical volume."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2:
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: id {list(fields)} is not [volume group, name]"
            )
        self.group = check_name(fields[0], "volume group")
        self.name = check_name(fields[1], "logical volume")
        # The tags of a volume which was made by this object, so that nobody has to ask.
        self._made_with: tuple[str, ...] | None = None

    @property
    def path(self) -> str:
        """The link which udev makes."""
        return f"/dev/{self.group}/{self.name}"

    @property
    def unique_id(self) -> str:
        """Group and name."""
        return f"{self.group}/{self.name}"

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Make the volume, beside the others of its owner where possible."""
        if size_mib <= 0:
            raise self.fail(f"a size of {size_mib} MiB is not possible")
        if self._known() is not None:
            raise self.fail("the volume exists already, and will not be overwritten")
        lvm = facts.here()
        tag = parse.safe_tag(f"originstname+{owner}") if owner else ""
        physical = place.usable(lvm.physical(), self.group)
        if not physical:
            raise self.fail(
                f"volume group {self.group} has no physical volume that takes new volumes"
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
                    f"volume group {self.group} has {free_mib:.0f} MiB free, {size_mib} are needed"
                )
            near = place.neighbours(lvm.volumes().values(), self.group, self.name, tag)
            stripes = int((self.disk.params or {}).get("stripes", 1))
            attempts = place.candidates(physical, near, size_mib, max(stripes, 1))
        self._try_to_create(size_mib, attempts, tag)

    def _try_to_create(
        self, size_mib: int, attempts: list[tuple[int, tuple[str, ...]]], tag: str
    ) -> None:
        problem = ""
        for stripes, devices in attempts:
            done = facts.here().change(
                argv.create_argv(self.group, self.name, size_mib, stripes, devices, tag),
                check=False,
            )
            if not done.failed:
                self._made_with = (tag,) if tag else ()
                return
            problem = done.output.strip() or done.fail_reason
        raise self.fail(f"cannot be made: {problem}")

    def remove(self) -> None:
        """Destroy the volume; one that is gone already is no error."""
        # LVM itself knows best whether it is there: asking first would cost as much again.
        done = facts.here().change(argv.remove_argv(self.group, self.name), check=False)
        if done.failed and self._known() is not None:
            raise self.fail(f"cannot be removed: {done.output.strip() or done.fail_reason}")

    def exists(self) -> bool:
        """Whether LVM knows it."""
        return self._known() is not None

    def assemble(self) -> None:
        """Activate the volume, when it is not."""
        if self.is_block_device():
            return
        self._change(argv.activate_argv(self.unique_id), "cannot be activated")
        if not self.is_block_device():
            raise self.fail(f"was activated, but there is no device {self.path}")

    def is_block_device(self) -> bool:
        """Whether its device is there; costs no program."""
        try:
            return stat.S_ISBLK(os.stat(self.path).st_mode)
        except OSError:
            return False

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Add to the volume: next to its end, else on the same device, else anywhere."""
        if not backing_store:
            return
        if amount_mib < 0:
            raise self.fail(f"cannot grow by {amount_mib} MiB")
        info = self._require()
        if info.is_origin:
            # LVM would refuse while it is active, and it is active whenever it is used.
            raise self.fail(
                "cannot grow while it has snapshots"
                f" ({', '.join(sorted(one.name for one in self._snapshots()))})"
            )
        # LVM rounds up, but stripes are only extended by whole rows of extents.
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
            problem = done.output.strip() or done.fail_reason
        raise self.fail(f"cannot grow by {amount_mib} MiB: {problem}")

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the volume; into another group it cannot go."""
        if len(new_id) != 2:
            raise self.fail(f"{list(new_id)} is not [volume group, name]")
        group, name = check_name(new_id[0], "volume group"), check_name(new_id[1], "logical volume")
        if group != self.group:
            raise self.fail(f"cannot go to another volume group ({group}) by renaming")
        if name == self.name:
            return
        done = facts.here().change(argv.rename_argv(group, self.name, name), check=False)
        if done.failed:
            there = self._volumes()
            if (group, name) not in there:
                raise self.fail(
                    f"cannot be renamed to {name}: {done.output.strip() or done.fail_reason}"
                )
            if (self.group, self.name) in there:
                raise self.fail(f"cannot be renamed to {name}, which exists")
            # Run again after an interruption: it was renamed already.
        self.name = name

    def set_info(self, text: str) -> None:
        """Let the text be the only tag."""
        tag = parse.safe_tag(text)
        # Of a new volume they are known; asking takes as long as setting one.
        present = self._require().tags if self._made_with is None else self._made_with
        self._made_with = None
        for old in present:
            if old != tag:
                self._change(argv.delete_tag_argv(self.path, old), f"cannot lose its tag {old}")
        if tag and tag not in present:
            self._change(argv.add_tag_argv(self.path, tag), f"cannot be tagged {tag}")

    def size_bytes(self) -> int:
        """Size as LVM knows it; the volume need not be active."""
        info = self._require()
        if info.is_snapshot:
            # Its own size is the room for differences.
            return self._ask_snapshots()[self.group, self.name].size_bytes
        return info.size_bytes

    def dimensions(self) -> tuple[int, int | None]:
        """Size, and how many physical volumes it is on."""
        return self.size_bytes(), len(self._require().devices)

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Make a snapshot in the same group."""
        target = check_name(name, "logical volume")
        free_mib = sum(vg.free_mib for vg in facts.here().groups() if vg.name == self.group)
        if free_mib < size_mib:
            raise self.fail(
                f"no room for a snapshot: volume group {self.group} has {free_mib:.0f} MiB free,"
                f" {size_mib} are needed"
            )
        tags = self._require().tags
        self._change(argv.snapshot_argv(self.path, target, size_mib, tags), "has no snapshot")
        return (self.group, target)

    def keep(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Make a snapshot; LVM holds up writes for the moment which that takes."""
        # Otherwise LVM would have to activate it just to begin.
        self.assemble()
        super().keep(name, size_mib, at_rest=at_rest)

    def kept(self) -> list[snapshots.Found]:
        """Those of LVM's snapshots which have a name of ours."""
        found = []
        for one in self._snapshots():
            parts = snapshots.split(one.name)
            if parts is not None and parts[0] == self.name:
                found.append(snapshots.Found(parts[1], one.size_bytes, one.made, one.usable))
        return sorted(found)

    def sync_status(self) -> BlockDevStatus:
        """Degraded while a physical volume is missing."""
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
            return facts.here().volumes()
        except errors.StorageError as err:
            raise self.fail(str(err)) from err

    def _ask_snapshots(self) -> dict[tuple[str, str], Snapshot]:
        try:
            return facts.here().snapshots()
        except errors.StorageError as err:
            raise self.fail(str(err)) from err

    def _snapshots(self) -> list[Snapshot]:
        """All there are of this volume, whoever made them."""
        return [
            one
            for one in self._ask_snapshots().values()
            if (one.group, one.origin) == (self.group, self.name)
        ]

    def _known(self) -> LogicalVolume | None:
        return self._volumes().get((self.group, self.name))

    def _require(self) -> LogicalVolume:
        known = self._known()
        if known is None:
            raise self.fail("does not exist")
        return known

    def _change(self, words: list[str], problem: str) -> None:
        try:
            facts.here().change(words)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err
