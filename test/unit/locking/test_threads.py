"""The manager under real threads with random pauses: owners hold only compatible modes.

There is no time limit: a lost wake-up or a circle of waiting shows as a test that does not end.
``LOCK_ROUNDS`` makes a longer run.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.locking import ALL, BGL, EXCLUSIVE, Level, LockManager, Owner

from ..jobexec.wire_lab import Job, Master, Queue

THREADS = 10
ROUNDS = int(os.environ.get("LOCK_ROUNDS", "1500"))
KEYS = tuple(f"k{number}" for number in range(6))
LEVELS = (Level.INSTANCE, Level.NODE, Level.NODE_RES)


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


class _Watch:
    """Counts who is inside; kept by the threads themselves, apart from the manager."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._readers: dict[tuple[Level, str], int] = {}
        self._writers: dict[tuple[Level, str], int] = {}
        self.trouble: list[str] = []

    def enter(self, owner: Owner, level: Level, held: dict[str, str]) -> None:
        with self._mutex:
            for key, mode in held.items():
                at = (level, key)
                readers, writers = self._readers.get(at, 0), self._writers.get(at, 0)
                if writers or (readers and mode == EXCLUSIVE):
                    self.trouble.append(f"{owner} met {readers} readers, {writers} writers at {at}")
                books = self._writers if mode == EXCLUSIVE else self._readers
                books[at] = books.get(at, 0) + 1

    def leave(self, level: Level, held: dict[str, str]) -> None:
        with self._mutex:
            for key, mode in held.items():
                books = self._writers if mode == EXCLUSIVE else self._readers
                books[level, key] -= 1


class _Worker(threading.Thread):
    def __init__(self, number: int, locks: LockManager, watch: _Watch, rounds: int) -> None:
        super().__init__(daemon=True)
        self.owner = Owner(number, f"job-{number}")
        self.rounds = rounds
        self.rng = random.Random(number)
        self.locks = locks
        self.watch = watch
        self.stop_me = threading.Event()
        self.taken = self.late = self.canceled = self.removed = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for round_number in range(self.rounds):
                self._round(round_number)
        except BaseException as err:  # noqa: BLE001 - the test reports what a thread died of
            self.error = err

    def _check_canceled(self) -> None:
        if self.stop_me.is_set():
            raise errors.JobCanceled("job was asked to stop")

    def _round(self, round_number: int) -> None:
        rng = self.rng
        inside: list[tuple[Level, dict[str, str]]] = []
        own = f"own-{self.owner.job_id}-{round_number}"
        try:
            self.locks.acquire(self.owner, Level.CLUSTER, [BGL], shared=rng.random() < 0.98)
            for level in LEVELS:
                if rng.random() < 0.3:
                    continue
                self._take(level, own, inside)
                if rng.random() < 0.2:
                    time.sleep(rng.random() * 0.0005)
        except errors.JobCanceled:
            self.stop_me.clear()
            self.canceled += 1
        except errors.LockError as err:
            assert "was removed" in str(err) or "does not exist" in str(err), err
            self.removed += 1
        finally:
            for level, held in reversed(inside):
                self.watch.leave(level, held)
            self.locks.release(self.owner)

    def _take(self, level: Level, own: str, inside: list[tuple[Level, dict[str, str]]]) -> None:
        rng = self.rng
        keys: set[str] | None = set(rng.sample(KEYS, rng.randint(1, 4)))
        if rng.random() < 0.08:
            keys = ALL
        elif rng.random() < 0.2 and level is Level.INSTANCE:
            self.locks.add(level, [own])
            keys = {own}
        kind = rng.random()
        shared = keys is None or (own not in keys and rng.random() < 0.5)
        got = self.locks.acquire(
            self.owner,
            level,
            keys,
            shared=shared,
            timeout_s=0.001 if kind < 0.1 else None,
            opportunistic=0.1 < kind < 0.2,
            priority=rng.randint(-1, 1),
            canceled=self._check_canceled,
        )
        if got is None:
            self.late += 1
            if keys is not None and own in keys:
                self.locks.acquire(self.owner, level, [own], shared=False)
                self.locks.remove(level, [own], self.owner)
            return
        self.taken += 1
        if keys is not None and own in keys:
            if own not in got:  # tried without waiting below somebody's whole level
                return
            self.locks.remove(level, [own], self.owner)
            return
        held = self.locks.owned(self.owner, level)
        if keys is None:
            # Others come and go below a whole level held shared only once it is given back.
            held = {key: mode for key, mode in held.items() if key in KEYS}
        self.watch.enter(self.owner, level, held)
        inside.append((level, held))
        if rng.random() < 0.2 and held:
            self.watch.leave(level, held)
            self.locks.downgrade(self.owner, level)
            inside[-1] = (level, dict.fromkeys(held, "shared"))
            self.watch.enter(self.owner, *inside[-1])


