"""TLS for the connections of :mod:`ganeti.http.event_server`, with a small buffer for each.

asyncio's own TLS keeps a buffer of 256 KiB for each connection and has no setting for it, which is
much for thousands of clients that send a line now and then. Here all connections of a server share
a buffer of :data:`BUFFER_BYTES`, and OpenSSL's memory (some 40 KiB) is allocated with the first
byte which the peer sends. The rest is made of public parts of the standard library: the transport
of the TCP connection below, ``ssl.SSLObject`` with two ``ssl.MemoryBIO`` in the middle, and above
it any asyncio protocol, which is called as if it were connected directly. Its first call comes
after the handshake.

Two time limits hold: one for the handshake, one for the end of a connection, when both sides send
``close_notify``. A connection which exceeds one of them is aborted. Meanwhile the connection
belongs to no client, so the number of such connections is limited, too (:class:`Unserved`).

Source: documentation of Python, *ssl*, section "Memory BIO Support", and *asyncio*, "Transports and
Protocols"; RFC 8446, section 6.1 *Closure Alerts*.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import Any

_log = logging.getLogger(__name__)

#: Size of the buffer for received bytes. A TLS record has at most 16 KiB.
BUFFER_BYTES = 1 << 15

_Data = bytes | bytearray | memoryview


class Unserved:
    """The connections of a server which are in their handshake, or at their end.

    When there are too many, the oldest one is aborted: a peer which only waits is older than
    one which makes its handshake now.

    :param most: largest number of such connections.
    :ivar buffer: for received bytes; the loop fills it and calls the protocol in one step.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: dict[TlsProtocol, None] = {}
        self.buffer = bytearray(BUFFER_BYTES)

    def __len__(self) -> int:
        return len(self._members)

    def enter(self, one: TlsProtocol) -> None:
        """Count a connection; abort the oldest one if there are too many."""
        self._members[one] = None
        if len(self._members) > self._most:
            oldest = next(iter(self._members))
            del self._members[oldest]
            oldest.below.abort()

    def leave(self, one: TlsProtocol) -> None:
        """Do not count a connection any more."""
        self._members.pop(one, None)


