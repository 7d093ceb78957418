"""An HTTP server for many clients: one event loop, a coroutine for each connection.

The other server (:mod:`ganeti.http.server`) forks, because a node call may hang or crash. This one
is for daemons which only translate requests, and whose clients stay connected: an idle client costs
a coroutine and a file descriptor. The server calls an :class:`Application`, which gets the head of
a request first and may refuse it before a byte of the body was accepted, so that a client without a
password cannot make the server hold ten megabytes.

The resources of each client are limited. It has :data:`HEAD_S` for the TLS handshake and for the
head of a request after its first byte, :data:`BODY_S` for the body, :data:`IDLE_S` between
requests, and must receive a part of the answer every :data:`WRITE_S`. A client which exceeds a
limit gets an error, where that is possible, and is disconnected. The application says how large the
body of a request may be. Bodies share :data:`BODIES_BYTES`, which are counted as the bytes arrive,
so that a client which only announces much takes nothing from the others. Answers which were not
read yet share :data:`ANSWERS_BYTES`, and those of one address :data:`ADDRESS_ANSWERS_BYTES`. When
these are exceeded, a client is disconnected: of the address which has most unread answers, the one
which has not read anything for the longest time (:mod:`ganeti.utils.unread`). Requests of one
connection are answered one after the other; meanwhile the server reads no more than a small buffer
holds. A request which only reads is given up when its client has gone.

A request may begin a WebSocket (:mod:`ganeti.http.websocket`), of which one address may have
:attr:`Limits.sockets_per_address`. It is an idle connection in no respect: others do not end it.

When too many clients connect, the client which was idle longest is disconnected. When none is idle,
it is the one which has been sending its request for longest, among those of the address with most
of them; the same happens when one address has more unfinished requests than it may. When too many
TLS handshakes are not complete, the oldest one is disconnected. A whole IPv6 network of 64 bits
counts as one address (:func:`ganeti.http.peers.client_network`).

The loop must never wait: an application which has to compute for long does it in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from ganeti import errors
from ganeti.http import messages, peers, websocket
from ganeti.http.head import MAX_HEADERS
from ganeti.http.messages import Head, Refused, Response
from ganeti.http.tls_stream import TlsProtocol, Unserved
from ganeti.http.websocket import Socket, SocketClosed, WebSocket
from ganeti.utils import memory, net
from ganeti.utils.unread import UnreadAnswers

_log = logging.getLogger(__name__)

HEAD_S = 10.0
BODY_S = 60.0
IDLE_S = 300.0
WRITE_S = 30.0
PING_S = 20.0
_TLS_END_S = 5.0
# A refused client may still be sending; it reads the answer only if the server receives that.
_LINGER_S = 2.0
BODIES_BYTES = 128 << 20
ANSWERS_BYTES = 128 << 20
ADDRESS_ANSWERS_BYTES = 64 << 20
_PIECE_BYTES = 1 << 18
_SOCKET_READ_BYTES = 1 << 14
_BACKLOG = 512
# A request which has just begun is not given up in favour of another client.
_JUST_BEGUN_S = 1.0
# For this many clients there may be one more connection which is in its handshake, or at its end.
_UNSERVED_SHARE = 4


class Limits(NamedTuple):
    """Limits of one server: times in seconds, sizes in bytes.

    What is limited for one address is limited for a whole IPv6 network of 64 bits, because one
    client may have all its addresses.

    :ivar clients: number of connections at the same time.
    :ivar per_address: largest number of these from one address; None for no such limit.
    :ivar unfinished_per_address: largest number of requests of one address which are being received
        at the same time; None for no such limit.
    :ivar bodies_bytes: memory for the bodies of all requests which are received or carried out.
    :ivar bodies_per_address: largest part of this for one address; None for no such limit.
    :ivar answers_bytes: memory for answers which clients have not read yet. One answer may be
        larger, when there is no other one.
    :ivar answers_per_address: likewise, for the answers to one address.
    :ivar sockets_per_address: number of WebSockets of one address; None for no such limit.
    :ivar ping_s: a WebSocket from which nothing has come for so long is asked whether its client is
        there; after as long again without an answer it ends.
    """

    clients: int = 4000
    per_address: int | None = None
    unfinished_per_address: int | None = None
    head_s: float = HEAD_S
    body_s: float = BODY_S
    idle_s: float = IDLE_S
    write_s: float = WRITE_S
    bodies_bytes: int = BODIES_BYTES
    bodies_per_address: int | None = None
    answers_bytes: int = ANSWERS_BYTES
    answers_per_address: int = ADDRESS_ANSWERS_BYTES
    sockets_per_address: int | None = None
    ping_s: float = PING_S


class Incoming(NamedTuple):
    """A request whose head was received.

    :ivar peer: address of the client.
    :ivar certificate: SHA-256 of the certificate which the client has shown, in hexadecimal digits;
        empty without one.
    """

    head: Head
    peer: str
    certificate: str = ""


class Exchange(NamedTuple):
    """A request and its answer, for the access log.

    :ivar line: first line of the request.
    :ivar status: HTTP status of the answer.
    :ivar sent: length of the body of the answer in bytes.
    :ivar seconds: time which the request took.
    """

    peer: str
    user: str
    line: str
    status: int
    sent: int
    referer: str
    agent: str
    seconds: float


class Accepted(NamedTuple):
    """A request whose head was accepted.

    :ivar user: name of the user, for the access log.
    :ivar answer: called with the body; returns the answer.
    :ivar most_body_bytes: the largest body; 0 for a request which takes none.
    :ivar only_reads: the request changes nothing, so ``answer`` is canceled when the client has
        gone.
    """

    user: str
    answer: Callable[[bytes], Coroutine[Any, Any, Response]]
    most_body_bytes: int = messages.MAX_BODY_BYTES
    only_reads: bool = False


class Application(Protocol):
    """The application which answers the requests."""

    async def begin(self, incoming: Incoming) -> Accepted | Response | WebSocket:
        """Check the head of a request: accept it, or answer it without its body.

        A WebSocket is an answer only to its handshake (:func:`ganeti.http.websocket.wanted`).

        :raises Refused: the request is refused with an error.
        """

    def refusal(self, refused: Refused) -> Response:
        """Return the answer to a refused request."""


class _Gone(SocketClosed):
    """The client has closed the connection, or the server has."""


class Server:
    """Serves an application on listening sockets.

    :param tls: the TLS settings; None for plain HTTP.
    :param note: called after each exchange.
    :param introduced: each connection begins with a line which names the client
        (:func:`~ganeti.http.messages.parse_introduction`); for listeners to which only a proxy can
        connect.
    """

    def __init__(
        self,
        application: Application,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        note: Callable[[Exchange], None] = lambda _exchange: None,
        server_name: str = "Ganeti",
        introduced: bool = False,
    ) -> None:
        self._application = application
        self._introduced = introduced
        self._tls = tls
        self._limits = limits or Limits()
        self._note = note
        self.server_name = server_name
        self._servers: list[asyncio.Server] = []
        # Idle connections, in the order in which they became idle.
        self._idle: dict[_Connection, None] = {}
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        # Connections whose request is being received, with the time of its first byte, in the order
        # in which these came.
        self._receiving: dict[_Connection, float] = {}
        # What each address has: connections, unfinished requests, bytes of bodies, WebSockets.
        self._clients_of: Counter[str] = Counter()
        self._unfinished_of: Counter[str] = Counter()
        self._bodies_of: Counter[str] = Counter()
        self._sockets_of: Counter[str] = Counter()
        # Connections with TLS on which no client is served: handshakes, and ends of connections.
        self._unserved = Unserved(max(1, self._limits.clients // _UNSERVED_SHARE))
        self._bodies_bytes = 0
        self._giving_back: asyncio.TimerHandle | None = None
        self._unread: UnreadAnswers[_Connection] = UnreadAnswers(
            self._limits.answers_bytes,
            self._limits.answers_per_address,
            lambda connection: connection.network,
        )

    @property
    def unserved(self) -> int:
        """Number of connections which are in their TLS handshake, or at their end."""
        return len(self._unserved)

    @property
    def clients(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    @property
    def bodies_bytes(self) -> int:
        """Size of all bodies, as far as they have come, in bytes."""
        return self._bodies_bytes

    @property
    def unread_bytes(self) -> int:
        """Size of all answers which clients have not read yet, in bytes."""
        return self._unread.bytes

    @property
    def sockets(self) -> int:
        """Number of connected WebSockets."""
        return self._sockets_of.total()

    @property
    def unfinished(self) -> int:
        """Number of requests which are being received."""
        return len(self._receiving)

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            self._servers.append(
                await loop.create_server(self._new_protocol, sock=listener, backlog=_BACKLOG)
            )

    def _new_protocol(self) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=messages.MAX_HEAD_BYTES)
        stream = asyncio.StreamReaderProtocol(reader, self._connected)
        if self._tls is None:
            return stream
        return TlsProtocol(
            self._tls,
            stream,
            handshake_s=self._limits.head_s,
            shutdown_s=_TLS_END_S,
            unserved=self._unserved,
        )

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accept no more connections; answer present requests within ``grace_s`` seconds."""
        for server in self._servers:
            server.close()
        for connection in list(self._idle):
            self._connections[connection].cancel()
        tasks = list(self._connections.values())
        if tasks:
            for connection in self._connections:
                connection.stop()
            _done, late = await asyncio.wait(tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.clients and not self._disconnect_one():
            writer.transport.abort()
            return
        connection = _Connection(self, reader, writer)
        self._connections[connection] = task
        try:
            if self._introduced:
                async with asyncio.timeout(self._limits.head_s):
                    connection.set_peer(messages.parse_introduction(await reader.readline()))
            self._clients_of[connection.network] += 1
            connection.counted = True
            if self._too_many_of(connection.network):
                raise _Gone("its address has too many connections")
            await connection.serve()
        except (
            _Gone,
            OSError,
            errors.GenericError,
            asyncio.IncompleteReadError,
            TimeoutError,
            ValueError,
        ) as err:
            _log.debug("client %s lost: %r", connection.peer, err)
        except asyncio.CancelledError:
            # Canceled by stop() or _disconnect(), which do not wait for more.
            _log.debug("client %s disconnected", connection.peer)
        finally:
            self._connections.pop(connection, None)
            self._idle.pop(connection, None)
            self.end_receiving(connection)
            if connection.counted:
                _count_down(self._clients_of, connection.network, 1)
            await _close(writer)

    def _too_many_of(self, network: str) -> bool:
        """Tell whether an address has more connections than it may."""
        most = self._limits.per_address
        return most is not None and self._clients_of[network] > most

    def _disconnect_one(self) -> bool:
        """Disconnect a client for another one; return whether that was possible.

        It is the client which was idle longest, or else the one which has been sending its request
        for longest, of the address which has most of these.
        """
        for connection in self._idle:
            self._disconnect(connection)
            return True
        return self._unfinished_of.total() > 0 and self._disconnect_slowest(
            max(self._unfinished_of, key=self._unfinished_of.__getitem__)
        )

    def _disconnect_slowest(self, network: str) -> bool:
        """Disconnect the client of an address which has been sending its request for longest."""
        begun_before = time.monotonic() - _JUST_BEGUN_S
        for connection, begun in self._receiving.items():
            if begun > begun_before:
                return False
            if connection.network == network:
                _log.warning(
                    "client %s takes too long for its request while others wait", connection.peer
                )
                self._disconnect(connection)
                return True
        return False

    def _disconnect(self, connection: _Connection) -> None:
        self._idle.pop(connection, None)
        self.end_receiving(connection)
        self._connections[connection].cancel()

    # -- called by connections -------------------------------------------------------------------

    def set_idle(self, connection: _Connection, idle: bool) -> None:
        """Note whether a connection is idle."""
        if idle:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def begin_receiving(self, connection: _Connection) -> None:
        """Note that the first byte of a request has come.

        :raises Refused: too many requests of the address are unfinished, and all are new.
        """
        most = self._limits.unfinished_per_address
        network = connection.network
        if (
            most is not None
            and self._unfinished_of[network] >= most
            and not self._disconnect_slowest(network)
        ):
            raise _busy("too many unfinished requests at once")
        self._receiving[connection] = time.monotonic()
        self._unfinished_of[network] += 1

    def end_receiving(self, connection: _Connection) -> None:
        """Note that a request was received, or is given up."""
        if self._receiving.pop(connection, None) is not None:
            _count_down(self._unfinished_of, connection.network, 1)

    def hold(self, network: str, size: int) -> None:
        """Take memory for bytes of a body which have come; ``size`` is in bytes.

        :raises Refused: the limit for all bodies, or for those of the address, is exceeded.
        """
        share = self._limits.bodies_per_address
        if self._bodies_bytes + size > self._limits.bodies_bytes or (
            share is not None and self._bodies_of[network] + size > share
        ):
            raise _busy("too many large requests at once")
        self._bodies_bytes += size
        self._bodies_of[network] += size

    def unhold(self, network: str, size: int) -> None:
        """Release the memory of a body."""
        self._bodies_bytes -= size
        _count_down(self._bodies_of, network, size)

    def begin_socket(self, network: str) -> None:
        """Count a WebSocket.

        :raises Refused: the address has too many.
        """
        most = self._limits.sockets_per_address
        if most is not None and self._sockets_of[network] >= most:
            raise _busy(f"your address has {most} WebSockets, and may not have more")
        self._sockets_of[network] += 1

    def end_socket(self, network: str) -> None:
        """Do not count a WebSocket any more."""
        _count_down(self._sockets_of, network, 1)

    def begin_sending(self, connection: _Connection, size: int) -> None:
        """Note that an answer is kept for a client; disconnect others above the limits."""
        for slow in self._unread.add(connection, size):
            _log.warning(
                "client %s is disconnected: it does not read its answers, and there are too many"
                " unread ones",
                slow.peer,
            )
            slow.abort()

    def sent_some(self, connection: _Connection) -> None:
        """Note that the client has read a part of its answer."""
        self._unread.progress(connection)

    def end_sending(self, connection: _Connection) -> None:
        """Note that the answer was sent, or the connection has ended."""
        self._unread.remove(connection)

    def give_memory_back(self) -> None:
        """Give memory back in a moment, when large requests have ended."""
        if self._giving_back is None:
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(memory.GIVE_BACK_AFTER_S, self._give_back, loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        self._giving_back = None
        loop.run_in_executor(None, memory.give_back)

    @property
    def application(self) -> Application:
        return self._application

    @property
    def limits(self) -> Limits:
        return self._limits

    def note(self, exchange: Exchange) -> None:
        """Write an exchange to the access log."""
        self._note(exchange)


def _busy(reason: str) -> Refused:
    return Refused(503, reason, headers=[("Retry-After", "5")])


def _count_down(counter: Counter[str], network: str, by: int) -> None:
    """Subtract from what an address has; one which has nothing is forgotten."""
    counter[network] -= by
    if counter[network] <= 0:
        del counter[network]


async def _close(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError, RuntimeError):
        if writer.transport.is_closing():
            return
        writer.close()


def _too_large(most_bytes: int) -> Refused:
    if most_bytes == 0:
        return Refused(413, "this request takes no body")
    return Refused(413, f"the body of this request may have {most_bytes} bytes")


class _Connection:
    """The connection of one client."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self.held = 0
        #: The server counts it as a connection of its address.
        self.counted = False
        self._gone: asyncio.Future[None] | None = None
        # Done when the server stops, for a WebSocket.
        self._stopped: asyncio.Future[None] | None = None
        peer = writer.get_extra_info("peername")
        self.set_peer(peer[0] if isinstance(peer, tuple) else "-")
        tls = writer.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(binary_form=True)
        self._certificate = "" if shown is None else hashlib.sha256(shown).hexdigest()
        self.last = False
        # What a client has not read is kept in one place, where it is counted: no answer begins
        # before the one before has left the buffer.
        writer.transport.set_write_buffer_limits(high=0)

    def set_peer(self, address: str) -> None:
        """Say who the client is: the address for logs, and the network for the limits."""
        self.peer = address
        self.network = peers.client_network(address)

    def stop(self) -> None:
        """End the connection after the present request; end a WebSocket now."""
        self.last = True
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def serve(self) -> None:
        """Answer requests until the client or the server ends the connection."""
        while not self.last:
            try:
                data = await self._read_head()
            except Refused as err:
                await self._answer(
                    "-", "-", None, self._refusal(err), keep=False, began=time.monotonic()
                )
                await self._linger()
                return
            if data is None or not await self._exchange(data):
                return

    async def _read_head(self) -> bytes | None:
        """Read the next head; return None if the client has ended the connection."""
        limits = self._server.limits
        self._server.set_idle(self, True)
        try:
            async with asyncio.timeout(limits.idle_s):
                first = await self._reader.read(1)
                # Empty lines before a request are skipped; old clients send one after a body.
                while first in (b"\r", b"\n"):
                    first = await self._reader.read(1)
        except TimeoutError:
            return None
        finally:
            self._server.set_idle(self, False)
        if not first:
            return None
        self._server.begin_receiving(self)
        try:
            async with asyncio.timeout(limits.head_s):
                rest = await self._reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise Refused(408, f"no whole request came within {limits.head_s:g} s") from None
        except asyncio.LimitOverrunError:
            raise Refused(
                431, f"the head of a request may have {messages.MAX_HEAD_BYTES} bytes"
            ) from None
        except asyncio.IncompleteReadError:
            return None
        return first + rest[:-4]

    async def _exchange(self, data: bytes) -> bool:
        """Serve one request; return whether the connection stays open."""
        began = time.monotonic()
        line = data.split(b"\r\n", 1)[0].decode("latin-1")[:2000]
        head: Head | None = None
        user = "-"
        body_taken = False
        keep = False
        try:
            head = messages.parse_head(data)
            body_taken = head.length == 0
            if body_taken:
                self._server.end_receiving(self)
            keep = head.keep_alive and not self.last
            # After a refused handshake, a proxy may take what follows for frames.
            keep = keep and not websocket.wanted(head)
            accepted = await self._server.application.begin(
                Incoming(head, self.peer, self._certificate)
            )
            if isinstance(accepted, WebSocket):
                user = accepted.user
                await self._serve_socket(head, accepted, began)
                return False
            if isinstance(accepted, Response):
                response = accepted
            else:
                user = accepted.user
                body = b""
                if not body_taken:
                    body = await self._read_body(head, accepted.most_body_bytes)
                    body_taken = True
                    self._server.end_receiving(self)
                response = await self._answer_of(accepted, body)
        except Refused as err:
            response = self._refusal(err)
            keep = keep and err.status not in (408, 413)
        finally:
            self._server.end_receiving(self)
            self._server.unhold(self.network, self.held)
            self.held = 0
        size = 0 if head is None else max(head.length, 0)
        if max(size, len(response.body) if isinstance(response.body, bytes) else 0) > (
            memory.LARGE_BYTES
        ):
            self._server.give_memory_back()
        keep = keep and body_taken and not self.last
        if head is not None and head.old and not isinstance(response.body, bytes):
            keep = False
        await self._answer(user, line, head, response, keep=keep, began=began)
        if not keep and not body_taken:
            await self._linger()
        return keep

    async def _answer_of(self, accepted: Accepted, body: bytes) -> Response:
        """Return the answer to a request; give up one which only reads when the client has gone."""
        if not accepted.only_reads:
            return await accepted.answer(body)
        gone = self._gone_future()
        work = asyncio.ensure_future(accepted.answer(body))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError, Refused):
            await work
        raise _Gone("the client has gone before its answer was complete")

    def _gone_future(self) -> asyncio.Future[None]:
        """Return what is done when the client has gone."""
        if self._gone is None:
            self._gone = asyncio.ensure_future(self._wait_until_gone())
        return self._gone

    async def _wait_until_gone(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _refusal(self, refused: Refused) -> Response:
        return self._server.application.refusal(refused)

    async def _read_body(self, head: Head, most_bytes: int) -> bytes:
        """Receive the body.

        :param most_bytes: the largest one.
        :raises Refused: it is larger, takes too long, or there is no memory for it now.
        """
        limits = self._server.limits
        if head.length > most_bytes or (head.length < 0 and most_bytes == 0):
            raise _too_large(most_bytes)
        if head.expects_continue:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(limits.body_s):
                if head.length < 0:
                    return await self._read_chunks(most_bytes)
                body = bytearray()
                await self._receive(body, head.length)
                return bytes(body)
        except TimeoutError:
            raise Refused(408, f"no whole body came within {limits.body_s:g} s") from None
        except asyncio.LimitOverrunError:
            raise Refused(400, "a chunk of the body does not begin with its size") from None

    async def _receive(self, body: bytearray, size: int) -> None:
        """Add so many bytes to a body, and take memory for them as they come."""
        while size > 0:
            data = await self._reader.read(min(size, _PIECE_BYTES))
            if not data:
                raise _Gone("the client has ended the connection within a body")
            self._server.hold(self.network, len(data))
            self.held += len(data)
            body += data
            size -= len(data)

    async def _read_chunks(self, most_bytes: int) -> bytes:
        body = bytearray()
        while True:
            size = messages.chunk_size((await self._reader.readuntil(b"\r\n"))[:-2])
            if size == 0:
                break
            if len(body) + size > most_bytes:
                raise _too_large(most_bytes)
            await self._receive(body, size)
            if await self._reader.readexactly(2) != b"\r\n":
                raise Refused(400, "a chunk of the body is longer than it says")
        # Headers may follow the last chunk; they are ignored.
        for _ in range(MAX_HEADERS):
            if await self._reader.readuntil(b"\r\n") == b"\r\n":
                return bytes(body)
        raise Refused(431, "too many headers after the body")

    async def _answer(
        self,
        user: str,
        line: str,
        head: Head | None,
        response: Response,
        *,
        keep: bool,
        began: float,
    ) -> None:
        headers = [*response.headers, ("Server", self._server.server_name)]
        body = response.body
        without_body = head is not None and head.method == "HEAD"
        sent = 0
        try:
            if isinstance(body, bytes):
                start = messages.render_head(
                    response.status, headers, length=len(body), close=not keep, now=time.time()
                )
                sent = await self._send(start, b"" if without_body else body)
            else:
                chunked = head is not None and not head.old
                start = messages.render_head(
                    response.status,
                    headers,
                    length=None,
                    close=not keep,
                    now=time.time(),
                    chunked=chunked,
                )
                await self._send(start, b"")
                if without_body:
                    return
                async for piece in body:
                    sent += len(piece)
                    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                    await self._send(b"", framed)
                if chunked:
                    await self._send(b"0\r\n\r\n", b"")
        finally:
            self._note(user, line, head, response.status, sent, began)
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    def _note(
        self, user: str, line: str, head: Head | None, status: int, sent: int, began: float
    ) -> None:
        """Write a line into the access log."""
        fields = head.headers if head is not None else {}
        self._server.note(
            Exchange(
                self.peer,
                user,
                line,
                status,
                sent,
                fields.get("referer", "-"),
                fields.get("user-agent", "-"),
                time.monotonic() - began,
            )
        )

    async def _serve_socket(self, head: Head, accepted: WebSocket, began: float) -> None:
        """Accept the handshake of a WebSocket, and serve it until it ends.

        :raises Refused: the handshake is wrong, or the address has too many WebSockets.
        """
        server, limits = self._server, self._server.limits
        headers = [*websocket.answer_headers(head), ("Server", server.server_name)]
        times = websocket.Times(limits.ping_s, limits.body_s)
        try:
            one = Socket(self, times, accepted.most_message_bytes)
        except ImportError:
            raise Refused(
                501,
                "this server has no WebSockets, because the Python package wsproto is not"
                " installed there (python3-wsproto in Debian). Install it and start the daemon"
                " again.",
            ) from None
        server.begin_socket(self.network)
        loop = asyncio.get_running_loop()
        self._stopped = loop.create_future()
        try:
            if self.last:
                self.stop()
            start = messages.render_head(101, headers, length=None, close=False, now=time.time())
            await self._send(start, b"")
            broken = await websocket.serve(
                one, accepted, gone=self._gone_future(), stop=self._stopped
            )
        finally:
            server.end_socket(self.network)
            self._note(accepted.user, head.line, head, 101, one.sent_bytes, began)
        if broken:
            await self._linger()

    async def read(self) -> bytes:
        """Receive what has come on a WebSocket."""
        return await self._reader.read(_SOCKET_READ_BYTES)

    async def send(self, data: bytes) -> None:
        """Send on a WebSocket; returns when the client has taken all.

        :raises SocketClosed: the client has gone, or does not read.
        """
        await self._send(b"", data)

    def hold(self, size: int) -> None:
        """Take memory for a message of a WebSocket, or release it if ``size`` is negative.

        :raises Refused: there is none.
        """
        if size > 0:
            self._server.hold(self.network, size)
        else:
            self._server.unhold(self.network, -size)

    async def _send(self, start: bytes, body: bytes) -> int:
        """Send as fast as the client receives, without copies of the body; return its length."""
        if len(start) + len(body) <= _PIECE_BYTES:
            self._writer.write(start + body)
            left = self._writer.transport.get_write_buffer_size()
            if left:
                self._server.begin_sending(self, left)
            try:
                await self._drain()
            finally:
                self._server.end_sending(self)
            return len(body)
        self._server.begin_sending(self, len(body))
        try:
            self._writer.write(start)
            view = memoryview(body)
            for place in range(0, len(body), _PIECE_BYTES):
                self._writer.write(view[place : place + _PIECE_BYTES])
                await self._drain()
                self._server.sent_some(self)
        finally:
            self._server.end_sending(self)
        return len(body)

    def abort(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    async def _drain(self) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            raise _Gone("the connection is closed")
        if transport.get_write_buffer_size() == 0:
            return
        try:
            async with asyncio.timeout(self._server.limits.write_s):
                await self._writer.drain()
        except TimeoutError:
            transport.abort()
            raise _Gone("the client does not read its answer") from None

    async def _linger(self) -> None:
        """Receive for a moment what a client still sends, so that it can read its answer."""
        with contextlib.suppress(TimeoutError, OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                while await self._reader.read(_PIECE_BYTES):
                    pass


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket.

    :raises OSError: the address is not on this machine, or the port is in use.
    """
    return net.tcp_listen(address, port, backlog=_BACKLOG)


def client_limit(wanted: int) -> int:
    """Return how many clients the limit of open files allows; raise that limit if possible."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A client may need a connection to the master, too.
    needed = 2 * wanted + 100
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if open_files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (open_files - 100) // 2))
