"""The loop that serves the local socket, met by clients of every kind."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.luxi import protocol as wire
from ganeti.master import luxi_server
from ganeti.master.luxi_server import (
    LuxiHandler,
    LuxiRequest,
    LuxiServer,
    MemoryLimits,
    clients_for,
)
from ganeti.utils import memory, net
from ganeti.utils.effort import LOOK_EVERY, Effort
from ganeti.utils.unread import UnreadAnswers

PATIENCE_S = 60.0


class Echo:
    """Methods that do what their names say."""

    def __init__(self) -> None:
        self.held: list[LuxiRequest] = []
        self.begun: list[Any] = []
        self.gate = threading.Event()
        self.timed_out = 0
        self.ended: list[str] = []

    def handler(self, method: str) -> LuxiHandler | None:
        return {
            "Echo": LuxiHandler(lambda request: request.answer(request.args)),
            "Fail": LuxiHandler(self._fail),
            "Bug": LuxiHandler(self._bug),
            "Odd": LuxiHandler(lambda request: request.answer({1, 2})),
            "Slow": LuxiHandler(self._slow, slow=True),
            "Hold": LuxiHandler(self._hold),
            "Large": LuxiHandler(lambda request: request.answer("x" * request.args[0])),
            "Overlap": LuxiHandler(self._overlap, overlaps=True),
            "Work": LuxiHandler(self._work, slow=True),
        }.get(method)

    def _fail(self, request: LuxiRequest) -> None:
        raise errors.OpPrereqError("no", "wrong_state")

    def _bug(self, request: LuxiRequest) -> None:
        raise KeyError("oops")

    def _slow(self, request: LuxiRequest) -> None:
        self.begun.append(request.args)
        assert self.gate.wait(PATIENCE_S)
        request.answer("slow")

    def _work(self, request: LuxiRequest) -> None:
        """Work without end, until nobody waits for the answer any more."""
        effort = Effort(1 << 62, request.unwanted)
        self.begun.append(request.args)
        try:
            while not self.gate.is_set():
                effort.spend(LOOK_EVERY)
            request.answer("done")
        except errors.NoMasterError as err:
            self.ended.append(str(err))
            raise

    def _hold(self, request: LuxiRequest) -> None:
        def nothing() -> None:
            self.timed_out += 1
            request.answer("nochange")

        self.held.append(request)
        request.wait(request.args[0], nothing)

    def _overlap(self, request: LuxiRequest) -> None:
        self.begun.append(request.args)
        self.held.append(request)


class Lab:
    """A server in a thread."""

    def __init__(self, directory: Path, **kwargs: Any) -> None:
        self.path = str(directory / "socket")
        self.echo = Echo()
        listener = net.unix_listen(self.path, 0o600, backlog=4096)
        self.server = LuxiServer([listener], self.echo, **kwargs)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def client(self) -> luxi.Client:
        return luxi.Client(self.path)

    def raw(self) -> socket.socket:
        return net.unix_connect(self.path, PATIENCE_S)

    def stop(self) -> None:
        self.echo.gate.set()
        self.server.stop(grace_s=1.0)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, limit_bytes=100_000)
    yield made
    made.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def read_answers(sock: socket.socket, count: int) -> list[Any]:
    splitter = wire.Splitter(1 << 30)
    found: list[Any] = []
    while len(found) < count:
        data = sock.recv(1 << 16)
        assert data, f"closed after {len(found)} of {count} answers"
        found += splitter.feed(data)
    assert len(found) == count
    return found


def test_answers_and_errors(lab: Lab) -> None:
    with lab.client() as client:
        assert client.call("Echo", 1, "ü", None) == [1, "ü", None]
        with pytest.raises(errors.OpPrereqError) as caught:
            client.call("Fail")
        assert caught.value.ecode == "wrong_state"
        with pytest.raises(errors.GenericError, match="internal error: KeyError"):
            client.call("Bug")
        with pytest.raises(errors.GenericError, match="internal error: result"):
            client.call("Odd")
        with pytest.raises(errors.RequestError, match="no method 'Gone'"):
            client.call("Gone")
        assert client.call("Echo") == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"notjson\x03",
        b"\x03",
        b"{}\x03",
        b"\xff\x00\x03",
        b"[" * 50_000 + b"\x03",
        b'{"method":5,"args":[]}\x03',
        b'{"method":"Echo","args":"abc"}\x03',
    ],
)
def test_garbage_is_answered_and_the_connection_lives(lab: Lab, garbage: bytes) -> None:
    with lab.raw() as sock:
        sock.sendall(garbage + wire.encode_request("Echo", [1]))
        refused, fine = read_answers(sock, 2)
        with pytest.raises(errors.RequestError, match="failed to parse request"):
            wire.parse_answer(refused)
        assert wire.parse_answer(fine) == [1]


def test_an_oversized_message_is_refused_and_the_connection_lives(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Echo", ["x" * 500_000]))
        sock.sendall(wire.encode_request("Echo", [2]))
        refused, fine = read_answers(sock, 2)
        with pytest.raises(errors.RequestError, match="larger than 100000 bytes"):
            wire.parse_answer(refused)
        assert wire.parse_answer(fine) == [2]


def test_large_messages_of_many_clients_share_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LARGE_BYTES", 10_000)
    lab = Lab(tmp_path, limit_bytes=100_000, memory_limits=MemoryLimits(150_000))
    try:
        first, second = lab.raw(), lab.raw()
        message = wire.encode_request("Echo", ["x" * 90_000])
        first.sendall(message[:85_000])
        until(lambda: lab.server._waiting_bytes == 85_000)
        second.sendall(message + wire.encode_request("Echo", [2]))
        refused, fine = read_answers(second, 2)
        with pytest.raises(errors.RequestError, match="too many large messages at once"):
            wire.parse_answer(refused)
        assert wire.parse_answer(fine) == [2]
        first.sendall(message[85_000:])
        assert wire.parse_answer(read_answers(first, 1)[0]) == ["x" * 90_000]
        first.sendall(message[:50_000])
        until(lambda: lab.server._waiting_bytes == 50_000)
        first.close()
        second.close()
        until(lambda: lab.server._waiting_bytes == 0)
    finally:
        lab.stop()


def test_a_client_with_a_large_message_waiting_is_not_read(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    try:
        sock = lab.raw()
        sock.sendall(wire.encode_request("Slow", []))
        until(lambda: len(lab.echo.begun) == 1)
        sending = threading.Thread(
            target=sock.sendall, args=(wire.encode_request("Echo", ["x" * (2 << 20)]) * 5,)
        )
        sending.start()
        until(lambda: lab.server._waiting_bytes >= 2 << 20)
        assert lab.server._waiting_bytes < 3 << 20
        lab.echo.gate.set()
        assert len(read_answers(sock, 6)) == 6
        sending.join()
        sock.close()
    finally:
        lab.stop()


def test_memory_of_large_requests_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = threading.Event()
    monkeypatch.setattr(memory, "GIVE_BACK_AFTER_S", 0.0)
    monkeypatch.setattr(memory, "give_back", given.set)
    lab = Lab(tmp_path)
    try:
        with lab.client() as client:
            client.call("Echo", "x" * 1000)
            assert not given.is_set() and not lab.server._giving_back
            client.call("Echo", "x" * (2 << 20))
            assert given.wait(PATIENCE_S)
    finally:
        lab.stop()


def test_byte_by_byte(lab: Lab) -> None:
    with lab.raw() as sock:
        for byte in wire.encode_request("Echo", ["slowly"]):
            sock.send(bytes([byte]))
        assert wire.parse_answer(read_answers(sock, 1)[0]) == ["slowly"]


def test_pipelining_keeps_the_order(lab: Lab) -> None:
    requests: list[tuple[str, list[Any]]] = [("Echo", [number]) for number in range(500)]
    requests[17] = ("Fail", [])
    with lab.client() as client:
        results = client.pipeline(requests)
    assert isinstance(results.pop(17), errors.OpPrereqError)
    assert results == [[number] for number in range(500) if number != 17]


def test_overlapping_requests_share_time_and_others_wait_for_them(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(
            b"".join(wire.encode_request("Overlap", [number]) for number in range(3))
            + wire.encode_request("Echo", ["after"])
        )
        until(lambda: len(lab.echo.begun) == 3)
        for request in reversed(lab.echo.held):
            assert not net.wait_readable([sock], 0)
            request.answer(request.args)
        answers = read_answers(sock, 4)
    assert [wire.parse_answer(answer) for answer in answers] == [[0], [1], [2], ["after"]]


def test_one_request_at_a_time_otherwise(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Slow", [1]) + wire.encode_request("Slow", [2]))
        until(lambda: len(lab.echo.begun) == 1)
        with lab.client() as other:
            assert other.call("Echo") == []
        assert len(lab.echo.begun) == 1
        lab.echo.gate.set()
        read_answers(sock, 2)


def test_slow_requests_leave_the_quick_ones_alone(lab: Lab) -> None:
    socks = [lab.raw() for _ in range(40)]
    for sock in socks:
        sock.sendall(wire.encode_request("Slow", []))
    until(lambda: len(lab.echo.begun) == 16)
    with lab.client() as client:
        assert client.call("Echo", 1) == [1]
    lab.echo.gate.set()
    for sock in socks:
        read_answers(sock, 1)
        sock.close()


def test_a_held_request_times_out(lab: Lab) -> None:
    with lab.client() as client:
        assert client.call("Hold", 0.01) == "nochange"
        assert client.call("Echo", 1) == [1]


def test_a_held_request_is_answered_from_another_thread(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Hold", [1000]))
        until(lambda: len(lab.echo.held) == 1)
        lab.echo.held[0].answer("changed")
        lab.echo.held[0].answer("changed twice")
        assert wire.parse_answer(read_answers(sock, 1)[0]) == "changed"
    assert lab.echo.timed_out == 0


def test_a_client_that_goes_away_ends_its_wait(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Hold", [1000]))
        until(lambda: len(lab.echo.held) == 1)
    until(lambda: lab.echo.timed_out == 1)
    until(lambda: lab.server.connections == 0)


def test_a_half_closed_client_gets_its_answers(lab: Lab) -> None:
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Echo", [1]) + wire.encode_request("Echo", [2]))
        sock.shutdown(socket.SHUT_WR)
        assert len(read_answers(sock, 2)) == 2
        assert sock.recv(1) == b""


def test_work_ends_when_its_client_has_gone(lab: Lab) -> None:
    raw = lab.raw()
    raw.sendall(wire.encode_request("Work", []))
    until(lambda: bool(lab.echo.begun))
    raw.close()
    until(lambda: lab.echo.ended == ["the client has gone"])
    assert lab.client().call("Echo", 1) == [1]


def test_work_goes_on_for_a_client_which_ended_its_sending(lab: Lab) -> None:
    with lab.raw() as raw:
        raw.sendall(wire.encode_request("Work", []))
        raw.shutdown(socket.SHUT_WR)
        until(lambda: bool(lab.echo.begun))
        assert lab.client().call("Echo", 1) == [1]
        assert not lab.echo.ended
        lab.echo.gate.set()
        assert b"done" in raw.recv(1000)


def test_work_ends_when_the_daemon_stops(lab: Lab) -> None:
    with lab.raw() as raw:
        raw.sendall(wire.encode_request("Work", []))
        until(lambda: bool(lab.echo.begun))
        # Jobs still run, and clients wait for them.
        lab.server.end_long_work()
        assert b"the master daemon is being stopped" in raw.recv(1000)
    assert lab.echo.ended == ["the master daemon is being stopped, and answers only short requests"]
    assert lab.client().call("Echo", 1) == [1]


def test_what_a_client_does_not_read_is_bounded(lab: Lab) -> None:
    """Large answers are not computed in advance for a client that takes none."""
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Large", [200_000]) * 300)
        until(lambda: lab.server.connections == 1)
        connection = next(iter(lab.server._connections))
        until(lambda: connection.outbox_bytes >= 1 << 20)
        with lab.client() as client:
            assert client.call("Echo") == []
        assert connection.outbox_bytes < (1 << 20) + 300_000
        assert len(read_answers(sock, 300)) == 300


def test_what_all_clients_do_not_read_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are counted. The connections which took nothing for longest end, and readers do not."""
    most = 20_000_000
    lab = Lab(tmp_path, memory_limits=MemoryLimits(1 << 27, 1 << 40, most))
    peaks: list[int] = []
    real = UnreadAnswers.add

    def add(self: Any, connection: Any, size: int) -> list[Any]:
        ended: list[Any] = real(self, connection, size)
        peaks.append(self.bytes)
        return ended

    monkeypatch.setattr(UnreadAnswers, "add", add)
    deaf = [lab.raw() for _number in range(12)]
    for number, sock in enumerate(deaf):
        sock.sendall(wire.encode_request("Large", [4_000_000]))
        until(lambda before=number: len(peaks) > before)
    assert max(peaks) <= most
    with lab.client() as client:
        large = client.call("Large", 8_000_000)
        assert len(large) == 8_000_000
    assert max(peaks) <= most
    # The oldest ones have lost their connection; the last one still gets its answer.
    with contextlib.suppress(ConnectionError):
        while deaf[0].recv(1 << 20):
            pass
    assert len(read_answers(deaf[-1], 1)) == 1
    for sock in deaf:
        sock.close()
    until(lambda: lab.server.unread_bytes == 0)
    lab.stop()


