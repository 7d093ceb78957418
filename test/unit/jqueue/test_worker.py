"""The pool of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.jqueue.worker import WorkerPool

PATIENCE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def pool_of(run: Callable[[int], object], limit: int) -> WorkerPool:
    """A pool whose workers give each job which they take to a function."""

    def work() -> None:
        job_id = pool.take()
        if job_id is not None:
            run(job_id)

    pool = WorkerPool(work, limit, never)
    return pool


def never() -> None:
    raise AssertionError("a worker died")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(-20, 19)), unique_by=lambda job: job[0]),
    st.dictionaries(st.integers(1, 30), st.integers(-20, 19)),
    st.sets(st.integers(1, 30)),
)
def test_order_and_no_loss(
    added: list[tuple[int, int]], moved: dict[int, int], removed: set[int]
) -> None:
    gate = threading.Event()
    order: list[int] = []

    def run(job_id: int) -> None:
        if job_id == 0:
            assert gate.wait(PATIENCE_S)
        order.append(job_id)

    pool = pool_of(run, 1)
    pool.add(0, 0)
    until(lambda: pool.busy() == {0})
    model = dict(added)
    for job_id, priority in added:
        pool.add(job_id, priority)
    for job_id, priority in moved.items():
        pool.reprioritise(job_id, priority)
        if job_id in model:
            model[job_id] = priority
    for job_id in removed:
        assert pool.remove(job_id) == (job_id in model)
        model.pop(job_id, None)
    assert all(pool.in_line(job_id) for job_id in model)
    gate.set()
    until(lambda: len(order) == len(model) + 1)
    assert order[1:] == sorted(model, key=lambda job_id: (model[job_id], job_id))
    assert pool.stop(PATIENCE_S) == set()


def test_never_more_than_the_limit_and_all_of_it() -> None:
    lock = threading.Lock()
    running = 0
    most = 0
    all_here = threading.Barrier(5)

    def run(_job_id: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_here.wait(PATIENCE_S)
        with lock:
            running -= 1

    pool = pool_of(run, 5)
    for job_id in range(50):
        pool.add(job_id, 0)
    until(lambda: not pool.busy() and not pool.in_line(49))
    assert most == 5
    assert pool.stop(PATIENCE_S) == set()


def test_a_lower_limit_is_reached_when_jobs_end() -> None:
    gates = [threading.Event() for _ in range(4)]
    pool = pool_of(lambda job_id: gates[job_id].wait(PATIENCE_S), 3)
    for job_id in range(4):
        pool.add(job_id, 0)
    until(lambda: len(pool.busy()) == 3)
    pool.set_limit(1)
    gates[0].set()
    gates[1].set()
    until(lambda: pool.busy() == {2})
    assert pool.in_line(3)
    gates[2].set()
    until(lambda: pool.busy() == {3})
    gates[3].set()
    assert pool.stop(PATIENCE_S) == set()


def test_a_stopped_pool_takes_nothing() -> None:
    done: list[int] = []
    pool = pool_of(done.append, 2)
    pool.stop(PATIENCE_S)
    pool.add(1, 0)
    assert not pool.in_line(1)
    assert done == []
