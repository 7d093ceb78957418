"""The job queue, as a running opcode sees it.

The scheduler makes one :class:`Callbacks` for each opcode that it executes; the processor of
logical units receives it (protocol ``ganeti.cmdlib.base.OpCallbacks``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import job as jobs
from ganeti.jqueue.commit import Committer, Waiter
from ganeti.jqueue.publisher import Publisher
from ganeti.jqueue.table import JobTable
from ganeti.locking import Owner
from ganeti.opcodes.base import OpCode
from ganeti.wire import json

_log = logging.getLogger(__name__)

# How often an opcode tries to begin while too few candidates know it, and the seconds in between.
_START_ATTEMPTS = 60
_START_PAUSE_S = 1.0

#: For messages: what an administrator can do when too few candidates have something.
MAJORITY_HINT = (
    "Mark nodes which are lost for good as offline, and remove a witness which is lost with"
    " 'gnt-cluster modify --witness=none'."
)

#: The answer to the submission of one job: ``[True, job id]`` or ``[False, message]``.
SubmitResult = list[bool | int | str]
#: Submits jobs, also to a drained queue.
Submit = Callable[[Sequence[Sequence[OpCode]]], list[SubmitResult]]


class QueueStopping(errors.JobCanceled):
    """Raised in a job which waits for its locks when the daemon ends; the job stays queued."""


class Callbacks:
    """The job queue, as one running opcode sees it.

    :param job: the job; `op` is its opcode.
    :param submit: submits the jobs for which the opcode asks.
    :param reached: called when the opcode is being worked on, and when it has begun.
    :param pause: waits some seconds.
    :ivar owner: the owner of the locks which the opcode takes: its job.
    :ivar reached: to be called when a process of the job works on the opcode.
    """

    def __init__(
        self,
        table: JobTable,
        committer: Committer,
        publisher: Publisher,
        job: jobs.QueuedJob,
        op: jobs.QueuedOpCode,
        submit: Submit,
        *,
        reached: Callable[[], None] = lambda: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = table
        self._committer = committer
        self._publisher = publisher
        self._job = job
        self._op = op
        self._submit = submit
        self.reached = reached
        self._pause = pause
        self._owner = table.owner(job.id)
        self._begun = False

    @property
    def owner(self) -> Owner:
        """The owner of the locks which the opcode takes: its job."""
        return self._owner

    def notify_start(self) -> None:
        """Report that the opcode holds its locks; returns when "running" is on disk.

        In a cluster whose master is replaced automatically, a majority of the master candidates has
        it then as well: a successor which does not know that the opcode runs would run it again.
        As long as too few have it, the opcode does not begin; only those which an administrator
        gives because candidates or the witness are lost do.

        :raises errors.JobCanceled: the job was canceled before.
        :raises errors.JobQueueError: too few candidates have it for a long time; nothing was done.
        """
        job, op = self._job, self._op
        with self._table.lock:
            if op.state.status == jobs.RUNNING and self._begun:
                return
            # A process may ask once more, because the master daemon ended before it answered.
            again = op.state.status == jobs.RUNNING
            if not again:
                self.check_cancel()
                op.move(jobs.RUNNING, exec=self._table.now())
        self.reached()
        for attempt in range(_START_ATTEMPTS):
            shortfall = self._publish_start()
            if not shortfall:
                break
            if not attempt:
                _log.warning("job %d waits: %s know that it begins", job.id, shortfall)
            self._pause(_START_PAUSE_S)
            self.check_cancel()
        else:
            raise errors.JobQueueError(
                f"{shortfall} know that this begins, so it was not begun: another node may be the"
                f" master now, and would run it again. {MAJORITY_HINT}"
            )
        self._begun = True
        _log.info(
            "job %d %s %s (%d of %d)",
            job.id,
            "goes on in its process with" if again else "begins with",
            op.summary(),
            job.ops.index(op) + 1,
            len(job.ops),
        )

    def show_waiting(self, *, wait: bool = False) -> None:
        """Let clients see that the opcode waits for locks, if it does.

        :param wait: return when they see it.
        """
        with self._table.lock:
            if self._op.state.status != jobs.WAITING or self._op.published.status == jobs.WAITING:
                return
            waiter = Waiter()
            batch = self._committer.touch(self._job)
            if wait:
                batch.when_published(lambda err: waiter.done(None, err))
        if wait:
            waiter.wait()

    def _publish_start(self) -> str:
        """Write the job, and send it; returns which majority is missing, empty for none."""
        waiter = Waiter()
        with self._table.lock:
            batch = self._committer.touch(self._job)
            if self._committer.start_waits() and not _mends_majority(self._op.input):
                batch.when_published(lambda err: waiter.done(batch.shortfall, err))
            else:
                batch.when_durable(lambda err: waiter.done("", err))
        return str(waiter.wait())

    def feedback(self, *args: Any) -> None:
        """Add a log entry: ``(message)`` or ``(type, message)``.

        Clients see the entry at once; it is stored with the next change of the job.

        :raises errors.ProgrammerError: other arguments, or a message which JSON cannot express.
        """
        if len(args) == 1:
            kind, message = const.LOG_MESSAGE, args[0]
        elif len(args) == 2:
            kind, message = args
        else:
            raise errors.ProgrammerError("feedback takes a message, or a type and a message")
        if kind == const.LOG_MESSAGE:
            message = str(message)
        else:
            # These raise here, in the job, and not in the committer.
            json.dumps(message)
            json.check_nesting(message)
        job = self._job
        with self._table.lock:
            job.add_log(self._op, str(kind), message, self._table.now())
            planned = self._publisher.subscriptions.plan_notification(job.id)
        if planned:
            self._committer.later(lambda: self._publisher.notify([job.id]))
        if self._publisher.on_logged is not None:
            self._publisher.on_logged(job)

    def check_cancel(self) -> None:
        """Stop here if the job is to stop; called where nothing has to be undone.

        :raises errors.JobCanceled: the job was canceled, or the queue stops and the opcode still
            waits for its locks.
        """
        if self._job.cancel_reason is not None:
            raise self._job.cancellation()
        if self._table.stopping and self._op.state.status == jobs.WAITING:
            raise QueueStopping("the master daemon is ending")

    def priority(self) -> int:
        """Return the present priority of the job; it may change while the job waits for locks."""
        return self._job.priority

    def submit_jobs(self, wanted: Sequence[Sequence[OpCode]]) -> list[SubmitResult]:
        """Submit jobs, each a list of opcodes; returns when they are published.

        :returns: ``[True, job id]`` or ``[False, message]`` for each job.
        """
        return self._submit(wanted)


def _mends_majority(given: Mapping[str, Any]) -> bool:
    """Tell whether an opcode says that a candidate or the witness does not count any more.

    It could not begin before that was done. Another master may run it again, which changes nothing.

    :param given: the parameters of the opcode, with ``OP_ID``.
    """
    if given["OP_ID"] == "OP_NODE_SET_PARAMS":
        return bool(given.get("offline"))
    return given["OP_ID"] == "OP_CLUSTER_SET_PARAMS" and given.get("witness") in ("", "none")
