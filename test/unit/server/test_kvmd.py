"""Noticing shutdowns from inside, against a QEMU made of a socket."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from ganeti.server import kvmd

SHUTDOWN = {"event": "SHUTDOWN", "data": {"guest": True, "reason": "guest-shutdown"}}


@pytest.mark.parametrize(
    "message, wanted",
    [
        (SHUTDOWN, True),
        ({"event": "SHUTDOWN", "data": {"guest": True, "reason": "guest-reset"}}, False),
        ({"event": "SHUTDOWN", "data": {"guest": False, "reason": "host-qmp-quit"}}, False),
        ({"event": "SHUTDOWN"}, False),
        ({"event": "POWERDOWN"}, False),
        ([], False),
    ],
)
def test_only_the_guests_own_wish_counts(message: object, wanted: bool) -> None:
    assert kvmd.by_guest(json.dumps(message).encode()) is wanted


def test_garbage_is_no_shutdown() -> None:
    assert not kvmd.by_guest(b"\xff{")


@pytest.fixture
def qemu(tmp_path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "web1.example.com.kvmd"))
    server.listen()
    return server


def test_a_shutdown_from_inside_leaves_a_mark(qemu: socket.socket, tmp_path: Path) -> None:
    mark = tmp_path / "web1.example.com.shutdown"
    watcher = kvmd.Watcher(str(tmp_path))
    watcher.look()
    (monitor,) = watcher.monitors()
    peer, _ = qemu.accept()
    assert json.loads(peer.recv(100)) == {"execute": "qmp_capabilities"}
    text = json.dumps({"QMP": {}}).encode() + b"\r\n" + json.dumps(SHUTDOWN).encode()
    peer.sendall(text)  # the event has no end yet
    watcher.read({monitor.fileno()})
    assert not mark.exists()
    peer.sendall(b"\r\n")
    watcher.read({monitor.fileno()})
    assert mark.exists()
    peer.close()
    watcher.read({monitor.fileno()})
    assert watcher.monitors() == []
    watcher.look()  # QEMU still listens: it is found again
    assert [one.instance_name for one in watcher.monitors()] == ["web1.example.com"]
    watcher.close()


def test_one_that_sends_without_end_is_left(qemu: socket.socket, tmp_path: Path) -> None:
    watcher = kvmd.Watcher(str(tmp_path))
    watcher.look()
    (monitor,) = watcher.monitors()
    peer, _ = qemu.accept()
    sent = 0
    peer.setblocking(False)
    while watcher.monitors():
        try:
            sent += peer.send(b"x" * 65536)
        except BlockingIOError:
            pass
        watcher.read({monitor.fileno()})
    assert sent > 1 << 20


def test_a_stale_socket_and_a_missing_directory_are_no_error(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "gone.kvmd"))
    stale.close()
    for directory in (tmp_path, tmp_path / "missing"):
        watcher = kvmd.Watcher(str(directory))
        watcher.look()
        assert watcher.monitors() == []


def test_a_socket_that_does_not_listen_yet_is_looked_at_again_soon(tmp_path: Path) -> None:
    """Not for ever: after a crash of its QEMU nobody will."""
    path = tmp_path / "web1.example.com.kvmd"
    watcher = kvmd.Watcher(str(tmp_path))
    assert not watcher.look()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert watcher.look() and watcher.monitors() == []
        os.utime(path, (1, 1))
        assert not watcher.look()
        server.listen()
        assert not watcher.look()
        assert len(watcher.monitors()) == 1
    watcher.close()
