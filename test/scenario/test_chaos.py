"""Short chaos runs: a round with faults of several kinds, and the checks after it.

The long ones are ``make chaos`` and a part of ``make check-long`` (``doc/fault-injection.rst``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from harness import ROOT

from devel.chaos import checker, schedule
from devel.chaos.schedule import Fault, Round

pytestmark = pytest.mark.long

#: The options of a run, and the faults of its round.
RUNS: dict[str, tuple[tuple[str, ...], tuple[Fault, ...]]] = {
    "basic": (
        ("--basic",),
        (
            Fault(1.0, "split", 0, 8.0, "1-0 1-2 1-3 1-4"),
            Fault(2.0, "kill daemon", 0, 0.0, schedule.MASTERD),
            Fault(3.0, "disk full", 2, 5.0),
            Fault(9.0, "clock jumps", 0, 4.0, "7200"),
            Fault(10.0, "blackout", 0, 1.0),
        ),
    ),
    "machine": (
        ("--nodes", "5", "--jobs", "processes", "--configuration", "large", "--watchdogs", "no"),
        (
            Fault(1.0, "slow network", 1, 12.0, "slow 2"),
            Fault(2.0, "shortage", 0, 8.0, "memory"),
            Fault(3.0, "kill helpers", 0, 0.0, "spare"),
            Fault(4.0, "hanging watcher", 0, 8.0),
            Fault(6.0, "slow network", 2, 8.0, "lossy 0.4"),
            Fault(12.0, "shortage", 0, 8.0, "descriptors"),
        ),
    ),
    "two nodes": (
        ("--nodes", "2", "--watchdogs", "no"),
        (
            Fault(1.0, "witness away", 0, 6.0),
            Fault(9.0, "power cut", 0, 10.0),
            Fault(21.0, "split", 0, 2.0, "0-1"),
        ),
    ),
    "watchdogs": (
        ("--nodes", "5", "--watchdogs", "yes"),
        (Fault(1.0, "pause node", 2, 20.0), Fault(2.0, "maintenance", 1, 6.0)),
    ),
    "upgrade": (("--nodes", "5"), (Fault(1.0, "upgrade", 0, 1.0, "5 resume"),)),
    "join node": (("--nodes", "5"), (Fault(1.0, "join node", 0, 6.0),)),
    "hand edit": (
        ("--nodes", "5", "--configuration", "large"),
        (Fault(1.0, "hand edit", 0, 0.0, "restored"),),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_short_run(cluster_directory: Path, name: str) -> None:
    options, faults = RUNS[name]
    cluster_directory.parent.mkdir(exist_ok=True)
    kept = cluster_directory.with_name("schedule")
    kept.write_text(schedule.dump(1, [Round(1, faults)]))
    report = cluster_directory.with_name("report")
    done = subprocess.run(
        [
            sys.executable, "-m", "devel.chaos", "--replay", str(kept), "--report", str(report),
            "--directory", str(cluster_directory), *options,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(report.read_text())
    assert content["violations"] == []
    assert content["faults"] == Counter(fault.kind for fault in faults)
    assert content["operations"]["submit job"]["ok"] > 0
    assert content["files lost by power cuts"] >= 0
    for promise in checker.CHECKS:
        assert f"held    {promise}" in done.stdout
    assert bool(content["nodes reset by their watchdogs"]) == (name == "watchdogs")
    # Nothing is left of the cluster.
    assert not (cluster_directory / "vc").exists()
    lines = (cluster_directory / "guests.log").read_text().splitlines()
    assert any(line.endswith(" begun") for line in lines), "no guest has left a line"
