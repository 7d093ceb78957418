"""The automatic balance with real daemons: how many moves, when none, and with which reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, SteadyCluster

pytestmark = pytest.mark.long

MASTER, CROWDED, OTHER = (f"node{number}.example.com" for number in (1, 2, 3))
MOVES = 2


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """Three nodes, with all instances on one of them."""
    made = SteadyCluster(cluster_directory, 3, "--hypervisor", "fake")
    made.create.ok()
    try:
        names = [f"web{number}.example.com" for number in range(6)]
        for name in names:
            made.run(
                "gnt-instance", "add", "-t", "sharedfile", "-s", "1g", "--no-nics", "-o", "none",
                "--no-install", "--no-start", "--no-name-check", "-n", CROWDED, name,
            ).ok()  # fmt: skip
        made.run("gnt-instance", "startup", "--force-multiple", *names).ok()
        yield made
    finally:
        made.destroy()


def crowd(cluster: Cluster) -> int:
    """How many instances are on the node where all were created."""
    rows = cluster.rows("gnt-instance", "list", "-o", "name,pnode")
    return sum(node == CROWDED for _name, node in rows)


def reasons(cluster: Cluster) -> list[tuple[str, str]]:
    """Instance and reason of each job by which the watcher balances the cluster."""
    listed = cluster.run("gnt-job", "list", "-o", "ops", "--output=json").ok().stdout
    jobs: list[dict[str, Any]] = json.loads(listed)
    return [
        (op["instance_name"], text)
        for job in jobs
        for op in job["ops"]
        for source, text, _time in op.get("reason") or ()
        if source == "gnt:watcher:auto-balance"
    ]


def test_the_watcher_balances_when_it_may(cluster: Cluster) -> None:
    def watch() -> int:
        cluster.run("ganeti-watcher", "--no-verify-disks").ok()
        return len(reasons(cluster))

    assert crowd(cluster) == 6
    # It is off, and then the gain is too small.
    assert watch() == 0
    cluster.run("gnt-cluster", "modify", f"--auto-balance=moves={MOVES},gain=1000").ok()
    assert watch() == 0
    cluster.run("gnt-cluster", "modify", f"--auto-balance=moves={MOVES},gain=0.01").ok()
    # The watcher pauses, the queue is drained, a node is drained, a node is in maintenance.
    cluster.run("gnt-cluster", "watcher", "pause", "1h").ok()
    assert watch() == 0
    cluster.run("gnt-cluster", "watcher", "continue").ok()
    cluster.run("gnt-cluster", "queue", "drain").ok()
    assert watch() == 0
    cluster.run("gnt-cluster", "queue", "undrain").ok()
    cluster.run("gnt-node", "modify", "--drained=yes", "--force", OTHER).ok()
    assert watch() == 0
    cluster.run("gnt-node", "modify", "--drained=no", OTHER).ok()
    cluster.run("gnt-node", "maintenance", "start", OTHER).ok()
    assert watch() == 0
    cluster.run("gnt-node", "maintenance", "end", OTHER).ok()

    # Each run moves what shares no node, until the moves of the hour are used up.
    for _ in range(MOVES + 2):
        watch()
    found = reasons(cluster)
    assert len(found) == MOVES
    assert crowd(cluster) == 6 - MOVES
    for name, reason in found:
        assert reason.startswith(f"instance {name} goes to ")
        assert "the score of group default improves from" in reason
    states = {row[0] for row in cluster.rows("gnt-instance", "list", "-o", "status")}
    assert states == {"running"}

    # What is switched off stays as it is.
    cluster.run("gnt-cluster", "modify", "--auto-balance=no").ok()
    assert watch() == MOVES
