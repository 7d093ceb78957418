"""What a daemon reports to the service manager which started it: real processes, a real socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.http.server import Wakeup
from ganeti.server import daemon, noded

pytestmark = pytest.mark.programs

DAEMON = """
import array, atexit, fcntl, os, signal, sys, termios
from ganeti import errors
from ganeti.server import daemon

def check(options):
    if options.how == "refuse":
        raise daemon.StartRefused("node2 is the master", 11)
    if options.how == "no-file":
        raise daemon.StartRefused("a file is missing")

def prepare(options):
    if options.how == "lose":
        raise daemon.StartRefused("lost the vote", 11)
    if options.how == "fail":
        raise errors.ConfigurationError("port 1 is taken")

def run(options, prepared, signals):
    atexit.register(lambda: print(*signal.getitimer(signal.ITIMER_REAL), file=sys.stderr))
    signals.status(str(bool({"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ))))
    if options.how == "hang":
        # Three alarms come, and the loop does not look at them.
        unread = array.array("i", [0])
        while unread[0] < 3:
            fcntl.ioctl(signals.fileno(), termios.FIONREAD, unread)
        signals.status("hung")
    signals.wait_for_stop()
    return 0

daemon.Daemon(
    "ganeti-test", check, prepare, run, port=lambda: 1,
    add_options=lambda parser: parser.add_argument("--how", default="run"),
).main()
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        yield sock


def _start(
    tmp_path: Path, manager: socket.socket, how: str, *options: str, usec: str = ""
) -> subprocess.Popen[str]:
    program = tmp_path / "ganeti-test"
    program.write_text(DAEMON)
    return subprocess.Popen(
        [sys.executable, str(program), "--how", how, *options],
        env={
            **os.environ,
            "GANETI_ROOTDIR": str(tmp_path / "root"),
            "PYTHONPATH": str(Path(daemon.__file__).parents[2]),
            "NOTIFY_SOCKET": manager.getsockname(),
            "WATCHDOG_USEC": usec,
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _reports(manager: socket.socket) -> list[str]:
    """All reports which have not been read; the daemon has ended."""
    manager.setblocking(False)
    found = []
    try:
        while True:
            found.append(manager.recv(4096).decode())
    except BlockingIOError:
        return found


def test_a_daemon_reports_its_life(tmp_path: Path, manager: socket.socket) -> None:
    child = _start(tmp_path, manager, "run", "-f", usec="400000")
    try:
        found = [manager.recv(4096).decode() for _ in range(6)]
        assert found[0] == "READY=1\nSTATUS=serving"
        # Programs which the daemon starts must not report in its name.
        assert "STATUS=False" in found
        assert found.count("WATCHDOG=1") == 4
        child.send_signal(signal.SIGTERM)
        _, text = child.communicate()
        assert child.returncode == 0
        assert _reports(manager)[-1] == "STOPPING=1\nSTATUS=ending"
        # Python removes the handlers of signals at its end: a late alarm would end the process.
        assert text.splitlines()[-1] == "0.0 0.0"
    finally:
        child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()


def test_a_loop_that_hangs_sends_no_sign_of_life(tmp_path: Path, manager: socket.socket) -> None:
    child = _start(tmp_path, manager, "hang", "-f", usec="200000")
    try:
        found = []
        while not found or found[-1] != "STATUS=hung":
            found.append(manager.recv(4096).decode())
        # Only the first one, with the start of the loop.
        assert found.count("WATCHDOG=1") == 1
        # As the manager does. The place where the daemon was is in its error output.
        child.send_signal(signal.SIGABRT)
        _, text = child.communicate()
        assert child.returncode == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in text and "in run" in text
    finally:
        child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()


@pytest.mark.parametrize(
    ("how", "code", "reports"),
    [
        ("refuse", 11, ["READY=1\nSTATUS=node2 is the master"]),
        ("lose", 11, ["READY=1\nSTATUS=lost the vote"]),
        ("no-file", 1, ["STATUS=a file is missing"]),
        ("fail", 1, ["STATUS=port 1 is taken"]),
    ],
)
def test_a_daemon_that_does_not_run_reports_why(
    tmp_path: Path, manager: socket.socket, how: str, code: int, reports: list[str]
) -> None:
    child = _start(tmp_path, manager, how, "-f")
    child.communicate()
    assert child.returncode == code
    assert _reports(manager) == reports


def test_a_daemon_in_the_background_reports_nothing(tmp_path: Path, manager: socket.socket) -> None:
    # The manager would follow the process that it started, which ends.
    child = _start(tmp_path, manager, "refuse")
    child.communicate()
    assert child.returncode == 11
    assert _reports(manager) == []


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [
        ([], Wakeup.GO_ON),
        ([signal.SIGHUP], Wakeup.RENEW),
        ([signal.SIGHUP, signal.SIGTERM], Wakeup.STOP),
    ],
)
def test_an_alarm_costs_the_node_daemon_no_new_children(
    taken: list[signal.Signals], wanted: Wakeup
) -> None:
    assert noded.after_signals(taken) is wanted
