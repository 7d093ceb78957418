"""The operations of a block device.

Each operation does its work, or raises :class:`ganeti.errors.BlockDeviceError` with the name of the
device. Operations which establish a state (remove, assemble, shutdown, open, close) may be
repeated. ``create`` refuses a device which exists: its content never goes to a new owner.

Whether a device exists has three answers: it is present, it is absent, or it is not known, because
its storage cannot be asked or is not there. The third one is an error: what is not found at the
moment is not lost.

Operations which open, change or remove a device ask first for its lock
(:mod:`ganeti.storage.busy`). That applies to every class below :class:`BlockDevice`, without a line
of its own.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage import busy
from ganeti.utils import retry

#: How many seconds an operation is repeated which fails because something holds the device. Ceph
#: needs so long to notice that a client has died; udev and programs which look for file systems
#: need less.
BUSY_S = 30.0
_BUSY_DELAY = (0.1, 1.5, 2.0)

#: Operations during which no other program may work on the device.
_NEED_IDLE = frozenset(("create", "remove", "open", "grow", "rename", "snapshot", "keep_snapshot"))


def _cannot_help() -> bool:
    return False


def _asking(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Make an operation of a device ask for its lock first."""

    @functools.wraps(operation)
    def asks(device: BlockDevice, *args: Any, **kwargs: Any) -> Any:
        busy.require_idle(device.disk)
        return operation(device, *args, **kwargs)

    return asks


