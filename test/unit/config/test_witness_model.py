"""Two nodes and a witness, explored: no state breaks a promise.

``make check-long`` explores further.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .role_model import Rules, Violation, explore, walk
from .witness_model import WitnessModel, initial

LONG = bool(os.environ.get("GANETI_LONG"))


@pytest.mark.larger
@pytest.mark.parametrize(
    "budget",
    [
        # writes of the document, masters that start, changes, crashes, old documents
        (2, 2, 1, 0, 0),
        (2, 1, 2, 1, 0),
        (2, 1, 1, 0, 1),
        *([(3, 2, 2, 0, 0), (2, 2, 2, 1, 0), (3, 3, 1, 0, 0), (2, 2, 1, 0, 1)] if LONG else []),
    ],
)
def test_every_state(budget: tuple[int, int, int, int, int]) -> None:
    assert explore(WitnessModel(budget[0]), initial(*budget[1:])) > 100


@pytest.mark.larger
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=5000 if LONG else 200, deadline=None)
def test_long_ways(seed: int) -> None:
    """Many masters, changes, crashes and old documents, one way at a time."""
    source = random.Random(seed)
    walk(WitnessModel(60), initial(12, 12, 6, 4), source.randrange, 250)


@pytest.mark.larger
@pytest.mark.parametrize(
    ("rules", "budget"),
    [
        (Rules(conditional=False), (3, 2, 2, 0, 0)),
        (Rules(compare_document=False), (3, 2, 2, 0, 0)),
        (Rules(restore_when_known=False), (2, 2, 2, 0, 1)),
        (Rules(look_again=False), (2, 2, 2, 0, 1)),
        (Rules(judge_promises=False), (2, 2, 2, 0, 0)),
    ],
)
def test_every_part_is_needed(rules: Rules, budget: tuple[int, int, int, int, int]) -> None:
    """Without any one of them something acknowledged gets lost, and the exploration finds it."""
    with pytest.raises(Violation):
        explore(WitnessModel(budget[0], rules), initial(*budget[1:]), limit=1_000_000)


def test_ways_go_somewhere() -> None:
    """The random ways do what they are to test: a node goes on with the witness alone."""
    ends = [
        walk(WitnessModel(60), initial(12, 12, 6, 4), random.Random(seed).randrange, 250)
        for seed in range(60)
    ]
    assert max(len(state.acked) for state in ends) > 5
    assert max(len(set(state.acked)) for state in ends) > 2
    assert any(state.restores < 4 for state in ends)
    # The witness was informed of a change which one node did not accept.
    assert any(state.document is not None and state.document.length > 2 for state in ends)
