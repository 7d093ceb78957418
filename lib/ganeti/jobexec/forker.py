"""The fork server as the master daemon uses it: requests for job processes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.config import Config
from ganeti.jobexec import changes, fork_server
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.utils.net import wait_readable

_ENDED: Final = (
    "the process which makes the processes of jobs has ended. Restart the master daemon with"
    " 'daemon-util restart ganeti-masterd'; jobs which have a process go on."
)


class ForkedProcess(NamedTuple):
    """A job process.

    :ivar pidfd: a descriptor of the process, from pidfd_open(2); the receiver closes it.
    :ivar number: number of the jobs which it has executed before.
    """

    pid: int
    pidfd: int
    number: int = 0


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Tell whether a process has ended, or ends within a time."""
    return bool(wait_readable([pidfd], timeout_s))


class Forker:
    """Makes job processes through the fork server. Thread-safe.

    :param sock: the connection to the fork server, from
        :func:`ganeti.jobexec.idle_fork_server.start`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._channel = Channel(sock)
        self._lock = threading.Lock()
        self._config: Config | None = None
        self._known: int | None = None

    def use_config(self, config: Config) -> None:
        """Give processes the state of this configuration from now on."""
        self._config = config

    def prepare(self) -> None:
        """Let the fork server make what processes have in common, before the first one."""
        # Without the lock, because the caller may have locked the configuration. When the fork
        # server has ended, the next request raises an error.
        with contextlib.suppress(ChannelClosed):
            self._channel.send({})

    def make(self, job_id: int, token: str) -> ForkedProcess:
        """Make the process of a job.

        :raises OpExecError: the system cannot make one, or the fork server has ended.
        """
        with self._lock:
            message = None
            if self._config is not None:
                data, keys = self._config.changed_since(self._known or 0)
                if keys != frozenset():
                    message = changes.describe(data, None if self._known is None else keys)
                self._known = data.serial_no
            try:
                self._channel.send({"job": job_id, "token": token, "changes": message})
                answer, descriptors, _flags, _address = socket.recv_fds(
                    self._sock, fork_server.ANSWER.size, 1
                )
            except (ChannelClosed, OSError) as err:
                raise errors.OpExecError(_ENDED) from err
            if len(answer) < fork_server.ANSWER.size:
                raise errors.OpExecError(_ENDED)
            (pid,) = fork_server.ANSWER.unpack(answer)
        if pid < 0:
            raise errors.OpExecError(f"cannot make a process for the job: {os.strerror(-pid)}")
        os.set_inheritable(descriptors[0], False)
        return ForkedProcess(pid, descriptors[0])

    def close(self) -> None:
        """Let the fork server end."""
        self._channel.close()
