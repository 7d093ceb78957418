"""What a running opcode may ask of the job queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import job as jobs
from ganeti.locking import Owner
from ganeti.opcodes.base import OpCode
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.jqueue.engine import Engine

# Submits jobs, also to a drained queue: ``[True, id]`` or ``[False, message]`` for each.
Submit = Callable[[Sequence[Sequence[OpCode]]], list[list[Any]]]


class Callbacks:
    """What a running opcode may ask of the queue (``cmdlib.base.OpCallbacks``)."""

    def __init__(
        self,
        engine: Engine,
        job: jobs.QueuedJob,
        op: jobs.QueuedOpCode,
        owner: Owner,
        submit: Submit,
    ) -> None:
        self._engine = engine
        self._job = job
        self._op = op
        self._owner = owner
        self._submit = submit

    @property
    def owner(self) -> Owner:
        """Who holds the locks: the job."""
        return self._owner

    def notify_start(self) -> None:
        """All locks are held: the opcode runs; on disk before this returns.

        :raises errors.JobCanceled: it was canceled in time.
        """
        self._engine.op_started(self._job, self._op)

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
        self._engine.op_logged(self._job, self._op, str(kind), message)

    def check_cancel(self) -> None:
        """A point where the opcode may stop.

        :raises errors.JobCanceled: somebody canceled the job.
        """
        self._engine.check_cancel(self._job, self._op)

    def priority(self) -> int:
        """Present priority of the job; it may change while it waits for locks."""
        return self._job.priority

    def submit_jobs(self, wanted: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit jobs: ``[True, id]`` or ``[False, message]`` for each; on disk then."""
        return self._submit(wanted)
