"""Two nodes recognise each other before QEMU gets their connection; by the real program."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.helpers import kvm_incoming
from ganeti.hypervisor.base import PORTS, Place
from ganeti.hypervisor.kvm import migration_connection
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.utils import daemonize, filelock, fs, net, retry, x509

pytestmark = pytest.mark.programs
NAME = "web1"
ADDRESS = "127.0.0.1"
PATIENCE_S = 60.0


class Monitor(threading.Thread):
    """The control socket of a QEMU which takes a connection.

    :ivar connection: that which it got, when it was told to use it.
    """

    def __init__(self, path: str, *, refuses: str = "") -> None:
        super().__init__(daemon=True)
        self._listener = net.unix_listen(path)
        self._refuses = refuses
        self.commands: list[tuple[str, Any]] = []
        self.descriptors: list[int] = []
        self.connection: concurrent.futures.Future[socket.socket] = concurrent.futures.Future()
        self.start()

    def run(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    client.sendall(b'{"QMP": {}}\n')
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        while True:
            data, descriptors, _flags, _address = socket.recv_fds(client, 1 << 16, 4)
            self.descriptors += descriptors
            for one in descriptors:
                # QEMU does that.
                os.set_blocking(one, True)
            if not data:
                return
            request = json.loads(data)
            command, arguments = request["execute"], request.get("arguments")
            if command != "qmp_capabilities":
                self.commands.append((command, arguments))
            if command == self._refuses:
                answer: dict[str, Any] = {"error": {"class": "GenericError", "desc": "no"}}
            else:
                answer = {"return": {}}
                if command.startswith("migrate"):
                    self.connection.set_result(socket.socket(fileno=self.descriptors.pop()))
            client.sendall(json.dumps({**answer, "id": request["id"]}).encode() + b"\n")


class Ends:
    """Source and target of a migration."""

    def __init__(self, root: Path) -> None:
        self.source, self.target = (
            Layout(str(root / node), str(root / node / "log"), NAME) for node in ("one", "two")
        )
        for layout in (self.source, self.target):
            fs.make_dirs(layout.control_dir, 0o755)
            fs.make_dirs(layout.log_dir, 0o755)
        with socket.socket() as probe:
            probe.bind((ADDRESS, 0))
            self.first = probe.getsockname()[1]

    def wait(self, command: str = "migrate-incoming", certificate: str | None = None) -> Place:
        """Let the target wait; returns where."""
        pem = migration_connection.new_certificate(self.source)
        migration_connection.keep_certificate(self.target, certificate or pem)
        place = Place(ADDRESS, self.first, any_port=True)
        port = migration_connection.start_receiver(self.target, place, command)
        assert self.first <= port < self.first + PORTS
        return Place(ADDRESS, port)

    def said(self) -> str:
        return Path(self.target.migration_log_file).read_text()

    def await_end(self) -> None:
        """Wait until the program has ended."""

        def ended() -> None:
            if filelock.is_locked(self.target.migration_pid_file):
                raise retry.Again

        retry.until(ended, timeout_s=PATIENCE_S, delay=0.01)


@pytest.fixture
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    made = Ends(tmp_path_factory.mktemp("k"))
    yield made
    migration_connection.forget(made.target)


@pytest.mark.parametrize("command", ["migrate-incoming", "migrate-recover"])
def test_both_ends_get_one_connection(ends: Ends, command: str) -> None:
    qemu = Monitor(ends.target.socket("qmp"))
    place = ends.wait(command)
    with migration_connection.connected(ends.source, place) as sock:
        received = qemu.connection.result(PATIENCE_S)
        with received:
            # With one that blocks, QEMU stands still until it hears something.
            assert not os.get_blocking(received.fileno())
            for one in (sock, received):
                one.settimeout(PATIENCE_S)
            # Neither end has read, or sent, anything that belongs to QEMU.
            sock.sendall(b"QEVM")
            assert received.recv(100) == b"QEVM"
            received.sendall(b"answer")
            assert sock.recv(100) == b"answer"
            ends.await_end()
            # Only QEMU has it.
            received.shutdown(socket.SHUT_RDWR)
            assert sock.recv(1) == b""
    assert qemu.commands == [
        ("getfd", {"fdname": "migration"}),
        (command, {"uri": "fd:migration"}),
    ]
    assert "QEMU has the connection" in ends.said()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((place.address, place.port))


def test_other_peers_delay_nothing(ends: Ends) -> None:
    """They are there before the program runs: silent, noisy, with a certificate of their own."""
    qemu = Monitor(ends.target.socket("qmp"))
    place = ends.wait()
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((place.address, place.port)))
            for _ in range(5)
        ]
        silent[1].sendall(b"\x16\x03\x01\x40\x00\x01")
        silent[2].sendall(b"QEVM" + bytes(1000))
        own = Path(ends.source.migration_certificate_file).read_text()
        migration_connection.new_certificate(ends.source)
        with (
            pytest.raises(errors.HypervisorError, match="nothing of instance web1 was sent"),
            migration_connection.connected(ends.source, place),
        ):
            raise AssertionError("a stranger was let in")
        assert qemu.commands == []
        migration_connection.keep_certificate(ends.source, own)
        with migration_connection.connected(ends.source, place) as sock:
            with qemu.connection.result(PATIENCE_S) as received:
                received.settimeout(PATIENCE_S)
                sock.sendall(b"guest")
                assert received.recv(100) == b"guest"
    assert ends.said().count("refused") >= 2


def test_the_source_does_not_wait_for_its_peer(ends: Ends) -> None:
    source = Monitor(ends.source.socket("qmp"))
    one, other = socket.socketpair()
    with one, other, Qmp(ends.source.socket("qmp"), NAME) as control:
        migration_connection.take(control, "migrate", one, resume=True)
        with source.connection.result(PATIENCE_S) as sent:
            assert not os.get_blocking(sent.fileno())
    assert source.commands == [
        ("getfd", {"fdname": "migration"}),
        ("migrate", {"uri": "fd:migration", "resume": True}),
    ]


def test_a_source_which_was_sent_away_comes_again(ends: Ends) -> None:
    """A target with too many peers closes some of them."""
    migration_connection.new_certificate(ends.source)
    path = ends.source.migration_certificate_file
    qemu = Monitor(ends.target.socket("qmp"))

    def send() -> None:
        with migration_connection.connected(ends.source, Place(ADDRESS, ends.first)) as sock:
            sock.settimeout(PATIENCE_S)
            sock.sendall(b"guest")

    with (
        socket.create_server((ADDRESS, ends.first)) as listener,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        sending = pool.submit(send)
        for _ in range(3):
            listener.accept()[0].close()
        context = x509.one_peer_context(path, path, server=True)
        connection = kvm_incoming.await_source(listener, context)
        with connection, Qmp(ends.target.socket("qmp"), NAME) as control:
            kvm_incoming.hand_over(connection, control, "migrate-incoming")
        sending.result(PATIENCE_S)
        with qemu.connection.result(PATIENCE_S) as received:
            received.settimeout(PATIENCE_S)
            assert received.recv(100) == b"guest"


@pytest.mark.parametrize("refuses", ["getfd", "migrate-incoming"])
def test_a_qemu_which_refuses(ends: Ends, refuses: str) -> None:
    """The source hears it before it sends, or sees that the connection has ended."""
    Monitor(ends.target.socket("qmp"), refuses=refuses)
    place = ends.wait()
    with contextlib.ExitStack() as stack:
        if refuses == "getfd":
            stack.enter_context(pytest.raises(errors.HypervisorError, match="nothing of instance"))
        sock = stack.enter_context(migration_connection.connected(ends.source, place))
        ends.await_end()
        sock.settimeout(PATIENCE_S)
        assert sock.recv(1) == b""
    ends.await_end()
    assert f"refuses {refuses}: no" in ends.said()


def test_a_target_which_gives_up_frees_its_port(ends: Ends) -> None:
    place = ends.wait()
    assert daemonize.read_pid(ends.target.migration_pid_file) is not None
    migration_connection.forget(ends.target)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((place.address, place.port))
    assert os.listdir(ends.target.control_dir) == []
    # None is not an error.
    migration_connection.forget(ends.target)


def test_a_second_preparation_ends_the_first(ends: Ends) -> None:
    first = ends.wait()
    pid = daemonize.read_pid(ends.target.migration_pid_file)
    second = ends.wait()
    assert daemonize.read_pid(ends.target.migration_pid_file) not in (None, pid)
    assert second == first


def test_no_port_is_free(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.hypervisor.base.PORTS", 2)
    with (
        socket.create_server((ADDRESS, ends.first)),
        socket.create_server((ADDRESS, ends.first + 1)),
        pytest.raises(errors.HypervisorError, match=r"already in use, and all up to \d+"),
    ):
        ends.wait()
    assert daemonize.read_pid(ends.target.migration_pid_file) is None


def test_a_source_without_a_certificate(ends: Ends) -> None:
    """It was prepared by the release before."""
    with (
        pytest.raises(errors.HypervisorError, match="no certificate .* another release"),
        migration_connection.connected(ends.source, Place(ADDRESS, ends.first)),
    ):
        raise AssertionError("it was connected")


def test_the_certificate_of_a_target_is_not_known_to_others(ends: Ends) -> None:
    pem = migration_connection.new_certificate(ends.source)
    migration_connection.keep_certificate(ends.target, pem)
    for layout in (ends.source, ends.target):
        assert os.stat(layout.migration_certificate_file).st_mode & 0o777 == 0o600
    assert x509.certificate_part(pem) in pem