class _Queue(Queue):
    """The job queue, as the requests of the process of a worker use it."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__(worker.owner.job_id or 0)
        self._worker = worker

    def check_cancel(self) -> None:
        self._worker._check_canceled()


@pytest.mark.parametrize(
    ("execution", "rounds"),
    [
        ("threads", ROUNDS),
        ("processes", ROUNDS // 15),
        pytest.param("processes", ROUNDS, marks=pytest.mark.long),
    ],
)
def test_many_threads(execution: str, rounds: int, tmp_path: Path) -> None:
    """The owners are jobs in threads, or as in processes, with a socket between."""
    locks = LockManager(dict.fromkeys(LEVELS, KEYS))
    watch = _Watch()
    workers = [_Worker(number, locks, watch, rounds) for number in range(THREADS)]
    jobs = []
    if execution == "processes":
        master = Master(tmp_path / "master")
        master.locks = master.context.locks = locks
        for worker in workers:
            job = Job(master, worker.owner.job_id or 0, _Queue(worker))
            jobs.append(job)
            worker.locks = job.locks  # type: ignore[assignment]
    for worker in workers:
        worker.start()
    rng = random.Random(0)
    while any(worker.is_alive() for worker in workers):
        victim = rng.choice(workers)
        if rng.random() < 0.3:
            victim.stop_me.set()
            locks.wake(victim.owner)
        else:
            locks.reprioritise(victim.owner, rng.randint(-2, 2))
        locks.table()
        locks.waiting(victim.owner)
        time.sleep(0.002)
    for worker in workers:
        worker.join()
        if worker.error is not None:
            raise worker.error
    assert watch.trouble == []
    for job in jobs:
        assert job.held.locks == {}
        # The release of all locks is sent together with the next request.
        job.locks.keys(Level.NODE)
        job.link.close()
    assert locks.owners() == []
    assert locks.table() == []
    assert sum(worker.taken for worker in workers) > THREADS * rounds
    for figure in ("late", "canceled"):
        assert sum(getattr(worker, figure) for worker in workers) > 0, figure


def test_removal_races_with_waiters() -> None:
    """Every round one thread removes a lock for which the others wait; all of them hear of it."""
    locks = LockManager()
    rounds = ROUNDS // 4
    start = threading.Barrier(5)
    failures: list[int] = []

    def waiter(number: int) -> None:
        owner = Owner(number, f"job {number}")
        for round_number in range(rounds):
            start.wait()
            try:
                locks.acquire(owner, Level.NODE, [f"n{round_number}"], shared=number % 2 == 0)
            except errors.LockError:
                failures.append(number)
            locks.release(owner)

    threads = [threading.Thread(target=waiter, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    remover = Owner(None, "remover")
    for round_number in range(rounds):
        name = f"n{round_number}"
        locks.add(Level.NODE, [name])
        locks.acquire(remover, Level.NODE, [name], shared=False)
        start.wait()
        locks.remove(Level.NODE, [name], remover)
        locks.release(remover)
    for thread in threads:
        thread.join()
    assert len(failures) == 4 * rounds
    assert locks.owners() == []


def test_the_whole_level_is_not_starved_by_members() -> None:
    """Readers of members come without a pause; who wants the level still gets it."""
    locks = LockManager({Level.NODE: KEYS})
    stop = threading.Event()

    def reader(number: int) -> None:
        owner = Owner(number, f"job {number}")
        while not stop.is_set():
            locks.acquire(owner, Level.NODE, [KEYS[number]], shared=True)
            locks.release(owner)

    threads = [threading.Thread(target=reader, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    writer = Owner(None, "writer")
    for _ in range(50):
        assert locks.acquire(writer, Level.NODE, ALL, shared=False) == set(KEYS)
        locks.release(writer)
    stop.set()
    for thread in threads:
        thread.join()
