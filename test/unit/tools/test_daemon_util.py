"""The published sub-commands of daemon-util, on a daemon that does nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.configfile import files
from ganeti.configfile.content import Change
from ganeti.platform import machine, paths, users, versions
from ganeti.tools import daemon_util
from ganeti.utils import daemonize, process

DAEMON = """
import sys
from ganeti import errors
from ganeti.server import daemon

def prepare(options):
    if options.bind:
        raise daemon.StartRefused("not the master", 11)

daemon.Daemon(
    "ganeti-noded", lambda options: None, prepare,
    lambda options, prepared, signals: signals.wait_for_stop() and 0, port=lambda: 1,
).main()
"""

PUBLISHED = """daemon-pidfile daemon-executable list-start-daemons list-stop-daemons is-daemon-name
check start stop check-and-start start-master stop-master start-all stop-all rotate-logs
rotate-all-logs reload-ssh-keys check-config check-exitcode use-systemctl"""


@pytest.fixture(autouse=True)
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "root"))
    directory = tmp_path / "daemons"
    directory.mkdir()
    program = directory / "ganeti-noded"
    program.write_text(DAEMON)
    program.chmod(0o755)
    monkeypatch.setattr(paths, "daemon_dir", lambda: str(directory))


def _run(*words: str) -> int:
    return daemon_util.main(words)


def test_published_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--help") == 0
    shown = capsys.readouterr().out
    assert not [name for name in PUBLISHED.split() if f"  {name}" not in shown]
    assert _run() == 1


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["nonsense"], "unknown command 'nonsense'"),
        (["check"], "usage: daemon-util check <daemon>"),
        (["start", "ganeti-x"], "'ganeti-x' is not a daemon"),
        (["stop", "ganeti-mond"], "ganeti-mond is not installed"),
        (["check-exitcode", "x"], "not an exit code"),
    ],
)
def test_bad_input(words: list[str], fragment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(*words) == 1
    assert fragment in capsys.readouterr().err


def test_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("list-start-daemons") == 0
    assert capsys.readouterr().out == "ganeti-noded\n"
    assert _run("daemon-pidfile", "ganeti-noded") == 0
    assert capsys.readouterr().out.endswith("/root/var/run/ganeti/ganeti-noded.pid\n")
    assert _run("is-daemon-name", "ganeti-noded") == 0
    assert _run("is-daemon-name", "sshd") == 1
    assert [_run("check-exitcode", code) for code in ("0", "11", "1")] == [0, 0, 1]
    assert _run("check-config") == 5
    assert _run("start-all") == 5


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("node9.example.com", ["ganeti-noded", "ganeti-failoverd"]),
        (None, ["ganeti-noded", "ganeti-masterd", "ganeti-rapi", "ganeti-failoverd"]),
        # The master daemon itself says that nobody knows who is the master.
        ("", ["ganeti-noded", "ganeti-masterd", "ganeti-rapi", "ganeti-failoverd"]),
    ],
)
def test_start_all_starts_the_daemons_of_the_master_on_the_master(
    monkeypatch: pytest.MonkeyPatch, master: str | None, wanted: list[str]
) -> None:
    started: list[str] = []
    programs = ("ganeti-noded", *daemon_util.MASTER_DAEMONS, "ganeti-failoverd")
    monkeypatch.setattr(daemon_util, "check_config", lambda: 0)
    monkeypatch.setattr(daemon_util, "installed", lambda: list(programs))
    monkeypatch.setattr(daemon_util, "wanted", lambda daemon: True)
    monkeypatch.setattr(daemon_util, "start", lambda daemon: started.append(daemon) or 0)
    if master != "":
        path = Path(paths.current().ssconf_file("master_node"))
        path.parent.mkdir(parents=True)
        path.write_text(f"{machine.current().hostname() if master is None else master}\n")
    assert _run("start-all") == 0
    assert started == wanted


@pytest.mark.programs
def test_start_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run("check", "ganeti-noded") == 1
    assert _run("stop", "ganeti-noded") == 0
    assert _run("start", "ganeti-noded") == 0
    try:
        pid = daemonize.read_pid(paths.current().pid_file("ganeti-noded"))
        assert pid is not None
        assert _run("check", "ganeti-noded") == 0
        assert _run("start", "ganeti-noded") == 0  # it runs already
        assert daemonize.read_pid(paths.current().pid_file("ganeti-noded")) == pid
        assert _run("rotate-all-logs") == 0
    finally:
        assert _run("stop-all") == 0
    assert not process.is_alive(pid)
    assert _run("rotate-logs", "ganeti-noded") == 0


@pytest.mark.programs
def test_two_starts_at_the_same_time_are_both_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher and a failover may start the same daemon; one process finds it running."""
    try:
        assert _run("start", "ganeti-noded") == 0
        pid = daemonize.read_pid(paths.current().pid_file("ganeti-noded"))
        answers = [False]
        found = daemon_util.is_running
        monkeypatch.setattr(
            daemon_util, "is_running", lambda daemon: answers.pop() if answers else found(daemon)
        )
        assert _run("start", "ganeti-noded") == 0
        assert answers == []
        assert daemonize.read_pid(paths.current().pid_file("ganeti-noded")) == pid
    finally:
        assert _run("stop-all") == 0


@pytest.mark.programs
def test_daemons_own_exit_code(tmp_path: Path) -> None:
    defaults = tmp_path / "root/etc/default"
    defaults.mkdir(parents=True)
    (defaults / "ganeti").write_text('NODED_ARGS="-b 127.0.0.1"\n')
    assert _run("start", "ganeti-noded") == 11
    assert _run("check", "ganeti-noded") == 1


