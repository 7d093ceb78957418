"""The job queue as clients and running jobs see it.

:class:`JobQueue` keeps every live job in memory, lets workers execute those that may start, and has
everything that changed written by the :class:`~ganeti.jqueue.commit.Committer`. One lock guards the
jobs; it is never held during disk or network I/O. Operations that have to be durable before they
are answered take a callback and return at once, so that no thread waits for the disk on a client's
behalf; each has a form that waits, for callers inside the master.

Waiting for a job's change is a subscription (:meth:`JobQueue.watch`) which the job's own changes
feed.

A restart (seed 001 *Job and opcode status*): what ran becomes an error that says so, what was to be
canceled is canceled, what waited for locks or a worker goes on.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import depend
from ganeti.jqueue import job as jobs
from ganeti.jqueue.catch_up import Here
from ganeti.jqueue.commit import Batch, Committer
from ganeti.jqueue.explain import JobFacts, Meter, QueueFacts
from ganeti.jqueue.filters import FREE, Gate, Verdict, rejection
from ganeti.jqueue.replicate import Replicator, Transport
from ganeti.jqueue.worker import WorkerPool
from ganeti.locking import Owner
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.utils import clock
from ganeti.wire import errors as wire_errors
from ganeti.wire import json
from ganeti.wire.queue_store import QueueStore

_log = logging.getLogger(__name__)

# How many jobs one commit of an automatic archiving moves, and one look at the jobs reads.
_CHUNK = 500

# Called once with the result, or with the error.
Done = Callable[[Any, Exception | None], None]
Execute = Callable[[OpCode, "Callbacks"], Any]


class Locks(Protocol):
    """The part of the lock manager which the queue uses."""

    def wake(self, owner: Owner) -> None:
        """Let a blocked request of this owner ask whether it was canceled."""

    def reprioritise(self, owner: Owner, priority: int) -> None:
        """Move a blocked request of this owner."""


class _Stopping(errors.JobCanceled):
    """Raised in a job that waits for its locks when the daemon ends; the job stays queued."""


class Callbacks:
    """What a running opcode may ask of the queue (``OpCallbacks`` in :mod:`ganeti.mcpu`)."""

    def __init__(self, queue: JobQueue, job: jobs.QueuedJob, op: jobs.QueuedOpCode,
                 owner: Owner) -> None:
        self._queue = queue
        self._job = job
        self._op = op
        self._owner = owner

    @property
    def owner(self) -> Owner:
        """Who holds the locks: the job."""
        return self._owner

    def notify_start(self) -> None:
        """All locks are held: the opcode runs; on disk before this returns.

        :raises errors.JobCanceled: it was canceled in time.
        """
        self._queue.op_started(self._job, self._op)

    def feedback(self, *args: Any) -> None:
        """Add a log entry: ``(message)`` or ``(type, message)``."""
        if len(args) == 1:
            kind, message = const.LOG_MESSAGE, args[0]
        elif len(args) == 2:
            kind, message = args
        else:
            raise errors.ProgrammerError("feedback takes a message, or a type and a message")
        if kind == const.LOG_MESSAGE:
            message = str(message)
        else:
            json.dumps(message)  # raises here, in the job, and not in the committer
        self._queue.op_logged(self._job, self._op, str(kind), message)

    def check_cancel(self) -> None:
        """A point where the opcode may stop.

        :raises errors.JobCanceled: somebody canceled the job.
        """
        self._queue.check_cancel(self._job, self._op)

    def priority(self) -> int:
        """Present priority of the job; it may change while it waits for locks."""
        return self._job.priority

    def submit_jobs(self, wanted: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit jobs: ``[True, id]`` or ``[False, message]`` for each; on disk then."""
        return self._queue.submit_many(wanted, drained_ok=True)


class Watch:
    """A subscription to the changes of a job; `tell` is called once, from another thread."""

    __slots__ = ("fields", "job_id", "prev_info", "prev_serial", "tell")

    def __init__(self, job_id: int, fields: Sequence[str], prev_info: list[Any] | None,
                 prev_serial: int | None, tell: Callable[[Any], None]) -> None:
        self.job_id = job_id
        self.fields = fields
        self.prev_info = prev_info
        self.prev_serial = prev_serial
        self.tell = tell

    def change(self, job: jobs.QueuedJob) -> list[Any] | None:
        """``[values, log entries]`` when there is something the subscriber does not know."""
        info = plain(job.values(self.fields))
        entries = job.log_after(self.prev_serial)
        if entries or info != self.prev_info or job.shown_status in jobs.FINALIZED:
            return [info, entries]
        return None


