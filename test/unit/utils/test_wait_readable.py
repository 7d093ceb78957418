"""Waiting until something can be read from a descriptor."""

import fcntl
import os
import resource
import signal
import socket

from ganeti.utils.net import wait_readable


def test_only_what_is_ready_is_returned() -> None:
    idle, idle_peer = socket.socketpair()
    busy, busy_peer = socket.socketpair()
    with idle, idle_peer, busy, busy_peer:
        assert wait_readable([idle, busy], 0) == set()
        assert wait_readable([idle, busy], -1) == set()
        busy_peer.send(b"x")
        assert wait_readable([idle, busy.fileno()]) == {busy.fileno()}


def test_the_end_of_a_connection_is_readable() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert wait_readable([ours], 10) == {ours.fileno()}


def test_the_end_of_a_process_is_readable() -> None:
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    pidfd = os.pidfd_open(pid)
    try:
        assert wait_readable([pidfd], 0) == set()
        os.kill(pid, signal.SIGKILL)
        assert wait_readable([pidfd], 60) == {pidfd}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pidfd)


def test_a_descriptor_may_have_a_high_number() -> None:
    """The master daemon has more than 1,024 descriptors when it has many clients."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 3000), before[1]))
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        os.write(write, b"x")
        assert wait_readable([high], 10) == {high}
    finally:
        for descriptor in (read, write, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
