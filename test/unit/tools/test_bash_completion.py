"""The completion is right for bash itself: a real shell completes against a small table."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ganeti.cli.command import Argument, Command, Program
from ganeti.cli.options import Option, flag
from ganeti.client import PROGRAMS
from ganeti.tools import bash_completion
from ganeti.utils import process

PROGRAM = Program(
    "gnt-thing",
    "A program.",
    [
        Command("move", lambda values, arguments: 0,
                [Argument("instance", 1, 1), Argument("node", 0, None)],
                [flag("-f", "--force", help=""),
                 Option("-n", "--node", kind="string", help="", completion="pnode:snode"),
                 Option("--mode", choices=("live", "non-live"), help="")],
                "Move"),
        Command("watch", lambda values, arguments: 0, [Argument("jobid", 1, 1)], [], "Watch"),
        Command("power", lambda values, arguments: 0,
                [Argument("suggest", 1, 1, choices=("on", "off"))], [], "Power"),
        Command("version", lambda values, arguments: 0, [], [], "Version"),
    ],
    aliases={"mv": "move"},
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "root/var/lib/ganeti"
    (data / "queue").mkdir(parents=True)
    (data / "ssconf_instance_list").write_text("web1.example.com\nweb2.example.com\ndb\n")
    (data / "ssconf_node_list").write_text("node1\nnode2\n")
    for name in ("job-7", "job-12", "serial"):
        (data / "queue" / name).write_text("")
    (tmp_path / "completion").write_text(bash_completion.generate([PROGRAM]))
    return tmp_path


def _complete(root: Path, *words: str) -> list[str]:
    script = f"""
        set -u
        source {shlex.quote(str(root / "completion"))}
        COMP_WORDS=({shlex.join(("gnt-thing", *words))})
        COMP_CWORD={len(words)}
        _ganeti_complete gnt-thing
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {"GANETI_ROOTDIR": str(root / "root")}
    done = process.run(["bash", "-c", script], timeout_s=120, env=env)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["m"], ["move", "mv"]),
        ([""], ["move", "watch", "power", "version", "mv", "--help", "--version"]),
        (["move", "web"], ["web1.example.com", "web2.example.com"]),
        (["mv", "d"], ["db"]),
        (["move", "db", "n"], ["node1", "node2"]),
        (["move", "db", "node1", "n"], ["node1", "node2"]),
        (["move", "-f", "d"], ["db"]),
        (["move", "-n", "node1", "d"], ["db"]),
        (["move", "--mode", "=", "live", "d"], ["db"]),
        (["move", "--fo"], ["--force"]),
        (["move", "--mode", ""], ["live", "non-live"]),
        (["move", "--mode", "="], ["live", "non-live"]),
        (["move", "--mode", "=", "n"], ["non-live"]),
        (["move", "-n", "node1:no"], ["node1", "node2"]),
        (["watch", ""], ["12", "7"]),
        (["watch", "7", ""], []),
        (["power", "o"], ["on", "off"]),
        (["version", ""], []),
        (["nonsense", ""], []),
    ],
)
def test_bash_completes(root: Path, words: list[str], offered: list[str]) -> None:
    assert _complete(root, *words) == offered


@pytest.mark.programs
def test_the_real_tables(tmp_path: Path) -> None:
    path = tmp_path / "completion"
    path.write_text(bash_completion.generate(bash_completion.load_programs()))
    check = f"source {path}; complete -p {' '.join(PROGRAMS)}"
    done = process.run(["bash", "-c", check], timeout_s=120)
    assert done.stdout.count("_ganeti_complete") == len(PROGRAMS)
    assert "startup" in path.read_text()
