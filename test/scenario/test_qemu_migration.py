"""Migration between two nodes with a real QEMU: there and back, cut off, overheard, forged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvm_node import (
    NAME,
    PATIENCE_S,
    Node,
    find_qemu,
    follow,
    move,
    status,
    wait_until,
)

from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.hypervisor.kvm import incoming, migration_connection
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import x509

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


@pytest.mark.parametrize("live", [True, pytest.param(False, marks=pytest.mark.long)])
def test_migration_there_and_back(
    nodes: tuple[Node, Node], guest: FilledInstance, live: bool
) -> None:
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest, more_than=1)
    assert move(first, second, guest, live=live) == "completed"
    assert first.running() == []
    assert first.leftovers() == []
    assert second.running() == [NAME]
    before = first.lines(guest)[-1]
    after = second.wait_booted(guest, more_than=1)
    assert after[0] == before[0] == boot  # the same boot ...
    assert second.lines(guest)[0][1] >= before[1]  # ... goes on counting
    # Back again: what was written on the second node serves as the source's record.
    first_lines = len(first.lines(guest))
    assert move(second, first, guest, live=live) == "completed"
    assert first.wait_booted(guest, more_than=first_lines)[0] == boot
    assert second.leftovers() == []
    first.shutdown(guest)
    assert "going down (off)" in first.console(guest)


def test_migration_capabilities_reach_both_ends(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    guest = first.instance(NAME, migration_caps="xbzrle:auto-converge")
    first.install(guest)
    first.start(guest)
    first.wait_booted(guest)
    assert move(first, second, guest) == "completed"
    with Qmp(second.socket(guest, "qmp"), NAME) as control:
        states = {
            one["capability"]: one["state"] for one in control.execute("query-migrate-capabilities")
        }
    assert states["xbzrle"] and states["auto-converge"] and not states["postcopy-ram"]
    wrong = first.instance(NAME, migration_caps="teleport")
    with paths.override(second.paths), pytest.raises(errors.HypervisorError, match="teleport"):
        lifecycle.migrate("cluster", wrong, "127.0.0.31", True)
    second.wait_booted(guest, more_than=len(second.lines(guest)))


def test_target_that_dies_leaves_the_guest_running(
    nodes: tuple[Node, Node], guest: FilledInstance
) -> None:
    first, second = nodes
    slow = first.instance(NAME, migration_bandwidth=1)
    first.start(slow)
    first.wait_booted(slow)
    with paths.override(first.paths):
        info = lifecycle.migration_info(slow)
    with paths.override(second.paths):
        lifecycle.accept_instance(slow, info, "127.0.0.31")
    with paths.override(first.paths):
        lifecycle.migrate("cluster", slow, "127.0.0.31", True)
    os.kill(second.pid(slow), signal.SIGKILL)
    assert wait_until(lambda: follow(first, slow), "the migration ends") == "failed"
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(slow, info, False)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(slow, False, True)
    assert second.leftovers() == []
    assert status(first, slow) == "running"
    first.wait_booted(slow, more_than=len(first.lines(slow)))


def test_canceled_migration(nodes: tuple[Node, Node], guest: FilledInstance) -> None:
    """The master gives up in the middle: both sides are put in order."""
    first, second = nodes
    slow = first.instance(NAME, migration_bandwidth=1)
    first.start(slow)
    first.wait_booted(slow)
    with paths.override(first.paths):
        info = lifecycle.migration_info(slow)
    with paths.override(second.paths):
        lifecycle.accept_instance(slow, info, "127.0.0.31")
    with paths.override(first.paths):
        lifecycle.migrate("cluster", slow, "127.0.0.31", True)
        lifecycle.finalize_migration_src(slow, False, True)
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(slow, info, False)
    assert second.leftovers() == [] and second.running() == []
    first.wait_booted(slow, more_than=len(first.lines(slow)))


class Wire:
    """Everything that crosses the network between two nodes, which have it between them."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._listener = socket.create_server(("127.0.0.32", port))
        self._port = port
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Wire:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        source, _ = self._listener.accept()
        target = socket.create_connection(("127.0.0.31", self._port))
        back = threading.Thread(target=self._pass_on, args=(target, source, bytearray()))
        back.start()
        self._pass_on(source, target, self.sent)
        back.join()
        source.close()
        target.close()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, seen: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "params",
    [
        {},
        pytest.param({"use_chroot": True}, marks=pytest.mark.long),
        pytest.param({"migration_tls": False}, marks=pytest.mark.long),
    ],
)
def test_what_is_seen_on_the_network(nodes: tuple[Node, Node], params: dict[str, bool]) -> None:
    """By default neither the protocol of QEMU nor the memory of the guest is readable."""
    if params.get("use_chroot") and os.geteuid() != 0:
        pytest.skip("use_chroot needs root")
    first, second = nodes
    guest = first.instance(NAME, **params)
    first.install(guest)
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    with Wire(guest.hvparams["migration_port"]) as wire:
        ended = move(first, second, guest, source_address="127.0.0.32")
    assert ended == "completed"
    assert second.wait_booted(guest)[0] == boot
    readable = params.get("migration_tls") is False
    # First the nodes authenticate each other; QEMU sends afterwards.
    assert wire.sent.startswith(b"\x16\x03")
    assert (b"QEVM" in wire.sent) == readable
    assert (b"tiny: " in wire.sent) == readable
    assert len(wire.sent) > 1 << 20
    assert not Path(f"{second.paths.kvm_root}/chroot/{NAME}/key").exists()
    # Back again: the target has the key of the first migration, and gets a new one.
    assert move(second, first, guest) == "completed"


