"""The fork server: the process which makes job processes.

It is a program of its own (:mod:`ganeti.server.fork_server`), and no copy of the master daemon,
because a copy of a process with threads may find a lock held for ever. It loads all modules and a
state of the configuration, which its copies share until they change it. It has no threads, holds no
lock, and makes no calls. It ends with the master daemon; the job processes do not.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import struct
from types import FrameType
from typing import Final, NamedTuple, NoReturn

from ganeti import RELEASE
from ganeti.jobexec import changes, messages, process
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.process import Surroundings
from ganeti.objects import ConfigData
from ganeti.platform import paths

_log = logging.getLogger(__name__)

#: The answer to a request for a process: its id, with a pidfd beside it; or minus the number of the
#: error, without one.
ANSWER: Final = struct.Struct(">q")


class _Spare(NamedTuple):
    """A process which waits for its job.

    :ivar sock: tells it the job and its token.
    """

    pid: int
    pidfd: int
    sock: socket.socket


def serve(sock: socket.socket) -> NoReturn:
    """Make a process for each request, until the master daemon ends.

    The first message says of which release this program is, because the files of the programs may
    have been replaced since the master daemon started. A request has the number of a job and the
    token of its process, and what changed in the configuration since the request before. An empty
    one says that jobs will be executed in processes, for which this one makes everything that they
    have in common. One process is made in advance, so that a job need not wait for it; it learns of
    later changes when it has connected.
    """
    signal.signal(signal.SIGCHLD, _reap)
    here = process.surroundings(paths.current())
    warm = False
    channel = Channel(sock)
    channel.send({"release": RELEASE, "protocol": messages.protocol()})
    data: ConfigData | None = None
    spare: _Spare | None = None
    while True:
        try:
            request = channel.receive()
        except ChannelClosed:
            logging.shutdown()
            os._exit(0)
        if not warm:
            process.warm_up()
            warm = True
        if "job" not in request:
            continue
        if request["changes"] is not None:
            data = changes.apply(data, request["changes"])
            if "all" in request["changes"]:
                # The copies of this process need not visit these objects.
                gc.collect()
                gc.freeze()
        try:
            spare = spare or _make(sock, here, data)
            Channel(spare.sock).send([request["job"], request["token"]])
        except (OSError, ChannelClosed) as err:
            _log.error("cannot make a process for job %d: %s", request["job"], err)
            number = err.errno if isinstance(err, OSError) else None
            sock.sendall(ANSWER.pack(-(number or errno.ECHILD)))
            if spare is not None:
                _close(spare)
            spare = None
            continue
        socket.send_fds(sock, [ANSWER.pack(spare.pid)], [spare.pidfd])
        _close(spare)
        try:
            spare = _make(sock, here, data)
        except OSError as err:
            _log.warning("cannot make a process in advance: %s", err)
            spare = None


def _close(spare: _Spare) -> None:
    os.close(spare.pidfd)
    spare.sock.close()


def _make(sock: socket.socket, here: Surroundings, data: ConfigData | None) -> _Spare:
    """Make a process which waits for its job.

    :raises OSError: the system cannot make one.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # The signal would collect the process before it has a descriptor.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        child = os.fork()
        if not child:
            sock.close()
            ours.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            process.main(here, theirs, data)
        return _Spare(child, os.pidfd_open(child), ours)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _reap(_number: int, _frame: FrameType | None) -> None:
    """Collect the processes which have ended, and log how they ended, if it was not as wanted."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        if os.WIFSIGNALED(status):
            _log.warning("job process %d was ended by signal %d", child, os.WTERMSIG(status))
        elif os.WEXITSTATUS(status):
            _log.warning("job process %d ended with code %d", child, os.WEXITSTATUS(status))
