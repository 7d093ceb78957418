"""Tests of copies which no commit waits for."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import pytest

from ganeti import errors
from ganeti.replication.background import PAUSE_S, BackgroundCopies, BackgroundPeer, Copied
from ganeti.replication.peer import CopyState


class Lab:
    """Two candidates, a clock, and what was sent."""

    def __init__(self, **options: bool) -> None:
        self.candidates = ["a", "b"]
        self.failing: dict[str, Exception] = {}
        self.sent: list[str] = []
        self.now = 1000.0
        self.while_sending: Callable[[], None] = lambda: None
        self.copies = BackgroundCopies(
            Copied("the file", lambda: self.candidates, self.send_to),
            clock=lambda: self.now,
            **options,
        )

    def send_to(self, uuid: str) -> bool:
        self.sent.append(uuid)
        self.while_sending()
        if uuid in self.failing:
            raise self.failing[uuid]
        return True

    def later(self, seconds: float) -> list[str]:
        """Return to whom the thread sends when it is so many seconds later."""
        self.now += seconds
        self.sent.clear()
        self.copies.send(due_only=True)
        return list(self.sent)


def unknown_call(uuid: str) -> Exception:
    return errors.NodeCallFailed(uuid, "audit_extend", "there is no such call")


def follow(events: tuple[str, ...]) -> None:
    """Compare a peer with two counters, event by event."""
    peer = BackgroundPeer("a")
    noted = sent = 0
    current, under_way = False, False
    for event in events:
        if event == "noted":
            noted, current = noted + 1, False
            peer.missed()
        elif event == "begins":
            sent, under_way = noted, True
            peer.begins()
        elif under_way:
            under_way = False
            current = event == "ends well" and sent == noted
            if event == "ends well":
                peer.caught_up()
            else:
                peer.failed_at(10.0)
            assert peer.responds == (event == "ends well") == (peer.retry_at == 0.0), events
        assert peer.lags == (not current), events


def test_a_copy_is_current_only_when_all_that_was_noted_was_sent() -> None:
    """All sequences of six events."""
    for events in itertools.product(("noted", "begins", "ends well", "fails"), repeat=6):
        follow(events)


def test_the_pauses_grow_and_the_log_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """A node of the release before does not know the call, and is asked each minute."""
    lab = Lab()
    lab.failing["b"] = unknown_call("b")
    with caplog.at_level(logging.WARNING):
        assert lab.copies.send() == {"b"}
        first_s, longest_s = PAUSE_S
        for pause_s in (first_s, 2, 4, 8, 16, 32, longest_s, longest_s):
            assert lab.later(pause_s - 0.5) == []
            assert lab.later(0.5) == ["b"]
        (warning,) = caplog.messages
        assert (
            "the file cannot be sent to another candidate" in warning and "no such call" in warning
        )
        assert lab.copies.states() == {"a": CopyState.CURRENT, "b": CopyState.ABSENT}
        # It gets the new release, and is lost later: that is news.
        lab.failing.clear()
        assert lab.later(longest_s) == ["b"]
        assert lab.copies.states()["b"] is CopyState.CURRENT
        lab.failing["b"] = OSError("no route")
        lab.copies.note()
        assert lab.later(0) == ["a", "b"]
        assert lab.copies.states() == {"a": CopyState.CURRENT, "b": CopyState.UNRESPONSIVE}
        assert len(caplog.messages) == 2 and "no route" in caplog.messages[1]
        assert lab.later(first_s) == ["b"]
        assert len(caplog.messages) == 2


def test_a_candidate_that_fails_does_not_delay_the_others() -> None:
    lab = Lab()
    lab.failing["a"] = unknown_call("a")
    assert lab.copies.send() == {"a"}
    lab.copies.note()
    assert lab.later(0) == ["b"]


def test_what_is_noted_while_a_message_is_under_way_is_sent_afterwards() -> None:
    lab = Lab()
    lab.copies.send()
    lab.copies.note(["a"])
    lab.while_sending = lambda: lab.copies.note(["a"])
    assert lab.copies.send() == {"a"}
    assert lab.copies.states() == {"a": CopyState.LAGGING, "b": CopyState.CURRENT}
    lab.while_sending = lambda: None
    assert lab.later(0) == ["a"]
    assert lab.copies.send() == set()


def test_nodes_become_candidates_and_leave() -> None:
    lab = Lab()
    lab.copies.send()
    lab.candidates = ["a", "c"]
    assert lab.later(0) == ["c"]
    lab.candidates = ["a", "b", "c"]
    lab.copies.note(["unknown"])
    assert lab.later(0) == ["b"]


def test_the_thread_sends_the_rest_at_the_end() -> None:
    lab = Lab(send_rest=True)
    lab.copies.send()
    lab.failing["a"] = unknown_call("a")
    lab.copies.note()
    lab.copies.send()
    lab.failing.clear()
    lab.sent.clear()
    # The end does not wait for a pause.
    lab.copies.note(["b"])
    lab.copies.start()
    lab.copies.stop()
    assert set(lab.copies.states().values()) == {CopyState.CURRENT}
