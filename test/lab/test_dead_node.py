"""A dead node with a mirrored instance is evacuated by each way, on real DRBD.

The instance is on node2 and node3, in a volume group which all nodes have, so that its disks have a
storage unit. The machine of one of its nodes loses its power, and an administrator marks the node
as offline. Afterwards the instance runs on the other node, has a new replica on node1, and no
confirmed block is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab import drbd, power
from lab.cluster import Cluster

NAME = "left"
BLOCKS = 200


def _evacuate(cluster: Cluster, lost: str) -> None:
    """First the guest, then the replica. Both at once would need two further nodes."""
    cluster.gnt("node", "evacuate", "-f", "-p", "-I", "hail", lost)
    cluster.gnt("node", "evacuate", "-f", "-s", "-I", "hail", lost)


def _failover(cluster: Cluster, lost: str) -> None:
    cluster.gnt("node", "failover", "-f", lost)
    cluster.gnt("instance", "replace-disks", "-I", "hail", NAME)


def _hbal(cluster: Cluster, lost: str) -> None:
    assert lost in cluster.master.run("hbal -L -C -p --evac-mode 2>&1")
    cluster.master.run("hbal -L -X --evac-mode")


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> Iterator[None]:
    """A running instance, whose disk confirms no write without its mirror."""
    power.install(cluster)
    # Long enough that the master does not do it: mirrors are protected nevertheless.
    cluster.gnt("cluster", "modify", "--auto-instance-failover=1h")
    cluster.add(NAME, "node2:node3", size="32M")
    cluster.in_step(NAME)
    cluster.gnt("instance", "startup", NAME)
    yield
    cluster.gnt("instance", "remove", "-f", "--ignore-failures", "--shutdown-timeout=0", NAME)
    cluster.gnt("cluster", "modify", "--auto-instance-failover=no")
    cluster.gnt("cluster", "modify", "--node-parameters", "oob_program=")


@pytest.mark.parametrize(
    ("place", "way"),
    [(0, _evacuate), (1, _evacuate), (0, _hbal), (1, _hbal), (0, _failover)],
)
def test_a_dead_node_is_left(
    cluster: Cluster, place: int, way: Callable[[Cluster, str], None]
) -> None:
    """``place``: 0, the primary node dies; 1, the secondary one."""
    cluster.protect()
    nodes = cluster.nodes_of(NAME)
    lost, stays = nodes[place], nodes[1 - place]
    writer = drbd.Writer(cluster.lab[nodes[0]], cluster.device(NAME, nodes[0]), 1)
    writer.more(BLOCKS)
    last = writer.stop()
    power.cut(cluster.lab[lost])
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", lost)
    way(cluster, lost)
    assert cluster.nodes_of(NAME) == (stays, "node1")
    assert cluster.fields("instance", NAME, "status") == ["running"]
    cluster.in_step(NAME)
    assert drbd.lost(cluster.lab[stays], cluster.device(NAME, stays), last) == 0
    power.restore(cluster.lab[lost])
    cluster.readd(lost)
    # The volumes of the lost replica are removed first, and a new one is made there.
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.gnt("instance", "replace-disks", "-n", lost, NAME)
    cluster.settled(NAME, stays, lost, blocks=last)
