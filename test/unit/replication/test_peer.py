"""Tests of the states of a copy."""

from __future__ import annotations

import pytest

from ganeti.replication.peer import MOVES, CopyEvent, CopyState, Peer


def test_each_state_knows_each_event() -> None:
    assert set(MOVES) == set(CopyState)
    assert all(set(moves) == set(CopyEvent) for moves in MOVES.values())


@pytest.mark.parametrize("state", CopyState)
def test_what_follows_an_event(state: CopyState) -> None:
    after: dict[CopyEvent, CopyState] = {}
    for event in CopyEvent:
        peer = Peer("uuid", state)
        peer.note(event)
        after[event] = peer.state
        if event is CopyEvent.FAILED:
            assert not peer.responds
        if event in (CopyEvent.CAUGHT_UP, CopyEvent.ANSWERED):
            assert peer.responds
        assert event is not CopyEvent.MISSED or peer.lags
    assert after[CopyEvent.CAUGHT_UP] is CopyState.CURRENT


def test_a_node_which_was_never_up_to_date_is_not_lagging() -> None:
    peer = Peer("uuid", CopyState.NEW)
    states = []
    for event in (CopyEvent.MISSED, CopyEvent.FAILED, CopyEvent.MISSED, CopyEvent.ANSWERED):
        peer.note(event)
        states.append(peer.state)
    assert states == [CopyState.NEW, CopyState.ABSENT, CopyState.ABSENT, CopyState.NEW]


def test_a_node_which_answers_again_lags_until_it_has_everything() -> None:
    peer = Peer("uuid", CopyState.CURRENT)
    states = []
    for event in (CopyEvent.FAILED, CopyEvent.MISSED, CopyEvent.ANSWERED, CopyEvent.CAUGHT_UP):
        peer.note(event)
        states.append(peer.state)
    assert states == [
        CopyState.UNRESPONSIVE,
        CopyState.UNRESPONSIVE,
        CopyState.LAGGING,
        CopyState.CURRENT,
    ]
