"""``gnt-cluster copyfile`` and ``command``, and how other nodes are reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import remote
from ganeti.platform import machine, paths
from ganeti.platform.real import RealMachine
from ganeti.utils import process, ssh

from ..conftest import Gnt

NODE1, NODE2, NODE3 = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
RULER = "-" * 48


@pytest.fixture
def nodes(master: FakeMaster) -> FakeMaster:
    master.rows["node"] = [
        {
            "name": name,
            "pip": f"192.0.2.{number}",
            "sip": f"198.51.100.{number}",
            "master": number == 1,
            "offline": False,
            "group": "default",
        }
        for number, name in enumerate(NODES, 1)
    ]
    return master


def done(stdout: str = "", exit_code: int | None = 0, signal: int | None = None) -> Any:
    return process.Completed(("sh",), exit_code, stdout, "", signal)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Node and command of everything that was run; node2 fails."""
    found: list[tuple[str, str]] = []

    def run(node: remote.RemoteNode, command: str) -> process.Completed:
        found.append((node.name, command))
        if command == "crash":
            raise errors.CommandError(["ssh"], 127, "no ssh")
        return (
            done(f"on {node.address}\n", int(node.name == NODE2))
            if command != "die"
            else done("", None, 9)
        )

    monkeypatch.setattr(remote.RemoteNode, "run", run)
    return found


def test_command(gnt: Gnt, nodes: FakeMaster, runs: list[tuple[str, str]]) -> None:
    ended = gnt("cluster command uname -a")
    assert ended.code == 1
    assert gnt(f"cluster command -n {NODE3} uname -a").code == 0
    del runs[-1]
    assert ended.out == "".join(
        f"{RULER}\nnode: {name}\non 192.0.2.{number}\n\nreturn code = {code}\n"
        for name, number, code in ((NODE2, 2, 1), (NODE3, 3, 0), (NODE1, 1, 0))
    )
    assert sorted(runs) == [(name, "uname -a") for name in NODES]
    assert runs[-1][0] == NODE1


def test_command_with_names_and_failures_only(
    gnt: Gnt, nodes: FakeMaster, runs: list[tuple[str, str]]
) -> None:
    ended = gnt("cluster command -M --failure-only true")
    assert ended.out == f"{RULER}\n{NODE2}: on 192.0.2.2\nreturn code = 1\n"


def test_command_that_cannot_be_run(
    gnt: Gnt, nodes: FakeMaster, runs: list[tuple[str, str]]
) -> None:
    ended = gnt(f"cluster command -n {NODE3} crash")
    assert ended.code == 1
    assert "no ssh" in ended.out
    assert "return code" not in ended.out
    assert "return code = 137" in gnt(f"cluster command -n {NODE3} die").out


def test_offline_nodes_are_left_out(
    gnt: Gnt, nodes: FakeMaster, runs: list[tuple[str, str]]
) -> None:
    nodes.rows["node"][2]["offline"] = True
    ended = gnt("cluster command true")
    assert ended.err == f"Note: skipping offline node(s): {NODE3}\n"
    assert NODE3 not in dict(runs)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []

    def copy(node: remote.RemoteNode, path: str) -> None:
        found.append((node.name, node.address, path))
        if node.name == NODE3:
            raise errors.CommandError(["scp"], 1, "disk full")

    monkeypatch.setattr(remote.RemoteNode, "copy", copy)
    return found


def test_copyfile(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, copies: list[tuple[str, str, str]]
) -> None:
    path = Path(here.root) / "etc/note"
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    ended = gnt(f"cluster copyfile -n {NODE1} -n {NODE2} /etc/note")
    assert ended == (0, "", "")
    # Not to the node itself.
    assert copies == [(NODE2, "192.0.2.2", str(path))]
    copies.clear()
    ended = gnt(f"cluster copyfile --use-replication-network {path}")
    assert ended.code == 1
    assert f"to node {NODE3} failed" in ended.err
    assert "disk full" in ended.err
    assert sorted(copies) == [
        (NODE2, "198.51.100.2", str(path)),
        (NODE3, "198.51.100.3", str(path)),
    ]


def test_files_that_other_nodes_cannot_have(
    gnt: Gnt, nodes: FakeMaster, tmp_path: Path, copies: list[tuple[str, str, str]]
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    assert "is not below" in gnt(f"cluster copyfile {outside}").err
    assert "is not below" in gnt("cluster copyfile /etc/nosuch").err
    assert copies == []


def test_real_machines_are_reached_by_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], **_options: Any) -> process.Completed:
        ran.append(argv)
        return done()

    monkeypatch.setattr(process, "run", run)
    here = RealMachine(paths.Paths(), NODE1)
    monkeypatch.setattr(machine, "current", lambda: here)
    ports = tmp_path / "ports"
    ports.write_text(f"{NODE2}=2222\n")
    monkeypatch.setattr(paths.Paths, "ssconf_file", lambda self, key: str(ports))
    node = remote.RemoteNode(NODE2, "192.0.2.2")
    node.run("echo a b")
    (argv,) = ran
    assert argv[0] == "ssh"
    assert {"-oStrictHostKeyChecking=yes", "-p2222", "-lroot", "-oBatchMode=yes"} <= set(argv)
    assert f"-oHostKeyAlias=[{NODE2}]:2222" in argv
    assert argv[-2:] == ["192.0.2.2", "sh -c 'echo a b'"]
    ran.clear()
    node.copy("/etc/note")
    (argv,) = ran
    assert argv[:2] == ["scp", "-pq"]
    assert argv[-3:] == ["--", "/etc/note", "root@192.0.2.2:/etc/note"]
    ran.clear()
    remote.RemoteNode(NODE1, "192.0.2.1").run("true")
    assert ran == [["sh", "-c", "true"]]


def test_scp_to_an_ipv6_address() -> None:
    argv = ssh.scp_argv("n", "/f", known_hosts="k", address="2001:db8::1")
    assert argv[-1] == "root@[2001:db8::1]:/f"


def test_virtual_nodes_are_directories(
    here: paths.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(process, "run", lambda argv, **_options: ran.append(argv))
    node = remote.RemoteNode(NODE2, "127.0.9.2")
    node.run("true")
    node.copy(f"{here.root}/etc/note")
    assert ran == [
        [f"{tmp_path}/{NODE2}/cmd", "sh", "-c", "true"],
        ["cp", "-p", "--", f"{here.root}/etc/note", f"{tmp_path}/{NODE2}/etc/note"],
    ]
    monkeypatch.delenv("GANETI_VCLUSTER")
    with pytest.raises(errors.OpPrereqError, match="GANETI_VCLUSTER"):
        node.run("true")
