"""WebSockets: the handshake, and one connected socket with its limits.

:mod:`ganeti.http.event_server` serves them when its application returns a :class:`WebSocket` for a
request. The client is limited as with requests: the length of a message and the number of its
fragments (:mod:`.frames`), the time for a whole message, memory for messages which are not complete
(it counts as that for bodies). Each end of a connection may ask whether the other is there: this
end answers at once, and asks when nothing has come for a while; without an answer the connection
ends. A message is sent when the client has taken the one before, so that a slow client makes its
application wait, and the limits for unread answers hold. While the application does not receive,
one message is kept, and then nothing more is read; meanwhile nobody would notice that the client
has gone, so the time for this is limited, too.

A handshake is a ``GET`` of HTTP/1.1; with another method or version the request is an ordinary one,
as RFC 9110 demands. After a handshake which was refused, the connection ends: a proxy which did not
notice the refusal would take what follows for frames. No extension and no subprotocol is chosen.

Source: RFC 6455 *The WebSocket Protocol*.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

from ganeti import errors
from ganeti.http import frames
from ganeti.http.messages import Head, Refused

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION: Final = "13"
# Status of HTTP -> that of the end of a WebSocket.
_CODES: Final = {
    500: frames.INTERNAL,
    502: frames.BUSY,
    503: frames.BUSY,
    504: frames.BUSY,
}
#: Seconds in which a client must answer the end of the connection with its own.
CLOSE_S: Final = 5.0


class SocketClosed(errors.GenericError):
    """The client has gone, or the connection has ended."""


class Line(Protocol):
    """The connection below a socket.

    Its methods raise :class:`SocketClosed` or ``OSError`` when the client has gone.
    """

    async def read(self) -> bytes:
        """Return what has come; empty at the end."""

    async def send(self, data: bytes) -> None:
        """Send; returns when the client has taken all."""

    def hold(self, size: int) -> None:
        """Take memory for so many bytes, or release it if ``size`` is negative.

        :raises Refused: there is none.
        """

    def abort(self) -> None:
        """End the connection at once."""


class Times(NamedTuple):
    """Limits in seconds.

    :ivar ping_s: after so long without any byte the client is asked whether it is there, and has as
        long to answer.
    :ivar message_s: time in which a message must be complete after its first part, and in which the
        application must take it.
    """

    ping_s: float
    message_s: float


class Socket:
    """A connected WebSocket. One task may receive while another one sends.

    :param most_bytes: longest message of the client in bytes; 0 if it may send none.
    :raises ImportError: the package *wsproto* is not installed.
    """

    def __init__(self, line: Line, times: Times, most_bytes: int) -> None:
        self._line = line
        self._times = times
        self._frames = frames.Frames(most_bytes)
        self._sending = asyncio.Lock()
        self._received: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._ended = asyncio.Event()
        self._closing = False
        self._held = 0
        #: Bytes of all frames with messages for the client.
        self.sent_bytes = 0

    async def send(self, text: str) -> None:
        """Send a message; returns when the client has taken it.

        :raises SocketClosed: the client has gone, or takes too long.
        """
        await self.send_frame(frames.message(text))

    async def send_frame(self, frame: bytes) -> None:
        """Send a message which :func:`ganeti.http.frames.message` has made, as :meth:`send` does.

        For one message to many clients.
        """
        if self._closing:
            raise SocketClosed("the connection is closed")
        await self._write(frame)
        self.sent_bytes += len(frame)

    async def receive(self) -> str | None:
        """Return the next message; None when the client has ended the connection, or has gone."""
        if self._ended.is_set() and self._received.empty():
            return None
        return await self._received.get()

    async def close(self, code: int = frames.NORMAL, reason: str = "") -> None:
        """End the connection: say so, and wait until the client has done so, too.

        :param code: status code for the client, as RFC 6455 has them.
        :param reason: for people; what is longer than 123 bytes is cut off.
        """
        self._closing = True
        # Nobody takes these; then what follows them can be read, up to the answer.
        while not self._received.empty():
            self._received.get_nowait()
        with contextlib.suppress(SocketClosed, OSError, TimeoutError):
            await self._write(self._frames.close(code, reason))
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()

    async def _write(self, data: bytes) -> None:
        async with self._sending:
            if self._ended.is_set():
                raise SocketClosed("the client has gone")
            try:
                await self._line.send(data)
            except OSError as err:
                raise SocketClosed(f"the client has gone: {err}") from err
            except asyncio.CancelledError:
                # A part of the frame may have been sent. Nothing can follow a part.
                if len(data) > frames.MESSAGE_BYTES:
                    self._line.abort()
                raise

    # -- called by serve() -----------------------------------------------------------------------

    async def pump(self) -> None:
        """Read what the client sends until the connection ends.

        :raises frames.FrameError: the client breaks the protocol, or exceeds a limit.
        :raises SocketClosed: it has gone, or does not answer.
        :raises Refused: there is no memory for its message.
        """
        deadline: float | None = None
        try:
            while True:
                data = await self._read()
                if not data:
                    raise SocketClosed("the client has gone")
                complete = False
                for event in self._frames.feed(data):
                    if isinstance(event, frames.Ping):
                        await self._write(self._frames.pong(event.payload))
                    elif isinstance(event, frames.Closed):
                        await self._write(self._frames.close(event.code))
                        return
                    else:
                        complete = True
                        await self._keep(event)
                self._hold(self._frames.partial_bytes)
                deadline = self._check_time(None if complete else deadline)
        except (frames.FrameError, Refused) as err:
            self._closing = True
            code = err.code if isinstance(err, frames.FrameError) else frames.BUSY
            await self._write(self._frames.close(code, str(err)))
            raise
        finally:
            self._hold(0)
            self._ended.set()
            if self._received.empty():
                self._received.put_nowait(None)

    async def _keep(self, message: str) -> None:
        """Keep a message for the application, which must take the one before in time."""
        if self._closing:
            return
        try:
            async with asyncio.timeout(self._times.message_s):
                await self._received.put(message)
        except TimeoutError:
            raise frames.FrameError(
                frames.POLICY, f"no message was taken here for {self._times.message_s:g} s"
            ) from None

    def _hold(self, size: int) -> None:
        if size != self._held:
            self._line.hold(size - self._held)
            self._held = size

    def _check_time(self, deadline: float | None) -> float | None:
        """Return until when the message which has begun must be complete; None without one."""
        if not self._frames.within_message:
            return None
        now = time.monotonic()
        if deadline is None:
            return now + self._times.message_s
        if now > deadline:
            raise frames.FrameError(
                frames.POLICY, f"no whole message came within {self._times.message_s:g} s"
            )
        return deadline

    async def _read(self) -> bytes:
        """Read; ask the client whether it is there when nothing comes."""
        asked = False
        while True:
            try:
                async with asyncio.timeout(self._times.ping_s):
                    return await self._line.read()
            except TimeoutError:
                if asked:
                    raise SocketClosed("the client does not answer") from None
            asked = True
            if not self._closing:
                await self._write(self._frames.ping())


class WebSocket(NamedTuple):
    """What an application returns for a handshake which it accepts.

    :ivar user: name of the user, for the access log.
    :ivar run: called with the socket. The connection ends normally when it returns. It is canceled
        when the client has gone, and when the server stops. ``Refused`` ends the connection with
        its text, and status 1011 for an internal error (500), 1013 when it is not possible now
        (502 to 504), and 1008 else.
    :ivar most_message_bytes: longest message of the client; 0 if it may send none.
    """

    user: str
    run: Callable[[Socket], Coroutine[Any, Any, None]]
    most_message_bytes: int = frames.MESSAGE_BYTES


def wanted(head: Head) -> bool:
    """Return whether a request is the handshake of a WebSocket."""
    return (
        head.method == "GET"
        and not head.old
        and "upgrade" in _words(head, "connection")
        and "websocket" in _words(head, "upgrade")
    )


def _words(head: Head, name: str) -> set[str]:
    return {word.strip().lower() for word in head.headers.get(name, "").split(",")}


def answer_headers(head: Head) -> list[tuple[str, str]]:
    """Return the headers with which a handshake is accepted.

    :raises Refused: 426 for another version of the protocol; 400 if it is not a handshake.
    """
    if head.headers.get("sec-websocket-version") != _VERSION:
        raise Refused(
            426,
            f"version {_VERSION} of the WebSocket protocol is understood here",
            headers=[("Upgrade", "websocket"), ("Sec-WebSocket-Version", _VERSION)],
        )
    key = head.headers.get("sec-websocket-key", "")
    try:
        long_enough = len(base64.b64decode(key, validate=True)) == 16
    except (ValueError, binascii.Error):
        long_enough = False
    if not long_enough:
        raise Refused(400, "the header Sec-WebSocket-Key must be 16 bytes in base64")
    if head.length:
        raise Refused(400, "the handshake of a WebSocket has no body")
    digest = hashlib.sha1((key + _GUID).encode("ascii"), usedforsecurity=False).digest()
    return [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Accept", base64.b64encode(digest).decode("ascii")),
    ]


async def serve(
    socket: Socket, accepted: WebSocket, *, gone: asyncio.Future[None], stop: asyncio.Future[None]
) -> bool:
    """Run the application of a connected socket, until either side ends the connection.

    :param gone: done when the client has gone.
    :param stop: done when the server stops.
    :returns: whether the client may be sending still, because it has broken the protocol.
    """
    work = asyncio.ensure_future(accepted.run(socket))
    pump = asyncio.ensure_future(socket.pump())
    try:
        await asyncio.wait((work, pump, gone, stop), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            code, reason = _outcome(work.exception())
        else:
            code, reason = frames.GOING_AWAY, "the server stops"
            await _end(work)
        if not (pump.done() or gone.done()):
            await socket.close(code, reason)
    finally:
        await _end(work)
        await _end(pump)
    fault = None if work.cancelled() else work.exception()
    if fault is not None and not isinstance(fault, SocketClosed | Refused):
        raise fault
    return not pump.cancelled() and isinstance(pump.exception(), frames.FrameError | Refused)


def _outcome(error: BaseException | None) -> tuple[int, str]:
    """Return status and reason for a client whose application has ended."""
    if error is None or isinstance(error, SocketClosed):
        return frames.NORMAL, ""
    if isinstance(error, Refused):
        return _CODES.get(error.status, frames.POLICY), str(error)
    return frames.INTERNAL, "internal error"


async def _end(task: asyncio.Future[None]) -> None:
    """Cancel a task, and wait until it has ended; its error is looked at elsewhere."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
