"""Locks between processes, kept by the kernel on an open file (``flock``).

A lock ends with the process that holds it, however it dies; that makes such files the sign of life
of a job or a daemon (*livelock*), and the guard against two masters on one queue. A forked child
shares its parent's lock as long as it keeps the file open; :meth:`FileLock.close` in the child
gives up only the child's share.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from types import TracebackType

from ganeti import errors
from ganeti.utils import retry

# The kernel cannot wait for a lock with a time limit, so it is tried again; as a rule it is held
# for one write to the disk.
_DELAY = (0.001, 1.5, 0.1)


class FileLock:
    """A lock on one file, which is created (mode 0600) when it is missing.

    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held = False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"FileLock({self.path!r}, held={self._held})"

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._held

    def fileno(self) -> int:
        """The open file; its content may be written by the holder.

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
        """Take the lock, or change the one that is held to ``shared`` or exclusive.

        :param timeout_s: None waits for ever, 0 tries once.
        :raises LockError: another process kept it until the time was over.
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
        """Give the lock up; the file stays open and can be locked again."""
        fcntl.flock(self.fileno(), fcntl.LOCK_UN)
        self._held = False

    def close(self) -> None:
        """Give up the lock and the file; closing twice does no harm."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._held = False
            os.close(fd)


def is_locked(path: str) -> bool:
    """Whether some process holds an exclusive lock on a file.

    Looks by taking a shared lock for a moment, so owners of such files take theirs with a time
    limit above zero. A missing file is not locked.

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
