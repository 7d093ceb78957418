"""A bare client of the master's local socket: one connection, one request at a time.

Nothing of the program is used, so that a defect there cannot hide itself.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Self


class RefusedError(Exception):
    """The master has answered with an error."""


class Luxi:
    """A connection; a context manager.

    :raises OSError: the master is not there, does not answer in time, or has gone.
    """

    def __init__(self, path: Path, *, timeout_s: float = 30.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def call(self, method: str, *args: Any) -> Any:
        """Send a request and return its result.

        :raises OSError: no answer came; the request may have been carried out.
        :raises RefusedError: the master has answered with an error.
        """
        self._socket.sendall(json.dumps({"method": method, "args": args}).encode() + b"\x03")
        data = b""
        while not data.endswith(b"\x03"):
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the master has closed the connection")
            data += chunk
        answer = json.loads(data[:-1])
        if not answer["success"]:
            raise RefusedError(json.dumps(answer["result"])[:500])
        return answer["result"]
