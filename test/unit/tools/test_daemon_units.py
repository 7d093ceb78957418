"""Daemons as units of systemd: which commands start and stop them, and how answers are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.platform import machine, real, systemd
from ganeti.tools import daemon_units, daemon_util
from ganeti.utils import daemonize, filelock, process

MASTERD = "ganeti-masterd"


class Systemctl:
    """Stands in for ``systemctl``: remembers the commands, and answers with a state."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.arguments: list[str] = []
        self.exit_code = 0
        self.serves = True
        #: Answers before the last one.
        self.shown_before: list[str] = []
        self.shown = "ActiveState=active\nResult=success\nExecMainCode=0\nExecMainStatus=0\n"

    def run(self, argv: Sequence[str], **_: Any) -> process.Completed:
        assert argv[0] == "systemctl"
        self.commands.append(" ".join(argv[1:]))
        if argv[1] == "start":
            directory = Path(daemon_units.ARGUMENTS_DIR)
            if directory.exists():
                self.arguments += [path.read_text() for path in directory.iterdir()]
        shown = ""
        if argv[1] == "show":
            shown = self.shown_before.pop(0) if self.shown_before else self.shown
        code = self.exit_code if argv[1] == "start" else 0
        return process.Completed(tuple(argv), code, shown, "Job failed.\n" if code else "", None)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    """A machine with systemd, and a unit for each daemon."""
    found = Systemctl()
    monkeypatch.setattr(process, "run", found.run)
    # A daemon of the tests gets its pid file when its unit was started.
    monkeypatch.setattr(
        filelock, "is_locked", lambda _path: found.serves and "start" in " ".join(found.commands)
    )
    monkeypatch.setattr(real.RealMachine, "runs_systemd", True)
    monkeypatch.setattr(daemon_units, "ARGUMENTS_DIR", str(tmp_path / "args"))
    monkeypatch.setattr(systemd, "UNIT_DIRS", (str(tmp_path / "etc"), str(tmp_path / "lib")))
    (tmp_path / "etc").mkdir()
    (tmp_path / "lib").mkdir()
    for name in daemon_util.START_ORDER:
        (tmp_path / f"lib/{name}.service").touch()
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "root"))
    here = machine.current().paths
    with machine.override(real.RealMachine(here, "node1.example.com")):
        monkeypatch.setattr(daemon_util.ensure_dirs, "ensure", lambda *_: None)
        monkeypatch.setattr(daemon_util, "executable", lambda name: f"/usr/sbin/{name}")
        monkeypatch.setattr(daemon_util, "installed", lambda: list(daemon_util.START_ORDER))
        yield found  # type: ignore[misc]


def test_the_unit_is_started_with_arguments_for_once(systemctl: Systemctl) -> None:
    assert daemon_util.main(["start", MASTERD, "--no-voting", 'a "b" $c']) == 0
    assert systemctl.commands[:2] == [
        f"reset-failed {MASTERD}.service",
        f"start {MASTERD}.service",
    ]
    # systemd removes one level of quotes from the file, and one when it splits the variable.
    assert systemctl.arguments == ['EXTRA_ARGS="--no-voting \'a \\"b\\" \\$c\'"\n']
    assert os.listdir(daemon_units.ARGUMENTS_DIR) == []
    assert os.stat(daemon_units.ARGUMENTS_DIR).st_mode & 0o777 == 0o700


def test_arguments_of_an_interrupted_start_are_not_used(systemctl: Systemctl) -> None:
    left = Path(daemon_units.ARGUMENTS_DIR)
    left.mkdir()
    (left / MASTERD).write_text('EXTRA_ARGS="--no-voting"\n')
    assert daemon_util.main(["start", MASTERD]) == 0
    assert systemctl.arguments == []
    with pytest.raises(errors.ParameterError):
        daemon_units.arguments_line(["a\nb"])


