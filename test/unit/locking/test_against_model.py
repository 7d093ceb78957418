"""Random histories of the manager, compared with a model after every step.

After each operation every request is in the state which the model says, every owner holds what the
model says, and the table tells the same story. Longer histories are in ``test_walk_*.py``.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ganeti.locking import EXCLUSIVE, SHARED, Level

from .model import LockKey
from .pair import KEYS, LEVELS, Pair

OWNERS = range(4)

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
    def begin(
        self, number: int, level: Level, keys: set[str] | None, shared: bool, priority: int
    ) -> None:
        self.pair.begin(number, level, keys, shared, priority)

    @rule(number=_owners)
    def withdraw(self, number: int) -> None:
        self.pair.withdraw(number)

    @rule(number=_owners, priority=_priorities)
    def reprioritise(self, number: int, priority: int) -> None:
        self.pair.reprioritise(number, priority)

    @rule(
        number=_owners,
        changes=st.dictionaries(_locks, st.sampled_from((SHARED, EXCLUSIVE, None)), max_size=4),
    )
    def update(self, number: int, changes: dict[LockKey, str | None]) -> None:
        self.pair.update(number, changes)

    @rule(number=_owners, level=_levels, keys=_keys, shared=st.booleans())
    def opportunistic(self, number: int, level: Level, keys: set[str] | None, shared: bool) -> None:
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
