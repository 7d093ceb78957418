"""Waiting for the end of a process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ganeti.hypervisor.kvm import host


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits to be ended; collected only afterwards, as by a slow parent."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_one_that_goes_on(child: int) -> None:
    assert not host.wait_gone(child, 0.01)
    assert not host.wait_gone(child, -1.0)


def test_one_that_ends(child: int) -> None:
    ended = threading.Timer(0.05, os.kill, (child, signal.SIGKILL))
    ended.start()
    assert host.wait_gone(child, 600)
    ended.join()


def test_a_zombie_and_one_that_is_gone(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert host.wait_gone(child, 0)
    # A pid that nobody has.
    assert host.wait_gone(2**22 + 1, 0)
