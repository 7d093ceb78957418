"""Tests of majorities."""

from __future__ import annotations

import pytest

from ganeti.replication.majority import WITNESS, Tally, has_quorum, majority, with_witness


@pytest.mark.parametrize(("count", "wanted"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (10, 6)])
def test_majority(count: int, wanted: int) -> None:
    assert majority(count) == wanted


def test_only_members_count_for_the_quorum() -> None:
    assert has_quorum({"a", "b"}, {"a", "b", "c"})
    assert not has_quorum({"a", "x"}, {"a", "b", "c"})


def test_the_witness_is_a_member_of_two_at_most() -> None:
    assert with_witness({"a", "b"}, witness=True) == {"a", "b", WITNESS}
    assert with_witness({"a", "b"}, witness=False) == {"a", "b"}
    assert with_witness({"a", "b", "c"}, witness=True) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("tally", "reached", "decided"),
    [
        (Tally(3, 1, 2), False, False),
        (Tally(3, 1, 1), False, False),
        (Tally(3, 1, 0), False, True),
        (Tally(3, 2, 1), True, True),
        (Tally(4, 2, 0), False, True),
        (Tally(4, 2, 1), False, False),
    ],
)
def test_a_commit_is_decided_when_nobody_can_change_the_majority(
    tally: Tally, reached: bool, decided: bool
) -> None:
    assert tally.reached is reached
    assert tally.decided is decided
