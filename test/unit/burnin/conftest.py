"""A run of ``burnin`` against a simulated cluster, through its real entry point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.burnin_cluster import NODES, Burnin, BurninCluster, Ended
from fakes.luxi_master import FakeMaster
from ganeti.burnin import cluster as questions
from ganeti.burnin import program
from ganeti.platform import paths


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.Paths:
    """The root of the master of a cluster."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", NODES[0])
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    here = paths.current()
    for directory in (here.data_dir, here.log_dir):
        Path(directory).mkdir(parents=True)
    Path(here.ssconf_file("master_node")).write_text(f"{NODES[0]}\n", encoding="utf-8")
    (tmp_path / "hosts").write_text("", encoding="utf-8")
    return here


@pytest.fixture
def cluster(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[BurninCluster]:
    """The simulated cluster; its query daemons give the right answers."""
    monkeypatch.setattr(questions, "ask_confd", lambda _cluster, _nodes: [])
    with FakeMaster().serve(here) as master:
        yield BurninCluster(master)


@pytest.fixture
def burnin(here: paths.Paths, capsys: pytest.CaptureFixture[str]) -> Burnin:
    """Run the program with these arguments."""

    def run(*argv: str) -> Ended:
        code = program.main(argv)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run
