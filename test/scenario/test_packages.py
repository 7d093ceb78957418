"""The package of Debian, the archive of the source and the wheel, as their users get them.

The last one is the checkout of a contributor, on a machine which is no clean one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti import RELEASE

TOP = Path(__file__).resolve().parents[2]
#: The version, such as 0.9.
SERIES = RELEASE.rpartition(".")[0]
BUILDS = all(shutil.which(name) for name in ("dpkg-buildpackage", "dh", "dh_python3", "lintian"))

pytestmark = [pytest.mark.long]
needs_debhelper = pytest.mark.skipif(
    not BUILDS, reason="debhelper, dh-python or lintian is not installed"
)


# For whom a package is asked; the same for each build.
MAINTAINER = {"DEBFULLNAME": "Virtual machines", "DEBEMAIL": "vm@example.org"}


def run(*argv: str, cwd: Path = TOP, **environment: str) -> str:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, because a build leaves files in its checkout."""
    found = tmp_path_factory.mktemp("packages") / "checkout"
    run("git", "-c", f"safe.directory={TOP}/.git", "clone", "-q", f"file://{TOP}", str(found))
    return found


@pytest.fixture(scope="module")
def package(checkout: Path) -> Path:
    printed = run("devel/make-deb", cwd=checkout, **MAINTAINER)
    (found,) = (checkout / "build/deb").glob("ganeti-py_*.deb")
    # The next step, with the name of the file that was built.
    assert f"\n    apt-get install ./{found.name}\n" in printed
    assert "names no address" not in printed
    return found


@needs_debhelper
def test_the_package_is_reproducible(checkout: Path, package: Path) -> None:
    """The first build has passed lintian."""
    before = hashlib.sha256(package.read_bytes()).hexdigest()
    run("devel/make-deb", "--no-lintian", cwd=checkout, **MAINTAINER)
    assert hashlib.sha256(package.read_bytes()).hexdigest() == before


@needs_debhelper
def test_the_content_of_the_package(package: Path, tmp_path: Path) -> None:
    run("dpkg-deb", "-x", str(package), str(tmp_path))
    run("dpkg-deb", "-e", str(package), str(tmp_path / "DEBIAN"))
    listed = run("dpkg-deb", "-c", str(package))
    assert not re.search(r"__pycache__|\.pyc|/home/|/tmp/", listed)
    owners = {line.split()[1] for line in listed.splitlines()}
    assert owners == {"root/root"}
    configured = sorted((tmp_path / "DEBIAN/conffiles").read_text().split())
    assert configured == [
        "/etc/apparmor.d/ganeti-confd",
        "/etc/apparmor.d/ganeti-metad",
        "/etc/default/ganeti",
        "/etc/logrotate.d/ganeti",
        "/etc/pam.d/ganeti-rapi",
    ]
    for file in (TOP / "scripts").iterdir():
        installed = tmp_path / "usr/lib/ganeti" / SERIES / "sbin" / file.name
        assert os.readlink(tmp_path / "usr/sbin" / file.name).endswith(f"/sbin/{file.name}")
    # Messages name these two without a path.
    for name in ("daemon-util", "rapi-passwd"):
        assert os.readlink(tmp_path / "usr/sbin" / name).endswith(f"/version/{name}")
        assert installed.read_text().startswith("#!/usr/bin/python3"), file.name
        assert stat.S_IMODE(installed.stat().st_mode) == 0o755
        assert (tmp_path / f"usr/share/man/man8/{file.name}.8.gz").exists() or (
            tmp_path / f"usr/share/man/man1/{file.name}.1.gz"
        ).exists(), file.name
    library = tmp_path / "usr/lib/ganeti" / SERIES / "python"
    python = {path.relative_to(library) for path in library.rglob("*.py")}
    assert python == {path.relative_to(TOP / "lib") for path in (TOP / "lib/ganeti").rglob("*.py")}
    for script in ("postinst", "prerm", "postrm"):
        text = (tmp_path / "DEBIAN" / script).read_text()
        assert "#DEBHELPER#" not in text
        # Neither disks nor the configuration of a cluster are removed.
        assert not re.search(r"rm\b.*(/srv|/var/lib/ganeti)", text)
        run("sh", "-n", str(tmp_path / "DEBIAN" / script))
    control = (tmp_path / "DEBIAN/control").read_text()
    assert "Maintainer: Virtual machines <vm@example.org>\n" in control
    assert "Conflicts: ganeti, " in control and "Provides: ganeti (= 3.1.0)" in control


@needs_debhelper
def test_the_package_which_keeps_a_version(package: Path, tmp_path: Path) -> None:
    """It has the same files of the version as the other package, and nothing else."""
    (kept,) = package.parent.glob(f"ganeti-py-{SERIES}_*.deb")
    for name, one in (("both", package), ("kept", kept)):
        run("dpkg-deb", "-x", str(one), str(tmp_path / name))
    place = Path("usr/lib/ganeti") / SERIES
    run(
        "diff",
        "-r",
        "--no-dereference",
        str(tmp_path / "both" / place),
        str(tmp_path / "kept" / place),
    )
    others = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()
              and not path.is_relative_to(tmp_path / "kept" / place)]  # fmt: skip
    assert all(path.is_relative_to(tmp_path / "kept/usr/share") for path in others)
    control = run("dpkg-deb", "-f", str(kept))
    assert "Replaces: ganeti-py (<= " in control and f"ganeti-py (>= {SERIES})" in control
    assert not (tmp_path / "both/etc/ganeti/version").is_symlink()


def test_the_archive_is_reproducible(checkout: Path) -> None:
    made = []
    for _ in range(2):
        (line,) = run("make", "-s", "sdist", cwd=checkout).split()
        made.append(hashlib.sha256((checkout / line).read_bytes()).hexdigest())
    assert made[0] == made[1]
    names = run("tar", "-tzf", str(checkout / line)).splitlines()
    assert any(name.endswith("/lib/ganeti/__init__.py") for name in names)


def test_the_wheel_is_a_library(checkout: Path, tmp_path: Path) -> None:
    """A program outside of the checkout uses the client and htools from it."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), ".",
        cwd=checkout)  # fmt: skip
    (wheel,) = tmp_path.glob("ganeti-*-py3-none-any.whl")
    program = (
        "import ganeti.rapi.client, ganeti.htools.balance, ganeti;"
        "print(ganeti.__file__.split('!')[0])"
    )
    shown = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(wheel))
    assert str(wheel) in shown


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="namespaces with another /etc need root",
)
def test_tests_on_the_machine_of_a_contributor() -> None:
    """The place is closed for others, a Ganeti is installed, and /etc/hosts has our names."""
    printed = run(str(TOP / "test/packages/check"))
    assert re.search(r"^\d+ passed", printed, re.MULTILINE), printed
    assert printed.endswith("All steps have passed\n")
