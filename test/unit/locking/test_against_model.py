"""Random histories of the manager, compared with a model after every step.

After each operation every request is in the state which the model says, every owner holds what the
model says, and the table tells the same story. Set ``LOCK_OPERATIONS`` for a longer run of the
plain random walk.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ganeti import errors
from ganeti.locking import ALL, EXCLUSIVE, SHARED, Level, LockId, LockManager, Owner
from ganeti.locking.manager import Request, State

from .model import LockKey, Model, ModelRequest

LEVELS = (Level.INSTANCE, Level.NODE, Level.NODE_RES)
KEYS = ("a", "b", "c", "d")
OWNERS = range(4)


def _owner(number: int) -> Owner:
    return Owner(number, f"job {number}")


def _ident(lock: LockKey) -> LockId:
    return LockId(Level(lock[0]), lock[1] or ALL)


def _mode(shared: bool) -> str:
    return SHARED if shared else EXCLUSIVE


class Pair:
    """The manager and its model, driven together."""

    def __init__(self) -> None:
        self.model = Model({level: set(KEYS[:3]) for level in LEVELS})
        self.locks = LockManager(dict.fromkeys(LEVELS, KEYS[:3]), now=lambda: 0.0)
        self.pending: dict[int, tuple[Request, ModelRequest]] = {}

    def both(
        self, real: Callable[[], object], model: Callable[[], object],
    ) -> tuple[object, object]:
        """Run an operation on both sides; both refuse it or neither does."""
        try:
            expected = model()
        except ValueError:
            with pytest.raises(errors.LockError):
                real()
            return None, None
        return real(), expected

    def begin(self, number: int, level: Level, keys: set[str] | None, shared: bool,
              priority: int) -> None:
        mode = _mode(shared)
        gains = {(int(level), key): mode for key in (("",) if keys is None else keys)}
        real, expected = self.both(
            lambda: self.locks.begin(
                _owner(number), level, keys, shared=shared, priority=priority),
            lambda: self.model.begin(number, gains, priority))
        if isinstance(real, Request) and isinstance(expected, ModelRequest):
            self.pending[number] = (real, expected)

    def withdraw(self, number: int) -> None:
        if number in self.pending and self.pending[number][0].state is State.WAITING:
            real, expected = self.pending.pop(number)
            self.locks.withdraw(real)
            self.model.withdraw(expected)

    def reprioritise(self, number: int, priority: int) -> None:
        self.locks.reprioritise(_owner(number), priority)
        self.model.reprioritise(number, priority)

    def update(self, number: int, changes: dict[LockKey, str | None]) -> None:
        real, expected = self.both(
            lambda: self.locks.update(
                _owner(number), {_ident(lock): mode for lock, mode in changes.items()}),
            lambda: self.model.update(number, changes))
        assert real == expected

    def opportunistic(self, number: int, level: Level, keys: set[str] | None,
                      shared: bool) -> None:
        real, expected = self.both(
            lambda: self.locks.acquire(
                _owner(number), level, keys, shared=shared, opportunistic=True),
            lambda: self.model.opportunistic(
                number, level, set(KEYS) if keys is None else keys, _mode(shared)))
        assert real == expected

    def release(self, number: int, level: Level | None, keys: set[str] | None) -> None:
        self.both(lambda: self.locks.release(_owner(number), level, keys),
                  lambda: self.model.release(number, level, None if level is None else keys))

    def downgrade(self, number: int, level: Level, keys: set[str] | None) -> None:
        self.both(lambda: self.locks.downgrade(_owner(number), level, keys),
                  lambda: self.model.downgrade(number, level, keys))

    def intersection(self, number: int, keep: set[LockKey]) -> None:
        self.both(lambda: self.locks.intersection(_owner(number), [_ident(lock) for lock in keep]),
                  lambda: self.model.intersection(number, keep))

    def add(self, level: Level, key: str) -> None:
        self.both(lambda: self.locks.add(level, [key]), lambda: self.model.add(level, key))

    def remove(self, number: int, level: Level, keys: set[str]) -> None:
        self.both(lambda: self.locks.remove(level, keys, _owner(number)),
                  lambda: self.model.remove(number, level, keys))

    def free(self, number: int) -> None:
        self.locks.free(_owner(number))
        for request in [request for request in self.model.requests if request.owner == number]:
            self.model.requests.remove(request)
            request.state = "failed"
        self.model.held.pop(number, None)
        self.model.settle()

    def check(self) -> None:
        for real, expected in self.pending.values():
            assert real.state.value == expected.state
        for number in OWNERS:
            held = {
                (int(ident.level), ident.key or ""): mode
                for ident, mode in self.locks.list_locks(_owner(number)).items()}
            assert held == self.model.held.get(number, {})
        for level in LEVELS:
            assert self.locks.keys(level) == self.model.members[level]
        waiting = {
            row.name: [owner.job_id for _mode_, owners in row.pending for owner in owners]
            for row in self.locks.table() if row.pending}
        assert waiting == {
            str(_ident(lock)): [request.owner for request in self.model.queue(lock)]
            for lock in {request.steps[request.done][0] for request in self.model.requests}}


_owners = st.sampled_from(OWNERS)
_levels = st.sampled_from(LEVELS)
_subsets = st.sets(st.sampled_from(KEYS), max_size=3)
_keys = st.none() | _subsets
_locks = st.tuples(_levels.map(int), st.sampled_from(("", *KEYS)))
_priorities = st.integers(-2, 2)


class LockMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    @rule(number=_owners, level=_levels, keys=_keys, shared=st.booleans(), priority=_priorities)
    def begin(self, number: int, level: Level, keys: set[str] | None, shared: bool,
              priority: int) -> None:
        self.pair.begin(number, level, keys, shared, priority)

    @rule(number=_owners)
    def withdraw(self, number: int) -> None:
        self.pair.withdraw(number)

    @rule(number=_owners, priority=_priorities)
    def reprioritise(self, number: int, priority: int) -> None:
        self.pair.reprioritise(number, priority)

    @rule(number=_owners, changes=st.dictionaries(
        _locks, st.sampled_from((SHARED, EXCLUSIVE, None)), max_size=4))
    def update(self, number: int, changes: dict[LockKey, str | None]) -> None:
        self.pair.update(number, changes)

    @rule(number=_owners, level=_levels, keys=_keys, shared=st.booleans())
    def opportunistic(self, number: int, level: Level, keys: set[str] | None,
                      shared: bool) -> None:
        self.pair.opportunistic(number, level, keys, shared)

    @rule(number=_owners, level=st.none() | _levels, keys=_keys)
    def release(self, number: int, level: Level | None, keys: set[str] | None) -> None:
        self.pair.release(number, level, keys)

    @rule(number=_owners, level=_levels, keys=_keys)
    def downgrade(self, number: int, level: Level, keys: set[str] | None) -> None:
        self.pair.downgrade(number, level, keys)

    @rule(number=_owners, keep=st.sets(_locks, max_size=6))
    def intersection(self, number: int, keep: set[LockKey]) -> None:
        self.pair.intersection(number, keep)

    @rule(level=_levels, key=st.sampled_from(KEYS))
    def add(self, level: Level, key: str) -> None:
        self.pair.add(level, key)

    @rule(number=_owners, level=_levels, keys=_subsets)
    def remove(self, number: int, level: Level, keys: set[str]) -> None:
        self.pair.remove(number, level, keys)

    @rule(number=_owners)
    def free(self, number: int) -> None:
        self.pair.free(number)

    @invariant()
    def same(self) -> None:
        self.pair.check()


TestLockMachine = LockMachine.TestCase
TestLockMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


def _random_step(pair: Pair, rng: random.Random) -> None:
    number = rng.choice(OWNERS)
    level = rng.choice(LEVELS)
    keys = None if rng.random() < 0.15 else set(rng.sample(KEYS, rng.randint(1, 3)))
    shared = rng.random() < 0.5
    kind = rng.random()
    if kind < 0.45:
        pair.begin(number, level, keys, shared, rng.randint(-2, 2))
    elif kind < 0.75:
        pair.release(number, None if rng.random() < 0.7 else level, keys)
    elif kind < 0.80:
        pair.withdraw(number)
    elif kind < 0.83:
        pair.reprioritise(number, rng.randint(-2, 2))
    elif kind < 0.88:
        pair.update(number, {
            (int(rng.choice(LEVELS)), rng.choice(("", *KEYS))):
                rng.choice((SHARED, EXCLUSIVE, None)) for _ in range(rng.randint(1, 3))})
    elif kind < 0.91:
        pair.opportunistic(number, level, keys, shared)
    elif kind < 0.93:
        pair.downgrade(number, level, keys)
    elif kind < 0.95:
        pair.intersection(number, {
            (int(rng.choice(LEVELS)), rng.choice(("", *KEYS))) for _ in range(4)})
    elif kind < 0.97:
        pair.add(level, rng.choice(KEYS))
    elif kind < 0.99:
        pair.remove(number, level, keys or set())
    else:
        pair.free(number)


def test_a_long_random_walk() -> None:
    rng = random.Random(20_130_927)
    pair = Pair()
    for _ in range(int(os.environ.get("LOCK_OPERATIONS", "6000"))):
        _random_step(pair, rng)
        pair.check()
