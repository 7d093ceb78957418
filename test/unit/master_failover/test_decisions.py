"""When a candidate asks for the role: whole histories, without a clock and without nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.constants import failover as const
from ganeti.master_failover import decisions
from ganeti.master_failover.decisions import OwnMaster, View, decide, decide_restart, objection
from ganeti.objects.transfer import MasterStatus

MASTER, ME, THIRD, FOURTH, FIFTH = NODES = [f"node{number}" for number in range(1, 6)]


def view(state: str = const.UNREACHABLE, **changes: object) -> View:
    found = View(5, 0, state, "", 100.0, True)
    return found._replace(**changes)


def test_a_serving_master_is_left_alone() -> None:
    decision = decide(view(const.SERVING), 1000.0)
    assert not decision.ask
    assert decision.due is None


def test_the_first_candidate_asks_after_the_limit() -> None:
    before = decide(view(), 104.9)
    assert not before.ask
    assert before.due == 105.0
    assert "if that lasts" in before.text
    after = decide(view(), 105.0)
    assert after.ask
    assert "for 5 s" in after.text


def test_later_candidates_ask_later() -> None:
    assert not decide(view(rank=1), 107.9).ask
    assert decide(view(rank=1), 108.0).ask


@pytest.mark.parametrize("state", [const.DEAD, const.MUTE, const.UNCLEAR])
def test_a_node_which_answers_gets_more_time(state: str) -> None:
    """Its daemon may be starting, or is started again."""
    assert not decide(view(state), 159.0).ask
    assert decide(view(state), 160.0).ask
    assert not decide(view(state, limit_s=60), 279.0).ask
    assert decide(view(state, limit_s=60), 280.0).ask


def test_a_node_counts_as_unreachable_from_its_last_answer_on() -> None:
    """It answered until the moment before, without a master daemon: one late answer is no loss."""
    assert not decide(view(answered_at=110.0), 114.9).ask
    assert decide(view(answered_at=110.0), 115.0).ask
    # An older answer changes nothing, and a node which answers now and then gets no more time than
    # one which always answers.
    assert decide(view(answered_at=90.0), 105.0).ask
    assert not decide(view(answered_at=158.0), 159.0).ask
    assert decide(view(answered_at=158.0), 160.0).ask


def test_a_master_which_was_never_seen_gets_more_time() -> None:
    """After a power cut the nodes start one after the other."""
    assert not decide(view(ever_seen=False), 159.0).ask
    assert decide(view(ever_seen=False), 160.0).ask


def test_a_master_stopped_on_purpose_is_never_replaced() -> None:
    decision = decide(view(const.STOPPED), 1e9)
    assert not decision.ask
    assert decision.due is None
    assert "on purpose" in decision.text


def test_the_pauses_between_attempts_grow() -> None:
    dues = [
        decide(view(tries=tries, tried_at=200.0), 200.0).due for tries in (1, 2, 3, 4, 5, 6, 20)
    ]
    assert dues == [205.0, 210.0, 220.0, 240.0, 260.0, 260.0, 260.0]
    assert decide(view(tries=1, tried_at=200.0, rank=2), 200.0).due == 211.0


def test_the_role_does_not_wander() -> None:
    """Something that kills each master would otherwise kill all of them."""
    moves = (500.0, 600.0, 700.0)
    decision = decide(view(seen_at=700.0, moves=moves), 900.0)
    assert not decision.ask
    assert decision.due == 1100.0
    assert "3 times within 10 minutes" in decision.text
    assert decide(view(seen_at=700.0, moves=moves), 1100.0).ask


@given(
    state=st.sampled_from(sorted(const.STATES)),
    limit_s=st.integers(const.MIN_S, const.MAX_S),
    rank=st.integers(0, 20),
    ever_seen=st.booleans(),
    tries=st.integers(0, 30),
    tried_at=st.floats(100, 2e5),
    moves=st.lists(st.floats(0, 2e5), max_size=3).map(tuple),
    answered_at=st.none() | st.floats(100, 2e5),
    now=st.floats(100, 4e5),
)
def test_never_before_the_limit(
    state: str,
    limit_s: int,
    rank: int,
    ever_seen: bool,
    tries: int,
    tried_at: float,
    moves: tuple[float, ...],
    answered_at: float | None,
    now: float,
) -> None:
    """No state, rank or history makes a candidate ask early, and a due time is kept."""
    found = View(limit_s, rank, state, "", 100.0, ever_seen, tries, tried_at, moves, answered_at)
    decision = decide(found, now)
    if decision.ask:
        assert now - 100.0 >= limit_s
        assert state not in (const.SERVING, const.STOPPED)
    elif decision.due is not None:
        assert decision.due > now
    assert decision.text


# -- what the others see ---------------------------------------------------------------------------


def status(**changes: object) -> MasterStatus:
    values: dict[str, object] = {
        "master": MASTER,
        "epoch": "3 uuid",
        "daemon": const.DEAD,
        "watching": True,
        "watched": MASTER,
        "state": const.UNREACHABLE,
        "seen_s": 6.0,
    }
    return MasterStatus(**{**values, **changes})  # type: ignore[arg-type]


def ask(statuses: dict[str, MasterStatus], candidates: list[str] = NODES) -> str | None:
    return objection(MASTER, candidates, statuses, limit_s=5, known=(3, "uuid"), wall_s=1000.0)


def test_nobody_sees_the_master() -> None:
    assert ask({name: status() for name in NODES[1:]}) is None


def test_the_master_can_still_commit() -> None:
    """Only this node's connection to it is broken."""
    statuses = {
        ME: status(),
        THIRD: status(seen_s=0.5),
        FOURTH: status(seen_s=0.5),
        FIFTH: status(),
    }
    assert "node3" in (ask(statuses) or "")
    assert "can still commit" in (ask(statuses) or "")


