"""Proof 1: a mirrored instance from its creation to its end; no confirmed block is ever lost.

The guest is a process on the node that writes to the instance's device, as a guest would; the whole
guest is in ``test_guest.py``.
"""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster

NAME = "life"


@pytest.fixture(scope="module")
def written() -> dict[str, int]:
    """How many blocks are confirmed so far."""
    return {"last": 0}


def write(cluster: Cluster, written: dict[str, int], count: int) -> None:
    primary, _ = cluster.nodes_of(NAME)
    writer = drbd.Writer(
        cluster.machine_of(primary), cluster.device(NAME, primary), written["last"] + 1
    )
    writer.more(count)
    written["last"] = writer.stop()


def check(cluster: Cluster, written: dict[str, int]) -> None:
    primary, _ = cluster.nodes_of(NAME)
    drbd.check(cluster.machine_of(primary), cluster.device(NAME, primary), written["last"])


def test_create(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.add(NAME, "node1:node2")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    show = cluster.master.run(f"drbdsetup show {cluster.minor(NAME, 'node1')}")
    assert "cram-hmac-alg" in show and "ipv4 10.77.2.2:" in show
    write(cluster, written, 200)


def test_secret(cluster: Cluster) -> None:
    (instance,) = (one for one in cluster.config()["instances"].values() if one["name"] == NAME)
    disk = cluster.config()["disks"][instance["disks"][0]]
    assert len(disk["logical_id"][5]) == 40


def test_migrate(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.gnt("instance", "migrate", "-f", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    cluster.in_step(NAME)
    # Dual-primary only as long as needed.
    for name, writable in (("node2", True), ("node1", False)):
        machine, minor = cluster.lab[name], cluster.minor(NAME, name)
        assert "allow-two-primaries" not in machine.run(f"drbdsetup show {minor}")
        assert drbd.minors(machine)[minor].primary is writable
    check(cluster, written)
    write(cluster, written, 100)


def test_grow(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.gnt("instance", "grow-disk", NAME, "0", "64M")
    size = cluster.lab["node2"].run(f"blockdev --getsize64 {cluster.device(NAME, 'node2')}")
    assert int(size) == 128 << 20
    cluster.in_step(NAME)
    check(cluster, written)


def test_failover_after_the_primary_lost_power(cluster: Cluster, written: dict[str, int]) -> None:
    primary = cluster.lab["node2"]
    writer = drbd.Writer(primary, cluster.device(NAME, "node2"), written["last"] + 1)
    writer.more(200)
    primary.power_off()
    written["last"] = writer.ended()
    # As long as the node is not marked offline, its instance is not started elsewhere.
    assert "node2" in cluster.fails("instance", "failover", "-f", NAME)
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node2")
    # Nobody can compare the replicas any more. We know that they were connected until the end.
    text = cluster.fails("instance", "failover", "-f", NAME)
    assert "cannot be compared" in text and "--ignore-consistency" in text, text
    cluster.gnt("instance", "failover", "-f", "--ignore-consistency", NAME)
    assert cluster.nodes_of(NAME) == ("node1", "node2")
    check(cluster, written)
    write(cluster, written, 100)


def test_the_old_primary_comes_back_as_secondary(cluster: Cluster, written: dict[str, int]) -> None:
    machine = cluster.lab["node2"]
    cluster.switch_on("node2")
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    assert not drbd.minors(machine)[cluster.minor(NAME, "node2")].primary
    check(cluster, written)


def test_remove_leaves_nothing(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {}
        assert drbd.volumes(machine) == []
    assert cluster.config()["disks"] == {}
