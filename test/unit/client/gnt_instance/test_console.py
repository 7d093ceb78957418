"""``gnt-instance console``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt


class Became(Exception):
    """What the process would have become."""


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def become(program: str, argv: Sequence[str]) -> None:
        if program == "nosuch":
            raise FileNotFoundError(2, "No such file or directory")
        raise Became(argv)

    monkeypatch.setattr(os, "execvp", become)


def console(**values: Any) -> dict[str, Any]:
    return {
        "instance": "web1",
        "kind": "msg",
        "message": None,
        "host": None,
        "port": None,
        "user": None,
        "command": None,
        "display": None,
        **values,
    }


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (console(message="no console with this hypervisor"), "no console with this hypervisor\n"),
        (
            console(kind="vnc", host="node1", port=11000, display=5100),
            "Instance web1 has VNC listening on node1:11000 (display 5100), URL <vnc://node1:11000/>\n",
        ),
        (
            console(kind="vnc", host="node1", port=5800),
            "Instance web1 has VNC listening on node1:5800, URL <vnc://node1:5800/>\n",
        ),
        (
            console(kind="spice", host="node1", port=11000),
            "Instance web1 has SPICE listening on node1:11000, URL <spice://node1:11000/>\n",
        ),
    ],
)
@pytest.mark.parametrize("option", ["", "--show-cmd "])
def test_shown(
    described: dict[str, Any], text: str, option: str, gnt: Gnt, master: FakeMaster
) -> None:
    master.results["OP_INSTANCE_CONSOLE"] = described
    assert gnt(f"instance console {option}web1") == (0, text, "")


COMMAND = console(kind="ssh", host="node2", user="root", command=["socat", "STDIO", "a b"])


def test_in_a_virtual_cluster_the_command_runs_here(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CONSOLE"] = COMMAND
    assert gnt("instance console --show-cmd web1").out == "socat STDIO 'a b'\n"
    ended = gnt("instance console web1")
    assert "Became" in ended.err
    assert "['socat', 'STDIO', 'a b']" in ended.err


def test_a_shell_line(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CONSOLE"] = {**COMMAND, "command": "xl console web1"}
    assert gnt("instance console --show-cmd web1").out == "/bin/sh -c 'xl console web1'\n"


def test_on_a_real_node_through_ssh(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.platform import machine, paths
    from ganeti.platform.real import RealMachine

    master.results["OP_INSTANCE_CONSOLE"] = COMMAND
    with machine.override(RealMachine(paths.current())):
        words = shlex.split(gnt("instance console --show-cmd web1").out)
    assert words[0] == "ssh"
    assert "-oHostKeyAlias=cluster.example.com" in words
    assert "-oStrictHostKeyChecking=yes" in words
    assert words[-4:] == ["-t", "-t", "root@node2", "socat STDIO 'a b'"]


def test_the_program_is_missing(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CONSOLE"] = {**COMMAND, "command": ["nosuch", "x"]}
    ended = gnt("instance console web1")
    assert ended.code == 1
    assert "cannot open the console of instance web1: nosuch: No such file" in ended.err
    assert "The command is: nosuch x" in ended.err


def test_a_kind_nobody_knows(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CONSOLE"] = console(kind="hologram")
    ended = gnt("instance console web1")
    assert ended.code == 1
    assert "unknown kind 'hologram'" in ended.err
