"""The process of one job, as the master daemon sees it, without a process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.jobexec.forker import ForkedProcess
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.process_handle import _MOVES, ProcessHandle, ProcessState
from ganeti.jqueue import job as jobs
from ganeti.opcodes.test import OpTestDelay


def test_a_stop_ends_a_connection_that_no_worker_has_taken(tmp_path: Path) -> None:
    """Otherwise its process waits for an answer until the master daemon has ended."""
    unused: Any = None
    pidfd = os.eventfd(0)
    process = ForkedProcess(os.getpid(), pidfd)
    handle = ProcessHandle(unused, 7, "f" * 16, process, str(tmp_path / "none"))
    op = jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=0.0))
    op.move(jobs.WAITING)
    op.move(jobs.RUNNING, exec=(1, 0))
    handle.adopt(op)
    ours, theirs = socket.socketpair()
    handle.connected(Channel(theirs), {"running": 0})
    handle.detach()
    with pytest.raises(ChannelClosed):
        Channel(ours).receive(60.0)
    os.close(pidfd)
    ours.close()


def handle_of(tmp_path: Path, *states: ProcessState) -> tuple[ProcessHandle, int]:
    """A process with these states one after the other, and its descriptor."""
    pidfd = os.eventfd(0)
    unused: Any = None
    process = ForkedProcess(os.getpid(), pidfd)
    handle = ProcessHandle(unused, 7, "f" * 16, process, str(tmp_path / "none"))
    with handle._changed:
        for state in states:
            handle._move(state)
    return handle, pidfd


IDLE, EXECUTING, KILLED, DETACHED, DEAD, CLOSED, GONE = ProcessState
#: Each state, and a way to it.
WAYS = {
    IDLE: (),
    EXECUTING: (EXECUTING,),
    KILLED: (EXECUTING, KILLED),
    DETACHED: (EXECUTING, DETACHED),
    DEAD: (DEAD,),
    CLOSED: (CLOSED,),
    GONE: (DEAD, GONE),
}


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (IDLE, DEAD),
        (EXECUTING, DEAD),
        (KILLED, DEAD),
        (DETACHED, DETACHED),
        (CLOSED, GONE),
        (GONE, GONE),
    ],
)
def test_the_end_of_a_process(tmp_path: Path, state: ProcessState, then: ProcessState) -> None:
    handle, pidfd = handle_of(tmp_path, *WAYS[state])
    handle.died()
    assert handle.state is then
    os.close(pidfd)


@pytest.mark.parametrize("state", [IDLE, KILLED, DETACHED, DEAD, CLOSED, GONE])
def test_only_a_process_with_an_opcode_is_killed(tmp_path: Path, state: ProcessState) -> None:
    handle, pidfd = handle_of(tmp_path, *WAYS[state])
    assert not handle.kill("killed by a test")
    handle.detach()  # It has no opcode which could go on.
    assert handle.state is state
    os.close(pidfd)


@pytest.mark.parametrize("state", [CLOSED, GONE])
def test_a_process_whose_job_has_ended_gets_no_opcode(tmp_path: Path, state: ProcessState) -> None:
    handle, pidfd = handle_of(tmp_path, *WAYS[state])
    op = jobs.QueuedOpCode.from_opcode(OpTestDelay(duration=0.0))
    unused: Any = None
    with pytest.raises(errors.ProgrammerError, match="cannot go from"):
        handle.execute(op, unused, 0)
    with pytest.raises(errors.ProgrammerError, match="cannot go from"):
        handle.adopt(op)
    os.close(pidfd)


def test_no_move_leads_out_of_the_last_states() -> None:
    assert _MOVES.keys() == set(ProcessState)
    assert [state for state, after in _MOVES.items() if not after] == [DETACHED, GONE]
