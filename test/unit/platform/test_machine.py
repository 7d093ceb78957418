"""The two kinds of machine, and that only this package knows which one a program runs on."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import hosts, machine, paths
from ganeti.platform.real import RealMachine
from ganeti.platform.virtual import VirtualNode

LIB = Path(__file__).resolve().parents[3] / "lib" / "ganeti"
HOSTS = """
# a comment
127.3.4.1  node1.example.com node1
127.3.4.2  Node2.Example.com   # the other
"""


@pytest.fixture
def vcluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts").write_text(HOSTS)
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(tmp_path))
    monkeypatch.setenv(paths.ENV_ROOT, str(tmp_path / "node1.example.com"))
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node1.example.com")
    return tmp_path


def test_only_this_package_knows_the_kind_of_machine() -> None:
    """Others ask a question of :class:`Machine`; virtual clusters are made by ``vcluster``."""
    pattern = re.compile(
        r"is_virtual|vcluster_dir|ENV_(ROOT|HOSTNAME|VCLUSTER)|VirtualNode|RealMachine"
        r"|GANETI_(ROOTDIR|HOSTNAME|VCLUSTER)|isinstance\(machine"
    )
    found = [
        f"{path.relative_to(LIB)}:{number}: {line.strip()}"
        for path in sorted(LIB.rglob("*.py"))
        if path.relative_to(LIB).parts[0] not in ("platform", "vcluster")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "ask ganeti.platform.machine.current()\n" + "\n".join(found)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(machine.current(), RealMachine)
    assert machine.current() is machine.current()
    monkeypatch.setenv(paths.ENV_ROOT, "/v/node2")
    node = machine.current()
    assert isinstance(node, VirtualNode)
    assert node.paths is paths.current()
    assert node.cluster_dir is None
    with machine.override(RealMachine(paths.Paths())) as other:
        assert machine.current() is other
    monkeypatch.setenv(paths.ENV_VCLUSTER, "v")
    with pytest.raises(errors.ConfigurationError, match="GANETI_VCLUSTER"):
        machine.current()


@pytest.mark.usefixtures("vcluster")
def test_names_of_a_virtual_cluster() -> None:
    here = machine.current()
    assert here.hostname() == "node1.example.com"
    assert here.lookup("node1") == ("node1.example.com", "127.3.4.1")
    assert here.resolve("NODE2.example.com") == "127.3.4.2"
    assert here.owns_address("127.3.4.1")
    assert not here.owns_address("127.3.4.2")
    assert here.resolve("127.0.0.9") == "127.0.0.9"
    assert here.noded_port() == 1811
    assert here.default_bind_address() == here.outgoing_address() == "127.3.4.1"


def test_connections_that_are_cut(vcluster: Path) -> None:
    assert machine.current().cut_addresses() == frozenset()
    (vcluster / "cut").write_text("node2.example.com node1.example.com\nnode3 node4\n")
    assert machine.current().cut_addresses() == {"127.3.4.2"}
    # One way: this node reaches node2, and node2 does not reach this one; or the reverse.
    (vcluster / "cut").write_text("node2.example.com > node1.example.com\n")
    assert machine.current().cut_addresses() == frozenset()
    (vcluster / "cut").write_text("node1.example.com > node2.example.com\n")
    assert machine.current().cut_addresses() == {"127.3.4.2"}


def test_other_nodes_of_a_virtual_cluster(vcluster: Path) -> None:
    here = machine.current()
    assert here.neighbour_dir("node2") == f"{vcluster}/node2"
    assert here.neighbour_environment("node2") == {
        paths.ENV_ROOT: f"{vcluster}/node2",
        paths.ENV_HOSTNAME: "node2",
    }
    assert here.paths_of_node("node2").root == f"{vcluster}/node2"
    assert here.shared_cache_dir() == str(vcluster)
    assert here.start_command("ganeti-masterd") == f"tools/vcluster start {vcluster}"


def test_files_which_a_user_names(vcluster: Path) -> None:
    here = machine.current()
    inside = f"{here.paths.root}/etc/note"
    with pytest.raises(errors.OpPrereqError, match="is not below"):
        here.own_file("/etc/note")
    Path(inside).parent.mkdir(parents=True)
    Path(inside).touch()
    assert here.own_file("/etc/note") == here.own_file(inside) == inside


def test_a_virtual_node_without_its_cluster() -> None:
    here = VirtualNode(paths.Paths("/v/node1"), "Node1")
    assert here.hostname() == "node1"
    assert here.paths_of_node("node2") is here.paths
    assert here.shared_cache_dir() == here.paths.kvm_root
    assert here.start_command("ganeti-masterd") == "tools/vcluster start /v"
    assert not here.cut_addresses()
    with pytest.raises(errors.OpPrereqError, match="Set GANETI_VCLUSTER"):
        here.neighbour_dir("node2")


def test_a_virtual_node_without_an_address(monkeypatch: pytest.MonkeyPatch, vcluster: Path) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node9")
    assert not machine.current().owns_address("127.3.4.1")
    with pytest.raises(errors.ConfigurationError, match="address to serve"):
        machine.current().default_bind_address()


def test_a_real_machine() -> None:
    here = RealMachine(paths.Paths())
    assert here.default_bind_address() == "0.0.0.0"
    assert here.outgoing_address() is None
    assert here.owns_address("127.0.0.1")
    assert not here.owns_address("192.0.2.1")
    assert here.is_loopback_only("127.0.0.1")
    assert here.neighbour_dir("node2") is None
    assert here.neighbour_environment("node2") == {}
    assert here.paths_of_node("node2") is here.paths
    assert here.service_port("no-such-service", 7) == 7
    assert here.trusted_owner() == (0, 0)
    assert here.may_change_owners == (os.geteuid() == 0)
    assert here.own_file("/etc/note") == "/etc/note"
    assert here.start_command("ganeti-masterd") == "daemon-util start ganeti-masterd"
    assert "user" not in here.nic_modes()


def test_nic_modes_are_sorted() -> None:
    for here in (RealMachine(paths.Paths()), VirtualNode(paths.Paths("/v/node1"))):
        assert list(here.nic_modes()) == sorted(here.nic_modes())
        assert "pool" not in here.nic_modes()


@pytest.mark.parametrize("bad", ["a..b", "x" * 300, "no such host", ""])
def test_unknown_name(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "." not in bad:
        monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(errors.ResolverError, match="cannot resolve"):
        machine.current().lookup(bad)


@pytest.mark.parametrize("line", ["127.0.0.1", "node1 127.0.0.1", "127.0.0.1.2 a"])
def test_bad_hosts_line(line: str) -> None:
    with pytest.raises(errors.ParseError, match="line 2"):
        hosts.parse_hosts(f"127.0.0.1 ok\n{line}\n")
