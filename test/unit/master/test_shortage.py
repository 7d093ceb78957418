"""The threads of the master go on after a moment in which the machine lacked something."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ganeti.master import (
    certificate_renewal,
    commit_probe,
    fence,
    key_learning,
    node_poll,
    orphaned_work,
    returning,
    witness,
)
from ganeti.platform import master_epoch
from ganeti.platform.master_epoch import Epoch

NONE: Any = None
EPOCH = Epoch(1, "uuid-1")


def _orphaned_work() -> Callable[[], object]:
    made = orphaned_work.OrphanedWorkLocks(NONE, NONE, NONE, EPOCH, ())
    made._unasked.add("node")
    return made._watch


#: The module, the names of its pauses, the method which fails, and what makes the loop.
LOOPS: dict[str, tuple[Any, tuple[str, ...], str, Callable[[], Callable[[], object]]]] = {
    "commit probe": (
        commit_probe, ("_IDLE_S",), "CommitProbe.round",
        lambda: commit_probe.CommitProbe(NONE, NONE, NONE, NONE)._run,
    ),
    "node poll": (
        node_poll, ("ROUND_S",), "NodePoll.round",
        lambda: node_poll.NodePoll(NONE, NONE, NONE)._run,
    ),
    "key learning": (
        key_learning, ("PAUSE_S",), "KeyLearning.poll",
        lambda: key_learning.KeyLearning(NONE, NONE)._run,
    ),
    "certificates": (
        certificate_renewal, ("FIRST_S", "PAUSE_S"), "CertificateRenewal.poll",
        lambda: certificate_renewal.CertificateRenewal(NONE, NONE, NONE)._run,
    ),
    "witness": (
        witness, ("POLL_S", "RETRY_S"), "MasterWitness.poll",
        lambda: witness.MasterWitness(NONE, NONE, NONE)._watch,
    ),
    "returning": (
        returning, ("PAUSE_S",), "Returning.round", lambda: returning.Returning([], NONE)._run,
    ),
    "orphaned work": (orphaned_work, ("POLL_S",), "OrphanedWorkLocks.poll", _orphaned_work),
}  # fmt: skip


class Over(BaseException):
    """Ends the loop of a test."""


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        MemoryError(),
        RuntimeError("can't start new thread"),
    ],
)
def test_a_loop_goes_on(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    module, pauses, method, make = LOOPS[name]
    for pause in pauses:
        monkeypatch.setattr(module, pause, 0.0)
    calls = 0

    def work(*_args: object, **_kwargs: object) -> None:
        nonlocal calls
        calls += 1
        raise error if calls < 3 else Over

    cls, _, function = method.partition(".")
    monkeypatch.setattr(getattr(module, cls), function, work)
    with pytest.raises(Over):
        make()()
    assert calls == 3


def test_the_fence_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a replaced master would not end any more by what its own node knows."""
    ends: list[str] = []
    made = fence.Fence(EPOCH, lambda: ends.append("end"))
    monkeypatch.setattr(fence, "CHECK_S", 0.0)
    answers: list[Exception | Epoch] = [MemoryError(), Epoch(2, "uuid-2")]

    class State:
        epoch = EPOCH

    def read() -> State:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        State.epoch = answer
        made.stop()
        return State()

    monkeypatch.setattr(master_epoch, "read", read)
    thread = threading.Thread(target=made._watch, daemon=True)
    thread.start()
    thread.join(60)
    assert ends == ["end"]
