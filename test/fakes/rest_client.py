"""Sends requests to an application of the REST daemon over a real socket."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fakes.http_lab import HttpLab, receive_answer
from fakes.rest_master import FakeMaster
from ganeti.rapi.application import RestApplication
from ganeti.rapi.declare import Resource
from ganeti.rapi.identify import Identities
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import Users


class Rest:
    """Requests, one connection each."""

    def __init__(self, lab: HttpLab, master: FakeMaster) -> None:
        self.lab = lab
        self.master = master

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: str | None = "root:pw",
        raw: bytes | None = None,
        **headers: str,
    ) -> tuple[int, Any, dict[str, str]]:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: h", "Connection: close"]
        if user is not None:
            lines.append("Authorization: Basic " + base64.b64encode(user.encode()).decode())
        if data:
            lines.append(f"Content-Length: {len(data)}")
            headers.setdefault("content_type", "application/json")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        with self.lab.connect() as sock:
            sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
            status, found, text = receive_answer(sock)
        kind = found.get("content-type")
        return status, json.loads(text) if kind == "application/json" else text, found

    def job(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The only opcode of the job that a request submits."""
        status, value, _headers = self(method, path, body)
        assert (status, value) == (200, 12), value
        (op,) = self.master.ops
        return op


@contextlib.contextmanager
def rest_lab(
    tmp_path: Path,
    master: FakeMaster | None = None,
    users: str = "root pw write\n",
    resources: Sequence[Resource] = RESOURCES,
) -> Iterator[Rest]:
    """An application in front of a master that is made up."""
    file = tmp_path / "users"
    file.write_text(users)
    master = master or FakeMaster()
    lab = HttpLab(
        lambda: RestApplication(master, Identities([Users(str(file))]), resources=resources)
    )
    try:
        yield Rest(lab, master)
    finally:
        lab.close()
