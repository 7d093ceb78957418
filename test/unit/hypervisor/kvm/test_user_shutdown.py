"""Noticing shutdowns from inside, with a socket in place of QEMU."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ganeti.hypervisor.kvm import user_shutdown
from ganeti.utils import fs, shortage

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
def test_only_a_shutdown_by_the_guest_counts(message: object, wanted: bool) -> None:
    assert user_shutdown.is_guest_shutdown(json.dumps(message).encode()) is wanted


def test_garbage_is_no_shutdown() -> None:
    assert not user_shutdown.is_guest_shutdown(b"\xff{")


@pytest.fixture
def qemu(tmp_path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "web1.example.com.kvmd"))
    server.listen()
    return server


def test_a_shutdown_from_inside_leaves_a_mark(qemu: socket.socket, tmp_path: Path) -> None:
    mark = tmp_path / "web1.example.com.shutdown"
    monitor = user_shutdown.ShutdownMonitor(str(tmp_path))
    monitor.connect()
    (connection,) = monitor.connections()
    peer, _ = qemu.accept()
    assert json.loads(peer.recv(100)) == {"execute": "qmp_capabilities"}
    text = json.dumps({"QMP": {}}).encode() + b"\r\n" + json.dumps(SHUTDOWN).encode()
    peer.sendall(text)  # the event has no end yet
    monitor.read({connection.fileno()})
    assert not mark.exists()
    peer.sendall(b"\r\n")
    monitor.read({connection.fileno()})
    assert mark.exists()
    peer.close()
    monitor.read({connection.fileno()})
    assert monitor.connections() == []
    monitor.connect()  # QEMU still listens: it is found again
    assert [one.instance_name for one in monitor.connections()] == ["web1.example.com"]
    monitor.close()


def test_one_that_sends_without_end_is_left(qemu: socket.socket, tmp_path: Path) -> None:
    monitor = user_shutdown.ShutdownMonitor(str(tmp_path))
    monitor.connect()
    (connection,) = monitor.connections()
    peer, _ = qemu.accept()
    sent = 0
    peer.setblocking(False)
    while monitor.connections():
        try:
            sent += peer.send(b"x" * 65536)
        except BlockingIOError:
            pass
        monitor.read({connection.fileno()})
    assert sent > 1 << 20


def test_a_stale_socket_and_a_missing_directory_are_no_error(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "gone.kvmd"))
    stale.close()
    for directory in (tmp_path, tmp_path / "missing"):
        monitor = user_shutdown.ShutdownMonitor(str(directory))
        monitor.connect()
        assert monitor.connections() == []


def test_a_socket_that_does_not_listen_yet_is_looked_at_again_soon(tmp_path: Path) -> None:
    """Not for ever: after a crash of its QEMU nobody will."""
    path = tmp_path / "web1.example.com.kvmd"
    monitor = user_shutdown.ShutdownMonitor(str(tmp_path))
    assert not monitor.connect()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert monitor.connect() and monitor.connections() == []
        os.utime(path, (1, 1))
        assert not monitor.connect()
        server.listen()
        assert not monitor.connect()
        assert len(monitor.connections()) == 1
    monitor.close()


def test_a_shortage_loses_no_shutdown(
    qemu: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its mark, the guest would be started again."""
    monkeypatch.setattr(shortage, "_PAUSES", 0.0)
    monitor = user_shutdown.ShutdownMonitor(str(tmp_path))
    listdir, write = os.listdir, fs.write_file
    left = [errno.EMFILE, errno.EMFILE]

    def lacking() -> None:
        if left:
            number = left.pop()
            raise OSError(number, os.strerror(number))

    def listed(path: str) -> list[str]:
        lacking()
        return listdir(path)

    def written(*args: Any, **options: Any) -> None:
        lacking()
        write(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(user_shutdown.os, "listdir", listed)
        assert monitor.connect() and monitor.connect(), "it is to look again soon"
        monitor.connect()
        (connection,) = monitor.connections()
    peer, _ = qemu.accept()
    left[:] = [errno.ENOSPC, errno.ENOSPC]
    monkeypatch.setattr(fs, "write_file", written)
    peer.sendall(json.dumps(SHUTDOWN).encode() + b"\r\n")
    monitor.read({connection.fileno()})
    assert (tmp_path / "web1.example.com.shutdown").exists()
    monitor.close()
