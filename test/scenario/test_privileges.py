"""Daemons under users of their own, on a machine with the published paths.

Runs in namespaces of its own (mounts, network, processes, host name), so nothing of the machine
changes; needs root and a kernel that permits that, and is skipped with the reason elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, ROOT

UNSHARE = (
    "unshare",
    "--mount",
    "--net",
    "--uts",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
SCRIPT = Path(__file__).parent / "privileges.sh"


def why_not() -> str:
    """Why this cannot be tried here; empty when it can."""
    if os.geteuid() != 0:
        return "only root can make users and namespaces"
    for program in ("unshare", "setpriv", "useradd", "groupadd", "ip", "mount"):
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"{program} is not installed"
    tried = subprocess.run(
        [*UNSHARE, "sh", "-c", "mount -t tmpfs none /srv && ip link set lo up"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(scope="module")
def said() -> Iterator[dict[str, list[str]]]:
    """What the script printed, by section."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    scratch = tempfile.mkdtemp(prefix="gnt-", dir="/tmp")
    os.chmod(scratch, 0o755)
    try:
        env = {name: value for name, value in os.environ.items() if not name.startswith("GANETI_")}
        done = subprocess.run(
            [*UNSHARE, "sh", str(SCRIPT), str(ROOT), scratch, sys.base_prefix, sys.prefix],
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
            check=False,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith("=== "):
            lines = found[line[4:]] = []
        else:
            lines.append(line)
    assert "end" in found, done.stdout + done.stderr
    yield found


def test_each_daemon_has_its_user(said: dict[str, list[str]]) -> None:
    assert said["owners of the daemons"] == [
        "noded root",
        "masterd gnt-masterd",
        "confd gnt-confd",
        "rapi gnt-rapi",
    ]


def test_the_rest_daemon_has_no_more_than_it_needs(said: dict[str, list[str]]) -> None:
    job, status, *rest = [line for line in said["rest"] if line]
    assert job.isdecimal() and status == "200"
    assert rest == [
        "/var/lib/ganeti/rapi 750 gnt-rapi gnt-masterd",
        "/var/lib/ganeti/rapi/users 640 gnt-rapi gnt-masterd",
        "/var/lib/ganeti/rapi.pem 440 gnt-rapi gnt-masterd",
        "/var/log/ganeti/rapi-daemon.log 600 gnt-rapi",
        "/var/log/ganeti/rapi-access.log 600 gnt-rapi",
        "Permission denied",
        "Permission denied",
    ]


def test_who_may_talk_to_the_master(said: dict[str, list[str]]) -> None:
    assert said["member"] == ["node1.example.com"]
    assert "refused with 1" in said["stranger"]
    assert any("may not connect to the master daemon" in line for line in said["stranger"])


def test_everything_works(said: dict[str, list[str]]) -> None:
    assert any("have been replaced" in line for line in said["renew"])
    assert any(line.startswith('master: ["node1.example.com"') for line in said["confd"])
    name, free = said["restart"][-1].split()
    assert name == "node1.example.com" and free.isdecimal()
    assert not [line for line in said["verify"] if "ERROR" in line]


def test_what_daemons_write_belongs_to_the_same(said: dict[str, list[str]]) -> None:
    """Without ensure-dirs: jobs can be read by the daemons' group, live and archived."""
    assert said["written by the daemons"] == [
        "/var/lib/ganeti/master_state 640 gnt-masterd gnt-masterd",
        "/var/lib/ganeti/ssconf_master_epoch 444 root root",
        "/var/lib/ganeti/queue/serial 640 gnt-masterd gnt-daemons",
        "/var/lib/ganeti/queue/version 640 gnt-masterd gnt-daemons",
        "job 640 gnt-masterd gnt-daemons",
        "archived 640 gnt-masterd gnt-daemons",
        "directory 750 gnt-masterd gnt-daemons",
    ]


def test_files_belong_to_whom_they_should(said: dict[str, list[str]]) -> None:
    assert said["modes"] == [
        "/var/lib/ganeti/config.data 640 gnt-masterd gnt-confd",
        "/var/lib/ganeti/hmac.key 440 gnt-confd gnt-masterd",
        "/var/lib/ganeti/server.pem 440 gnt-masterd gnt-masterd",
        "/var/lib/ganeti/client.pem 440 gnt-masterd gnt-masterd",
        "/run/ganeti/socket 1770 gnt-masterd gnt-daemons",
        "/run/ganeti/socket/ganeti-master 660 gnt-masterd gnt-daemons",
        "/var/log/ganeti/master-daemon.log 600 gnt-masterd gnt-masterd",
    ]
    assert said["world"] == []
