"""Reports to the service manager, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.utils import notify


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def _environment(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), "HOME": "/", **more}


def test_reports(manager: socket.socket) -> None:
    variables = _environment(manager)
    notifier = notify.take(variables)
    # Programs which this process starts must not report in its name.
    assert variables == {"HOME": "/"}
    assert notifier.active
    assert notifier.beat_interval_s is None
    notifier.ready()
    assert manager.recv(4096) == b"READY=1\nSTATUS=serving"
    notifier.beat()
    assert manager.recv(4096) == b"WATCHDOG=1"
    notifier.stopping()
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=ending"
    notifier.unneeded("not the master")
    assert manager.recv(4096) == b"READY=1\nSTATUS=not the master"


def test_a_status_is_one_line_of_bounded_length(manager: socket.socket) -> None:
    notifier = notify.take(_environment(manager))
    notifier.failed("port 1 is taken\nREADY=1\n")
    assert manager.recv(4096) == b"STATUS=port 1 is taken READY=1"
    notifier.status("\u00e9" * 5000)
    status = manager.recv(65536).decode()
    assert 1000 <= len(status) <= 1010


def test_abstract_socket() -> None:
    name = f"ganeti-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        notify.take({"NOTIFY_SOCKET": f"@{name}"}).beat()
        assert sock.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("usec", "pid", "interval_s"),
    [
        ("8000000", "", 2.0),
        ("8000000", "own", 2.0),
        ("8000000", "1", None),
        ("0", "", None),
        ("x", "", None),
        ("9" * 40, "", None),
        ("", "", None),
    ],
)
def test_watchdog(manager: socket.socket, usec: str, pid: str, interval_s: float | None) -> None:
    own = str(os.getpid()) if pid == "own" else pid
    notifier = notify.take(_environment(manager, WATCHDOG_USEC=usec, WATCHDOG_PID=own))
    assert notifier.beat_interval_s == interval_s


def test_without_a_manager(tmp_path: Path, manager: socket.socket) -> None:
    assert not notify.take({}).active
    assert not notify.take({"NOTIFY_SOCKET": "vsock:2:1"}).active
    assert notify.take({"WATCHDOG_USEC": "8000000"}).beat_interval_s is None
    notify.Notifier().ready()
    # A manager which has gone, or whose queue is full, does not stop the daemon.
    notify.Notifier(str(tmp_path / "missing")).ready()
    flood = notify.take(_environment(manager))
    for _ in range(5000):
        flood.beat()
    assert manager.recv(100) == b"WATCHDOG=1"
