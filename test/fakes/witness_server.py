"""A small HTTPS server with one document and conditional writes, as RFC 9110 describes them.

``python witness_server.py DIRECTORY`` serves the file ``document`` of the directory, with the key
and certificate in ``server.pem``, to users whose password is :data:`PASSWORD`, and writes its port
into ``port``. The file ``faults`` has a word in each line, and is read for each request:

* ``cut USER``: connections of this user end without an answer;
* ``deaf``: the same for all users;
* ``lost``: writes are carried out, and get no answer;
* ``twice``: writes are carried out twice, as by a proxy which repeats them;
* ``unconditional``: conditions are ignored; ``weak``: weak entity tags; ``same``: always the same;
* ``refuse``: writes are refused with status 507.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import ssl
import sys
import threading
from pathlib import Path

PASSWORD = "correct horse"  # noqa: S105
PATH = "/cluster/witness.json"


class Handler(http.server.BaseHTTPRequestHandler):
    """One request at a time reads or replaces the document."""

    protocol_version = "HTTP/1.1"
    directory: Path
    lock = threading.Lock()

    def log_message(self, format: str, *args: object) -> None:
        with (self.directory / "log").open("a") as stream:
            stream.write(f"{self._user()} {format % args}\n")

    def _user(self) -> str:
        word, _, text = self.headers.get("Authorization", "").partition(" ")
        if word != "Basic":
            return ""
        user, _, password = base64.b64decode(text).decode().partition(":")
        return user if password == PASSWORD else ""

    def _faults(self) -> list[str]:
        try:
            return (self.directory / "faults").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _answer(self, status: int, body: bytes = b"", tag: str = "") -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _tag(self, body: bytes | None, faults: list[str]) -> str:
        if body is None:
            return ""
        text = "0" if "same" in faults else hashlib.sha256(body).hexdigest()[:16]
        return f'{"W/" if "weak" in faults else ""}"{text}"'

    def _begin(self) -> list[str] | None:
        """Return the faults; None if the request is over."""
        faults, user = self._faults(), self._user()
        if "deaf" in faults or f"cut {user}" in faults:
            self.close_connection = True
            return None
        if not user:
            self._answer(401)
            return None
        if self.path != PATH:
            self._answer(403)
            return None
        return faults

    def _present(self) -> bytes | None:
        try:
            return (self.directory / "document").read_bytes()
        except FileNotFoundError:
            return None

    def do_GET(self) -> None:
        faults = self._begin()
        if faults is None:
            return
        with self.lock:
            body = self._present()
        if body is None:
            self._answer(404)
        else:
            self._answer(200, body, self._tag(body, faults))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        faults = self._begin()
        if faults is None:
            return
        if "refuse" in faults:
            self._answer(507)
            return
        status = 500
        for _ in range(2 if "twice" in faults else 1):
            status = self._replace(body, faults)
        if "lost" in faults:
            self.close_connection = True
            return
        self._answer(status)

    def _replace(self, body: bytes, faults: list[str]) -> int:
        with self.lock:
            present = self._tag(self._present(), faults)
            wanted = self.headers.get("If-Match")
            missing = self.headers.get("If-None-Match") == "*"
            if "unconditional" not in faults and (
                (wanted is not None and wanted != present) or (missing and present)
            ):
                return 412
            new = self.directory / "document.new"
            new.write_bytes(body)
            new.rename(self.directory / "document")
            return 204 if present else 201


def main(directory: Path) -> None:
    Handler.directory = directory
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (directory / "port.new").write_text(str(server.server_address[1]))
    os.rename(directory / "port.new", directory / "port")
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
