"""The manager, one rule at a time. What waits is started with ``begin`` or in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ganeti import errors
from ganeti.locking import ALL, BGL, EXCLUSIVE, SHARED, Level, LockId, LockManager, LockRow, Owner
from ganeti.locking.request import RequestState
from ganeti.utils import filelock, retry

A, B, C, D = (Owner(number, f"job {number}") for number in range(1, 5))
INSTANCE, NODE, NODE_RES = Level.INSTANCE, Level.NODE, Level.NODE_RES

T = TypeVar("T")


@pytest.fixture
def locks() -> LockManager:
    return LockManager(
        {
            INSTANCE: ["i1", "i2", "i3"],
            NODE: ["n1", "n2", "n3"],
            NODE_RES: ["n1", "n2", "n3"],
        },
        now=lambda: 1000.0,
    )


class _Thread(threading.Thread):
    """Runs one call; :meth:`result` returns or raises what it did."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.value: object = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.call()
        except (errors.GenericError, KeyError) as err:
            self.error = err

    def result(self) -> object:
        self.join()
        if self.error is not None:
            raise self.error
        return self.value


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere."""
    retry.until(lambda: _again(condition()), timeout_s=120, delay=(0.001, 1, 0.001))


def _again(reached: bool) -> None:
    if not reached:
        raise retry.Again


def _try(
    locks: LockManager, owner: Owner, level: Level, keys: list[str] | None, *, shared: bool = False
) -> frozenset[str] | None:
    return locks.acquire(owner, level, keys, shared=shared, timeout_s=0)


def test_levels_are_taken_in_order(locks: LockManager) -> None:
    assert locks.acquire(A, Level.CLUSTER, [BGL], shared=True) == {BGL}
    assert locks.acquire(A, INSTANCE, ["i1"], shared=False) == {"i1"}
    assert locks.acquire(A, NODE, ["n2", "n1"], shared=True) == {"n1", "n2"}
    assert locks.owned(A, INSTANCE) == {"i1": EXCLUSIVE}
    assert locks.owned(A, NODE) == {"n1": SHARED, "n2": SHARED}
    locks.release(A)
    assert locks.owners() == []
    assert locks.table() == []


@pytest.mark.parametrize(
    ("level", "keys", "wanted"),
    [
        (INSTANCE, ["i2"], "instance/i2"),
        (NODE, ["n3"], "node/n3"),
        (NODE, None, r"node/\[lockset\]"),
    ],
)
def test_wrong_order_is_refused_with_both_names(
    locks: LockManager, level: Level, keys: list[str] | None, wanted: str
) -> None:
    locks.acquire(A, NODE, ["n1", "n2"], shared=True)
    with pytest.raises(
        errors.LockError,
        match=rf"asks for lock {wanted} while it holds lock "
        "node/n2",
    ):
        locks.acquire(A, level, keys, shared=True)
    with pytest.raises(errors.LockError, match="node/n2"):
        locks.acquire(A, level, keys, shared=True, opportunistic=True)
    assert locks.owned(A, NODE) == {"n1": SHARED, "n2": SHARED}


def test_unknown_keys(locks: LockManager) -> None:
    with pytest.raises(errors.LockError, match="node/n8, node/n9 does not exist"):
        locks.acquire(A, NODE, ["n9", "n1", "n8"], shared=True)
    assert locks.owners() == []


def test_nothing_wanted_nothing_held(locks: LockManager) -> None:
    assert locks.acquire(A, NODE, [], shared=False) == frozenset()
    assert locks.owners() == []


def test_a_timeout_leaves_nothing(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    assert _try(locks, B, NODE, ["n1", "n2", "n3"]) is None
    assert locks.owners() == [A]
    assert _try(locks, B, NODE, ["n1", "n3"]) == {"n1", "n3"}


def test_waiting_in_order_holds_what_came_before(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    request = locks.begin(B, NODE, ["n1", "n2", "n3"], shared=False)
    assert _try(locks, C, NODE, ["n1"]) is None  # B is there already
    assert _try(locks, C, NODE, ["n3"]) == {"n3"}  # B is not
    locks.release(A)
    assert request.state is RequestState.WAITING
    locks.release(C)
    assert request.state is RequestState.GRANTED
    assert locks.owned(B, NODE) == dict.fromkeys(("n1", "n2", "n3"), EXCLUSIVE)


def test_release_wakes_a_thread(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)
    thread = _Thread(lambda: locks.acquire(B, NODE, ["n1"], shared=True))
    _until(lambda: locks.waiting(B) is not None)
    locks.release(A)
    assert thread.result() == {"n1"}


def test_whole_level_waits_for_members_and_keeps_them_out(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)
    request = locks.begin(B, NODE, ALL, shared=True)
    assert _try(locks, C, NODE, ["n2"]) is None  # fair: B came first
    locks.release(A)
    assert request.state is RequestState.GRANTED
    assert _try(locks, C, NODE, ["n2"]) is None
    assert _try(locks, C, NODE, ["n2"], shared=True) == {"n2"}
    assert locks.owned(B, NODE) == dict.fromkeys(("n1", "n2", "n3"), SHARED)


def test_whole_level_stands_for_members_to_come(locks: LockManager) -> None:
    assert locks.acquire(A, NODE, ALL, shared=True) == {"n1", "n2", "n3"}
    locks.add(NODE, ["n4"])
    assert locks.owned(A, NODE)["n4"] == SHARED
    assert locks.is_owned(A, NODE, "n4", shared=True)
    assert not locks.is_owned(A, NODE, "n4", shared=False)
    request = locks.begin(B, NODE, ["n4"], shared=False)
    assert request.state is RequestState.WAITING
    locks.release(A)
    assert request.state is RequestState.GRANTED


def test_giving_back_members_of_a_held_level(locks: LockManager) -> None:
    locks.acquire(A, NODE, ALL, shared=False)
    locks.release(A, NODE, ["n1", "n3"])
    assert locks.owned(A, NODE) == {"n2": EXCLUSIVE}
    assert not locks.is_owned(A, NODE)
    assert _try(locks, B, NODE, ["n1", "n3"]) == {"n1", "n3"}
    locks.add(NODE, ["n4"])
    assert not locks.is_owned(A, NODE, "n4")
    assert _try(locks, C, NODE, ["n2"]) is None


def test_releasing_what_is_not_held(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)
    with pytest.raises(errors.LockError, match="job 1 does not hold lock node/n2"):
        locks.release(A, NODE, ["n1", "n2"])
    assert locks.owned(A, NODE) == {"n1": EXCLUSIVE}
    locks.release(B)
    locks.release(A, INSTANCE)
    assert locks.owned(A, NODE) == {"n1": EXCLUSIVE}


def test_downgrade(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1", "n2"], shared=False)
    whole = locks.begin(B, NODE, ALL, shared=True)
    locks.downgrade(A, NODE, ["n1"])
    assert locks.owned(A, NODE) == {"n1": SHARED, "n2": EXCLUSIVE}
    assert whole.state is RequestState.WAITING
    locks.downgrade(A, NODE)
    assert whole.state is RequestState.GRANTED
    with pytest.raises(errors.LockError, match="does not hold lock node/n3"):
        locks.downgrade(A, NODE, ["n3"])


def test_downgrade_of_a_held_level(locks: LockManager) -> None:
    locks.acquire(A, NODE, ALL, shared=False)
    locks.downgrade(A, NODE, ["n1"])
    assert locks.owned(A, NODE) == {"n1": SHARED, "n2": EXCLUSIVE, "n3": EXCLUSIVE}
    assert _try(locks, B, NODE, ["n1"], shared=True) == {"n1"}
    assert _try(locks, C, NODE, ["n2"], shared=True) is None
    locks.acquire(A, NODE_RES, ALL, shared=False)
    locks.downgrade(A, NODE_RES)
    assert locks.is_owned(A, NODE_RES, shared=True)
    assert not locks.is_owned(A, NODE_RES, shared=False)


def test_removal_needs_the_lock_exclusively(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=True)
    with pytest.raises(errors.LockError, match="must hold lock node/n1 exclusively"):
        locks.remove(NODE, ["n1"], A)
    with pytest.raises(errors.LockError, match="must hold lock node/n2 exclusively"):
        locks.remove(NODE, ["n2"], A)
    with pytest.raises(errors.LockError, match="cluster locks cannot be added or removed"):
        locks.remove(Level.CLUSTER, [BGL], A)
    with pytest.raises(errors.LockError, match="cluster locks cannot be added or removed"):
        locks.add(Level.CLUSTER, ["other"])
    assert locks.keys(NODE) == {"n1", "n2", "n3"}


def test_waiters_of_a_removed_lock_fail_and_give_back_the_rest(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    thread = _Thread(lambda: locks.acquire(B, NODE, ["n1", "n2"], shared=False))
    _until(lambda: locks.waiting(B) is not None)
    later = locks.begin(C, NODE, ["n1"], shared=False)
    locks.remove(NODE, ["n2"], A)
    with pytest.raises(errors.LockError, match="node/n2 was removed"):
        thread.result()
    assert later.state is RequestState.GRANTED
    assert locks.keys(NODE) == {"n1", "n3"}
    assert locks.owned(A, NODE) == {}


def test_a_lock_removed_before_the_request_reaches_it(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1", "n2"], shared=False)
    request = locks.begin(B, NODE, ["n1", "n2"], shared=False)
    locks.remove(NODE, ["n2"], A)
    locks.add(NODE, ["n2"])
    assert request.state is RequestState.WAITING
    locks.release(A)
    assert request.state is RequestState.FAILED
    with pytest.raises(errors.LockError, match="node/n2 was removed"):
        locks.wait(request)
    assert locks.owners() == []


def test_removal_under_a_held_level(locks: LockManager) -> None:
    locks.acquire(A, NODE, ALL, shared=False)
    request = locks.begin(B, NODE, ALL, shared=True)
    locks.remove(NODE, ["n1", "n3"], A)
    assert locks.owned(A, NODE) == {"n2": EXCLUSIVE}
    locks.release(A)
    assert request.state is RequestState.GRANTED
    assert locks.owned(B, NODE) == {"n2": SHARED}


def test_opportunistic_takes_what_is_free(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=True)
    assert locks.acquire(B, NODE, ["n1", "n2", "n9"], shared=False, opportunistic=True) == {"n1"}
    assert locks.acquire(C, NODE, ALL, shared=True, opportunistic=True) == {"n2", "n3"}
    assert not locks.is_owned(C, NODE)
    locks.release(C)
    locks.acquire(D, NODE_RES, ALL, shared=False)
    assert locks.acquire(C, NODE_RES, ALL, shared=True, opportunistic=True) == frozenset()
    assert C not in locks.owners()


def test_opportunistic_does_not_overtake(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=True)
    locks.begin(B, NODE, ["n1"], shared=False)
    assert locks.acquire(C, NODE, ["n1"], shared=True, opportunistic=True) == frozenset()


def test_priority_and_its_change_while_waiting(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)
    first = locks.begin(B, NODE, ["n1"], shared=False)
    second = locks.begin(C, NODE, ["n1"], shared=False)
    locks.reprioritise(C, -5)
    locks.release(A)
    assert (first.state, second.state) == (RequestState.WAITING, RequestState.GRANTED)


def test_a_priority_changed_just_before_the_request_is_seen(locks: LockManager) -> None:
    """The first answer is old by the time the request stands in the queue."""
    locks.acquire(A, NODE, ["n1"], shared=False)
    locks.begin(B, NODE, ["n1"], shared=False, priority=0)
    answers = iter((10, -10))
    _Thread(lambda: locks.acquire(C, NODE, ["n1"], shared=False, priority=lambda: next(answers)))
    _until(lambda: (wait := locks.waiting(C)) is not None and wait.priority == -10)
    (row,) = (row for row in locks.table() if row.name == "node/n1")
    assert row.pending == ((EXCLUSIVE, (C, B)),)
    locks.release(A)
    _until(lambda: locks.is_owned(C, NODE, "n1"))


def test_canceled_is_asked_at_the_start_and_when_woken(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    asked: list[int] = []
    stop = threading.Event()

    def canceled() -> None:
        asked.append(1)
        if stop.is_set():
            raise errors.JobCanceled("job was asked to stop")

    thread = _Thread(lambda: locks.acquire(B, NODE, ["n1", "n2"], shared=False, canceled=canceled))
    _until(lambda: len(asked) == 1)
    locks.wake(B)
    _until(lambda: len(asked) == 2)
    stop.set()
    locks.wake(B)
    with pytest.raises(errors.JobCanceled):
        thread.result()
    assert locks.owners() == [A]
    assert _try(locks, C, NODE, ["n1"]) == {"n1"}


def test_canceled_before_the_request_was_made(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)

    def canceled() -> None:
        raise errors.JobCanceled("job was asked to stop")

    with pytest.raises(errors.JobCanceled):
        locks.acquire(B, NODE, ["n1"], shared=False, canceled=canceled)
    assert locks.owners() == [A]


def test_granted_while_being_canceled(locks: LockManager) -> None:
    """The lock arrives at the moment at which the owner gives up: it must not stay with him."""
    locks.acquire(A, NODE, ["n1"], shared=False)

    def canceled() -> None:
        locks.release(A)
        raise errors.JobCanceled("job was asked to stop")

    with pytest.raises(errors.JobCanceled):
        locks.acquire(B, NODE, ["n1"], shared=False, canceled=canceled)
    assert locks.owners() == []
    assert _try(locks, C, NODE, ALL) == {"n1", "n2", "n3"}


def test_one_request_at_a_time(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n1"], shared=False)
    request = locks.begin(B, NODE, ["n1"], shared=False)
    with pytest.raises(errors.LockError, match="job 2 already waits for lock node/n1"):
        locks.acquire(B, NODE_RES, ["n1"], shared=False)
    with pytest.raises(errors.LockError, match="already waits"):
        locks.release(B)
    locks.withdraw(request)
    assert locks.owners() == [A]


# -- the request forms of seed 004 --------------------------------------------------------------


def _node(key: str | None) -> LockId:
    return LockId(NODE, key)


def test_update_takes_raises_lowers_and_releases_together(locks: LockManager) -> None:
    assert locks.update(A, {_node("n1"): EXCLUSIVE, _node("n2"): SHARED})
    assert locks.update(
        A, {_node("n1"): None, _node("n2"): EXCLUSIVE, LockId(NODE_RES, "n1"): SHARED}
    )
    assert locks.list_locks(A) == {_node("n2"): EXCLUSIVE, LockId(NODE_RES, "n1"): SHARED}
    assert locks.update(A, {_node("n2"): SHARED})
    assert locks.list_locks(A) == {_node("n2"): SHARED, LockId(NODE_RES, "n1"): SHARED}


def test_update_is_all_or_nothing(locks: LockManager) -> None:
    locks.update(A, {_node("n3"): EXCLUSIVE})
    locks.update(B, {_node("n1"): SHARED})
    assert not locks.update(B, {_node("n1"): EXCLUSIVE, _node("n3"): SHARED})
    assert locks.list_locks(B) == {_node("n1"): SHARED}
    assert _try(locks, C, NODE, ["n1"], shared=True) == {"n1"}
    assert not locks.update(B, {_node("n1"): None, _node("n3"): SHARED})
    assert locks.list_locks(B) == {_node("n1"): SHARED}


def test_update_refuses_earlier_locks(locks: LockManager) -> None:
    locks.update(A, {_node("n2"): SHARED})
    for wanted in (_node("n1"), _node(ALL), LockId(INSTANCE, "i1")):
        with pytest.raises(errors.LockError, match="while it holds lock node/n2, which comes"):
            locks.update(A, {wanted: SHARED})
    locks.update(A, {_node("n3"): SHARED})
    with pytest.raises(errors.LockError, match="asks for lock node/n2 while it holds lock node/n3"):
        locks.update(A, {_node("n2"): EXCLUSIVE})
    assert locks.list_locks(A) == {_node("n2"): SHARED, _node("n3"): SHARED}


def test_no_writer_below_a_level_held_shared(locks: LockManager) -> None:
    message = r"node/n1 exclusively while it holds lock node/\[lockset\] shared"
    with pytest.raises(errors.LockError, match=message):
        locks.update(A, {_node(ALL): SHARED, _node("n1"): EXCLUSIVE})
    locks.update(A, {_node(ALL): SHARED})
    with pytest.raises(errors.LockError, match=message):
        locks.update(A, {_node("n1"): EXCLUSIVE})
    assert locks.update(A, {_node("n1"): SHARED})
    assert locks.update(A, {_node(ALL): None})
    assert locks.list_locks(A) == {_node("n1"): SHARED}
    assert _try(locks, B, NODE, ["n2"]) == {"n2"}


def test_update_waits_and_a_second_who_raises_is_refused(locks: LockManager) -> None:
    for owner in (A, B):
        locks.update(owner, {_node("n1"): SHARED})
    thread = _Thread(lambda: locks.update(A, {_node("n1"): EXCLUSIVE}, timeout_s=None))
    _until(lambda: locks.waiting(A) is not None)
    with pytest.raises(errors.LockError, match="job 1 also holds the lock"):
        locks.update(B, {_node("n1"): EXCLUSIVE}, timeout_s=None)
    locks.release(B)
    assert thread.result() is True
    assert locks.list_locks(A) == {_node("n1"): EXCLUSIVE}


def test_update_bad_mode_and_unknown_lock(locks: LockManager) -> None:
    with pytest.raises(errors.LockError, match="cannot be held in mode 'both'"):
        locks.update(A, {_node("n1"): "both"})
    with pytest.raises(errors.LockError, match="node/n9 does not exist"):
        locks.update(A, {_node("n9"): SHARED})
    assert locks.update(A, {_node("n9"): None})


def test_opportunistic_union(locks: LockManager) -> None:
    locks.update(A, {_node("n2"): EXCLUSIVE})
    locks.update(B, {LockId(INSTANCE, "i2"): SHARED})
    taken = locks.opportunistic_union(
        B,
        {
            LockId(INSTANCE, "i1"): SHARED,  # before what B holds
            _node("n1"): EXCLUSIVE,
            _node("n2"): SHARED,  # taken
            _node("n7"): SHARED,  # unknown
            LockId(NODE_RES, ALL): EXCLUSIVE,
        },
    )
    assert taken == {_node("n1"), LockId(NODE_RES, ALL)}
    assert locks.opportunistic_union(C, {_node("n1"): SHARED}) == frozenset()
    assert C not in locks.owners()


def test_intersection(locks: LockManager) -> None:
    locks.update(
        A,
        {
            LockId(INSTANCE, "i1"): EXCLUSIVE,
            _node(ALL): EXCLUSIVE,
            LockId(NODE_RES, "n1"): SHARED,
            LockId(NODE_RES, "n2"): SHARED,
        },
    )
    locks.intersection(A, [_node("n1"), _node("n3"), LockId(NODE_RES, "n2"), _node("n7")])
    assert locks.list_locks(A) == {
        _node("n1"): EXCLUSIVE,
        _node("n3"): EXCLUSIVE,
        LockId(NODE_RES, "n2"): SHARED,
    }
    locks.intersection(A, [])
    assert locks.owners() == []
    locks.update(A, {_node(ALL): SHARED, _node("n1"): SHARED, _node("n2"): SHARED})
    locks.intersection(A, [_node(ALL), _node("n2")])
    assert locks.list_locks(A) == {_node(ALL): SHARED, _node("n2"): SHARED}


# -- dead owners --------------------------------------------------------------------------------


def test_dead_owners_are_freed(tmp_path: Path) -> None:
    locks = LockManager({NODE: ["n1", "n2"]})
    path = str(tmp_path / "job_1")
    livelock = filelock.FileLock(path)
    livelock.acquire(timeout_s=5)
    mortal = Owner(1, "job 1", path)
    locks.acquire(mortal, NODE, ["n1"], shared=False)
    request = locks.begin(B, NODE, ["n1", "n2"], shared=False)
    assert locks.free_dead() == []
    livelock.close()
    assert locks.free_dead() == [mortal]
    assert request.state is RequestState.GRANTED


def test_a_dead_holder_is_noticed_by_who_would_wait(tmp_path: Path) -> None:
    locks = LockManager({NODE: ["n1"]})
    locks.acquire(Owner(1, "job 1", str(tmp_path / "gone")), NODE, ["n1"], shared=False)
    assert locks.acquire(B, NODE, ["n1"], shared=False) == {"n1"}


def test_a_holder_that_dies_while_others_wait_is_noticed(tmp_path: Path) -> None:
    locks = LockManager({NODE: ["n1"]}, check_interval_s=0.01)
    livelock = filelock.FileLock(str(tmp_path / "job_1"))
    livelock.acquire(timeout_s=5)
    locks.acquire(Owner(1, "job 1", livelock.path), NODE, ["n1"], shared=False)
    waiting = [
        _Thread(partial(locks.acquire, owner, NODE, ["n1"], shared=True)) for owner in (B, C)
    ]
    _until(lambda: [len(who) for _mode, who in locks.table()[-1].pending] == [2])
    # Many looks at a living holder change nothing.
    assert not locks.acquire(D, NODE, ["n1"], shared=False, timeout_s=0.2)
    livelock.close()
    assert [thread.result() for thread in waiting] == [{"n1"}] * 2


def test_all_jobs_of_a_dead_process_are_freed(tmp_path: Path) -> None:
    locks = LockManager({NODE: ["n1", "n2"]})
    path = str(tmp_path / "gone")
    locks.acquire(Owner(1, "job 1", path), NODE, ["n1"], shared=False)
    locks.acquire(Owner(2, "job 2", path), NODE, ["n2"], shared=False, opportunistic=True)
    assert locks.acquire(B, NODE, ["n1"], shared=False) == {"n1"}
    assert locks.acquire(C, NODE, ["n2"], shared=False) == {"n2"}


def test_a_livelock_that_cannot_be_looked_at_counts_as_alive() -> None:
    def look(path: str) -> bool:
        raise PermissionError(13, "not yours", path)

    locks = LockManager({NODE: ["n1"]}, is_dead=look, check_interval_s=0.01)
    locks.acquire(Owner(1, "job 1", "/x"), NODE, ["n1"], shared=False)
    assert locks.acquire(B, NODE, ["n1"], shared=False, timeout_s=0.1) is None
    assert locks.free_dead() == []


def test_in_one_process_nobody_looks() -> None:
    looked: list[str] = []

    def look(path: str) -> bool:
        looked.append(path)
        return False

    locks = LockManager({NODE: ["n1"]}, is_dead=look, check_interval_s=0.01)
    locks.acquire(Owner(1, "job 1", "/same"), NODE, ["n1"], shared=False)
    assert (
        locks.acquire(Owner(2, "job 2", "/same"), NODE, ["n1"], shared=False, timeout_s=0.1) is None
    )
    assert looked == []


def test_a_dead_waiter_loses_his_place(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    thread = _Thread(lambda: locks.acquire(B, NODE, ["n1", "n2"], shared=False))
    _until(lambda: locks.waiting(B) is not None)
    later = locks.begin(C, NODE, ["n1"], shared=True)
    locks.free(B)
    with pytest.raises(errors.LockError, match="the process of job 2 ended"):
        thread.result()
    assert later.state is RequestState.GRANTED


# -- what is shown ------------------------------------------------------------------------------


def test_the_table(locks: LockManager) -> None:
    locks.acquire(A, Level.CLUSTER, [BGL], shared=True)
    locks.acquire(A, NODE, ["n1"], shared=False)
    locks.begin(B, NODE, ["n1"], shared=False)
    locks.begin(C, NODE, ["n1"], shared=True)
    locks.begin(D, NODE, ALL, shared=False)
    assert locks.table() == [
        LockRow("cluster/[lockset]", None, (), (), None),
        LockRow("cluster/BGL", SHARED, (A,), (), 1000.0),
        LockRow("node/[lockset]", None, (), ((EXCLUSIVE, (D,)),), None),
        LockRow("node/n1", EXCLUSIVE, (A,), ((EXCLUSIVE, (B,)), (SHARED, (C,))), 1000.0),
    ]


def test_the_reason_of_a_wait(locks: LockManager) -> None:
    locks.acquire(A, NODE, ["n2"], shared=False)
    locks.begin(B, NODE, ["n1", "n2"], shared=False, priority=3)
    locks.begin(C, NODE, ["n1"], shared=True)
    wait = locks.waiting(B)
    assert wait is not None
    assert (wait.lock, wait.mode, wait.priority) == ("node/n2", EXCLUSIVE, 3)
    assert (wait.holders, wait.before) == ((A,), ())
    assert wait.wanted == ("node/n1", "node/n2")
    assert locks.waiting(A) is None
