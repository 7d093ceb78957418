"""Names from the virtual cluster's file, addresses, unix sockets of any length."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import hosts
from ganeti.utils import net

HOSTS = """
# a comment
127.3.4.1  node1.example.com node1
127.3.4.2  Node2.Example.com   # the other
"""


@pytest.fixture
def vcluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts").write_text(HOSTS)
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    return tmp_path


@pytest.mark.usefixtures("vcluster")
def test_names_of_a_virtual_cluster() -> None:
    assert hosts.hostname() == "node1.example.com"
    assert hosts.lookup("node1") == ("node1.example.com", "127.3.4.1")
    assert hosts.resolve("NODE2.example.com") == "127.3.4.2"
    assert hosts.own_address("127.3.4.1")
    assert not hosts.own_address("127.3.4.2")
    assert hosts.resolve("127.0.0.9") == "127.0.0.9"
    assert hosts.noded_port() == 1811


@pytest.mark.parametrize("bad", ["a..b", "x" * 300, "no such host", ""])
def test_unknown_name(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "." not in bad:
        monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(errors.ResolverError, match="cannot resolve"):
        hosts.lookup(bad)


@pytest.mark.parametrize("line", ["127.0.0.1", "node1 127.0.0.1", "127.0.0.1.2 a"])
def test_bad_hosts_line(line: str) -> None:
    with pytest.raises(errors.ParseError, match="line 2"):
        hosts.parse_hosts(f"127.0.0.1 ok\n{line}\n")


@pytest.mark.parametrize(
    ("text", "is_ip"),
    [("127.0.0.1", True), ("::1", True), ("1.2.3", False), ("", False), ("a", False),
     ("1\0", False)],
)  # fmt: skip
def test_is_ip(text: str, is_ip: bool) -> None:
    assert net.is_ip(text) is is_ip


def test_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert net.tcp_ping("127.0.0.1", port, 10)
        assert net.tcp_ping("127.0.0.1", port, 10, source="127.0.0.2")
        assert net.tcp_listens("127.0.0.1", port, 10)
    assert net.tcp_ping("127.0.0.1", port, 10)  # refused is an answer
    assert not net.tcp_listens("127.0.0.1", port, 10)
    assert not net.tcp_ping("127.0.0.1", port, 10, source="192.0.2.1")


@pytest.mark.parametrize("depth", [1, 12])
def test_unix_sockets_of_any_length(tmp_path: Path, depth: int) -> None:
    directory = tmp_path.joinpath(*["deeper-and-deeper"] * depth)
    directory.mkdir(parents=True)
    path = str(directory / "ganeti-master")
    with pytest.raises(FileNotFoundError):
        net.unix_connect(path)
    for _ in range(2):  # the second time over a stale socket
        with net.unix_listen(path, 0o660) as server:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
            with net.unix_connect(path, timeout_s=10) as client:
                served, _address = server.accept()
                with served:
                    client.sendall(b"ping")
                    assert served.recv(10) == b"ping"
        with pytest.raises(ConnectionRefusedError):
            net.unix_connect(path)


def test_a_server_which_is_busy_accepting_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with net.unix_listen(path, backlog=1) as server, contextlib.ExitStack() as clients:
        with pytest.raises(TimeoutError):
            while True:
                clients.enter_context(net.unix_connect(path, 0.05))
        accepting = threading.Timer(0.1, lambda: server.accept()[0].close())
        accepting.start()
        net.unix_connect(path, 60).close()
        accepting.join()
