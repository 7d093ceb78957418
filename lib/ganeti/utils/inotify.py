"""Noticing at once that files of a directory change; the only module which imports pyinotify.

Programs also look at their files from time to time, because this may not work: where pyinotify or
the support of the kernel is missing, or its limits are reached, :func:`watch` returns None.

Source: inotify(7).
"""

from __future__ import annotations

import logging
from typing import Any


class DirectoryWatch:
    """Reports the names of files that are created, changed or removed in one directory.

    :param created: also report a file when it is created, before it has content. Sockets need it,
        because they never get content.
    """

    def __init__(self, directory: str, *, created: bool = False) -> None:
        """:raises OSError: the directory cannot be watched."""
        import pyinotify  # type: ignore[import-untyped,unused-ignore]

        self._manager = pyinotify.WatchManager()
        self._names: set[str] = set()
        self._overflow = pyinotify.IN_Q_OVERFLOW
        self._notifier = pyinotify.Notifier(self._manager, self._note, timeout=0)
        mask = (
            pyinotify.IN_CLOSE_WRITE
            | pyinotify.IN_MOVED_TO
            | pyinotify.IN_MOVED_FROM
            | pyinotify.IN_DELETE
            | (pyinotify.IN_CREATE if created else 0)
        )
        try:
            self._manager.add_watch(directory, mask, quiet=False)
        except pyinotify.WatchManagerError as err:
            self._notifier.stop()
            raise OSError(f"cannot watch {directory}: {err}") from err

    def fileno(self) -> int:
        """Return the file descriptor; it is readable when files have changed."""
        return int(self._manager.get_fd())

    def take(self) -> set[str]:
        """Return the names of the files that have changed since the last call; never waits.

        The empty name means that events were lost and any file may have changed.
        """
        while self._notifier.check_events(0):
            self._notifier.read_events()
            self._notifier.process_events()
        names, self._names = self._names, set()
        return names

    def close(self) -> None:
        """Stop watching."""
        self._notifier.stop()

    def _note(self, event: Any) -> None:
        self._names.add("" if event.mask & self._overflow else event.name)


def watch(directory: str, *, created: bool = False) -> DirectoryWatch | None:
    """Watch a directory; see :class:`DirectoryWatch`.

    :returns: None when changes cannot be watched on this machine.
    """
    try:
        return DirectoryWatch(directory, created=created)
    except (OSError, ImportError) as err:
        logging.info("changes in %s are noticed late, without inotify: %s", directory, err)
        return None
