"""When a guest counts as gone, how its QEMU is ended, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm import guests
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.platform import paths
from ganeti.utils import process

NAME = "web1.example.com"
IGNORE_SIGTERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
#: It says that it runs: before that, its command line may not be readable yet.
PROGRAM = "import signal, sys; {first}; print(flush=True); sys.stdin.read()"


@pytest.fixture
def qemu(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Something that is named as a guest's QEMU, and ends when its standard input does.

    The parameter is a statement with which it begins.
    """
    with paths.override(paths.Paths(root=str(tmp_path))):
        running = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROGRAM.format(first=getattr(request, "param", "pass")),
                "-name",
                f"{NAME},debug-threads=on",
                "-m",
                "64",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert running.stdout is not None
        assert running.stdout.readline() == b"\n"
        pid_file = Path(layouts.of(NAME).pid_file)
        pid_file.parent.mkdir(parents=True)
        pid_file.write_text(f"{running.pid}\n")
        yield running
        with running:
            running.kill()


def test_who_removed_its_pid_file_is_waited_for(qemu: subprocess.Popen[bytes]) -> None:
    """It has its disks open until it has ended."""
    driver = KvmHypervisor()
    assert driver.is_running(NAME)
    Path(layouts.of(NAME).pid_file).unlink()
    assert qemu.stdin is not None
    ending = threading.Timer(0.2, qemu.stdin.close)
    ending.start()
    assert not driver.is_running(NAME)
    assert not process.is_alive(qemu.pid)
    ending.join()


def test_nobody_waits_for_a_guest_that_was_not_seen(qemu: subprocess.Popen[bytes]) -> None:
    driver = KvmHypervisor()
    Path(layouts.of(NAME).pid_file).unlink()
    assert not driver.is_running(NAME)
    assert process.is_alive(qemu.pid)


def test_the_process_of_another_guest_is_not_that_of_this_one(
    qemu: subprocess.Popen[bytes],
) -> None:
    """After a crash of the node another QEMU may have got the pid."""
    another = "web2.example.com"
    Path(layouts.of(another).pid_file).write_text(f"{qemu.pid}\n")
    driver = KvmHypervisor()
    assert not driver.is_running(another)
    assert driver.is_running(NAME)


def test_the_pid_file_of_a_process_which_has_ended_is_no_guest(
    qemu: subprocess.Popen[bytes],
) -> None:
    driver = KvmHypervisor()
    qemu.kill()
    os.waitid(os.P_PID, qemu.pid, os.WEXITED | os.WNOWAIT)
    # Nobody has asked for its exit code yet.
    assert not driver.is_running(NAME)
    qemu.wait()
    assert not driver.is_running(NAME)


def test_a_qemu_which_is_ended_may_flush(qemu: subprocess.Popen[bytes]) -> None:
    guests.Guests().end_process(layouts.of(NAME))
    assert qemu.wait() == -signal.SIGTERM


@pytest.mark.parametrize("qemu", [IGNORE_SIGTERM], indirect=True)
def test_a_qemu_which_ignores_sigterm_is_killed(
    qemu: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "_TERM_TIMEOUT_S", 0.0)
    guests.Guests().end_process(layouts.of(NAME))
    assert qemu.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["uid_file", "shutdown_file"])
def test_a_file_of_a_guest_which_does_not_run_is_cleaned_up(tmp_path: Path, kind: str) -> None:
    with paths.override(paths.Paths(root=str(tmp_path))):
        file = Path(getattr(layouts.of(NAME), kind))
        file.parent.mkdir(parents=True)
        file.write_text("")
        KvmHypervisor().cleanup(NAME)
        assert not file.exists()