class BlockDevice(ABC):
    """The device of one disk on this node."""

    #: Whether the device is assembled on secondary nodes, too, where it is not writable.
    ASSEMBLED_ON_SECONDARY = False
    #: Whether a device must be assembled to find out its path.
    PATH_NEEDS_ASSEMBLY = False

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        #: Called when the device is found in use; whether it has ended a use of the device.
        self.on_busy: Callable[[], bool] = _cannot_help

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _NEED_IDLE & vars(cls).keys():
            setattr(cls, name, _asking(vars(cls)[name]))

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the device on this node, for guests and scripts."""

    @property
    def unique_id(self) -> str:
        """The name of the device on this node, for messages and for the master: its path."""
        return self.path

    @abstractmethod
    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Create the device.

        :param exclusive: no other device may be on its physical disks.
        :param owner: name of the instance; its devices may be on the same physical disks.
        :raises DeviceCreationError: it cannot be created, and something is left, which
            ``created_devices`` names; or it is not known whether something is left.
        :raises BlockDeviceError: it exists, or cannot be created; nothing is left behind.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the device with its content; one which does not exist is not an error."""

    def until_free(self, attempt: Callable[[], errors.BlockDeviceError | None]) -> None:
        """Repeat an operation which fails while something holds the device, such as udev.

        :param attempt: tries it once; returns the error when it may succeed later, and raises one
            when it never will.
        :raises BlockDeviceError: it did not succeed within :data:`BUSY_S`.
        """

        def once() -> None:
            problem = attempt()
            if problem is None:
                return
            try:
                if self.on_busy() and (problem := attempt()) is None:
                    return
            except errors.BlockDeviceError as err:
                problem = err
            raise retry.Again(problem)

        try:
            retry.until(once, timeout_s=BUSY_S, delay=_BUSY_DELAY)
        except errors.RetryTimeout as err:
            problem = err.args[0]
            raise problem from err

    @abstractmethod
    def exists(self) -> bool:
        """Return True if the device is present, False if it is surely absent.

        :raises BlockDeviceError: it is not known at the moment, so that it must not be taken for
            lost; says why.
        """

    def reachable(self) -> bool | None:
        """Return True if this node can use the device, False if it is surely absent here.

        The question changes nothing, because another node may use the device; None when it cannot
        be answered in this way.

        :raises BlockDeviceError: this node cannot use it now; says why.
        """
        return self.exists()

    @abstractmethod
    def assemble(self) -> None:
        """Make an existing device usable."""

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Make an assembled device writable; most kinds of devices always are."""
        busy.require_idle(self.disk)

    def close(self) -> None:
        """Undo :meth:`open`."""

    def shutdown(self) -> None:
        """Undo :meth:`assemble`; a device in use stays assembled."""

    @abstractmethod
    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Make the device larger.

        :param backing_store: grow the storage itself; False is a second pass for the layers above
            it, in which a simple device does nothing.
        :param exclusive: no other device is on its physical disks, and it stays on them.
        :raises BlockDeviceError: it cannot grow.
        """

    @abstractmethod
    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the device.

        :param new_id: its new ``logical_id``.
        :raises BlockDeviceError: the new name is taken, or the device cannot be renamed.
        """

    def set_info(self, text: str) -> None:
        """Attach a text to the device, if the storage can keep one."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Actual size in bytes."""

    def dimensions(self) -> tuple[int, int | None]:
        """Actual size in bytes, and the number of spindles if it is known."""
        return self.size_bytes(), None

    def require_latest_data(self) -> None:
        """Check that who reads the device gets every write which was ever confirmed.

        Everything which copies the content of a disk to another place calls it first. A device
        which is the only copy has nothing to compare.

        :raises BlockDeviceError: a part of the writes may be missing.
        """

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Take a snapshot for an operation which removes it later.

        :param name: of the new device.
        :param size_mib: capacity which the snapshot may use.
        :returns: ``logical_id`` of the snapshot.
        :raises BlockDeviceError: this kind of storage has no snapshots, or the device may lack
            writes which were confirmed.
        """
        raise errors.BlockDeviceError(
            f"device {self.unique_id}: disks of type '{self.disk.dev_type}' have no snapshots"
        )

    def keep_snapshot(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Take a snapshot which stays until a user removes it.

        :param name: of the snapshot.
        :param size_mib: capacity which the snapshot may use, if the storage limits it.
        :param at_rest: no program writes to the device at the same time.
        :raises BlockDeviceError: this kind of storage has no snapshots, or cannot take one now;
            nothing is left behind.
        """
        self.snapshot(snapshots.volume_name(self.disk.stored_name, name), size_mib)

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        """Return the kept snapshots of the device, sorted by name; also if the device is lost."""
        return []

    def sync_status(self) -> BlockDevStatus:
        """State of the device; a simple one is in sync when it exists."""
        return self.in_sync(self.path, None)

    @staticmethod
    def in_sync(path: str, number: int | None) -> BlockDevStatus:
        """Return the status of a device which is in sync.

        :param number: of the device of the kernel (``st_rdev``); None when there is none.
        """
        return BlockDevStatus(
            dev_path=path,
            is_degraded=False,
            ldisk_status=disk_constants.LDS_OKAY,
            major=None if number is None else os.major(number),
            minor=None if number is None else os.minor(number),
        )

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI by which a hypervisor opens the disk itself.

        The result is None for a device of this node.
        """
        return None

    def clean_up(self, what: str, is_there: Callable[[], bool]) -> NoReturn:
        """End :meth:`create` after a failure: remove what it may have made.

        :param what: as for :meth:`fail`.
        :param is_there: whether there is anything of it; the device did not exist before.
        :raises DeviceCreationError: something may be left.
        :raises BlockDeviceError: nothing is left.
        """
        try:
            if is_there():
                self.remove()
        except errors.GenericError as err:
            raise errors.DeviceCreationError(
                f"device {self.unique_id}: {what}; it may be left incomplete: {err}",
                [self.unique_id],
            ) from err
        raise self.fail(what)

    def wrong(self, what: str) -> errors.BlockDeviceError:
        """Make an error about the description of the disk, from which no device can be made.

        :param what: the rest of the sentence which begins with the name of the disk.
        """
        return errors.BlockDeviceError(f"disk {self.disk.uuid or self.disk.iv_name}: {what}")

    def fail(self, what: str, err: OSError | None = None) -> errors.BlockDeviceError:
        """Make an error about this device, which the caller raises.

        :param what: the rest of the sentence which begins with the name of the device.
        """
        reason = f": {err.strerror or err}" if err else ""
        return errors.BlockDeviceError(f"device {self.unique_id}: {what}{reason}")
