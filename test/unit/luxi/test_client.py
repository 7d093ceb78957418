"""The client of the master's socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.platform import paths
from ganeti.utils import net


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    monkeypatch.delenv("FORCE_LUXI_SOCKET", raising=False)
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    made = paths.Paths(str(tmp_path))
    os.makedirs(made.socket_dir)
    os.makedirs(made.data_dir)
    with paths.override(made):
        yield made


def serve(path: str, *answers: bytes) -> threading.Thread:
    """A server for one client: an answer per received piece, then it closes."""
    listener = net.unix_listen(path, 0o600)

    def run() -> None:
        with listener:
            sock, _ = listener.accept()
            with sock:
                for answer in answers:
                    sock.recv(1 << 16)
                    sock.sendall(answer)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def become_master(here: paths.Paths, name: str = "node1.example.com") -> None:
    Path(here.ssconf_file("master_node")).write_text(f"{name}\n")


def test_addresses(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    assert luxi.default_address() == here.master_socket
    monkeypatch.setenv("FORCE_LUXI_SOCKET", "master")
    assert luxi.default_address() == here.master_socket
    monkeypatch.setenv("FORCE_LUXI_SOCKET", "query")
    assert luxi.default_address() == here.query_socket
    monkeypatch.setenv("FORCE_LUXI_SOCKET", "/some/where")
    assert luxi.Client().address == "/some/where"


def test_no_cluster_is_said_at_once(here: paths.Paths) -> None:
    clock = Clock()
    with pytest.raises(errors.NoMasterError, match="not part of a cluster"):
        luxi.Client(clock=clock, sleep=clock.sleep).query_cluster_info()
    assert clock.now == 0


def test_not_the_master_is_said_at_once(here: paths.Paths) -> None:
    become_master(here, "node2.example.com")
    clock = Clock()
    with pytest.raises(errors.NoMasterError, match="node2.example.com"):
        luxi.Client(clock=clock, sleep=clock.sleep).query_cluster_info()
    assert clock.now == 0


def test_a_master_that_does_not_come(here: paths.Paths) -> None:
    become_master(here)
    clock = Clock()
    with pytest.raises(errors.NoMasterError, match="does not answer"):
        luxi.Client(clock=clock, sleep=clock.sleep).query_cluster_info()
    assert 28 <= clock.now <= 30


def test_a_master_that_is_just_starting(here: paths.Paths) -> None:
    become_master(here)
    clock = Clock()
    threads: list[threading.Thread] = []

    def on_sleep() -> None:
        if clock.now == 3:
            threads.append(serve(here.master_socket, b'{"success":true,"result":7}\x03'))

    clock.on_sleep = on_sleep
    with luxi.Client(clock=clock, sleep=clock.sleep) as client:
        assert client.call("Anything") == 7
    threads[0].join()


def test_a_stale_socket_counts_as_no_master(here: paths.Paths) -> None:
    become_master(here)
    net.unix_listen(here.master_socket, 0o600).close()
    clock = Clock()
    with pytest.raises(errors.NoMasterError):
        luxi.Client(connect_timeout_s=2, clock=clock, sleep=clock.sleep).call("Anything")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_no_permission(here: paths.Paths) -> None:
    with net.unix_listen(here.master_socket, 0o000), pytest.raises(errors.LuxiPermissionError):
        luxi.Client().call("Anything")


def test_permission_errors_have_their_own_class(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, timeout_s: float) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(net, "unix_connect", refuse)
    with pytest.raises(errors.LuxiPermissionError, match="no permission"):
        luxi.Client().call("Anything")


def test_a_master_that_closes(here: paths.Paths) -> None:
    thread = serve(here.master_socket, b'{"success":true')
    client = luxi.Client()
    with pytest.raises(errors.ConnectionClosedError):
        client.call("Anything")
    thread.join()
    thread = serve(here.master_socket, b'{"success":true,"result":1}\x03')
    assert client.call("Again") == 1, "a new connection, without the rest of the old one"
    thread.join()
    client.close()


def test_a_master_that_does_not_answer(here: paths.Paths) -> None:
    with net.unix_listen(here.master_socket, 0o600):
        with pytest.raises(errors.LuxiTimeout, match="no answer"):
            luxi.Client(timeout_s=0.05).call("Anything")


def test_a_master_that_talks_nonsense(here: paths.Paths) -> None:
    thread = serve(here.master_socket, b"nonsense\x03")
    with luxi.Client() as client, pytest.raises(errors.ProtocolError):
        client.call("Anything")
    thread.join()


def test_no_change_is_no_answer(here: paths.Paths) -> None:
    thread = serve(
        here.master_socket,
        b'{"success":true,"result":"nochange"}\x03',
        b'{"success":true,"result":[["success"],[]]}\x03',
    )
    with luxi.Client() as client:
        assert client.wait_for_job_change(1, ["status"], ["running"], None) is None
        change = client.wait_for_job_change(1, ["status"], ["running"], None)
    assert change == (["success"], [])
    thread.join()


def test_a_pipeline_gives_errors_as_values(here: paths.Paths) -> None:
    thread = serve(
        here.master_socket,
        b'{"success":true,"result":1}\x03{"success":false,"result":["JobLost",["gone"]]}\x03',
    )
    with luxi.Client() as client:
        first, second = client.pipeline([("A", []), ("B", [1])])
    assert first == 1
    assert isinstance(second, errors.JobLost)
    thread.join()


@pytest.mark.parametrize("step", ["_send", "_receive"])
def test_an_interrupt_after_any_step_leaves_no_answer_for_the_next_request(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The signal comes when the step has done its work, and before the next one begins."""
    become_master(here)
    works = getattr(luxi.Client, step)

    def interrupted(client: luxi.Client, *args: bytes) -> None:
        works(client, *args)
        raise KeyboardInterrupt

    first = serve(here.master_socket, b'{"success":true,"result":"first"}\x03')
    client = luxi.Client()
    with monkeypatch.context() as patch:
        patch.setattr(luxi.Client, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.call("One")
    first.join()
    os.unlink(here.master_socket)
    second = serve(here.master_socket, b'{"success":true,"result":"second"}\x03')
    assert client.call("Two") == "second"
    second.join()