def test_nobody_without_the_key_sends_or_receives_a_guest(
    nodes: tuple[Node, Node], guest: FilledInstance
) -> None:
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    address = ("127.0.0.31", guest.hvparams["migration_port"])
    # Another node does not have the certificate, and another guest does not have the key.
    for part, other in (("certificate", x509.create_self_signed(NAME)), ("key", "0" * 64)):
        with paths.override(first.paths):
            info = lifecycle.migration_info(guest)
        with paths.override(second.paths):
            lifecycle.accept_instance(guest, {**info, part: other}, address[0])
        with socket.create_connection(address, timeout=PATIENCE_S) as peer:
            peer.sendall(b"QEVM" + bytes(1 << 16))
            with contextlib.suppress(ConnectionError):
                while peer.recv(1 << 16):
                    pass
        assert status(second, guest) == "inmigrate"
        with paths.override(first.paths):
            if part == "certificate":
                with pytest.raises(errors.HypervisorError, match=r"nothing .* was sent"):
                    lifecycle.migrate("cluster", guest, address[0], True)
                # It was not even stopped.
                assert status(first, guest) == "running"
            else:
                lifecycle.migrate("cluster", guest, address[0], True)
                assert wait_until(lambda: follow(first, guest), "the migration ends") == "failed"
        give_up(first, second, guest, info)
    # The guest was not touched, and the next migration works, also after an unknown peer.
    assert move(first, second, guest) == "completed"
    assert second.wait_booted(guest)[0] == boot


def give_up(first: Node, second: Node, guest: FilledInstance, info: object) -> None:
    """A migration has failed: nothing is left of it, and the guest runs on."""
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guest, info, False)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(guest, False, True)
    assert second.leftovers() == []
    first.wait_booted(guest, more_than=len(first.lines(guest)))


@pytest.mark.parametrize(
    ("count", "params"),
    [
        (5, {}),
        pytest.param(5, {"migration_tls": False}, marks=pytest.mark.long),
        pytest.param(150, {}, marks=pytest.mark.long),
    ],
)
def test_idle_connections_do_not_hold_a_guest(
    nodes: tuple[Node, Node], count: int, params: dict[str, bool]
) -> None:
    """Somebody in the network connects to the port before the source does, and says nothing."""
    first, second = nodes
    guest = first.instance(NAME, **params)
    first.install(guest)
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    address = ("127.0.0.31", guest.hvparams["migration_port"])
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    second.assemble(guest)
    with paths.override(second.paths):
        lifecycle.accept_instance(guest, info, address[0])
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        silent[0].sendall(b"\x16\x03\x01\x40\x00\x01")
        with paths.override(first.paths):
            lifecycle.migrate("cluster", guest, address[0], True)
        assert wait_until(lambda: follow(first, guest), "the migration ends") == "completed"
        # They were sent away.
        for one in silent:
            one.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guest, info, True)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(guest, True, True)
    assert second.wait_booted(guest)[0] == boot
    assert first.leftovers() == []


