"""Disks which QEMU opens itself on a real Gluster server, see gluster_lab.py."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from kvm_node import PATIENCE_S, TOP

from ganeti.platform import paths

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0
        or shutil.which("glusterd") is None
        or not glob.glob("/usr/lib/*/qemu/block-gluster.so"),
        reason="Gluster needs root and the packages glusterfs-server and qemu-block-extra",
    ),
]


def run_lab(program: str, image: Path) -> dict[str, Any]:
    """Run a program of this directory in namespaces of its own; return what it has seen."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-gl-"))
    try:
        done = subprocess.run(
            [
                "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
                sys.executable, str(Path(__file__).with_name(program)), str(directory),
                str(image),
            ],
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_S,
            check=False,
            env={**os.environ, paths.ENV_VCLUSTER: str(TOP / "build")},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_a_guest_on_gluster(image: Path) -> None:
    """It starts, gets and loses a disk, and moves; the kernel has none of its disks."""
    seen = run_lab("gluster_lab.py", image)
    assert seen["size by address"] == seen["size"] * 2**20
    (opened,) = seen["opened"]
    assert "gluster" in opened and "192.0.2.7" in opened and "gv0" in opened
    assert (seen["plugged"], seen["moved"], seen["status"]) == (2, "completed", "running")
    assert (seen["opened there"], seen["unplugged"], seen["left"]) == (2, 1, [])
