"""The jobs in memory: which may start, their execution, their ends.

:class:`Engine` is the inner half of :class:`~ganeti.jqueue.queue.JobQueue`. One lock guards the
jobs; it is never held during disk or network I/O. Workers execute the jobs that may start, and
everything that changed is written by the :class:`~ganeti.jqueue.commit.Committer`.

A restart (seed 001 *Job and opcode status*): what ran becomes an error that says so, what was to be
canceled is canceled, what waited for locks or a worker goes on.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import depend
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks, Submit
from ganeti.jqueue.catch_up import Here
from ganeti.jqueue.commit import Batch, Committer, Waiter
from ganeti.jqueue.explain import Meter
from ganeti.jqueue.filters import FREE, Gate, Verdict, rejection
from ganeti.jqueue.replicate import Replicator, Transport
from ganeti.jqueue.watch import Watches
from ganeti.jqueue.worker import WorkerPool
from ganeti.locking import Owner
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

_log = logging.getLogger(__name__)

Execute = Callable[[OpCode, Callbacks], Any]


class Locks(Protocol):
    """The part of the lock manager which the queue uses."""

    def wake(self, owner: Owner) -> None:
        """Let a blocked request of this owner ask whether it was canceled."""

    def reprioritise(self, owner: Owner, priority: int) -> None:
        """Move a blocked request of this owner."""


class _Stopping(errors.JobCanceled):
    """Raised in a job that waits for its locks when the daemon ends; the job stays queued."""


class Engine:
    """Parameters as those of :class:`~ganeti.jqueue.queue.JobQueue`.

    :param submit: submits the jobs which a job asks for.
    :ivar lock: guards everything here.
    :ivar jobs: the live ones by id.
    :ivar serial: the highest id given out so far.
    :ivar unfinished: how many jobs have not ended.
    :ivar on_shown: told of every job that may be told to have changed; must be quick.
    """

    def __init__(
        self,
        store: QueueStore,
        execute: Execute,
        submit: Submit,
        *,
        locks: Locks | None,
        transport: Transport | None,
        livelock: str | None,
        filters: Iterable[FilterRule],
        max_running: int,
        now: Callable[[], tuple[int, int]],
        fatal: Callable[[], None],
    ) -> None:
        self.store = store
        self.locks = locks
        self.now = now
        self.lock = threading.RLock()
        self.jobs: dict[int, jobs.QueuedJob] = {}
        self.serial = 0
        self.unfinished = 0
        self.stopping = False
        self.waiting = depend.Waiting()
        self.gate = Gate(filters)
        self.meter = Meter()
        self.watches = Watches()
        self.on_shown: Callable[[list[jobs.QueuedJob]], None] | None = None
        self._execute = execute
        self._submit = submit
        self._livelock = livelock
        self.replicator = None if transport is None else Replicator(transport, Here(store))
        self.committer = Committer(store, self.lock, send=self._send, show=self._show, fatal=fatal)
        self.pool = WorkerPool(self._run_job, max_running, fatal)

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Read the queue from disk, settle what an earlier run left, and begin to work.

        :raises errors.JobQueueError: the directory cannot be used.
        """
        self.store.open()
        try:
            self._load()
        except OSError as err:
            raise errors.JobQueueError(f"cannot read the job queue: {err}") from err
        self.committer.start()
        with self.lock:
            left = [job for job in self.jobs.values() if not job.finalized]
            self.unfinished = len(left)
            for job in left:
                self._settle(job)
                # Nobody has to wait for the disk: a later start comes to the same.
                job.show(job.picture())
            if self.replicator is not None:
                self.replicator.start()
            for job in left:
                if not job.finalized:
                    self.schedule(job)

    def _load(self) -> None:
        self.serial = self.store.read_serial()
        if not self.serial:
            self.serial = max(self.store.archived_ids(), default=0)
        for job_id in self.store.job_ids():
            self.serial = max(self.serial, job_id)
            text = self.store.read_job(job_id)
            if text is None:
                continue
            try:
                job = jobs.decode(text)
                if job.id != job_id:
                    raise errors.JobFileCorrupted(f"it holds job {job.id}")
            except errors.JobFileCorrupted as err:
                # The file stays where it is, for people to look at; the id is not used again.
                _log.error("job %d is lost: its file cannot be read: %s", job_id, err)
                continue
            self.jobs[job_id] = job

    def _settle(self, job: jobs.QueuedJob) -> None:
        """Bring a job that an earlier run left unfinished into a state to go on from."""
        op = job.current()
        assert op is not None
        status, begun = op.state.status, op.state.exec is not None
        if status == jobs.RUNNING or (status == jobs.CANCELING and begun):
            reason = "the master daemon ended while this ran; what it did until then was not undone"
            _log.warning("job %d was running when the master daemon ended; now an error", job.id)
            job.add_log(op, const.LOG_MESSAGE, f"error: {reason}", self.now())
            self.end_rest(job, jobs.ERROR, errors.OpExecError(reason))
        elif status == jobs.CANCELING:
            self.end_rest(
                job, jobs.CANCELED, errors.JobCanceled("canceled before the master daemon ended")
            )
        elif status == jobs.WAITING:
            op.move(jobs.QUEUED, start=None)
            self.committer.touch(job)
        # A job with a finished first part and a queued rest goes on with that rest.

    def stop(self, timeout_s: float = 30.0) -> set[int]:
        """Start nothing more, wait for what runs, write everything.

        Jobs that wait for locks go back into the queue.

        :returns: ids of the jobs that still ran when the time was over; the next start will find
            them and mark them as failed.
        """
        with self.lock:
            self.stopping = True
            waiting = [
                job
                for job in self.jobs.values()
                if any(op.state.status == jobs.WAITING for op in job.ops)
            ]
        for job in waiting:
            self.wake(job)
        left = self.pool.stop(timeout_s)
        self.committer.stop()
        if self.replicator is not None:
            self.replicator.stop()
        return left

    # -- execution -------------------------------------------------------------------------------

    def schedule(self, job: jobs.QueuedJob) -> None:
        """Put a job in line, or let it wait for another one or for a filter. Needs the lock."""
        op = job.current()
        if op is not None and not self.stopping and self._may_start(job, op) is not None:
            self.pool.add(job.id, job.priority)

    def _may_start(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Verdict | None:
        """What the filters say about a job that may start; None for one that may not (yet).

        Ends the job when a filter rejects it, or when its dependencies never will allow it. Needs
        the lock.
        """
        verdict = FREE
        if self.gate and not at_work(job):
            verdict = self.gate.judge(job.id, inputs(job))
            if verdict.action == const.FILTER_REJECT:
                self.end_rest(job, jobs.CANCELED, rejection(verdict))
                return None
            if verdict.action == const.FILTER_PAUSE:
                self.gate.hold(job.id, job.priority, verdict)
                return None
        if not self._dependencies_allow(job, op):
            return None
        # Looked at last: who gets a place makes use of it.
        if verdict.action == const.FILTER_RATE_LIMIT and not self.gate.has_room(verdict):
            self.gate.hold(job.id, job.priority, verdict)
            return None
        return verdict

    def _dependencies_allow(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> bool:
        """Whether the dependencies allow it; ends the job when they never will. Needs the lock."""
        depends = op.input.get("depends")
        if not depends:
            return True
        decision = depend.decide(depends, self._status_of)
        if decision.verdict is depend.Verdict.GO:
            return True
        if decision.verdict is depend.Verdict.WAIT:
            self.waiting.add(job.id, decision.job_id)
        elif decision.verdict is depend.Verdict.CANCEL:
            self.end_rest(job, jobs.CANCELED, errors.JobCanceled(decision.reason))
        else:
            self.end_rest(
                job, jobs.ERROR, errors.OpPrereqError(decision.reason, errors.ECODE_STATE)
            )
        return False

    def _status_of(self, job_id: int) -> str | None:
        job = self.jobs.get(job_id)
        if job is None:
            job = self.archived_job(job_id)
        return None if job is None else job.status

    def _run_job(self, job_id: int) -> None:
        """Execute a job as far as it goes now; in a worker."""
        while True:
            with self.lock:
                job = self.jobs.get(job_id)
                op = None if job is None else self._begin_op(job)
            if job is None or op is None or not self._run_op(job, op):
                return

    def _begin_op(self, job: jobs.QueuedJob) -> jobs.QueuedOpCode | None:
        """Move the next opcode to "waiting" (for its locks). Needs the lock."""
        op = job.current()
        if op is None or self.stopping:
            return None
        verdict = self._may_start(job, op)
        if verdict is None:
            return None
        self.gate.enter(job.id, verdict)
        now = self.now()
        op.move(jobs.WAITING, start=now)
        job.state = job.state._replace(
            start=job.state.start or now, livelock=self._livelock, process_id=os.getpid()
        )
        self.committer.touch(job)
        return op

    def _run_op(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> bool:
        """Execute an opcode; whether the job may go on with the next one."""
        callbacks = Callbacks(self, job, op, self.owner(job.id), self._submit)
        try:
            result = self._execute(op.opcode(), callbacks)
            json.dumps(result)
            if op.state.status == jobs.WAITING:
                callbacks.notify_start()
        except _Stopping:
            with self.lock:
                if op.state.status == jobs.WAITING:
                    op.move(jobs.QUEUED, start=None)
                    self.committer.touch(job)
                else:
                    self.end_rest(job, jobs.CANCELED, errors.JobCanceled(cancel_text(job)))
            return False
        except errors.JobCanceled as err:
            with self.lock:
                self.end_rest(job, jobs.CANCELED, err)
            return False
        except errors.GenericError as err:
            _log.info("job %d: %s failed: %s", job.id, op.summary(), err)
            self._end_failed(job, op, err)
            return False
        except Exception as err:  # noqa: BLE001 -- the door of a job step
            _log.exception("job %d: internal error in %s", job.id, op.summary())
            self._end_failed(
                job,
                op,
                errors.OpExecError(
                    f"internal error: {type(err).__name__}: {err}."
                    " The master's log has the details."
                ),
            )
            return False
        with self.lock:
            op.move(jobs.SUCCESS, result=result, end=self.now())
            op.drop_opcode()
            if job.cancel_reason is not None and not job.finalized:
                self.end_rest(job, jobs.CANCELED, errors.JobCanceled(cancel_text(job)))
            elif job.finalized:
                self._ended(job)
            else:
                self.committer.touch(job)
        return True

    def _end_failed(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, err: Exception) -> None:
        with self.lock:
            op.move(jobs.ERROR, result=wire_errors.encode(err), end=self.now())
            op.drop_opcode()
            self.end_rest(
                job, jobs.ERROR, errors.OpExecError("an earlier opcode of this job failed")
            )

    def end_rest(self, job: jobs.QueuedJob, status: str, err: Exception) -> None:
        """End a job here and now. Needs the lock."""
        job.end_rest(status, err, self.now())
        self._ended(job)

    def _ended(self, job: jobs.QueuedJob) -> None:
        """All opcodes have ended. Needs the lock."""
        now = self.now()
        job.state = job.state._replace(end=now)
        self.unfinished -= 1
        self.meter.count(now[0])
        _log.info(
            "job %d (%s) ended: %s", job.id, ", ".join(op.summary() for op in job.ops), job.status
        )
        self.waiting.remove(job.id)
        self.pool.remove(job.id)
        for held in self.gate.ended(job.id):
            self.schedule(self.jobs[held])
        batch = self.committer.touch(job)
        batch.when_durable(lambda _err: self._release_waiters(job.id))

    def _release_waiters(self, job_id: int) -> None:
        """The end of a job is durable: those that waited for it may start."""
        with self.lock:
            for waiter in self.waiting.ended(job_id):
                job = self.jobs.get(waiter)
                if job is not None:
                    self.schedule(job)

    def wake(self, job: jobs.QueuedJob) -> None:
        if self.locks is not None:
            self.locks.wake(self.owner(job.id))

    # -- called by a running opcode (through Callbacks) ------------------------------------------

    def op_started(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> None:
        """The opcode has its locks; returns when "running" is on disk."""
        with self.lock:
            if op.state.status == jobs.RUNNING:
                return
            self.check_cancel(job, op)
            op.move(jobs.RUNNING, exec=self.now())
            waiter = Waiter()
            self.committer.touch(job).when_durable(lambda err: waiter.done(None, err))
        waiter.wait()
        _log.info(
            "job %d begins with %s (%d of %d)",
            job.id,
            op.summary(),
            job.ops.index(op) + 1,
            len(job.ops),
        )

    def op_logged(
        self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, kind: str, message: Any
    ) -> None:
        """Add a log entry; written with the next change of the job, told at once."""
        with self.lock:
            job.add_log(op, kind, message, self.now())
            if not self.watches.poke(job.id):
                return
        self.committer.later(lambda: self._tell_watches([job.id]))

    def check_cancel(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> None:
        """:raises errors.JobCanceled: the job is to stop."""
        if job.cancel_reason is not None:
            raise errors.JobCanceled(cancel_text(job))
        if self.stopping and op.state.status == jobs.WAITING:
            raise _Stopping("the master daemon is ending")

    # -- looking up ------------------------------------------------------------------------------

    def known(self, job_id: int) -> jobs.QueuedJob | None:
        """A live job that somebody may know of. Needs the lock."""
        job = self.jobs.get(job_id)
        return None if job is None or job.new else job

    def archived_job(self, job_id: int) -> jobs.QueuedJob | None:
        try:
            text = self.store.read_archived(job_id)
            return None if text is None else jobs.decode(text, archived=True)
        except (OSError, errors.JobFileCorrupted) as err:
            _log.warning("archived job %d cannot be read: %s", job_id, err)
            return None

    def owner(self, job_id: int) -> Owner:
        """Under which name a job of this process owns locks."""
        return Owner(job_id, f"job-{job_id}", self._livelock)

    # -- committer and replicator ----------------------------------------------------------------

    def _tell_watches(self, job_ids: Iterable[int]) -> None:
        with self.lock:
            told = self.watches.changes(job_ids, self.jobs)
        for watch, change in told:
            watch.tell(change)

    def _show(self, batch: Batch) -> None:
        """A batch may be told (in the announcer's thread)."""
        with self.lock:
            for picture in batch.pictures:
                picture.job.show(picture)
                if picture.job.finalized and picture.state.end is not None:
                    for op in picture.job.ops:
                        op.drop_text()
            for job_id in batch.archive:
                self.jobs.pop(job_id, None)
        if self.on_shown is not None:
            self.on_shown([picture.job for picture in batch.pictures])
        self._tell_watches([picture.job.id for picture in batch.pictures])

    def _send(
        self, files: dict[str, str], archived: Sequence[int], ended: bool
    ) -> Callable[[], None]:
        if self.replicator is None:
            return _nothing
        return self.replicator.send(files, archived, ended=ended)


def _nothing() -> None:
    """There is nobody to wait for."""


def at_work(job: jobs.QueuedJob) -> bool:
    """Whether a worker has taken up the job once."""
    return any(op.state.status != jobs.QUEUED for op in job.ops)


def inputs(job: jobs.QueuedJob) -> list[dict[str, Any]]:
    """What its opcodes ask for, as filter rules see it."""
    return [op.input for op in job.ops]


def cancel_text(job: jobs.QueuedJob) -> str:
    """Why a job was canceled."""
    return job.cancel_reason or "canceled by request"
