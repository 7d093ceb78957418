"""The chaos run measures how long nothing was committed although one majority was well."""

from __future__ import annotations

import pytest

from devel.chaos import schedule
from devel.chaos.availability import LIMITS, Account, Pace, Pause, majorities

NODES = [f"node{number}" for number in range(1, 6)]
ALL = majorities(NODES, (), 5)
NONE: frozenset[str] = frozenset()


def test_majorities_of_nodes_which_all_reach_each_other() -> None:
    assert len(ALL) == 10
    assert majorities(NODES[:3], (), 5) == {frozenset(NODES[:3])}
    assert majorities(NODES[:2], (), 5) == frozenset()
    assert majorities(NODES[:2], (), 2) == {frozenset(NODES[:2])}


def test_two_nodes_with_a_witness() -> None:
    """A node and the witness are a majority; the witness is never cut off from one node only."""
    both = ["node1", "node2"]
    assert majorities([*both, "witness"], [("node1", "node2")], 3) == {
        frozenset(("node1", "witness")),
        frozenset(("node2", "witness")),
    }
    assert majorities(["node1"], (), 3) == frozenset()


def test_a_cut_in_one_direction_counts() -> None:
    alone = [("node1", other) for other in NODES[1:]]
    found = majorities(NODES, alone, 5)
    assert found == {some for some in ALL if "node1" not in some}
    assert majorities(NODES, [(two, one) for one, two in alone], 5) == found


def test_a_ring_has_no_majority_in_which_all_reach_each_other() -> None:
    ring = [(one, NODES[(place + 2) % 5]) for place, one in enumerate(NODES)]
    assert majorities(NODES, ring, 5) == frozenset()


def test_a_pause_lasts_from_the_last_commit() -> None:
    account = Account()
    assert account.look(10, ALL, NONE) == Pause(10, 10, NONE)
    account.commit(14)
    assert account.look(20, ALL, frozenset({"split"})) == Pause(14, 20, frozenset({"split"}))
    assert account.longest == {"": 0, "split": 6}


def test_a_pause_begins_when_a_majority_is_well() -> None:
    account = Account()
    account.commit(5)
    assert account.look(10, frozenset(), NONE) is None
    assert account.look(40, ALL, NONE) == Pause(40, 40, NONE)
    assert account.look(50, ALL, NONE) == Pause(40, 50, NONE)


def test_another_majority_gets_the_whole_time() -> None:
    first, second = majorities(NODES[:3], (), 5), majorities(NODES[2:], (), 5)
    account = Account()
    account.look(10, first, NONE)
    assert account.look(20, second, NONE) == Pause(20, 20, NONE)
    # The same majority is well while others come and go.
    assert account.look(30, ALL, NONE) == Pause(20, 30, NONE)
    assert account.look(40, second, NONE) == Pause(20, 40, NONE)


def test_nothing_is_measured_while_nobody_looks() -> None:
    account = Account()
    account.look(10, ALL, NONE)
    account.forget()
    account.commit(50)
    assert account.look(90, ALL, NONE) == Pause(90, 90, NONE)


def test_each_kind_of_fault_has_a_limit() -> None:
    assert LIMITS.keys() == schedule.kinds() | {""}
    assert all(LIMITS[""] < LIMITS[kind] for kind in schedule.kinds())


def test_the_slowest_kind_counts_and_the_load_of_the_machine() -> None:
    pause = Pause(0, 1, frozenset({"kill daemon", "blackout"}))
    assert pause.limit_s(1) == LIMITS["blackout"]
    assert pause.limit_s(3) == 3 * LIMITS["blackout"]
    assert Pause(0, 1, NONE).limit_s(1) == LIMITS[""]


def test_the_pace_is_the_time_of_work_by_the_time_of_a_processor() -> None:
    pace = Pace()
    assert pace.slowness() == 1
    pace.add(1, 0.03, 0.01)
    pace.add(2, 0.05, 0.01)
    assert pace.slowness() == pytest.approx(4)
    assert pace.slowness(since=2) == pytest.approx(5)
    # When nothing was measured since then, the last sample counts.
    assert pace.slowness(since=3) == pytest.approx(5)


def test_a_measured_pace_is_at_least_that_of_an_idle_machine() -> None:
    pace = Pace()
    pace.measure()
    assert pace.slowness() >= 1
