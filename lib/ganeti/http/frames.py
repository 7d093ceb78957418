"""The frames of a WebSocket: bytes of a client become messages, messages become bytes.

Without sockets and tasks; :mod:`ganeti.http.websocket` uses it. The protocol itself is that of the
package *wsproto*; this module limits what a client may send: the length of a message, also of one
which comes in many fragments, and the number of its fragments, also of empty ones. No extension is
used. Without compression (``permessage-deflate``) a short message cannot become a long one, a
connection needs no window of zlib (some 300 KiB for both directions), and the length of an
encrypted message says nothing about secrets in it.

Source: RFC 6455 *The WebSocket Protocol*, sections 5 *Data Framing* and 7.4 *Status Codes*.
"""

from __future__ import annotations

import io
from typing import Final, NamedTuple

from ganeti import errors

#: A message may have so many bytes, unless the application says something else.
MESSAGE_BYTES: Final = 1 << 16
#: Fragments of one message.
MOST_FRAGMENTS: Final = 1024

# Status codes of the end of a connection.
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
NOT_TEXT: Final = 1003
POLICY: Final = 1008
TOO_LARGE: Final = 1009
INTERNAL: Final = 1011
BUSY: Final = 1013


class FrameError(errors.GenericError):
    """What a client has sent is not allowed; the connection has to end.

    :ivar code: the status code for the client.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ping(NamedTuple):
    """The client wants an answer with the same payload."""

    payload: bytes


class Closed(NamedTuple):
    """The client ends the connection; 1005 is a close without a code."""

    code: int
    reason: str


#: A message (text), a question of the client whether this end is there, or the end.
Event = str | Ping | Closed


class Frames:
    """Both directions of one connection, after its handshake.

    :param most_bytes: the longest message of the client; 0 if the client may send none.
    :raises ImportError: the package *wsproto* is not installed.
    """

    def __init__(self, most_bytes: int = MESSAGE_BYTES) -> None:
        # Loaded with the first connection: a daemon without one does not need its memory.
        from wsproto import ConnectionType
        from wsproto.connection import Connection

        self._protocol = Connection(ConnectionType.SERVER)
        self._most_bytes = most_bytes
        self._text = io.StringIO()
        #: Bytes of the message which is being received.
        self.partial_bytes = 0
        self._fragments = 0

    @property
    def within_message(self) -> bool:
        """True between the first and the last part of a message."""
        return bool(self.partial_bytes or self._fragments)

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes of the client; return what is complete now, in order.

        Pongs are not returned. After :class:`Closed` nothing more is understood.

        :raises FrameError: the client breaks the protocol or a limit. What came before in the same
            bytes is lost, as the connection ends.
        """
        from wsproto import events

        self._protocol.receive_data(data)
        found: list[Event] = []
        for event in self._protocol.events():
            if isinstance(event, events.TextMessage):
                text = self._add(event.data, event.frame_finished, event.message_finished)
                if text is not None:
                    found.append(text)
            elif isinstance(event, events.BytesMessage):
                raise FrameError(NOT_TEXT, "only text messages are understood here")
            elif isinstance(event, events.Ping):
                found.append(Ping(bytes(event.payload)))
            elif isinstance(event, events.CloseConnection):
                # The package reports a broken protocol in the same way, but stays open for us.
                if self._protocol.state.name == "OPEN":
                    raise FrameError(int(event.code), event.reason or "not a WebSocket frame")
                found.append(Closed(int(event.code), event.reason or ""))
        return found

    def _add(self, text: str, frame_ends: bool, message_ends: bool) -> str | None:
        """Add a part of a message; return the message when it is complete."""
        if self._most_bytes == 0:
            raise FrameError(POLICY, "no messages are expected here")
        self.partial_bytes += len(text.encode("utf-8"))
        if self.partial_bytes > self._most_bytes:
            raise FrameError(TOO_LARGE, f"a message may have {self._most_bytes} bytes")
        self._fragments += frame_ends
        if self._fragments > MOST_FRAGMENTS:
            raise FrameError(POLICY, f"a message may have {MOST_FRAGMENTS} fragments")
        self._text.write(text)
        if not message_ends:
            return None
        whole = self._text.getvalue()
        self._text = io.StringIO()
        self.partial_bytes = self._fragments = 0
        return whole

    # -- bytes for the client --------------------------------------------------------------------

    def ping(self) -> bytes:
        """Return a question whether the client is there."""
        from wsproto.events import Ping as Question

        return self._bytes(Question())

    def pong(self, payload: bytes) -> bytes:
        """Return the answer to a ping."""
        from wsproto.events import Pong

        return self._bytes(Pong(payload))

    def close(self, code: int, reason: str = "") -> bytes:
        """Return the end of the connection; empty if it was sent before.

        :param reason: for people; what is longer than 123 bytes is cut off.
        """
        from wsproto.events import CloseConnection

        if self._protocol.state.name not in ("OPEN", "REMOTE_CLOSING"):
            return b""
        return self._bytes(CloseConnection(code, reason))

    def _bytes(self, event: object) -> bytes:
        data: bytes = self._protocol.send(event)  # type: ignore[arg-type, unused-ignore]
        return data


def message(text: str) -> bytes:
    """Return the frame of a message for clients; the same bytes serve all of them.

    :param text: lone surrogates, which no UTF-8 has, become question marks.
    """
    payload = text.encode("utf-8", "replace")
    size = len(payload)
    if size < 126:
        return b"\x81%c" % size + payload
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2) + payload
    return b"\x81\x7f" + size.to_bytes(8) + payload
