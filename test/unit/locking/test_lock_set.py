"""The locks of one level."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.locking.levels import ALL, Level
from ganeti.locking.lock_set import LockSet
from ganeti.locking.shared_lock import Mode, Ticket


def _set(*keys: str) -> LockSet[Ticket]:
    return LockSet(Level.NODE, keys)


def test_steps_begin_with_the_level_and_follow_the_keys() -> None:
    steps = _set("c", "a", "b").steps(["c", "a", "c"], shared=False)
    assert [(str(step.lock), step.mode) for step in steps] == [
        ("node/[lockset]", Mode.INTENT_EXCLUSIVE),
        ("node/a", Mode.EXCLUSIVE),
        ("node/c", Mode.EXCLUSIVE),
    ]


def test_the_whole_level_is_one_step() -> None:
    steps = _set("a", "b").steps(ALL, shared=True)
    assert [(str(step.lock), step.mode) for step in steps] == [("node/[lockset]", Mode.SHARED)]


def test_no_keys_no_steps() -> None:
    assert _set("a").steps([], shared=True) == []


def test_unknown_keys_are_named_together() -> None:
    with pytest.raises(errors.LockError, match="node/x, node/y does not exist"):
        _set("a").steps(["y", "a", "x"], shared=True)


def test_adding_is_all_or_nothing() -> None:
    locks = _set("a")
    with pytest.raises(errors.LockError, match="node/a exists already"):
        locks.add(["b", "a"])
    assert locks.keys() == {"a"}
    with pytest.raises(errors.LockError, match="needs a name"):
        locks.add(["b", ""])
    locks.add(["b"])
    assert locks.keys() == {"a", "b"}


def test_a_removed_member_is_gone_and_may_come_back() -> None:
    locks = _set("a")
    old = locks.member("a")
    locks.remove("a")
    assert "a" not in locks
    assert old.removed
    locks.add(["a"])
    assert not locks.member("a").removed
