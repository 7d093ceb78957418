"""Asynchronous client of the master daemon.

A :class:`Master` keeps connections to the local socket of the master, and uses one of them for each
request. So requests of different clients do not wait for each other, and a client which waits for a
job costs a file descriptor. Answers and errors are the same as in :mod:`ganeti.luxi.client`; but a
master which does not run is reported at once, because the HTTP client decides when to try again.

A connection which was kept over a restart of the master looks alive until it is used. A query is
repeated on a new connection then; a request which changes something is not, because the master may
have carried it out.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.constants import luxi as const
from ganeti.luxi import client, methods
from ganeti.luxi import protocol as wire
from ganeti.opcodes.base import OpCode
from ganeti.utils import net, tracing

TIMEOUT_S: Final = float(const.READ_WRITE_TIMEOUT_S)
_CONNECT_S: Final = 5.0
_IDLE_CONNECTIONS: Final = 32


class _Link(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._parts: list[bytes] = []
        self._waiter: asyncio.Future[bytes] | None = None
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    @property
    def usable(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    async def ask(self, request: bytes, timeout_s: float) -> bytes:
        """Send a request and wait for its answer; without an answer, close the connection."""
        assert self.transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            self.transport.write(request)
            async with asyncio.timeout(timeout_s):
                return await self._waiter
        except TimeoutError:
            raise errors.LuxiTimeout(f"no answer from the master for {timeout_s:g} s") from None
        finally:
            done, self._waiter = self._waiter, None
            if not done.done() or done.cancelled() or done.exception() is not None:
                self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            # Unexpected data would be read as the answer to the next request.
            if self.transport is not None:
                self.transport.abort()
            return
        # One request has one answer, so the end mark can only be the last byte.
        self._parts.append(data)
        if data.endswith(wire.ETX):
            answer = b"".join(self._parts)[:-1]
            self._parts.clear()
            self._waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._parts.clear()
        self._master.forget(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(
                errors.ConnectionClosedError("the master closed the connection before it answered")
            )


class Master:
    """The master daemon of this node.

    :param address: path of its socket; None for the usual one.
    """

    def __init__(self, address: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._address = client.default_address() if address is None else address
        self._timeout_s = timeout_s
        self._idle: deque[_Link] = deque()

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Send one request and return its result.

        :raises errors.NoMasterError: no master daemon runs here.
        :raises errors.LuxiPermissionError: this daemon's user may not open the socket.
        :raises errors.LuxiTimeout: no answer in time.
        :raises errors.ConnectionClosedError: the master closed the connection before it answered.
        :raises errors.GenericError: the error which the master reported.
        """
        request = wire.encode_request(method, args, tracing.current())
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        while True:
            link, used = await self._take()
            try:
                answer = await link.ask(request, limit_s)
            except errors.ConnectionClosedError:
                if used and not methods.TABLE[method].changes:
                    continue
                raise
            break
        if link.usable and len(self._idle) < _IDLE_CONNECTIONS:
            self._idle.append(link)
        elif link.transport is not None:
            link.transport.close()
        return wire.parse_answer(answer)

    async def submit(self, ops: Sequence[OpCode]) -> int:
        """Submit a job; return its id when the job is acknowledged.

        :raises errors.JobQueueDrainError: the queue accepts no jobs now.
        :raises errors.JobQueueFull: too many jobs wait.
        """
        return int(await self.call("SubmitJob", [op.to_dict() for op in ops]))

    async def submit_many(self, jobs: Sequence[Sequence[OpCode]]) -> list[int | str]:
        """Submit jobs in one request, whose negative dependencies count back in these jobs.

        :returns: for each job its id, or why it was refused.
        """
        found = await self.call("SubmitManyJobs", [[op.to_dict() for op in ops] for ops in jobs])
        return [int(result) if accepted else str(result) for accepted, result in found]

    def close(self) -> None:
        """Close the unused connections."""
        while self._idle:
            transport = self._idle.pop().transport
            if transport is not None:
                transport.close()

    def forget(self, link: _Link) -> None:
        """Note that a connection was closed."""
        if link in self._idle:
            self._idle.remove(link)

    async def _take(self) -> tuple[_Link, bool]:
        """Return a connection, and whether it was used before."""
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link, True
        loop = asyncio.get_running_loop()
        # Connecting waits only while the master accepts no connections.
        sock = await loop.run_in_executor(None, self._connect)
        sock.setblocking(False)
        _transport, link = await loop.create_unix_connection(lambda: _Link(self), sock=sock)
        return link, False

    def _connect(self) -> socket.socket:
        try:
            return net.unix_connect(self._address, _CONNECT_S)
        except PermissionError as err:
            raise errors.LuxiPermissionError(
                f"no permission to connect to the master at {self._address}. The user of this"
                " daemon"
                " must be a member of the daemons' group."
            ) from err
        except TimeoutError as err:
            raise errors.LuxiTimeout("the master daemon accepts no connection") from err
        except OSError as err:
            if err.errno in (errno.ENOENT, errno.ECONNREFUSED):
                # Raises an error which names the master, when this node is not the master.
                client.check_master()
                raise errors.NoMasterError(
                    "the master daemon (ganeti-masterd) does not run"
                ) from err
            raise errors.LuxiError(f"cannot connect to the master daemon: {err.strerror}") from err
