"""Guests under other users, with long paths, and without privileges."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from console_terminal import Terminal
from kvm_node import (
    NAME,
    PATIENCE_S,
    TOP,
    Node,
    find_qemu,
    move,
)

from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.platform import paths

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


@pytest.mark.long
def test_long_paths(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets work where their full path is longer than the kernel takes."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-kvm-"))
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(TOP / "build"))
    node = Node(directory / ("long" * 30), image)
    try:
        guest = node.instance(NAME, nic={"mode": "user", "link": ""})
        node.install(guest)
        node.start(guest)
        assert len(node.socket(guest, "qmp")) > 107
        node.wait_booted(guest)
        assert node.info(guest)["memory"] == 96
        terminal = Terminal(node, guest)
        try:
            terminal.wait_for(f"tiny: {NAME}")
        finally:
            terminal.close()
        with paths.override(node.paths):
            lifecycle.reboot(guest, "soft", 60, [])
        node.shutdown(guest)
        assert node.leftovers() == []
        too_long = node.instance("x" * 110)
        node.install(too_long)
        with pytest.raises(errors.HypervisorError, match="needs a shorter name"):
            node.start(too_long)
        assert node.leftovers() == []
    finally:
        node.end_all()
        shutil.rmtree(directory)


def for_others(directory: Path) -> list[str]:
    """The begin of a command which another user can run, where nobody else may enter our home."""
    places = directory.with_name(f"{directory.name}-places")
    places.mkdir(mode=0o755)
    return [
        "unshare",
        "--mount",
        "sh",
        "-eu",
        "-c",
        '. "$1"; shift; for_others "$1" "$2" "$3" "$4"; shift 4; exec "$@"',
        "sh",
        str(HERE / "for_others.sh"),
        str(places),
        str(TOP),
        sys.base_prefix,
        sys.prefix,
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_as_an_ordinary_user(image: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="gnt-kvm-"))
    try:
        os.chown(directory, 65534, 65534)
        done = subprocess.run(
            [
                *for_others(directory),
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                sys.executable,
                str(HERE / "kvm_node.py"),
                str(directory / "node"),
                str(image),
                "life",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(directory)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lived as uid 65534: 1-" in done.stdout
    finally:
        shutil.rmtree(directory)
        shutil.rmtree(directory.with_name(f"{directory.name}-places"))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up privileges needs root")
def test_guest_of_root_runs_without_privileges(nodes: tuple[Node, Node]) -> None:
    """Also after a reboot and a migration; in an empty root directory."""
    first, second = nodes
    guest = first.instance(NAME, security_model="user", security_domain="nobody", use_chroot=True)
    first.install(guest)
    first.start(guest)
    first.wait_booted(guest)

    def confined(node: Node) -> bool:
        pid = node.pid(guest)
        uids = Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[:4]
        return uids == ["65534"] * 4 and os.listdir(f"/proc/{pid}/root/") == []

    assert confined(first)
    with paths.override(first.paths):
        lifecycle.reboot(guest, "soft", 60, [])
    assert confined(first)
    first.wait_booted(guest, more_than=len(first.lines(guest)))
    assert move(first, second, guest) == "completed"
    assert confined(second)
    second.wait_booted(guest)
    second.shutdown(guest)
    assert first.leftovers() == second.leftovers() == []
    assert "going down (off)" in second.console(guest)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up privileges needs root")
def test_each_guest_has_a_user_id_of_its_own(node: Node) -> None:
    """Two ids, two guests; a third must wait until one is free again."""
    pool = Path(node.paths.ssconf_file("uid_pool"))
    pool.parent.mkdir(parents=True, exist_ok=True)
    guests = [
        node.instance(f"{name}.example.com", disks=0, security_model="pool")
        for name in ("one", "two", "three")
    ]
    with pytest.raises(errors.HypervisorError, match="pool of user ids is empty"):
        node.start(guests[0])
    pool.write_text("64201\n64203-64203\n")
    for guest in guests[:2]:
        node.start(guest, paused=True)
    uids = {os.stat(f"/proc/{node.pid(guest)}").st_uid for guest in guests[:2]}
    assert uids == {64201, 64203}
    with pytest.raises(errors.HypervisorError, match="no user id of the cluster's pool is free"):
        node.start(guests[2])
    node.shutdown(guests[0], 0)
    node.start(guests[2], paused=True)
    assert os.stat(f"/proc/{node.pid(guests[2])}").st_uid in uids
    for guest in guests:
        node.shutdown(guest, 0)
    assert node.leftovers() == []
