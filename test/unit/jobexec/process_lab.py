"""Real job processes: a fork server, the executor of a master daemon, and opcodes which can wait.

The processes are copies of the test's process, as they are copies of the master daemon elsewhere.
Their opcodes are those of ``gnt-debug delay``, which make no node calls here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ganeti import cmdlib
from ganeti.constants import job as job_const
from ganeti.jobexec import fork_server, process
from ganeti.jobexec.executor import ProcessExecutor
from ganeti.jobexec.forker import Forker, Started
from ganeti.jobexec.process import Surroundings
from ganeti.jobexec.process_handle import ProcessHandle
from ganeti.jqueue import job as jobs
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.test import OpTestDelay
from ganeti.platform import master_epoch, paths

from .wire_lab import PATIENCE_S, Master, Queue

EPOCH = master_epoch.Epoch(1, "uuid-node1")


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def delay(**values: Any) -> OpCode:
    """An opcode which ends at once."""
    return OpTestDelay(duration=0.0, **values)


def held() -> OpCode:
    """An opcode which waits for :meth:`Work.let_go`."""
    return OpTestDelay(duration=3600.0, interruptible=True)


class NoNodes:
    """The client for node calls; the opcodes of these tests make none."""

    def perform(self, *_args: Any) -> Any:
        raise AssertionError("a node call")

    def reset(self, ca_file: str | None = None) -> None:
        """Nothing to forget."""


class Work(Queue):
    """An opcode of a job, and the worker of the queue which waits for its result."""

    def __init__(self, handle: ProcessHandle, op: jobs.QueuedOpCode, index: int = 0) -> None:
        super().__init__(handle.job_id)
        self.handle = handle
        self.op = op
        self.index = index
        self.begun = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.result = self.handle.execute(self.op, self, self.index)  # type: ignore[arg-type]
        except Exception as err:  # noqa: BLE001 -- the test looks at it
            self.error = err

    def notify_start(self) -> None:
        super().notify_start()
        self.op.state = self.op.state._replace(status=jobs.RUNNING, exec=(1, 1))

    def feedback(self, *args: Any) -> None:
        super().feedback(*args)
        self.op.log.append((len(self.op.log) + 1, (1, 1), *args))
        if args[0] == job_const.LOG_DELAY_TEST:
            self.begun.set()

    def await_begin(self) -> Work:
        """Wait until a held opcode is running."""
        assert self.begun.wait(PATIENCE_S), self.error
        return self

    def let_go(self) -> Work:
        """Let a held opcode end."""
        ((path,),) = (args[1] for args in self.log if args[0] == job_const.LOG_DELAY_TEST)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
        return self

    def finish(self) -> Any:
        """Wait for the end of the opcode; return its result, or raise its error."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


class Lab:
    """A master daemon and its job processes.

    :param daemons: how many master daemons there are, one after the other.
    :ivar servers: the fork servers which were started.
    """

    def __init__(self, daemons: int = 1) -> None:
        # The path of a socket is short.
        self.directory = Path(tempfile.mkdtemp(prefix="gnt-"))
        self.paths = paths.Paths(str(self.directory / "root"))
        for directory in (self.paths.data_dir, self.paths.lock_dir, self.paths.livelock_dir):
            os.makedirs(directory)
        self.master = Master(self.directory / "master")
        self.here = Surroundings(
            str(self.directory / "jobs"),
            str(self.directory / "master/serial"),
            self.paths.livelock_dir,
            NoNodes,
            lambda: None,
        )
        self.works: list[Work] = []
        self.executors: list[ProcessExecutor] = []
        self.servers: list[int] = []
        self.start_error: OSError | None = None
        cmdlib.load()
        master_epoch.claim(EPOCH, self.paths)
        self._forkers = [Forker(self._start_fork_server) for _ in range(daemons)]

    def _start_fork_server(self) -> Started:
        """A copy of this process, and not a program of its own, so that it has the fakes, too."""
        if self.start_error is not None:
            raise self.start_error
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if not pid:
            try:
                for descriptor in map(int, os.listdir("/proc/self/fd")):
                    # Neither the connections of other fork servers, nor those of the daemon.
                    if descriptor > 2 and descriptor != theirs.fileno():
                        with contextlib.suppress(OSError):
                            os.close(descriptor)
                process.surroundings = lambda _paths: self.here
                with paths.override(self.paths):
                    fork_server.serve(theirs)
            finally:
                os._exit(1)
        theirs.close()
        self.servers.append(pid)
        return Started(ours, pid)

    def daemon(self) -> ProcessExecutor:
        """A master daemon which is starting."""
        if self.executors:
            self.master.open()
        server = self._forkers[len(self.executors)]
        made = ProcessExecutor(self.here, server, self.master.context, EPOCH, None)
        self.executors.append(made)
        return made

    def work(self, job_id: int, opcode: OpCode) -> Work:
        """Give an opcode to the process of a new job."""
        handle = self.executors[-1].open(job_id)
        found = Work(handle, jobs.QueuedOpCode.from_opcode(opcode))
        self.works.append(found)
        return found

    def held(self, job_id: int) -> Work:
        """Begin a job which waits in its process."""
        return self.work(job_id, held()).await_begin()

    def run(self, job_id: int) -> int:
        """Execute a job; return its process."""
        work = self.work(job_id, delay())
        work.finish()
        work.handle.close()
        return work.handle.process_id

    def livelocks(self) -> list[str]:
        """The files of job processes."""
        return sorted(os.listdir(self.paths.livelock_dir))

    def end_daemon(self) -> None:
        """End the present master daemon; the processes go on."""
        self._refuse_connections(self.executors[-1])
        self.executors[-1].detach()

    def _refuse_connections(self, executor: ProcessExecutor) -> None:
        if executor._socket is not None:
            with contextlib.suppress(OSError):
                executor._socket.shutdown(socket.SHUT_RDWR)
            executor._socket.close()

    def close(self) -> None:
        for executor in self.executors:
            executor.end_all()
            self._refuse_connections(executor)
        for made in self._forkers:
            made.close()
        until(lambda: all(map(ended, self.servers)), "the fork servers end")
        shutil.rmtree(self.directory, ignore_errors=True)


def ended(pid: int) -> bool:
    """Whether a process has ended, and its parent knows it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def kill(pid: int) -> None:
    """End a process from outside."""
    os.kill(pid, signal.SIGKILL)
