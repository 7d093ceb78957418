"""Addresses, and unix sockets of any length."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from ganeti.utils import net, retry


@pytest.mark.parametrize(
    ("text", "is_ip"),
    [("127.0.0.1", True), ("::1", True), ("1.2.3", False), ("", False), ("a", False),
     ("1\0", False)],
)  # fmt: skip
def test_is_ip(text: str, is_ip: bool) -> None:
    assert net.is_ip(text) is is_ip


def test_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert net.tcp_ping("127.0.0.1", port, 10)
        assert net.tcp_ping("127.0.0.1", port, 10, source="127.0.0.2")
        assert net.tcp_listens("127.0.0.1", port, 10)
    assert net.tcp_ping("127.0.0.1", port, 10)  # refused is an answer
    assert not net.tcp_listens("127.0.0.1", port, 10)
    assert not net.tcp_ping("127.0.0.1", port, 10, source="192.0.2.1")


def test_answers_on_a_listening_socket_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY only for sockets that were made with the protocol."""

    async def accepted_option() -> int:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[int] = loop.create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connection = transport.get_extra_info("socket")
                found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        listener = net.tcp_listen("127.0.0.1", 0, backlog=1)
        server = await loop.create_server(Server, sock=listener)
        _reader, writer = await asyncio.open_connection(*listener.getsockname())
        option = await found
        writer.close()
        server.close()
        return option

    assert asyncio.run(accepted_option())


def test_tcp_listen_tells_what_is_wrong() -> None:
    with pytest.raises(OSError, match="assign"):
        net.tcp_listen("192.0.2.1", 0, backlog=1)
    with net.tcp_listen("192.0.2.1", 0, backlog=1, free_bind=True) as listener:
        assert listener.getsockname()[0] == "192.0.2.1"
    with net.tcp_listen("127.0.0.1", 0, backlog=1) as listener:
        address, port = listener.getsockname()
        with pytest.raises(OSError, match="in use"):
            net.tcp_listen(address, port, backlog=1)


@pytest.mark.parametrize("depth", [1, 12])
def test_unix_sockets_of_any_length(tmp_path: Path, depth: int) -> None:
    directory = tmp_path.joinpath(*["deeper-and-deeper"] * depth)
    directory.mkdir(parents=True)
    path = str(directory / "ganeti-master")
    with pytest.raises(FileNotFoundError):
        net.unix_connect(path)
    for _ in range(2):  # the second time over a stale socket
        with net.unix_listen(path, 0o660) as server:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
            with net.unix_connect(path, timeout_s=10) as client:
                served, _address = server.accept()
                with served:
                    client.sendall(b"ping")
                    assert served.recv(10) == b"ping"
        with pytest.raises(ConnectionRefusedError):
            net.unix_connect(path)


def test_a_server_which_is_busy_accepting_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with net.unix_listen(path, backlog=1) as server, contextlib.ExitStack() as clients:
        with pytest.raises(TimeoutError):
            while True:
                clients.enter_context(net.unix_connect(path, 0.05))
        accepting = threading.Timer(0.1, lambda: server.accept()[0].close())
        accepting.start()
        net.unix_connect(path, 60).close()
        accepting.join()


def test_how_many_connections_wait() -> None:
    with net.tcp_listen("127.0.0.1", 0, backlog=5) as listening:
        address = listening.getsockname()
        assert net.waiting_connections(listening) == 0
        with socket.create_connection(address), socket.create_connection(address):
            net.wait_readable([listening], 10.0)
            retry.until(lambda: _two_wait(listening), timeout_s=10.0)
            listening.accept()[0].close()
            assert net.waiting_connections(listening) == 1
    first, second = socket.socketpair()
    with first, second:
        assert net.waiting_connections(first) == 0


def _two_wait(listening: socket.socket) -> None:
    found = net.waiting_connections(listening)
    if found != 2:
        raise retry.Again(f"{found} connections wait")


def test_idle_connections_are_kept_by_the_kernel() -> None:
    """Only those on which something was sent wait to be accepted."""
    with net.tcp_listen("127.0.0.1", 0, backlog=5, talking=True) as listening:
        listening.setblocking(False)
        address = listening.getsockname()
        with socket.create_connection(address), socket.create_connection(address) as talking:
            assert net.waiting_connections(listening) == 0
            talking.sendall(b"x")
            assert net.wait_readable([listening], 30.0)
            accepted, peer = listening.accept()
            with accepted:
                assert peer == talking.getsockname() and accepted.recv(10) == b"x"
            with pytest.raises(BlockingIOError):
                listening.accept()


def test_a_connection_which_is_closed_at_once_is_no_silent_one() -> None:
    """Programs check so whether a port answers."""
    with net.tcp_listen("127.0.0.1", 0, backlog=5, talking=True) as listening:
        address, port = listening.getsockname()
        assert net.tcp_listens(address, port, 10)
        assert net.wait_readable([listening], 30.0)
        accepted, _peer = listening.accept()
        with accepted:
            assert accepted.recv(10) == b""
