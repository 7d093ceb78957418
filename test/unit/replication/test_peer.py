"""Tests of the states of a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ganeti.replication.peer import MOVES, CopyState, Peer

EVENTS = (Peer.caught_up, Peer.answered, Peer.missed, Peer.failed)


def states_after(start: CopyState, events: Sequence[Callable[[Peer], None]]) -> list[CopyState]:
    """Return the states in which the copy is after each of the events."""
    peer = Peer("uuid", start)
    found = []
    for event in events:
        event(peer)
        found.append(peer.state)
    return found


def test_each_move_is_made_by_an_event() -> None:
    made = {
        state: {states_after(state, [event])[0] for event in EVENTS} - {state}
        for state in CopyState
    }
    assert made == {state: set(after) for state, after in MOVES.items()}


@pytest.mark.parametrize("state", CopyState)
def test_what_follows_an_event(state: CopyState) -> None:
    for event in EVENTS:
        peer = Peer("uuid", state)
        event(peer)
        assert peer.lags == (peer.state is not CopyState.CURRENT)
        if event is Peer.failed:
            assert not peer.responds
        if event in (Peer.caught_up, Peer.answered):
            assert peer.responds
        assert event is not Peer.caught_up or not peer.lags
        assert event is not Peer.missed or peer.lags


def test_a_node_which_was_never_up_to_date_is_not_lagging() -> None:
    found = states_after(CopyState.NEW, [Peer.missed, Peer.failed, Peer.missed, Peer.answered])
    assert found == [CopyState.NEW, CopyState.ABSENT, CopyState.ABSENT, CopyState.NEW]


def test_a_node_which_answers_again_lags_until_it_has_everything() -> None:
    found = states_after(
        CopyState.CURRENT, [Peer.failed, Peer.missed, Peer.answered, Peer.caught_up]
    )
    assert found == [
        CopyState.UNRESPONSIVE,
        CopyState.UNRESPONSIVE,
        CopyState.LAGGING,
        CopyState.CURRENT,
    ]
