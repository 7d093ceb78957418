"""Scopes of guests: their names and command lines."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ganeti.platform import machine, real, systemd


def test_names() -> None:
    assert systemd.scope_name("instance", "web1.example.com") == (
        "ganeti-instance-web1.example.com.scope"
    )
    long = "x" * 253
    names = {systemd.scope_name("instance", name) for name in (long, f"{long}y", "a/b", "a_b")}
    assert len(names) == 4
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,240}\.scope", name)


def test_a_guest_of_a_virtual_cluster_has_no_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert not machine.current().runs_systemd
    assert systemd.in_scope("instance", "web1", ["qemu", "-S"]) == ["qemu", "-S"]


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with systemd; the result is the control group of the guests."""
    monkeypatch.setattr(real.RealMachine, "runs_systemd", True)
    monkeypatch.setattr(systemd, "_CGROUP_DIRS", (str(tmp_path / "none"), str(tmp_path)))
    monkeypatch.setattr(systemd.shutil, "which", lambda *_, **__: "/usr/bin/systemd-run")
    found = tmp_path / "ganeti.slice/ganeti-guests.slice"
    found.mkdir(parents=True)
    return found


def test_a_guest_gets_a_scope(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine.override(real.RealMachine(machine.current().paths)):
        words = systemd.in_scope("instance", "web1", ["qemu", "-S"])
        assert words[0] == "/usr/bin/systemd-run"
        assert words[words.index("--") + 1 :] == ["qemu", "-S"]
        assert "--scope" in words and "--slice=ganeti-guests.slice" in words
        assert "--unit=ganeti-instance-web1.scope" in words
        monkeypatch.setattr(systemd.shutil, "which", lambda *_, **__: None)
        assert systemd.in_scope("instance", "web1", ["qemu"]) == ["qemu"]


def test_a_container_starts_in_a_group_below_its_scope(
    cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scope itself has no process then, so its controllers count for the groups below."""
    with machine.override(real.RealMachine(machine.current().paths)):
        words, scope = systemd.in_group_of_scope("instance", "web1", ["lxc-start", "-d"])
        assert scope == "/ganeti.slice/ganeti-guests.slice/ganeti-instance-web1.scope"
        assert "--property=Delegate=yes" in words
        enter = words[words.index("--") + 1 :]
        assert enter[:2] == ["sh", "-c"] and enter[3].endswith(f"{scope}/start")
        assert enter[4:] == ["lxc-start", "-d"]
        monkeypatch.setattr(systemd.shutil, "which", lambda *_, **__: None)
        assert systemd.in_group_of_scope("instance", "web1", ["x"]) == (["x"], None)


@pytest.mark.programs
def test_the_process_enters_its_group(tmp_path: Path) -> None:
    group = tmp_path / "a b" / "start"
    argv = ["sh", "-c", systemd._ENTER_GROUP, str(group), "echo", "$HOME; false"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "$HOME; false\n" and (group / "cgroup.procs").read_text() == "0\n"


def test_the_name_of_a_scope_which_has_just_ended_is_awaited(
    cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = cgroups / "ganeti-instance-web1.scope"
    scope.mkdir()
    looks = []
    isdir = os.path.isdir

    def look(path: str) -> bool:
        if path == str(scope):
            looks.append(path)
            if len(looks) == 3:
                scope.rmdir()
        return isdir(path)

    monkeypatch.setattr(os.path, "isdir", look)
    with machine.override(real.RealMachine(machine.current().paths)):
        assert "--unit=ganeti-instance-web1.scope" in systemd.in_scope("instance", "web1", ["q"])
        assert len(looks) == 3
        # A process of the former guest goes on in its scope.
        scope.mkdir()
        monkeypatch.setattr(systemd, "_GONE_S", 0.0)
        words = systemd.in_scope("instance", "web1", ["q"])
    assert f"--unit=ganeti-instance-web1-{os.getpid()}.scope" in words


def test_masked_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = tuple(str(tmp_path / name) for name in ("etc", "run", "lib"))
    monkeypatch.setattr(systemd, "UNIT_DIRS", directories)
    for directory in directories:
        Path(directory).mkdir()
    assert systemd.unit_file("a.service") is None
    (tmp_path / "lib/a.service").touch()
    assert systemd.unit_file("a.service") == f"{directories[2]}/a.service"
    assert not systemd.is_masked("a.service")
    (tmp_path / "etc/a.service").symlink_to(os.devnull)
    assert systemd.unit_file("a.service") is None
    assert systemd.is_masked("a.service")


def test_enabled_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc = tmp_path / "etc"
    monkeypatch.setattr(systemd, "UNIT_DIRS", (str(etc), str(tmp_path / "lib")))
    assert not systemd.starts_with_machine(systemd.TARGET)
    (etc / "multi-user.target.wants").mkdir(parents=True)
    assert not systemd.starts_with_machine(systemd.TARGET)
    (etc / "multi-user.target.wants" / systemd.TARGET).symlink_to("/lib/missing")
    assert systemd.starts_with_machine(systemd.TARGET)
