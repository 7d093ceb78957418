"""The job queue as clients see it.

:class:`JobQueue` takes submissions, cancels, archives, answers questions; the jobs themselves live
in its :class:`~ganeti.jqueue.engine.Engine`. Operations that have to be durable before they are
answered take a callback and return at once, so that no thread waits for the disk on a client's
behalf; each has a form that waits, for callers inside the master.

Waiting for a job's change is a subscription (:meth:`JobQueue.watch`) which the job's own changes
feed.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import depend
from ganeti.jqueue import job as jobs
from ganeti.jqueue.commit import Batch, Waiter
from ganeti.jqueue.engine import Engine, Execute, Locks, at_work, inputs
from ganeti.jqueue.explain import JobFacts, QueueFacts
from ganeti.jqueue.filters import Verdict
from ganeti.jqueue.replicate import Transport
from ganeti.jqueue.watch import Watch
from ganeti.locking import Owner
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.utils import clock
from ganeti.wire import json

# How many jobs one commit of an automatic archiving moves, and one look at the jobs reads.
_CHUNK = 500
# So few jobs of one submission begin as soon as they are durable, while the candidates are being
# sent them. The work of more would delay the answer for all, so these begin when that is out.
_BEGIN_BEFORE = 5

# Called once with the result, or with the error.
Done = Callable[[Any, Exception | None], None]


class JobQueue:
    """All jobs of the cluster.

    :param execute: executes one opcode and returns its result (``Processor.execute`` of
    :mod:`ganeti.cmdlib.processor`).
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
        self._size_limit = size_limit
        self._drained = False
        self._engine = Engine(
            store,
            execute,
            lambda wanted: self.submit_many(wanted, drained_ok=True),
            locks=locks,
            transport=transport,
            livelock=livelock,
            filters=filters,
            max_running=max_running,
            now=now,
            fatal=fatal,
        )

    @property
    def engine(self) -> Engine:
        """The inner half."""
        return self._engine

    def when_shown(self, tell: Callable[[list[jobs.QueuedJob]], None]) -> None:
        """Call this with all jobs that may be told to have changed; it must be quick."""
        self._engine.on_shown = tell

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Read the queue from disk, settle what an earlier run left, and begin to work.

        :raises errors.JobQueueError: the directory cannot be used.
        """
        self._engine.start()
        self._drained = self._store.drained()

    def stop(self, timeout_s: float = 30.0) -> set[int]:
        """Start nothing more, wait for what runs, write everything.

        Jobs that wait for locks go back into the queue.

        :returns: ids of the jobs that still ran when the time was over; the next start will find
            them and mark them as failed.
        """
        return self._engine.stop(timeout_s)

    # -- submission ------------------------------------------------------------------------------

    def submit_many_async(
        self,
        wanted: Sequence[Sequence[OpCode] | errors.GenericError],
        done: Done,
        *,
        drained_ok: bool = False,
    ) -> None:
        """Submit jobs; `done` gets ``[id or error, ...]`` when they are durable and sent.

        Each job is accepted or refused for itself; negative dependencies count back in `wanted`,
        where an error stands for a job that was refused already.

        :param drained_ok: also when the queue is drained.
        """
        checked = [ops if isinstance(ops, Exception) else _check_ops(ops) for ops in wanted]
        with self._engine.lock:
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
                batch = self._engine.committer.add_new(accepted, self._engine.serial)
                accepted.sort(key=lambda job: (job.priority, job.id))
                if len(accepted) <= _BEGIN_BEFORE:
                    batch.when_durable(lambda err: self._accepted(accepted, err))
                batch.when_told(
                    lambda err: done(
                        results
                        if err is None
                        else [entry if isinstance(entry, Exception) else err for entry in results],
                        None,
                    )
                )
                if len(accepted) > _BEGIN_BEFORE:
                    batch.when_told(lambda err: self._accepted(accepted, err))
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

    def submit_many(
        self, wanted: Sequence[Sequence[OpCode]], *, drained_ok: bool = False
    ) -> list[list[Any]]:
        """Submit jobs and wait: ``[True, id]`` or ``[False, message]`` for each."""
        results = self._waited(
            lambda done: self.submit_many_async(wanted, done, drained_ok=drained_ok)
        )
        return [
            [False, str(result)] if isinstance(result, Exception) else [True, result]
            for result in results
        ]

    def _accept(
        self, ops: Sequence[OpCode], earlier: Sequence[int | Exception], drained_ok: bool
    ) -> jobs.QueuedJob:
        """Make a job of checked opcodes and give it an id. Needs the lock."""
        if self._engine.stopping:
            raise errors.JobQueueError("the master daemon is ending. Try again when it is back.")
        if self._drained and not drained_ok:
            raise errors.JobQueueDrainError("the job queue is drained and takes no new jobs")
        if self._engine.unfinished >= self._size_limit:
            raise errors.JobQueueFull()
        ids = [entry if isinstance(entry, int) else None for entry in earlier]
        depends = [depend.resolve(op.depends, ids) for op in ops]
        for wanted in depends:
            for job_id, _accepted in wanted or ():
                if job_id > self._engine.serial:
                    # Also keeps circles out: a job can only wait for an earlier one.
                    raise errors.OpPrereqError(
                        f"depends on job {job_id}, which does not exist", errors.ECODE_NOENT
                    )
        now = self._engine.now()
        now_ns = now[0] * 1_000_000_000 + now[1] * 1000
        self._engine.serial += 1
        for index, op in enumerate(ops):
            op.depends = depends[index]
            op.add_reason(op.reason_source(), f"job={self._engine.serial};index={index}", now_ns)
        job = jobs.QueuedJob(
            self._engine.serial, [jobs.QueuedOpCode.from_opcode(op) for op in ops], now
        )
        job.new = True
        if not ops:
            job.state = jobs.JobState(start=now, end=now)
        else:
            self._engine.unfinished += 1
        self._engine.jobs[job.id] = job
        return job

    def _accepted(self, accepted: Sequence[jobs.QueuedJob], error: Exception | None) -> None:
        """New jobs are durable, or were given up."""
        with self._engine.lock:
            for job in accepted:
                if error is not None:
                    del self._engine.jobs[job.id]
                    self._engine.unfinished -= bool(job.ops)
                else:
                    self._engine.schedule(job)

    # -- operations on jobs ----------------------------------------------------------------------

    def cancel_async(self, job_id: int, done: Done) -> None:
        """Cancel a job; `done` gets ``(success, message)``.

        A queued job ends at once; one that waits for locks when it is woken; a running one at the
        next point where it can stop.
        """
        with self._engine.lock:
            job = self._engine.known(job_id)
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
            self._engine.end_rest(job, jobs.CANCELED, errors.JobCanceled("canceled by request"))
            return (True, f"job {job.id} was canceled"), self._engine.committer.touch(job)
        job.cancel_reason = f"canceled by request while it was {status}"
        op.move(jobs.CANCELING)
        batch = self._engine.committer.touch(job)
        self._engine.wake(job)
        if status == jobs.WAITING:
            return (True, f"job {job.id} will be canceled"), batch
        return (
            True,
            f"job {job.id} is running and will be canceled at the next point where it can stop",
        ), batch

    def change_priority_async(self, job_id: int, priority: int, done: Done) -> None:
        """Give the unfinished opcodes of a job another priority; ``(success, message)``.

        :raises errors.OpPrereqError: no such priority.
        """
        if not const.PRIO_HIGHEST <= priority <= const.PRIO_LOWEST:
            raise errors.OpPrereqError(
                f"priority must be from {const.PRIO_HIGHEST} to {const.PRIO_LOWEST}, not"
                f" {priority}",
                errors.ECODE_INVAL,
            )
        with self._engine.lock:
            job = self._engine.known(job_id)
            if job is None:
                answer = (False, f"job {job_id} is not in the queue")
            elif job.finalized:
                answer = (False, f"job {job_id} has already ended ({job.status})")
            else:
                for op in job.ops:
                    if op.state.status not in jobs.FINALIZED:
                        op.set_priority(priority)
                self._engine.pool.reprioritise(job_id, priority)
                self._engine.gate.reprioritise(job_id, priority)
                batch = self._engine.committer.touch(job)
                answer = (True, f"priority of job {job_id} is now {priority}")
                batch.when_told(lambda err: done(answer, err))
                if self._engine.locks is not None:
                    self._engine.locks.reprioritise(self._engine.owner(job.id), priority)
                return
        done(answer, None)

    def archive_async(self, job_ids: Sequence[int], done: Done) -> None:
        """Move ended jobs to the archive; `done` gets how many it were."""
        with self._engine.lock:
            found = []
            for job_id in job_ids:
                job = self._engine.known(job_id)
                if job is not None and not job.archived and job.shown_status in jobs.FINALIZED:
                    job.archived = True
                    found.append(job_id)
            if found:
                self._engine.committer.archive(found).when_told(lambda err: done(len(found), err))
                return
        done(0, None)

    def auto_archive(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Archive what ended more than `age_s` ago (-1: all): ``(archived, left to look at)``."""
        deadline = time.monotonic() + timeout_s
        limit = clock.merge(self._engine.now()) - age_s
        with self._engine.lock:
            ids = sorted(self._engine.jobs)
        archived = 0
        for place in range(0, len(ids), _CHUNK):
            if time.monotonic() >= deadline:
                return archived, len(ids) - place
            with self._engine.lock:
                old = [
                    job_id
                    for job_id in ids[place : place + _CHUNK]
                    if self._ended_before(job_id, None if age_s == -1 else limit)
                ]
            if old:
                archived += self._waited(functools.partial(self.archive_async, old))
        return archived, 0

    def _ended_before(self, job_id: int, limit: float | None) -> bool:
        job = self._engine.jobs.get(job_id)
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
            lambda done: self.change_priority_async(job_id, priority, done)
        )
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
        with self._engine.lock:
            self._drained = drained
        if self._engine.replicator is not None:
            self._engine.replicator.set_drained(drained)

    def compare_copies(self) -> None:
        """Have the candidates' copies compared with this queue, and what differs sent."""
        if self._engine.replicator is not None:
            self._engine.replicator.compare()

    def set_filters(self, rules: Iterable[FilterRule]) -> None:
        """Other filter rules from now on: every job that no worker has taken up is judged anew."""
        with self._engine.lock:
            left = [job for job in self._engine.jobs.values() if not job.new and not job.finalized]
            self._engine.gate.set_rules(
                rules, [(job.id, inputs(job)) for job in left if at_work(job)]
            )
            for job in left:
                # A job which a worker is just taking out of the line is judged by that worker.
                if not at_work(job) and (
                    self._engine.gate.release(job.id)
                    or self._engine.pool.remove(job.id)
                    or self._engine.waiting.awaited(job.id) is not None
                ):
                    self._engine.waiting.remove(job.id)
                    self._engine.schedule(job)

    @property
    def last_job_id(self) -> int:
        """The highest job id given out so far."""
        return self._engine.serial

    def set_max_running(self, limit: int) -> None:
        """Change how many jobs are executed at once."""
        self._engine.pool.set_limit(limit)

    # -- queries ---------------------------------------------------------------------------------

    def query(
        self, job_ids: Sequence[int] | None, fields: Sequence[str], *, archived: bool = False
    ) -> list[list[Any] | None]:
        """Values of the fields of jobs, as committed.

        :param job_ids: None for all live jobs, ascending. An archived job is found by its id.
        :param archived: with `job_ids` None also the archived jobs.
        :returns: None in the place of an unknown job.
        :raises errors.OpPrereqError: a field does not exist.
        """
        jobs.check_fields(fields)
        if job_ids is None:
            with self._engine.lock:
                ids = sorted(self._engine.jobs)
            if archived:
                ids = sorted({*ids, *self._store.archived_ids()})
            return [row for row in self._rows(ids, fields) if row is not None]
        return list(self._rows(job_ids, fields))

    def _rows(self, ids: Sequence[int], fields: Sequence[str]) -> Iterable[list[Any] | None]:
        for place in range(0, len(ids), _CHUNK):
            chunk = ids[place : place + _CHUNK]
            with self._engine.lock:
                found = {
                    job_id: job.values(fields)
                    for job_id in chunk
                    if (job := self._engine.known(job_id)) is not None
                }
            for job_id in chunk:
                row = found.get(job_id)
                if row is None:
                    job = self._engine.archived_job(job_id)
                    row = None if job is None else job.values(fields)
                yield row

    # -- for explanations (jqueue.explain) -------------------------------------------------------

    def look(self) -> QueueFacts:
        """The queue as a whole."""
        engine = self._engine
        with engine.lock:
            now = engine.now()
            return QueueFacts(
                tuple(engine.pool.line()),
                frozenset(engine.pool.busy()),
                engine.pool.limit,
                self._drained,
                engine.stopping,
                engine.unfinished,
                engine.meter.total(now[0]),
                clock.merge(now),
            )

    def facts(self, job_id: int) -> JobFacts | None:
        """One job, also an archived one; None for an unknown one."""
        with self._engine.lock:
            job = self._engine.known(job_id)
            if job is not None:
                return _facts(job)
        job = self._engine.archived_job(job_id)
        return None if job is None else _facts(job)

    def kept_back(self, job_id: int) -> Verdict | None:
        """What the filter rule says that keeps a job back; None when none does."""
        with self._engine.lock:
            return self._engine.gate.held(job_id)

    def at_work_under(self, uuid: str) -> list[int]:
        """The jobs that take the places of a rate limit."""
        with self._engine.lock:
            return self._engine.gate.at_work_under(uuid)

    def owner(self, job_id: int) -> Owner:
        """Under which name a job of this process owns locks."""
        return self._engine.owner(job_id)

    # -- waiting for a change --------------------------------------------------------------------

    def watch(
        self,
        job_id: int,
        fields: Sequence[str],
        prev_info: list[Any] | None,
        prev_serial: int | None,
        tell: Callable[[Any], None],
    ) -> Watch | None:
        """Call `tell` once with ``[values, log entries]`` when they differ from what is known.

        :returns: the subscription, for :meth:`unwatch`; None when `tell` was called already.
        :raises errors.JobLost: no such job.
        """
        watch = Watch(job_id, fields, prev_info, prev_serial, tell)
        with self._engine.lock:
            job = self._engine.known(job_id)
            if job is not None:
                change = watch.change(job)
                if change is None:
                    self._engine.watches.add(watch)
                    return watch
        if job is None:
            job = self._engine.archived_job(job_id)
            if job is None:
                raise errors.JobLost(f"job {job_id} does not exist")
            change = watch.change(job)
        tell(change)
        return None

    def unwatch(self, watch: Watch) -> bool:
        """End a subscription; False when it was told already (or is being told now)."""
        with self._engine.lock:
            return self._engine.watches.remove(watch)

    @staticmethod
    def _waited(begin: Callable[[Done], None]) -> Any:
        waiter = Waiter()
        begin(waiter.done)
        return waiter.wait()


