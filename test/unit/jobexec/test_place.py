"""The process of one job, as the master daemon sees it, without a process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ganeti.jobexec.forker import JobProcess
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.place import JobPlace
from ganeti.jqueue import job as jobs
from ganeti.opcodes.test import OpTestDelay


def test_a_stop_ends_a_connection_that_no_worker_has_taken(tmp_path: Path) -> None:
    """Otherwise its process waits for an answer until the master daemon has ended."""
    unused: Any = None
    pidfd = os.eventfd(0)
    place = JobPlace(unused, 7, "f" * 16, JobProcess(os.getpid(), pidfd), str(tmp_path / "none"))
    op = jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=0.0))
    op.move(jobs.WAITING)
    op.move(jobs.RUNNING, exec=(1, 0))
    place.adopt(op)
    ours, theirs = socket.socketpair()
    place.connected(Channel(theirs), {"running": 0})
    place.detach()
    with pytest.raises(ChannelClosed):
        Channel(ours).receive(60.0)
    os.close(pidfd)
    ours.close()
