"""Proof 3: a disk dies, on the secondary and on the primary; repair restores redundancy."""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.machines import Machine

NAME = "disks"


def minor(cluster: Cluster, machine: Machine) -> int:
    return cluster.minor(NAME, machine.name)


def device(cluster: Cluster, machine: Machine) -> str:
    return cluster.device(NAME, machine.name)


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> None:
    """A running instance; its volumes are on the first disk of two."""
    cluster.add(NAME, "node2:node3")
    cluster.gnt("instance", "startup", NAME)
    for name in ("node2", "node3"):
        cluster.lab[name].run("pvcreate -q /dev/mapper/lab1 && vgextend -q xenvg /dev/mapper/lab1")


@pytest.mark.parametrize(("broken", "mode"), [("node3", "-s"), ("node2", "-p")])
def test_a_disk_dies(cluster: Cluster, broken: str, mode: str) -> None:
    primary, machine = cluster.lab["node2"], cluster.lab[broken]
    writer = drbd.Writer(primary, device(cluster, primary))
    writer.wait_for(100)
    machine.break_disk(0)
    # The guest notices nothing, and what it wrote is on the other node.
    writer.more(300)
    last = writer.stop()
    drbd.wait_for(machine, minor(cluster, machine), "Diskless/UpToDate$")
    assert "EINSTANCEFAULTYDISK" in cluster.fails("cluster", "verify", "--error-codes")
    if mode == "-p":
        # The instance may leave the node whose disk died. Not while it runs: for a moment it would
        # have no data at all. And not come back before the repair.
        assert "lost its storage" in cluster.fails("instance", "migrate", "-f", NAME)
        cluster.gnt("instance", "failover", "-f", NAME)
        assert "no complete copy" in cluster.fails("instance", "failover", "-f", NAME)
        mode = "-s"
    cluster.gnt("node", "repair-storage", "--ignore-consistency", broken, "lvm-vg", "xenvg")
    assert machine.run("vgs --noheadings -o vg_attr xenvg").strip()[3] == "-"
    cluster.gnt("instance", "replace-disks", mode, NAME)
    cluster.in_step(NAME)
    places = machine.run("lvs --noheadings -o devices xenvg")
    assert "lab1" in places and "lab0" not in places
    # Both nodes really have it.
    for _there_and_back in range(2):
        home = cluster.lab[cluster.nodes_of(NAME)[0]]
        drbd.check(home, device(cluster, home), last)
        cluster.gnt("instance", "migrate", "-f", NAME)


def test_end(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for name in ("node2", "node3"):
        machine = cluster.lab[name]
        machine.mend_disk(0)
        # As after buying a new disk: the old records are worth nothing.
        machine.run("wipefs -qa /dev/mapper/lab0; pvcreate -q -ff -y /dev/mapper/lab0 &&"
                    " vgextend -q xenvg /dev/mapper/lab0 && vgreduce -q xenvg /dev/mapper/lab1 &&"
                    " pvremove -q /dev/mapper/lab1")
        assert drbd.volumes(machine) == []
