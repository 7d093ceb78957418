"""Locks between processes, which the kernel keeps for open files.

A lock ends with the process that holds it, even after a crash. So a locked file shows that a
job or a daemon is alive (its *livelock*), and keeps two master daemons from using one job queue. A
forked child shares the lock of its parent as long as it keeps the file open; when the child calls
:meth:`FileLock.close`, the parent keeps the lock.

Source: flock(2).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

from ganeti import errors
from ganeti.utils import fs, retry

# The kernel cannot wait for a lock with a time limit, so we try again. Most locks are held for one
# write to a disk.
_DELAY = (0.001, 1.5, 0.1)


class FileLock:
    """A lock on one file, which is created with mode 0600 when it is missing; a context manager.

    The block does not acquire the lock; its end closes the file.

    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = fs.open_or_create(path, os.O_RDWR)
        self._held = False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"FileLock({self.path!r}, held={self._held})"

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._held

    def fileno(self) -> int:
        """Return the file descriptor; the process which holds the lock may write the file.

        :raises ProgrammerError: the lock is closed.
        """
        if self._fd is None:
            raise errors.ProgrammerError(f"lock file {self.path} is closed")
        return self._fd

    def acquire(
        self,
        shared: bool = False,
        timeout_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the lock, or change the held lock to a shared or exclusive one.

        :param shared: share the lock with other processes which ask for a shared one.
        :param timeout_s: seconds to wait; None waits without limit, 0 tries once.
        :raises LockError: another process held the lock until the time was over.
        """
        flags = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fd = self.fileno()
        if timeout_s is None:
            fcntl.flock(fd, flags)
        else:

            def attempt() -> None:
                try:
                    fcntl.flock(fd, flags | fcntl.LOCK_NB)
                except BlockingIOError as err:
                    raise retry.Again(self.path) from err

            try:
                retry.until(attempt, timeout_s=timeout_s, delay=_DELAY, clock=clock, sleep=sleep)
            except errors.RetryTimeout as err:
                raise errors.LockError(f"{self.path} is locked by another process") from err
        self._held = True

    def release(self) -> None:
        """Release the lock; the file stays open and can be locked again."""
        fcntl.flock(self.fileno(), fcntl.LOCK_UN)
        self._held = False

    def close(self) -> None:
        """Release the lock and close the file; a second call does nothing."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._held = False
            os.close(fd)


def is_locked(path: str) -> bool:
    """Return True if a process holds an exclusive lock on a file; a missing file is not locked.

    The function takes a shared lock for a moment. So processes which lock such a file must not
    give up at the first attempt.

    :raises OSError: the file exists but cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
