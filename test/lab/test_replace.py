"""Proof 1, continued: every way to get another replica, and to convert disks."""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster

NAME = "replace"
BLOCKS = 300


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> None:
    """A running instance on node1 and node2, with a few blocks."""
    cluster.add(NAME, "node1:node2")
    cluster.gnt("instance", "startup", NAME)
    writer = drbd.Writer(cluster.lab["node1"], cluster.device(NAME, "node1"))
    writer.wait_for(BLOCKS)
    writer.stop()


def test_on_the_secondary(cluster: Cluster) -> None:
    before = drbd.volumes(cluster.lab["node2"])
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.settled(NAME, blocks=BLOCKS)
    # The new volumes got the names of the old ones.
    assert drbd.volumes(cluster.lab["node2"]) == before


def test_on_the_primary(cluster: Cluster) -> None:
    cluster.gnt("instance", "replace-disks", "-p", NAME)
    cluster.settled(NAME, blocks=BLOCKS)


@pytest.mark.parametrize("early", [(), ("--early-release",)])
def test_on_a_new_secondary(cluster: Cluster, early: tuple[str, ...]) -> None:
    target = "node3" if cluster.nodes_of(NAME)[1] == "node2" else "node2"
    cluster.gnt("instance", "replace-disks", "-n", target, *early, NAME)
    assert cluster.nodes_of(NAME) == ("node1", target)
    cluster.settled(NAME, blocks=BLOCKS)


def test_to_plain_and_back(cluster: Cluster) -> None:
    cluster.gnt("instance", "shutdown", NAME)
    cluster.gnt("instance", "modify", "-t", "plain", NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {}
        assert len(drbd.volumes(machine)) == (1 if machine.name == "node1" else 0)
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(cluster.lab["node1"])
    drbd.check(cluster.lab["node1"], f"/dev/xenvg/{volume}", BLOCKS)
    cluster.gnt("instance", "deactivate-disks", NAME)
    cluster.gnt("instance", "modify", "-t", "drbd", "-n", "node3", NAME)
    cluster.gnt("instance", "startup", NAME)
    assert cluster.nodes_of(NAME) == ("node1", "node3")
    cluster.settled(NAME, blocks=BLOCKS)


def test_a_lost_volume_is_made_again(cluster: Cluster) -> None:
    cluster.gnt("instance", "shutdown", NAME)
    # While there is a copy, on whichever node, nothing is made again elsewhere.
    for name in ("node1", "node3"):
        assert f"exists on node {name}" in cluster.fails(
            "instance", "recreate-disks", "-n", "node2:node3", NAME
        )
        cluster.lab[name].run("lvremove -f xenvg")
    cluster.gnt("instance", "recreate-disks", "-n", "node2:node3", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node3")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)


def test_end(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {}, machine.name
        assert drbd.volumes(machine) == [], machine.name
