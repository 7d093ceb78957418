"""A disk image as distributions offer them for clouds, for tests which start a guest of it.

``CLOUD_IMAGE=FILE`` takes another image of Debian, such as one of cloud.debian.org.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_WRITER = Path(__file__).resolve().parent / "scenario/cloud-image"
_PROGRAMS = ("debootstrap", "mcopy", "mkfs.ext4", "mkfs.fat", "qemu-img", "sfdisk")


def made(directory: Path) -> Path:
    """Return the image; makes one of Debian's packages in a directory unless the user names one.

    Skips the test where that cannot be done.
    """
    if "CLOUD_IMAGE" in os.environ:
        return Path(os.environ["CLOUD_IMAGE"])
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    found = directory / "debian-12.qcow2"
    done = subprocess.run([_WRITER, found], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no image: {done.stderr[-1000:]}")
    return found
