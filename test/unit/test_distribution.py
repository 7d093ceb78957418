"""Tests again with the Python packages of the distribution, which its users have.

The environment of developers has the newest packages from PyPI. Those of Debian are years older:
libcurl 7.88 does not count an answer without a length, has GnuTLS in place of OpenSSL, reports
other errors, and keeps connections in another way. So what reads or limits texts from outside is
tested with both. ``make check`` installs the packages as far as it can; a test whose package is
missing says so.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs
_TOP = Path(__file__).resolve().parents[2]
_PYTHON = "/usr/bin/python3"
_PACKAGES = Path("/usr/lib/python3/dist-packages")
# Import name of each package of others -> the package of Debian, and the tests of what imports it.
_TESTED = {
    "pycurl": (
        "python3-pycurl",
        ("http/test_client.py", "http/test_document.py", "http/test_server.py")
        + ("rapi/test_client_answers.py",),
    ),
    "simplejson": (
        "python3-simplejson",
        ("wire/test_json.py", "wire/test_odd_answers.py", "rapi/test_represent.py"),
    ),
    "pyparsing": (
        "python3-pyparsing",
        ("query/test_filter.py", "query/test_random_filter.py", "storage/test_drbd_parse.py"),
    ),
    "OpenSSL": ("python3-openssl", ("utils/test_x509.py",)),
    "cryptography": ("python3-cryptography", ("utils/test_x509.py",)),
    "yaml": ("python3-yaml", ("cli/test_output.py", "rapi/test_represent.py")),
    "pyinotify": ("python3-pyinotify", ("confd/test_source.py",)),
    "wsproto": ("python3-wsproto", ("http/test_websocket.py",)),
    "pamela": ("python3-pamela", ("rapi/test_pam.py",)),
    "authlib": ("python3-authlib", ("rapi/test_oidc.py",)),
    "pyotp": ("python3-pyotp", ("rapi/test_totp.py",)),
    "fido2": ("python3-fido2", ("rapi/test_passkeys.py",)),
    "segno": ("python3-segno", ("tools/test_rapi_factors.py",)),
}
# Parts of packages which are imported under names of their own.
_PARTS = {
    "cryptography": ("_cffi_backend", "cffi"),
    "OpenSSL": ("cryptography", "_cffi_backend", "cffi"),
    "yaml": ("_yaml",),
    "wsproto": ("h11",),
    "fido2": ("six",),
}
# Those which wait for the server need no other client, and the provider of logins for the tests
# needs a later Authlib itself.
_CHOSEN = (
    "-m", "not long and not larger",
    "-k", "not slow and not unauthenticated and not real_provider",
)  # fmt: skip


@functools.cache
def _version() -> str:
    """Version of the Python of the distribution, such as ``3.11``; empty if it is not there."""
    try:
        return subprocess.run(
            [_PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _link(name: str, directory: Path) -> bool:
    """Link a module or package of the distribution; return whether it is there."""
    found = [
        path
        for path in (_PACKAGES / name, *_PACKAGES.glob(f"{name}.*"))
        if path.exists() and (path.name == name or path.suffix in (".py", ".so"))
    ]
    for path in found:
        (directory / path.name).symlink_to(path)
    return bool(found)


@pytest.mark.parametrize("name", _TESTED)
def test_with_a_package_of_the_distribution(tmp_path: Path, name: str) -> None:
    package, tests = _TESTED[name]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _version() != own:
        pytest.skip(f"{_PYTHON} has version {_version() or 'unknown'}, these tests run with {own}")
    if not _link(name, tmp_path):
        pytest.skip(f"package {package} of the distribution is not installed")
    for part in _PARTS.get(name, ()):
        _link(part, tmp_path)
    # The other packages of the distribution stay behind those of the tests.
    paths = (tmp_path, _TOP / "lib", _TOP, sysconfig.get_path("purelib"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTEST_ADDOPTS": "",
    }
    words = [_PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*words, *_CHOSEN, *(str(_TOP / "test/unit" / test) for test in tests)],
        cwd=_TOP,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = subprocess.run(
        [_PYTHON, "-c", f"import {name}; print({name}.__file__)"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.startswith(str(tmp_path))


def test_every_package_of_others_is_tested() -> None:
    """A new dependency gets a line here."""
    text = (_TOP / "packaging/debian/control").read_text()
    depends = text.partition("\nDepends:")[2].partition("\n\n")[0]
    for package, _tests in _TESTED.values():
        assert package in depends
    wanted = {word.strip(" ,|") for word in depends.split() if word.startswith("python3-")}
    # numpy has no limits and reads no text; pyasyncore is for newer versions of Python.
    assert wanted - {"python3-numpy", "python3-pyasyncore"} == {
        package for package, _tests in _TESTED.values()
    }