def _facts(job: jobs.QueuedJob) -> JobFacts:
    """A job for an explanation. Needs the lock, except for an archived one."""
    place = next(
        (index for index, op in enumerate(job.ops) if op.state.status not in jobs.FINALIZED),
        len(job.ops),
    )
    op = job.ops[place] if place < len(job.ops) else None
    since = job.state.end if op is None else op.state.exec or op.state.start
    last = max(
        (entry for other in job.ops for entry in other.log[-1:]),
        key=lambda entry: entry[0],
        default=None,
    )
    depends = () if op is None else op.input.get("depends") or ()
    return JobFacts(
        id=job.id,
        status=job.shown_status,
        real_status=job.status,
        summary=tuple(other.summary() for other in job.ops),
        priority=job.priority,
        opcode=place,
        since=_seconds(since or job.received),
        message=None if last is None else str(last[3]),
        message_time=None if last is None else _seconds(last[1]),
        depends=tuple((int(job_id), tuple(states)) for job_id, states in depends),
    )


def _seconds(stamp: jobs.Timestamp | None) -> float | None:
    return None if stamp is None else clock.merge(stamp)


def _check_ops(ops: Sequence[OpCode]) -> Sequence[OpCode] | errors.GenericError:
    """Validate opcodes; the error is a value, because each job of many is judged for itself."""
    try:
        for op in ops:
            op.validate()
            json.dumps(op.to_dict())
    except errors.GenericError as err:
        return err
    return ops
