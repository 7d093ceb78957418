"""A TLS connection whose proper end is certain on both sides.

The socket class of the standard library hides how a connection ended: saying the end and hearing
it from the other side are one step there, which may also return when the other side has just gone.
Here the protocol runs over memory, and :meth:`TlsPipe.finish` returns only when the other side's
end was received; a connection that breaks is an error everywhere.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CHUNK: Final = 256 * 1024


class TlsPipe:
    """One connection, used by one thread at a time.

    All methods raise ``OSError`` (``ssl.SSLError`` is one) when the connection breaks, or the other
    side is not to be trusted.

    :param sock: connected; belongs to the pipe from now on.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Some builds of Python take a connection that just ends for one that was closed properly.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    def handshake(self) -> None:
        """Find out who the other side is."""
        self._drive(self._tls.do_handshake)

    def settimeout(self, timeout_s: float | None) -> None:
        """How long the other side may say nothing."""
        self._sock.settimeout(timeout_s)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send everything."""
        self._drive(self._tls.write, data)

    def recv_into(self, buffer: memoryview) -> int:
        """Receive something; 0 after the proper end."""
        # With a buffer to fill, it returns a number (its types say bytes).
        count: Any = self._drive(self._tls.read, len(buffer), buffer)
        return int(count)

    def finish(self) -> None:
        """Say our proper end, and wait for the other side's."""
        # ``unwrap`` only says ours: it takes any last word of the other side for a proper end,
        # even the alert by which it refuses us.
        ended = self._ended()
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()
        while not ended:
            self._fill()
            ended = self._ended()

    def close(self) -> None:
        """Break the connection, if it has not ended."""
        self._sock.close()

    def __enter__(self) -> TlsPipe:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ended(self) -> bool:
        """Whether what was received so far has the other side's proper end."""
        try:
            data = self._tls.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLZeroReturnError:
            return True
        if data:
            raise ssl.SSLError("the other side goes on after our end")
        return True

    def _drive(self, step: Callable[..., T], *args: Any) -> T:
        while True:
            try:
                result = step(*args)
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
                continue
            except ssl.SSLError:
                # The other side shall hear why, if it still listens.
                with contextlib.suppress(OSError):
                    self._flush()
                raise
            self._flush()
            return result

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._sock.sendall(self._outgoing.read())

    def _fill(self) -> None:
        data = self._sock.recv(_CHUNK)
        if data:
            self._incoming.write(data)
        elif self._incoming.eof:
            raise ConnectionResetError("the other side has gone")
        else:
            self._incoming.write_eof()
