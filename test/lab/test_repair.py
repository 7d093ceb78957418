"""``harep`` on real DRBD: machines die, and it repairs a mirrored instance as tags allow it.

The instance is on node2 and node3. An administrator marks dead nodes as offline; ``harep`` is
called again and again, as cron does, and needs nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from ganeti.htools.repair import PREFIX
from lab import drbd, power
from lab.cluster import Cluster
from lab.waiting import wait_until

NAME = "repair"
BLOCKS = 200


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> Iterator[None]:
    """A running instance, whose disk confirms no write without its mirror."""
    power.install(cluster)
    # Long enough that the master does not do it: mirrors are protected nevertheless.
    cluster.gnt("cluster", "modify", "--auto-instance-failover=1h")
    cluster.add(NAME, "node2:node3", size="32M")
    cluster.in_step(NAME)
    cluster.gnt("instance", "startup", NAME)
    cluster.protect()
    yield
    cluster.remove(NAME)
    cluster.gnt("cluster", "modify", "--auto-instance-failover=no")
    cluster.gnt("cluster", "modify", "--node-parameters", "oob_program=")


def write(cluster: Cluster, first: int) -> int:
    """Let the guest write from a block on; returns the last block which was confirmed."""
    primary = cluster.nodes_of(NAME)[0]
    writer = drbd.Writer(cluster.lab[primary], cluster.device(NAME, primary), first)
    writer.more(BLOCKS)
    return writer.stop()


def lose(cluster: Cluster, node: str) -> None:
    """The machine of a node dies, and an administrator marks the node as offline."""
    power.cut(cluster.lab[node])
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", node)


def come_back(cluster: Cluster, node: str) -> None:
    """The machine of a node was repaired."""
    power.restore(cluster.lab[node])
    cluster.readd(node)


def harep(cluster: Cluster) -> dict[str, str]:
    """Call it once; returns what it says about the instance."""
    report = json.loads(cluster.master.run("harep --output=json --job-delay=1"))
    (found,) = (one for one in report["instances"] if one["name"] == NAME)
    return dict(found)


def repaired(cluster: Cluster) -> None:
    """Call it until it sees nothing to repair, and no job of a repair."""

    def healthy() -> bool:
        found = harep(cluster)
        assert found["state"] != "Failure", cluster.gnt("job", "list") + str(found)
        return found["state"] == "Healthy" and "needed" not in found

    wait_until(healthy, "harep has nothing to repair", 1800, pause_s=3.0)


def tags(cluster: Cluster) -> list[str]:
    """What is known about repairs; without times and numbers."""
    listed = cluster.gnt("instance", "list-tags", NAME).split()
    return sorted(":".join(tag.removeprefix(PREFIX).split(":")[:2]) for tag in listed)


def left(cluster: Cluster) -> list[str]:
    """The nodes which have volumes of earlier replicas, as the verification says."""
    text = cluster.master.call("gnt-cluster verify --error-codes").stdout
    return re.findall(r"ENODEORPHANLV:.*?\b(node\d)\b.*an interrupted operation", text)


def test_a_dead_secondary_is_replaced(cluster: Cluster) -> None:
    last = write(cluster, 1)
    lose(cluster, "node3")
    # Without a tag it only reports.
    assert harep(cluster)["needed"] == "fix-storage"
    assert cluster.nodes_of(NAME) == ("node2", "node3")
    cluster.gnt("cluster", "add-tags", f"{PREFIX}fix-storage")
    repaired(cluster)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    cluster.in_step(NAME)
    assert tags(cluster) == ["result:fix-storage"]
    assert drbd.lost(cluster.lab["node2"], cluster.device(NAME, "node2"), last) == 0
    come_back(cluster, "node3")


def test_a_dead_primary_is_left_and_its_mirror_made_again(cluster: Cluster) -> None:
    cluster.protect()
    last = write(cluster, 1)
    lose(cluster, "node2")
    # What the tag of the cluster allows is not sufficient, and that is noted once.
    for _ in range(2):
        assert harep(cluster)["state"] == "Needs repair"
        assert tags(cluster) == ["result:failover"]
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    cluster.gnt("instance", "add-tags", NAME, f"{PREFIX}failover")
    repaired(cluster)
    # First the failover, then another node for the lost half.
    assert cluster.nodes_of(NAME) == ("node1", "node3")
    assert cluster.fields("instance", NAME, "status") == ["running"]
    cluster.in_step(NAME)
    assert drbd.lost(cluster.lab["node1"], cluster.device(NAME, "node1"), last) == 0
    come_back(cluster, "node2")
    # The lost half is there; the next replacement removes it, as the verification says.
    assert left(cluster) == ["node2", "node2"]
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    assert left(cluster) == []
    cluster.settled(NAME, "node1", "node3", blocks=last)
