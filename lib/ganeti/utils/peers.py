"""Accept many peers at once and authenticate each of them, with a deadline for each.

A program which waits for one peer must not wait for the others: each machine which reaches the port
may connect first and send nothing, or send single bytes slowly. :class:`Peers` authenticates all
who connect at the same time, each in a thread of its own, and returns those which have proved who
they are. :func:`connect` and :func:`limited` are for the other end.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from ganeti import errors
from ganeti.utils.net import received_bytes, wait_readable


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)

#: Seconds in which a peer has to prove who it is.
HANDSHAKE_S: Final = 30.0
#: Number of peers which are authenticated at the same time.
WAITING_MAX: Final = 64
# Number of refused peers which are reported one by one; anybody can cause any number of them.
_REPORTED_MAX: Final = 20
# After an error of accept(), for example because this process has too many open files.
_ACCEPT_PAUSE_S: Final = 0.1
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 5}


def tune(sock: socket.socket) -> None:
    """Let a connection notice that the other machine is gone, and send without delay."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(
    address: str, port: int, timeout_s: float, *, source: str | None = None
) -> socket.socket:
    """Connect to a program of another machine.

    :param source: address of this machine from which to connect.
    :returns: a socket with this time limit for each of its operations.
    :raises OSError: nobody listens, or the machine does not answer in time.
    """
    origin = (source, 0) if source else None
    sock = socket.create_connection((address, port), timeout=timeout_s, source_address=origin)
    tune(sock)
    return sock


@contextlib.contextmanager
def limited(sock: socket.socket, limit_s: float) -> Iterator[None]:
    """End a connection when the block takes longer, even if the peer sends single bytes slowly.

    The block then gets an error of the connection, or its end.
    """
    # The socket may have TLS, or get it in the block.
    handle = socket.socket(fileno=os.dup(sock.fileno()))
    timer = threading.Timer(limit_s, _shut, [handle])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        handle.close()


def _shut(sock: socket.socket) -> None:
    """End a connection, also under a thread which waits for the peer."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _Peer(Generic[T]):
    """A connection whose peer has not yet proved who it is."""

    def __init__(self, sock: socket.socket, address: str, deadline: float) -> None:
        # The socket itself belongs to the thread which authenticates the peer.
        self.handle = sock.dup()
        self.address = address
        self.deadline = deadline
        self.result: T | None = None
        self.problem = ""
        self.was_shut = False

    def shut(self) -> None:
        """End the connection; the thread which waits for the peer gets an error."""
        self.was_shut = True
        self.deadline = float("inf")
        _shut(self.handle)


class Peers(Generic[T]):
    """Authenticates any number of peers at the same time, so that none delays the right one.

    A context manager. At its end all connections are closed whose peers were not authenticated; the
    listening socket stays open.

    When more than :data:`WAITING_MAX` peers wait, one is sent away: one which has said nothing, if
    there is any, and of those from the address with the most of them that which waits longest. So
    idle peers do not send away another one, nor does one machine the peers of another machine.

    :param listener: accepts the connections.
    :param authenticate: gets the socket of a connection, and returns the connection to an
        authenticated peer. It raises OSError, ValueError or :class:`ganeti.errors.GenericError` for
        any other peer. It runs in a thread of its own.
    :param refused: is called with the address of a peer which was refused, and the reason; at most
        20 times.
    :param handshake_s: seconds in which each peer has to prove who it is.
    """

    def __init__(
        self,
        listener: socket.socket,
        authenticate: Callable[[socket.socket], T],
        refused: Callable[[str, str], None],
        *,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._listener = listener
        self._authenticate = authenticate
        self._refused = refused
        self._handshake_s = handshake_s
        self._reports = 0
        # In the order in which they connected.
        self._waiting: list[_Peer[T]] = []
        self._done: queue.SimpleQueue[_Peer[T]] = queue.SimpleQueue()
        self._wake, self._waker = socket.socketpair()

    def __enter__(self) -> Peers[T]:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._waiting:
            peer.shut()
            # Of several trusted peers the caller has taken the first.
            if peer.result is not None:
                peer.result.close()

    def first(self, timeout_s: float) -> T:
        """Return the next peer which has proved who it is.

        :raises TimeoutError: there is none within this number of seconds.
        """
        end = time.monotonic() + timeout_s
        while True:
            found = self._authenticated()
            if found is not None:
                return found
            now = time.monotonic()
            if now >= end:
                raise TimeoutError(f"nobody who is trusted has connected within {timeout_s:g} s")
            oldest = min((peer.deadline for peer in self._waiting), default=end)
            ready = wait_readable([self._listener, self._wake], min(end, oldest) - now)
            if self._listener.fileno() in ready:
                self._accept()

    def _accept(self) -> None:
        if len(self._waiting) >= 2 * WAITING_MAX:
            # Those which were sent away have not noticed it yet.
            wait_readable([self._wake], _ACCEPT_PAUSE_S)
            return
        try:
            sock, address = self._listener.accept()
        except OSError as err:
            self._report("an unknown address", str(err))
            wait_readable([self._wake], _ACCEPT_PAUSE_S)
            return
        try:
            self._begin(sock, address)
        except (OSError, RuntimeError) as err:
            # Too many files or threads.
            sock.close()
            self._report(str(address[0]), str(err))

    def _begin(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        """Begin to authenticate the peer of a new connection."""
        if len(self._waiting) >= WAITING_MAX:
            # The right peer proves at once who it is.
            self._send_away()
        tune(sock)
        sock.settimeout(self._handshake_s)
        peer: _Peer[T] = _Peer(sock, str(address[0]), time.monotonic() + self._handshake_s)
        try:
            threading.Thread(target=self._check, args=(peer, sock), daemon=True).start()
        except RuntimeError:
            peer.handle.close()
            raise
        self._waiting.append(peer)

    def _send_away(self) -> None:
        """Close a connection in favour of another one; its thread reports that."""
        open_ones = [peer for peer in self._waiting if not peer.was_shut]
        open_ones = [one for one in open_ones if received_bytes(one.handle) == 0] or open_ones
        counts = collections.Counter(peer.address for peer in open_ones)
        for peer in open_ones:
            if counts[peer.address] == max(counts.values()):
                peer.shut()
                return

    def _check(self, peer: _Peer[T], sock: socket.socket) -> None:
        try:
            peer.result = self._authenticate(sock)
        except (OSError, ValueError, errors.GenericError) as err:
            peer.problem = peer.problem or str(err)
            # Also where it became a part of a connection with TLS.
            peer.shut()
            sock.close()
        finally:
            self._done.put(peer)
            self._waker.send(b"!")

    def _authenticated(self) -> T | None:
        """Return an authenticated peer, or None so far; close those which took too long."""
        now = time.monotonic()
        for peer in self._waiting:
            if peer.deadline <= now:
                peer.problem = "it did not prove in time who it is"
                peer.shut()
        with contextlib.suppress(queue.Empty):
            while True:
                peer = self._done.get_nowait()
                self._wake.recv(1)
                self._waiting.remove(peer)
                peer.handle.close()
                if peer.result is not None and not peer.was_shut:
                    return peer.result
                if peer.result is not None:
                    peer.result.close()
                    peer.problem = "it was too late"
                self._report(peer.address, peer.problem)
        return None

    def _report(self, address: str, problem: str) -> None:
        self._reports += 1
        if self._reports <= _REPORTED_MAX:
            self._refused(address, problem)
