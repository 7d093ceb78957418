"""The job queue: submitting, executing and querying jobs.

:class:`JobQueue` is what the rest of the master daemon uses. It holds the parts of the queue: the
:class:`~ganeti.jqueue.table.JobTable` with all live jobs and their lock, the
:class:`~ganeti.jqueue.scheduler.Scheduler` which executes them, the
:class:`~ganeti.jqueue.commit.Committer` which makes changes durable, the
:class:`~ganeti.jqueue.replication.Replicator` which sends them to the other master candidates, and
the :class:`~ganeti.jqueue.publisher.Publisher` which shows them to clients. What clients do with a
job, such as to cancel it, is its part :class:`~ganeti.jqueue.operations.JobOperations`.

Operations which have to be durable before they are answered take a callback and return at once, so
that no thread waits for the disk on a client's behalf; each has a form that waits, for callers
inside the master daemon.

An opcode is validated once on its way into the queue: by :meth:`JobQueue.submit_many_async`,
through which every submission passes, or, if it is read from a job file after a restart, by
:meth:`ganeti.jqueue.job.QueuedOpCode.opcode`.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue import dependencies, recovery
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import MAJORITY_HINT, SubmitResult
from ganeti.jqueue.catch_up import LocalQueue
from ganeti.jqueue.commit import Committer
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.operations import CHUNK, Done, JobOperations, result_of
from ganeti.jqueue.pause import Paused
from ganeti.jqueue.publisher import Publisher
from ganeti.jqueue.replication import Candidates, Replicator
from ganeti.jqueue.restore import Restorer
from ganeti.jqueue.scheduler import Scheduler
from ganeti.jqueue.table import JobTable
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.utils import clock, tracing
from ganeti.utils.effort import Effort
from ganeti.wire import json

# Up to this number of jobs of one submission begin as soon as they are durable, while they are
# being sent to the candidates. The work of more jobs would delay the answer for all of them, so
# those begin after the answer.
_BEGIN_BEFORE = 5

# Seconds to wait at the start until the candidates know the first job id.
_CONFIRM_S = 10.0
# Number of job ids which are kept for marking nodes as offline.
_KEPT_IDS = 1000
_ALONE = (
    "warning: no other master candidate has stored this job yet; it is lost if this node fails now"
)

_log = logging.getLogger(__name__)


class JobQueue:
    """All jobs of the cluster.

    :param candidates: the other master candidates; None when there are none.
    :param livelock: file which this process keeps locked; names the process in job files.
    :param filters: rules which decide whether a job may start.
    :param size_limit: number of unfinished jobs above which submissions are refused.
    :param now: the time as ``(seconds, microseconds)`` since the epoch.
    :param fatal: called when a thread of the queue died of a bug: the daemon has to end.
    :ivar drained: whether new jobs are refused; changed by :meth:`set_drain`.
    """

    def __init__(
        self,
        store: QueueStore,
        execution: Execution,
        *,
        candidates: Candidates | None = None,
        livelock: str | None = None,
        filters: Iterable[FilterRule] = (),
        size_limit: int = const.QUEUE_HARD_LIMIT,
        now: Callable[[], tuple[int, int]] = clock.now_split,
        fatal: Callable[[], None] = os.abort,
    ) -> None:
        self._store = store
        self._execution = execution
        self._size_limit = size_limit
        # A master that has taken over counts the ids which nobody else knows from here.
        self._first_id = 0
        self.drained = False
        # Two administrators change the flag in the same order on the disk and in memory.
        self._changing_drained = threading.Lock()
        self.table = JobTable(store, now=now, livelock=livelock)
        self.publisher = Publisher(self.table)
        here = LocalQueue(store, self.table.had)
        self.replicator = None if candidates is None else Replicator(candidates, here)
        self.committer = Committer(
            store,
            self.table.lock,
            send=None if self.replicator is None else self.replicator.send,
            publish=self.publisher.publish,
            alone=self._accepted_alone,
            fatal=fatal,
            majority=(lambda: False) if candidates is None else candidates.majority,
        )
        self.scheduler = Scheduler(
            self.table,
            self.committer,
            self.publisher,
            execution,
            functools.partial(self.submit_many, drained_ok=True),
            filters=filters,
            fatal=fatal,
        )
        parts = (self.table, self.scheduler, self.committer, self.publisher)
        self.operations = JobOperations(*parts, execution.executor)
        if candidates is not None:
            here.restore = Restorer(self.table, self.scheduler, candidates.transport).restore

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Read the queue from disk, settle what an earlier run left, and begin to work.

        :raises errors.JobQueueError: the directory cannot be used.
        """
        self._store.open()
        recovery.load(self.table)
        running = [job for job in self.table.jobs.values() if recovery.running(job) is not None]
        executor = self._execution.executor
        adopted, ended = ({}, {}) if executor is None else executor.adopt(running)
        self._execution.interrupted([job for job in running if job.id not in adopted])
        self.committer.start()
        self.scheduler.pool.start()
        if self._store.taken_over:
            self.table.skip_ids()
            with self.table.lock:
                self.committer.add_new((), self.table.serial)
        with self.table.lock:
            left = [job for job in self.table.jobs.values() if not job.finalized]
            self.table.unfinished = len(left)
            self.scheduler.adopt(adopted)
            for job in left:
                if job.id not in adopted:
                    recovery.settle(self.table, self.scheduler, job, ended.get(job.id))
                # Published before it is on disk, because another start would give the same state.
                job.publish(job.snapshot())
            if self.replicator is not None:
                self.replicator.start(self.table.serial)
            for job in left:
                if not job.finalized and job.id not in adopted:
                    self.scheduler.schedule(job)
        self.drained = self._store.drained()
        if self.replicator is not None and self._store.taken_over:
            self._confirm_ids(self.replicator)

    def _confirm_ids(self, replicator: Replicator) -> None:
        """Let a majority of the candidates know the first job id before jobs get any."""
        if not replicator.wait_confirmed(self.table.serial, _CONFIRM_S):
            _log.warning(
                "job queue: too few master candidates know that job ids begin with %d now. If"
                " another node becomes the master, it may give some of them to other jobs.",
                self.table.serial + 1,
            )
        self._first_id = self.table.serial

    def stop(self, timeout_s: float = 30.0) -> set[int]:
        """Start nothing more, wait for running jobs, write everything.

        Jobs which wait for locks go back into the queue.

        :returns: ids of the jobs which still ran after `timeout_s` seconds; the next start will
            find them and mark them as failed.
        """
        left = self.scheduler.stop(timeout_s)
        self.committer.stop()
        if self.replicator is not None:
            self.replicator.stop()
        return left

    def is_unfinished(self, job_id: int) -> bool:
        """Tell whether a job has not ended."""
        with self.table.lock:
            job = self.table.jobs.get(job_id)
            return job is not None and not job.finalized

    # -- submission ------------------------------------------------------------------------------

    def submit_many_async(
        self,
        wanted: Sequence[Sequence[OpCode] | errors.GenericError],
        done: Done,
        *,
        drained_ok: bool = False,
    ) -> None:
        """Submit jobs; `done` gets ``[job id or error, ...]`` when they are published.

        Each job is accepted or refused separately; negative dependencies count back in `wanted`,
        where an error stands for a job that was refused already.

        :param drained_ok: also when the queue is drained.
        """
        checked = [ops if isinstance(ops, Exception) else _check_ops(ops) for ops in wanted]
        with self.table.lock:
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
                batch = self.committer.add_new(accepted, self.table.serial)
                accepted.sort(key=lambda job: (job.priority, job.id))
                if len(accepted) <= _BEGIN_BEFORE:
                    batch.when_durable(lambda err: self._begin(accepted, err))
                batch.when_published(
                    lambda err: done(
                        [
                            entry
                            if isinstance(entry, Exception)
                            else err or _not_acknowledged(entry, batch.shortfall) or entry
                            for entry in results
                        ],
                        None,
                    )
                )
                if len(accepted) > _BEGIN_BEFORE:
                    batch.when_published(lambda err: self._begin(accepted, err))
        if not accepted:
            done(results, None)

    def submit_async(self, ops: Sequence[OpCode], done: Done, *, drained_ok: bool = False) -> None:
        """Submit one job; `done` gets its id, or the error."""

        def report(results: Any, _error: Exception | None) -> None:
            result = results[0]
            if isinstance(result, Exception):
                done(None, result)
            else:
                done(result, None)

        self.submit_many_async([ops], report, drained_ok=drained_ok)

    def submit(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        """Submit one job and wait until it is published.

        :returns: the job's id.
        :raises errors.OpPrereqError: an opcode is not valid.
        :raises errors.JobQueueDrainError: the queue takes no new jobs.
        :raises errors.JobQueueFull: too many jobs are unfinished.
        :raises errors.JobQueueError: the job cannot be stored.
        """
        return int(result_of(lambda done: self.submit_async(ops, done, drained_ok=drained_ok)))

    def submit_many(
        self, wanted: Sequence[Sequence[OpCode]], *, drained_ok: bool = False
    ) -> list[SubmitResult]:
        """Submit jobs and wait until they are published.

        :returns: ``[True, job id]`` or ``[False, message]`` for each job.
        """
        results = result_of(
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
        table = self.table
        if table.stopping:
            raise errors.JobQueueError("the master daemon is ending. Try again when it is back.")
        if self.drained and not drained_ok:
            raise errors.JobQueueDrainError("the job queue is drained and takes no new jobs")
        if table.unfinished >= self._size_limit:
            raise errors.JobQueueFull()
        self._check_ids_left(ops)
        ids = [entry if isinstance(entry, int) else None for entry in earlier]
        depends = [dependencies.resolve(op.depends, ids) for op in ops]
        now = table.now()
        now_ns = now[0] * 1_000_000_000 + now[1] * 1000
        table.serial += 1
        for index, op in enumerate(ops):
            op.depends = depends[index]
            op.add_reason(op.reason_source(), f"job={table.serial};index={index}", now_ns)
        job = jobs.QueuedJob(table.serial, [jobs.QueuedOpCode.from_opcode(op) for op in ops], now)
        job.new = True
        job.trace = tracing.current()
        if not ops:
            job.state = jobs.JobState(start=now, end=now)
        else:
            table.unfinished += 1
        table.jobs[job.id] = job
        return job

    def _check_ids_left(self, ops: Sequence[OpCode]) -> None:
        """Refuse a job whose id the next master would give to another job. Needs the lock.

        The last ids are kept for the jobs which mark unresponsive candidates as offline.
        """
        confirmed = None if self.replicator is None else self.replicator.confirmed_serial
        if confirmed is None:
            return
        confirmed = max(confirmed, self._first_id)
        offline = all(op.OP_ID == "OP_NODE_SET_PARAMS" for op in ops)
        most = const.JOB_ID_GAP - (0 if offline else _KEPT_IDS)
        if self.table.serial - confirmed >= most:
            raise errors.JobQueueError(
                f"too few master candidates have stored any of the last {most} jobs, so no more can"
                " be accepted. Repair the candidates, or mark them as offline with 'gnt-node"
                " modify'."
            )

    def _accepted_alone(self, accepted: Sequence[jobs.QueuedJob]) -> None:
        """Say in the log of each job that only this node has it."""
        with self.table.lock:
            for job in accepted:
                if job.ops:
                    op = job.current() or job.ops[-1]
                    job.add_log(op, const.LOG_MESSAGE, _ALONE, self.table.now())
                    self.committer.touch(job)

    def _begin(self, accepted: Sequence[jobs.QueuedJob], error: Exception | None) -> None:
        """Schedule new jobs which are durable, or forget them when they could not be stored."""
        with self.table.lock:
            for job in accepted:
                if error is not None:
                    del self.table.jobs[job.id]
                    self.table.unfinished -= bool(job.ops)
                else:
                    self.scheduler.schedule(job)

    # -- settings --------------------------------------------------------------------------------

    def set_drain(self, drained: bool) -> None:
        """Refuse new jobs, or accept them again, on this node and on the candidates.

        :raises errors.JobQueueError: the flag cannot be changed on this node's disk.
        """
        with self._changing_drained:
            self._store.set_drained(drained)
            with self.table.lock:
                self.drained = drained
        if self.replicator is not None:
            self.replicator.set_drained(drained)

    def compare_copies(self) -> None:
        """Compare the candidates' copies with this queue and send what they lack, if any."""
        if self.replicator is not None:
            self.replicator.compare()

    def lost_jobs(self) -> dict[int, str]:
        """Return why jobs could not be read when the daemon started, by id."""
        with self.table.lock:
            return dict(self.table.lost)

    def repair_files(self) -> dict[int, str]:
        """Compare the files of jobs with the jobs in memory; write those anew which are damaged.

        :returns: what was wrong, by job id.
        """
        with self.table.lock:
            live = [job for job in self.table.jobs.values() if not job.new and not job.archived]
        wrong = {}
        for job in live:
            problem = self._problem_of_file(job)
            if problem is not None:
                wrong[job.id] = problem
                with self.table.lock:
                    if self.table.known(job.id) is job:
                        self.committer.touch(job)
        return wrong

    def _problem_of_file(self, job: jobs.QueuedJob) -> str | None:
        with self.table.lock:
            # The file of a running job may be older, and lacks its last log entries.
            settled = job.finalized and job.snapshot() if job.at_rest else None
        try:
            text = self._store.read_job(job.id)
            if text is None:
                with self.table.lock:
                    return None if job.archived else "it does not exist"
            found = jobs.decode(text)
        except (OSError, errors.JobFileCorrupted) as err:
            return str(err)
        if found.id != job.id:
            return f"it holds job {found.id}"
        if settled and found.next_log_serial < settled.job.next_log_serial:
            return None  # A log entry is being written.
        if settled and jobs.encode(found.snapshot()) != jobs.encode(settled):
            return "it differs from the job"
        return None

    def set_max_running(self, limit: int) -> None:
        """Change the number of jobs which are executed at once."""
        self.scheduler.pool.set_limit(limit)

    # -- queries ---------------------------------------------------------------------------------

    def paused(self) -> Paused | None:
        """Return why no jobs are taken up, although some wait; None when nothing is wrong."""
        with self.table.lock:
            return self.scheduler.paused()

    def query(
        self,
        job_ids: Sequence[int] | None,
        fields: Sequence[str],
        *,
        archived: bool = False,
        effort: Effort | None = None,
    ) -> list[list[Any] | None]:
        """Return values of fields of jobs, as published.

        :param job_ids: None for all live jobs, ascending. An archived job is found by its id.
        :param archived: with `job_ids` None also the archived jobs.
        :param effort: the work of the request, which ends when its client has gone.
        :returns: the values in the order of the fields for each job; None for an unknown job.
        :raises errors.OpPrereqError: a field does not exist.
        """
        jobs.check_fields(fields)
        effort = effort or Effort()
        if job_ids is None:
            with self.table.lock:
                ids = sorted(self.table.jobs)
            if archived:
                ids = sorted({*ids, *self._store.archived_ids()})
            return [row for row in self._rows(ids, fields, effort) if row is not None]
        return list(self._rows(job_ids, fields, effort))

    def _rows(
        self, ids: Sequence[int], fields: Sequence[str], effort: Effort
    ) -> Iterable[list[Any] | None]:
        for place in range(0, len(ids), CHUNK):
            chunk = ids[place : place + CHUNK]
            effort.spend(len(chunk) * len(fields))
            with self.table.lock:
                found = {
                    job_id: job.values(fields)
                    for job_id in chunk
                    if (job := self.table.known(job_id)) is not None
                }
            for job_id in chunk:
                row = found.get(job_id)
                if row is None:
                    job = self.table.archived(job_id)
                    row = None if job is None else job.values(fields)
                yield row


def _not_acknowledged(job_id: int, shortfall: str) -> errors.JobQueueError | None:
    """Return the error for the submitter of a job which too few candidates have; None otherwise."""
    if not shortfall:
        return None
    return errors.JobQueueError(
        f"{shortfall} have job {job_id}, so it is not acknowledged: it goes on as long as this node"
        " is the master, and is lost if another node takes the role. 'gnt-job list' shows it."
        f" {MAJORITY_HINT}"
    )


def _check_ops(ops: Sequence[OpCode]) -> Sequence[OpCode] | errors.GenericError:
    """Validate opcodes; the error is a value, because each job of many is judged separately."""
    try:
        for op in ops:
            op.validate()
            values = op.to_dict()
            written = json.dumps(values)
            json.check_nesting(values)
            if "\\u" in written:
                json.check_texts(values)
    except errors.ParseError as err:
        return errors.OpPrereqError(f"{op.OP_ID}: {err}", errors.ECODE_INVAL)
    except errors.GenericError as err:
        return err
    return ops
