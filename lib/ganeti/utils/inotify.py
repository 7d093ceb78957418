"""Noticing that files of a directory change; the only user of pyinotify.

A convenience, not a promise: where pyinotify or the kernel's part is missing (or its limits are
used up), :func:`watch` returns None, and whoever waits looks at the files from time to time, which
he does anyway.
"""

from __future__ import annotations

import logging
from typing import Any


class DirectoryWatch:
    """Tells the names of files that came, changed or went in one directory.

    :param created: also at the moment when a file is made, before it has any content; for sockets,
        which never get any.
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
        """Readable when something happened."""
        return int(self._manager.get_fd())

    def take(self) -> set[str]:
        """Names of the files that changed since the last call; never waits.

        The empty name says that events were lost: anything may have changed.
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
    """Watch a directory, or None when that cannot be done here."""
    try:
        return DirectoryWatch(directory, created=created)
    except (OSError, ImportError) as err:
        logging.info("changes in %s are only noticed by looking: %s", directory, err)
        return None
