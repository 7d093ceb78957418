"""The protocol of the master's role, explored: no state breaks a promise.

``make check-long`` explores further.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .role_model import Model, Rules, Violation, explore, initial, walk

LONG = bool(os.environ.get("GANETI_LONG"))


@pytest.mark.larger
@pytest.mark.parametrize(
    "budget",
    [
        # nodes, masters that start, changes, crashes
        (1, 3, 3, 2),
        (2, 3, 2, 1),
        (3, 2, 3, 1),
        (5, 1, 2, 1),
        *([(3, 3, 2, 0), (3, 3, 2, 1), (5, 2, 1, 0)] if LONG else []),
    ],
)
def test_every_state(budget: tuple[int, int, int, int]) -> None:
    assert explore(Model(budget[0]), initial(*budget)) > 10


@pytest.mark.larger
@pytest.mark.parametrize(
    "budget", [(2, 2, 2, 1), (3, 2, 1, 1), *([(3, 2, 2, 1), (3, 2, 3, 0)] if LONG else [])]
)
def test_every_state_with_a_journal(budget: tuple[int, int, int, int]) -> None:
    assert explore(Model(budget[0], Rules(journal=True)), initial(*budget)) > 10


@pytest.mark.larger
@given(seed=st.integers(0, 1 << 32), count=st.sampled_from([3, 5]))
@settings(max_examples=1000 if LONG else 60, deadline=None)
def test_long_ways_with_a_journal(seed: int, count: int) -> None:
    source = random.Random(seed)
    walk(Model(count, Rules(journal=True)), initial(count, 12, 12, 6), source.randrange, 250)


@pytest.mark.larger
@given(seed=st.integers(0, 1 << 32), count=st.sampled_from([3, 5]))
@settings(max_examples=2000 if LONG else 120, deadline=None)
def test_long_ways(seed: int, count: int) -> None:
    """Many masters, changes and crashes, one way at a time."""
    source = random.Random(seed)
    walk(Model(count), initial(count, 12, 12, 6), source.randrange, 250)


@pytest.mark.parametrize(
    ("rules", "budget"),
    [
        (Rules(judge_promises=False), (3, 2, 2, 0)),
        (Rules(fence_own_disk=False), (3, 2, 2, 0)),
        (Rules(refuse_late=False), (3, 2, 2, 0)),
        (Rules(compare_epochs=False), (3, 3, 2, 1)),
        (Rules(count_all=False), (3, 2, 2, 0)),
        (Rules(vote_again=False), (3, 3, 2, 0)),
        (Rules(journal=True, count_journal=False), (3, 2, 2, 0)),
        (Rules(journal=True, flush_journal=False), (3, 2, 2, 1)),
    ],
)
def test_every_part_is_needed(rules: Rules, budget: tuple[int, int, int, int]) -> None:
    """Without any one of them something acknowledged gets lost, and the exploration finds it."""
    with pytest.raises(Violation):
        explore(Model(budget[0], rules), initial(*budget), limit=1_000_000)


def test_ways_go_somewhere() -> None:
    """The random ways do what they are to test: several masters, many acknowledged changes."""
    ends = [
        walk(Model(5), initial(5, 12, 12, 6), random.Random(seed).randrange, 250)
        for seed in range(40)
    ]
    assert max(len(state.acked) for state in ends) > 3
    assert max(len(set(state.acked)) for state in ends) > 1