@pytest.mark.programs
def test_the_starter_itself() -> None:
    util = Path(__file__).resolve().parents[3] / "daemons" / "daemon-util"
    done = process.run([str(util), "list-stop-daemons"], timeout_s=120)
    assert "ganeti-noded" in done.stdout.split()


def test_defaults_file() -> None:
    text = '# NODED_ARGS="-x"\nexport X=1\nNODED_ARGS="-d --syslog=yes"\nRAPI_ARGS=\'-b ::1\'\n'
    assert daemon_util.parse_defaults(text) == {
        "ganeti-noded": ["-d", "--syslog=yes"],
        "ganeti-rapi": ["-b", "::1"],
    }
    with pytest.raises(errors.ConfigurationError, match="quotation"):
        daemon_util.parse_defaults('NODED_ARGS="-d')


def test_library_is_found_by_the_daemon() -> None:
    assert os.path.dirname(paths.package_dir()) in sys.path


@pytest.mark.parametrize(
    ("master", "started", "code", "words"),
    [
        (0, ["ganeti-masterd", "ganeti-rapi"], 0, ""),
        (11, ["ganeti-masterd"], 0, ""),
        (1, ["ganeti-masterd"], 1, "ganeti-rapi is not started, because ganeti-masterd does not"),
    ],
)
def test_the_rest_daemon_needs_the_master_daemon(
    master: int,
    started: list[str],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def start(daemon: str) -> int:
        asked.append(daemon)
        return master if daemon == "ganeti-masterd" else 0

    monkeypatch.setattr(daemon_util, "start", start)
    monkeypatch.setattr(daemon_util, "installed", lambda: ["ganeti-masterd", "ganeti-rapi"])
    assert _run("start-master") == code
    assert asked == started
    assert words in capsys.readouterr().err


def test_missing_accounts_are_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = users.parse('NODED_ARGS="--user=nosuch"')
    monkeypatch.setattr(users, "current", lambda: settings)
    monkeypatch.setattr(type(machine.current()), "may_change_owners", True)
    assert _run("start", "ganeti-noded") == 1
    assert "user nosuch does not exist" in capsys.readouterr().err
    assert not Path(paths.current().run_dir).exists()


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration whose last change is in its journal; a node daemon which was killed."""
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    here = paths.current()
    master = Path(paths.daemon_dir()) / "ganeti-masterd"
    master.write_text("")
    master.chmod(0o755)
    for directory in (here.data_dir, here.lock_dir, here.run_dir):
        os.makedirs(directory, exist_ok=True)
    before = b'{"values":"' + b"a" * 50 + b'","serial_no":7}\n'
    files.write_config_file(here.cluster_conf_file, before)
    change = Change(len(before), b'","serial_no":7}\n', [(0, 20), b'","serial_no":8}\n'], 37)
    assert files.change(here.cluster_conf_file, change)
    assert Path(here.cluster_conf_file).read_bytes() == before
    return Path(here.cluster_conf_journal)


def test_no_journal_is_left_when_a_killed_node_daemon_is_stopped(journaled: Path) -> None:
    """An earlier version may be started next, which reads the file only."""
    whole = files.read(paths.current().cluster_conf_file)
    assert journaled.exists() and b'"serial_no":8' in whole
    assert _run("stop", "ganeti-noded") == 0
    assert not journaled.exists()
    assert Path(paths.current().cluster_conf_file).read_bytes() == whole


@pytest.mark.parametrize(
    "words", [("stop", "ganeti-masterd"), ("stop-master",), ("stop-all",), ("fold-journal",)]
)
def test_the_file_has_all_changes_when_the_master_is_stopped(
    journaled: Path, words: tuple[str, ...]
) -> None:
    """An administrator edits or copies the file next, also when the daemon was killed."""
    whole = files.read(paths.current().cluster_conf_file)
    assert _run(*words) == 0
    assert Path(paths.current().cluster_conf_file).read_bytes() == whole
    assert not journaled.exists()
    assert _run(*words) == 0


@pytest.mark.parametrize(
    "words",
    [("stop", "ganeti-noded"), ("stop", "ganeti-masterd"), ("fold-journal",)]
    + [("use-version", "0.9")],
)
def test_a_journal_which_cannot_be_folded_in(
    journaled: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither an upgrade nor a change of the link goes on then."""
    switched: list[str] = []
    monkeypatch.setattr(versions, "switch", switched.append)

    def full(path: str, lock: object) -> bool:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(files, "fold", full)
    assert _run(*words) == 1
    assert journaled.exists() and switched == []
    assert "No space left on device" in capsys.readouterr().err


def test_another_process_may_fold_in(journaled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of the node daemon, whose work ends later than its parent."""
    real, tried = files.fold, []

    def fold(path: str, lock: Callable[[], AbstractContextManager[None]]) -> bool:
        tried.append(path)
        return len(tried) == 3 and real(path, lock)

    monkeypatch.setattr(files, "fold", fold)
    assert _run("stop", "ganeti-noded") == 0
    assert len(tried) == 3 and not journaled.exists()


def test_the_version_changes_without_a_journal(
    journaled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[str] = []
    monkeypatch.setattr(versions, "switch", switched.append)
    assert _run("use-version", "0.9") == 0
    assert switched == ["0.9"] and not journaled.exists()
