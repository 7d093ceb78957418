"""The copy of the job queue on a master candidate, written by its node daemon.

Each message is durable when it is answered: its content is in the journal, flushed (:mod:`.store`).
A thread writes the files a moment later. So a master that sends many jobs does not wait until each
candidate has written a file for each of them, and a job that goes through several states within
that moment is written once.

A program that reads the directory meanwhile sees whole files, which are a moment old. A vote needs
the newest job id of all, so it reads the journals, too
(:func:`ganeti.jobstore.journal.journaled_serial`). When the process is killed, the next one that
opens the directory replays the journals.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ganeti.jobstore.store import QueueStore

_log = logging.getLogger(__name__)

#: Seconds between the first commit of a group and the moment at which its files are written.
APPLY_AFTER_S = 0.25


class QueueCopy:
    """An open copy; all calls come from one thread.

    :param store: the opened directory; it belongs to the copy from now on.
    :param apply_after_s: as :data:`APPLY_AFTER_S`.
    """

    def __init__(self, store: QueueStore, *, apply_after_s: float = APPLY_AFTER_S) -> None:
        self._store = store
        self._apply_after_s = apply_after_s
        self._lock = threading.Lock()
        # Whether a thread is started which will write everything committed until now.
        self._planned = False
        self._applying: list[threading.Thread] = []
        self._flushing: threading.Thread | None = None
        self._hurry = threading.Event()

    @property
    def removed(self) -> bool:
        """True if another process emptied the directory: further content of this copy is lost."""
        return self._store.removed

    def write(self, files: Mapping[str, str]) -> None:
        """Make new content durable.

        :param files: content by name in the queue directory.
        :raises errors.JobQueueError: the disk refused; nothing was changed.
        """
        self._store.commit(files)
        with self._lock:
            planned, self._planned = self._planned, True
        if not planned:
            thread = threading.Thread(target=self._apply, name="apply")
            self._applying = [one for one in self._applying if one.is_alive()] + [thread]
            thread.start()
        if self._store.has_old_journals and (
            self._flushing is None or not self._flushing.is_alive()
        ):
            self._flushing = threading.Thread(target=self._flush, name="checkpoint")
            self._flushing.start()

    def apply(self) -> None:
        """Write the committed content into its files; on an error it stays in the journal."""
        if not self._store.removed:
            self._store.apply()

    def unwritten(self) -> set[str]:
        """Return the names of the files whose newest content is in the journal only."""
        return self._store.unwritten()

    def close(self, *, abandon: bool = False) -> None:
        """Let other processes write the directory.

        :param abandon: another process will write the remaining files; False to write them here.
        """
        self._hurry.set()
        for thread in self._applying:
            thread.join()
        if self._flushing is not None:
            self._flushing.join()
        if abandon or self._store.removed:
            self._store.abandon()
        else:
            self._store.close()

    def _apply(self) -> None:
        self._hurry.wait(self._apply_after_s)
        with self._lock:
            self._planned = False
        self.apply()

    def _flush(self) -> None:
        """Flush the files of a journal that has grown, in a thread: messages must not wait."""
        try:
            if not self._store.removed:
                self._store.checkpoint()
        except OSError as err:
            _log.warning("cannot flush the copy of the job queue yet: %s", err)
