"""A simulated master, and a way to run a command against it through its real entry point."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import client as programs
from ganeti.cli import main, terminal
from ganeti.platform import paths
from ganeti.query import engine, resources


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Gnt = Callable[..., Ended]


def fields_of(what: str) -> list[dict[str, str]]:
    """The definitions of all fields of a kind of object, as the real master has them."""
    found: list[dict[str, str]] = engine.definitions(resources.lookup(what), None)["fields"]
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    """The root of node1, the master of an otherwise empty cluster."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "FORCE_LUXI_SOCKET", "GNT_INSTANCE_LIST", "GNT_NODE_LIST"):
        monkeypatch.delenv(name, raising=False)
    # Whoever runs the tests on a terminal is not asked.
    monkeypatch.setattr(terminal, "can_ask", lambda: False)
    here = paths.current()
    Path(here.data_dir).mkdir(parents=True)
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n", encoding="utf-8")
    (tmp_path / "hosts").write_text(
        "127.0.9.1 node1.example.com node1\n127.0.9.2 node2.example.com node2\n"
        "127.0.9.100 cluster.example.com\n",
        encoding="utf-8",
    )
    yield here


@pytest.fixture
def master(here: paths.Paths) -> Iterator[FakeMaster]:
    """A simulated master that answers on the usual socket."""
    with FakeMaster().serve(here) as serving:
        yield serving


@pytest.fixture
def gnt(capsys: pytest.CaptureFixture[str], here: paths.Paths) -> Gnt:
    """Run ``gnt("instance list -o name")``; further words are taken as they are."""

    def run(line: str, *more: str) -> Ended:
        program, *words = shlex.split(line)
        module = importlib.import_module(programs.PROGRAMS[f"gnt-{program}"])
        code = main.run(module.PROGRAM, [*words, *more])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run
