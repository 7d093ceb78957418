"""The fork server as the master daemon uses it: its start, also after its death, and requests.

The master daemon starts the fork server when it first needs a process for a job, and starts another
one at once when it has ended: a fork server which is gone is no fault of the jobs which wait.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ganeti import RELEASE
from ganeti.config import Config
from ganeti.jobexec import changes, fork_server, messages
from ganeti.jobexec.messages import Channel, ChannelClosed, ChannelTimeout
from ganeti.jqueue.execution import NotBegun
from ganeti.utils import metrics
from ganeti.utils.net import wait_readable

_log = logging.getLogger(__name__)

_STARTED = metrics.Counter(
    "ganeti_master_fork_servers",
    "Starts of the process which makes the processes of jobs; more than one when it has ended",
)
# Seconds for the answer to a request. The fork server loads all modules before the first one, and
# makes objects of a whole configuration.
_ANSWER_S: Final = 120.0
# One which ends sooner than this after its start is started again by the next job only.
_LIVES_S: Final = 5.0


class ForkedProcess(NamedTuple):
    """A job process.

    :ivar pidfd: a descriptor of the process, from pidfd_open(2); the receiver closes it.
    :ivar number: number of the jobs which it has executed before.
    """

    pid: int
    pidfd: int
    number: int = 0


class Started(NamedTuple):
    """A fork server which is starting.

    :ivar sock: the connection to it.
    :ivar pid: a child of this process.
    """

    sock: socket.socket
    pid: int


class ForkServerLost(Exception):  # noqa: N818  it is not a failure of an operation
    """The fork server has ended, or does not answer; the next request starts another one."""


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Tell whether a process has ended, or ends within a time."""
    return bool(wait_readable([pidfd], timeout_s))


class _Server:
    """A fork server.

    :ivar known: serial number of the configuration which it has; None before the first request.
    :ivar greeted: it has said which release it is of.
    """

    def __init__(self, started: Started) -> None:
        self.sock, self.pid = started
        self.channel = Channel(self.sock)
        self.since = time.monotonic()
        self.known: int | None = None
        self.greeted = False
        self.reaped = False


class Forker:
    """Makes job processes through a fork server. Thread-safe.

    :param start: starts a fork server; raises OSError when the system cannot.
    """

    def __init__(self, start: Callable[[], Started]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._config: Config | None = None
        self._closed = False

    @property
    def server_pid(self) -> int | None:
        """The number of the fork server; None while there is none."""
        server = self._server
        return None if server is None else server.pid

    def use_config(self, config: Config) -> None:
        """Give processes the state of this configuration from now on."""
        self._config = config

    def prepare(self) -> None:
        """Let a fork server make what processes have in common, before the first one.

        In a thread, because the caller may have locked the configuration. Without one, the next
        request does it.
        """
        try:
            threading.Thread(target=self._prepare, name="fork-server-start", daemon=True).start()
        except RuntimeError as err:
            _log.warning("the fork server is not started in advance: %s", err)

    def _prepare(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                server = self._server or self._renew()
                server.channel.send({})
            except (NotBegun, ChannelClosed) as err:
                _log.warning("the fork server is not started in advance: %s", err)

    def make(self, job_id: int, token: str) -> ForkedProcess:
        """Make the process of a job.

        :raises NotBegun: the system cannot make one.
        :raises ForkServerLost: the fork server has ended. It may have made the process, so the next
            request needs another token.
        """
        with self._lock:
            server = self._server or self._renew()
            try:
                answer, descriptors = self._ask(server, job_id, token)
            except (ChannelClosed, ChannelTimeout, OSError) as err:
                self._give_up(server)
                raise ForkServerLost(
                    f"the process which makes the processes of jobs ({server.pid}) has ended, or"
                    f" does not answer: {err}"
                ) from err
        (number,) = fork_server.ANSWER.unpack(answer)
        if number < 0:
            raise NotBegun(f"cannot make a process for the job: {os.strerror(-number)}")
        if not descriptors:
            # The queue of the kernel was full. The process ends when it has connected.
            raise NotBegun("cannot make a process for the job: too many open files")
        os.set_inheritable(descriptors[0], False)
        return ForkedProcess(number, descriptors[0])

    def _ask(self, server: _Server, job_id: int, token: str) -> tuple[bytes, list[int]]:
        """Send a request; return the answer, and the descriptor of the process."""
        if not server.greeted:
            self._check_release(server)
        message = None
        if self._config is not None:
            data, keys = self._config.changed_since(server.known or 0)
            if keys != frozenset():
                message = changes.describe(data, None if server.known is None else keys)
            server.known = data.serial_no
        server.channel.send({"job": job_id, "token": token, "changes": message})
        server.sock.settimeout(_ANSWER_S)
        answer, descriptors, _flags, _address = socket.recv_fds(
            server.sock, fork_server.ANSWER.size, 1
        )
        if len(answer) < fork_server.ANSWER.size:
            raise ChannelClosed("the connection was closed")
        return answer, descriptors

    def _check_release(self, server: _Server) -> None:
        """Wait until a fork server has started.

        :raises NotBegun: the programs on this node are not those of this master daemon any more.
        """
        found: Any = server.channel.receive(_ANSWER_S)
        if (found["release"], found["protocol"]) != (RELEASE, messages.protocol()):
            self._give_up(server)
            raise NotBegun(
                f"the programs on this node are of release {found['release']} now, and the master"
                f" daemon is of release {RELEASE}. Restart it with 'daemon-util restart"
                " ganeti-masterd'"
            )
        server.greeted = True

    def _renew(self) -> _Server:
        """Start a fork server. Needs the lock.

        :raises NotBegun: the system cannot start one.
        """
        try:
            server = self._server = _Server(self._start())
        except OSError as err:
            raise NotBegun(
                f"cannot start the process which makes the processes of jobs: {err}"
            ) from err
        _STARTED.add()
        _log.info("process %d makes the processes of jobs", server.pid)
        try:
            threading.Thread(
                target=self._await_end, args=(server,), name="fork-server", daemon=True
            ).start()
        except RuntimeError as err:
            _log.warning("the end of process %d will be noticed late: %s", server.pid, err)
        return server

    def _await_end(self, server: _Server) -> None:
        """Collect a fork server when it has ended, and start another one."""
        # Collected with the lock held, so that its number is not that of another process before.
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            how = _how_ended(os.waitpid(server.pid, 0)[1])
            server.reaped = True
            if self._closed:
                return
            _log.error(
                "process %d, which makes the processes of jobs, has ended%s", server.pid, how
            )
            if self._server is not server:
                return  # A request was faster.
            self._give_up(server)
        if time.monotonic() - server.since >= _LIVES_S:
            self._prepare()

    def _give_up(self, server: _Server) -> None:
        """Forget a fork server, and end it if it has not ended. Needs the lock."""
        server.channel.close()
        if self._server is server:
            self._server = None
        if not server.reaped:
            os.kill(server.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let the fork server end."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.channel.close()


def _how_ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f" by signal {os.WTERMSIG(status)}"
    return f" with code {os.WEXITSTATUS(status)}"
