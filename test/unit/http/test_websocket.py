"""WebSockets of the event server, with the client of another library and with single frames."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import WAIT_S, HttpLab, receive_all, receive_answer
from ganeti.http import frames
from ganeti.http.event_server import Accepted, Incoming, Limits
from ganeti.http.messages import Refused, Response
from ganeti.http.websocket import Socket, SocketClosed, WebSocket
from ganeti.utils import x509

pytest.importorskip("wsproto", reason="make venv installs it")

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Talk:
    """An application whose paths are WebSockets which do one thing each."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.sent = 0

    async def begin(self, incoming: Incoming) -> Accepted | Response | WebSocket:
        path = incoming.head.path
        if path == "/no":
            raise Refused(403)
        if path == "/plain":
            return Response(200, b"an answer")
        run = getattr(self, "run_" + path[1:])
        most = 0 if path == "/mute" else 1000 if path == "/small" else frames.MESSAGE_BYTES

        async def noted(one: Socket) -> None:
            try:
                await run(one)
                self.ended.append("returned")
            except asyncio.CancelledError:
                self.ended.append("canceled")
                raise
            except SocketClosed:
                self.ended.append("closed")
                raise

        return WebSocket("somebody", noted, most)

    def refusal(self, refused: Refused) -> Response:
        return Response(refused.status, str(refused).encode(), list(refused.headers))

    async def run_echo(self, one: Socket) -> None:
        while (text := await one.receive()) is not None:
            await one.send(text)

    run_small = run_echo

    async def run_mute(self, one: Socket) -> None:
        assert await one.receive() is None

    async def run_once(self, one: Socket) -> None:
        await one.send("hello")

    async def run_refuse(self, one: Socket) -> None:
        raise Refused(403, "no longer allowed")

    async def run_later(self, one: Socket) -> None:
        raise Refused(503, "the master is away")

    async def run_wrong(self, one: Socket) -> None:
        raise ValueError("a fault of the application")

    async def run_deaf(self, one: Socket) -> None:
        await asyncio.Event().wait()

    async def run_flood(self, one: Socket) -> None:
        while True:
            await one.send("x" * 60_000)
            self.sent += 1

    async def run_close(self, one: Socket) -> None:
        await one.close(4000, "ä" * 100)


Start = Callable[..., HttpLab]


@pytest.fixture
def start() -> Iterator[Start]:
    labs = []

    def begin(**options: Any) -> HttpLab:
        labs.append(HttpLab(Talk, **options))
        return labs[-1]

    yield begin
    for lab in labs:
        lab.close()


KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    "Host: h",
    "Connection: keep-alive, Upgrade",
    "Upgrade: WebSocket",
    f"Sec-WebSocket-Key: {KEY}",
    "Sec-WebSocket-Version: 13",
)


