"""An HTTPS server whose answers have no end and say nothing about their length."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Self

ADDRESS = "127.19.18.7"
_OK = b"HTTP/1.1 200 OK\r\n"
_PIECE = b"x" * 65536
#: Kind of answer -> its beginning, and what follows again and again.
ANSWERS = {
    "no length": (_OK + b"Connection: close\r\n\r\n", _PIECE),
    "chunks": (
        _OK + b"Transfer-Encoding: chunked\r\n\r\n",
        b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE),
    ),
    "headers": (_OK, b"X-Name: some value\r\n" * 100),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100),
}


class EndlessServer:
    """Serves until it is closed.

    :ivar sent_bytes: how much the last client took before it ended the connection.
    :ivar answer: one of :data:`ANSWERS`.
    """

    def __init__(self, pem: str, answer: str, address: str = ADDRESS) -> None:
        self.answer = answer
        self.sent_bytes = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._sock = socket.create_server((address, 0))
        self.port: int = self._sock.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                raw, _peer = self._sock.accept()
            except OSError:
                return
            with raw, contextlib.suppress(OSError):
                raw.settimeout(60)
                with self._context.wrap_socket(raw, server_side=True) as connection:
                    connection.recv(65536)
                    self.sent_bytes = 0
                    for data in self._pieces():
                        connection.sendall(data)
                        self.sent_bytes += len(data)

    def _pieces(self) -> Iterator[bytes]:
        begin, again = ANSWERS[self.answer]
        yield begin
        while True:
            yield again
