"""Which job may start, its execution by a worker, and its end.

A job is *scheduled* when it was submitted, when the daemon starts, and again when something ended
for which it waited. It then waits for a worker in line, unless a filter rule keeps it back
(:mod:`.filters`) or it depends on another job (:mod:`.dependencies`). A worker executes its opcodes
one after the other until the job has ended or has to wait again. Everything that changes goes to
the committer; an opcode begins its work when the state "running" is on disk
(:mod:`.callbacks`).

:class:`~ganeti.jqueue.queue.JobQueue` makes the one :class:`Scheduler` and calls it. Methods which
need the lock of the :class:`~ganeti.jqueue.table.JobTable` say so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import dependencies, job_trace
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks, QueueStopping, Submit
from ganeti.jqueue.commit import Committer, Waiter
from ganeti.jqueue.execution import Execution, JobDetached, NotBegun, OwnProcess, Process
from ganeti.jqueue.filters import NO_RULE, FilterGate, FilterVerdict, rejection
from ganeti.jqueue.pause import Paused, QueuePause
from ganeti.jqueue.publisher import Publisher
from ganeti.jqueue.rate_meter import RateMeter
from ganeti.jqueue.table import JobTable
from ganeti.jqueue.worker import WorkerPool
from ganeti.objects import FilterRule
from ganeti.utils import clock, metrics, shortage
from ganeti.wire import json

_log = logging.getLogger(__name__)

_EARLIER_FAILED = "an earlier opcode of this job failed"

_OPCODES = metrics.Counter(
    "ganeti_master_opcodes", "Opcodes which have ended, by their result", ("opcode", "status")
)
_OPCODE_TIME = metrics.Histogram(
    "ganeti_master_opcode_seconds",
    "Time of the opcodes which have ended, in the queue, waiting for locks, and running",
    ("opcode", "phase"),
)


class Scheduler:
    """Starts jobs, executes them in worker threads and ends them.

    The parameters are those of :class:`~ganeti.jqueue.queue.JobQueue`.

    :param submit: submits the jobs for which a job asks.
    :ivar waits: which jobs wait for the end of which other one.
    :ivar gate: which jobs the filter rules keep back.
    :ivar pool: the worker threads, and the jobs in line for them.
    :ivar meter: how many jobs ended in the last minute.
    :ivar pause: why no job is taken up.
    """

    def __init__(
        self,
        table: JobTable,
        committer: Committer,
        publisher: Publisher,
        execution: Execution,
        submit: Submit,
        *,
        filters: Iterable[FilterRule],
        fatal: Callable[[], None],
    ) -> None:
        self._table = table
        self._publisher = publisher
        self._own_process = OwnProcess(execution.execute, table.livelock)
        self._executor = execution.executor
        self._adopted: dict[int, Process] = {}
        self._submit = submit
        self._locks = execution.locks
        self.committer = committer
        self.waits = dependencies.DependencyWaits()
        self.gate = FilterGate(filters)
        self.meter = RateMeter()
        self.pause = QueuePause(lambda: clock.merge(table.now()))
        self.pool = WorkerPool(self._run_job, execution.max_running, fatal)

    # -- may a job start? ------------------------------------------------------------------------

    def schedule(self, job: jobs.QueuedJob) -> None:
        """Put a job in line, or let it wait for another job or a filter rule. Needs the lock.

        A job with which that fails ends with the error, because one job must not end the daemon.
        """
        op = job.current()
        if op is None or self._table.stopping:
            return
        try:
            if self._may_start(job, op) is not None:
                self.pool.add(job.id, job.priority, self.pause.tries(job.id))
        except Exception as err:  # noqa: BLE001 -- the entry point of a job step
            self._give_up(job, err)

    def _give_up(self, job: jobs.QueuedJob, err: Exception) -> None:
        """End a job in which an internal error happened. Needs the lock."""
        _log.exception("job %d: internal error", job.id)
        if not job.finalized:
            self.end_rest(job, jobs.ERROR, _internal_error(err))

    def _may_start(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> FilterVerdict | None:
        """Return the verdict of the filters on a job which may start now; else None.

        Ends the job when a filter rejects it, or when its dependencies can never be satisfied.
        Needs the lock.
        """
        verdict = NO_RULE
        if not job.taken_up:
            verdict = self.gate.judge(job.id, job.inputs)
            if verdict.action == const.FILTER_REJECT:
                self.end_rest(job, jobs.CANCELED, rejection(verdict))
                return None
            if verdict.action == const.FILTER_PAUSE:
                self.gate.hold(job.id, job.priority, verdict)
                return None
        if not self._dependencies_allow(job, op):
            return None
        # The last check, because a job that is given a free place must then use it.
        if not self.gate.has_free_place(verdict):
            self.gate.hold(job.id, job.priority, verdict)
            self._schedule_ready(self.gate.take_ready())
            return None
        return verdict

    def _schedule_ready(self, job_ids: Iterable[int]) -> None:
        """Put jobs in line which have a place under their rate limits now. Needs the lock."""
        for job_id in job_ids:
            self.schedule(self._table.jobs[job_id])

    def _dependencies_allow(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> bool:
        """Return True if the dependencies of an opcode are satisfied.

        Ends the job when they can never be. Needs the lock.
        """
        depends = op.input.get("depends")
        if not depends:
            return True
        decision = dependencies.decide(
            depends,
            # A job can only wait for an earlier one, so no two of them wait for each other.
            lambda wanted: self._table.status_of(wanted) if wanted < job.id else None,
        )
        if decision.verdict is dependencies.Verdict.GO:
            return True
        if decision.verdict is dependencies.Verdict.WAIT:
            self.waits.add(job.id, decision.job_id)
        elif decision.verdict is dependencies.Verdict.CANCEL:
            self.end_rest(job, jobs.CANCELED, errors.JobCanceled(decision.reason))
        else:
            self.end_rest(
                job, jobs.ERROR, errors.OpPrereqError(decision.reason, errors.ECODE_STATE)
            )
        return False

    def set_filters(self, rules: Iterable[FilterRule]) -> None:
        """Use other filter rules and judge every job anew which no worker has taken up."""
        with self._table.lock:
            left = [job for job in self._table.jobs.values() if not job.new and not job.finalized]
            self.gate.set_rules(rules, [(job.id, job.inputs) for job in left if job.taken_up])
            for job in left:
                if not job.taken_up and (
                    self.gate.release(job.id)
                    or self.pool.remove(job.id)
                    or self.waits.awaited(job.id) is not None
                ):
                    self.waits.remove(job.id)
                    self.schedule(job)

    def reprioritise(self, job: jobs.QueuedJob, priority: int) -> None:
        """Move a job to its new place wherever it waits. Needs the lock."""
        self.pool.reprioritise(job.id, priority)
        self.gate.reprioritise(job.id, priority)
        if self._locks is not None:
            self._locks.reprioritise(self._table.owner(job.id), priority)

    def wake(self, job: jobs.QueuedJob) -> None:
        """Let a job which waits for locks notice that it is to stop, and one in a process, too."""
        if self._executor is not None:
            self._executor.wake(job.id)
        if self._locks is not None:
            self._locks.wake(self._table.owner(job.id))

    def stop(self, timeout_s: float) -> set[int]:
        """Start nothing more; jobs which wait for locks go back into the queue.

        :returns: ids of the jobs which still run after `timeout_s` seconds.
        """
        with self._table.lock:
            self._table.stopping = True
            waiting = [
                job
                for job in self._table.jobs.values()
                if any(op.state.status == jobs.WAITING for op in job.ops)
            ]
        for job in waiting:
            self.wake(job)
        if self._executor is not None:
            self._executor.detach()
        return self.pool.stop(timeout_s)

    def adopt(self, processes: Mapping[int, Process]) -> None:
        """Take over jobs whose opcodes are running in processes. Needs the lock.

        :param processes: job id -> process.
        """
        self._adopted.update(processes)
        for job_id in processes:
            job = self._table.jobs[job_id]
            self.gate.enter(job_id, NO_RULE)
            op = job.current()
            if op is not None and op.state.status == jobs.CANCELING:
                job.cancel_reason = "canceled by request before the master daemon was restarted"
            # Before all others, so that none of these waits for a worker which waits for it.
            self.pool.add(job_id, const.PRIO_HIGHEST - 1)

    def kill(self, job_id: int, reason: str) -> bool:
        """End the process of a job at once; return whether there was one."""
        return self._executor is not None and self._executor.kill(job_id, reason)

    # -- execution, in a worker ------------------------------------------------------------------

    def _run_job(self) -> None:
        """Execute the opcodes of the next job until it has ended or has to wait for something."""
        # One holding of the lock for both: jobs get their places under rate limits in the order
        # of the line, and no job is between the line and a worker.
        with self._table.lock:
            job_id = self.pool.take()
            process = begun = adopted = None
            if job_id is not None:
                process = adopted = self._adopted.pop(job_id, None)
                if process is not None:
                    begun = self._running(job_id)
                else:
                    process = None if self._gets_process() else self._own_process
                    begun = self._begin(job_id, process)
        try:
            while begun is not None:
                if process is None:
                    process = self._open_process(*begun)
                if process is None or not self._run_op(*begun, process):
                    return
                if process is adopted:
                    # An older release may have made it, which does not know later opcodes as well.
                    process.close()
                    process = None if self._gets_process() else self._own_process
                with self._table.lock:
                    begun = self._begin(begun[0].id, process)
        finally:
            if process is not None:
                process.close()

    def _begin(
        self, job_id: int, process: Process | None
    ) -> tuple[jobs.QueuedJob, jobs.QueuedOpCode] | None:
        """Begin the next opcode of a job; None when there is none, or it may not start now.

        A job with which that fails ends with the error. Needs the lock.

        :param process: where it is executed; None for a process which has to be made.
        """
        job = self._table.jobs.get(job_id)
        if job is None:
            return None
        try:
            op = self._begin_op(job, process)
        except Exception as err:  # noqa: BLE001 -- the entry point of a job step
            self._give_up(job, err)
            return None
        return None if op is None else (job, op)

    def _running(self, job_id: int) -> tuple[jobs.QueuedJob, jobs.QueuedOpCode] | None:
        """Return the opcode which a process executes already. Needs the lock."""
        job = self._table.jobs[job_id]
        op = job.current()
        return None if op is None else (job, op)

    def _open_process(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> Process | None:
        """Make the process of a job, and name it in its file; None when that was not possible."""
        assert self._executor is not None
        try:
            process = self._executor.open(job.id)
        except Exception as err:  # noqa: BLE001 -- the entry point of a job step
            self._not_executed(job, op, err)
            return None
        with self._table.lock:
            job.state = job.state._replace(livelock=process.livelock, process_id=process.process_id)
        return process

    def _begin_op(self, job: jobs.QueuedJob, process: Process | None) -> jobs.QueuedOpCode | None:
        """Move the next opcode to "waiting" (for its locks). Needs the lock."""
        op = job.current()
        if op is None or self._table.stopping:
            return None
        verdict = self._may_start(job, op)
        if verdict is None:
            return None
        self.gate.enter(job.id, verdict)
        now = self._table.now()
        op.move(jobs.WAITING, start=now)
        # The process of a job, if it gets one, is noted when it has been made.
        noted = self._own_process if process is None else process
        job.state = job.state._replace(
            start=job.state.start or now,
            livelock=noted.livelock,
            process_id=noted.process_id,
        )
        # A process begins later, so that this would often be a commit of its own. For it, the state
        # is written when it waits for a lock, or with the beginning of its work.
        if process is self._own_process:
            self.committer.touch(job)
        return op

    def _gets_process(self) -> bool:
        """Return True if a job which starts now gets a process."""
        return self._executor is not None and self._executor.in_use()

    def _run_op(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, process: Process) -> bool:
        """Execute an opcode, as a span of a trace; whether the next one may follow."""
        with job_trace.opcode(job, op):
            return self._try_op(job, op, process)

    def _try_op(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, process: Process) -> bool:
        callbacks = Callbacks(
            *(self._table, self.committer, self._publisher, job, op, self._submit),
            reached=lambda: self._reached(job),
        )
        ended: Waiter | None = None
        try:
            result = process.execute(op, callbacks, job.ops.index(op))
            json.dumps(result)
            json.check_nesting(result)
            if op.state.status == jobs.WAITING:
                callbacks.notify_start()
        except JobDetached:
            _log.info("job %d goes on without this master daemon", job.id)
            return False
        except QueueStopping:
            with self._table.lock:
                if op.state.status == jobs.WAITING:
                    op.move(jobs.QUEUED, start=None)
                    self.committer.touch(job)
                else:
                    self.end_rest(job, jobs.CANCELED, job.cancellation())
            return False
        except errors.JobCanceled as err:
            with self._table.lock:
                self.end_rest(job, jobs.CANCELED, err)
            return False
        except Exception as err:  # noqa: BLE001 -- the entry point of a job step
            self._not_executed(job, op, err)
            return False
        with self._table.lock:
            op.move(jobs.SUCCESS, result=result, end=self._table.now())
            _measure(job, op)
            op.drop_opcode()
            if job.cancel_reason is not None and not job.finalized:
                self.end_rest(job, jobs.CANCELED, job.cancellation())
            elif job.finalized:
                self._ended(job)
            else:
                batch = self.committer.touch(job)
                if process is not self._own_process:
                    ended = Waiter()
                    batch.when_durable(lambda err: ended.done(None, err))
        if ended is not None:
            # A process which is sent the next opcode forgets this result. The next master daemon
            # would not find it anywhere, if this one were killed now. An error means that the queue
            # stops, and begins nothing more.
            with contextlib.suppress(errors.JobQueueError):
                ended.wait()
        return True

    # -- an opcode which was not executed --------------------------------------------------------

    def _not_executed(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, err: Exception) -> None:
        """Put a job back which could not begin for a reason outside of it; end any other one."""
        lacking = "" if isinstance(err, errors.GenericError) else shortage.described(err)
        if isinstance(err, NotBegun):
            self._put_back(job, op, err)
        elif lacking and op.state.exec is None:
            self._put_back(job, op, NotBegun(lacking))
        elif isinstance(err, errors.GenericError):
            _log.info("job %d: %s failed: %s", job.id, op.summary(), err)
            self._end_failed(job, op, err)
        else:
            _log.error("job %d: internal error in %s", job.id, op.summary(), exc_info=err)
            self._end_failed(job, op, _internal_error(err))

    def _put_back(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, err: NotBegun) -> None:
        """Let a job wait in line once more, and pause; end it when it was tried too often."""
        _log.warning("job %d goes back into the queue: %s", job.id, err)
        with self._table.lock:
            self.pause.note(job.id, ended=err.ended)
            if self.pool.may_pause():
                self.pool.pause(self.pause.begin(str(err)))
            if job.finalized:
                return
            if job.cancel_reason is not None:
                self.end_rest(job, jobs.CANCELED, job.cancellation())
                return
            tries = self.pause.tries(job.id)
            if not self.pause.may_retry(job.id):
                job.fail(op, _given_up(err, tries), self._table.now())
                self.end_rest(job, jobs.ERROR, errors.OpExecError(_EARLIER_FAILED))
                return
            if tries == 1:
                text = f"this did not begin, and is tried again: {err}"
                job.add_log(op, const.LOG_MESSAGE, text, self._table.now())
            op.move(jobs.QUEUED, start=None)
            job.state = job.state._replace(livelock=None, process_id=None)
            if not job.taken_up:
                self._schedule_ready(self.gate.ended(job.id))
            self.committer.touch(job)
            self.schedule(job)

    def _reached(self, job: jobs.QueuedJob) -> None:
        """Note that an opcode is where it is executed, so that others can be executed, too."""
        with self._table.lock:
            op = job.current()
            if op is not None and op.state.exec is not None:
                self.pause.forget(job.id)
            if self.pause.end():
                _log.info("job %d is executed, so the pause of the queue is over", job.id)
                self.pool.resume()

    def paused(self) -> Paused | None:
        """Return why no job, or too few jobs, are executed; None when nothing is wrong.

        Needs the lock.
        """
        return self.pause.state or self.pool.shortage()

    # -- the end of a job ------------------------------------------------------------------------

    def _end_failed(self, job: jobs.QueuedJob, op: jobs.QueuedOpCode, err: Exception) -> None:
        with self._table.lock:
            job.fail(op, err, self._table.now())
            _measure(job, op)
            self.end_rest(job, jobs.ERROR, errors.OpExecError(_EARLIER_FAILED))

    def end_rest(self, job: jobs.QueuedJob, status: str, err: Exception) -> None:
        """End every unfinished opcode of a job, and so the job. Needs the lock.

        :param status: the state of these opcodes; `err` is their result.
        """
        job.end_rest(status, err, self._table.now())
        self._ended(job)

    def _ended(self, job: jobs.QueuedJob) -> None:
        """Do what follows the end of a job's last opcode. Needs the lock."""
        now = self._table.now()
        job.state = job.state._replace(end=now)
        job_trace.ended(job)
        self._table.unfinished -= 1
        self.meter.count(now[0])
        _log.info(
            "job %d (%s) ended: %s", job.id, ", ".join(op.summary() for op in job.ops), job.status
        )
        self.waits.remove(job.id)
        self.pool.remove(job.id)
        self.pause.forget(job.id)
        self._schedule_ready(self.gate.ended(job.id))
        batch = self.committer.touch(job)
        batch.when_durable(lambda _err: self._release_waiters(job.id))

    def _release_waiters(self, job_id: int) -> None:
        """Schedule the jobs which waited for a job whose end is durable now."""
        with self._table.lock:
            for waiter in self.waits.ended(job_id):
                job = self._table.jobs.get(waiter)
                if job is not None:
                    self.schedule(job)


def _measure(job: jobs.QueuedJob, op: jobs.QueuedOpCode) -> None:
    """Count an opcode which has ended, and its time in each phase."""
    name, state = str(op.input.get("OP_ID")), op.state
    _OPCODES.add(name, state.status)
    first = op is job.ops[0]
    phases = (
        ("queued", job.received if first else None, state.start),
        ("waiting", state.start, state.exec),
        ("running", state.exec, state.end),
    )
    for phase, begin, end in phases:
        if begin is not None and end is not None:
            seconds = end[0] - begin[0] + (end[1] - begin[1]) / 1e6
            _OPCODE_TIME.observe(seconds, name, phase)


def _given_up(err: NotBegun, tries: int) -> errors.OpExecError:
    return errors.OpExecError(
        f"{err}. The job was tried {tries} times, and has changed nothing since it was tried first."
        " Submit it again when the cause is gone."
    )


def _internal_error(err: Exception) -> errors.OpExecError:
    return errors.OpExecError(
        f"internal error: {type(err).__name__}: {err}. The master's log has the details."
    )
