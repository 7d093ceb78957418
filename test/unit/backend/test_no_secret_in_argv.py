"""No secret is an argument of a program: every user of a machine can read command lines.

The one exception is the shared secret of DRBD, which ``drbdsetup`` takes in no other way.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import http.server
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ganeti
from fakes.config import cluster_of, disk_of, instance_of
from fakes.transfer_options import keyed
from ganeti import errors, storage
from ganeti.backend.backup import transfers
from ganeti.backend.instance import helper_disk
from ganeti.backend.storage import disk_content
from ganeti.objects import Disk, fill
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import ImportExportOptions
from ganeti.platform import paths
from ganeti.storage import copy
from ganeti.utils import process
from ganeti.wire.calls import backup as calls

LIB = Path(ganeti.__file__).parent
MAGIC = "b60dbbb5a6f2c9d1"
PASSWORD = 'hunter2"\\x'
PATIENCE_S = 60


def test_secret_arguments_are_known() -> None:
    """Where code marks an argument as secret, the program must have no other way to get it."""
    texts = {path: path.read_text() for path in LIB.rglob("*.py")}
    found = {
        str(path.relative_to(LIB))
        for path, text in texts.items()
        if "Secret(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("Secret", "process.Secret")
        and path.name not in ("ht.py", "types.py")
    }
    assert found == {"storage/drbd/argv.py"}


# -- transfers -------------------------------------------------------------------


def instance() -> FilledInstance:
    disk = disk_of("web", template="file")
    stored = instance_of("web", os="", disks=(disk.uuid,))
    return fill.filled_instance(cluster_of(instances=(stored,), disks=(disk,)), stored)


def options() -> ImportExportOptions:
    return keyed(magic=MAGIC)


def test_the_word_of_a_transfer_is_in_a_file_of_root(
    here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(
        transfers,
        "_spawn",
        lambda argv, env, *_fds: started.append((list(argv), env)) or os.getpid(),
    )
    found = instance()
    # The size of the disk is asked for.
    device = Path(storage.device(found.disks_info[0]).path)
    device.parent.mkdir(parents=True)
    device.touch()
    os.truncate(device, found.disks_info[0].size << 20)
    target = (calls.FILE, f"{paths.Paths().export_dir}/x/y")
    names = [
        transfers.import_start(options(), found, "disk/0", target),
        transfers.export_start(
            options(), "127.0.0.1", 1, found, "disk/0", (calls.RAW, found.disks_info[0])
        ),
    ]
    for name, (argv, env) in zip(names, started, strict=True):
        assert MAGIC not in " ".join(argv)
        assert MAGIC not in repr(env)
        path = Path(argv[argv.index("--magic-file") + 1])
        assert path.read_text() == MAGIC
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.name == name


@pytest.mark.programs
def test_the_command_line_of_a_real_transfer(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", here.root)
    target = (calls.FILE, f"{paths.Paths().export_dir}/x/y")
    name = transfers.import_start(options(), instance(), "disk/0", target)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (status,) = transfers.impexp_status([name])
            # It listens, so that it has read everything which it was given.
            if status is not None and status.listen_port:
                break
            assert time.monotonic() < deadline, status
            time.sleep(0.01)
        pid = int(Path(here.import_export_dir, name, "pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"import_export" in command
        assert MAGIC.encode() not in command
        assert MAGIC.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        transfers.impexp_cleanup(name)


# -- images ----------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """Serves an image, and notes who asks for it and what their command lines are."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commands: list[bytes] = []
        self.authorized: list[str | None] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.authorized.append(self.headers.get("Authorization"))
        # curl waits for the answer, so that it can be seen now.
        for number in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{number}/cmdline").read_bytes()
                if command.startswith(b"curl\0"):
                    self.server.commands.append(command)
        body = b"image"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_password_in_the_address_of_an_image(here: Any, server: Server) -> None:
    path = "/srv/ganeti/file-storage/web1/disk0"
    os.makedirs(os.path.dirname(here.to_local(path)))
    Path(here.to_local(path)).write_bytes(bytes(1 << 20))
    disk = Disk(dev_type="file", logical_id=("loop", path), size=1, uuid="u1")
    address = f"http://jack:{PASSWORD}@127.0.0.1:{server.server_port}/image?token={PASSWORD}"
    disk_content.image(disk, address, 1)
    assert Path(here.to_local(path)).read_bytes()[:5] == b"image"
    assert server.authorized == ["Basic " + base64.b64encode(f"jack:{PASSWORD}".encode()).decode()]
    assert server.commands
    assert not any(b"hunter2" in command for command in server.commands)


@pytest.mark.parametrize("fetch", ["disk", "helper"])
def test_messages_do_not_show_it(
    here: Any, fetch: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(argv: list[str], **_options: Any) -> None:
        raise errors.CommandError(argv, 22, "The requested URL returned error: 404")

    monkeypatch.setattr(process, "run", fail)
    address = "https://jack:hunter2@images.example.com/debian.raw?token=hunter2"
    with caplog.at_level("DEBUG"), pytest.raises(errors.GenericError) as raised:
        if fetch == "helper":
            helper_disk.make("web1", address)
        else:
            path = "/srv/ganeti/file-storage/web1/disk0"
            os.makedirs(os.path.dirname(here.to_local(path)))
            Path(here.to_local(path)).write_bytes(bytes(1 << 20))
            disk = Disk(dev_type="file", logical_id=("loop", path), size=1, uuid="u1")
            disk_content.image(disk, address, 1)
    assert "https://images.example.com/debian.raw cannot" in str(raised.value) or (
        "the image https://images.example.com/debian.raw:" in str(raised.value)
    )
    assert "hunter2" not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://a.example.com/x", "https://a.example.com/x"),
        ("ftp://u:p@a.example.com:21/x", "ftp://a.example.com:21/x"),
        ("http://a.example.com/x@y?sig=1#f", "http://a.example.com/x@y"),
    ],
)
def test_addresses_in_messages(address: str, shown: str) -> None:
    assert copy.shown_address(address) == shown
