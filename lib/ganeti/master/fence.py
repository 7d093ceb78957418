"""The end of a master daemon after another master has taken over.

The daemon acts under the epoch which it won. When it hears of a higher one, from a node that
refuses it or from the file of this node, another master has taken over, and every further step
would be wrong. So it ends at once, without finishing anything, as if it had been killed. Requests
which it has not acknowledged stay unacknowledged; the new master has marked its jobs as failed.

The daemon's own files are guarded like those on other nodes: configuration and queue are written
only while this node has promised to obey no other master.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.configfile import files
from ganeti.configfile.content import Change
from ganeti.constants import cli as exit_codes
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch
from ganeti.utils import shortage

# Seconds between two checks whether this node has heard of another master.
CHECK_S = 2.0


def end_process() -> None:
    """End the process at once; waiting clients get no answer."""
    logging.shutdown()
    os._exit(exit_codes.EXIT_NOTMASTER)


class Fence:
    """Lets the master act as long as its epoch is the highest one.

    :param end: called when it is not; in the daemon it does not return.
    :ivar before_end: called before that; it ends the processes of jobs.
    :ivar on_write: called after each write with its kind, and with None or why it failed.
    """

    def __init__(self, epoch: master_epoch.Epoch, end: Callable[[], None] = end_process) -> None:
        self.epoch = epoch
        self._end = end
        self._stop = threading.Event()
        self.before_end: Callable[[], None] = lambda: None
        self.on_write: Callable[[str, str | None], None] = lambda _kind, _failure: None

    def give_up(self, why: str) -> None:
        """End, because this master cannot do its work; another node may be able to.

        :param why: a sentence for the log, without its full stop.
        """
        logging.critical("%s. This master daemon ends at once.", why)
        self.before_end()
        self._end()

    def newer(self, node: str, known: str) -> None:
        """End, because a node obeys a higher epoch.

        :param node: the node, for the log; `known` is the epoch.
        """
        logging.critical(
            "%s obeys master epoch %s, ours is %s: another master has taken over. This master"
            " daemon ends at once.",
            node,
            known,
            self.epoch,
        )
        self.before_end()
        self._end()

    @contextlib.contextmanager
    def writing(self, kind: str) -> Iterator[None]:
        """Guard a block which writes a file of the master on this node.

        :param kind: ``master_epoch.CONFIG`` or ``master_epoch.QUEUE``.
        :raises StaleEpochError: another master has taken over (if ``end`` returns).
        """
        try:
            with master_epoch.writing(kind, self.epoch):
                yield
        except master_epoch.StaleEpochError as err:
            self.newer("this node", str(err.known))
            raise

    def write_config(self, path: str, text: Any) -> None:
        """Write the file of the configuration under this epoch.

        Parameters are those of :func:`ganeti.configfile.files.write_config_file`.

        :raises OSError: nothing was changed.
        """
        with self._writing_config():
            files.write_config_file(path, text)

    def change_config(self, path: str, wanted: Change) -> bool:
        """Change the file of the configuration under this epoch.

        Parameters, result and errors are those of :func:`ganeti.configfile.files.change`.
        """
        with self._writing_config():
            return files.change(path, wanted)

    @contextlib.contextmanager
    def _writing_config(self) -> Iterator[None]:
        try:
            with self.writing(master_epoch.CONFIG):
                yield
        except OSError as err:
            why = f"{err.filename or 'the configuration'}: {err.strerror or err}"
            self.on_write(master_epoch.CONFIG, why)
            raise
        except (errors.LockError, errors.ConfigurationError, master_epoch.StaleEpochError) as err:
            raise OSError(str(err)) from err
        self.on_write(master_epoch.CONFIG, None)

    def adopt_config(self) -> None:
        """Record that the present configuration belongs to this epoch.

        :raises StaleEpochError: another master has taken over (if ``end`` returns).
        """
        with self.writing(master_epoch.CONFIG):
            """This records the epoch; the file stays as it is."""

    def watch(self) -> None:
        """Start a thread which checks every :data:`CHECK_S` seconds for another master."""
        threading.Thread(target=self._watch, name="fence", daemon=True).start()

    def stop(self) -> None:
        """End the thread of :meth:`watch`."""
        self._stop.set()

    def check(self) -> None:
        """End if this node has heard of another master."""
        try:
            with shortage.as_error():
                known = master_epoch.read().epoch
        except (errors.ConfigurationError, shortage.Lacking) as err:
            logging.error("cannot read the epoch of the master: %s", err)
            return
        if known > self.epoch:
            self.newer("this node", str(known))

    def _watch(self) -> None:
        while not self._stop.wait(CHECK_S):
            self.check()


class FencedQueueStore(QueueStore):
    """The job queue of a master that may be replaced.

    It is opened before the vote, which needs the highest job id, and written only after
    :meth:`use_fence`.
    """

    def __init__(self, directory: str, **options: Any) -> None:
        super().__init__(directory, **options)
        self._fence: Fence | None = None
        self._opened = False

    def open(self) -> None:
        """Open the directory, unless that is done already.

        :raises errors.JobQueueError: see :meth:`ganeti.jobstore.store.QueueStore.open`.
        """
        if not self._opened:
            super().open()
            self._opened = True

    def use_fence(self, fence: Fence, *, override: bool = False) -> None:
        """Write under this epoch from now on.

        :param override: the vote was overridden, so that there may be masters unknown to this node.
        :raises errors.JobQueueError: another master has taken over already.
        :raises errors.ConfigurationError: the epochs of this node cannot be read.
        """
        self._fence = fence
        before = master_epoch.read().queue
        self.taken_over = override or before.owner not in ("", fence.epoch.owner)
        # The first commit leaves a gap in the job ids. If the daemon ends before that, the queue
        # must not belong to this epoch yet, or the next start would leave none.
        with self._fenced(master_epoch.OTHER if self.taken_over else master_epoch.QUEUE):
            """This records that the present queue belongs to the epoch."""

    @contextlib.contextmanager
    def _fenced(self, kind: str = master_epoch.QUEUE) -> Iterator[None]:
        if self._fence is None:
            raise errors.ProgrammerError("the job queue is written before the fence is known")
        try:
            with self._fence.writing(kind):
                yield
        except (
            # Also of the lock and the epochs, for example when too many files are open.
            OSError,
            errors.LockError,
            errors.ConfigurationError,
            master_epoch.StaleEpochError,
        ) as err:
            raise errors.JobQueueError(f"cannot write to the job queue: {err}") from err

    def commit(self, files: Mapping[str, str], archive: Sequence[int] = ()) -> None:
        """Commit, if no other master has taken over.

        Parameters are those of :meth:`ganeti.jobstore.store.QueueStore.commit`.

        :raises errors.JobQueueError: nothing was changed.
        """
        with self._fenced():
            try:
                super().commit(files, archive)
            except errors.JobQueueError as err:
                self._note_write(str(err))
                raise
        self._note_write(None)

    def _note_write(self, failure: str | None) -> None:
        if self._fence is not None:
            self._fence.on_write(master_epoch.QUEUE, failure)
