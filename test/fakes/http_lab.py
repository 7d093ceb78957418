"""An event server in a thread of its own, for tests which talk to it over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from ganeti.http.event_server import Exchange, Limits, Server, listen

WAIT_S = 60.0


class HttpLab:
    """Serves an application until closed.

    :param make: called in the loop's thread; returns the application.
    :param introduced: each connection begins with a line which names the client.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        introduced: bool = False,
    ) -> None:
        self._listener = listen("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.exchanges: list[Exchange] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event
        self.server: Server
        arguments = (make, limits, tls, introduced)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def _run(
        self,
        make: Callable[[], Any],
        limits: Limits | None,
        tls: ssl.SSLContext | None,
        introduced: bool,
    ) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            self.server = Server(
                make(), tls=tls, limits=limits, note=self.exchanges.append, introduced=introduced
            )
            await self.server.start([self._listener])
            self._ready.set()
            await self._stop.wait()
            await self.server.stop(1.0)

        self._loop.run_until_complete(serve())
        self._loop.close()

    def call(self, coroutine: Awaitable[Any]) -> Any:
        """Run something in the server's loop."""

        async def run() -> Any:
            return await coroutine

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection to the server, from an address of this machine."""
        sock = socket.create_connection(("127.0.0.1", self.port), WAIT_S, (source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def receive_answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one answer with a known length: status, headers, body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        assert more, f"closed after {data!r}"
        data += more
    start, body = data.split(b"\r\n\r\n", 1)
    first, *lines = start.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    status = int(first.split(" ")[1])
    wanted = int(headers.get("content-length", 0))
    whole = bytearray(body)
    while len(whole) < wanted:
        more = sock.recv(65536)
        assert more, "closed in the body"
        whole += more
    assert len(whole) == wanted, "more than one answer"
    return status, headers, bytes(whole)


def receive_all(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    found = bytearray()
    while True:
        try:
            more = sock.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            return bytes(found)
        found += more
