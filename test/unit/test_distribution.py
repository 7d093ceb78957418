"""The tests of the client again, with the libcurl of the distribution.

The packages of Debian use its pycurl, whose libcurl is older than the one from PyPI and has
GnuTLS in place of OpenSSL: it reports other errors, and keeps connections in another way.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs
_TOP = Path(__file__).resolve().parents[3]
_TESTS = ("test_client.py", "test_document.py", "test_server.py")


def _pycurl() -> Path | None:
    """The module of the distribution for this Python; None if it is not installed."""
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    found = glob.glob(f"/usr/lib/python3/dist-packages/pycurl.{tag}*.so")
    return Path(found[0]) if found else None


def test_with_the_libcurl_of_the_distribution(tmp_path: Path) -> None:
    module = _pycurl()
    if module is None:
        pytest.skip("python3-pycurl of the distribution is not installed for this Python")
    # The other packages of the distribution stay out of the way.
    (tmp_path / module.name).symlink_to(module)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}:{_TOP / 'lib'}:{_TOP}",
        "PYTEST_ADDOPTS": "",
    }
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Those which wait for the server need no other client.
    chosen = ["-m", "not long", "-k", "not slow and not unauthenticated"]
    here = Path(__file__).parent
    done = subprocess.run(
        [*words, *chosen, *(str(here / name) for name in _TESTS)],
        cwd=_TOP,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version = subprocess.run(
        [sys.executable, "-c", "import pycurl; print(pycurl.__file__)"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert version.stdout.strip() == str(tmp_path / module.name)
