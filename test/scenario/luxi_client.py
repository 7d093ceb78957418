"""A bare client of the master's socket: one connection, one request at a time.

Nothing of the product is used, so that what is on the wire is tested, too.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from harness import PATIENCE_S, Cluster


class Luxi:
    """:raises OSError: the master is not there, or has gone."""

    def __init__(self, cluster: Cluster, master: str) -> None:
        path = cluster.path(master, "var/run/ganeti/socket/ganeti-master")
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            # Without a time limit: with one, a full queue of connections is an error at once.
            self.sock.connect(str(path))
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(PATIENCE_S)

    def close(self) -> None:
        self.sock.close()

    def send(self, method: str, *args: Any) -> None:
        self.sock.sendall(json.dumps({"method": method, "args": args}).encode() + b"\x03")

    def receive_any(self) -> dict[str, Any]:
        """The answer as it is, also one that tells of an error."""
        data = b""
        while not data.endswith(b"\x03"):
            chunk = self.sock.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError
            data += chunk
        answer: dict[str, Any] = json.loads(data[:-1])
        return answer

    def receive(self) -> Any:
        answer = self.receive_any()
        assert answer["success"], answer
        return answer["result"]

    def call(self, method: str, *args: Any) -> Any:
        self.send(method, *args)
        return self.receive()
