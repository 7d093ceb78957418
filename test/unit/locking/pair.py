"""The lock manager and its model, driven together: every answer, and what they look like after.

Used by the stateful tests (``test_against_model.py``), where hypothesis chooses the steps, and by
the long walks (``test_walk_*.py``), where a seeded generator does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.locking import ALL, EXCLUSIVE, SHARED, Level, LockId, LockManager, Owner
from ganeti.locking.request import LockRequest, RequestState

from .model import LockKey, Model, ModelRequest

LEVELS = (Level.INSTANCE, Level.NODE, Level.NODE_RES)
KEYS = ("a", "b", "c", "d")

_OWNERS = [Owner(number, f"job {number}") for number in range(16)]
_IDENTS = {(int(level), key): LockId(level, key or ALL) for level in LEVELS for key in ("", *KEYS)}


def _ident(lock: LockKey) -> LockId:
    return _IDENTS[lock]


def _mode(shared: bool) -> str:
    return SHARED if shared else EXCLUSIVE


class Pair:
    """The manager and its model, driven together."""

    def __init__(self, owners: int = 4) -> None:
        self.owners = range(owners)
        self.model = Model({level: set(KEYS[:3]) for level in LEVELS})
        self.locks = LockManager(dict.fromkeys(LEVELS, KEYS[:3]), now=lambda: 0.0)
        self.pending: dict[int, tuple[LockRequest, ModelRequest]] = {}

    @staticmethod
    def owner(number: int) -> Owner:
        """The owner with a number."""
        return _OWNERS[number]

    def both(
        self,
        real: Callable[[], object],
        model: Callable[[], object],
    ) -> tuple[object, object]:
        """Run an operation on both sides; both refuse it or neither does."""
        try:
            expected = model()
        except ValueError as refused:
            try:
                granted = real()
            except errors.LockError:
                return None, None
            raise AssertionError(f"the model refuses ({refused}), the manager: {granted}") from None
        return real(), expected

    def begin(
        self, number: int, level: Level, keys: set[str] | None, shared: bool, priority: int
    ) -> None:
        mode = _mode(shared)
        gains = {(int(level), key): mode for key in (("",) if keys is None else keys)}
        real, expected = self.both(
            lambda: self.locks.begin(
                _OWNERS[number], level, keys, shared=shared, priority=priority
            ),
            lambda: self.model.begin(number, gains, priority),
        )
        if isinstance(real, LockRequest) and isinstance(expected, ModelRequest):
            self.pending[number] = (real, expected)

    def withdraw(self, number: int) -> None:
        if number in self.pending and self.pending[number][0].state is RequestState.WAITING:
            real, expected = self.pending.pop(number)
            self.locks.withdraw(real)
            self.model.withdraw(expected)

    def reprioritise(self, number: int, priority: int) -> None:
        self.locks.reprioritise(_OWNERS[number], priority)
        self.model.reprioritise(number, priority)

    def update(self, number: int, changes: dict[LockKey, str | None]) -> None:
        real, expected = self.both(
            lambda: self.locks.update(
                _OWNERS[number], {_ident(lock): mode for lock, mode in changes.items()}
            ),
            lambda: self.model.update(number, changes),
        )
        assert real == expected

    def opportunistic(self, number: int, level: Level, keys: set[str] | None, shared: bool) -> None:
        real, expected = self.both(
            lambda: self.locks.acquire(
                _OWNERS[number], level, keys, shared=shared, opportunistic=True
            ),
            lambda: self.model.opportunistic(
                number, level, set(KEYS) if keys is None else keys, _mode(shared)
            ),
        )
        assert real == expected

    def release(self, number: int, level: Level | None, keys: set[str] | None) -> None:
        self.both(
            lambda: self.locks.release(_OWNERS[number], level, keys),
            lambda: self.model.release(number, level, None if level is None else keys),
        )

    def downgrade(self, number: int, level: Level, keys: set[str] | None) -> None:
        self.both(
            lambda: self.locks.downgrade(_OWNERS[number], level, keys),
            lambda: self.model.downgrade(number, level, keys),
        )

    def intersection(self, number: int, keep: set[LockKey]) -> None:
        self.both(
            lambda: self.locks.intersection(_OWNERS[number], [_ident(lock) for lock in keep]),
            lambda: self.model.intersection(number, keep),
        )

    def add(self, level: Level, key: str) -> None:
        self.both(lambda: self.locks.add(level, [key]), lambda: self.model.add(level, key))

    def remove(self, number: int, level: Level, keys: set[str]) -> None:
        self.both(
            lambda: self.locks.remove(level, keys, _OWNERS[number]),
            lambda: self.model.remove(number, level, keys),
        )

    def free(self, number: int) -> None:
        self.locks.free(_OWNERS[number])
        for request in [request for request in self.model.requests if request.owner == number]:
            self.model.requests.remove(request)
            request.state = "failed"
        self.model.held.pop(number, None)
        self.model.settle()

    def check_requests(self) -> None:
        """Every request is in the state which the model says."""
        for real, expected in self.pending.values():
            assert real.state.value == expected.state

    def check(self) -> None:
        """Everything that can be seen is as the model says."""
        self.check_requests()
        for number in self.owners:
            held = {
                (int(ident.level), ident.key or ""): mode
                for ident, mode in self.locks.list_locks(_OWNERS[number]).items()
            }
            assert held == self.model.held.get(number, {})
        for level in LEVELS:
            assert self.locks.keys(level) == self.model.members[level]
        waiting = {
            row.name: [owner.job_id for _mode_, owners in row.pending for owner in owners]
            for row in self.locks.table()
            if row.pending
        }
        assert waiting == {
            str(_ident(lock)): [request.owner for request in self.model.queue(lock)]
            for lock in {request.steps[request.done][0] for request in self.model.requests}
        }


class Habit(NamedTuple):
    """What a walk likes to do: weights, in the order of :data:`_KINDS`."""

    owners: int
    keys: tuple[str, ...]
    whole: float
    weights: tuple[int, ...]


_KINDS = (
    "begin",
    "release",
    "withdraw",
    "reprioritise",
    "update",
    "opportunistic",
    "downgrade",
    "intersection",
    "add",
    "remove",
    "free",
)

#: Jobs as they are; very many who want the same; all the rare forms.
HABITS = (
    Habit(5, KEYS, 0.15, (45, 27, 8, 4, 5, 3, 2, 2, 2, 2, 1)),
    Habit(10, KEYS[:2], 0.25, (55, 30, 6, 4, 2, 2, 1, 1, 1, 1, 1)),
    Habit(4, KEYS, 0.10, (20, 12, 4, 4, 20, 12, 8, 8, 6, 6, 1)),
)

OPERATIONS = int(
    os.environ.get("LOCK_OPERATIONS") or ("340000" if os.environ.get("GANETI_LONG") else "50000")
)

# Everything is looked at now and then, what waits after each step.
_LOOK_EVERY = 12


def walk(
    seed: int, habit: Habit, operations: int = OPERATIONS, make: Callable[[int], Pair] = Pair
) -> None:
    """A long random history; the seed makes it repeatable.

    :param make: makes the pair for a number of owners.
    :raises AssertionError: manager and model differ; says at which step.
    """
    rng = random.Random(seed)
    pair = make(habit.owners)
    kinds = rng.choices(_KINDS, habit.weights, k=4096)
    for step in range(operations):
        try:
            _step(pair, rng, habit, kinds[int(rng.random() * 4096)])
            pair.check_requests()
            if step % _LOOK_EVERY == 0:
                pair.check()
        except AssertionError as err:
            raise AssertionError(f"seed {seed}, step {step}: {err}") from err
    pair.check()
    for number in pair.owners:
        pair.free(number)
    pair.check()
    assert pair.locks.table() == []
    assert pair.locks.owners() == []


def _step(pair: Pair, rng: random.Random, habit: Habit, kind: str) -> None:
    dice = rng.random
    number = int(dice() * habit.owners)
    waits = number in pair.pending and pair.pending[number][0].state is RequestState.WAITING
    if waits and kind in ("begin", "release") and dice() < 0.8:
        # An owner who waits can do little else.
        kind = "withdraw" if dice() < 0.25 else "reprioritise"
    level = LEVELS[int(dice() * 3)]
    keys = (
        None
        if dice() < habit.whole
        else {habit.keys[int(dice() * len(habit.keys))] for _ in range(1 + int(dice() * 3))}
    )
    shared = dice() < 0.5
    if kind == "begin":
        pair.begin(number, level, keys, shared, int(dice() * 5) - 2)
    elif kind == "release":
        pair.release(number, None if dice() < 0.7 else level, keys)
    elif kind == "withdraw":
        pair.withdraw(number)
    elif kind == "reprioritise":
        pair.reprioritise(number, int(dice() * 5) - 2)
    elif kind == "update":
        pair.update(
            number,
            {
                (int(LEVELS[int(dice() * 3)]), ("", *KEYS)[int(dice() * 5)]): (
                    SHARED,
                    EXCLUSIVE,
                    None,
                )[int(dice() * 3)]
                for _ in range(1 + int(dice() * 3))
            },
        )
    elif kind == "opportunistic":
        pair.opportunistic(number, level, keys, shared)
    elif kind == "downgrade":
        pair.downgrade(number, level, keys)
    elif kind == "intersection":
        pair.intersection(
            number, {(int(LEVELS[int(dice() * 3)]), ("", *KEYS)[int(dice() * 5)]) for _ in range(4)}
        )
    elif kind == "add":
        pair.add(level, KEYS[int(dice() * len(KEYS))])
    elif kind == "remove":
        pair.remove(number, level, keys or set())
    else:
        pair.free(number)
