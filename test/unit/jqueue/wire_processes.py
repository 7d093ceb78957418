"""Job processes for tests of the queue: threads at the other end of a socket.

The queue, the handle of a process, its requests and the services of a job process are real.
Only the process is a thread of the test, so that the opcodes can wait for the test; it cannot be
killed. ``test/scenario/test_job_processes.py`` has real processes.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from fakes.config import cluster_of
from fakes.rpc import FakeRpc
from ganeti import cmdlib
from ganeti.cmdlib.base import JobLocks, MasterContext
from ganeti.config import Config
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.jobexec import changes, leftovers, livelock, methods, remote
from ganeti.jobexec.forker import ForkedProcess
from ganeti.jobexec.link import Link
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.process import execute
from ganeti.jobexec.process_handle import ProcessHandle, ProcessState
from ganeti.jqueue import job as jobs
from ganeti.jqueue.callbacks import Callbacks
from ganeti.jqueue.execution import Adopted, Process
from ganeti.locking import LockManager, Owner
from ganeti.opcodes.base import OpCode
from ganeti.platform import master_epoch

#: Executes an opcode in the process: gets what the job queue and the lock manager are there.
Work = Callable[[OpCode, Callbacks, JobLocks], Any]
#: Seconds for which a process waits for the next queue.
PATIENCE_S: Final = 60.0
_EPOCH: Final = master_epoch.Epoch(1, "uuid-node1")


class _Ended(Exception):  # noqa: N818
    """The process ends."""


class _Link(Link):
    """A link which gives its connections to the handle directly.

    :ivar handle: of the process, in the present queue.
    :ivar adopted: set when the next queue has adopted the job; None while its queue works.
    """

    def __init__(self, handle: ProcessHandle) -> None:
        super().__init__("")
        self.handle = handle
        self.adopted: threading.Event | None = None

    def connect(self) -> None:
        while True:
            ours, theirs = socket.socketpair()
            self._channel = Channel(ours)
            self.handle.connected(Channel(theirs), {"running": self.running})
            try:
                welcome = self._channel.receive()
            except ChannelClosed:
                if self.adopted is not None and self.adopted.wait(PATIENCE_S):
                    continue
                raise _Ended from None
            self.epoch = master_epoch.parse(welcome["epoch"])
            return

    def _leave(self, code: int) -> NoReturn:
        raise _Ended

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class WireExecutor:
    """The processes of jobs (:class:`ganeti.jqueue.execution.Executor`).

    :param owner_of: returns the owner of the locks of a job.
    :param living: the processes which live, by the id of the job; another queue has the same.
    """

    def __init__(
        self,
        directory: Path,
        work: Work,
        locks: LockManager,
        owner_of: Callable[[int], Owner],
        living: dict[int, _Link],
    ) -> None:
        cmdlib.load()
        directory.mkdir(exist_ok=True)
        self._directory = str(directory)
        path = directory / "config.data"
        if not path.exists():
            first = cluster_of(1)
            write_config_file(str(path), ConfigText(first).render(first, ()))
        config = Config.open(str(path))
        self.context = MasterContext(config, locks, FakeRpc(config))  # type: ignore[arg-type]
        self.loaded = config.snapshot().serial_no
        self.owner = owner_of
        self._work = work
        self._handles: dict[int, ProcessHandle] = {}
        self._living = living
        self._lock = threading.Lock()
        self.opened = 0

    # -- for the queue ------------------------------------------------------------------------

    def in_use(self) -> bool:
        return True

    def open(self, job_id: int) -> Process:
        token = secrets.token_hex(8)
        path = livelock.path_of(self._directory, job_id, token)
        ended = os.eventfd(0, os.EFD_CLOEXEC)
        handle = self._handles[job_id] = ProcessHandle(
            self, job_id, token, ForkedProcess(os.getpid(), ended), path
        )
        self.opened += 1
        self._living[job_id] = _Link(handle)
        threading.Thread(target=self._process, args=(handle,), daemon=True).start()
        return handle

    def adopt(self, running: Sequence[jobs.QueuedJob]) -> Adopted:
        handles = {}
        for job in running:
            link = self._living.get(job.id)
            op = job.current()
            if link is None or link.handle.livelock != job.state.livelock or op is None:
                continue
            old = link.handle
            handle = ProcessHandle(self, job.id, old.token, old.process, old.livelock)
            held = livelock.read_record(old.livelock)
            assert self.context.locks.update(self.owner(job.id), held.locks)
            handle.adopt(op)
            handles[job.id] = self._handles[job.id] = link.handle = handle
            assert link.adopted is not None
            link.adopted.set()
        return Adopted(handles, {})

    def detach(self) -> None:
        for job_id, handle in list(self._handles.items()):
            link = self._living.get(job_id)
            if link is not None:
                link.adopted = threading.Event()
            handle.detach()

    def wake(self, job_id: int) -> None:
        handle = self._handles.get(job_id)
        if handle is not None:
            handle.wake()

    def kill(self, job_id: int, reason: str) -> bool:
        return False

    def advice(self, op: Mapping[str, Any]) -> str:
        return leftovers.advice(op)

    # -- for the handles -----------------------------------------------------------------------

    def welcome(self) -> dict[str, Any]:
        return {"epoch": str(_EPOCH), "loaded": self.loaded}

    def rest(self, handle: ProcessHandle, channel: Channel) -> None:
        channel.send({"end": ""})

    def forget(self, handle: ProcessHandle) -> None:
        with self._lock:
            if self._handles.get(handle.job_id) is not handle:
                return
            del self._handles[handle.job_id]
        handle.close_descriptors()

    # -- the process --------------------------------------------------------------------------

    def _process(self, handle: ProcessHandle) -> None:
        path = handle.livelock
        link = self._living[handle.job_id]
        with livelock.take(self._directory, handle.job_id, handle.token):
            woken = changes.SharedNumber(path)
            try:
                link.begin(handle.job_id, handle.token)
                link.serve(path)
                self._serve(handle.job_id, link, path, woken)
            except _Ended:
                pass
            finally:
                woken.close()
                livelock.forget(path)
                link.close()
                if self._living.get(handle.job_id) is link:
                    del self._living[handle.job_id]
                os.eventfd_write(handle.pidfd, 1)
                link.handle.died()
                if link.handle.state is ProcessState.GONE:
                    self.forget(link.handle)

    def _serve(self, job_id: int, link: _Link, path: str, woken: changes.SharedNumber) -> None:
        locks = remote.RemoteLocks(link, livelock.Record(path))
        callbacks = remote.RemoteCallbacks(
            link, Owner(job_id, f"job-{job_id}", path), lambda: bool(woken.get())
        )
        result = None
        while True:
            task = link.next_task(result)
            if "end" in task:
                return
            link.running = int(task["index"])
            callbacks.begin()
            locks.begin(methods.HELD.decode(task["held"]))

            def work(op: OpCode) -> Any:
                try:
                    return self._work(op, cast("Callbacks", callbacks), locks)
                finally:
                    # As the processor does.
                    locks.release(callbacks.owner)

            result = execute(job_id, work, task["op"])
