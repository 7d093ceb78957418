"""The committer: one thread that makes changes of jobs durable, many at a time.

Code which changes a job calls :meth:`Committer.touch` with the queue's lock held and gets the
*batch* which will contain the change. While one batch is being written the next one collects, so
all jobs which changed meanwhile share one flush and one message to the candidates, and the cost per
job falls as the load rises.

Three threads work one after the other, and each takes everything that the previous one has
finished: the committer writes the journal, the applier hands the content to the candidates' senders
and replaces files, the announcer publishes.

A batch passes two marks. It is *durable* when the journal is flushed: from then on a worker may act
on it. It is *published* when the files are in place and the candidates have it: from then on
clients see it (Ganeti design 2.0, *Job Queue*). Callbacks for the second mark run in the announcer,
in the order of the batches; a slow candidate delays answers, but never the disk.

In a cluster whose master is replaced automatically, another node may be the master already when too
few candidates have a batch, and it does not know what is in it. So an opcode does not begin before
a majority knows that (:meth:`Committer.start_waits`), and the end of a job is published when a
majority has it: until then the job is written and sent again.

When the disk refuses a write, new jobs are given up and their submitters get the error; changes of
existing jobs stay in memory and are tried again until they are written.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ganeti import errors
from ganeti.jobstore.files import SERIAL, job_file
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import job as jobs
from ganeti.utils import shortage

_log = logging.getLogger(__name__)

#: Called once with None, or with the reason why a batch was given up.
Done = Callable[[errors.JobQueueError | None], None]


class Waiter:
    """Waits for one call of :meth:`done`."""

    __slots__ = ("_error", "_event", "_result")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._result: Any = None
        self._error: Exception | None = None

    def done(self, result: Any, error: Exception | None) -> None:
        """End the wait with a result, or with an error."""
        self._result = result
        self._error = error
        self._event.set()

    def wait(self) -> Any:
        """Wait for :meth:`done`; return its result or raise its error."""
        self._event.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Batch:
    """The content of one commit.

    :ivar changed: jobs by id; filled with the queue's lock held until the committer takes the
        batch.
    :ivar archive: ids of jobs to be archived.
    :ivar serial: the highest job id given out; None when it did not change.
    :ivar snapshots: the changed jobs as they are written.
    :ivar shortfall: when it is published: see :class:`Delivered`.
    """

    __slots__ = (
        "_closed",
        "_durable",
        "_published",
        "archive",
        "changed",
        "serial",
        "shortfall",
        "snapshots",
    )

    def __init__(self, *, closed: bool = False) -> None:
        """Make an empty batch.

        :param closed: it will never be written; its callbacks get an error at once.
        """
        self.changed: dict[int, jobs.QueuedJob] = {}
        self.archive: list[int] = []
        self.serial: int | None = None
        self.snapshots: list[jobs.JobSnapshot] = []
        self.shortfall = ""
        self._durable: list[Done] = []
        self._published: list[Done] = []
        self._closed = closed

    @property
    def empty(self) -> bool:
        """True if there is nothing to write."""
        return not self.changed and not self.archive and self.serial is None

    def when_durable(self, done: Done) -> None:
        """Call `done` in the committer's thread when the batch is durable. Needs the queue's lock.

        `done` gets an error only for a batch that was given up: at shutdown, or, if it contains new
        jobs, because they could not be stored.
        """
        if self._closed:
            done(errors.JobQueueError("the job queue is stopped"))
        else:
            self._durable.append(done)

    def when_published(self, done: Done) -> None:
        """Call `done` in the announcer's thread when the batch is published.

        Needs the queue's lock. `done` gets an error for a batch that was given up.
        """
        if self._closed:
            done(errors.JobQueueError("the job queue is stopped"))
        else:
            self._published.append(done)

    def run_durable(self) -> None:
        """Run the callbacks of :meth:`when_durable`."""
        for done in self._durable:
            done(None)

    def run_published(self) -> None:
        """Run the callbacks of :meth:`when_published`."""
        for done in self._published:
            done(None)

    def run_failed(self, error: errors.JobQueueError) -> None:
        """Run all callbacks with the reason why the batch was given up."""
        for done in (*self._durable, *self._published):
            done(error)

    def take_over(self, other: Batch) -> None:
        """Take over the content and the callbacks of `other`, whose write failed.

        Where both have a value, the one of this batch is newer and stays.
        """
        self.changed = {**other.changed, **self.changed}
        self.archive = other.archive + self.archive
        self.serial = other.serial if self.serial is None else self.serial
        self._durable = other._durable + self._durable
        self._published = other._published + self._published


class Delivered(NamedTuple):
    """Where a commit is, after the wait for the candidates.

    :ivar alone: there are candidates, and none of them has the commit.
    :ivar shortfall: a majority of the candidates is wanted and does not have it: the numbers, for a
        message. Empty otherwise.
    """

    alone: bool = False
    shortfall: str = ""


class Send(Protocol):
    """Hands a commit to the senders of the candidates."""

    def __call__(
        self, files: dict[str, str], archived: Sequence[int], *, ended: bool
    ) -> Callable[[], Delivered]:
        """Begin to send a commit.

        :param files: content by file name.
        :param archived: ids of jobs which were archived.
        :param ended: whether all jobs of the commit have ended.
        :returns: a function which waits until the candidates have the commit, for a bounded time.
        """


class Pace(NamedTuple):
    """When the committer acts without a change.

    :ivar retry_s: seconds before a refused write is tried again.
    :ivar idle_flush_s: seconds without a change after which the job files are flushed.
    """

    retry_s: float = 1.0
    idle_flush_s: float = 5.0


_USUAL_PACE = Pace()


class Committer:
    """Collects changes and writes them.

    :param lock: the queue's lock; guards the jobs and the open batch.
    :param send: called with each durable commit; None when there are no candidates.
    :param publish: called with each batch to be published, before its callbacks, without the lock.
    :param alone: called with new jobs of which no candidate has a copy, although there are some.
    :param fatal: called when one of the threads dies of a bug; without them nothing can go on.
    :param majority: whether a majority of the candidates is wanted for each commit.
    """

    def __init__(
        self,
        store: QueueStore,
        lock: threading.RLock,
        *,
        send: Send | None,
        publish: Callable[[Batch], None],
        fatal: Callable[[], None],
        alone: Callable[[Sequence[jobs.QueuedJob]], None] = lambda _jobs: None,
        majority: Callable[[], bool] = lambda: False,
        pace: Pace = _USUAL_PACE,
    ) -> None:
        self._store = store
        self._fatal = fatal
        self._lock = lock
        self._send = send or _send_nothing
        self._publish = publish
        self._alone = alone
        self._majority = majority
        self._retry_s, self._idle_flush_s = pace
        self._work = threading.Condition(lock)
        self._open = Batch()
        self._new = Batch()
        self._stopping = False
        # Set with the lock held when the last batch was taken; nothing is written after it.
        self._ended = False
        self._announce_work = threading.Condition()
        self._announcements: collections.deque[Callable[[], None] | None] = collections.deque()
        self._apply_work = threading.Condition()
        self._written: collections.deque[tuple[list[Batch], dict[str, str], list[int]]] = (
            collections.deque()
        )
        self._all_written = False
        self._applying = self._thread("jq-apply", self._apply)
        self._committing = self._thread("jq-commit", self._run)
        self._announcing = self._thread("jq-announce", self._announce)
        self._flushing = self._thread("jq-flush", self._flush)
        self._flush_wanted = threading.Event()
        self._started = False

    def _thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                loop()
            except BaseException:
                _log.critical("thread %s has ended by an internal error", name, exc_info=True)
                self._fatal()
                raise

        return threading.Thread(target=run, name=name, daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._started = True
        for thread in (self._committing, self._applying, self._announcing, self._flushing):
            thread.start()

    def stop(self) -> None:
        """Write the last changes, flush everything, end the threads.

        A change which cannot be written is given up after one more attempt; its callbacks get an
        error.
        """
        with self._lock:
            self._stopping = True
            self._work.notify_all()
        if self._started:
            self._committing.join()
            with self._apply_work:
                self._all_written = True
                self._apply_work.notify()
            self._applying.join()
            self.later(None)
            self._announcing.join()
            self._flush_wanted.set()
            self._flushing.join()
        self._store.close()

    # -- collecting ------------------------------------------------------------------------------

    def touch(self, job: jobs.QueuedJob) -> Batch:
        """Take a changed job; return the batch that will contain it. Needs the queue's lock."""
        if self._ended:
            # The job ran longer than the stop waited. The next start finds its last written state.
            return Batch(closed=True)
        self._open.changed[job.id] = job
        self._work.notify()
        return self._open

    def start_waits(self) -> bool:
        """Return True if an opcode waits for the candidates, and not only for the disk, to
        begin.
        """
        return self._majority()

    def add_new(self, new: Sequence[jobs.QueuedJob], serial: int) -> Batch:
        """Take new jobs; return the batch that will contain them. Needs the queue's lock."""
        if self._ended:
            return Batch(closed=True)
        for job in new:
            self._new.changed[job.id] = job
        self._new.serial = serial
        self._work.notify()
        return self._new

    def archive(self, job_ids: Sequence[int]) -> Batch:
        """Archive jobs; return the batch that will contain that. Needs the queue's lock."""
        if self._ended:
            return Batch(closed=True)
        self._open.archive.extend(job_ids)
        self._work.notify()
        return self._open

    def later(self, action: Callable[[], None] | None) -> None:
        """Run `action` in the announcer's thread; None ends that thread."""
        with self._announce_work:
            self._announcements.append(action)
            self._announce_work.notify()

    # -- writing ---------------------------------------------------------------------------------

    def _run(self) -> None:
        refused = False
        while True:
            with self._lock:
                while self._open.empty and self._new.empty and not self._stopping:
                    if not self._work.wait(self._idle_flush_s) and self._store.journal_used:
                        break
                if refused and not self._stopping and self._new.empty:
                    self._work.wait(self._retry_s)
                stopping = self._stopping
                idle = self._open.empty and self._new.empty
                self._ended = stopping and idle
                old, new = self._open, self._new
                if not idle:
                    self._open, self._new = Batch(), Batch()
                    for batch in (old, new):
                        batch.snapshots = [job.snapshot() for job in batch.changed.values()]
            if idle:
                if stopping:
                    self._store.end_journal()
                    return
                self._store.end_journal()
                self._flush_wanted.set()
                continue
            refused = not self._write(old, new)
            if refused and stopping:
                self._give_up()
                return
            if self._store.has_old_journals:
                self._flush_wanted.set()

    def _write(self, old: Batch, new: Batch) -> bool:
        """Write both batches with one flush.

        :returns: False when the disk refused; then the new jobs were given up.
        """
        both = [batch for batch in (old, new) if not batch.empty]
        files, archive = _content(both)
        try:
            self._store.commit(files, archive)
        except errors.JobQueueError as err:
            _log.error("%s", err)
            if not new.empty:
                new.run_failed(err)
            if not old.empty:
                with self._lock:
                    self._open.take_over(old)
            return False
        with self._lock:
            for snapshot in new.snapshots:
                snapshot.job.new = False
        for batch in both:
            batch.run_durable()
        with self._apply_work:
            self._written.append((both, files, archive))
            self._apply_work.notify()
        return True

    def _give_up(self) -> None:
        with self._lock:
            self._ended = True
            lost, self._open = self._open, Batch()
            new, self._new = self._new, Batch()
        error = errors.JobQueueError("the job queue was stopped before this could be written")
        for batch in (lost, new):
            batch.run_failed(error)
        self._store.end_journal()

    def _publish_batches(self, batches: Sequence[Batch], wait: Callable[[], Delivered]) -> None:
        delivered = wait()
        for batch in batches:
            batch.shortfall = delivered.shortfall
            if delivered.alone and batch.serial is not None:
                self._alone([snapshot.job for snapshot in batch.snapshots])
            if delivered.shortfall:
                self._hold_ends(batch)
            self._publish(batch)
            batch.run_published()

    def _hold_ends(self, batch: Batch) -> None:
        """Take the ends of jobs out of a batch which is published; they are sent again."""
        held = [snapshot.job for snapshot in batch.snapshots if snapshot.state.end is not None]
        batch.snapshots = [one for one in batch.snapshots if one.state.end is None]
        if not held:
            return

        def again() -> None:
            with self._lock:
                for job in held:
                    self.touch(job)

        if not shortage.start_thread_after(self._retry_s, again, name="jq-again"):
            time.sleep(self._retry_s)
            again()

    # -- the other threads -----------------------------------------------------------------------

    def _apply(self) -> None:
        """Write durable commits into the job files and send them, several commits at once.

        A job that went through several states meanwhile is written and sent in its last one.
        """
        while True:
            with self._apply_work:
                while not self._written and not self._all_written:
                    self._apply_work.wait()
                if not self._written:
                    return
                taken = list(self._written)
                self._written.clear()
            batches: list[Batch] = []
            files: dict[str, str] = {}
            archive: list[int] = []
            for some, their_files, their_archive in taken:
                batches += some
                files.update(their_files)
                archive += their_archive
            ended = all(
                snapshot.state.end is not None for batch in batches for snapshot in batch.snapshots
            )
            # The candidates write their copies while this node writes its files.
            wait = self._send(files, archive, ended=ended)
            self._store.apply()
            self.later(functools.partial(self._publish_batches, batches, wait))

    def _announce(self) -> None:
        while True:
            with self._announce_work:
                while not self._announcements:
                    self._announce_work.wait()
                action = self._announcements.popleft()
            if action is None:
                return
            action()

    def _flush(self) -> None:
        while True:
            self._flush_wanted.wait()
            self._flush_wanted.clear()
            try:
                self._store.checkpoint()
            except OSError as err:
                _log.warning("cannot flush the job queue yet, its journal stays: %s", err)
                time.sleep(self._retry_s)
            with self._lock:
                if self._stopping and not self._committing.is_alive():
                    return


def _content(batches: Sequence[Batch]) -> tuple[dict[str, str], list[int]]:
    files: dict[str, str] = {}
    archive: list[int] = []
    for batch in batches:
        for snapshot in batch.snapshots:
            files[job_file(snapshot.job.id)] = jobs.encode(snapshot)
        if batch.serial is not None:
            files[SERIAL] = f"{batch.serial}\n"
        archive.extend(batch.archive)
    return files, archive


def _send_nothing(
    files: dict[str, str], archived: Sequence[int], *, ended: bool
) -> Callable[[], Delivered]:
    """Send nothing, because there are no candidates."""
    return Delivered
