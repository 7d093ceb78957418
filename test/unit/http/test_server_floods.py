"""A flood of peers which prove nothing ends no call that was accepted, however long that lasts.

The parent's decisions, without processes: what it knows of its children comes through a pipe.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator

import pytest

from ganeti.http import server


class Parent:
    """A server which forks nothing; ``ended`` has the children which it has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.ended: list[int] = []
        self._socks = socket.socketpair()
        monkeypatch.setattr(
            server.signal, "pidfd_send_signal", lambda pidfd, _signal: self.ended.append(pidfd)
        )
        self.server = server.ForkingServer(
            self._socks[0],
            lambda: None,  # type: ignore[arg-type, return-value]
            server.Service(lambda _request: server.Response(200, b""), lambda _digest: None),
            clock=lambda: self.now,
        )

    def child(self, number: int) -> server._Child:
        made = self.server._children[number] = server._Child(number, number)
        return made

    def tell(self, text: str) -> None:
        """A child says something."""
        os.write(self.server._tell, text.encode())
        self.server._read_control()

    def close(self) -> None:
        for sock in self._socks:
            sock.close()
        for pipe in ("_control", "_tell", "_life", "_hold"):
            os.close(getattr(self.server, pipe))


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    made = Parent(monkeypatch)
    yield made
    made.close()


def test_a_child_which_cannot_be_watched_is_ended_and_the_server_goes_on(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would learn of its end, so it could keep a place for ever."""
    ended = []

    def refuse(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(server.os, "fork", lambda: 1234)
    monkeypatch.setattr(server.os, "pidfd_open", refuse)
    monkeypatch.setattr(server.os, "kill", lambda *args: ended.append(args))
    monkeypatch.setattr(server.os, "waitpid", lambda *args: ended.append(args))
    assert not parent.server._fork()
    assert ended == [(1234, signal.SIGKILL), (1234, 0)]
    assert parent.server._children == {}
    assert parent.server._not_before > parent.now


def test_an_accepted_call_is_never_ended_in_favour_of_others(parent: Parent) -> None:
    accepted, *flood = (parent.child(number) for number in range(1, 5))
    parent.tell("+1,192.0.2.1 =1 ")
    parent.now += 3600.0
    for child in flood:
        parent.tell(f"+{child.pid},192.0.2.66 ")
        parent.now += 1.0
    parent.now += 60.0
    for _ in range(3):
        parent.server._drop_unauthenticated()
        del parent.server._children[parent.ended[-1]]
    # The one which waits for the longest time goes first.
    assert parent.ended == [2, 3, 4]
    parent.server._drop_unauthenticated()
    assert parent.ended == [2, 3, 4]
    assert accepted.accepted and list(parent.server._children) == [1]


def test_a_peer_which_has_just_connected_gets_a_moment(parent: Parent) -> None:
    parent.child(1)
    parent.tell("+1,192.0.2.1 ")
    parent.server._drop_unauthenticated()
    assert parent.ended == []
    parent.now += 2 * server._UNAUTHENTICATED_S
    parent.server._drop_unauthenticated()
    assert parent.ended == [1]


def test_a_child_without_a_connection_is_not_ended(parent: Parent) -> None:
    parent.child(1)
    parent.now += 3600.0
    parent.server._drop_unauthenticated()
    assert parent.ended == []


def test_the_time_for_a_request_counts_for_each_one_of_a_kept_connection(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the child when the time is over: also after half of a later request."""
    timers: list[float] = []
    more = iter([True, True, False])

    class Tls:
        def do_handshake(self) -> None:
            """It succeeds."""

        def close(self) -> None:
            timers.append(-1.0)

    class Context:
        def wrap_socket(self, *_args: object, **_options: object) -> Tls:
            return Tls()

    monkeypatch.setattr(server.signal, "setitimer", lambda _which, s: timers.append(s))
    monkeypatch.setattr(parent.server, "_context", Context)
    monkeypatch.setattr(parent.server, "_serve_one", lambda _tls, _peer: next(more))
    monkeypatch.setattr(parent.server, "_wait_for_more", lambda _tls: True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as conn:
            parent.server._talk(conn, "192.0.2.1")
    request_s = parent.server._limits.request_s
    # It runs while a request is awaited; none runs while nothing was sent, and at the end.
    assert timers == [0, request_s, 0, request_s, 0, -1.0]


def test_as_many_are_ended_as_wait(parent: Parent) -> None:
    for number in range(1, 6):
        parent.child(number)
        parent.tell(f"+{number},192.0.2.66 ")
    parent.now += 2 * server._UNAUTHENTICATED_S
    parent.child(6)
    parent.tell("+6,192.0.2.1 ")
    parent.server._drop_unauthenticated(3)
    assert parent.ended == [1, 2, 3]
    # The last one has just connected.
    parent.server._drop_unauthenticated(300)
    assert parent.ended == [1, 2, 3, 1, 2, 3, 4, 5]


def test_a_flood_from_one_address_ends_no_connection_of_another_one(parent: Parent) -> None:
    for number in range(1, 8):
        parent.child(number)
    # A node with a slow connection was there first.
    parent.tell("+1,192.0.2.1 ")
    parent.now += 5.0
    parent.tell("".join(f"+{number},192.0.2.66 " for number in range(2, 8)))
    parent.now += 60.0
    parent.server._drop_unauthenticated(5)
    assert parent.ended == [2, 3, 4, 5, 6]
    for pidfd in parent.ended:
        del parent.server._children[pidfd]
    # Both have one, so the oldest one goes.
    parent.server._drop_unauthenticated()
    assert parent.ended[-1] == 1


def test_clients_which_wait_get_children_at_once(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def fork() -> bool:
        nonlocal made
        made += 1
        parent.child(1000 + made)
        return True

    monkeypatch.setattr(parent.server, "_fork", fork)
    waiting = iter([0, 20, 1000])
    monkeypatch.setattr(parent.server, "_waiting", lambda: next(waiting))
    counts = []
    for _ in range(3):
        parent.server._provide()
        counts.append(made)
    assert counts == [2, 20, server._BURST]
