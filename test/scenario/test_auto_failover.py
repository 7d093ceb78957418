"""A node dies, and nobody is there: its instances start elsewhere once it is certainly off."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, SteadyCluster, made, wait_until

MASTER, OTHER, DEAD = (f"node{number}.example.com" for number in (1, 2, 3))
#: Seconds without an answer; with ``AUTO_FAILOVER_S`` another number is measured.
LIMIT_S = int(os.environ.get("AUTO_FAILOVER_S", "5"))


@pytest.fixture
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """The third node runs three instances, one of which has disks there only."""
    names = ("web.example.com", "first.example.com", "db.example.com")
    with made(SteadyCluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        one.install_allocator()
        one.run("gnt-cluster", "modify", "--default-iallocator=most-memory").ok()
        for name in names[:2]:
            one.add_instance(name, DEAD).ok()
        one.add_instance(names[2], DEAD, "-s", "16M", template="file").ok()
        one.run("gnt-instance", "add-tags", "first.example.com", "ganeti:watcher:order:1").ok()
        one.start_instances(*names)
        yield one


def helper(cluster: Cluster) -> Path:
    """An out-of-band helper; it notes its commands, and switching off ends the guests."""
    commands, is_on = cluster.directory / "commands", cluster.directory / "on"
    guests = cluster.path(DEAD, "var/run/ganeti/fake-hypervisor")
    program = cluster.directory / "oob"
    program.write_text(
        f"""#!/bin/sh
        echo "$1 $2" >> {commands}
        case $1 in
        power-off) rm -f {is_on} {guests}/* ;;
        power-status) test -e {is_on} && state=true || state=false
            echo "{{\\"powered\\": $state}}" ;;
        esac
        """
    )
    program.chmod(0o755)
    is_on.touch()
    cluster.run("gnt-node", "modify", f"--node-parameters=oob_program={program}", DEAD).ok()
    return commands


def record(cluster: Cluster, node: str = DEAD) -> dict[str, Any]:
    found: dict[str, Any] = cluster.node_info(node)["auto_failover.record"]
    return found


def state(cluster: Cluster) -> str:
    (found,) = cluster.node_fields(DEAD, "auto_failover")
    return found


def job_times(cluster: Cluster, since: float) -> list[str]:
    """When the jobs after a moment were submitted, began and ended, for people."""
    fields = "summary,received_ts,start_ts,end_ts"
    jobs = json.loads(cluster.run("gnt-job", "list", "--output=json", "-o", fields).ok().stdout)
    found = []
    for job in jobs:
        times = [
            one and one[0] + one[1] / 1e6 - since
            for one in (job["received_ts"], job["start_ts"], job["end_ts"])
        ]
        if times[0] > 0:
            told = [f"{one:.1f}" if one is not None else "-" for one in times]
            found.append(
                f"  {', '.join(job['summary'])}: submitted {told[0]} s, begun {told[1]} s,"
                f" ended {told[2]} s after the power cut"
            )
    return found


def test_a_fenced_node_loses_its_instances(cluster: Cluster) -> None:
    commands = helper(cluster)
    cluster.run("gnt-cluster", "modify", f"--auto-instance-failover={LIMIT_S}s").ok()
    begin, cut_at = time.monotonic(), time.time()
    cluster.kill_whole(DEAD, "ganeti-noded")

    def moved() -> bool:
        now = cluster.places()
        return all(
            now[name][0] != DEAD and now[name][1] == "running"
            for name in ("web.example.com", "first.example.com")
        )

    wait_until(moved, "the instances run on other nodes")
    took_s = time.monotonic() - begin
    print(
        f"\nthe instances ran elsewhere {took_s:.1f} s after the power cut;"
        f" {LIMIT_S} s are the time without an answer"
    )
    print(*job_times(cluster, cut_at), sep="\n")
    # The helper is asked again before each failover.
    assert commands.read_text().splitlines()[:3] == [
        f"power-status {DEAD}", f"power-off {DEAD}", f"power-status {DEAD}",
    ]  # fmt: skip
    assert state(cluster) == "partly"
    assert record(cluster)["started"] == ["first.example.com", "web.example.com"]
    assert "on this node only" in record(cluster)["left"]["db.example.com"]
    shown = cluster.run("gnt-node", "info", DEAD).ok().stdout
    assert "left" in shown and "db.example.com: its disks (file)" in shown
    summaries = [row[0] for row in cluster.rows("gnt-job", "list", "-o", "summary")]
    failovers = [one for one in summaries if "INSTANCE_FAILOVER" in one]
    assert failovers == [
        "INSTANCE_FAILOVER(first.example.com)", "INSTANCE_FAILOVER(web.example.com)",
    ]  # fmt: skip
    # It comes back, and its own instance with it.
    (cluster.directory / "on").touch()
    cluster.on(DEAD, "ganeti-watcher").ok()
    cluster.run("gnt-node", "modify", "--node-powered=yes", DEAD).ok()
    cluster.run("gnt-node", "modify", "--offline=no", DEAD).ok()
    assert state(cluster) == "-"
    cluster.run("ganeti-watcher", "--no-verify-disks").ok()
    assert cluster.places()["db.example.com"] == (DEAD, "running")


@pytest.mark.long
def test_without_fencing_it_only_reports(cluster: Cluster) -> None:
    before = cluster.places()
    cluster.run("gnt-cluster", "modify", "--auto-instance-failover=5s").ok()
    cluster.kill_whole(DEAD, "ganeti-noded")
    wait_until(lambda: state(cluster) == "not fenced", "the report is there")
    assert "oob_program" in record(cluster)["reason"]
    assert {name: node for name, (node, _) in cluster.places().items()} == {
        name: node for name, (node, _) in before.items()
    }
    assert cluster.node_fields(DEAD, "offline") == ["N"]
