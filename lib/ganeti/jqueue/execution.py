"""Where the opcodes of a job are executed: in this process, or in a process of the job.

The scheduler gives the opcodes of a job to a :class:`Process`, one after the other. The processes
of jobs are in a higher layer (:mod:`ganeti.jobexec`), and the queue knows them as
:class:`Executor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ganeti import errors
from ganeti.constants import job as const
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.locking import Owner
from ganeti.opcodes.base import OpCode

#: Executes one opcode and returns its result.
Execute = Callable[[OpCode, Callbacks], Any]


class NotBegun(errors.OpExecError):
    """An opcode has not begun, and that is no fault of it, so another attempt may succeed.

    No process could be made, or it ended before the opcode ran.

    :ivar ended: the process was there, and has ended without a reason of its own.
    """

    def __init__(self, reason: str, *, ended: bool = False) -> None:
        super().__init__(reason)
        self.ended = ended


class JobDetached(Exception):  # noqa: N818  it is not a failure of the job
    """The master daemon ends, and the process of the job continues with it."""


class Process(Protocol):
    """The process in which the opcodes of one job are executed."""

    @property
    def livelock(self) -> str | None:
        """The file which the process keeps locked."""

    @property
    def process_id(self) -> int:
        """The number of the process."""

    def execute(self, op: jobs.QueuedOpCode, callbacks: Callbacks, index: int, /) -> Any:
        """Execute an opcode, or wait for its end if it is being executed already.

        :param index: its number in the job, from 0.
        :returns: its result.
        :raises JobDetached: the master daemon ends, and the process continues with the opcode.
        """

    def close(self) -> None:
        """End the use of the process, because the job has ended or waits again."""


class Adopted(NamedTuple):
    """Jobs whose processes were alive when the master daemon started.

    :ivar processes: job id -> process, of the jobs which continue.
    :ivar ended: job id -> why its process could not continue and was ended, the error of the job.
    """

    processes: Mapping[int, Process]
    ended: Mapping[int, str]


class Executor(Protocol):
    """Executes jobs in processes of their own."""

    def in_use(self) -> bool:
        """Tell whether jobs which start now get a process."""

    def open(self, job_id: int, /) -> Process:
        """Make the process of a job.

        :raises NotBegun: the process cannot be made.
        """

    def adopt(self, running: Sequence[jobs.QueuedJob], /) -> Adopted:
        """Find the jobs whose processes an earlier master daemon has made, and which live.

        :param running: jobs whose opcodes were running when that daemon ended.
        :returns: these jobs; the others were interrupted.
        """

    def detach(self) -> None:
        """Leave running opcodes to their processes, because this master daemon ends."""

    def wake(self, job_id: int, /) -> None:
        """Let the process of a job notice that the job is to stop."""

    def kill(self, job_id: int, reason: str, /) -> bool:
        """End the process of a job at once; return whether there was one.

        :param reason: begins the error with which the job ends.
        """

    def advice(self, op: Mapping[str, Any], /) -> str:
        """Return what an opcode may leave when it is ended, and the command which cleans up."""


class LockWaits(Protocol):
    """The part of the lock manager which the queue uses: requests which wait for locks."""

    def wake(self, owner: Owner) -> None:
        """Let a waiting request of this owner ask whether its job was canceled."""

    def reprioritise(self, owner: Owner, priority: int) -> None:
        """Give a waiting request of this owner another priority."""


class Execution(NamedTuple):
    """How the opcodes of jobs are executed.

    :ivar execute: executes one opcode (``Processor.execute`` of :mod:`ganeti.cmdlib.processor`).
    :ivar executor: the processes of jobs; None if all jobs are executed in the worker threads.
    :ivar locks: the lock manager; None when opcodes take no locks.
    :ivar max_running: number of jobs which are executed at once.
    :ivar interrupted: called at the start, before any job goes on, with the jobs which were
        running when an earlier master daemon ended.
    """

    execute: Execute
    executor: Executor | None = None
    locks: LockWaits | None = None
    max_running: int = const.MAX_RUNNING_DEFAULT
    interrupted: Callable[[Sequence[jobs.QueuedJob]], None] = lambda _jobs: None


class OwnProcess:
    """The process of the master daemon, whose worker threads execute opcodes.

    :param livelock: file which the master daemon keeps locked.
    """

    def __init__(self, execute: Execute, livelock: str | None) -> None:
        self._execute = execute
        self.livelock = livelock
        self.process_id = os.getpid()

    def execute(self, op: jobs.QueuedOpCode, callbacks: Callbacks, _index: int) -> Any:
        """Execute an opcode in the calling thread; return its result."""
        return self._execute(op.opcode(), callbacks)

    def close(self) -> None:
        """Do nothing: the thread serves the next job."""
