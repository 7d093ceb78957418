"""Locks on disks which a program of this node is copying, wiping or filling.

Such work may take hours, and it goes on when the node call which began it has no caller any more:
the call took too long, or the master died. Until it ends, no guest may use the disk, and no other
work may begin on it.

A lock is a file below ``RUN_DIR/disk-locks`` with the lock of flock(2). The processes which do the
work have it open, and their programs inherit it. So the kernel releases the lock when the last of
them has ended, in any way, and at no other time.

:class:`ganeti.storage.base.BlockDevice` asks before each operation which opens, changes or removes
a device, and the start of a guest asks for all its disks. A mirrored disk is locked together with
the devices below it. The locks are those of one node: a disk on shared storage is locked on the
node which works on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import disk_templates
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import node_work
from ganeti.utils import clock, filelock, fs

# Who asks takes a shared lock for a moment, which must not look like work.
_PATIENCE_S = 1.0

#: Paths of the locks which this process holds.
_ours: set[str] = set()


class Work:
    """Work on disks, during which this process and the programs that it starts hold their locks.

    :ivar fds: open files, one for each lock, which every program that does a part of the work must
        inherit.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors of the locks, and of the record of the call which is being served."""
        return (*self._open.values(), *node_work.inherited_fds())

    def take(self, disk: Disk, doing: str) -> None:
        """Lock a disk and the devices below it.

        :param doing: what is done to the disk, as a participle: ``being wiped``.
        :raises BlockDeviceError: other work on it has not ended.
        """
        for part in disk.walk():
            path = _path(part)
            if path in self._open:
                continue
            self._open[path] = _acquire(path, part)
            _ours.add(path)
            text = f"{os.getpid()} {clock.now():.0f} {doing}\n".encode()
            os.truncate(path, 0)
            os.pwrite(self._open[path], text, 0)

    def release(self) -> None:
        """Let go of the locks; programs which inherited them and still run keep them."""
        while self._open:
            path, fd = self._open.popitem()
            _ours.discard(path)
            os.close(fd)
            discard(path)


@contextlib.contextmanager
def working_on(*disks: Disk, doing: str) -> Iterator[Work]:
    """Hold the locks of disks, and of the devices below them, until the end of the block.

    :param doing: what is done to the disks, as a participle: ``being wiped``.
    :raises BlockDeviceError: other work on one of them has not ended.
    """
    work = Work()
    try:
        for disk in disks:
            work.take(disk, doing)
        yield work
    finally:
        work.release()


def require_idle(disk: Disk) -> None:
    """Check that no other process works on a disk or a device below it.

    :raises BlockDeviceError: one does; says which, since when, and what to do.
    """
    for part in disk.walk():
        path = _path(part)
        if path not in _ours and filelock.is_locked(path):
            raise _refusal(path, part)


def _path(device: Disk) -> str:
    kind, where = device.dev_type, device.logical_id
    if kind == disk_constants.DRBD8:
        # The rest changes with the partner; the port is that of one disk in the whole cluster.
        where = (device.drbd_id.port,)
    elif kind in disk_templates.FILE_BASED:
        kind, where = disk_constants.FILE, (device.file_id.path,)
    name = "\0".join((kind, *map(str, where)))
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{paths.current().disk_locks_dir}/{digest}"


def _acquire(path: str, device: Disk) -> int:
    fs.make_dirs(os.path.dirname(path), 0o700)
    while True:
        lock = filelock.FileLock(path)
        try:
            lock.acquire(timeout_s=_PATIENCE_S)
            # The former holder may have removed the file after it was opened here.
            if _is_same(path, lock.fileno()):
                return os.dup(lock.fileno())
        except errors.LockError:
            raise _refusal(path, device) from None
        finally:
            lock.close()


def _is_same(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def discard(path: str) -> None:
    """Remove the file of a lock, unless a process still holds it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_same(path, fd):
            fs.remove_file(path)
    except BlockingIOError:
        # The next work on this disk removes it, or who looks for forgotten files of this node.
        return
    finally:
        os.close(fd)


# -- who holds a lock --------------------------------------------------------------


def _refusal(path: str, device: Disk) -> errors.BlockDeviceError:
    if device.has_replicas:
        what = f"drbd (port {device.drbd_id.port})"
    elif device.dev_type in disk_templates.FILE_BASED:
        what = device.file_id.path
    else:
        what = "/".join(map(str, device.logical_id))
    beginner, since, doing = _note(path)
    holders = list(node_work.holders(path)) or [(beginner, "")]
    names = [f"{pid} ({program})" if program else pid for pid, program in holders]
    return errors.BlockDeviceError(
        f"device {what}: it is {doing} since {since} (process {', '.join(names)} of this node)."
        " Wait until that has ended, or end it with"
        f" 'kill {' '.join(pid for pid, _program in holders)}' when nobody needs its"
        " result any more; then repeat the command."
    )


def _note(path: str) -> tuple[str, str, str]:
    """Return what the holder of a lock wrote: its process number, the time, and what it does."""
    try:
        pid, since, doing = fs.read_file(path).strip().split(" ", 2)
        return pid, clock.format_time(float(since)), doing
    except (OSError, ValueError):
        return "of unknown number", "a moment ago", "in use"
