"""The event server against clients that are good, slow, greedy and broken."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import WAIT_S, HttpLab, receive_all, receive_answer
from ganeti.http import event_server, messages
from ganeti.http.event_server import Accepted, Incoming, Limits, client_limit
from ganeti.http.messages import Refused, Response
from ganeti.utils import memory, x509
from ganeti.utils.unread import UnreadAnswers


class Echo:
    """Answers with the method and the size of the body; ``/no`` is refused by its head."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.stopped = 0
        self.begun: list[str] = []
        self.canceled: list[str] = []
        self.ended: list[str] = []

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        path = incoming.head.path
        if path == "/no":
            raise Refused(403, headers=[("X-Why", "so")])
        if path == "/early":
            return Response(202, b"early")

        async def answer(body: bytes) -> Response:
            if path == "/large":
                return Response(200, b"x" * (32 << 20))
            if path == "/middle":
                return Response(200, b"y" * 250_000)
            if path == "/stream":
                return Response(200, self._stream())
            if path == "/wait":
                await asyncio.to_thread(self.gate.wait, WAIT_S)
            if path in ("/read", "/change"):
                await self._until_opened(path)
            return Response(200, f"{incoming.head.method} {len(body)}".encode())

        most = {"/none": 0, "/small": 2}.get(path, messages.MAX_BODY_BYTES)
        return Accepted("somebody", answer, most_body_bytes=most, only_reads=path == "/read")

    async def _until_opened(self, path: str) -> None:
        self.begun.append(path)
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.canceled.append(path)
            raise
        self.ended.append(path)

    async def _stream(self) -> AsyncIterator[bytes]:
        try:
            for word in (b"one", b"two"):
                yield word
        finally:
            self.stopped += 1

    def refusal(self, refused: Refused) -> Response:
        return Response(refused.status, str(refused).encode(), list(refused.headers))


Start = Callable[..., HttpLab]


@pytest.fixture
def start() -> Iterator[Start]:
    labs = []

    def begin(**options: object) -> HttpLab:
        labs.append(HttpLab(Echo, **options))  # type: ignore[arg-type]
        return labs[-1]

    yield begin
    for lab in labs:
        lab.close()