def plain(value: Any) -> Any:
    """The value as it is after a way through JSON: tuples are lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


class JobQueue:
    """All jobs of the cluster.

    :param execute: executes one opcode and returns its result (``mcpu.Processor.execute``).
    :param transport: how to reach the other master candidates; None when there is nobody to send
    to.
    :param livelock: file which this process keeps locked; names the process in job files.
    :param filters: the rules which jobs pass before they are taken up.
    :param max_running: jobs executed at once.
    :param size_limit: unfinished jobs above which submissions are refused.
    :param fatal: called when a thread of the queue died of a bug: the daemon has to end.
    """

    def __init__(
        self,
        store: QueueStore,
        execute: Execute,
        *,
        locks: Locks | None = None,
        transport: Transport | None = None,
        livelock: str | None = None,
        filters: Iterable[FilterRule] = (),
        max_running: int = const.MAX_RUNNING_DEFAULT,
        size_limit: int = const.QUEUE_HARD_LIMIT,
        now: Callable[[], tuple[int, int]] = clock.now_split,
        fatal: Callable[[], None] = os.abort,
    ) -> None:
        self._store = store
        self._execute = execute
        self._locks = locks
        self._livelock = livelock
        self._size_limit = size_limit
        self._now = now
        self._lock = threading.RLock()
        self._jobs: dict[int, jobs.QueuedJob] = {}
        self._serial = 0
        self._unfinished = 0
        self._drained = False
        self._stopping = False
        self._waiting = depend.Waiting()
        self._gate = Gate(filters)
        self._meter = Meter()
        self._watches: dict[int, set[Watch]] = {}
        self._log_poked: set[int] = set()
        #: Told of every job that may be told to have changed; must be quick.
        self.on_shown: Callable[[list[jobs.QueuedJob]], None] | None = None
        self._replicator = None if transport is None else Replicator(transport, Here(store))
        self._committer = Committer(store, self._lock, send=self._send, show=self._show,
                                    fatal=fatal)
        self._pool = WorkerPool(self._run_job, max_running, fatal)

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Read the queue from disk, settle what an earlier run left, and begin to work.

        :raises errors.JobQueueError: the directory cannot be used.
        """
        self._store.open()
        try:
            self._load()
        except OSError as err:
            raise errors.JobQueueError(f"cannot read the job queue: {err}") from err
        self._drained = self._store.drained()
        self._committer.start()
        with self._lock:
            left = [job for job in self._jobs.values() if not job.finalized]
            self._unfinished = len(left)
            for job in left:
                self._settle(job)
            if self._replicator is not None:
                self._replicator.start()
            for job in left:
                if not job.finalized:
                    self._schedule(job)

    def _load(self) -> None:
        self._serial = self._store.read_serial()
        if not self._serial:
            self._serial = max(self._store.archived_ids(), default=0)
        for job_id in self._store.job_ids():
            self._serial = max(self._serial, job_id)
            text = self._store.read_job(job_id)
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
            self._jobs[job_id] = job

    def _settle(self, job: jobs.QueuedJob) -> None:
        """Bring a job that an earlier run left unfinished into a state to go on from."""
        op = job.current()
        assert op is not None
        status, begun = op.state.status, op.state.exec is not None
        if status == jobs.RUNNING or (status == jobs.CANCELING and begun):
            reason = ("the master daemon ended while this ran; what it did until then was not"
                      " undone")
            _log.warning("job %d was running when the master daemon ended; now an error", job.id)
            job.add_log(op, const.LOG_MESSAGE, f"error: {reason}", self._now())
            self._end_rest(job, jobs.ERROR, errors.OpExecError(reason))
        elif status == jobs.CANCELING:
            self._end_rest(job, jobs.CANCELED,
                           errors.JobCanceled("canceled before the master daemon ended"))
        elif status == jobs.WAITING:
            op.move(jobs.QUEUED, start=None)
            self._committer.touch(job)
        # A job with a finished first part and a queued rest goes on with that rest.

    def stop(self, timeout_s: float = 30.0) -> set[int]:
        """Start nothing more, wait for what runs, write everything.

        Jobs that wait for locks go back into the queue.

        :returns: ids of the jobs that still ran when the time was over; the next start will find
            them and mark them as failed.
        """
        with self._lock:
            self._stopping = True
            waiting = [job for job in self._jobs.values()
                       if any(op.state.status == jobs.WAITING for op in job.ops)]
        for job in waiting:
            self._wake(job)
        left = self._pool.stop(timeout_s)
        self._committer.stop()
        if self._replicator is not None:
            self._replicator.stop()
        return left

    # -- submission ------------------------------------------------------------------------------

    def submit_many_async(self, wanted: Sequence[Sequence[OpCode] | errors.GenericError],
                          done: Done, *, drained_ok: bool = False) -> None:
        """Submit jobs; `done` gets ``[id or error, ...]`` when they are durable and sent.

        Each job is accepted or refused for itself; negative dependencies count back in `wanted`,
        where an error stands for a job that was refused already.

        :param drained_ok: also when the queue is drained.
        """
        checked = [ops if isinstance(ops, Exception) else _check_ops(ops) for ops in wanted]
        with self._lock:
            results: list[int | Exception] = []
            accepted: list[jobs.QueuedJob] = []
            for ops in checked:
                try:
                    if isinstance(ops, Exception):
                        raise ops
                    job = self._accept(ops, results, drained_ok)
                except errors.GenericError as err:
                    results.append(err)
                else:
                    results.append(job.id)
                    accepted.append(job)
            if accepted:
                batch = self._committer.add_new(accepted, self._serial)
                # The work of the first ones would delay the answer for all: not more of them begin
                # before it than could find a worker.
                accepted.sort(key=lambda job: (job.priority, job.id))
                first, rest = accepted[:self._pool.limit], accepted[self._pool.limit:]
                batch.when_durable(lambda err: self._accepted(first, err))
                batch.when_told(lambda err: done(
                    results if err is None
                    else [entry if isinstance(entry, Exception) else err for entry in results],
                    None))
                if rest:
                    batch.when_told(lambda err: self._accepted(rest, err))
        if not accepted:
            done(results, None)

    def submit_async(self, ops: Sequence[OpCode], done: Done, *, drained_ok: bool = False) -> None:
        """Submit one job; `done` gets its id, or the error."""
        def tell(results: Any, _error: Exception | None) -> None:
            result = results[0]
            if isinstance(result, Exception):
                done(None, result)
            else:
                done(result, None)

        self.submit_many_async([ops], tell, drained_ok=drained_ok)

    def submit(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        """Submit one job and wait until it is durable.

        :raises errors.OpPrereqError: an opcode is not valid.
        :raises errors.JobQueueDrainError: the queue takes no new jobs.
        :raises errors.JobQueueFull: too many jobs are unfinished.
        :raises errors.JobQueueError: it cannot be stored.
        """
        return int(self._waited(lambda done: self.submit_async(ops, done, drained_ok=drained_ok)))

    def submit_many(self, wanted: Sequence[Sequence[OpCode]], *, drained_ok: bool = False
                    ) -> list[list[Any]]:
        """Submit jobs and wait: ``[True, id]`` or ``[False, message]`` for each."""
        results = self._waited(
            lambda done: self.submit_many_async(wanted, done, drained_ok=drained_ok))
        return [[False, str(result)] if isinstance(result, Exception) else [True, result]
                for result in results]

    def _accept(self, ops: Sequence[OpCode], earlier: Sequence[int | Exception],
                drained_ok: bool) -> jobs.QueuedJob:
        """Make a job of checked opcodes and give it an id. Needs the lock."""
        if self._stopping:
            raise errors.JobQueueError("the master daemon is ending. Try again when it is back.")
        if self._drained and not drained_ok:
            raise errors.JobQueueDrainError("the job queue is drained and takes no new jobs")
        if self._unfinished >= self._size_limit:
            raise errors.JobQueueFull()
        ids = [entry if isinstance(entry, int) else None for entry in earlier]
        depends = [depend.resolve(op.depends, ids) for op in ops]
        for wanted in depends:
            for job_id, _accepted in wanted or ():
                if job_id > self._serial:
                    # Also keeps circles out: a job can only wait for an earlier one.
                    raise errors.OpPrereqError(
                        f"depends on job {job_id}, which does not exist", errors.ECODE_NOENT)
        now = self._now()
        now_ns = now[0] * 1_000_000_000 + now[1] * 1000
        self._serial += 1
        for index, op in enumerate(ops):
            op.depends = depends[index]
            op.add_reason(op.reason_source(), f"job={self._serial};index={index}", now_ns)
        job = jobs.QueuedJob(self._serial, [jobs.QueuedOpCode.from_opcode(op) for op in ops], now)
        job.new = True
        if not ops:
            job.state = jobs.JobState(start=now, end=now)
        else:
            self._unfinished += 1
        self._jobs[job.id] = job
        return job

    def _accepted(self, accepted: Sequence[jobs.QueuedJob], error: Exception | None) -> None:
        """New jobs are durable, or were given up."""
        with self._lock:
            for job in accepted:
                if error is not None:
                    del self._jobs[job.id]
                    self._unfinished -= bool(job.ops)
                else:
                    self._schedule(job)

    # -- execution -------------------------------------------------------------------------------

    def _schedule(self, job: jobs.QueuedJob) -> None:
        """Put a job in line, or let it wait for another one or for a filter. Needs the lock."""
        op = job.current()
        if op is not None and not self._stopping and self._may_start(job, op) is not None:
            self._pool.add(job.id, job.priority)

    def _may_start(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Verdict | None:
        """What the filters say about a job that may start; None for one that may not (yet).

        Ends the job when a filter rejects it, or when its dependencies never will allow it. Needs
        the lock.
        """
        verdict = FREE
        if self._gate and not _at_work(job):
            verdict = self._gate.judge(job.id, _inputs(job))
            if verdict.action == const.FILTER_REJECT:
                self._end_rest(job, jobs.CANCELED, rejection(verdict))
                return None
            if verdict.action == const.FILTER_PAUSE:
                self._gate.hold(job.id, job.priority, verdict)
                return None
        if not self._dependencies_allow(job, op):
            return None
        # Looked at last: who gets a place makes use of it.
        if verdict.action == const.FILTER_RATE_LIMIT and not self._gate.has_room(verdict):
            self._gate.hold(job.id, job.priority, verdict)
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
            self._waiting.add(job.id, decision.job_id)
        elif decision.verdict is depend.Verdict.CANCEL:
            self._end_rest(job, jobs.CANCELED, errors.JobCanceled(decision.reason))
        else:
            self._end_rest(job, jobs.ERROR, errors.OpPrereqError(decision.reason,
                                                                 errors.ECODE_STATE))
        return False

    def _status_of(self, job_id: int) -> str | None:
        job = self._jobs.get(job_id)
        if job is None:
            job = self._archived_job(job_id)
        return None if job is None else job.status

    def _run_job(self, job_id: int) -> None:
        """Execute a job as far as it goes now; in a worker."""
        while True:
            with self._lock:
                job = self._jobs.get(job_id)
                op = None if job is None else self._begin_op(job)
            if job is None or op is None or not self._run_op(job, op):
                return

    def _begin_op(self, job: jobs.QueuedJob) -> jobs.QueuedOpCode | None:
        """Move the next opcode to "waiting" (for its locks). Needs the lock."""
        op = job.current()
        if op is None or self._stopping:
            return None
        verdict = self._may_start(job, op)
        if verdict is None:
            return None
        self._gate.enter(job.id, verdict)
        now = self._now()
        op.move(jobs.WAITING, start=now)
        job.state = job.state._replace(
            start=job.state.start or now, livelock=self._livelock, process_id=os.getpid())
        self._committer.touch(job)
        return op

    def _run_op(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> bool:
        """Execute an opcode; whether the job may go on with the next one."""
        callbacks = Callbacks(self, job, op, self._owner(job))
        try:
            result = self._execute(op.opcode(), callbacks)
            json.dumps(result)
            if op.state.status == jobs.WAITING:
                callbacks.notify_start()
        except _Stopping:
            with self._lock:
                if op.state.status == jobs.WAITING:
                    op.move(jobs.QUEUED, start=None)
                    self._committer.touch(job)
                else:
                    self._end_rest(job, jobs.CANCELED, errors.JobCanceled(_reason(job)))
            return False
        except errors.JobCanceled as err:
            with self._lock:
                self._end_rest(job, jobs.CANCELED, err)
            return False
        except errors.GenericError as err:
            _log.info("job %d: %s failed: %s", job.id, op.summary(), err)
            self._end_failed(job, op, err)
            return False
        except Exception as err:  # noqa: BLE001 -- the door of a job step
            _log.exception("job %d: internal error in %s", job.id, op.summary())
            self._end_failed(job, op, errors.OpExecError(
                f"internal error: {type(err).__name__}: {err}. The master's log has the details."))
            return False
        with self._lock:
            op.move(jobs.SUCCESS, result=result, end=self._now())
            op.drop_opcode()
            if job.cancel_reason is not None and not job.finalized:
                self._end_rest(job, jobs.CANCELED, errors.JobCanceled(_reason(job)))
            elif job.finalized:
                self._ended(job)
            else:
                self._committer.touch(job)
        return True

    def _end_failed(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, err: Exception) -> None:
        with self._lock:
            op.move(jobs.ERROR, result=wire_errors.encode(err), end=self._now())
            op.drop_opcode()
            self._end_rest(job, jobs.ERROR,
                           errors.OpExecError("an earlier opcode of this job failed"))

    def _end_rest(self, job: jobs.QueuedJob, status: str, err: Exception) -> None:
        """End a job here and now. Needs the lock."""
        job.end_rest(status, err, self._now())
        self._ended(job)

    def _ended(self, job: jobs.QueuedJob) -> None:
        """All opcodes have ended. Needs the lock."""
        now = self._now()
        job.state = job.state._replace(end=now)
        self._unfinished -= 1
        self._meter.count(now[0])
        _log.info("job %d (%s) ended: %s", job.id,
                  ", ".join(op.summary() for op in job.ops), job.status)
        self._waiting.remove(job.id)
        self._pool.remove(job.id)
        for held in self._gate.ended(job.id):
            self._schedule(self._jobs[held])
        batch = self._committer.touch(job)
        batch.when_durable(lambda _err: self._release_waiters(job.id))

    def _release_waiters(self, job_id: int) -> None:
        """The end of a job is durable: those that waited for it may start."""
        with self._lock:
            for waiter in self._waiting.ended(job_id):
                job = self._jobs.get(waiter)
                if job is not None:
                    self._schedule(job)

    def _owner(self, job: jobs.QueuedJob) -> Owner:
        return self.owner(job.id)

    def _wake(self, job: jobs.QueuedJob) -> None:
        if self._locks is not None:
            self._locks.wake(self._owner(job))

    # -- called by a running opcode (through Callbacks) ------------------------------------------

    def op_started(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> None:
        """The opcode has its locks; returns when "running" is on disk."""
        with self._lock:
            if op.state.status == jobs.RUNNING:
                return
            self.check_cancel(job, op)
            op.move(jobs.RUNNING, exec=self._now())
            waiter = _Waiter()
            self._committer.touch(job).when_durable(lambda err: waiter.done(None, err))
        waiter.wait()
        _log.info("job %d begins with %s (%d of %d)", job.id, op.summary(),
                  job.ops.index(op) + 1, len(job.ops))

    def op_logged(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, kind: str,
                  message: Any) -> None:
        """Add a log entry; written with the next change of the job, told at once."""
        with self._lock:
            job.add_log(op, kind, message, self._now())
            if job.id not in self._watches or job.id in self._log_poked:
                return
            self._log_poked.add(job.id)
        self._committer.later(lambda: self._tell_watches([job.id]))

    def check_cancel(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> None:
        """:raises errors.JobCanceled: the job is to stop."""
        if job.cancel_reason is not None:
            raise errors.JobCanceled(_reason(job))
        if self._stopping and op.state.status == jobs.WAITING:
            raise _Stopping("the master daemon is ending")

    # -- operations on jobs ----------------------------------------------------------------------

    def cancel_async(self, job_id: int, done: Done) -> None:
        """Cancel a job; `done` gets ``(success, message)``.

        A queued job ends at once; one that waits for locks when it is woken; a running one at the
        next point where it can stop.
        """
        with self._lock:
            job = self._known(job_id)
            if job is None:
                answer = (False, f"job {job_id} is not in the queue")
            elif job.finalized:
                answer = (False, f"job {job_id} has already ended ({job.status})")
            elif job.cancel_reason is not None:
                answer = (True, f"job {job_id} is being canceled")
            else:
                answer, batch = self._cancel(job)
                batch.when_told(lambda err: done(answer, err))
                return
        done(answer, None)

    def _cancel(self, job: jobs.QueuedJob) -> tuple[tuple[bool, str], Batch]:
        op = job.current()
        assert op is not None
        status = op.state.status
        if status == jobs.QUEUED:
            self._end_rest(job, jobs.CANCELED, errors.JobCanceled("canceled by request"))
            return (True, f"job {job.id} was canceled"), self._committer.touch(job)
        job.cancel_reason = f"canceled by request while it was {status}"
        op.move(jobs.CANCELING)
        batch = self._committer.touch(job)
        self._wake(job)
        if status == jobs.WAITING:
            return (True, f"job {job.id} will be canceled"), batch
        return (True, f"job {job.id} is running and will be canceled at the next point where it"
                      " can stop"), batch

    def change_priority_async(self, job_id: int, priority: int, done: Done) -> None:
        """Give the unfinished opcodes of a job another priority; ``(success, message)``.

        :raises errors.OpPrereqError: no such priority.
        """
        if not const.PRIO_HIGHEST <= priority <= const.PRIO_LOWEST:
            raise errors.OpPrereqError(
                f"priority must be from {const.PRIO_HIGHEST} to {const.PRIO_LOWEST}, not"
                f" {priority}", errors.ECODE_INVAL)
        with self._lock:
            job = self._known(job_id)
            if job is None:
                answer = (False, f"job {job_id} is not in the queue")
            elif job.finalized:
                answer = (False, f"job {job_id} has already ended ({job.status})")
            else:
                for op in job.ops:
                    if op.state.status not in jobs.FINALIZED:
                        op.set_priority(priority)
                self._pool.reprioritise(job_id, priority)
                self._gate.reprioritise(job_id, priority)
                batch = self._committer.touch(job)
                answer = (True, f"priority of job {job_id} is now {priority}")
                batch.when_told(lambda err: done(answer, err))
                if self._locks is not None:
                    self._locks.reprioritise(self._owner(job), priority)
                return
        done(answer, None)

    def archive_async(self, job_ids: Sequence[int], done: Done) -> None:
        """Move ended jobs to the archive; `done` gets how many it were."""
        with self._lock:
            found = []
            for job_id in job_ids:
                job = self._known(job_id)
                if job is not None and not job.archived and job.shown_status in jobs.FINALIZED:
                    job.archived = True
                    found.append(job_id)
            if found:
                self._committer.archive(found).when_told(lambda err: done(len(found), err))
                return
        done(0, None)

    def auto_archive(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Archive what ended more than `age_s` ago (-1: all): ``(archived, left to look at)``."""
        deadline = time.monotonic() + timeout_s
        limit = clock.merge(self._now()) - age_s
        with self._lock:
            ids = sorted(self._jobs)
        archived = 0
        for place in range(0, len(ids), _CHUNK):
            if time.monotonic() >= deadline:
                return archived, len(ids) - place
            with self._lock:
                old = [job_id for job_id in ids[place:place + _CHUNK]
                       if self._ended_before(job_id, None if age_s == -1 else limit)]
            if old:
                archived += self._waited(functools.partial(self.archive_async, old))
        return archived, 0

    def _ended_before(self, job_id: int, limit: float | None) -> bool:
        job = self._jobs.get(job_id)
        if job is None or job.new or job.shown_status not in jobs.FINALIZED:
            return False
        # A file of another program may lack the end; then its latest known time decides.
        end = job.shown.end or job.shown.start or job.received
        return limit is None or end is None or clock.merge(end) < limit

    def cancel(self, job_id: int) -> tuple[bool, str]:
        """As :meth:`cancel_async`, waiting until that is durable."""
        success, message = self._waited(lambda done: self.cancel_async(job_id, done))
        return success, message

    def change_priority(self, job_id: int, priority: int) -> tuple[bool, str]:
        """As :meth:`change_priority_async`, waiting until that is durable."""
        success, message = self._waited(
            lambda done: self.change_priority_async(job_id, priority, done))
        return success, message

    def archive(self, job_id: int) -> bool:
        """Move an ended job to the archive; False when it has not ended or is unknown."""
        return bool(self._waited(lambda done: self.archive_async([job_id], done)))

    # -- switches --------------------------------------------------------------------------------

    @property
    def drained(self) -> bool:
        """Whether new jobs are refused."""
        return self._drained

    def set_drain(self, drained: bool) -> None:
        """Refuse new jobs, or accept them again; here and on the candidates.

        :raises errors.JobQueueError: the disk refused.
        """
        self._store.set_drained(drained)
        with self._lock:
            self._drained = drained
        if self._replicator is not None:
            self._replicator.set_drained(drained)

    def compare_copies(self) -> None:
        """Have the candidates' copies compared with this queue, and what differs sent."""
        if self._replicator is not None:
            self._replicator.compare()

    def set_filters(self, rules: Iterable[FilterRule]) -> None:
        """Other filter rules from now on: every job that no worker has taken up is judged anew."""
        with self._lock:
            left = [job for job in self._jobs.values() if not job.new and not job.finalized]
            self._gate.set_rules(
                rules, [(job.id, _inputs(job)) for job in left if _at_work(job)])
            for job in left:
                # A job which a worker is just taking out of the line is judged by that worker.
                if not _at_work(job) and (
                        self._gate.release(job.id) or self._pool.remove(job.id)
                        or self._waiting.awaited(job.id) is not None):
                    self._waiting.remove(job.id)
                    self._schedule(job)

    @property
    def last_job_id(self) -> int:
        """The highest job id given out so far."""
        return self._serial

    def set_max_running(self, limit: int) -> None:
        """Change how many jobs are executed at once."""
        self._pool.set_limit(limit)

    # -- queries ---------------------------------------------------------------------------------

    def query(self, job_ids: Sequence[int] | None, fields: Sequence[str], *,
              archived: bool = False) -> list[list[Any] | None]:
        """Values of the fields of jobs, as committed.

        :param job_ids: None for all live jobs, ascending. An archived job is found by its id.
        :param archived: with `job_ids` None also the archived jobs.
        :returns: None in the place of an unknown job.
        :raises errors.OpPrereqError: a field does not exist.
        """
        jobs.check_fields(fields)
        if job_ids is None:
            with self._lock:
                ids = sorted(self._jobs)
            if archived:
                ids = sorted({*ids, *self._store.archived_ids()})
            return [row for row in self._rows(ids, fields) if row is not None]
        return list(self._rows(job_ids, fields))

    def _rows(self, ids: Sequence[int], fields: Sequence[str]) -> Iterable[list[Any] | None]:
        for place in range(0, len(ids), _CHUNK):
            chunk = ids[place:place + _CHUNK]
            with self._lock:
                found = {job_id: job.values(fields) for job_id in chunk
                         if (job := self._known(job_id)) is not None}
            for job_id in chunk:
                row = found.get(job_id)
                if row is None:
                    job = self._archived_job(job_id)
                    row = None if job is None else job.values(fields)
                yield row

    def _known(self, job_id: int) -> jobs.QueuedJob | None:
        """A live job that somebody may know of. Needs the lock."""
        job = self._jobs.get(job_id)
        return None if job is None or job.new else job

    def _archived_job(self, job_id: int) -> jobs.QueuedJob | None:
        try:
            text = self._store.read_archived(job_id)
            return None if text is None else jobs.decode(text, archived=True)
        except (OSError, errors.JobFileCorrupted) as err:
            _log.warning("archived job %d cannot be read: %s", job_id, err)
            return None

    # -- for explanations (jqueue.explain) -------------------------------------------------------

    def look(self) -> QueueFacts:
        """The queue as a whole."""
        with self._lock:
            now = self._now()
            return QueueFacts(tuple(self._pool.line()), frozenset(self._pool.busy()),
                              self._pool.limit, self._drained, self._stopping,
                              self._unfinished, self._meter.total(now[0]), clock.merge(now))

    def facts(self, job_id: int) -> JobFacts | None:
        """One job, also an archived one; None for an unknown one."""
        with self._lock:
            job = self._known(job_id)
            if job is not None:
                return _facts(job)
        job = self._archived_job(job_id)
        return None if job is None else _facts(job)

    def kept_back(self, job_id: int) -> Verdict | None:
        """What the filter rule says that keeps a job back; None when none does."""
        with self._lock:
            return self._gate.held(job_id)

    def at_work_under(self, uuid: str) -> list[int]:
        """The jobs that take the places of a rate limit."""
        with self._lock:
            return self._gate.at_work_under(uuid)

    def owner(self, job_id: int) -> Owner:
        """Under which name a job of this process owns locks."""
        return Owner(job_id, f"job-{job_id}", self._livelock)

    # -- waiting for a change --------------------------------------------------------------------

    def watch(self, job_id: int, fields: Sequence[str], prev_info: list[Any] | None,
              prev_serial: int | None, tell: Callable[[Any], None]) -> Watch | None:
        """Call `tell` once with ``[values, log entries]`` when they differ from what is known.

        :returns: the subscription, for :meth:`unwatch`; None when `tell` was called already.
        :raises errors.JobLost: no such job.
        """
        watch = Watch(job_id, fields, prev_info, prev_serial, tell)
        with self._lock:
            job = self._known(job_id)
            if job is not None:
                change = watch.change(job)
                if change is None:
                    self._watches.setdefault(job_id, set()).add(watch)
                    return watch
        if job is None:
            job = self._archived_job(job_id)
            if job is None:
                raise errors.JobLost(f"job {job_id} does not exist")
            change = watch.change(job)
        tell(change)
        return None

    def unwatch(self, watch: Watch) -> bool:
        """End a subscription; False when it was told already (or is being told now)."""
        with self._lock:
            watches = self._watches.get(watch.job_id)
            if watches is None or watch not in watches:
                return False
            watches.discard(watch)
            if not watches:
                del self._watches[watch.job_id]
            return True

    def _tell_watches(self, job_ids: Iterable[int]) -> None:
        told = []
        with self._lock:
            for job_id in job_ids:
                self._log_poked.discard(job_id)
                watches = self._watches.get(job_id)
                job = self._jobs.get(job_id)
                if watches is None or job is None:
                    continue
                for watch in list(watches):
                    change = watch.change(job)
                    if change is not None:
                        told.append((watch, change))
                        watches.discard(watch)
                if not watches:
                    del self._watches[job_id]
        for watch, change in told:
            watch.tell(change)

    # -- committer and replicator ----------------------------------------------------------------

    def _show(self, batch: Batch) -> None:
        """A batch may be told (in the announcer's thread)."""
        with self._lock:
            for picture in batch.pictures:
                picture.job.show(picture)
                if picture.job.finalized and picture.state.end is not None:
                    for op in picture.job.ops:
                        op.drop_text()
            for job_id in batch.archive:
                self._jobs.pop(job_id, None)
        if self.on_shown is not None:
            self.on_shown([picture.job for picture in batch.pictures])
        self._tell_watches([picture.job.id for picture in batch.pictures])

    def _send(self, files: dict[str, str], archived: Sequence[int]) -> Callable[[], None]:
        if self._replicator is None:
            return _nothing
        return self._replicator.send(files, archived)

    @staticmethod
    def _waited(begin: Callable[[Done], None]) -> Any:
        waiter = _Waiter()
        begin(waiter.done)
        return waiter.wait()


class _Waiter:
    """Waits for one call of :meth:`done`."""

    __slots__ = ("_error", "_event", "_result")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._result: Any = None
        self._error: Exception | None = None

    def done(self, result: Any, error: Exception | None) -> None:
        self._result = result
        self._error = error
        self._event.set()

    def wait(self) -> Any:
        self._event.wait()
        if self._error is not None:
            raise self._error
        return self._result


def _nothing() -> None:
    """There is nobody to wait for."""


def _at_work(job: jobs.QueuedJob) -> bool:
    """Whether a worker has taken up the job once."""
    return any(op.state.status != jobs.QUEUED for op in job.ops)


def _inputs(job: jobs.QueuedJob) -> list[dict[str, Any]]:
    return [op.input for op in job.ops]


def _facts(job: jobs.QueuedJob) -> JobFacts:
    """A job for an explanation. Needs the lock, except for an archived one."""
    place = next((index for index, op in enumerate(job.ops)
                  if op.state.status not in jobs.FINALIZED), len(job.ops))
    op = job.ops[place] if place < len(job.ops) else None
    since = job.state.end if op is None else op.state.exec or op.state.start
    last = max((entry for other in job.ops for entry in other.log[-1:]),
               key=lambda entry: entry[0], default=None)
    depends = () if op is None else op.input.get("depends") or ()
    return JobFacts(
        id=job.id, status=job.shown_status, real_status=job.status,
        summary=tuple(other.summary() for other in job.ops), priority=job.priority, opcode=place,
        since=_seconds(since or job.received), message=None if last is None else str(last[3]),
        message_time=None if last is None else _seconds(last[1]),
        depends=tuple((int(job_id), tuple(states)) for job_id, states in depends))


def _seconds(stamp: jobs.Timestamp | None) -> float | None:
    return None if stamp is None else clock.merge(stamp)


def _reason(job: jobs.QueuedJob) -> str:
    return job.cancel_reason or "canceled by request"


def _check_ops(ops: Sequence[OpCode]) -> Sequence[OpCode] | errors.GenericError:
    """Validate opcodes; the error is a value, because each job of many is judged for itself."""
    try:
        for op in ops:
            op.validate()
            json.dumps(op.to_dict())
    except errors.GenericError as err:
        return err
    return ops