def request(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = (f"{method} {path} HTTP/{version}", *headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def receive_head(sock: socket.socket) -> bytes:
    """The head of an answer, byte by byte, so that the frames after it stay."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        more = sock.recv(1)
        assert more, f"closed after {data!r}"
        data += more
    return data


def opened(lab: HttpLab, path: str, sock: socket.socket | None = None) -> socket.socket:
    sock = sock or lab.connect()
    sock.sendall(request(path, *HANDSHAKE))
    assert receive_head(sock).startswith(b"HTTP/1.1 101 ")
    return sock


def frame(opcode: int, payload: bytes = b"", *, last: bool = True, masked: bool = True) -> bytes:
    """A frame of a client."""
    size = len(payload)
    head = bytes([opcode | (0x80 if last else 0)])
    bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + size.to_bytes(2)
    else:
        head += bytes([bit | 127]) + size.to_bytes(8)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError(data)
        data += more
    return data


def receive_frame(sock: socket.socket) -> tuple[int, bytes]:
    """A frame of the server, which is whole and not masked."""
    first, second = exactly(sock, 2)
    assert first & 0xF0 == 0x80 and not second & 0x80
    size = second
    if size == 126:
        (size,) = struct.unpack("!H", exactly(sock, 2))
    elif size == 127:
        (size,) = struct.unpack("!Q", exactly(sock, 8))
    return first & 0x0F, exactly(sock, size)


def end_of(sock: socket.socket) -> tuple[int, str]:
    """Status and reason with which the server ends the connection; it has to end it."""
    opcode, payload = receive_frame(sock)
    assert opcode == CLOSE, payload
    with contextlib.suppress(OSError):
        sock.sendall(frame(CLOSE, payload[:2]))
    assert receive_all(sock) == b""
    return int.from_bytes(payload[:2]), payload[2:].decode()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def talk(lab: HttpLab) -> Talk:
    found = lab.server.application
    assert isinstance(found, Talk)
    return found


# -- handshake -------------------------------------------------------------------------------------


def test_a_handshake(start: Start) -> None:
    """The key and its answer are those of RFC 6455, section 1.3."""
    lab = start()
    with lab.connect() as sock:
        sock.sendall(
            request("/echo", *HANDSHAKE, "Sec-WebSocket-Extensions: permessage-deflate")
            + frame(TEXT, b"at once")
        )
        head = receive_head(sock).decode()
        assert receive_frame(sock) == (TEXT, b"at once")
    lines = head.split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in lines
    assert "Connection: Upgrade" in lines and "Upgrade: websocket" in lines
    assert "Extensions" not in head and "Content-Length" not in head
    digest = hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    assert base64.b64encode(digest).decode() == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("status", "missing", "instead"),
    [
        (426, "Sec-WebSocket-Version", ""),
        (426, "Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"),
        (400, "Sec-WebSocket-Key", ""),
        (400, "Sec-WebSocket-Key", "Sec-WebSocket-Key: c2hvcnQ="),
        (400, "Sec-WebSocket-Key", "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!!="),
        (400, "Sec-WebSocket-Key", "Sec-WebSocket-Key: \xe9" + KEY),
        (400, "nothing", "Content-Length: 4"),
        (400, "nothing", "Transfer-Encoding: chunked"),
    ],
)
def test_handshakes_which_are_wrong(start: Start, status: int, missing: str, instead: str) -> None:
    """The connection ends: what follows a refused handshake is no request."""
    lab = start()
    headers = [line for line in HANDSHAKE if not line.startswith(missing)]
    with lab.connect() as sock:
        sock.sendall(request("/echo", *headers, *([instead] if instead else ())))
        sock.sendall(b"GET /plain HTTP/1.1\r\nHost: h\r\n\r\n")
        text = receive_all(sock)
    assert text.startswith(b"HTTP/1.1 %d " % status) and text.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in text
    if status == 426:
        assert b"Sec-WebSocket-Version: 13" in text and b"Upgrade: websocket" in text
    assert lab.server.sockets == 0


@pytest.mark.parametrize("path", ["/no", "/plain"])
def test_nothing_follows_a_handshake_without_a_socket(start: Start, path: str) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request(path, *HANDSHAKE) + request("/plain", "Host: h"))
        text = receive_all(sock)
    assert text.count(b"HTTP/1.1") == 1 and b"Connection: close" in text


@pytest.mark.parametrize(
    ("method", "version", "headers"),
    [
        ("HEAD", "1.1", HANDSHAKE),
        ("POST", "1.1", HANDSHAKE),
        ("GET", "1.0", (*HANDSHAKE, "Connection: keep-alive")),
        ("GET", "1.1", ("Host: h", "Upgrade: websocket")),
        ("GET", "1.1", ("Host: h", "Connection: Upgrade", "Upgrade: h2c")),
    ],
)
def test_other_requests_are_ordinary_ones(
    start: Start, method: str, version: str, headers: tuple[str, ...]
) -> None:
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/plain", *headers, method=method, version=version))
        answer = receive_head(sock)
    assert answer.startswith(b"HTTP/1.1 200 ") and b"keep-alive" in answer


def test_without_the_package(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wsproto", None)
    lab = start()
    with lab.connect() as sock:
        sock.sendall(request("/echo", *HANDSHAKE))
        status, _headers, body = receive_answer(sock)
    assert status == 501 and b"python3-wsproto" in body


# -- messages --------------------------------------------------------------------------------------


def test_a_client_of_another_library(start: Start, tmp_path: Path) -> None:
    client = pytest.importorskip("websockets.sync.client")
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    lab = start(tls=x509.plain_server_context(str(pem)))
    where = f"wss://127.0.0.1:{lab.port}/echo"
    with client.connect(where, ssl=x509.pinning_client_context(), proxy=None) as one:
        for text in ("", "a", "ä€\U0001f600" * 20, "x" * 60_000):
            one.send(text)
            assert one.recv(WAIT_S) == text
        one.send(["in ", "three ", "parts"])
        assert one.recv(WAIT_S) == "in three parts"
        assert one.ping().wait(WAIT_S)
    wait_for(lambda: bool(lab.exchanges))
    assert (one.protocol.close_code, one.protocol.extensions) == (1000, [])
    (line,) = lab.exchanges
    assert (line.status, line.user, line.line) == (101, "somebody", "GET /echo HTTP/1.1")
    assert line.sent > 60_000 and line.seconds > 0
    assert lab.server.sockets == 0


def test_parts_of_messages_and_pings_between_them(start: Start) -> None:
    lab = start()
    with opened(lab, "/echo") as sock:
        data = (
            frame(TEXT, "ä".encode()[:1], last=False)
            + frame(PING, b"there?")
            + frame(0, b"", last=False)
            + frame(0, "ä".encode()[1:] + b"!")
            + frame(PONG, b"not asked for")
        )
        for byte in data:
            sock.sendall(bytes([byte]))
        assert receive_frame(sock) == (PONG, b"there?")
        assert receive_frame(sock) == (TEXT, "ä!".encode())
        sock.sendall(frame(CLOSE, b"\x03\xe8bye"))
        assert receive_frame(sock) == (CLOSE, b"\x03\xe8")
        assert receive_all(sock) == b""


def test_many_messages_are_kept_in_order(start: Start) -> None:
    lab = start()
    with opened(lab, "/echo") as sock:
        sender = threading.Thread(
            target=sock.sendall, args=(b"".join(frame(TEXT, b"%d" % one) for one in range(3000)),)
        )
        sender.start()
        assert [receive_frame(sock)[1] for _ in range(3000)] == [b"%d" % one for one in range(3000)]
        sender.join(WAIT_S)


@pytest.mark.parametrize(
    ("data", "code", "fragment"),
    [
        (frame(BINARY, b"x"), 1003, "text"),
        (frame(TEXT, b"\xff\xfe"), 1007, ""),
        (frame(TEXT, b"x", masked=False), 1002, "mask"),
        (frame(3), 1002, ""),
        (frame(0, b"x"), 1002, ""),
        (frame(PING, b"x", last=False), 1002, ""),
        (frame(PING, b"x" * 126), 1002, ""),
        (frame(CLOSE, b"\x00"), 1002, ""),
        (frame(CLOSE, b"\x03\xed"), 1002, ""),
        (b"\xc1" + frame(TEXT, b"x")[1:], 1002, ""),
        (frame(TEXT, b"a", last=False) + frame(TEXT, b"b"), 1002, ""),
        (frame(TEXT, b"x" * 1001), 1009, "1000 bytes"),
        (frame(TEXT, b"x" * 900, last=False) + frame(0, b"x" * 101, last=False), 1009, "1000"),
        (frame(TEXT, "ä".encode() * 501), 1009, "1000"),
        (b"\x81\xff" + (1 << 62).to_bytes(8) + b"mask" + b"x" * 1100, 1009, "1000"),
        (frame(TEXT, last=False) + frame(0, last=False) * 1025, 1008, "1024 fragments"),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1002, ""),
    ],
    # The masks are random, so names made of the data would differ between processes.
    ids=[str(number) for number in range(17)],
)
def test_what_a_client_may_not_send(start: Start, data: bytes, code: int, fragment: str) -> None:
    lab = start()
    with opened(lab, "/small") as sock:
        sock.sendall(data)
        found, reason = end_of(sock)
    assert found == code and fragment in reason
    wait_for(lambda: lab.server.sockets == 0)
    assert lab.server.bodies_bytes == 0
    assert len(talk(lab).ended) == 1


def test_a_message_where_none_is_expected(start: Start) -> None:
    lab = start()
    with opened(lab, "/mute") as sock:
        sock.sendall(frame(PING))
        assert receive_frame(sock) == (PONG, b"")
        sock.sendall(frame(TEXT))
        assert end_of(sock) == (1008, "no messages are expected here")


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/once", 1000, ""),
        ("/refuse", 1008, "no longer allowed"),
        ("/later", 1013, "the master is away"),
        ("/close", 4000, "ä" * 61),
    ],
)
def test_how_the_application_ends_a_connection(
    start: Start, path: str, code: int, reason: str
) -> None:
    lab = start()
    with opened(lab, path) as sock:
        if path == "/once":
            assert receive_frame(sock) == (TEXT, b"hello")
        assert end_of(sock) == (code, reason)
    wait_for(lambda: lab.server.sockets == 0)


def test_a_fault_of_the_application(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    lab = start()
    with opened(lab, "/wrong") as sock:
        assert end_of(sock) == (1011, "internal error")
    wait_for(lambda: lab.server.clients == 0)
    assert lab.server.sockets == 0


# -- slow, dead and greedy clients -----------------------------------------------------------------


def test_a_dead_client_is_noticed(start: Start) -> None:
    lab = start(limits=Limits(ping_s=0.2))
    with opened(lab, "/echo") as sock:
        # One which answers stays.
        for _ in range(4):
            assert receive_frame(sock) == (PING, b"")
            sock.sendall(frame(PONG))
        assert receive_frame(sock) == (PING, b"")
        assert receive_all(sock) == b""
    wait_for(lambda: len(talk(lab).ended) == 1)


def test_a_message_must_be_complete_in_time(start: Start) -> None:
    lab = start(limits=Limits(body_s=0.2))
    with opened(lab, "/echo") as sock:
        sock.sendall(frame(TEXT, b"x", last=False))
        with contextlib.suppress(OSError):
            while not lab.exchanges:
                sock.sendall(frame(0, b"y", last=False))
                time.sleep(0.02)
        assert end_of(sock)[0] == 1008


def test_what_a_client_does_not_read_is_bounded(start: Start) -> None:
    lab = start(limits=Limits(write_s=0.5))
    with opened(lab, "/flood") as sock:
        wait_for(lambda: talk(lab).ended == ["closed"])
        assert lab.server.unread_bytes == 0
        sent = talk(lab).sent
        # What the kernel keeps for both ends, and no more.
        assert sent * 60_000 < 32 << 20
        assert sock.recv(1)


def test_unread_messages_count_with_the_answers(start: Start) -> None:
    """Of the sockets which read nothing, some are ended for the limit; one which reads is not."""
    lab = start(limits=Limits(answers_bytes=1000, write_s=WAIT_S, ping_s=WAIT_S))
    with opened(lab, "/echo") as reads, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(opened(lab, "/flood"))
        # The echo, and one whose message is larger than the limit, but the only one.
        wait_for(lambda: lab.server.sockets == 2)
        reads.sendall(frame(TEXT, b"still here"))
        assert receive_frame(reads) == (TEXT, b"still here")
        assert lab.server.unread_bytes <= 61_000


def test_unfinished_messages_share_the_memory_for_bodies(start: Start) -> None:
    lab = start(limits=Limits(bodies_bytes=100_000))
    with opened(lab, "/echo") as first, opened(lab, "/echo") as second:
        first.sendall(frame(TEXT, b"x" * 60_000, last=False))
        wait_for(lambda: lab.server.bodies_bytes == 60_000)
        second.sendall(frame(TEXT, b"x" * 60_000, last=False))
        assert end_of(second)[0] == 1013
        first.sendall(frame(0, b"!"))
        assert receive_frame(first)[1] == b"x" * 60_000 + b"!"
        wait_for(lambda: lab.server.bodies_bytes == 0)


def test_an_application_which_does_not_receive_stops_the_client(start: Start) -> None:
    """Nobody reads meanwhile, so nobody sees that the client has gone: the time is limited."""
    lab = start(limits=Limits(ping_s=0.1, body_s=1, write_s=1))
    with opened(lab, "/deaf") as sock:
        sock.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 64 << 20:
                sent += sock.send(frame(TEXT, b"x" * 60_000))
        assert sent < 32 << 20
    wait_for(lambda: talk(lab).ended == ["canceled"])
    wait_for(lambda: lab.server.clients == 0)
    assert lab.server.sockets == 0


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_client_which_leaves(start: Start, way: str) -> None:
    lab = start()
    sock = opened(lab, "/deaf")
    if way == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    wait_for(lambda: talk(lab).ended == ["canceled"])
    wait_for(lambda: lab.server.clients == 0)
    assert lab.server.sockets == 0


def test_one_address_has_a_part_of_the_sockets(start: Start) -> None:
    lab = start(limits=Limits(sockets_per_address=2))
    with opened(lab, "/echo"), opened(lab, "/echo") as second:
        with lab.connect() as third:
            third.sendall(request("/echo", *HANDSHAKE))
            status, headers, body = receive_answer(third)
        assert (status, headers["retry-after"]) == (503, "5") and b"2 WebSockets" in body
        with opened(lab, "/echo", lab.connect("127.0.0.2")):
            pass
        with lab.connect() as sock:
            sock.sendall(request("/plain", "Host: h"))
            assert receive_answer(sock)[0] == 200
        second.sendall(frame(CLOSE))
        receive_all(second)
        wait_for(lambda: lab.server.sockets == 1)
        with opened(lab, "/echo"):
            pass


def test_a_server_which_stops_says_so(start: Start) -> None:
    lab = start()
    with opened(lab, "/deaf") as sock, opened(lab, "/deaf") as unresponsive:
        stopping = threading.Thread(target=lambda: lab.call(lab.server.stop(WAIT_S)))
        stopping.start()
        assert end_of(sock) == (1001, "the server stops")
        assert receive_frame(unresponsive)[0] == CLOSE
        # This one does not answer, but the time for that is limited.
        stopping.join(WAIT_S)
        assert not stopping.is_alive() and lab.server.clients == 0


# -- what is sent ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
def test_the_frames_of_messages(size: int) -> None:
    from wsproto import ConnectionType
    from wsproto.connection import Connection
    from wsproto.events import TextMessage

    other = Connection(ConnectionType.CLIENT)
    other.receive_data(frames.message("x" * size))
    texts = [one for one in other.events() if isinstance(one, TextMessage)]
    assert "".join(one.data for one in texts) == "x" * size and texts[-1].message_finished
    assert frames.message("a\ud800b").endswith(b"a?b")
