"""Versions side by side: which there are, and the link to the one in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import machine, paths, versions
from ganeti.platform.virtual import VirtualNode


def make(root: Path, name: str, release: str, package: str = "python/ganeti") -> Path:
    directory = root / "usr/lib/ganeti" / name
    (directory / package).mkdir(parents=True)
    (directory / package / "__init__.py").write_text(f'# x\nRELEASE = "{release}"\n')
    util = directory / "daemon-util"
    util.write_text("#!/bin/sh\n")
    util.chmod(0o755)
    return directory


@pytest.fixture
def root(tmp_path: Path):
    here = paths.Paths(str(tmp_path))
    with paths.override(here), machine.override(VirtualNode(here, "node1")):
        yield tmp_path


def test_numbers() -> None:
    assert versions.series_of("0.9.12") == "0.9"
    assert versions.number_of("0.10") > versions.number_of("0.9")
    for wrong in ("", "1", "1.2.3", "01.2", "a.b", "python", "1.٣"):
        with pytest.raises(errors.ConfigurationError, match="not a version"):
            versions.number_of(wrong)


def test_none(root: Path) -> None:
    assert versions.installed() == {} and versions.active() is None
    with pytest.raises(errors.ConfigurationError, match="no versions are installed side by side"):
        versions.switch("0.9")


def test_installed(root: Path) -> None:
    make(root, "0.10", "0.10.2")
    make(root, "0.9", "0.9.0", "lib/ganeti")
    # None of these is a version: a wrong name, another release than the name, no package.
    make(root, "python", "0.8.0")
    make(root, "0.7", "0.6.1")
    (root / "usr/lib/ganeti/0.5").mkdir()
    found = versions.installed()
    assert [(one.series, one.release) for one in found.values()] == [
        ("0.9", "0.9.0"), ("0.10", "0.10.2"),
    ]  # fmt: skip
    assert found["0.9"].program("daemon-util") == str(root / "usr/lib/ganeti/0.9/daemon-util")
    with pytest.raises(errors.ConfigurationError, match="version 0.9 has no program python"):
        found["0.9"].program("python")


def test_switch(root: Path) -> None:
    make(root, "0.9", "0.9.0")
    make(root, "0.10", "0.10.0")
    link = root / "etc/ganeti/version"
    assert versions.switch("0.9").release == "0.9.0"
    assert os.readlink(link) == "../../usr/lib/ganeti/0.9"
    before = link.lstat()
    versions.switch("0.9")
    assert link.lstat().st_ino == before.st_ino, "nothing was to do"
    # Left by a process that died.
    (root / "etc/ganeti/version.new").symlink_to("nowhere")
    versions.switch("0.10")
    assert versions.active() == "0.10" and link.resolve() == root / "usr/lib/ganeti/0.10"
    assert os.listdir(root / "etc/ganeti") == ["version"]
    with pytest.raises(errors.ConfigurationError, match="installed: 0.9, 0.10"):
        versions.switch("0.11")
    assert versions.active() == "0.10"
    link.unlink()
    link.symlink_to("elsewhere")
    assert versions.active() is None
