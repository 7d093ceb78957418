"""Disks which QEMU opens itself in a real Ceph cluster, see ceph_lab.py."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path

import pytest
from test_gluster import run_lab

PROGRAMS = ("ceph-mon", "ceph-osd", "rbd", "rbd-fuse", "losetup")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0
        or any(shutil.which(program) is None for program in PROGRAMS)
        or not glob.glob("/usr/lib/*/qemu/block-rbd.so"),
        reason="Ceph needs root and the packages ceph-mon, ceph-osd, ceph-common, rbd-fuse and"
        " qemu-block-extra",
    ),
]


def test_a_guest_on_ceph(image: Path) -> None:
    """It starts, gets and loses a disk, and moves; QEMU has opened its images, not the kernel."""
    seen = run_lab("ceph_lab.py", image)
    alone = seen["alone"]
    assert (alone["absent"], alone["mapped"], alone["grown"]) == (False, str(64 << 20), 96 << 20)
    assert alone["snapshot"] == ["rbd", "alone@before"] and alone["left"] == {}
    assert alone["twice"].startswith("BlockDeviceError") and "exists already" in alone["twice"]
    assert seen["size by address"] == seen["size"] * 2**20
    (opened,) = seen["opened"]
    assert "rbd" in opened and "guests" in opened and "/dev/" not in opened
    assert (seen["plugged"], seen["moved"], seen["status"]) == (2, "completed", "running")
    assert (seen["opened there"], seen["unplugged"], seen["left"]) == (2, 1, [])
