"""The process of one job, as its worker and the other threads of the master daemon see it.

The worker gives the process the opcodes of the job and carries out its requests. What a dead
process held is released by the worker: first the nodes are asked whether they still work for the
job, and then its locks are free (:meth:`ProcessHandle.bury`).
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.constants import job as job_const
from ganeti.jobexec import leftovers, link, livelock, messages, methods
from ganeti.jobexec.changes import SharedNumber
from ganeti.jobexec.forker import ForkedProcess, has_ended
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.requests import ProcessGone, Requests, log_of
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks, QueueStopping
from ganeti.jqueue.execution import JobDetached, NotBegun
from ganeti.locking import EXCLUSIVE, Level, Owner
from ganeti.utils import metrics, states, tracing

_log = logging.getLogger(__name__)

# Seconds after which the log says that a killed process does not end.
_END_S: Final = 10.0


class _CannotServe(ProcessGone):
    """The process says that it cannot execute the job, and why."""


class Processes(Protocol):
    """What a handle needs of :class:`ganeti.jobexec.executor.ProcessExecutor`."""

    context: MasterContext
    loaded: int

    def owner(self, job_id: int) -> Owner:
        """Return the owner of the locks of a job."""

    def welcome(self) -> dict[str, Any]:
        """Return the message which tells a connected process to continue."""

    def rest(self, handle: ProcessHandle, channel: Channel) -> None:
        """Keep the process of a job which has ended, for another job.

        :raises ChannelClosed: its connection has ended.
        """

    def forget(self, handle: ProcessHandle) -> None:
        """Forget a process which has ended and whose job has ended or waits again."""


class ProcessState(enum.StrEnum):
    """The life of the process of one job, as this master daemon sees it (``doc/states.rst``)."""

    #: It waits for an opcode.
    IDLE = "idle"
    #: It has an opcode of its job.
    EXECUTING = "executing"
    #: It was killed during an opcode; its end is not known yet.
    KILLED = "killed"
    #: It continues with its opcode, and this master daemon ends.
    DETACHED = "detached"
    #: It has ended, and its job has not.
    DEAD = "dead"
    #: Its job has ended, or waits again. The process rests, or has to end.
    CLOSED = "closed"
    #: It has ended, and its job, too.
    GONE = "gone"


_MOVES: Final = {
    ProcessState.IDLE: (ProcessState.EXECUTING, ProcessState.DEAD, ProcessState.CLOSED),
    ProcessState.EXECUTING: (
        ProcessState.IDLE,
        ProcessState.KILLED,
        ProcessState.DETACHED,
        ProcessState.DEAD,
        # The daemon ends before a worker has looked after an adopted process.
        ProcessState.CLOSED,
    ),
    ProcessState.KILLED: (ProcessState.DETACHED, ProcessState.DEAD, ProcessState.CLOSED),
    ProcessState.DETACHED: (),
    ProcessState.DEAD: (ProcessState.GONE,),
    ProcessState.CLOSED: (ProcessState.GONE,),
    ProcessState.GONE: (),
}


class ProcessHandle:
    """The process of one job.

    :param livelock_path: of the process.
    :ivar process_id: its number, for people.
    :ivar state: the state of its life; :meth:`_move` changes it, with the lock held.
    """

    def __init__(
        self, executor: Processes, job_id: int, token: str, process: ForkedProcess, path: str
    ) -> None:
        self._executor = executor
        self.job_id = job_id
        self.token = token
        self.process = process
        self.process_id = process.pid
        self.pidfd = process.pidfd
        self.livelock = path
        self._changed = threading.Condition()
        self._channel: Channel | None = None
        # A connection which waits until the worker takes it, with the greeting of the process.
        self._waiting: tuple[Channel, dict[str, Any]] | None = None
        self.state = ProcessState.IDLE
        self._kill_reason = ""
        self._op: jobs.QueuedOpCode | None = None
        self.callbacks: Callbacks | None = None
        # The opcode which the process was executing when this master daemon started.
        self.adopted: jobs.QueuedOpCode | None = None

    def _move(self, state: ProcessState) -> None:
        what = f"process {self.process_id} of job {self.job_id}"
        self.state = states.moved(_MOVES, self.state, state, what)
        _log.debug("%s: %s", what, state)
        self._changed.notify_all()

    # -- for other threads --------------------------------------------------------------------

    def connected(self, channel: Channel, greeting: dict[str, Any]) -> None:
        """Take a new connection of the process."""
        with self._changed:
            if self.state is ProcessState.DETACHED:
                channel.close()
                return
            self._waiting = (channel, greeting)
            if self._channel is not None:
                # The process knows best when its connection has ended.
                self._channel.shut_down()
            self._changed.notify_all()

    def died(self) -> None:
        """Note that the process has ended; called once, by the thread which the kernel tells."""
        with self._changed:
            if self.state is ProcessState.CLOSED:
                self._move(ProcessState.GONE)
            elif self.state not in (ProcessState.DETACHED, ProcessState.GONE):
                self._move(ProcessState.DEAD)
            callbacks = self.callbacks
        if callbacks is not None:
            self._executor.context.locks.wake(callbacks.owner)

    def wake(self) -> None:
        """Let the process ask whether its job was canceled."""
        if not os.path.exists(self.livelock):
            return  # It has just been made, and asks before it begins its work.
        try:
            page = SharedNumber(self.livelock)
        except OSError as err:
            _log.error("job %d: cannot let its process know of a change: %s", self.job_id, err)
            return
        page.publish(1)
        page.close()

    def kill(self, reason: str) -> bool:
        """End the process at once, once; return whether this call did it."""
        with self._changed:
            if self.state is not ProcessState.EXECUTING:
                return False
            self._kill_reason = reason
            self._move(ProcessState.KILLED)
        _log.warning("job %d: %s; ending process %d", self.job_id, reason, self.process_id)
        self._signal()
        return True

    def detach(self) -> None:
        """Leave a running opcode to the process, because this master daemon ends."""
        with self._changed:
            executing = self.state in (ProcessState.EXECUTING, ProcessState.KILLED)
            if not executing or self._op is None or self._op.state.exec is None:
                return
            self._move(ProcessState.DETACHED)
            if self._channel is not None:
                self._channel.shut_down()
            if self._waiting is not None:
                # No worker takes it any more.
                self._waiting[0].close()
                self._waiting = None

    def _signal(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    # -- for the worker -----------------------------------------------------------------------

    def adopt(self, op: jobs.QueuedOpCode) -> None:
        """Note that the process is executing an opcode already."""
        with self._changed:
            self.adopted = self._op = op
            self._move(ProcessState.EXECUTING)
        self.wake()

    def execute(self, op: jobs.QueuedOpCode, callbacks: Callbacks, index: int) -> Any:
        """Let the process execute an opcode; return its result.

        :raises JobDetached: the master daemon ends, and the process continues.
        :raises NotBegun: the process has ended by itself, or could do nothing, before the opcode
            had begun.
        :raises OpExecError: the process was killed, or has ended by itself later.
        :raises GenericError: the error with which the opcode failed.
        """
        with self._changed:
            self._op, self.callbacks = op, callbacks
            if self.state in (ProcessState.IDLE, ProcessState.CLOSED, ProcessState.GONE):
                self._move(ProcessState.EXECUTING)
        sent = self.adopted is op
        try:
            while True:
                try:
                    channel = self._take_channel(index if sent else None)
                    requests = Requests(
                        self._executor,
                        channel,
                        callbacks,
                        # The process sends all lines again when it has connected again.
                        log_of(op.log) if sent else (),
                        self._check_alive,
                    )
                    if not sent:
                        self._send_opcode(op, index, channel, requests)
                        sent = True
                    return self._judge(op, requests.serve(), requests.stopped)
                except ChannelClosed:
                    self._check_alive()
                    # It connects again when only the connection has ended.
                    time.sleep(link.RETRY_S)
        except ProcessGone as err:
            self._signal()
            raise self._end_of_process(op, callbacks, err) from err
        finally:
            with self._changed:
                self._op = self.callbacks = None
                if self.state is ProcessState.EXECUTING:
                    self._move(ProcessState.IDLE)

    @staticmethod
    def _send_opcode(
        op: jobs.QueuedOpCode, index: int, channel: Channel, requests: Requests
    ) -> None:
        value = op.opcode().to_dict()
        # Each opcode begins with this lock, so the process need not ask for it.
        held = methods.HELD.encode(requests.take_big_lock(str(value["OP_ID"])))
        channel.send({"op": value, "index": index, "held": held, "trace": tracing.current()})

    def _check_alive(self) -> None:
        """Return if the process lives.

        :raises ProcessGone: it does not.
        :raises JobDetached: it is not this daemon's any more.
        """
        if self.state is ProcessState.DETACHED:
            raise JobDetached
        if self.state is ProcessState.DEAD or has_ended(self.pidfd):
            raise ProcessGone("it has ended unexpectedly")

    def _take_channel(self, running: int | None) -> Channel:
        """Wait until the process is connected, and tell it to continue.

        :param running: number of the opcode which the process executes; None for none.
        """
        with self._changed:
            if self._channel is not None and self._waiting is None and running is None:
                return self._channel
            # Without limit: a process may be waiting for the answer of a node.
            self._changed.wait_for(
                lambda: (
                    self._waiting is not None
                    or self.state in (ProcessState.DEAD, ProcessState.DETACHED)
                )
            )
            if self._waiting is None:
                self._check_alive()
            assert self._waiting is not None
            if self._channel is not None:
                self._channel.close()
            (self._channel, greeting), self._waiting = self._waiting, None
            channel = self._channel
        if "unable" in greeting:
            raise _CannotServe(str(greeting["unable"]))
        if greeting.get("running") != running:
            raise ProcessGone("it does not execute the opcode which the queue has")
        channel.send(self._executor.welcome())
        return channel

    def _judge(
        self, op: jobs.QueuedOpCode, message: dict[str, Any], stopped: errors.JobCanceled | None
    ) -> Any:
        """Return the result of an opcode from the last message of the process, or raise its error.

        :param stopped: the error with which the queue stopped it.
        """
        metrics.merge(message.get("measured", ()))
        if "unable" in message:
            raise _CannotServe(str(message["unable"]))
        if message.get("lacking") and op.state.exec is None:
            raise NotBegun(f"process {self.process_id} of the job: {message['lacking']}")
        if "result" in message:
            return message["result"]
        if "failed" in message:
            error = messages.unpack_error(message["failed"])
            if isinstance(error, errors.JobCanceled) and isinstance(stopped, QueueStopping):
                raise stopped
            raise error
        raise errors.OpExecError(
            f"internal error: {message.get('internal')}. The master's log has the details."
        )

    def _end_of_process(
        self, op: jobs.QueuedOpCode, callbacks: Callbacks, why: ProcessGone
    ) -> errors.GenericError:
        """Release what the dead process held; return the error of its opcode."""
        begun = op.state.exec is not None
        self._await_death()
        self.bury()
        advice = leftovers.advice(op.input)
        if self._kill_reason:
            text = f"{self._kill_reason}; process {self.process_id} was ended"
        else:
            text = f"process {self.process_id} of the job is gone: {why}"
        if not begun:
            if self._kill_reason:
                return errors.JobCanceled(f"{text} before it had changed anything")
            if isinstance(why, _CannotServe):
                return NotBegun(f"a process cannot execute the job: {why}")
            return NotBegun(text, ended=True)
        text = f"{text}. What it had done was not undone: {advice}."
        callbacks.feedback(job_const.LOG_MESSAGE, f"error: {text}")
        return errors.OpExecError(text)

    def _await_death(self) -> None:
        """Wait until the kernel says that the process has ended; it was killed before."""
        while not has_ended(self.pidfd, _END_S):
            _log.error("job %d: process %d does not end", self.job_id, self.process_id)

    def bury(self) -> None:
        """Release the locks and reservations of the dead process.

        Locks of instances on which nodes still work for it are kept.
        """
        context = self._executor.context
        locks, owner = context.locks, self._executor.owner(self.job_id)
        held = [
            uuid for uuid, mode in locks.owned(owner, Level.INSTANCE).items() if mode == EXCLUSIVE
        ]
        if held and context.orphaned_work is not None:
            data = context.config.snapshot()
            nodes = {*locks.owned(owner, Level.NODE), *locks.owned(owner, Level.NODE_RES)}
            for uuid in held:
                if uuid in data.instances:
                    nodes.update(context.config.instance_nodes(data.instances[uuid]))
            context.orphaned_work.hand_over(self.job_id, sorted(nodes), held, [self.token])
        _release_locks(context, owner)
        context.config.reserved.release_all(f"job-{self.job_id}-run-")
        livelock.forget(self.livelock)

    def reuse(self, channel: Channel) -> None:
        """Use a process which rests, with its connection.

        :raises ChannelClosed: it has just ended.
        """
        self._channel = channel
        channel.send({"job": self.job_id, "token": self.token})

    def close(self) -> None:
        """Let the process rest, because its job has ended or waits again."""
        with self._changed:
            if self.state is ProcessState.DETACHED:
                return
            killed = self.state is ProcessState.KILLED
            dead = self.state is ProcessState.DEAD or has_ended(self.pidfd)
            if self.state is not ProcessState.DEAD:
                self._move(ProcessState.CLOSED)
            if dead:
                self._move(ProcessState.GONE)
            channel = self._channel
            if self._waiting is not None:
                self._waiting[0].close()
                self._waiting = None
        if dead:
            self._executor.forget(self)
        elif channel is None or killed:
            self._signal()
        else:
            try:
                self._executor.rest(self, channel)
            except ChannelClosed:
                # It has ended, or would connect again and wait for an answer.
                self._signal()

    def close_descriptors(self) -> None:
        """Close what this daemon has open for the process."""
        with self._changed:
            if self._channel is not None:
                self._channel.close()
        os.close(self.pidfd)


def _release_locks(context: MasterContext, owner: Owner) -> None:
    """Release all locks of a dead owner; remove those whose objects do not exist (any more)."""
    locks, data = context.locks, context.config.snapshot()
    tables: dict[Level, Mapping[str, Any]] = {
        Level.INSTANCE: data.instances,
        Level.NODEGROUP: data.nodegroups,
        Level.NODE: data.nodes,
        Level.NODE_RES: data.nodes,
        Level.NETWORK: data.networks,
    }
    # A request which it had is over with it.
    named = {one.level: one for one in locks.list_locks(owner) if one.key is None}
    for level, table in reversed(tables.items()):
        if level in named:
            continue  # New objects of other jobs may have locks there.
        gone = [
            key
            for key, mode in locks.owned(owner, level).items()
            if mode == EXCLUSIVE and key not in table
        ]
        if gone:
            locks.remove(level, gone, owner)
    locks.free(owner)
