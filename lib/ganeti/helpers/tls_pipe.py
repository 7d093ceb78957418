"""A TLS connection which tells a proper end from a broken connection.

The socket class of the standard library sends the end of the connection and waits for the end of
the other side in one step, which may also return when the other side has disappeared. Here TLS
works on memory buffers, and :meth:`TlsPipe.finish` returns only after the end of the other side was
received. A connection that breaks is always an error.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CHUNK: Final = 256 * 1024


class TlsPipe:
    """One connection, used by one thread at a time.

    All methods raise ``OSError`` (of which ``ssl.SSLError`` is a subclass) when the connection
    breaks, or the certificate of the other side is not trusted.

    :param sock: a connected socket; the pipe closes it.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Without this, some versions of Python treat a broken connection as properly closed.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    def handshake(self) -> None:
        """Perform the TLS handshake and check the certificate of the other side."""
        self._drive(self._tls.do_handshake)

    def settimeout(self, timeout_s: float | None) -> None:
        """Set the time in seconds after which an unresponsive other side is an error."""
        self._sock.settimeout(timeout_s)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all data."""
        self._drive(self._tls.write, data)

    def recv_into(self, buffer: memoryview) -> int:
        """Receive data into a buffer; returns the number of bytes, 0 after the proper end."""
        # With a buffer, ``read`` returns a number, although its annotation says bytes.
        count: Any = self._drive(self._tls.read, len(buffer), buffer)
        return int(count)

    def finish(self) -> None:
        """End the connection properly, and wait until the other side has done so, too."""
        # The result of ``unwrap`` is not used: it accepts any last record of the other side as a
        # proper end, even the alert by which the other side refuses this one.
        ended = self._ended()
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()
        while not ended:
            self._fill()
            ended = self._ended()

    def close(self) -> None:
        """Close the socket; without :meth:`finish` before, the connection breaks."""
        self._sock.close()

    def __enter__(self) -> TlsPipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ended(self) -> bool:
        """Check whether the proper end of the other side was received."""
        try:
            data = self._tls.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLZeroReturnError:
            return True
        if data:
            raise ssl.SSLError("the other side sent data after the end of the connection")
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
                # The pending alert tells the other side the reason, if it still listens.
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
            raise ConnectionResetError("the other side closed the connection without a proper end")
        else:
            self._incoming.write_eof()
