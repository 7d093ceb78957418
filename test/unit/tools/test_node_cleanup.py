"""``node-cleanup``: what goes, what stays, what is refused."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.platform import machine, paths
from ganeti.tools import node_cleanup


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    """A node with keys, a configuration, a job, a log, and disks."""
    made = paths.Paths(str(tmp_path))
    data = Path(made.data_dir)
    for path in (
        made.noded_cert_file, made.hmac_key, made.cluster_conf_file, made.witness_auth_file,
        f"{data}/ssconf_cluster_name", f"{data}/watcher.pause", f"{made.queue_dir}/job-1",
        f"{made.cluster_conf_history_dir}/1", f"{made.log_dir}/node-daemon.log",
        f"{tmp_path}/srv/ganeti/file-storage/web/disk0",
    ):  # fmt: skip
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("x")
    stopped = tmp_path / "stopped"
    util = tmp_path / "daemon-util"
    util.write_text(f"#!/bin/sh\necho $1 >>{stopped}\n")
    util.chmod(0o755)
    monkeypatch.setattr(paths, "daemon_util", lambda: str(util))
    with paths.override(made):
        yield made


def ssconf(here: paths.Paths, **values: str) -> None:
    for name, value in values.items():
        Path(here.data_dir, f"ssconf_{name}").write_text(f"{value}\n")


def left(here: paths.Paths) -> set[str]:
    return {
        str(path.relative_to(here.data_dir))
        for path in Path(here.data_dir).rglob("*")
        if path.is_file()
    }


def archives(here: paths.Paths) -> list[Path]:
    return list(Path(here.data_dir).parent.glob("ganeti.removed-*.tar.gz"))


def test_everything_goes_into_an_archive(
    here: paths.Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_cleanup.main(["--yes-do-it"]) == 0
    assert left(here) == set()
    assert (tmp_path / "stopped").read_text() == "stop-all\n"
    (archive,) = archives(here)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as content:
        names = {os.path.basename(name) for name in content.getnames()}
    assert {"server.pem", "config.data", "ssconf_cluster_name", "witness-auth"} <= names
    assert str(archive) in capsys.readouterr().out
    # Logs and disks stay.
    assert Path(here.log_dir, "node-daemon.log").exists()
    assert (tmp_path / "srv/ganeti/file-storage/web/disk0").exists()
    assert node_cleanup.main(["--yes-do-it"]) == 0
    assert "belongs to no cluster; nothing was changed" in capsys.readouterr().out


def test_without_a_backup(here: paths.Paths) -> None:
    assert node_cleanup.main(["--yes-do-it", "--no-backup", "-v"]) == 0
    assert left(here) == set() and archives(here) == []


def test_it_only_shows_what_it_would_do(
    here: paths.Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = left(here)
    assert node_cleanup.main([]) == 2
    assert left(here) == before and not (tmp_path / "stopped").exists()
    out, err = capsys.readouterr()
    assert here.hmac_key in out.split() and "nothing was changed" in err


def test_the_master_of_other_nodes_is_refused(
    here: paths.Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    own = machine.current().hostname()
    ssconf(here, master_node=own, node_list=f"{own}\nother.example.com")
    before = left(here)
    assert node_cleanup.main(["--yes-do-it"]) == 1
    assert "master of other.example.com" in capsys.readouterr().err
    assert left(here) == before
    # The last node of a cluster, and the node of another master, may go.
    ssconf(here, node_list=own)
    assert node_cleanup.main(["--yes-do-it"]) == 0


def test_a_running_master_daemon_is_refused(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_cleanup.daemonize, "read_pid", lambda _path: 1)
    assert node_cleanup.main(["--yes-do-it"]) == 1
    assert "gnt-cluster destroy" in capsys.readouterr().err
    assert Path(here.hmac_key).exists()


def test_daemons_which_do_not_stop(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "daemon_util", lambda: "/bin/false")
    assert node_cleanup.main(["--yes-do-it"]) == 1
    assert "nothing was removed" in capsys.readouterr().err
    assert Path(here.hmac_key).exists()
