"""One lock, step by step, and against all other histories of the same length."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.locking.levels import Level, LockId, Owner
from ganeti.locking.shared_lock import Mode, SharedLock, Ticket, excludes, join

A, B, C, D = (Owner(number, f"job {number}") for number in range(1, 5))


def _lock() -> SharedLock[Ticket]:
    return SharedLock(LockId(Level.NODE, "n1"))


class _Queue:
    """Numbers tickets in order of arrival."""

    def __init__(self, lock: SharedLock[Ticket]) -> None:
        self.lock = lock
        self.order = 0

    def ask(self, owner: Owner, mode: Mode, priority: int = 0) -> Ticket:
        self.order += 1
        ticket = Ticket(owner, mode, priority, self.order)
        self.lock.ask(ticket)
        return ticket


def test_modes_exclude_each_other_both_ways() -> None:
    for one in Mode:
        for other in Mode:
            assert excludes(one, other) is excludes(other, one)


def test_a_join_gives_both() -> None:
    for one in Mode:
        for other in Mode:
            both = join(one, other)
            assert both is join(other, one)
            assert both is not None
            for third in Mode:
                if excludes(one, third) or excludes(other, third):
                    assert excludes(both, third)
                else:
                    assert not excludes(both, third)


def test_readers_share_and_a_writer_waits() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.SHARED)
    queue.ask(B, Mode.SHARED)
    assert set(lock.holders) == {A, B}
    writer = queue.ask(C, Mode.EXCLUSIVE)
    assert lock.blockers(writer) == ([A, B], [])
    lock.weaken(A, None)
    assert lock.settle() == []
    lock.weaken(B, None)
    assert lock.settle() == [writer]


def test_a_reader_does_not_overtake_a_writer() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.SHARED)
    writer = queue.ask(B, Mode.EXCLUSIVE)
    reader = queue.ask(C, Mode.SHARED)
    assert lock.mode_of(C) is None
    assert lock.blockers(reader) == ([], [B])
    lock.weaken(A, None)
    assert lock.settle() == [writer]
    lock.weaken(B, None)
    assert lock.settle() == [reader]


def test_priority_first_then_age() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.EXCLUSIVE)
    late = queue.ask(B, Mode.EXCLUSIVE, 10)
    urgent = queue.ask(C, Mode.EXCLUSIVE, -10)
    normal = queue.ask(D, Mode.EXCLUSIVE, 0)
    served = []
    for holder in (A, C, D):
        lock.weaken(holder, None)
        served.extend(lock.settle())
    assert served == [urgent, normal, late]


def test_a_moved_ticket_keeps_its_age() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.EXCLUSIVE)
    first = queue.ask(B, Mode.EXCLUSIVE, 5)
    second = queue.ask(C, Mode.EXCLUSIVE, 0)
    lock.move(first, 0)
    assert lock.queue == [first, second]


def test_a_downgrade_lets_readers_in() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.EXCLUSIVE)
    reader = queue.ask(B, Mode.SHARED)
    writer = queue.ask(C, Mode.EXCLUSIVE)
    lock.weaken(A, Mode.SHARED)
    assert lock.settle() == [reader]
    assert lock.queue == [writer]


def test_raising_goes_before_the_queue_and_keeps_newcomers_out() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.SHARED)
    queue.ask(B, Mode.SHARED)
    raising = queue.ask(A, Mode.EXCLUSIVE)
    queue.ask(C, Mode.SHARED, -20)
    assert lock.mode_of(C) is None
    lock.weaken(B, None)
    assert lock.settle() == [raising]
    assert lock.mode_of(A) is Mode.EXCLUSIVE


def test_the_second_who_raises_is_refused() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.SHARED)
    queue.ask(B, Mode.SHARED)
    queue.ask(A, Mode.EXCLUSIVE)
    with pytest.raises(
        errors.LockError, match=r"job 2 cannot raise its mode of lock node/n1: job 1"
    ):
        queue.ask(B, Mode.EXCLUSIVE)
    assert lock.mode_of(B) is Mode.SHARED


def test_two_intentions_may_be_raised_together() -> None:
    lock = _lock()
    queue = _Queue(lock)
    for owner in (A, B):
        queue.ask(owner, Mode.INTENT_SHARED)
    queue.ask(C, Mode.SHARED)
    raised = [queue.ask(owner, Mode.INTENT_EXCLUSIVE) for owner in (A, B)]
    assert lock.mode_of(A) is Mode.INTENT_SHARED
    lock.weaken(C, None)
    assert lock.settle() == raised


def test_removal_fails_all_who_wait_and_who_come() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.EXCLUSIVE)
    waiting = [queue.ask(B, Mode.SHARED), queue.ask(C, Mode.EXCLUSIVE)]
    assert lock.remove() == waiting
    with pytest.raises(errors.LockError, match="was removed"):
        queue.ask(D, Mode.SHARED)


def test_withdrawing_opens_the_way() -> None:
    lock = _lock()
    queue = _Queue(lock)
    queue.ask(A, Mode.SHARED)
    writer = queue.ask(B, Mode.EXCLUSIVE)
    reader = queue.ask(C, Mode.SHARED)
    lock.withdraw(writer)
    assert lock.settle() == [reader]


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(Mode), st.integers(-2, 2), st.booleans()),
        max_size=40,
    )
)
def test_any_history(history: list[tuple[int, Mode, int, bool]]) -> None:
    """Holders never exclude each other, and the first waiter cannot be served."""
    lock = _lock()
    queue = _Queue(lock)
    waiting: dict[int, Ticket] = {}
    for number, mode, priority, give_back in history:
        owner = Owner(number, "x")
        if number in waiting:
            lock.withdraw(waiting.pop(number))
            lock.settle()
        elif give_back and owner in lock.holders:
            lock.weaken(owner, None)
            lock.settle()
        else:
            try:
                ticket = queue.ask(owner, mode, priority)
            except errors.LockError:
                continue
            waiting[number] = ticket
        for other in [
            key
            for key, ticket in waiting.items()
            if ticket not in lock.queue and ticket not in lock.upgrades
        ]:
            del waiting[other]
        held = list(lock.holders.items())
        for index, (_owner, one) in enumerate(held):
            assert not any(excludes(one, other) for _other, other in held[index + 1 :])
        places = [(ticket.priority, ticket.order) for ticket in lock.queue]
        assert places == sorted(places)
        for ticket in lock.upgrades + lock.queue[:1]:
            holders, before = lock.blockers(ticket)
            assert holders or before
