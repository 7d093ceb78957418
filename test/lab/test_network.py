"""Proof 2: the network fails; no stale replica is used, and no split brain is resolved.

The instance is on node2 and node3, so that the master can be asked throughout.
"""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.machines import SECONDARY, Machine

NAME = "network"


def minor(cluster: Cluster, machine: Machine) -> int:
    return cluster.minor(NAME, machine.name)


def device(cluster: Cluster, machine: Machine) -> str:
    return cluster.device(NAME, machine.name)


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> None:
    """A running instance."""
    cluster.add(NAME, "node2:node3")
    cluster.gnt("instance", "startup", NAME)


@pytest.fixture(scope="module")
def written() -> dict[str, int]:
    """How many blocks are confirmed so far."""
    return {"last": 0}


def test_cut_during_writes(cluster: Cluster, written: dict[str, int]) -> None:
    primary, secondary = cluster.lab["node2"], cluster.lab["node3"]
    writer = drbd.Writer(primary, device(cluster, primary))
    writer.wait_for(100)
    secondary.cable(SECONDARY, plugged=False)
    # Writing goes on without the peer, after the peer was given up.
    writer.more(300)
    written["last"] = writer.stop()
    drbd.wait_for(primary, minor(cluster, primary), "^(WFConn|Unconn|NetworkF).* UpToDate/DUnkn")
    problems = cluster.fails("cluster", "verify", "--error-codes")
    assert "EINSTANCEFAULTYDISK" in problems and NAME in problems


def test_stale_half_is_not_used_while_the_other_one_lives(cluster: Cluster) -> None:
    for command in ("failover", "migrate"):
        text = cluster.fails("instance", command, "-f", NAME)
        assert "may have missed writes" in text, text
    assert cluster.nodes_of(NAME) == ("node2", "node3")
    assert drbd.minors(cluster.lab["node2"])[cluster.minor(NAME, "node2")].primary


def test_stale_half_is_not_used_when_the_other_one_is_silent(
    cluster: Cluster, written: dict[str, int]
) -> None:
    primary, secondary = cluster.lab["node2"], cluster.lab["node3"]
    primary.power_off()
    text = cluster.fails("instance", "failover", "-f", NAME)
    assert "may have missed writes" in text, text
    # Both are down now; the stale one starts first.
    secondary.power_off()
    secondary.start()
    secondary.wait()
    cluster.wait_for_node("node3")
    cluster.fails("instance", "startup", NAME)
    found = drbd.minors(secondary)
    assert not any(state.primary for state in found.values())
    primary.start()
    primary.wait()
    cluster.wait_for_node("node2")
    secondary.cable(SECONDARY, plugged=True)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    drbd.check(primary, device(cluster, primary), written["last"])


def test_restart_in_the_other_order(cluster: Cluster, written: dict[str, int]) -> None:
    for name in ("node2", "node3"):
        cluster.lab[name].power_off()
    for name in ("node2", "node3"):
        cluster.lab[name].start()
        cluster.lab[name].wait()
        cluster.wait_for_node(name)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    drbd.check(cluster.lab["node2"], device(cluster, cluster.lab["node2"]), written["last"])


def test_split_brain_is_reported_and_never_resolved(
    cluster: Cluster, written: dict[str, int]
) -> None:
    primary, other = cluster.lab["node2"], cluster.lab["node3"]
    other.cable(SECONDARY, plugged=False)
    drbd.wait_for(primary, minor(cluster, primary), "DUnknown$")
    drbd.wait_for(other, minor(cluster, other), "DUnknown$")
    # Only an administrator can do this: make the other replica writable by force.
    other.run(f"drbdsetup primary {minor(cluster, other)} --force")
    for machine in (primary, other):
        writer = drbd.Writer(machine, device(cluster, machine), written["last"] + 1)
        writer.more(50)
        writer.stop()
    other.run(f"drbdsetup secondary {minor(cluster, other)}")
    other.cable(SECONDARY, plugged=True)
    for machine in (primary, other):
        drbd.wait_for(machine, minor(cluster, machine), "^(StandAlone|WFConnection)")
    drbd.wait_for(primary, minor(cluster, primary), "^StandAlone UpToDate/DUnknown")
    problems = cluster.fails("cluster", "verify", "--error-codes")
    assert "EINSTANCEFAULTYDISK" in problems
    # Trying again resolves nothing, and nobody loses a block.
    cluster.master.call(f"gnt-instance activate-disks {NAME}")
    drbd.wait_for(primary, minor(cluster, primary), "^(StandAlone|WFConnection) UpToDate/DUnknown")
    drbd.check(primary, device(cluster, primary), written["last"] + 50)
    assert "may have missed writes" in cluster.fails("instance", "failover", "-f", NAME)


def test_a_person_resolves_it(cluster: Cluster, written: dict[str, int]) -> None:
    """Resolve a split brain by replacing the replica which is to be discarded."""
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.in_step(NAME)
    drbd.check(cluster.lab["node2"], device(cluster, cluster.lab["node2"]), written["last"] + 50)
    cluster.remove(NAME)
