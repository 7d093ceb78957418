"""When a guest counts as gone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.platform import paths
from ganeti.utils import process

NAME = "web1.example.com"


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Something that is named as a guest's QEMU, and ends when its standard input does."""
    with paths.override(paths.Paths(root=str(tmp_path))):
        running = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; sys.stdin.read()",
                "-name",
                f"{NAME},debug-threads=on",
                "-m",
                "64",
            ],
            stdin=subprocess.PIPE,
        )
        pid_file = Path(layouts.of(NAME).pid_file)
        pid_file.parent.mkdir(parents=True)
        pid_file.write_text(f"{running.pid}\n")
        yield running
        running.kill()
        running.communicate()


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
