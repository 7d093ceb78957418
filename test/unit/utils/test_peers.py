"""Many peers at once, of which one is the right one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ganeti import errors
from ganeti.utils import peers
from ganeti.utils.net import wait_readable

WORD = b"friend"
PATIENCE_S = 60.0


def authenticate(sock: socket.socket) -> socket.socket:
    """A peer proves itself with a word."""
    found = b""
    while len(found) < len(WORD):
        data = sock.recv(len(WORD) - len(found))
        if not data:
            raise OSError("it ended")
        found += data
    if found != WORD:
        raise errors.GenericError(f"it said {found!r}")
    return sock


class Door:
    """A listening socket, and those who have connected."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.clients: list[socket.socket] = []
        self.refused: list[tuple[str, str]] = []

    def connect(self, source: str = "127.0.0.1", word: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), PATIENCE_S, (source, 0))
        self.clients.append(client)
        client.sendall(word)
        return client

    def peers(self, handshake_s: float = PATIENCE_S) -> peers.Peers[socket.socket]:
        return peers.Peers(
            self.listener,
            authenticate,
            lambda address, problem: self.refused.append((address, problem)),
            handshake_s=handshake_s,
        )

    @staticmethod
    def is_open(client: socket.socket) -> bool:
        return not wait_readable([client], 0)


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    for one in (made.listener, *made.clients):
        one.close()


@pytest.mark.parametrize("count", [0, 5, 63, 70, 150])
def test_idle_peers_do_not_delay_the_right_one(door: Door, count: int) -> None:
    silent = [door.connect() for _ in range(count)]
    right = door.connect(word=WORD)
    with door.peers() as strangers:
        found = strangers.first(PATIENCE_S)
        assert found.getpeername() == right.getsockname()
    found.sendall(b"welcome")
    assert right.recv(7) == b"welcome"
    # The others are sent away.
    for one in silent:
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
    found.close()


def test_each_peer_has_a_deadline(door: Door) -> None:
    """Also one which sends a byte now and then, so that no read takes long."""
    slow = door.connect()
    ended = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.02):
                slow.sendall(b"f" if door.is_open(slow) else b"")

    dripping = threading.Thread(target=drip)
    dripping.start()
    with door.peers(handshake_s=0.1) as strangers, pytest.raises(TimeoutError, match="within 0.5"):
        strangers.first(0.5)
    ended.set()
    dripping.join()
    assert not door.is_open(slow)
    assert door.refused == [("127.0.0.1", "it did not prove in time who it is")]


def test_one_machine_does_not_send_away_the_peers_of_another(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "WAITING_MAX", 4)
    right = door.connect("127.0.0.2")
    with door.peers() as strangers:
        crowd = [door.connect("127.0.0.3") for _ in range(20)]
        with pytest.raises(TimeoutError):
            strangers.first(0.3)
        assert door.is_open(right)
        assert sum(map(door.is_open, crowd)) <= 4
        right.sendall(WORD)
        strangers.first(PATIENCE_S).close()


def test_silent_peers_do_not_send_away_one_which_speaks(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of the same machine, and any number of them."""
    monkeypatch.setattr(peers, "WAITING_MAX", 4)
    right = door.connect(word=WORD[:1])
    with door.peers() as strangers:
        for _ in range(10):
            for _ in range(10):
                door.connect()
            with pytest.raises(TimeoutError):
                strangers.first(0.02)
        assert door.is_open(right)
        right.sendall(WORD[1:])
        strangers.first(PATIENCE_S).close()


def test_wrong_peers_are_named_but_not_all(door: Door) -> None:
    for _ in range(30):
        door.connect(word=b"stranger"[: len(WORD)])
    right = door.connect(word=WORD)
    with door.peers() as strangers:
        # The others are refused by then, or not: they are asked at the same time.
        deadline = time.monotonic() + PATIENCE_S
        strangers.first(PATIENCE_S).close()
        while len(door.refused) < 20 and time.monotonic() < deadline:
            with pytest.raises(TimeoutError):
                strangers.first(0.05)
        with pytest.raises(TimeoutError):
            strangers.first(0.2)
    assert len(door.refused) == 20
    assert all(problem == "it said b'strang'" for _, problem in door.refused)
    right.close()


def test_several_peers_may_be_right(door: Door) -> None:
    wanted = {door.connect(word=WORD).getsockname() for _ in range(3)}
    with door.peers() as strangers:
        found = [strangers.first(PATIENCE_S) for _ in range(3)]
    assert {one.getpeername() for one in found} == wanted
    for one in found:
        one.close()


def test_an_error_of_accept_ends_nothing(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        """A process with too many open files, for a moment."""

        def __init__(self) -> None:
            self.errors = 3

        def fileno(self) -> int:
            return door.listener.fileno()

        def accept(self) -> object:
            if self.errors:
                self.errors -= 1
                raise OSError(24, "Too many open files")
            return door.listener.accept()

    monkeypatch.setattr(peers, "_ACCEPT_PAUSE_S", 0.01)
    door.connect(word=WORD)
    with peers.Peers(Exhausted(), authenticate, lambda *_: None) as strangers:  # type: ignore[arg-type]
        strangers.first(PATIENCE_S).close()


def test_a_thread_which_cannot_be_made_refuses_one_peer(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = threading.Thread.start
    failing = [True]

    def start(thread: threading.Thread) -> None:
        if failing.pop() if failing else False:
            raise RuntimeError("can't start new thread")
        usual(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    lost = door.connect(word=WORD)
    door.connect(word=WORD)
    with door.peers() as strangers:
        strangers.first(PATIENCE_S).close()
    assert door.refused == [("127.0.0.1", "can't start new thread")]
    with contextlib.suppress(ConnectionResetError):
        assert lost.recv(1) == b""


def test_a_block_with_a_limit_ends_also_with_a_slow_peer() -> None:
    one, other = socket.socketpair()
    with one, other:
        with peers.limited(one, 0.05):
            assert one.recv(1) == b""
        assert other.recv(1) == b""
    one, other = socket.socketpair()
    with one, other:
        with peers.limited(one, PATIENCE_S):
            other.sendall(b"x")
            assert one.recv(1) == b"x"
        other.sendall(b"y")
        assert one.recv(1) == b"y"
