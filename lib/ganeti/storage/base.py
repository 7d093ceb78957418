"""The verbs of a block device.

Each verb does its work or raises :class:`ganeti.errors.BlockDeviceError` with the device's name in
it. Verbs that bring about a state (remove, assemble, shutdown, open, close) may be repeated.
``create`` refuses what exists already: a name is never taken over with its content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus


class BlockDevice(ABC):
    """One disk's device on this node."""

    #: Whether it is made usable, though not writable, on secondary nodes too.
    ASSEMBLED_ON_SECONDARY = False

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    @property
    @abstractmethod
    def path(self) -> str:
        """Where guests and scripts find it on this node."""

    @property
    @abstractmethod
    def unique_id(self) -> str:
        """What names the device on this node, for messages and the master."""

    @abstractmethod
    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Make the device.

        :param exclusive: it must share no physical disk with others.
        :param owner: the instance, beside whose other devices it may be put.
        """

    @abstractmethod
    def remove(self) -> None:
        """Destroy the device and its content; one that is missing is no error."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the device is there."""

    @abstractmethod
    def assemble(self) -> None:
        """Make an existing device usable."""

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Make an assembled device writable; most always are."""

    def close(self) -> None:
        """The inverse of :meth:`open`."""

    def shutdown(self) -> None:
        """The inverse of :meth:`assemble`; a device in use stays."""

    @abstractmethod
    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Add to the size.

        :param backing_store: this pass is for the storage itself; False is a second pass for layers
            above it, in which a simple device has nothing to do.
        :param exclusive: it has physical disks of its own, and stays on them.
        """

    @abstractmethod
    def rename(self, new_id: tuple[object, ...]) -> None:
        """Take the ``logical_id`` that the disk will have."""

    def set_info(self, text: str) -> None:
        """Attach a text, where the storage keeps one."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Actual size."""

    def dimensions(self) -> tuple[int, int | None]:
        """Actual size in bytes, and spindles when known."""
        return self.size_bytes(), None

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Make a copy of the present content; returns its ``logical_id``.

        :raises BlockDeviceError: this kind of storage cannot.
        """
        raise errors.BlockDeviceError(
            f"device {self.unique_id}: disks of type '{self.disk.dev_type}' have no snapshots"
        )

    def keep(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Make a snapshot of this name, to stay until somebody removes it.

        :param size_mib: room for it, where the storage wants to know.
        :param at_rest: nobody writes to the device meanwhile.
        :raises BlockDeviceError: this kind of storage cannot, or not now; nothing is left.
        """
        self.snapshot(snapshots.volume_name(str(self.disk.logical_id[1]), name), size_mib)

    def kept(self) -> list[snapshots.Found]:
        """The snapshots of the device, by name; of a device that is lost, those which remain."""
        return []

    def sync_status(self) -> BlockDevStatus:
        """State of the device; simple ones are in order when they exist."""
        return BlockDevStatus(
            dev_path=self.path, is_degraded=False, ldisk_status=disk_constants.LDS_OKAY
        )

    def uri(self, hypervisor: str) -> str | None:
        """How a hypervisor reaches the disk without a device of this node; None when it cannot."""
        return None

    def fail(self, what: str, err: OSError | None = None) -> errors.BlockDeviceError:
        """An error about this device, to be raised."""
        reason = f": {err.strerror or err}" if err else ""
        return errors.BlockDeviceError(f"device {self.unique_id}: {what}{reason}")
