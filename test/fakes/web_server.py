"""An HTTPS server which notes each request, and answers as its owner says.

It is for the tests of what makes requests to servers outside of the cluster.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ganeti.utils import x509

ADDRESS = "127.0.0.1"
NAME = "localhost"


class Request(NamedTuple):
    """What a client has sent; the names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """What the server answers."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


#: Makes the answer; may wait, or raise :class:`Hangup`.
Respond = Callable[[Request], Answer]


class Hangup(Exception):
    """The server ends the connection without an answer."""


class WebServer:
    """The server.

    :ivar url: the beginning of its addresses, ``https://localhost:PORT``.
    :ivar ca_file: the certificate to trust.
    :ivar requests: all of them, in order.
    :ivar respond: makes the answers; may be replaced.
    """

    def __init__(self, directory: Path, respond: Respond) -> None:
        self.respond = respond
        self.requests: list[Request] = []
        self.ca_file = str(directory / "web-server.pem")
        Path(self.ca_file).write_text(x509.create_self_signed(NAME, host_names=[NAME]))
        self._server = http.server.ThreadingHTTPServer(
            (ADDRESS, 0), functools.partial(_Handler, self)
        )
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port: int = self._server.server_address[1]
        self.url = f"https://{NAME}:{self.port}"
        threading.Thread(
            target=functools.partial(self._server.serve_forever, 0.05), daemon=True
        ).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, owner: WebServer, *args: object) -> None:
        self._owner = owner
        # A client which does not trust the server, or goes away, is no error of the server.
        with contextlib.suppress(OSError):
            super().__init__(*args)  # type: ignore[arg-type]

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(size))
        self._owner.requests.append(request)
        try:
            answer = self._owner.respond(request)
        except Hangup:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - their names there

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing to say."""


@contextlib.contextmanager
def web_server(directory: Path, respond: Respond) -> Iterator[WebServer]:
    """Run the server; its certificate is in the directory."""
    server = WebServer(directory, respond)
    try:
        yield server
    finally:
        server.close()
