"""``burnin`` with real daemons: all steps, an interrupt, and guests that answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, ROOT, Cluster, wait_until

HERE = Path(__file__).resolve().parent
NAMES = ("burn1.example.com", "burn2.example.com")
#: What a virtual cluster cannot do with shared files.
SKIPPED = {"replace1", "replace2", "change-group", "move", "rename"}


def burn(cluster: Cluster, *words: str) -> dict[str, Any]:
    """Run the program on small instances; returns its report."""
    cluster.make_os("noop")
    done = cluster.run(
        "burnin", "-o", "noop", "--disk-size", "16m", "--disk-growth", "16m", "-p",
        "--report", "-", *words,
    ).ok()  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["result"] == "done" and report["left"] == []
    return report


def skipped(report: dict[str, Any]) -> set[str]:
    return {step["name"] for step in report["steps"] if step["result"] == "skipped"}


def test_all_steps_but_the_export(cluster: Cluster) -> None:
    report = burn(cluster, "-t", "sharedfile", "--no-importexport", *NAMES)
    assert skipped(report) == SKIPPED
    assert cluster.rows("gnt-instance", "list", "-o", "name") == []
    log = cluster.path(cluster.master, "var/log/ganeti/burnin.log").read_text()
    assert "INFO ended: done" in log


@pytest.mark.long
def test_disks_on_one_node(cluster: Cluster) -> None:
    words = ("-t", "file", "--rename", "burn9.example.com", NAMES[0])
    report = burn(cluster, *words)
    assert {"failover", "migrate", "evacuate"} <= skipped(report)
    done = {step["name"] for step in report["steps"] if step["result"] == "done"}
    assert {"move", "importexport", "rename"} <= done
    assert cluster.rows("gnt-backup", "list") == []
    for node in cluster.node_names:
        left = cluster.path(node, "srv/ganeti/file-storage").glob("*")
        assert [path for path in left if path.name.startswith("burn")] == []


def test_an_interrupt_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    cluster.make_os("waits", f"touch {begun}; while [ ! -e {go} ]; do sleep 0.1; done")
    running = cluster.start(
        "burnin", "-o", "waits", "-t", "sharedfile", "--disk-size", "16m", *NAMES
    )
    wait_until(begun.exists, "the first instance is being installed")
    # The program is the process itself: the starters replace themselves.
    os.kill(running.pid, signal.SIGINT)
    go.touch()
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, out + err
    assert "Step 'create' was interrupted" in out
    assert cluster.rows("gnt-instance", "list", "-o", "name") == []


@pytest.mark.long
def test_guests_answer_with_their_names(image: Path) -> None:
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        pytest.skip("networks need root, /dev/net/tun and namespaces of their own")
    with tempfile.TemporaryDirectory(prefix="gnt-") as directory:
        done = subprocess.run(
            ["unshare", "--net", "--mount", sys.executable, HERE / "burnin_lab.py", directory,
             image / "busybox"],
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
            env={**Cluster.outside(), "PYTHONPATH": f"{ROOT}/lib:{ROOT}/test:{HERE}"},
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 6 steps were carried out" in done.stdout
