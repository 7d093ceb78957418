"""A short chaos run: a round with faults of several kinds, and the checks after it.

The long ones are ``make chaos`` and a part of ``make check-long`` (``doc/fault-injection.rst``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT

from devel.chaos import checker, schedule
from devel.chaos.schedule import Fault, Round

pytestmark = pytest.mark.long

ROUND = Round(
    1,
    (
        Fault(1.0, "split", 0, 8.0, "1-0 1-2 1-3 1-4"),
        Fault(2.0, "kill daemon", 0, 0.0, schedule.MASTERD),
        Fault(3.0, "disk full", 2, 5.0),
        Fault(9.0, "clock jumps", 0, 4.0, "7200"),
        Fault(10.0, "blackout", 0, 1.0),
    ),
)


def test_a_short_run(cluster_directory: Path) -> None:
    cluster_directory.parent.mkdir(exist_ok=True)
    kept = cluster_directory.with_name("schedule")
    kept.write_text(schedule.dump(1, [ROUND]))
    report = cluster_directory.with_name("report")
    done = subprocess.run(
        [
            sys.executable, "-m", "devel.chaos", "--replay", str(kept), "--report", str(report),
            "--directory", str(cluster_directory),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(report.read_text())
    assert content["violations"] == []
    assert content["faults"] == dict.fromkeys((fault.kind for fault in ROUND.faults), 1)
    assert content["operations"]["submit job"]["ok"] > 0
    assert content["files lost by power cuts"] >= 0
    for promise in checker.CHECKS:
        assert f"held    {promise}" in done.stdout
    # Nothing is left of the cluster.
    assert not (cluster_directory / "vc").exists()
    lines = (cluster_directory / "guests.log").read_text().splitlines()
    assert any(line.endswith(" begun") for line in lines), "no guest has left a line"