def request(path: str = "/", method: str = "GET", body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: h", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def test_keep_alive_and_pipelining(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request())
        status, headers, body = receive_answer(sock)
        assert (status, body) == (200, b"GET 0") and headers["connection"] == "keep-alive"
        sock.sendall(
            request("/", "PUT", b"abc")
            + request("/no")
            + b"\r\n"
            + request("/", "POST", b"x" * 1000, "Connection: close")
        )
        text = receive_all(sock).decode()
    assert re.findall(r"HTTP/1.1 (\d+)", text) == ["200", "403", "200"]
    assert text.index("PUT 3") < text.index("Forbidden") < text.index("POST 1000")
    assert [one.status for one in lab.exchanges] == [200, 200, 403, 200]
    assert lab.exchanges[0].user == "somebody" and lab.exchanges[0].line == "GET / HTTP/1.1"


def test_a_request_byte_by_byte(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        for byte in request("/", "PUT", b"abc"):
            sock.sendall(bytes([byte]))
        assert receive_answer(sock)[2] == b"PUT 3"


def test_head_and_chunks_and_continue(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/", "HEAD"))
        data = sock.recv(65536)
        assert b"Content-Length: 6" in data and data.endswith(b"\r\n\r\n")
        sock.sendall(
            request("/", "PUT", b"", "Transfer-Encoding: chunked")
            + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: z\r\n\r\n"
        )
        assert receive_answer(sock)[2] == b"PUT 5"
        sock.sendall(request("/", "PUT", b"", "Expect: 100-continue", "Content-Length: 2"))
        assert sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ab")
        assert receive_answer(sock)[2] == b"PUT 2"


def test_a_refused_body_is_not_wanted(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(
            request(
                "/no",
                "PUT",
                b"",
                "Expect: 100-continue",
                f"Content-Length: {messages.MAX_BODY_BYTES}",
            )
        )
        text = receive_all(sock)
    assert text.startswith(b"HTTP/1.1 403") and b"X-Why: so" in text and b"100 Continue" not in text
    # Who sends it all the same still sees the answer.
    with lab.connect() as sock:
        sock.sendall(request("/early", "PUT", b"x" * 300_000))
        assert b"202 Accepted" in receive_all(sock)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"\xff" * 100 + b"\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (request("/", "PUT", b"", "Content-Length: 99999999"), 413),
        (request("/", "PUT", b"", "Transfer-Encoding: chunked") + b"zz\r\n", 400),
        (request("/", "PUT", b"", "Transfer-Encoding: chunked") + b"1\r\nabc\r\n", 400),
        (request("/", "PUT", b"", "Transfer-Encoding: chunked") + b"fffffff\r\n", 413),
    ],
)
def test_nonsense_is_answered_and_the_connection_ends(
    start: Start, data: bytes, status: int
) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(data)
        text = receive_all(sock)
    assert text.startswith(f"HTTP/1.1 {status} ".encode()), text
    assert b"Connection: close" in text
    with lab.connect() as sock:
        sock.sendall(request())
        assert receive_answer(sock)[0] == 200


def test_slow_clients_are_sent_away(start: Start) -> None:
    lab = start(limits=Limits(head_s=0.2, body_s=0.2, idle_s=0.2))
    with lab.connect() as head, lab.connect() as body, lab.connect() as idle:
        head.sendall(b"GET / HT")
        body.sendall(request("/", "PUT", b"", "Content-Length: 5") + b"ab")
        assert receive_all(head).startswith(b"HTTP/1.1 408")
        assert receive_all(body).startswith(b"HTTP/1.1 408")
        assert receive_all(idle) == b""


def test_a_connection_begins_with_the_name_of_its_client(start: Start) -> None:
    line = messages.introduction("192.0.2.7", "192.0.2.1", 80)
    lab = start(introduced=True)
    with lab.connect() as wrong, lab.connect() as good:
        wrong.sendall(request())
        assert receive_all(wrong) == b""
        good.sendall(line + request())
        assert receive_answer(good)[0] == 200
    _wait_for(lambda: bool(lab.exchanges))
    assert [one.peer for one in lab.exchanges] == ["192.0.2.7"]
    impatient = start(limits=Limits(head_s=0.2), introduced=True)
    with impatient.connect() as half:
        half.sendall(line[:-1])
        assert receive_all(half) == b""


def test_a_client_that_does_not_take_its_answer(start: Start) -> None:
    lab = start(limits=Limits(write_s=0.2))
    with lab.connect() as sock, lab.connect() as other:
        sock.sendall(request("/large"))
        _wait_for(lambda: lab.server.clients == 2)
        while lab.server.clients == 2:
            other.sendall(request())
            assert receive_answer(other)[0] == 200
        assert 0 < len(receive_all(sock)) < 32 << 20


def test_large_answers_share_what_there_is(start: Start) -> None:
    """Who began first and still does not take it is sent away; the last one gets all of it."""
    lab = start(limits=Limits(answers_bytes=70 << 20))
    idlers = [lab.connect() for _ in range(4)]
    for sock in idlers:
        sock.sendall(request("/large"))
    with lab.connect() as sock:
        _wait_for(lambda: lab.server.clients <= 3)
        sock.sendall(request("/large"))
        assert len(receive_answer(sock)[2]) == 32 << 20
    for sock in idlers:
        sock.close()


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes which are kept after each answer that begins."""
    found: list[int] = []
    real = UnreadAnswers.add

    def add(self: Any, connection: Any, size: int) -> list[Any]:
        ended: list[Any] = real(self, connection, size)
        found.append(self.bytes)
        return ended

    monkeypatch.setattr(UnreadAnswers, "add", add)
    return found


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("path", ["/middle", "/large"])
def test_what_clients_do_not_read_is_bounded(
    start: Start, peaks: list[int], tmp_path: Path, path: str, tls: bool
) -> None:
    """Bytes are counted, also those of many answers of which none is large."""
    most = (80 << 20) if path == "/large" else 1_000_000
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    lab = start(
        limits=Limits(answers_bytes=most, answers_per_address=most),
        tls=x509.plain_server_context(str(pem)) if tls else None,
    )

    def connect() -> socket.socket:
        sock = lab.connect()
        return x509.pinning_client_context().wrap_socket(sock) if tls else sock

    deaf = []
    for number in range(12):
        deaf.append(connect())
        # The kernels keep some MiB, so that each client asks for several answers.
        deaf[-1].sendall(request(path) * (1 if path == "/large" else 40))
        _wait_for(lambda before=number: len(peaks) > before)
    assert max(peaks) <= most
    with connect() as sock:
        sock.sendall(request(path))
        assert len(receive_answer(sock)[2]) == (32 << 20 if path == "/large" else 250_000)
    assert max(peaks) <= most
    for sock in deaf:
        sock.close()
    _wait_for(lambda: lab.server.unread_bytes == 0)


def test_who_reads_is_not_disconnected_for_those_who_do_not(start: Start) -> None:
    """The first one has begun before all others, and comes from elsewhere."""
    lab = start(limits=Limits(answers_bytes=70 << 20))
    deaf = []
    with socket.create_connection(
        ("127.0.0.1", lab.port), WAIT_S, source_address=("127.0.0.2", 0)
    ) as reader:
        reader.sendall(request("/large"))
        _wait_for(lambda: lab.server.unread_bytes >= 32 << 20)
        for _number in range(6):
            deaf.append(lab.connect())
            deaf[-1].sendall(request("/large"))
            _wait_for(lambda: lab.server.unread_bytes >= 64 << 20)
        assert len(receive_answer(reader)[2]) == 32 << 20
    for sock in deaf:
        sock.close()


def test_a_client_that_leaves(start: Start) -> None:
    lab = start()
    for data in (
        b"",
        b"GET /",
        request("/", "PUT", b"", "Content-Length: 5") + b"ab",
        request("/large"),
    ):
        sock = lab.connect()
        sock.sendall(data)
        sock.close()
    _wait_for(lambda: lab.server.clients == 0)


@pytest.mark.parametrize("with_tls", [True, False])
def test_what_only_reads_is_given_up_when_its_client_has_gone(
    start: Start, tmp_path: Path, with_tls: bool
) -> None:
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    lab = start(tls=x509.plain_server_context(str(pem)) if with_tls else None)
    application = lab.server.application
    for path in ("/read", "/change"):
        sock = lab.connect()
        if with_tls:
            sock = x509.pinning_client_context().wrap_socket(sock)
        else:
            # Without TLS, a client which has closed its side may still want the answer.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(request(path))
        _wait_for(lambda wanted=path: wanted in application.begun)
        sock.close()
    _wait_for(lambda: application.canceled == ["/read"])
    application.gate.set()
    _wait_for(lambda: application.ended == ["/change"])
    assert application.canceled == ["/read"]


def test_what_only_reads_is_answered_again_and_again(start: Start) -> None:
    lab = start()
    lab.server.application.gate.set()
    with lab.connect() as sock:
        for _ in range(3):
            sock.sendall(request("/read"))
            assert receive_answer(sock)[2] == b"GET 0"


def test_more_clients_than_may(start: Start) -> None:
    """The one that was idle longest goes."""
    lab = start(limits=Limits(clients=2))
    first, second = lab.connect(), lab.connect()
    for sock in (first, second):
        sock.sendall(request())
        assert receive_answer(sock)[0] == 200
    with lab.connect() as third:
        third.sendall(request())
        assert receive_answer(third)[0] == 200
        assert receive_all(first) == b""
        second.sendall(request())
        assert receive_answer(second)[0] == 200
    first.close()
    second.close()


def test_one_address_has_a_part_of_the_connections(start: Start) -> None:
    lab = start(limits=Limits(per_address=2))
    with lab.connect() as first, lab.connect() as second:
        for sock in (first, second):
            sock.sendall(request())
            assert receive_answer(sock)[0] == 200
        with lab.connect() as third:
            assert receive_all(third) == b""
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.settimeout(WAIT_S)
            other.connect(("127.0.0.1", lab.port))
            other.sendall(request())
            assert receive_answer(other)[0] == 200
        second.close()
        _wait_for(lambda: lab.server.clients == 1)
        with lab.connect() as fourth:
            fourth.sendall(request())
            assert receive_answer(fourth)[0] == 200


def _from(lab: HttpLab, address: str) -> socket.socket:
    """Return a connection whose first line says that its client has this address."""
    sock = lab.connect()
    sock.sendall(messages.introduction(address, "2001:db8::1", 80))
    return sock


def test_an_ipv6_network_counts_as_one_address(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with all addresses of its network gets no more than one with one of them."""
    lab = start(limits=Limits(per_address=2), introduced=True)
    own = [f"2001:db8:0:1::{number}" for number in range(1, 4)]
    with _from(lab, own[0]) as first, _from(lab, own[1]) as second:
        for sock in (first, second):
            sock.sendall(request())
            assert receive_answer(sock)[0] == 200
        with _from(lab, own[2]) as third:
            assert receive_all(third) == b""
        with _from(lab, "2001:db8:0:2::1") as other:
            other.sendall(request())
            assert receive_answer(other)[0] == 200

    lab = start(limits=Limits(bodies_bytes=1000, bodies_per_address=500), introduced=True)
    with _from(lab, own[0]) as first, _from(lab, own[1]) as second:
        first.sendall(request("/", "PUT", b"", "Content-Length: 400") + b"x" * 390)
        _wait_for(lambda: lab.server.bodies_bytes == 390)
        second.sendall(request("/", "PUT", b"y" * 200))
        assert receive_answer(second)[0] == 503
        first.sendall(b"x" * 10)
        assert receive_answer(first)[2] == b"PUT 400"
    _wait_for(lambda: lab.server.bodies_bytes == 0)

    lab = start(limits=Limits(unfinished_per_address=1), introduced=True)
    with _from(lab, own[0]) as first, _from(lab, own[1]) as second:
        first.sendall(b"GET / HT")
        _wait_for(lambda: lab.server.unfinished == 1)
        second.sendall(b"GET / HT")
        assert receive_answer(second)[0] == 503
        monkeypatch.setattr(event_server, "_JUST_BEGUN_S", 0.0)
        with _from(lab, own[2]) as third:
            third.sendall(request())
            assert receive_answer(third)[2] == b"GET 0"
        assert receive_all(first) == b""
    assert [one.peer for one in lab.exchanges][-1] == own[2]


def test_a_stream(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/stream", "GET", b"", "Connection: close"))
        text = receive_all(sock)
    assert text.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n") and b"chunked" in text
    with lab.connect() as sock:
        sock.sendall(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert receive_all(sock).endswith(b"\r\nConnection: close\r\n\r\nonetwo")
    with lab.connect() as sock:
        sock.sendall(request("/stream", "HEAD", b"", "Connection: close"))
        assert receive_all(sock).endswith(b"\r\n\r\n")


def test_bodies_share_what_there_is(start: Start) -> None:
    lab = start(limits=Limits(bodies_bytes=1000))
    with lab.connect() as sock, lab.connect() as other:
        sock.sendall(request("/", "PUT", b"", "Content-Length: 900") + b"x" * 850)
        _wait_for(lambda: lab.server.bodies_bytes == 850)
        other.sendall(request("/", "PUT", b"y" * 200))
        status, headers, _body = receive_answer(other)
        assert status == 503 and headers["retry-after"] == "5"
        sock.sendall(b"x" * 50)
        assert receive_answer(sock)[2] == b"PUT 900"
    with lab.connect() as sock:
        sock.sendall(request("/", "PUT", b"y" * 200))
        assert receive_answer(sock)[2] == b"PUT 200"
    assert lab.server.bodies_bytes == 0


def test_what_is_only_announced_takes_nothing_from_others(start: Start) -> None:
    lab = start()
    with contextlib.ExitStack() as stack:
        for headers in (
            (f"Content-Length: {messages.MAX_BODY_BYTES}",),
            ("Transfer-Encoding: chunked",),
        ):
            for _ in range(15):
                sock = stack.enter_context(lab.connect())
                sock.sendall(request("/", "PUT", b"", *headers))
                if "chunked" in headers[0]:
                    sock.sendall(b"%x\r\n" % messages.MAX_BODY_BYTES)
        _wait_for(lambda: lab.server.unfinished == 30)
        sock = stack.enter_context(lab.connect())
        sock.sendall(request("/", "PUT", b"z" * (9 << 20)))
        assert receive_answer(sock)[2] == f"PUT {9 << 20}".encode()


@pytest.mark.parametrize("body", [b"xyz", b""])
def test_the_application_says_how_large_a_body_may_be(start: Start, body: bytes) -> None:
    lab = start()
    chunked = ("Transfer-Encoding: chunked",)
    for path, wanted in (("/none", b"takes no body"), ("/small", b"may have 2 bytes")):
        with lab.connect() as sock:
            if body:
                sock.sendall(request(path, "PUT", b"", "Content-Length: 3"))
            else:
                sock.sendall(request(path, "PUT", b"", *chunked) + b"3\r\n")
            status, _headers, text = receive_answer(sock)
            assert status == 413 and wanted in text
    with lab.connect() as sock:
        sock.sendall(request("/small", "PUT", b"xy"))
        assert receive_answer(sock)[2] == b"PUT 2"
        sock.sendall(request("/none", "PUT"))
        assert receive_answer(sock)[2] == b"PUT 0"


def test_a_body_of_single_bytes_takes_little(start: Start) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/", "PUT", b"", "Content-Length: 2000"))
        for _ in range(1999):
            sock.sendall(b"x")
        _wait_for(lambda: lab.server.bodies_bytes == 1999)
        sock.sendall(b"x")
        assert receive_answer(sock)[2] == b"PUT 2000"


def test_one_address_has_a_part_of_the_memory_for_bodies(start: Start) -> None:
    lab = start(limits=Limits(bodies_bytes=1000, bodies_per_address=500))
    with lab.connect() as sock, lab.connect() as another, lab.connect("127.0.0.2") as other:
        sock.sendall(request("/", "PUT", b"", "Content-Length: 400") + b"x" * 390)
        _wait_for(lambda: lab.server.bodies_bytes == 390)
        another.sendall(request("/", "PUT", b"y" * 200))
        assert receive_answer(another)[0] == 503
        other.sendall(request("/", "PUT", b"z" * 500))
        assert receive_answer(other)[2] == b"PUT 500"
        sock.sendall(b"x" * 10)
        assert receive_answer(sock)[2] == b"PUT 400"
    with lab.connect() as sock:
        sock.sendall(request("/", "PUT", b"y" * 500))
        assert receive_answer(sock)[2] == b"PUT 500"


def test_unfinished_requests_keep_no_place(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections wait for the rest of a body, and a new client is served."""
    monkeypatch.setattr(event_server, "_JUST_BEGUN_S", 0.0)
    lab = start(limits=Limits(clients=6))
    unfinished = request("/", "PUT", b"", "Content-Length: 2") + b"x"
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(lab.connect("127.0.0.2"))
        own.sendall(unfinished)
        _wait_for(lambda: lab.server.unfinished == 1)
        flood = [stack.enter_context(lab.connect()) for _ in range(5)]
        for number, sock in enumerate(flood):
            sock.sendall(unfinished if number % 2 else b"GET / HT")
            _wait_for(lambda count=number: lab.server.unfinished == count + 2)
        with lab.connect("127.0.0.3") as sock:
            sock.sendall(request())
            assert receive_answer(sock)[2] == b"GET 0"
        # The oldest one of the address with most of them had to go, and not the oldest of all.
        assert receive_all(flood[0]) == b""
        own.sendall(b"x")
        assert receive_answer(own)[2] == b"PUT 2"


def test_one_address_has_a_part_of_the_unfinished_requests(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = start(limits=Limits(unfinished_per_address=2))
    unfinished = request("/", "PUT", b"", "Content-Length: 2") + b"x"
    with contextlib.ExitStack() as stack:
        one, two, three, four = (stack.enter_context(lab.connect()) for _ in range(4))
        for number, sock in enumerate((one, two)):
            sock.sendall(unfinished)
            _wait_for(lambda count=number: lab.server.unfinished == count + 1)
        # All of them have just begun.
        three.sendall(unfinished)
        assert receive_answer(three)[0] == 503
        monkeypatch.setattr(event_server, "_JUST_BEGUN_S", 0.0)
        four.sendall(unfinished + b"x")
        assert receive_answer(four)[2] == b"PUT 2"
        assert receive_all(one) == b""
        two.sendall(b"x")
        assert receive_answer(two)[2] == b"PUT 2"
        # A connection between two requests is not unfinished.
        _wait_for(lambda: lab.server.unfinished == 0)
        with lab.connect() as sock:
            sock.sendall(request())
            assert receive_answer(sock)[2] == b"GET 0"


def test_many_clients_and_little_memory(start: Start) -> None:
    """Hundreds of idle clients, of clients that never finish, and one that works."""
    lab = start()
    clients = [lab.connect() for _ in range(500)]
    try:
        for number, sock in enumerate(clients):
            sock.sendall(request() if number % 2 else b"GET / HTTP/1.1\r\nHost: h")
        for sock in clients[1::2]:
            assert receive_answer(sock)[0] == 200
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with lab.connect() as sock:
            for _ in range(20):
                sock.sendall(request("/", "PUT", b"z" * (5 << 20)))
                assert receive_answer(sock)[2] == f"PUT {5 << 20}".encode()
        assert lab.server.clients >= 500
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    finally:
        for sock in clients:
            sock.close()


def test_memory_of_large_requests_is_given_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = threading.Event()
    monkeypatch.setattr(memory, "GIVE_BACK_AFTER_S", 0.0)
    monkeypatch.setattr(memory, "give_back", given.set)
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/", "POST", b"x" * 1000))
        receive_answer(sock)
        assert lab.server._giving_back is None
        sock.sendall(request("/", "POST", b"x" * (2 << 20)))
        receive_answer(sock)
        assert given.wait(WAIT_S)
        given.clear()
        sock.sendall(request("/large"))
        receive_answer(sock)
        assert given.wait(WAIT_S)


def test_what_was_begun_is_answered_at_the_end(start: Start) -> None:
    lab = start()
    sock = lab.connect()
    sock.sendall(request("/wait"))
    idle = lab.connect()
    echo = lab.server.application
    assert isinstance(echo, Echo)
    _wait_for(lambda: lab.server.clients == 2)
    stopping = threading.Thread(target=lab.call, args=(lab.server.stop(WAIT_S),))
    stopping.start()
    assert receive_all(idle) == b""
    echo.gate.set()
    status, headers, _body = receive_answer(sock)
    assert status == 200 and headers["connection"] == "close"
    stopping.join(WAIT_S)


def test_tls(start: Start, tmp_path: Path) -> None:
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    lab = start(tls=x509.plain_server_context(str(pem)), limits=Limits(head_s=0.5))
    context = x509.pinning_client_context()
    plain = lab.connect()
    unresponsive = lab.connect()
    plain.sendall(request())
    with context.wrap_socket(lab.connect()) as sock:
        assert sock.version() in ("TLSv1.2", "TLSv1.3")
        sock.sendall(request("/large"))
        assert len(receive_answer(sock)[2]) == 32 << 20
        sock.sendall(request("/", "PUT", b"x" * (9 << 20)))
        assert receive_answer(sock)[2] == f"PUT {9 << 20}".encode()
    assert b"HTTP" not in receive_all(plain)
    assert receive_all(unresponsive) == b""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)), old.wrap_socket(lab.connect()):
        pass
    plain.close()
    unresponsive.close()


def test_how_many_clients() -> None:
    assert 1 <= client_limit(50) <= 50


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
