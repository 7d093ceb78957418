"""Devices of an administrator, which have several links: adopted once, and verified."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Cluster

BY_ID = Path("/dev/disk/by-id")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes loop devices"),
    pytest.mark.skipif(shutil.which("losetup") is None, reason="losetup is not installed"),
]


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A function that makes a new device."""
    devices: list[str] = []

    def make() -> str:
        file = tmp_path / f"file{len(devices)}"
        with file.open("wb") as stream:
            stream.truncate(8 << 20)
        done = subprocess.run(
            ["losetup", "--find", "--show", file], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this machine gives no loop device: {done.stderr.strip()}")
        devices.append(done.stdout.strip())
        return devices[-1]

    yield make
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=False)


@pytest.fixture
def link(loop_device: object) -> Iterator[Callable[[str, str], str]]:
    """A function that makes a link below /dev/disk, or gives it another target."""
    links: set[Path] = set()
    mark = uuid.uuid4().hex[:8]
    made = [path for path in (BY_ID.parent, BY_ID) if not path.exists()]
    BY_ID.mkdir(parents=True, exist_ok=True)

    def make(name: str, device: str) -> str:
        path = BY_ID / f"gnt-{mark}-{name}"
        path.unlink(missing_ok=True)
        path.symlink_to(device)
        links.add(path)
        return str(path)

    yield make
    for path in links:
        path.unlink(missing_ok=True)
    for directory in reversed(made):
        directory.rmdir()


def adopt(cluster: Cluster, name: str, *paths: str) -> list[str]:
    disks = [word for n, path in enumerate(paths) for word in ("--disk", f"{n}:adopt={path}")]
    return [
        "gnt-instance", "add", "-t", "blockdev", *disks, "-o", "noop", "-n",
        cluster.node_names[0], "--no-nics", "--no-start", "--no-install", "--ignore-ipolicy", name,
    ]  # fmt: skip


def test_a_device_with_two_links(
    cluster: Cluster, loop_device: Callable[[], str], link: Callable[[str, str], str]
) -> None:
    cluster.make_os("noop")
    enabled = "diskless,file,sharedfile,blockdev"
    cluster.run("gnt-cluster", "modify", "--enabled-disk-templates", enabled).ok()
    first, second = loop_device(), loop_device()
    one, again, other = link("one", first), link("again", first), link("other", second)
    command = adopt(cluster, "web.example.com", one, again)
    cluster.run(*command).failed("which is named for another disk")
    cluster.run(*adopt(cluster, "web.example.com", one)).ok()
    command = adopt(cluster, "mail.example.com", again)
    cluster.run(*command).failed("disk/0 of instance web.example.com", again)
    cluster.run(*adopt(cluster, "mail.example.com", other)).ok()
    assert "are one device" not in cluster.run("gnt-cluster", "verify").text
    link("other", first)
    cluster.run("gnt-cluster", "verify").failed("are one device, or overlap")
    for name in ("web.example.com", "mail.example.com"):
        cluster.run("gnt-instance", "remove", "--force", name).ok()
