"""A document on a real Apache with WebDAV, which looks like a witness and is none."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.http.document import Access, WebDocument
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc.witness import Witness, WitnessError
from ganeti.utils import x509

APACHE = shutil.which("apache2") or shutil.which("apache2", path="/usr/sbin")
MODULES = Path("/usr/lib/apache2/modules")
UUID = "11111111-2222-4333-8444-555555555555"

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(APACHE is None, reason="apache2 is not installed (package apache2-bin)"),
]

_CONFIG = """
ServerName localhost
ServerRoot {top}
PidFile {top}/pid
Mutex file:{top}
Listen 127.0.0.1:{port}
ErrorLog {top}/log
{modules}
DocumentRoot {top}/docs
DavLockDB {top}/DavLock
SSLEngine on
SSLCertificateFile {top}/server.pem
SSLSessionCache none
<Directory {top}/docs>
    Dav On
    AuthType Basic
    AuthName witness
    AuthBasicProvider file
    AuthUserFile {top}/users
    Require valid-user
    # A tag of the time is weak for a second after a write.
    FileETag Digest
</Directory>
"""
_MODULES = ("mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic",
            "dav", "dav_fs", "dav_lock", "ssl")  # fmt: skip


@contextlib.contextmanager
def _apache() -> Iterator[WebDocument]:
    # Apache gives its rights up, and the directories of pytest are for one user.
    with tempfile.TemporaryDirectory() as name:
        yield from _served(Path(name))


def _served(top: Path) -> Iterator[WebDocument]:
    top.chmod(0o711)
    (top / "docs").mkdir()
    pem = x509.create_self_signed("localhost")
    (top / "server.pem").write_text(pem)
    (top / "ca.pem").write_text(x509.certificate_part(pem))
    digest = base64.b64encode(hashlib.sha1(b"secret").digest()).decode()  # noqa: S324
    (top / "users").write_text(f"node:{{SHA}}{digest}\n")
    (top / "auth").write_text("user = node\npassword = secret\n")
    modules = "".join(
        f"LoadModule {name}_module {MODULES}/mod_{name}.so\n"
        for name in _MODULES
        if (MODULES / f"mod_{name}.so").exists()
    )
    if os.geteuid() == 0:
        modules += "User www-data\nGroup www-data\n"
        shutil.chown(top / "docs", "www-data")
        shutil.chown(top, "www-data")
    process, port = _started(top, modules)
    try:
        yield WebDocument(
            f"https://localhost:{port}/cluster.json", Access(str(top / "ca.pem"), str(top / "auth"))
        )
    finally:
        process.terminate()
        process.wait()


def _started(top: Path, modules: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start Apache at a free port; another program may take the port before Apache does."""
    for _attempt in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        config = top / "config"
        config.write_text(_CONFIG.format(top=top, port=port, modules=modules))
        assert APACHE is not None
        process = subprocess.Popen([APACHE, "-f", str(config), "-D", "FOREGROUND"])
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process, port
            time.sleep(0.01)
    log = top / "log"
    raise AssertionError(log.read_text() if log.exists() else "Apache does not start")


def test_apache_is_refused() -> None:
    """It compares the tag first and writes afterwards, so two writers may both succeed."""
    with (
        _apache() as document,
        pytest.raises(WitnessError, match="does not compare the tag and write in one step"),
    ):
        assert document.read() == (None, "")
        witness = Witness(document, UUID)
        witness.renew(Epoch(1, "a"), "node1")
        # It mostly fails in the first of the ten rounds.
        for _ in range(20):
            witness.probe()
