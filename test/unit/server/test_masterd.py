"""Who may be the master daemon here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths
from ganeti.server import daemon, masterd, mastering
from ganeti.utils import filelock

OPTIONS = argparse.Namespace(no_voting=False, yes_do_it=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    made = paths.Paths(str(tmp_path))
    os.makedirs(made.queue_dir)
    os.makedirs(made.livelock_dir)
    with paths.override(made):
        yield made


def test_no_cluster(here: paths.Paths) -> None:
    with pytest.raises(daemon.StartRefused, match="belongs to no cluster") as caught:
        masterd.check(OPTIONS)
    assert caught.value.exit_code == 5


def test_not_the_master(here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).write_text("node2.example.com\n")
    with pytest.raises(
        daemon.StartRefused, match="not the master; the master is node2.example.com"
    ) as caught:
        masterd.check(OPTIONS)
    assert caught.value.exit_code == 11


def test_the_master(here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).write_text("Node1.example.com\n")
    masterd.check(OPTIONS)


def test_no_voting_is_confirmed(here: paths.Paths, capsys: pytest.CaptureFixture[str]) -> None:
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n")
    masterd.check(argparse.Namespace(no_voting=True, yes_do_it=True))
    assert "without a vote" in capsys.readouterr().err
    with pytest.raises(daemon.StartRefused, match="not confirmed"):
        masterd.check(argparse.Namespace(no_voting=True, yes_do_it=False))


def test_two_on_one_queue(here: paths.Paths) -> None:
    with filelock.FileLock(here.queue_lock_file) as other:
        other.acquire()
        with pytest.raises(daemon.StartRefused, match="another master daemon"):
            mastering._lock_queue(here.queue_lock_file)
    mastering._lock_queue(here.queue_lock_file).close()


@pytest.mark.parametrize("content", [b"", b"{", None])
def test_an_empty_configuration_names_the_nodes_with_a_copy(
    here: paths.Paths, content: bytes | None
) -> None:
    if content is not None:
        Path(here.cluster_conf_file).write_bytes(content)
    names = Path(here.ssconf_file("master_candidates"))
    names.write_text("node1.example.com\nnode2.example.com\nnode3.example.com\n")
    with pytest.raises(
        daemon.StartRefused,
        match="have a copy: node2.example.com, node3.example.com. Run 'gnt-cluster master-f",
    ):
        mastering._read_members(here)
    names.write_text("node1.example.com\n")
    with pytest.raises(errors.ConfigurationError, match=here.cluster_conf_file):
        mastering._read_members(here)