@pytest.mark.parametrize(
    ("shown", "start_code", "code", "message"),
    [
        (
            "ActiveState=inactive\nResult=success\nExecMainCode=1\nExecMainStatus=11\n"
            "StatusText=this node is not the master\n",
            0,
            11,
            "this node is not the master",
        ),
        (
            "ActiveState=activating\nResult=exit-code\nExecMainCode=1\nExecMainStatus=1\n"
            "StatusText=port 1811 is in use\n",
            1,
            1,
            "port 1811 is in use",
        ),
        (
            "ActiveState=inactive\nResult=exec-condition\nExecMainCode=0\nExecMainStatus=0\n",
            0,
            11,
            "not needed on this node",
        ),
        (
            "ActiveState=inactive\nResult=success\nConditionResult=no\nExecMainStatus=0\n",
            0,
            1,
            "a condition of ganeti-masterd.service does not hold",
        ),
        # Ended by signal 11, which is not an exit code.
        (
            "ActiveState=failed\nResult=core-dump\nExecMainCode=3\nExecMainStatus=11\n",
            1,
            1,
            "Job failed.",
        ),
        ("", 1, 1, "Job failed."),
        ("", 0, 1, "it has ended"),
    ],
)
def test_a_daemon_that_does_not_start(
    systemctl: Systemctl,
    capsys: pytest.CaptureFixture[str],
    shown: str,
    start_code: int,
    code: int,
    message: str,
) -> None:
    systemctl.shown, systemctl.exit_code = shown, start_code
    assert daemon_util.main(["start", MASTERD]) == code
    assert message in capsys.readouterr().err


def test_a_daemon_which_is_not_needed_ends_at_once(
    systemctl: Systemctl, capsys: pytest.CaptureFixture[str]
) -> None:
    # For a moment its unit is active, because it has reported that it is ready.
    systemctl.shown_before = [systemctl.shown] * 2 + ["ActiveState=deactivating\n"]
    systemctl.serves = False
    systemctl.shown = "ActiveState=inactive\nExecMainCode=1\nExecMainStatus=11\nStatusText=no\n"
    assert daemon_util.main(["start", MASTERD]) == 11
    assert "ganeti-masterd: no" in capsys.readouterr().err
    assert systemctl.shown_before == []


def test_a_daemon_without_a_unit_is_started_directly(
    systemctl: Systemctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"lib/{MASTERD}.service").unlink()
    assert not daemon_units.managed(MASTERD)
    assert daemon_units.managed("ganeti-noded")
    assert daemon_util.main(["use-systemctl"]) == 0
    monkeypatch.setattr(real.RealMachine, "runs_systemd", False)
    assert not daemon_units.managed("ganeti-noded")
    assert daemon_util.main(["use-systemctl"]) == 1


def test_a_masked_daemon_is_not_wanted(systemctl: Systemctl, tmp_path: Path) -> None:
    assert daemon_util.wanted("ganeti-confd")
    (tmp_path / "etc/ganeti-confd.service").symlink_to(os.devnull)
    assert not daemon_util.wanted("ganeti-confd")
    assert not daemon_units.managed("ganeti-confd")


@pytest.mark.parametrize(("paused", "stopped"), [(False, "stop"), (True, "stop --no-block")])
def test_stop(
    systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch, paused: bool, stopped: str
) -> None:
    pids = [4711, None] if not paused else [4711, 4711, 4711, None]
    killed: list[int] = []
    monkeypatch.setattr(daemonize, "read_pid", lambda _path: pids.pop(0))
    monkeypatch.setattr(process, "is_paused", lambda _pid: paused)
    monkeypatch.setattr(process, "is_alive", lambda _pid: False)
    monkeypatch.setattr(os, "kill", lambda _pid, number: killed.append(number))
    assert daemon_util.main(["stop", MASTERD]) == 0
    assert systemctl.commands == [f"{stopped} {MASTERD}.service"]
    # A paused daemon does not handle SIGTERM; the unit is stopped before, so nothing restarts it.
    assert killed == ([9] if paused else [])


def test_which_daemons_a_node_needs(systemctl: Systemctl) -> None:
    here = machine.current().paths
    assert daemon_util.main(["check-needed", "ganeti-rapi"]) == 5
    Path(here.data_dir).mkdir(parents=True)
    master = Path(here.ssconf_file("master_node"))
    for name, code in (("node1.example.com", 0), ("node2.example.com", 11)):
        master.write_text(f"{name}\n")
        assert daemon_util.main(["check-needed", "ganeti-rapi"]) == code
        assert daemon_util.main(["check-needed", "ganeti-noded"]) == 0
    assert daemon_util.main(["check-needed", "ganeti-kvmd"]) == 1


def test_a_running_daemon_is_left_alone(
    systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelock, "is_locked", lambda _path: True)
    assert daemon_util.main(["start", MASTERD]) == 0
    assert systemctl.commands == []


@pytest.mark.parametrize("active", ["activating", "active", "failed", "inactive"])
def test_a_unit_which_is_being_started(systemctl: Systemctl, active: str) -> None:
    systemctl.shown = f"ActiveState={active}\nResult=success\n"
    assert daemon_units.is_starting(MASTERD) is (active == "activating")
