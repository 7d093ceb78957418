"""Waiting, telling the time, and locks between processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.utils import clock, filelock, retry


class FakeTime:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_until_returns_the_result() -> None:
    time = FakeTime()
    answers = iter([False, False, True])

    def attempt() -> str:
        if not next(answers):
            raise retry.Again
        return "done"

    got = retry.until(attempt, timeout_s=10, delay=(1, 2, 3), clock=time, sleep=time.sleep)
    assert got == "done"
    assert time.slept == [1, 2]


def test_until_gives_up_at_the_deadline() -> None:
    time = FakeTime()

    def attempt() -> None:
        raise retry.Again("node1 is silent")

    with pytest.raises(errors.RetryTimeout, match="node1 is silent"):
        retry.until(attempt, timeout_s=10, delay=(1, 2, 4), clock=time, sleep=time.sleep)
    assert time.slept == [1, 2, 4, 3]
    with pytest.raises(errors.RetryTimeout):
        retry.until(attempt, timeout_s=0, clock=time, sleep=time.sleep)


def test_until_passes_other_errors_on() -> None:
    with pytest.raises(ZeroDivisionError):
        retry.until(lambda: 1 // 0, timeout_s=10)


@pytest.mark.parametrize(
    ("timestamp", "pair"),
    [(1.5, (1, 500000)), (0.9999999, (1, 0)), (1795213494.25, (1795213494, 250000))],
)
def test_split(timestamp: float, pair: tuple[int, int]) -> None:
    assert clock.split(timestamp) == pair
    assert clock.merge(pair) == pytest.approx(timestamp, abs=1e-6)


def test_exclusive_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert not filelock.is_locked(path)
    with filelock.FileLock(path) as one, filelock.FileLock(path) as two:
        one.acquire(timeout_s=0)
        assert one.held and filelock.is_locked(path)
        time = FakeTime()
        with pytest.raises(errors.LockError, match="locked by another process"):
            two.acquire(timeout_s=5, clock=time, sleep=time.sleep)
        assert sum(time.slept) == pytest.approx(5)
        one.release()
        assert not filelock.is_locked(path)
        two.acquire()
    assert not filelock.is_locked(path)


def test_shared_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with filelock.FileLock(path) as one, filelock.FileLock(path) as two:
        one.acquire(shared=True, timeout_s=0)
        two.acquire(shared=True, timeout_s=0)
        with pytest.raises(errors.LockError):
            two.acquire(timeout_s=0)


def test_lock_dies_with_its_process(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    receive, send = os.pipe()
    stop_receive, stop_send = os.pipe()
    child = os.fork()
    if child == 0:
        lock = filelock.FileLock(path)
        lock.acquire()
        os.write(send, b"x")
        os.close(stop_send)
        os.read(stop_receive, 1)
        os._exit(0)
    assert os.read(receive, 1) == b"x"
    assert filelock.is_locked(path)
    os.close(stop_send)
    os.waitpid(child, 0)
    assert not filelock.is_locked(path)
    for fd in (receive, send, stop_receive):
        os.close(fd)


def test_closed_lock(tmp_path: Path) -> None:
    lock = filelock.FileLock(str(tmp_path / "lock"))
    lock.close()
    lock.close()
    with pytest.raises(errors.ProgrammerError, match="closed"):
        lock.acquire()
