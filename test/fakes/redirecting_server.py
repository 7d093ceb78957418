"""A web server over HTTP and HTTPS which redirects to the addresses that a request names.

``/to/ADDRESS`` redirects to the address, which may be such a path again; any other path is a
document: what :attr:`RedirectingServer.documents` has for it, else the path itself.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from ganeti.utils import x509

ADDRESS = "127.0.0.1"
NAME = "localhost"


class RedirectingServer:
    """Two servers with the same content.

    :ivar http: the beginning of addresses of HTTP.
    :ivar https: the beginning of addresses of HTTPS.
    :ivar ca_file: the certificate to trust.
    :ivar requests: what was asked for: scheme and path of each request.
    """

    def __init__(self, directory: Path) -> None:
        self.documents: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.ca_file = str(directory / "server.pem")
        Path(self.ca_file).write_text(x509.create_self_signed(NAME, host_names=[NAME]))
        self._servers = {scheme: self._serve(scheme) for scheme in ("http", "https")}
        self.http, self.https = (
            f"{scheme}://{NAME}:{server.server_address[1]}"
            for scheme, server in self._servers.items()
        )

    def _serve(self, scheme: str) -> http.server.ThreadingHTTPServer:
        server = http.server.ThreadingHTTPServer(
            (ADDRESS, 0), functools.partial(_Handler, self, scheme)
        )
        if scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.ca_file)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=functools.partial(server.serve_forever, 0.05)).start()
        return server

    def close(self) -> None:
        """Stop both servers."""
        for server in self._servers.values():
            server.shutdown()
            server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, owner: RedirectingServer, scheme: str, *args: object) -> None:
        self._owner = owner
        self._scheme = scheme
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._owner.requests.append((self._scheme, self.path))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self._owner.documents.get(self.path, self.path.encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing to say."""


@contextlib.contextmanager
def redirecting_server(directory: Path) -> Iterator[RedirectingServer]:
    """Run both servers; their certificate is in the directory."""
    server = RedirectingServer(directory)
    try:
        yield server
    finally:
        server.close()
