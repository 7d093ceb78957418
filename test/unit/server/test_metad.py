"""The metadata daemon around its rooms: sockets, connections that are brought, the end."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.helpers import metad_forward
from ganeti.http import messages
from ganeti.metad import client
from ganeti.platform import paths
from ganeti.server import daemon, metad
from ganeti.utils import net

DESCRIPTION = {
    "name": "web1",
    "os": "debian",
    "osparams_secret": {"p": "hush"},
    "nics": [{"name": "ganeti:communication:web1", "ip": "169.254.0.7"}],
}


class Stop:
    """Signals of a daemon, from a test."""

    def __init__(self) -> None:
        self._receive, self._send = os.pipe()
        self._pending: list[int] = []

    def fileno(self) -> int:
        return self._receive

    def take(self) -> list[object]:
        os.read(self._receive, 1)
        return list(daemon.STOP_SIGNALS)

    def now(self) -> None:
        os.write(self._send, b"x")

    def close(self) -> None:
        os.close(self._receive)
        os.close(self._send)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    root = tmp_path / "node1"
    with paths.override(paths.Paths(str(root))) as found:
        daemon.ensure_runtime_dirs(found)
        yield found


@pytest.fixture
def serving(here: paths.Paths) -> Iterator[paths.Paths]:
    prepared = metad.prepare(argparse.Namespace(bind=None, port=80, user=None, group=None))
    stop = Stop()
    thread = threading.Thread(target=metad.run, args=(None, prepared, stop))
    thread.start()
    try:
        yield here
    finally:
        stop.now()
        thread.join(60)
        stop.close()
        assert not thread.is_alive()


def ask(path: str, request: bytes, address: str = "169.254.0.7") -> bytes:
    """What a guest hears through the program that QEMU starts."""
    guest, program = socket.socketpair()
    with guest, program:
        guest.sendall(request)
        guest.shutdown(socket.SHUT_WR)
        metad_forward.forward(path, address, program.fileno(), program.fileno())
        program.shutdown(socket.SHUT_WR)
        heard = b""
        while data := guest.recv(65536):
            heard += data
    return heard


def get(page: str) -> bytes:
    return f"GET /ganeti/latest/{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


def test_a_guest_asks_and_tells(serving: paths.Paths) -> None:
    assert client.echo("hello") == "hello"
    client.update({**DESCRIPTION, "helper": {"task": "install"}})
    path = serving.metad_guest_socket
    assert ask(path, get("read")).endswith(b"\r\n\r\ninstall\n")
    assert b"hush" in ask(path, get("os/parameters.json"))
    assert ask(path, get("read"), "169.254.0.8").startswith(b"HTTP/1.1 404 ")
    post = (
        b"POST /ganeti/latest/write?event=log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Length: 4\r\n\r\nwell"
    )
    assert ask(path, post).startswith(b"HTTP/1.1 200 ")
    report = client.report("web1")
    assert report is not None and report["log"] == "well" and report["contact"] is not None
    assert [row[:4] for row in client.instances()] == [["web1", "169.254.0.7", "debian", "install"]]
    assert client.remove("web1") and client.report("web1") is None
    log = Path(serving.metad_access_log_file).read_text()
    assert '"GET /ganeti/latest/read HTTP/1.1" 200' in log and "hush" not in log


def test_one_guest_does_not_keep_the_others_out(serving: paths.Paths) -> None:
    """It opens as many connections as it may, and announces as many bytes as it may."""
    client.update(DESCRIPTION)
    other = {**DESCRIPTION, "name": "web2"}
    other["nics"] = [{"name": "ganeti:communication:web2", "ip": "169.254.0.8"}]
    client.update(other)
    path = serving.metad_guest_socket
    start = messages.introduction("169.254.0.7", "169.254.169.254", 80)
    start += b"POST /ganeti/latest/write?event=log HTTP/1.1\r\nHost: x\r\n"
    whole = start + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % const.REQUEST_MAX_BYTES
    chunks = start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (const.REQUEST_MAX_BYTES + 1)
    with contextlib.ExitStack() as open_ones:

        def connect(request: bytes) -> socket.socket:
            sock = open_ones.enter_context(net.unix_connect(path, 60))
            sock.sendall(request)
            return sock

        for _ in range(metad._CLIENTS_OF_A_GUEST - 1):
            assert connect(whole).recv(100).startswith(b"HTTP/1.1 100")
        last = connect(whole)
        assert last.recv(100).startswith(b"HTTP/1.1 100")
        assert connect(whole).recv(100) == b""
        last.close()
        # When the daemon has noticed that, there is a connection again; a body is never too large.
        while not (heard := connect(chunks).recv(100)):
            continue
        assert heard.startswith(b"HTTP/1.1 413")
        post = b"POST /ganeti/latest/write?event=log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        post += b"Content-Length: 4\r\n\r\nwell"
        assert ask(path, post, "169.254.0.8").startswith(b"HTTP/1.1 200 ")


def test_a_connection_without_introduction_is_ended(serving: paths.Paths) -> None:
    with net.unix_connect(serving.metad_guest_socket, 60) as sock:
        sock.sendall(get("read"))
        assert sock.recv(100) == b""
    assert client.echo("alive") == "alive"


def test_only_we_may_open_the_sockets(serving: paths.Paths) -> None:
    for path in (serving.metad_socket, serving.metad_guest_socket):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_without_the_daemon_the_client_says_so(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_CONNECT_S", 0.01)
    with pytest.raises(errors.GenericError, match="does not run on this node"):
        client.echo("hello")


def test_a_machine_that_is_no_node_is_refused(here: paths.Paths) -> None:
    with pytest.raises(daemon.StartRefused, match="belongs to no cluster"):
        metad.check(argparse.Namespace())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"PROXY UNKNOWN\r\n",
        b"PROXY TCP4 1.2.3.4\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
    ],
)
def test_what_is_no_introduction(line: bytes) -> None:
    with pytest.raises(messages.Refused):
        messages.parse_introduction(line)


def test_an_introduction() -> None:
    line = messages.introduction("169.254.0.7", "169.254.169.254", 80)
    assert messages.parse_introduction(line) == "169.254.0.7"


def test_the_forwarder_uses_descriptors_of_any_number(serving: paths.Paths) -> None:
    client.update(DESCRIPTION)
    guest, program = socket.socketpair()
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 1100:
        pytest.skip("this process may not open so many files")
    above = fcntl.fcntl(program.fileno(), fcntl.F_DUPFD_CLOEXEC, 1030)
    try:
        with guest, program:
            guest.sendall(get("os/parameters.json"))
            guest.shutdown(socket.SHUT_WR)
            metad_forward.forward(serving.metad_guest_socket, "169.254.0.7", above, above)
            assert b"hush" in guest.recv(1 << 16)
    finally:
        os.close(above)


def test_the_forwarder_needs_a_daemon(here: paths.Paths) -> None:
    assert metad_forward.main(["x", here.metad_guest_socket, "169.254.0.7"]) == 1
