"""The job processes, as the master daemon sees them: start, connection, kill, death, adoption.

:class:`ProcessExecutor` is what the job queue uses (:class:`ganeti.jqueue.execution.Executor`).
Each :class:`~ganeti.jobexec.process_handle.ProcessHandle` stands for the process of one job. A
thread accepts the connections of processes, and another one learns from the kernel when a process
has ended.

A process is only ended through a descriptor from pidfd_open(2), so it is never another one which
got its number. A process which came from an earlier master daemon is identified by its livelock:
while that is locked, the process with the number in the job file is alive.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.constants import job as job_const
from ganeti.jobexec import leftovers, link, livelock
from ganeti.jobexec.changes import SharedNumber
from ganeti.jobexec.forker import ForkedProcess, Forker, ForkServerLost, has_ended
from ganeti.jobexec.messages import Channel, ChannelClosed, ChannelTimeout
from ganeti.jobexec.process import Surroundings
from ganeti.jobexec.process_handle import ProcessHandle, ProcessState
from ganeti.jqueue import job as jobs
from ganeti.jqueue.execution import Adopted, NotBegun
from ganeti.locking import Level, Owner
from ganeti.objects import ConfigData
from ganeti.platform import master_epoch
from ganeti.utils import filelock

_log = logging.getLogger(__name__)

# Seconds within which a process has to send its greeting, and to end when it was asked to.
_GREETING_S: Final = 10.0
_END_S: Final = 10.0
#: Seconds for which a process waits for another job.
REST_S: Final = 30.0
# Number of jobs after which a process ends, because memory which was not released belongs to it.
_MOST_JOBS: Final = 200
# Seconds before the next attempt when this process lacks descriptors or threads for connections.
_AGAIN_S: Final = 0.2
# The socket was shut down, or closed.
_NOT_LISTENING: Final = (errno.EBADF, errno.EINVAL)
_PEER: Final = struct.Struct("3i")


class _Resting(NamedTuple):
    """A process without a job.

    :ivar since: time of the monotonic clock at which its last job ended.
    """

    process: ForkedProcess
    channel: Channel
    since: float


class ProcessExecutor:
    """All job processes of this master daemon.

    :param forker: makes processes.
    :param epoch: of this master daemon.
    :param own_livelock: the file which the master daemon keeps locked. The jobs own their locks
        under its name, because their workers release them.
    :ivar loaded: serial number of the configuration which this daemon has read at its start.
    :ivar context: the services of the master daemon, which processes use.
    """

    def __init__(
        self,
        here: Surroundings,
        forker: Forker,
        context: MasterContext,
        epoch: master_epoch.Epoch,
        own_livelock: str | None,
    ) -> None:
        self._here = here
        self._own_livelock = own_livelock
        self._forker = forker
        self._epoch = epoch
        self.context = context
        self.loaded = context.config.snapshot().serial_no
        self._lock = threading.Condition()
        # By token, also those whose end is awaited.
        self._handles: dict[str, ProcessHandle] = {}
        self._resting: list[_Resting] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Tokens of processes which are being made.
        self._starting: set[str] = set()
        self._page = SharedNumber(here.page)
        self._page.publish(self.loaded)
        self._poll = select.epoll()
        self._socket: socket.socket | None = None
        forker.use_config(context.config)

    # -- start and stop -----------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections of processes, and watch for their ends."""
        self._socket = link.listen(self._here.address)
        threading.Thread(target=self._accept, name="job-connections", daemon=True).start()
        threading.Thread(target=self._watch, name="job-deaths", daemon=True).start()
        if self.in_use():
            self._forker.prepare()

    def note_commit(self, before: ConfigData, after: ConfigData) -> None:
        """Tell processes that the configuration has changed."""
        self._page.publish(after.serial_no)
        how = after.cluster.job_execution
        if how == job_const.EXECUTION_PROCESSES != before.cluster.job_execution:
            self._forker.prepare()

    def detach(self) -> None:
        """Leave running opcodes to their processes, because this master daemon ends."""
        with self._lock:
            handles = list(self._handles.values())
        for handle in handles:
            handle.detach()

    # -- for the queue ------------------------------------------------------------------------

    def in_use(self) -> bool:
        """Tell whether jobs which start now get a process."""
        how = self.context.config.cluster().job_execution
        return how == job_const.EXECUTION_PROCESSES

    def open(self, job_id: int) -> ProcessHandle:
        """Make the process of a job.

        :raises NotBegun: the process cannot be made.
        """
        most = self.context.config.cluster().max_tracked_jobs
        with self._lock:
            # Processes which end count, too. One which the kernel does not end is not waited for.
            if len(self._handles) + len(self._resting) >= most:
                self._lock.wait_for(
                    lambda: bool(self._resting) or len(self._handles) < most, _END_S
                )
        if (handle := self._reuse(job_id)) is not None:
            return handle
        try:
            return self._make(job_id)
        except ForkServerLost as err:
            _log.warning("job %d: %s; another one is started", job_id, err)
        try:
            return self._make(job_id)
        except ForkServerLost as err:
            raise NotBegun(str(err)) from err

    def _make(self, job_id: int) -> ProcessHandle:
        """Make a new process.

        :raises NotBegun: the system cannot make one.
        :raises ForkServerLost: the fork server has just ended.
        """
        token = secrets.token_hex(8)
        path = livelock.path_of(self._here.livelock_dir, job_id, token)
        with self._lock:
            self._starting.add(token)
        try:
            process = self._forker.make(job_id, token)
            return self._add(ProcessHandle(self, job_id, token, process, path))
        finally:
            with self._lock:
                self._starting.discard(token)
                self._lock.notify_all()

    def _reuse(self, job_id: int) -> ProcessHandle | None:
        """Give a job a process which rests; None when there is none."""
        token = secrets.token_hex(8)
        path = livelock.path_of(self._here.livelock_dir, job_id, token)
        while True:
            with self._lock:
                if not self._resting:
                    return None
                rest = self._resting.pop()
                if has_ended(rest.process.pidfd):
                    # The other thread has not learned of that yet.
                    self._drop(rest)
                    continue
                process = rest.process._replace(number=rest.process.number + 1)
                handle = ProcessHandle(self, job_id, token, process, path)
                self._handles[token] = handle
            try:
                handle.reuse(rest.channel)
            except ChannelClosed:
                # It has just ended, and the other thread learns of that.
                handle.close()
            else:
                return handle

    def rest(self, handle: ProcessHandle, channel: Channel) -> None:
        """Keep the process of a job which has ended, for another job.

        :raises ChannelClosed: its connection has ended.
        """
        most = self.context.config.cluster().max_tracked_jobs
        with self._lock:
            few = len(self._handles) + len(self._resting) <= most
        keep = few and handle.process.number < _MOST_JOBS
        # First, because afterwards another thread may send it a job.
        channel.send({"rest": True} if keep else {"end": ""})
        if not keep:
            return
        with self._lock:
            # Otherwise it has just ended, and was forgotten.
            if self._handles.pop(handle.token, None) is not None:
                self._resting.append(_Resting(handle.process, channel, time.monotonic()))
                self._lock.notify_all()
        # The watching thread looks when the first one has rested for too long.
        os.eventfd_write(self._wake, 1)

    def _end_idle(self) -> float | None:
        """End processes which have rested for too long; return when to look again."""
        now = time.monotonic()
        with self._lock:
            idle = [one for one in self._resting if now - one.since >= REST_S]
            self._resting = [one for one in self._resting if one not in idle]
            left_s = min((one.since + REST_S - now for one in self._resting), default=None)
        for one in idle:
            self._drop(one)
        return left_s

    def _drop(self, one: _Resting) -> None:
        """Close the connection of a process without a job, so that it ends."""
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(one.process.pidfd)
        one.channel.close()
        os.close(one.process.pidfd)

    def _add(self, handle: ProcessHandle) -> ProcessHandle:
        with self._lock:
            self._handles[handle.token] = handle
        try:
            self._poll.register(handle.pidfd, select.EPOLLIN)
        except OSError as err:
            # Nobody would learn of its end.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle.pidfd, signal.SIGKILL)
            self.forget(handle)
            raise NotBegun(f"cannot watch the process of the job: {err}") from err
        return handle

    def adopt(self, running: Sequence[jobs.QueuedJob]) -> Adopted:
        """Find the jobs whose processes are alive, and take their locks.

        Called before the first process is made, and removes the files of those which have ended.

        :param running: jobs whose opcodes were running when an earlier master daemon ended.
        :returns: the jobs whose processes continue, and those whose processes had to be ended.
        """
        handles, ended = {}, {}
        for job in running:
            handle = self._adopt(job)
            if isinstance(handle, ProcessHandle):
                handles[job.id] = handle
            elif handle is not None:
                ended[job.id] = handle
        livelock.remove_stale(self._here.livelock_dir)
        return Adopted(handles, ended)

    def _adopt(self, job: jobs.QueuedJob) -> ProcessHandle | str | None:
        """Find the process of a job; None when it has ended.

        :returns: the handle, or the error of the job if the process was alive and had to be ended.
        """
        path, pid = job.state.livelock, job.state.process_id
        token = None if path is None else livelock.token_of(path)
        op = job.current()
        if path is None or token is None or pid is None or op is None:
            return None
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        try:
            # In this order: while the livelock is locked, the number is that of the process.
            if not filelock.is_locked(path):
                os.close(pidfd)
                return None
            held = livelock.read_record(path)
            # It may be of an older release, and executes no other job.
            process = ForkedProcess(pid, pidfd, _MOST_JOBS)
            handle = ProcessHandle(self, job.id, token, process, path)
            self._take_locks(self.owner(job.id), held)
        except (OSError, errors.GenericError) as err:
            _log.error("job %d: process %d cannot go on, and is ended: %s", job.id, pid, err)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            has_ended(pidfd, _END_S)
            os.close(pidfd)
            return (
                f"the master daemon was restarted and ended process {pid} of the job, which could"
                f" not go on: {err}. What it had done was not undone: {leftovers.advice(op.input)}."
            )
        handle.adopt(op)
        _log.info("job %d goes on in process %d", job.id, pid)
        self._add(handle)
        return handle

    def _take_locks(self, owner: Owner, held: livelock.Held) -> None:
        locks = self.context.locks
        for one in held.locks:
            if one.key is not None and one.level is not Level.CLUSTER:
                # The object is not in the configuration yet, or not any more.
                if one.key not in locks.keys(one.level):
                    locks.add(one.level, [one.key])
        if held.locks and not locks.update(owner, held.locks):
            raise errors.LockError("another job has one of its locks")
        for reservation in held.reservations:
            self.context.config.reserved.restore(*reservation)

    def owner(self, job_id: int) -> Owner:
        """Return the owner of the locks of a job."""
        return Owner(job_id, f"job-{job_id}", self._own_livelock)

    def goes_on(self, job_id: int | None) -> bool:
        """Tell whether a process executes a job."""
        return job_id is not None and bool(self._of(job_id))

    def kill(self, job_id: int, reason: str) -> bool:
        """End the process of a job; return whether this call did it."""
        return any([handle.kill(reason) for handle in self._of(job_id)])

    def end_all(self) -> None:
        """End all processes at once, because this node is not the master's any more.

        They may be in the middle of anything, like the threads of a daemon which ends at once.
        """
        # Another thread may hold the lock, but does not wait for anything with it.
        with self._lock:
            pidfds = [handle.pidfd for handle in self._handles.values()]
            pidfds += [one.process.pidfd for one in self._resting]
            for pidfd in pidfds:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def wake(self, job_id: int) -> None:
        """Let the process of a job ask whether the job was canceled."""
        for handle in self._of(job_id):
            handle.wake()

    def _of(self, job_id: int) -> list[ProcessHandle]:
        with self._lock:
            return [handle for handle in self._handles.values() if handle.job_id == job_id]

    def advice(self, op: Mapping[str, Any]) -> str:
        """Return what an interrupted opcode may leave; see :func:`.leftovers.advice`."""
        return leftovers.advice(op)

    def forget(self, handle: ProcessHandle) -> None:
        """Forget a process which has ended and whose job has ended or waits again."""
        with self._lock:
            if self._handles.pop(handle.token, None) is None:
                return
            self._lock.notify_all()
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(handle.pidfd)
        livelock.forget(handle.livelock)
        handle.close_descriptors()

    # -- the threads --------------------------------------------------------------------------

    def welcome(self) -> dict[str, Any]:
        """Return the message which tells a connected process to continue."""
        return {"epoch": str(self._epoch), "loaded": self.loaded}

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                sock, _address = self._socket.accept()
            except OSError as err:
                if self._socket.fileno() < 0 or err.errno in _NOT_LISTENING:
                    _log.info("connections of job processes are not accepted any more: %s", err)
                    return
                # The connection waits, and the process with it.
                _log.error("cannot accept a connection of a job process yet: %s", err)
                time.sleep(_AGAIN_S)
                continue
            channel = Channel(sock)
            # Each in a thread, because one which sends nothing must not keep the others waiting.
            try:
                threading.Thread(
                    target=self._greet, args=(channel,), name="job-greeting", daemon=True
                ).start()
            except RuntimeError as err:
                _log.error("cannot serve the connection of a job process yet: %s", err)
                # The process connects again.
                channel.close()
                time.sleep(_AGAIN_S)

    def _greet(self, channel: Channel) -> None:
        """Give a new connection to the handle of its process, or tell the process to end."""
        try:
            greeting = channel.receive(_GREETING_S)
            handle = self._handle_of(channel, greeting)
            if handle is None:
                channel.send(
                    {"end": "the job was interrupted before it had changed anything, or has ended"}
                )
                channel.close()
            else:
                handle.connected(channel, greeting)
        except (ChannelClosed, ChannelTimeout, errors.ParseError) as err:
            _log.warning("a job process sent no greeting: %s", err)
            channel.close()

    def _handle_of(self, channel: Channel, greeting: Any) -> ProcessHandle | None:
        token = greeting.get("token") if isinstance(greeting, dict) else None
        with self._lock:
            # A new process may be faster than the news of it.
            self._lock.wait_for(lambda: token not in self._starting, _GREETING_S)
            handle = self._handles.get(token) if isinstance(token, str) else None
        pid, _uid, _gid = _PEER.unpack(
            channel.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        )
        return handle if handle is not None and handle.process_id == pid else None

    def _watch(self) -> None:
        self._poll.register(self._wake, select.EPOLLIN)
        while True:
            left_s = self._end_idle()
            for descriptor, _event in self._poll.poll(left_s):
                if descriptor == self._wake:
                    os.eventfd_read(self._wake)
                    continue
                with self._lock:
                    found = [one for one in self._handles.values() if one.pidfd == descriptor]
                    gone = [one for one in self._resting if one.process.pidfd == descriptor]
                    self._resting = [one for one in self._resting if one not in gone]
                for one in gone:
                    self._drop(one)
                for handle in found:
                    with contextlib.suppress(OSError, ValueError):
                        self._poll.unregister(descriptor)
                    handle.died()
                    if handle.state is ProcessState.GONE:
                        self.forget(handle)