@pytest.mark.parametrize("own", [True, False])
def test_who_reads_a_part_is_counted_with_the_whole(tmp_path: Path, own: bool) -> None:
    """The memory of an answer is free only when all of it was taken."""
    limits = (1 << 40, 10_000_000) if own else (10_000_000, 1 << 40)
    lab = Lab(tmp_path, memory_limits=MemoryLimits(1 << 27, *limits))
    with lab.raw() as first, lab.raw() as second:
        first.sendall(wire.encode_request("Large", [6_000_000]))
        until(lambda: lab.server.unread_bytes > 6_000_000)
        got = len(first.recv(5_000_000, socket.MSG_WAITALL))
        assert lab.server.unread_bytes > 6_000_000
        second.sendall(wire.encode_request("Large", [6_000_000]))
        until(lambda: lab.server.connections == 1)
        with contextlib.suppress(ConnectionError):
            while data := first.recv(1 << 20):
                got += len(data)
        assert got < 6_000_000, "its connection has ended"
        assert len(read_answers(second, 1)) == 1
    lab.stop()


def test_requests_are_not_read_without_end(lab: Lab) -> None:
    sock = lab.raw()
    sock.sendall(wire.encode_request("Slow", []))
    until(lambda: len(lab.echo.begun) == 1)
    connection = next(iter(lab.server._connections))
    sock.setblocking(False)

    def full() -> bool:
        with contextlib.suppress(BlockingIOError):
            sock.send(b"x\x03" * 100)
        return not connection.events

    until(full)
    # One reading more than the limit at most: 64 KiB of the smallest messages.
    assert len(connection.inbox) < 100 + (1 << 15)
    sock.close()


