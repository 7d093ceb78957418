"""The end of a master daemon whose time is over.

The daemon acts under the epoch it won. As soon as it hears of a higher one, from a node that
refuses it or from this node's own memory, another master has taken over, and every further step
would be wrong: it ends at once, without finishing anything, as if it had been killed. What it did
not acknowledge until then is not acknowledged; its successor has marked its jobs as failed.

Its own files are guarded as those on other nodes are: configuration and queue are written only
while this node has promised itself to nobody else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.config.store import write_config_file
from ganeti.constants import cli as exit_codes
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch

# How often an idle master looks whether this node has heard of another one.
LOOK_S = 2.0


def end_process() -> None:
    """End now; nothing that waits is told anything."""
    logging.shutdown()
    os._exit(exit_codes.EXIT_NOTMASTER)


class Fence:
    """Lets the master act as long as its epoch is the highest.

    :param end: called when it is not; does not return in the daemon.
    """

    def __init__(self, epoch: master_epoch.Epoch, end: Callable[[], None] = end_process) -> None:
        self.epoch = epoch
        self._end = end
        self._stop = threading.Event()

    def newer(self, who: str, known: str) -> None:
        """Somebody obeys a higher epoch: end."""
        logging.critical(
            "%s obeys master epoch %s, ours is %s: another master has taken over. This master"
            " daemon ends at once.",
            who,
            known,
            self.epoch,
        )
        self._end()

    @contextlib.contextmanager
    def writing(self, kind: str) -> Iterator[None]:
        """The block writes a file of the master on this node.

        :raises StaleEpochError: the time is over (where ``end`` returns).
        """
        try:
            with master_epoch.writing(kind, self.epoch):
                yield
        except master_epoch.StaleEpochError as err:
            self.newer("this node", str(err.known))
            raise

    def write_config(self, path: str, text: Any) -> None:
        """As :func:`ganeti.config.store.write_config_file`.

        :raises OSError: nothing was changed.
        """
        try:
            with self.writing(master_epoch.CONFIG):
                write_config_file(path, text)
        except (errors.LockError, errors.ConfigurationError, master_epoch.StaleEpochError) as err:
            raise OSError(str(err)) from err

    def adopt_config(self) -> None:
        """The configuration that is here is the one of this epoch from now on.

        :raises StaleEpochError: the time is over (where ``end`` returns).
        """
        with self.writing(master_epoch.CONFIG):
            """The file stays as it is."""

    def watch(self) -> None:
        """Look now and then, in a thread, whether this node has heard of another master."""
        threading.Thread(target=self._watch, name="fence", daemon=True).start()

    def stop(self) -> None:
        """End the thread of :meth:`watch`."""
        self._stop.set()

    def look(self) -> None:
        """Look once."""
        try:
            known = master_epoch.read().epoch
        except errors.ConfigurationError as err:
            logging.error("cannot tell who is master: %s", err)
            return
        if known > self.epoch:
            self.newer("this node", str(known))

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self.look()


class FencedQueueStore(QueueStore):
    """The job queue of a master that may be replaced.

    Opened before the vote, so that it tells of all jobs, and written after :meth:`use_fence`.
    """

    def __init__(self, directory: str, **options: Any) -> None:
        super().__init__(directory, **options)
        self._fence: Fence | None = None
        self._opened = False

    def open(self) -> None:
        """As there; once."""
        if not self._opened:
            super().open()
            self._opened = True

    def use_fence(self, fence: Fence) -> None:
        """Write under this epoch from now on.

        :raises errors.JobQueueError: it is over already.
        """
        self._fence = fence
        with self._fenced():
            """What is here is the queue of this epoch from now on."""

    @contextlib.contextmanager
    def _fenced(self) -> Iterator[None]:
        if self._fence is None:
            raise errors.ProgrammerError("the job queue is written without being master")
        try:
            with self._fence.writing(master_epoch.QUEUE):
                yield
        except (errors.LockError, errors.ConfigurationError, master_epoch.StaleEpochError) as err:
            raise errors.JobQueueError(f"cannot write to the job queue: {err}") from err

    def commit(self, files: Mapping[str, str], archive: Sequence[int] = ()) -> None:
        """As there.

        :raises errors.JobQueueError: nothing was changed.
        """
        with self._fenced():
            super().commit(files, archive)
