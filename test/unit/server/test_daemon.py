"""The main function which all daemons share: options, signals, start, end."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths
from ganeti.server import daemon
from ganeti.utils import daemonize, process, retry


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    # Handlers of the test runner must not be closed by setup().
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_signals_are_queued() -> None:
    signals = daemon.Signals()
    try:
        assert signals.take() == []
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert sorted(signals.wait(10) + signals.take()) == [signal.SIGHUP, signal.SIGTERM]
        assert signals.wait(0) == []
        signals.raise_stop()
        assert signals.wait_for_stop() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGHUP)
        assert not signals.take_stop()
        signals.raise_stop()
        assert signals.take_stop()
    finally:
        signals.close()


DAEMON = """
import sys
from ganeti import errors
from ganeti.server import daemon

def check(options):
    if options.how == "refuse":
        raise daemon.StartRefused("not the master. Try node2.", 11)

def prepare(options):
    if options.how == "fail":
        raise errors.ConfigurationError("port 1 is taken")
    if options.how == "crash":
        raise ValueError("a bug")
    return "prepared"

def run(options, prepared, signals):
    print("after start-up")
    signals.wait_for_stop()
    return 0

daemon.Daemon(
    "ganeti-test", check, prepare, run, port=lambda: 1,
    add_options=lambda parser: parser.add_argument("--how", default="run"),
).main()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "root"))
    path = tmp_path / "ganeti-test"
    path.write_text(DAEMON)
    lib = str(Path(daemon.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", lib)
    return str(path)


def _start(program: str, *args: str) -> process.Completed:
    return process.run([sys.executable, program, *args], timeout_s=120, check=False)


def _log_text() -> str:
    return Path(paths.current().log_file("ganeti-test")).read_text()


@pytest.mark.programs
def test_life_of_a_daemon(program: str) -> None:
    started = _start(program)
    assert (started.exit_code, started.output) == (0, "")
    pid = daemonize.read_pid(paths.current().pid_file("ganeti-test"))
    assert pid is not None
    try:
        again = _start(program)
        assert again.exit_code == 1
        assert f"already running as process {pid}" in again.stderr
        log_file = Path(paths.current().log_file("ganeti-test"))
        log_file.rename(log_file.with_suffix(".1"))
        os.kill(pid, signal.SIGHUP)

        def reopened() -> None:
            if not log_file.exists():
                raise retry.Again

        retry.until(reopened, timeout_s=60)
    finally:
        os.kill(pid, signal.SIGTERM)

    def gone() -> None:
        if process.is_alive(pid):
            raise retry.Again

    retry.until(gone, timeout_s=60)
    assert not os.path.exists(paths.current().pid_file("ganeti-test"))
    assert "ganeti-test ends" in _log_text()
    assert "after start-up" in log_file.with_suffix(".1").read_text() + _log_text()


@pytest.mark.programs
@pytest.mark.parametrize("where", [[], ["-f"]])
@pytest.mark.parametrize(
    ("how", "code", "fragment"),
    [("refuse", 11, "not the master. Try node2."), ("fail", 1, "port 1 is taken"),
     ("crash", 1, "a bug")],
)  # fmt: skip
def test_daemon_that_cannot_start(
    program: str, how: str, code: int, fragment: str, where: list[str]
) -> None:
    done = _start(program, "--how", how, *where)
    assert done.exit_code == code
    assert fragment in done.stderr
    assert not os.path.exists(paths.current().pid_file("ganeti-test"))
    if how != "crash":
        assert "Traceback" not in done.stderr


@pytest.mark.programs
def test_wrong_options(program: str) -> None:
    assert _start(program, "--no-such").exit_code == 2
    assert "not a port number" in _start(program, "-p", "99999").stderr
    version = _start(program, "--version")
    assert version.exit_code == 0 and "3.1.0" in version.stdout


def test_unknown_user() -> None:
    with pytest.raises(errors.ConfigurationError, match="user 'nobody-at-all' does not exist"):
        daemon.drop_privileges("nobody-at-all", None)
    with pytest.raises(errors.ConfigurationError, match="group 'nobody-at-all' does not exist"):
        daemon.drop_privileges(None, "nobody-at-all")
    daemon.drop_privileges(None, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_privileges_are_dropped_for_good() -> None:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        daemon.drop_privileges("nobody", None)
        facts = [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()]
        try:
            os.setuid(0)
            facts.append(-1)
        except PermissionError:
            pass
        os.write(send, repr(facts).encode())
        os._exit(0)
    os.close(send)
    with open(receive) as stream:
        facts = stream.read()
    os.waitpid(child, 0)
    assert "-1" not in facts and not [word for word in facts.strip("[]").split(", ") if word == "0"]


def test_common_options() -> None:
    def unused(*_: object) -> None:
        raise AssertionError

    with_port = daemon.Daemon("x", unused, unused, unused, port=lambda: 1811).parser()
    common = {"foreground": True, "debug": 2, "syslog": "yes", "user": None, "group": None}
    options = with_port.parse_args(["-f", "-d", "-d", "-p", "2", "--syslog", "yes"])
    assert vars(options) == {**common, "port": 2, "bind": None}
    assert with_port.parse_args([]).port == 1811
    without_port = daemon.Daemon("x", unused, unused, unused).parser()
    assert vars(without_port.parse_args(["-f", "-dd", "--syslog", "yes"])) == common


def test_an_address_that_cannot_be_served() -> None:
    with (
        pytest.raises(errors.ConfigurationError, match="cannot serve ::1 port 5: No such"),
        daemon.serving("::1", 5),
    ):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