def test_a_client_that_makes_no_progress_is_disconnected(tmp_path: Path) -> None:
    lab = Lab(tmp_path, patience_s=0.05)
    with lab.raw() as half, lab.raw() as deaf, lab.raw() as idle:
        half.sendall(b'{"method":')
        deaf.sendall(wire.encode_request("Large", [5_000_000]))
        assert half.recv(1) == b""
        until(lambda: lab.server.connections == 1)
        idle.sendall(wire.encode_request("Echo", []))
        assert len(read_answers(idle, 1)) == 1, "an idle client is not disturbed"
    lab.stop()


def test_a_stop_answers_what_is_held(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Hold", [1000]))
        until(lambda: len(lab.echo.held) == 1)
        lab.server.stop(grace_s=PATIENCE_S)
        assert wire.parse_answer(read_answers(sock, 1)[0]) == "nochange"
        assert sock.recv(1) == b""
    lab.thread.join(PATIENCE_S)
    with pytest.raises(ConnectionRefusedError):
        lab.raw()
    lab.stop()


def test_a_stop_does_not_wait_longer_than_its_grace(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with lab.raw() as sock:
        sock.sendall(wire.encode_request("Slow", []))
        until(lambda: len(lab.echo.begun) == 1)
        lab.server.stop(grace_s=0.05)
        lab.thread.join(PATIENCE_S)
        assert not lab.thread.is_alive()
    lab.stop()


def test_signals_come_through_a_file_descriptor(tmp_path: Path) -> None:
    echo = Echo()
    server = LuxiServer([net.unix_listen(str(tmp_path / "socket"), 0o600)], echo)
    receive, send = os.pipe()
    thread = threading.Thread(target=server.serve, args=(receive, server.stop))
    thread.start()
    os.write(send, b"x")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    os.close(receive)
    os.close(send)


def test_five_thousand_idle_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_300  # both ends are in this process
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    lab = Lab(tmp_path)
    try:
        idle = [lab.raw() for _ in range(5000)]
        until(lambda: lab.server.connections == 5000)
        threads = threading.active_count()
        with lab.client() as client:
            for number in range(100):
                assert client.call("Echo", number) == [number]
        assert threading.active_count() - threads <= 4
        for sock in idle[::500]:
            sock.sendall(wire.encode_request("Echo", ["alive"]))
            assert wire.parse_answer(read_answers(sock, 1)[0]) == ["alive"]
        for sock in idle:
            sock.close()
        until(lambda: lab.server.connections == 0)
    finally:
        lab.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptors_left_is_survived(lab: Lab) -> None:
    """The server goes on serving those it has, and accepts again later."""
    first = lab.raw()
    first.sendall(wire.encode_request("Echo", [1]))
    read_answers(first, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    second = socket.socket(socket.AF_UNIX)
    second.settimeout(PATIENCE_S)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(used, soft), hard))
        filler = []
        with contextlib.suppress(OSError):
            while True:
                filler.append(os.dup(0))
        second.connect(lab.path)
        second.sendall(wire.encode_request("Echo", [2]))
        first.sendall(wire.encode_request("Echo", [3]))
        assert wire.parse_answer(read_answers(first, 1)[0]) == [3]
    finally:
        for fd in filler:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert wire.parse_answer(read_answers(second, 1)[0]) == [2]
    first.close()
    second.close()


# -- more clients than files ---------------------------------------------------------------------


@pytest.mark.parametrize(("files", "clients"), [(1024, 768), (65536, 57344), (100, 1)])
def test_files_are_left_for_other_work(files: int, clients: int) -> None:
    assert clients_for(files) == clients


def test_a_further_client_takes_the_place_of_the_idle_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path, max_clients=3)
    try:
        busy = lab.raw()
        busy.sendall(wire.encode_request("Hold", [PATIENCE_S]))
        until(lambda: lab.echo.held)
        idle = lab.raw()
        until(lambda: lab.server.connections == 2)
        for _ in range(20):
            with contextlib.closing(lab.client()) as client:
                assert client.call("Echo", ["here"]) == [["here"]]
            assert lab.server.connections <= 3
        keep = [lab.raw() for _ in range(20)]
        until(lambda: idle.recv(1) == b"")
        assert lab.server.connections <= 3
        # The busy client gets its answer.
        lab.echo.held[0].answer("done")
        assert b"done" in busy.recv(1000)
        for sock in (*keep, idle, busy):
            sock.close()
    finally:
        lab.stop()


