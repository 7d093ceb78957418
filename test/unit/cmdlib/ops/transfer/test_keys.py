"""Two nodes copy disks; another machine with the key of the cluster gets nothing.

The master and both nodes have their real code: a node makes its key, the master passes the
certificate on, and the ends are real processes with real sockets. The third node has what each node
has: the key of the cluster, and a certificate of its own which is signed with it. It also knows the
word of the transfer, and has the address of the other node.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.backend import registry
from ganeti.cmdlib.base import JobLog
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.cmdlib.ops.transfer.keys import TransferKey, keys_of
from ganeti.objects import Node
from ganeti.opcodes.backup import OpBackupExport
from ganeti.platform import paths
from ganeti.utils import x509
from ganeti.wire.calls import backup as calls

NODE1, NODE2 = "node1.example.com", "node2.example.com"
CONTENT = b"secrets of the guest" * 50_000


class Foreign:
    """A node which takes no part in the transfer, and tries to.

    :ivar outcomes: what each connection to or from it came to.
    """

    def __init__(self, directory: Path, certificate: str) -> None:
        self.pem = directory / "foreign.pem"
        self.shared = directory / "shared.pem"
        self.shared.write_text(x509.create_self_signed())
        shared = self.shared.read_text()
        text = shared if certificate == "of the cluster" else x509.create_signed("n3", shared)
        self.pem.write_text(text)
        self.outcomes: list[str] = []
        self.received = b""

    def context(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.check_hostname = False
        # It trusts everybody: only the other end can refuse it.
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.pem)
        return context

    def send(self, port: int, magic: str) -> None:
        """Try to be the source."""
        with socket.create_connection(("127.0.0.1", port)) as raw:
            try:
                with self.context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(raw) as connection:
                    connection.sendall(f"M={magic}".encode() + b"evil")
                    self.outcomes.append(f"it was answered {connection.recv(1)!r}")
            except ssl.SSLError as err:
                self.outcomes.append(str(err.reason))

    def receive(self, listener: socket.socket) -> None:
        """Try to be the target."""
        raw, _ = listener.accept()
        with raw:
            try:
                with self.context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(
                    raw, server_side=True
                ) as connection:
                    self.received += connection.recv(1)
                    self.outcomes.append("it received")
            except ssl.SSLError as err:
                self.outcomes.append(str(err.reason))


class Nodes:
    """The answers of both nodes: the real handlers, each in a directory of its own.

    :ivar before_export: called with the options and the port before the source is started; returns
        the port of which the source is informed.
    """

    def __init__(self, directory: Path, master: Master) -> None:
        self.roots = {name: paths.Paths(str(directory / name)) for name in (NODE1, NODE2)}
        self.handlers = registry.handlers()
        self.before_export = lambda options, port: port
        for here in self.roots.values():
            os.makedirs(here.data_dir)
            os.makedirs(here.export_dir)
        answers = master.rpc.answers
        for name in (
            "x509_cert_create",
            "x509_cert_remove",
            "import_start",
            "impexp_status",
            "impexp_abort",
            "impexp_cleanup",
            "finalize_export",
            "export_info",
        ):
            answers[name] = lambda node, args, name=name: self.call(name, node, args)
        answers["export_start"] = self.export

    def call(self, name: str, node: str, args: dict[str, Any]) -> Any:
        here = self.roots[node]
        with paths.override(here), pytest.MonkeyPatch.context() as patch:
            # For the process of the transfer.
            patch.setenv(paths.ENV_ROOT, here.root)
            return self.handlers[name](**args)

    def export(self, node: str, args: dict[str, Any]) -> Any:
        port = self.before_export(args["options"], args["port"])
        return self.call("export_start", node, {**args, "host": "127.0.0.1", "port": port})

    def left(self) -> list[str]:
        """Keys and transfers on the nodes."""
        return [
            name
            for here in self.roots.values()
            for directory in (here.crypto_keys_dir, here.import_export_dir)
            for name in (os.listdir(directory) if os.path.isdir(directory) else ())
        ]

    def arrived(self) -> bytes | None:
        path = Path(self.roots[NODE2].export_dir, "web.example.com", uuid_of("web-disk0"))
        return path.read_bytes() if path.exists() else None


class Lab:
    """A stopped instance on the first node, which is exported to the second one."""

    def __init__(self, directory: Path) -> None:
        disk = replace(disk_of("web", template="file"), size=1)
        instance = instance_of("web", os="", disks=(disk.uuid,))
        self.master = Master(cluster_of(3, (instance,), (disk,)))
        self.nodes = Nodes(directory, self.master)
        self.lines: list[str] = []
        path = Path(self.nodes.roots[NODE1].to_local(str(disk.logical_id[1])))
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT.ljust(1 << 20, b"\0"))

    def node(self) -> Node:
        return self.master.config.node(uuid_of("node1"))

    def keys_of(self, *nodes: Node) -> AbstractContextManager[Mapping[str, TransferKey]]:
        return keys_of(self.master.rpc, JobLog(self.lines.append), nodes, 60)  # type: ignore[arg-type]

    def export(self) -> OpBackupExport:
        return OpBackupExport(instance_name="web", target_node="node2", shutdown=False)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.01)
    found = Lab(tmp_path)
    yield found
    assert found.nodes.left() == []


CERTIFICATES = pytest.mark.parametrize("certificate", ["of the cluster", "of a node"])


@pytest.mark.programs
@CERTIFICATES
def test_a_foreign_source_is_refused_and_the_right_one_still_comes(
    lab: Lab, tmp_path: Path, certificate: str
) -> None:
    foreign = Foreign(tmp_path, certificate)

    def attack(options: Any, port: int) -> int:
        foreign.send(port, options.magic)
        return port

    lab.nodes.before_export = attack
    lab.master.run(lab.export())
    assert foreign.outcomes == ["TLSV1_ALERT_UNKNOWN_CA"]
    found = lab.nodes.arrived()
    assert found is not None and found.startswith(CONTENT) and b"evil" not in found


@pytest.mark.programs
@CERTIFICATES
def test_a_foreign_target_receives_nothing(lab: Lab, tmp_path: Path, certificate: str) -> None:
    foreign = Foreign(tmp_path, certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=foreign.receive, args=(listener,), daemon=True)
        thread.start()
        lab.nodes.before_export = lambda _options, _port: listener.getsockname()[1]
        assert "did not arrive" in lab.master.failed(lab.export())
        thread.join()
    assert foreign.outcomes == ["TLSV1_ALERT_UNKNOWN_CA"] and foreign.received == b""
    assert lab.master.job.said("no trusted connection")


def test_a_key_which_cannot_be_made(lab: Lab) -> None:
    """Nothing is started, and the key on the other node goes."""
    lab.master.rpc.errors["x509_cert_create", NODE2] = "no space left on device"
    said = lab.master.failed(lab.export())
    assert f"node {NODE2} cannot make a key for the transfer of disks: no space left" in said
    assert lab.master.rpc.of("import_start") == []
    assert [node for node, _args in lab.master.rpc.of("x509_cert_remove")] == [NODE1]


def test_a_key_which_cannot_be_removed(lab: Lab) -> None:
    """It is a warning; what was copied stays."""
    lab.master.rpc.answers["x509_cert_create"] = ["key-1", "certificate"]
    lab.master.rpc.errors["x509_cert_remove", NODE1] = "no route to host"
    with lab.keys_of(lab.node()) as keys:
        assert keys[lab.node().uuid] == ("key-1", "certificate")
    assert lab.lines == [f" - WARNING: key key-1 stays on node {NODE1}: no route to host"]


def test_one_node_at_both_ends_makes_one_key(lab: Lab) -> None:
    """An export to the node of the instance itself."""
    with lab.keys_of(lab.node(), lab.node()) as keys:
        assert set(keys) == {lab.node().uuid}
        assert len(lab.nodes.left()) == 1


@pytest.mark.parametrize("answer", [["key"], ["key", ""], ["a", "b", "c"], "key", None])
def test_odd_answers_of_a_node(answer: Any) -> None:
    with pytest.raises(errors.ParseError):
        calls.X509_CERT_CREATE.result.decode(answer)
