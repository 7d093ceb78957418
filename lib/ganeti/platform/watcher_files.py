"""Which runs of ``ganeti-watcher`` work on this node, for how long, and when one was complete.

A run holds a lock, and writes its process and the time into the file of the lock. When it has come
to its end and done its work, it writes a file whose time is that of the last complete run. So a run
which hangs is seen from both sides: its lock becomes old, and no other run is complete.

Source: manual page **ganeti-watcher**, *A RUN WHICH HANGS*.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ganeti.platform import paths
from ganeti.utils import clock, filelock, fs

_log = logging.getLogger(__name__)

_MODE: Final = 0o644
_HOLDER: Final = re.compile(r"([0-9]{1,9}) (-?[0-9]{1,12}\.[0-9])\n")


class Holder(NamedTuple):
    """A run which holds a lock.

    :ivar pid: its process.
    :ivar age_s: seconds for which it has run.
    """

    pid: int
    age_s: float


@contextlib.contextmanager
def noted(
    lock: filelock.FileLock, *, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Let the file of a lock say who holds it, and since when, until the block ends.

    A disk which is full is only logged: the work of the run is more important.
    """
    text = f"{os.getpid()} {monotonic():.1f}\n".encode()
    # A run which was killed may have left a text.
    os.ftruncate(lock.fileno(), 0)
    try:
        os.pwrite(lock.fileno(), text, 0)
    except OSError as err:
        _log.warning("cannot write since when this run works: %s: %s", lock.path, err.strerror)
    try:
        yield
    finally:
        os.ftruncate(lock.fileno(), 0)


def parse_holder(text: str) -> tuple[int, float]:
    """Read process and time, in seconds since the start of the machine.

    :raises ValueError: the text is none which a run has written.
    """
    found = _HOLDER.fullmatch(text)
    if found is None:
        raise ValueError(f"no process and time: {text!r:.40}")
    return int(found[1]), float(found[2])


def holder(path: str, *, monotonic: Callable[[], float] = time.monotonic) -> Holder | None:
    """Return who holds a lock; None when that is not known.

    The caller knows that the lock is held.

    :param path: the file of the lock.
    """
    try:
        pid, since = parse_holder(fs.read_file(path))
    except (OSError, ValueError):
        return None
    return Holder(pid, max(0.0, monotonic() - since))


def running(here: paths.Paths) -> dict[str, Holder]:
    """Return the runs which work on this node: UUID of a node group, or "" for the node -> run.

    A run of an earlier version, which does not say since when it works, is left out.

    :raises OSError: a lock cannot be read.
    """
    found = {}
    first = here.watcher_group_lock_file("*")
    before, after = first.split("*")
    for path in (here.watcher_lock_file, *glob.glob(f"{glob.escape(before)}*{after}")):
        if filelock.is_locked(path):
            one = holder(path)
            if one is not None:
                own = path == here.watcher_lock_file
                found["" if own else path.removeprefix(before).removesuffix(after)] = one
    return found


def note_complete(path: str) -> None:
    """Remember that a run is complete now; a disk which is full is only logged.

    :param path: a file of :class:`~ganeti.platform.paths.Paths`, such as ``watcher_complete_file``.
    """
    try:
        fs.write_file(path, "", mode=_MODE, sync=False)
    except OSError as err:
        _log.error("cannot remember that this run is complete: %s: %s", path, err.strerror)


def completed_at(path: str) -> float | None:
    """Return when a run was complete last, in seconds since 1970; None if that is not known."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def since_complete_s(path: str, *, now: Callable[[], float] = clock.now) -> float | None:
    """Return the seconds since the last complete run; None if that is not known."""
    found = completed_at(path)
    return None if found is None else max(0.0, now() - found)
