"""A copy of the job queue, written for the master of another node.

Each message is durable when it is answered: its content is in the journal, flushed
(:mod:`.queue_store`). Its files follow a moment later, in a thread of their own. So a master that
hands in many jobs does not wait until each candidate has made a file of each, and a job that goes
through several states within that moment is written once.

Whoever looks at the directory meanwhile sees whole files of a moment ago. Who has to know the
newest of all (a vote) reads the journals, too: :func:`~ganeti.jobstore.store.journaled_serial`.
When the process is killed, the next one that opens the directory finishes what is in its journals.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ganeti.jobstore.store import QueueStore

_log = logging.getLogger(__name__)

#: How long what was committed may wait for what follows before it becomes files.
APPLY_AFTER_S = 0.25


class QueueCopy:
    """An open copy; one thread calls it.

    :param store: the directory, opened; it belongs to the copy from now on.
    :param apply_after_s: as :data:`APPLY_AFTER_S`.
    """

    def __init__(self, store: QueueStore, *, apply_after_s: float = APPLY_AFTER_S) -> None:
        self._store = store
        self._apply_after_s = apply_after_s
        self._lock = threading.Lock()
        # Whether a thread will see all that was committed until now.
        self._planned = False
        self._applying: list[threading.Thread] = []
        self._flushing: threading.Thread | None = None
        self._hurry = threading.Event()

    @property
    def removed(self) -> bool:
        """Whether somebody emptied the directory: what is written to this copy now is lost."""
        return self._store.removed

    def write(self, files: Mapping[str, str]) -> None:
        """Make new content durable.

        :param files: content by name in the queue directory.
        :raises errors.JobQueueError: nothing was changed.
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
        """Put into its files what has been written; what the disk refuses stays in the journal."""
        if not self._store.removed:
            self._store.apply()

    def close(self, *, abandon: bool = False) -> None:
        """Let others write the directory.

        :param abandon: another process will do what is left to do, else that is done here.
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
        """Free a journal that has grown; beside the messages, which must not wait for that."""
        try:
            if not self._store.removed:
                self._store.checkpoint()
        except OSError as err:
            _log.warning("cannot flush the copy of the job queue yet: %s", err)
