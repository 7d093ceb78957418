"""Questions to the guest agent, with a guest that answers anything."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm import guest_agent

INTERFACES = [
    {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "prefix": 8}]},
    {"name": "empty"},
    {
        "name": "eth0",
        "ip-addresses": [
            {"ip-address": "192.0.2.7", "prefix": 24},
            {"ip-address": "fe80::1", "prefix": 64},
            {"ip-address": "2001:db8::7", "prefix": 64},
        ],
    },
]


@contextmanager
def agent(path: Path, answer: Callable[[dict], bytes]) -> Iterator[str]:
    """An agent which answers each command; an earlier answer is still in its socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with suppress(OSError):  # the client has enough
            answer_all()

    def answer_all() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(b'\xff{"return": "old"}\nnot json\n')
            for line in lines:
                command = json.loads(line)
                if command["execute"] == "guest-sync":
                    number = command["arguments"]["id"]
                    peer.sendall(json.dumps({"return": number}).encode() + b"\n")
                else:
                    peer.sendall(answer(command))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.close()


def test_addresses_without_those_of_the_guest_alone(tmp_path: Path) -> None:
    answer = json.dumps({"return": INTERFACES}).encode() + b"\n"
    with agent(tmp_path / "qga", lambda command: answer) as path:
        assert guest_agent.addresses(path) == ["192.0.2.7", "2001:db8::7"]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error": {"class": "CommandNotFound"}}\n',
        b'{"return": 7}\n',
        b'{"return": [{"ip-addresses": [{"ip-address": "$(reboot)"}]}]}\n',
        b'{"return": [[]]}\n',
        b"x" * (1 << 19),
    ],
)
def test_an_answer_of_another_form_is_none(tmp_path: Path, answer: bytes) -> None:
    with agent(tmp_path / "qga", lambda command: answer) as path:
        assert guest_agent.addresses(path) == []


def test_a_guest_without_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_agent, "TIMEOUT_S", 0.05)
    assert guest_agent.addresses(str(tmp_path / "nosuch")) == []
    with agent(tmp_path / "qga", lambda command: b"") as path:
        assert guest_agent.addresses(path) == []
