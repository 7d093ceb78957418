"""The locks of a job process do what the lock manager does, and the record always agrees.

The same random sequence of operations runs on a lock manager directly, as in a thread, and on
another one through the requests of a job process.
"""

from __future__ import annotations

import random
import threading
from typing import Any, NamedTuple

import pytest

from ganeti import errors
from ganeti.locking import ALL, EXCLUSIVE, Level, LockId, LockManager, Owner

from .wire_lab import PATIENCE_S, Job, Master

LEVELS = (Level.INSTANCE, Level.NODE)
KEYS = ("a", "b", "c")
OTHER = Owner(8, "job 8")


class Step(NamedTuple):
    """One operation of a walk; the other job takes locks of the manager itself."""

    name: str
    level: Level
    keys: list[str] | None
    shared: bool

    @classmethod
    def choose(cls, chance: random.Random) -> Step:
        names = "acquire acquire acquire free release release downgrade other all"
        return cls(
            chance.choice(names.split()),
            chance.choice(LEVELS),
            chance.choice([ALL, *[chance.sample(KEYS, chance.randint(1, 2))] * 3]),
            chance.random() < 0.5,
        )

    def perform(self, locks: Any, manager: LockManager, owner: Owner) -> Any:
        try:
            return self._perform(locks, manager, owner)
        except errors.LockError as err:
            return type(err)

    def _perform(self, locks: Any, manager: LockManager, owner: Owner) -> Any:
        if self.name == "acquire":
            return locks.acquire(owner, self.level, self.keys, shared=self.shared, timeout_s=0)
        if self.name == "free":
            return locks.acquire(
                owner, self.level, self.keys, shared=self.shared, opportunistic=True
            )
        if self.name == "release":
            return locks.release(owner, self.level, self.keys)
        if self.name == "downgrade":
            return locks.downgrade(owner, self.level, self.keys)
        if self.name == "all":
            return locks.release(owner)
        if manager.list_locks(OTHER):
            return manager.release(OTHER)
        return manager.acquire(OTHER, self.level, self.keys, shared=self.shared, timeout_s=0)


def walk(master: Master, job: Job, seed: int, steps: int) -> None:
    chance = random.Random(seed)
    fresh = {level: list(KEYS) for level in LEVELS}
    here = LockManager(fresh)
    far = master.locks = master.context.locks = LockManager(fresh)
    job.link.close()
    job.link.connect()
    owner = job.queue.owner
    for number in range(steps):
        step = Step.choose(chance)
        where = (seed, number, step)
        assert step.perform(here, here, owner) == step.perform(job.locks, far, owner), where
        held = here.list_locks(owner)
        # Nobody waits for the release of all locks, but requests are carried out in their order.
        job.locks.keys(Level.NODE)
        assert far.list_locks(owner) == held, where
        assert job.locks._held == held, where
        for level in LEVELS:
            assert job.locks.owned(owner, level) == here.owned(owner, level), where
        assert job.held.locks == held, where
    job.locks.release(owner)
    assert job.held.locks == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_through_requests_agrees_with_the_manager(
    master: Master, job: Job, seed: int
) -> None:
    walk(master, job, seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_a_long_walk_through_requests(master: Master, job: Job, seed: int) -> None:
    walk(master, job, seed, 1500)


def test_a_cancellation_ends_the_wait(master: Master, job: Job) -> None:
    master.locks.acquire(OTHER, Level.INSTANCE, ["a"], shared=False)
    ended: list[Any] = []

    def wait() -> None:
        try:
            job.locks.acquire(job.queue.owner, Level.INSTANCE, ["a", "b"], shared=False)
        except errors.JobCanceled as err:
            ended.append(err)

    thread = threading.Thread(target=wait)
    thread.start()
    while master.locks.waiting(job.queue.owner) is None:
        thread.join(0.01)
    job.queue.canceled = True
    master.locks.wake(job.queue.owner)
    thread.join(PATIENCE_S)
    assert [str(err) for err in ended] == ["canceled by request"]
    assert master.locks.list_locks(job.queue.owner) == {} == job.held.locks


def test_new_locks_and_removed_ones(master: Master, job: Job) -> None:
    owner = job.queue.owner
    job.locks.add(Level.INSTANCE, ["new"])
    assert job.locks.keys(Level.INSTANCE) == {"a", "b", "c", "new"}
    job.locks.acquire(owner, Level.INSTANCE, ["new", "a"], shared=False)
    job.locks.remove(Level.INSTANCE, ["new"], owner)
    assert master.locks.keys(Level.INSTANCE) == {"a", "b", "c"}
    assert job.held.locks == {LockId(Level.INSTANCE, "a"): EXCLUSIVE}
    with pytest.raises(errors.LockError):
        job.locks.remove(Level.INSTANCE, ["b"], owner)


def test_a_release_whose_answer_is_lost_is_not_repeated(master: Master, job: Job) -> None:
    """The next master daemon takes the locks of the record, which lacks the released one."""
    owner = job.queue.owner
    job.locks.acquire(owner, Level.INSTANCE, ["a", "b"], shared=False)

    def restart() -> None:
        master.open()
        assert job.held.locks == {LockId(Level.INSTANCE, "b"): EXCLUSIVE}
        assert master.locks.update(owner, job.held.locks)

    job.link.on_connect = restart
    job.link.cut()
    job.locks.release(owner, Level.INSTANCE, ["a"])
    assert job.link.connections == 2
    assert master.locks.list_locks(owner) == {LockId(Level.INSTANCE, "b"): EXCLUSIVE}