@contextlib.contextmanager
def false_target(port: int, certificate: str | None, directory: Path) -> Iterator[None]:
    """A target which is silent: at once, or with the certificate where QEMU should speak."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            peer, _ = listener.accept()
            connections.append(peer)
            if certificate is not None:
                path = directory / "certificate"
                path.write_text(certificate)
                context = x509.one_peer_context(str(path), str(path), server=True)
                tls = context.wrap_socket(peer, server_side=True)
                tls.sendall(migration_connection.READY)
                connections.append(tls.unwrap())

    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.31", port)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()
            for one in connections:
                one.close()


@pytest.mark.parametrize("where", ["node", "qemu"])
@pytest.mark.parametrize("live", [True, False])
def test_when_nothing_is_sent_the_guest_runs_on(
    nodes: tuple[Node, Node],
    guest: FilledInstance,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
    live: bool,
) -> None:
    first, _ = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    monkeypatch.setattr(migration_connection, "CONNECT_S", 1.0 if where == "node" else PATIENCE_S)
    monkeypatch.setattr(incoming, "BEGIN_TIMEOUT_S", 1.0)
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
        certificate = info["certificate"] if where == "qemu" else None
        port = guest.hvparams["migration_port"]
        with (
            false_target(port, certificate, tmp_path),
            pytest.raises(errors.HypervisorError, match=r"nothing .*was sent"),
        ):
            lifecycle.migrate("cluster", guest, "127.0.0.31", live)
        assert lifecycle.migration_status(guest).status != "completed"
        lifecycle.finalize_migration_src(guest, False, live)
    assert status(first, guest) == "running"
    assert first.wait_booted(guest, more_than=len(first.lines(guest)))[0] == boot


def test_each_migration_has_a_port(nodes: tuple[Node, Node]) -> None:
    """Two at the same time, of which one is given up: its port is free again."""
    first, second = nodes
    guests = [first.instance(f"web{number}.example.com") for number in (1, 2)]
    ports, infos = [], []
    for guest in guests:
        first.install(guest)
        first.start(guest)
        first.wait_booted(guest)
        with paths.override(first.paths):
            infos.append(lifecycle.migration_info(guest))
        second.assemble(guest)
        with paths.override(second.paths):
            ports.append(lifecycle.accept_instance(guest, infos[-1], "127.0.0.31", any_port=True))
    assert ports[0] is not None and ports[1] is not None and ports[0] < ports[1]
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guests[0], infos[0], False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.31", ports[0]))
    with paths.override(first.paths):
        lifecycle.migrate("cluster", guests[1], "127.0.0.31", True, ports[1])
    assert wait_until(lambda: follow(first, guests[1]), "the migration ends") == "completed"
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guests[1], infos[1], True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.31", ports[1]))


def test_the_target_obeys_no_word_of_the_source(
    nodes: tuple[Node, Node], guest: FilledInstance, tmp_path: Path
) -> None:
    """A node which is not a master candidate may be the source, and QEMU starts as root."""
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    program.chmod(0o755)
    runtime_file = Path(f"{first.paths.kvm_root}/conf/{NAME}.runtime")
    argv, nics, params, disks = json.loads(runtime_file.read_text())
    argv[0] = str(program)
    argv += ["-chardev", f"file,id=x,path={ran}", "-serial", "chardev:x"]
    params |= {"kvm_path": str(program), "kernel_path": str(program), "mem_path": str(tmp_path)}
    disks[0][1] = str(program)
    runtime_file.write_text(json.dumps([argv, nics, params, disks]))
    assert move(first, second, guest) == "completed"
    assert not ran.exists()
    assert second.wait_booted(guest)[0] == boot
    words = Path(f"/proc/{second.pid(guest)}/cmdline").read_text()
    assert str(tmp_path) not in words


@pytest.mark.long
def test_migration_after_the_medium_was_taken_out(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    """The configuration has no CD any more; the guest keeps its drive, which is empty."""
    first, second = nodes
    disc = tmp_path / "disc.iso"
    disc.write_bytes(bytes(1 << 20))
    guest = first.instance(NAME)
    first.install(guest)
    first.start(first.instance(NAME, cdrom_image_path=str(disc), cdrom_disk_type="ide"))
    boot, _ = first.wait_booted(guest)
    assert move(first, second, guest) == "completed"
    assert second.wait_booted(guest)[0] == boot
    assert str(disc) not in Path(f"/proc/{second.pid(guest)}/cmdline").read_text()
    assert move(second, first, guest) == "completed"


def test_migration_port_in_use(nodes: tuple[Node, Node], guest: FilledInstance) -> None:
    first, second = nodes
    first.start(guest)
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    with socket.socket() as taken:
        # Connections of an earlier test may linger on the port.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.31", guest.hvparams["migration_port"]))
        taken.listen()
        with (
            paths.override(second.paths),
            pytest.raises(errors.HypervisorError, match="Address already in use"),
        ):
            lifecycle.accept_instance(guest, info, "127.0.0.31")
        assert second.leftovers() == []
        assert first.running() == [NAME]
        # A source of this release learns of another one.
        assert move(first, second, guest) == "completed"


@pytest.mark.parametrize(
    "info",
    ["", "[]", "{}", "no json", '[["qemu"],[],{},[{}]]', '[["qemu"],[{"mac":"x"}],{},[]]', None, 5],
)
def test_garbage_as_migration_data(node: Node, guest: FilledInstance, info: object) -> None:
    with paths.override(node.paths), pytest.raises(errors.HypervisorError, match=NAME):
        lifecycle.accept_instance(guest, info, "127.0.0.31")
    assert node.leftovers() == []
