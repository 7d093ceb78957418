"""Operations on jobs of the queue: cancel, kill, change the priority, archive, wait for a change.

Those which have to be durable before they are answered take a callback and return at once, so that
no thread waits for the disk on a client's behalf; each has a form that waits, for callers inside
the master daemon.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import job as jobs
from ganeti.jqueue.commit import Batch, Committer, Waiter
from ganeti.jqueue.execution import Executor
from ganeti.jqueue.publisher import Publisher
from ganeti.jqueue.scheduler import Scheduler
from ganeti.jqueue.subscriptions import JobChange, Subscription
from ganeti.jqueue.table import JobTable
from ganeti.utils import clock

# Number of jobs which one commit of an automatic archiving moves, and which are read at once.
CHUNK = 500
# A serial of log entries which no job reaches.
_NO_LOG = 1 << 62

#: Called once with the result, or with the error.
Done = Callable[[Any, Exception | None], None]


def result_of(begin: Callable[[Done], None]) -> Any:
    """Begin an operation which takes a callback, and wait for its result."""
    waiter = Waiter()
    begin(waiter.done)
    return waiter.wait()


class JobOperations:
    """The operations on the jobs of a queue.

    :param executor: the processes of jobs; None when there are none.
    """

    def __init__(
        self,
        table: JobTable,
        scheduler: Scheduler,
        committer: Committer,
        publisher: Publisher,
        executor: Executor | None,
    ) -> None:
        self._table = table
        self._scheduler = scheduler
        self._committer = committer
        self._publisher = publisher
        self._executor = executor

    def cancel_async(self, job_id: int, done: Done) -> None:
        """Cancel a job; `done` gets ``(success, message)``.

        A queued job ends at once; a job which waits for locks ends when it is woken; a running one
        ends at the next point where it can stop.
        """
        self._change(job_id, self._cancel, done)

    def _change(
        self, job_id: int, change: Callable[[jobs.QueuedJob], tuple[str, Batch | None]], done: Done
    ) -> None:
        """Change a job which has not ended; `done` gets ``(success, message)``.

        :param change: changes it, and returns the message with what has to be published before.
        """
        batch = None
        with self._table.lock:
            job = self._table.known(job_id)
            if job is None:
                answer = (False, f"job {job_id} is not in the queue")
            elif job.finalized:
                answer = (False, f"job {job_id} has already ended ({job.status})")
            else:
                message, batch = change(job)
                answer = (True, message)
            if batch is not None:
                batch.when_published(lambda err: done(answer, err))
        if batch is None:
            done(answer, None)

    def _cancel(self, job: jobs.QueuedJob) -> tuple[str, Batch | None]:
        if job.cancel_reason is not None:
            return f"job {job.id} is being canceled", None
        op = job.current()
        assert op is not None
        status = op.state.status
        if status == jobs.QUEUED:
            self._scheduler.end_rest(job, jobs.CANCELED, errors.JobCanceled("canceled by request"))
            return f"job {job.id} was canceled", self._committer.touch(job)
        job.cancel_reason = f"canceled by request while it was {status}"
        op.move(jobs.CANCELING)
        batch = self._committer.touch(job)
        self._scheduler.wake(job)
        if status == jobs.WAITING:
            return f"job {job.id} will be canceled", batch
        return (
            f"job {job.id} is running and will be canceled at the next point where it can stop",
            batch,
        )

    def kill_async(self, job_id: int, who: str, done: Done) -> None:
        """End a job at once; `done` gets ``(success, message)`` when its end is published.

        A job which has not begun its work is canceled. One whose opcode is running can be ended
        only if it has a process of its own.

        :param who: who asked for it, as in "killed by ...".
        """
        with self._table.lock:
            job = self._table.known(job_id)
            op = None if job is None else job.current()
            begun = op is not None and op.state.exec is not None
            text = "" if op is None else op.summary()
            input_ = {} if op is None else op.input
        if not self._scheduler.kill(job_id, f"killed by {who}"):
            if begun:
                done(
                    (
                        False,
                        f"job {job_id} is executed in a thread of the master daemon, and a thread"
                        " cannot be killed. 'gnt-job cancel' without --kill ends it at the next"
                        " point where it can stop. Jobs which start after 'gnt-cluster modify"
                        " --job-execution=processes' can be killed.",
                    ),
                    None,
                )
            else:
                self.cancel_async(job_id, done)
            return
        message = f"job {job_id} was killed"
        if begun and self._executor is not None:
            message += f" during {text}: {self._executor.advice(input_)}"

        def end_or_wait(change: JobChange) -> None:
            if change[0][0] in jobs.FINALIZED:
                done((True, message), None)
            else:
                self.subscribe(job_id, ["status"], change[0], _NO_LOG, end_or_wait)

        self.subscribe(job_id, ["status"], None, _NO_LOG, end_or_wait)

    def change_priority_async(self, job_id: int, priority: int, done: Done) -> None:
        """Change the priority of a job's unfinished opcodes; `done` gets ``(success, message)``.

        :raises errors.OpPrereqError: no such priority.
        """
        if not const.PRIO_HIGHEST <= priority <= const.PRIO_LOWEST:
            raise errors.OpPrereqError(
                f"priority must be from {const.PRIO_HIGHEST} to {const.PRIO_LOWEST}, not"
                f" {priority}",
                errors.ECODE_INVAL,
            )

        def change(job: jobs.QueuedJob) -> tuple[str, Batch]:
            for op in job.ops:
                if op.state.status not in jobs.FINALIZED:
                    op.set_priority(priority)
            self._scheduler.reprioritise(job, priority)
            return f"priority of job {job_id} is now {priority}", self._committer.touch(job)

        self._change(job_id, change, done)

    def archive_async(self, job_ids: Sequence[int], done: Done) -> None:
        """Move jobs which have ended to the archive; `done` gets the number of moved jobs."""
        with self._table.lock:
            found = []
            for job_id in job_ids:
                job = self._table.known(job_id)
                if job is not None and not job.archived and job.published_status in jobs.FINALIZED:
                    job.archived = True
                    found.append(job_id)
            if found:
                batch = self._committer.archive(found)
                batch.when_published(lambda err: done(len(found), err))
                return
        done(0, None)

    def auto_archive(self, age_s: float, timeout_s: float) -> tuple[int, int]:
        """Archive jobs which ended long ago, for a limited time.

        :param age_s: seconds since their end; -1 for all jobs which have ended.
        :returns: number of archived jobs, and number of jobs for which there was no time.
        """
        deadline = time.monotonic() + timeout_s
        limit = clock.merge(self._table.now()) - age_s
        with self._table.lock:
            ids = sorted(self._table.jobs)
        archived = 0
        for place in range(0, len(ids), CHUNK):
            if time.monotonic() >= deadline:
                return archived, len(ids) - place
            with self._table.lock:
                old = [
                    job_id
                    for job_id in ids[place : place + CHUNK]
                    if self._ended_before(job_id, None if age_s == -1 else limit)
                ]
            if old:
                archived += result_of(functools.partial(self.archive_async, old))
        return archived, 0

    def _ended_before(self, job_id: int, limit: float | None) -> bool:
        job = self._table.known(job_id)
        if job is None or job.published_status not in jobs.FINALIZED:
            return False
        # A file of another program may lack the end; then its latest known time decides.
        end = job.published.end or job.published.start or job.received
        return limit is None or end is None or clock.merge(end) < limit

    def cancel(self, job_id: int) -> tuple[bool, str]:
        """Cancel a job and wait until that is published.

        :returns: whether it will end, and a message for the user.
        """
        success, message = result_of(lambda done: self.cancel_async(job_id, done))
        return success, message

    def change_priority(self, job_id: int, priority: int) -> tuple[bool, str]:
        """Change the priority of a job and wait until that is published.

        :returns: whether it was changed, and a message for the user.
        :raises errors.OpPrereqError: no such priority.
        """
        success, message = result_of(
            lambda done: self.change_priority_async(job_id, priority, done)
        )
        return success, message

    def archive(self, job_id: int) -> bool:
        """Move an ended job to the archive; False when it has not ended or is unknown."""
        return bool(result_of(lambda done: self.archive_async([job_id], done)))

    # -- waiting for a change --------------------------------------------------------------------

    def subscribe(
        self,
        job_id: int,
        fields: Sequence[str],
        prev_info: list[Any] | None,
        prev_serial: int | None,
        notify: Callable[[JobChange], None],
    ) -> Subscription | None:
        """Call `notify` once with ``[values, log entries]`` when they differ from what is known.

        The parameters are those of :class:`~ganeti.jqueue.subscriptions.Subscription`.

        :returns: the subscription, for :meth:`unsubscribe`; None when `notify` was called already.
        :raises errors.JobLost: no such job.
        """
        subscription = Subscription(job_id, fields, prev_info, prev_serial, notify)
        with self._table.lock:
            job = self._table.known(job_id)
            if job is not None:
                change = subscription.change(job)
                if change is None or self._publisher.subscriptions.must_wait(subscription, job):
                    self._publisher.subscriptions.add(subscription)
                    return subscription
        if job is None:
            job = self._table.archived(job_id)
            if job is None:
                raise errors.JobLost(f"job {job_id} does not exist")
            change = subscription.change(job)
        assert change is not None
        notify(change)
        return None

    def unsubscribe(self, subscription: Subscription) -> bool:
        """End a subscription; False when it was notified already, or is being notified now."""
        with self._table.lock:
            return self._publisher.subscriptions.remove(subscription)
