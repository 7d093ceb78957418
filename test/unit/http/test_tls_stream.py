"""TLS of the event server with clients which are slow, leave, or send a lot."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import WAIT_S, HttpLab, receive_all, receive_answer
from ganeti.http.event_server import Accepted, Incoming, Limits
from ganeti.http.messages import Refused, Response
from ganeti.utils import x509

LARGE = 16 << 20
REQUEST = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
LARGE_REQUEST = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n"


class _Sizes:
    """Answers with the size of the body, or with a large body."""

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        async def answer(body: bytes) -> Response:
            large = incoming.head.path == "/large"
            return Response(200, b"x" * LARGE if large else b"%d" % len(body))

        return Accepted("somebody", answer)

    def refusal(self, refused: Refused) -> Response:
        return Response(refused.status, str(refused).encode())


class _Lab(HttpLab):
    def connect_tls(self) -> ssl.SSLSocket:
        return x509.pinning_client_context().wrap_socket(self.connect())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[_Lab]:
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed())
    made = _Lab(_Sizes, tls=x509.plain_server_context(str(pem)), limits=Limits(write_s=0.5))
    yield made
    made.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_request_byte_by_byte(lab: _Lab) -> None:
    with lab.connect_tls() as sock:
        for byte in REQUEST:
            sock.sendall(bytes([byte]))
        assert receive_answer(sock)[2] == b"0"


def test_a_handshake_byte_by_byte(lab: _Lab) -> None:
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = x509.pinning_client_context().wrap_bio(received, to_send)
    with lab.connect() as sock:
        for _ in range(10):
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in to_send.read():
                    sock.sendall(bytes([byte]))
                received.write(sock.recv(65536))
        assert tls.version() is not None


def test_many_requests_at_once(lab: _Lab) -> None:
    """More than the buffer of the reader takes: receiving pauses and goes on."""
    count = 5000
    with lab.connect_tls() as sock:
        sock.sendall(b"\r\n".join([REQUEST] * (count // 2)))
        sock.sendall(REQUEST * (count // 2 - 1) + REQUEST[:-2] + b"Connection: close\r\n\r\n")
        assert receive_all(sock).count(b"HTTP/1.1 200") == count


def test_large_bodies_in_both_directions(lab: _Lab) -> None:
    with lab.connect_tls() as sock:
        for _ in range(3):
            head = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (9 << 20)
            sock.sendall(head + b"y" * (9 << 20))
            assert receive_answer(sock)[2] == b"%d" % (9 << 20)
            sock.sendall(LARGE_REQUEST)
            assert len(receive_answer(sock)[2]) == LARGE


def test_a_client_that_does_not_take_its_answer(lab: _Lab) -> None:
    with lab.connect_tls() as sock:
        sock.sendall(LARGE_REQUEST)
        _wait_for(lambda: lab.server.clients == 1)
        _wait_for(lambda: lab.server.clients == 0)


@pytest.mark.parametrize("data", [b"", REQUEST[:10], REQUEST, LARGE_REQUEST])
@pytest.mark.parametrize("way", ["close", "shutdown", "notify"])
def test_a_client_that_leaves(lab: _Lab, data: bytes, way: str) -> None:
    sock = lab.connect_tls()
    sock.sendall(data)
    if way == "notify":
        sock.settimeout(WAIT_S)
        try:
            sock.unwrap()
        except ssl.SSLError:
            # An answer is on its way, which comes before the end.
            assert data in (REQUEST, LARGE_REQUEST)
    elif way == "shutdown":
        sock.shutdown(socket.SHUT_WR)
    else:
        sock.close()
    _wait_for(lambda: lab.server.clients == 0)
    sock.close()


def test_a_server_that_closes_says_so(lab: _Lab) -> None:
    with lab.connect_tls() as sock:
        sock.sendall(REQUEST[:-2] + b"Connection: close\r\n\r\n")
        # Without close_notify, the end of the file would be an error here.
        text = b""
        while more := sock.recv(65536):
            text += more
        assert text.endswith(b"\r\n\r\n0")


def test_handshakes_which_never_end_are_limited(tmp_path: Path) -> None:
    """Three hundred peers connect; some send nothing, some the beginning of a handshake."""
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed())
    made = _Lab(
        _Sizes,
        tls=x509.plain_server_context(str(pem)),
        limits=Limits(clients=40, head_s=WAIT_S),
    )
    idle = []
    try:
        for number in range(300):
            sock = made.connect()
            idle.append(sock)
            if number % 2:
                sock.sendall(b"\x16\x03\x01")
        # The server has seen all of them when it has aborted all but ten.
        closed = [one for one in idle[:290] if receive_all(one) == b""]
        assert len(closed) == 290
        assert (made.server.unserved, made.server.clients) == (10, 0)
        # One which speaks takes the place of the oldest one, and is then counted as a client.
        with made.connect_tls() as good:
            good.sendall(REQUEST)
            assert receive_answer(good)[0] == 200
            assert (made.server.unserved, made.server.clients) == (9, 1)
    finally:
        for sock in idle:
            sock.close()
        _wait_for(lambda: made.server.unserved == 0)
        made.close()


def test_ends_of_connections_are_limited(tmp_path: Path) -> None:
    """These peers never answer the close_notify of the server."""
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed())
    made = _Lab(_Sizes, tls=x509.plain_server_context(str(pem)), limits=Limits(clients=12))
    clients = []
    try:
        for _ in range(20):
            sock = made.connect_tls()
            clients.append(sock)
            sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert receive_answer(sock)[0] == 200
            assert made.server.unserved <= 3
    finally:
        for sock in clients:
            sock.close()
        made.close()


def test_a_peer_which_leaves_before_its_first_byte(lab: _Lab) -> None:
    with lab.connect() as sock:
        _wait_for(lambda: lab.server.unserved == 1)
        sock.shutdown(socket.SHUT_WR)
        assert receive_all(sock) == b""
    _wait_for(lambda: lab.server.unserved == 0)


def test_a_silent_peer_costs_little(lab: _Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of OpenSSL is allocated before the first byte."""
    begun = []
    wrap = ssl.SSLContext.wrap_bio

    def counted(*args: Any, **kwargs: Any) -> ssl.SSLObject:
        begun.append(1)
        return wrap(*args, **kwargs)

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", counted)
    with lab.connect() as silent:
        _wait_for(lambda: lab.server.unserved == 1)
        assert not begun
        silent.sendall(b"\x16")
        _wait_for(lambda: len(begun) == 1)
