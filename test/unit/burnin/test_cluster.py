"""What ``burnin`` asks guests and query daemons."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ganeti import errors
from ganeti.burnin import cluster
from ganeti.burnin.cluster import Node
from ganeti.confd.client import Answer
from ganeti.constants import confd

NODES = [
    Node("node1", "192.0.2.1", "group", True, frozenset()),
    Node("node2", "192.0.2.2", "group", False, frozenset()),
]


class Daemons:
    """Query daemons which know `roles` and `addresses`."""

    def __init__(self) -> None:
        self.roles = {"node1": confd.ROLE_MASTER, "node2": confd.ROLE_REGULAR}
        self.addresses = ["192.0.2.1", "192.0.2.2"]
        self.master = "node1"
        self.peers: list[str] = []

    def __call__(self, key: bytes, peers: list[str]) -> Daemons:
        assert key == b"secret"
        self.peers = peers
        return self

    def query(self, kind: int, query: Any = None) -> Answer:
        if kind == confd.REQ_NODE_ROLE and query not in self.roles:
            raise errors.ConfdClientError("no daemon answered within 10 s")
        answer = {
            confd.REQ_PING: lambda: "ok",
            confd.REQ_CLUSTER_MASTER: lambda: [self.master],
            confd.REQ_NODE_IPS: lambda: self.addresses,
            confd.REQ_NODE_ROLE: lambda: self.roles[query],
        }[kind]()
        return Answer(confd.STATUS_OK, answer, 7, self.peers[0], 1, 1)


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> Daemons:
    found = Daemons()
    monkeypatch.setattr(cluster, "ConfdClient", found)
    return found


def ask() -> list[str]:
    return cluster.ask_confd({"master": "node1"}, NODES, read_key=lambda: b"secret")


def test_daemons_which_say_what_the_master_says(daemons: Daemons) -> None:
    assert ask() == []
    # Only candidates have the configuration.
    assert daemons.peers == ["192.0.2.1"]


def test_daemons_which_say_something_else(daemons: Daemons) -> None:
    daemons.master = "node2"
    daemons.addresses = ["192.0.2.1"]
    daemons.roles = {"node1": confd.ROLE_OFFLINE}
    assert ask() == [
        "the name of the master: the answer is ['node2']",
        "the addresses of the nodes: the answer is ['192.0.2.1']",
        "the role of node1: the answer is 2",
        "the role of node2: no daemon answered within 10 s",
    ]


def test_a_key_that_cannot_be_read() -> None:
    def fail() -> bytes:
        raise PermissionError(13, "Permission denied")

    wrong = cluster.ask_confd({"master": "node1"}, NODES, read_key=fail)
    assert wrong == ["cannot read the key of the cluster: Permission denied"]


@contextmanager
def guest(*answers: bytes) -> Iterator[str]:
    """A guest with a web server which gives these answers, the last one again and again."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(200 if self.path == "/hostname.txt" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def test_a_guest_that_answers_with_its_name() -> None:
    with guest(b"web1\n") as address:
        assert cluster.guest_answer("web1", address, 5) == ""


def test_a_guest_that_needs_some_time() -> None:
    with guest(b"localhost\n", b"web1\n") as address:
        assert cluster.guest_answer("web1", address, 60) == ""


def test_guests_that_answer_something_else() -> None:
    with guest(b"web2") as address:
        assert cluster.guest_answer("web1", address, 0) == (
            "the guest says that its name is 'web2'"
        )
    with guest(b"x" * 100_000) as address:
        assert "its name is 'xxx" in cluster.guest_answer("web1", address, 0)


def test_no_guest() -> None:
    with guest(b"") as address:
        pass
    assert "no answer from 127.0.0.1" in cluster.guest_answer("web1", address, 0)