def test_no_client_is_accepted_while_all_are_busy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(luxi_server, "_NO_FD_PAUSE_S", 0.01)
    lab = Lab(tmp_path, max_clients=2)
    try:
        busy = [lab.raw() for _ in range(2)]
        for number, sock in enumerate(busy):
            sock.sendall(wire.encode_request("Hold", [PATIENCE_S, number]))
        until(lambda: len(lab.echo.held) == 2)
        third = lab.raw()
        third.sendall(wire.encode_request("Echo", ["third"]))
        until(lambda: "each has a request under way" in caplog.text)
        assert lab.server.connections == 2
        # The requests of two clients may be read in either order.
        answered = busy[lab.echo.held[0].args[1]]
        lab.echo.held[0].answer("done")
        assert b"done" in answered.recv(1000)
        assert b"third" in third.recv(1000)
        for sock in (*busy, third):
            sock.close()
    finally:
        lab.stop()


def test_a_late_wake_up_is_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the loop would find it again and again, and run without a pause."""
    rounds = 0
    run, write = lab.server._run_posted, os.eventfd_write

    def counted() -> None:
        nonlocal rounds
        rounds += 1
        run()

    def late(descriptor: int, value: int) -> None:
        monkeypatch.setattr(os, "eventfd_write", write)
        before = rounds
        with lab.raw():  # A connection lets the loop run.
            until(lambda: rounds > before)
        write(descriptor, value)

    monkeypatch.setattr(lab.server, "_run_posted", counted)
    monkeypatch.setattr(os, "eventfd_write", late)
    done = threading.Event()
    lab.server.post(done.set)
    assert done.wait(PATIENCE_S)
    until(lambda: not lab.server._wake_pending)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(lab.server._wake_fd)