class TlsProtocol(asyncio.BufferedProtocol):
    """The server side of TLS on one TCP connection.

    :param inner: the protocol which gets the decrypted bytes.
    :param handshake_s: time limit of the handshake in seconds.
    :param shutdown_s: time limit for the end of the connection in seconds.
    :param unserved: counts the connection during handshake and end.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.Protocol,
        *,
        handshake_s: float,
        shutdown_s: float,
        unserved: Unserved,
    ) -> None:
        self.context = context
        self.inner = inner
        self._handshake_s = handshake_s
        self._shutdown_s = shutdown_s
        self._unserved = unserved
        # Made when the first byte has come.
        self._tls: ssl.SSLObject
        self._received: ssl.MemoryBIO
        self._to_send: ssl.MemoryBIO
        self._begun = False
        # What OpenSSL does not take before it has read more from the peer.
        self._backlog: deque[_Data] = deque()
        self._below: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._established = False
        self._paused = False
        self._writing_paused = False
        self._at_eof = False
        self.closing = False

    @property
    def below(self) -> asyncio.Transport:
        """The transport of the TCP connection."""
        assert self._below is not None
        return self._below

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """The TLS side, from the first byte on; it has the certificate of the peer."""
        return self._tls

    # -- called by the transport of the TCP connection -----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._below = transport
        self._unserved.enter(self)
        self._set_timer(self._handshake_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._unserved.leave(self)
        self._backlog.clear()
        self.closing = True
        if self._established:
            self.inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._unserved.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._begun:
            self._begun = True
            self._received = ssl.MemoryBIO()
            self._to_send = ssl.MemoryBIO()
            self._tls = self.context.wrap_bio(self._received, self._to_send, server_side=True)
        self._received.write(memoryview(self._unserved.buffer)[:nbytes])
        self._advance()

    def eof_received(self) -> bool:
        if not self._begun:
            return False
        self._received.write_eof()
        self._at_eof = True
        if not self._paused:
            self._advance()
        # The connection is closed below, after what was received has been read.
        return True

    def pause_writing(self) -> None:
        if self._established:
            self._writing_paused = True
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        # The pause may be one of the handshake, of which the inner protocol knows nothing.
        if self._writing_paused:
            self._writing_paused = False
            self.inner.resume_writing()

    # -- called by the transport which the inner protocol gets ---------------------------------

    def write(self, data: _Data) -> None:
        """Encrypt and send; bytes for a connection which is closing are dropped."""
        if not self.closing and data:
            self._backlog.append(data)
            self._write_backlog()

    def pause_reading(self) -> None:
        """Give no more bytes to the inner protocol, and receive none."""
        if not self._paused:
            self._paused = True
            self.below.pause_reading()

    def resume_reading(self) -> None:
        """Give bytes to the inner protocol again."""
        if self._paused:
            self._paused = False
            self.below.resume_reading()
            # What was received before is decrypted by a call of its own, not inside of this one.
            asyncio.get_running_loop().call_soon(self._advance)

    @property
    def reading(self) -> bool:
        """True if bytes go to the inner protocol."""
        return not self._paused and not self.closing

    def close(self) -> None:
        """Send ``close_notify``, and close the connection when that of the peer has come."""
        if self.closing:
            return
        self.closing = True
        self._unserved.enter(self)
        self._set_timer(self._shutdown_s)
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # Mostly: the peer has not sent its own close_notify yet.
            pass
        self._send()
        if self._paused:
            self._paused = False
            self.below.resume_reading()
        self._discard()

    # -- the states of a connection ------------------------------------------------------------

    def _advance(self) -> None:
        if self.below.is_closing():
            return
        if not self._established:
            self._handshake()
        if self.closing:
            self._discard()
        elif self._established:
            self._read()

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            if self._at_eof:
                self.below.abort()
            return
        except ssl.SSLError as err:
            _log.debug("no TLS connection with %s: %s", self.below.get_extra_info("peername"), err)
            self.below.abort()
            return
        self._send()
        self._set_timer(None)
        self._unserved.leave(self)
        self._established = True
        self.inner.connection_made(_TlsTransport(self))

    def _read(self) -> None:
        """Give the inner protocol what can be decrypted, until it pauses."""
        ended = False
        while not (self._paused or self.closing or ended):
            try:
                data = self._tls.read(BUFFER_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as err:
                if not self._at_eof:
                    _log.debug("TLS connection broken: %s", err)
                    self.below.abort()
                    return
                data = b""
            if data:
                self.inner.data_received(data)
            else:
                ended = True
        self._write_backlog()
        if ended and not self.closing:
            self.inner.eof_received()
            self.close()

    def _discard(self) -> None:
        """Ignore what the peer still sends; close the connection when the peer has ended it."""
        try:
            while self._tls.read(BUFFER_BYTES):
                pass
        except ssl.SSLWantReadError:
            if not self._at_eof:
                return
        except ssl.SSLError:
            pass
        self.below.close()

    def _write_backlog(self) -> None:
        try:
            while self._backlog:
                data = self._backlog[0]
                sent = self._tls.write(data)
                if sent < len(data):
                    self._backlog[0] = memoryview(data)[sent:]
                else:
                    self._backlog.popleft()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as err:
            _log.debug("TLS connection broken: %s", err)
            self.below.abort()
            return
        self._send()

    def _send(self) -> None:
        if self._to_send.pending:
            self.below.write(self._to_send.read())

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.below.abort)


class _TlsTransport(asyncio.Transport):
    """The transport which the inner protocol uses."""

    def __init__(self, tls: TlsProtocol) -> None:
        super().__init__()
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        if name == "ssl_object":
            return self._tls.ssl_object
        return self._tls.below.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._tls.inner

    def is_closing(self) -> bool:
        return self._tls.closing

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._tls.closing = True
        self._tls.below.abort()

    def is_reading(self) -> bool:
        return self._tls.reading

    def pause_reading(self) -> None:
        self._tls.pause_reading()

    def resume_reading(self) -> None:
        self._tls.resume_reading()

    def write(self, data: _Data) -> None:
        self._tls.write(data)

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._tls.below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._tls.below.get_write_buffer_size()
