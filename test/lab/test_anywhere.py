"""Proof 1, continued: failover to a node which has no data of the instance yet."""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster

NAME = "anywhere"
BLOCKS = 300


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> None:
    """A running instance on node2 and node3, with a few blocks."""
    cluster.add(NAME, "node2:node3")
    cluster.gnt("instance", "startup", NAME)
    writer = drbd.Writer(cluster.lab["node2"], cluster.device(NAME, "node2"))
    writer.wait_for(BLOCKS)
    writer.stop()


def test_the_secondary_keeps_its_half(cluster: Cluster) -> None:
    cluster.gnt("instance", "failover", "-f", "-n", "node1", NAME)
    cluster.settled(NAME, "node1", "node3", blocks=BLOCKS)


def test_after_the_primary_died(cluster: Cluster) -> None:
    # Back to where the master is not, so that its power can be cut.
    cluster.gnt("instance", "failover", "-f", NAME)
    cluster.settled(NAME, "node3", "node1", blocks=BLOCKS)
    cluster.lab["node3"].power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node3")
    # Nobody can compare the replicas any more. We know that they were connected until the end.
    text = cluster.fails("instance", "failover", "-f", "-n", "node2", NAME)
    assert "cannot be compared" in text, text
    cluster.gnt("instance", "failover", "-f", "--ignore-consistency", "-n", "node2", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    cluster.in_step(NAME)
    drbd.check(cluster.lab["node2"], cluster.device(NAME, "node2"), BLOCKS)


def test_the_old_half_goes_when_its_node_is_back(cluster: Cluster) -> None:
    machine = cluster.lab["node3"]
    cluster.switch_on("node3")
    assert len(drbd.volumes(machine)) == 2
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.settled(NAME, "node2", "node1", blocks=BLOCKS)


def test_end(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {} and drbd.volumes(machine) == []
