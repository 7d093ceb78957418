"""An answer while it is received: its bytes are counted, not those which the server has announced.

``MAXFILESIZE`` of libcurl only looks at the announced length before version 8.4, so a server which
announces none could send without end. The functions here refuse what is above the limits, with
which libcurl ends the transfer (``E_WRITE_ERROR``).

All answers which a process receives at the same time share :data:`MOST_TOGETHER_BYTES`, because a
hundred of them may come at once. Only those which have become large are refused for that.
"""

from __future__ import annotations

import io
import threading
from typing import Final

from ganeti import http

#: Memory for all answers which are being received.
MOST_TOGETHER_BYTES: Final = 8 * http.MAX_ANSWER_BYTES
# Smaller ones are always received.
_SMALL_BYTES: Final = 1 << 20


class _Together:
    """The size of all answers which are being received."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.size = 0

    def add(self, size: int) -> int:
        """Add to the size, and return it."""
        with self._lock:
            self.size += size
            return self.size


_together = _Together()


class Received:
    """The body and the headers of one answer.

    :param most_bytes: the largest body.
    :ivar headers: the lines which have come, each with its end.
    :ivar excess: what was too large, as text; empty while nothing was.
    """

    __slots__ = ("_body", "_head_bytes", "_most_bytes", "excess", "headers")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._body = io.BytesIO()
        self._head_bytes = 0
        self.headers: list[bytes] = []
        self.excess = ""

    def __del__(self) -> None:
        _together.add(-self._body.tell())

    def write(self, data: bytes) -> int:
        """Take a part of the body; return how much was taken, so 0 ends the transfer."""
        size = self._body.tell() + len(data)
        if size > self._most_bytes:
            self.note_size()
            return 0
        if _together.add(len(data)) > MOST_TOGETHER_BYTES and size > _SMALL_BYTES:
            _together.add(-len(data))
            self.excess = (
                f"the answers which are being received have more than {MOST_TOGETHER_BYTES} bytes"
                " together"
            )
            return 0
        return self._body.write(data)

    def note_size(self) -> None:
        """Note that the body is too large, which libcurl may have found out itself."""
        self.excess = f"the answer has more than {self._most_bytes} bytes"

    def add_header(self, line: bytes) -> int:
        """Take a line of the head, also of an interim answer; 0 ends the transfer."""
        self._head_bytes += len(line)
        if self._head_bytes > http.MAX_ANSWER_HEAD_BYTES:
            self.excess = f"the head of the answer has more than {http.MAX_ANSWER_HEAD_BYTES} bytes"
            return 0
        self.headers.append(line)
        return len(line)

    def body(self) -> bytes:
        """Return what has come of the body."""
        return self._body.getvalue()