def test_too_few_see_the_master() -> None:
    """With one other candidate of five it can commit nothing, so it is of no use."""
    statuses = {ME: status(), THIRD: status(seen_s=0.5), FOURTH: status(), FIFTH: status()}
    assert ask(statuses) is None


def test_who_watches_another_master_does_not_count() -> None:
    statuses = {
        ME: status(),
        THIRD: status(seen_s=0.5, watched=FIFTH),
        FOURTH: status(seen_s=0.5, watched=""),
    }
    assert ask(statuses) is None


def test_a_pause_holds() -> None:
    assert "paused" in (ask({ME: status(), THIRD: status(paused_until=1001.0)}) or "")
    assert ask({ME: status(), THIRD: status(paused_until=999.0)}) is None


def test_another_candidate_was_faster() -> None:
    assert "just asked" in (ask({ME: status(), THIRD: status(epoch="4 other")}) or "")


def test_a_damaged_epoch_is_no_objection() -> None:
    assert ask({ME: status(), THIRD: status(epoch="x")}) is None


# -- this daemon itself, and the master's own node -------------------------------------------------


def test_a_pause_of_the_daemon_is_noticed() -> None:
    assert not decisions.was_paused(100.0, 101.5, 1.0)
    assert decisions.was_paused(100.0, 110.0, 1.0)


def test_a_dead_daemon_is_started_again_with_growing_pauses() -> None:
    assert decide_restart(OwnMaster(const.DEAD, 100.0), 100.0).ask
    assert not decide_restart(OwnMaster(const.DEAD, 100.0, 1, 100.0), 104.0).ask
    assert decide_restart(OwnMaster(const.DEAD, 100.0, 1, 100.0), 105.0).ask
    assert decide_restart(OwnMaster(const.DEAD, 100.0, 9, 100.0), 160.0).ask


@pytest.mark.parametrize("state", [const.SERVING, const.STOPPED, const.MUTE])
def test_other_states_are_left_alone(state: str) -> None:
    assert not decide_restart(OwnMaster(state, None), 1e6).ask
