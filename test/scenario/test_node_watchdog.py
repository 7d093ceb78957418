"""A node is cut off, its watchdog restarts it, and its instances start elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, SteadyCluster, made, wait_until

TOP = Path(__file__).parents[2]
MASTER, OTHER, DEAD = NODES = tuple(f"node{number}.example.com" for number in (1, 2, 3))
GUEST = "web.example.com"
TIMEOUT_S = 5


@pytest.fixture
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """Three nodes with watchdogs; the third one runs an instance."""
    with made(SteadyCluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        devices = [hardware(one, node) for node in NODES]
        try:
            one.install_allocator()
            one.run("gnt-cluster", "modify", "--default-iallocator=most-memory").ok()
            one.add_instance(GUEST, DEAD).ok()
            yield one
        finally:
            for device in devices:
                device.terminate()
                device.wait()


def hardware(cluster: Cluster, node: str) -> subprocess.Popen[str]:
    device = subprocess.Popen(
        (sys.executable, "-m", "devel.fake_watchdog", str(cluster.node_root(node))),
        cwd=TOP,
        env={**cluster.environment, "PYTHONPATH": str(TOP / "lib")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert device.stdout is not None and device.stdout.readline() == "ready\n"
    return device


def watchdog(cluster: Cluster, node: str) -> str:
    return str(cluster.node_fields(node, "watchdog")[0])


def arm(cluster: Cluster) -> None:
    cluster.run("gnt-cluster", "modify", f"--node-watchdog={TIMEOUT_S}s").ok()
    for node in NODES:
        wait_until(lambda node=node: watchdog(cluster, node) == "armed (5 s)", f"{node} is armed")


def report(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.node_info(DEAD)["auto_failover.record"]
    return found


@pytest.mark.long
def test_a_node_which_is_cut_off_restarts_and_its_instance_starts_elsewhere(
    cluster: Cluster,
) -> None:
    arm(cluster)
    cluster.start_instances(GUEST)
    cluster.run("gnt-cluster", "modify", "--auto-instance-failover=5s").ok()
    guest = cluster.path(DEAD, "var/run/ganeti/fake-hypervisor") / GUEST
    assert guest.exists()
    begin = time.monotonic()
    cluster.cut((MASTER, OTHER), (DEAD,))
    gone_at = None
    while cluster.places()[GUEST] != (MASTER, "running") and (
        cluster.places()[GUEST] != (OTHER, "running")
    ):
        if gone_at is None and not guest.exists():
            gone_at = time.monotonic() - begin
        assert time.monotonic() - begin < 600
    # It had ended before, or it would run twice.
    assert not guest.exists()
    took_s = time.monotonic() - begin
    print(f"\nit ran elsewhere {took_s:.1f} s after the cut; its guest had ended by {gone_at} s")
    assert report(cluster)["fenced"] and watchdog(cluster, DEAD) == "left behind"
    assert "left behind" in cluster.run("gnt-node", "info", DEAD).ok().stdout
    # It comes back: until the administrator takes it back, it promises nothing.
    cluster.cut()
    cluster.vcluster("start", str(cluster.directory)).ok()
    cluster.run("gnt-node", "modify", "--offline=no", DEAD).ok()
    wait_until(lambda: watchdog(cluster, DEAD) == "armed (5 s)", "it is armed again")


@pytest.mark.long
def test_the_daemons_end_only_when_they_are_released(cluster: Cluster) -> None:
    arm(cluster)
    promise = cluster.path(OTHER, "var/lib/ganeti/watchdog-promise")
    assert promise.exists()
    cluster.on(OTHER, "daemon-util", "stop", "ganeti-watchdogd").ok()
    assert not promise.exists()
    wait_until(
        lambda: "does not run" in watchdog(cluster, OTHER), "the master knows that it is not armed"
    )
    cluster.run("gnt-cluster", "modify", "--node-watchdog=no").ok()
    for node in NODES:
        wait_until(
            lambda node=node: not cluster.path(node, "var/lib/ganeti/watchdog-promise").exists(),
            f"{node} is released",
        )
    wait_until(lambda: watchdog(cluster, DEAD) == "-", "the record is removed")
