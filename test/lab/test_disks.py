"""Proof 3: a disk dies, on the secondary and on the primary; repair restores redundancy.

The volume group of the secondary repairs itself, that of the primary is repaired by hand.
"""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.machines import Machine
from lab.waiting import wait_until

NAME = "disks"
SELF_REPAIR = "ganeti:lvm:self-repair"
MASTER_LOG = "/var/log/ganeti/master-daemon.log"


def minor(cluster: Cluster, machine: Machine) -> int:
    return cluster.minor(NAME, machine.name)


def complete(machine: Machine) -> bool:
    """Whether the volume group lacks nothing."""
    return machine.run("vgs --noheadings -o vg_attr xenvg").strip()[3] == "-"


def device(cluster: Cluster, machine: Machine) -> str:
    return cluster.device(NAME, machine.name)


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> None:
    """A running instance; its volumes are on the first disk of two."""
    cluster.add(NAME, "node2:node3")
    cluster.gnt("instance", "startup", NAME)
    for name in ("node2", "node3"):
        cluster.lab[name].run("pvcreate -q /dev/mapper/lab1 && vgextend -q xenvg /dev/mapper/lab1")


@pytest.mark.parametrize("broken", ["node3", "node2"])
def test_a_disk_dies(cluster: Cluster, broken: str) -> None:
    primary, machine = cluster.lab["node2"], cluster.lab[broken]
    if broken == "node3":
        cluster.gnt("cluster", "add-tags", SELF_REPAIR)
        cluster.gnt("cluster", "verify-disks")
    writer = drbd.Writer(primary, device(cluster, primary))
    writer.wait_for(100)
    machine.break_disk(0)
    # The guest notices nothing, and what it wrote is on the other node.
    writer.more(300)
    last = writer.stop()
    drbd.wait_for(machine, minor(cluster, machine), "Diskless/UpToDate$")
    problems = cluster.fails("cluster", "verify", "--error-codes")
    assert "EINSTANCEFAULTYDISK" in problems
    assert "volume group xenvg lacks physical volumes" in problems
    if broken == "node2":
        # The instance may leave the node whose disk died. Not while it runs: for a moment it would
        # have no data at all. And not come back before the repair.
        assert "lost its storage" in cluster.fails("instance", "migrate", "-f", NAME)
        cluster.gnt("instance", "failover", "-f", NAME)
        assert "no complete copy" in cluster.fails("instance", "failover", "-f", NAME)
        cluster.gnt("node", "repair-storage", broken, "lvm-vg", "xenvg")
    else:
        cluster.master.call("gnt-cluster verify-disks")
        wait_until(lambda: complete(machine), f"{machine.name} repaired its volume group", 300)
        log = cluster.master.run(f"grep lvm-self-repair {MASTER_LOG}")
        assert f"node={broken} group=xenvg volumes=" in log
        cluster.gnt("cluster", "remove-tags", SELF_REPAIR)
    assert complete(machine)
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.in_step(NAME)
    places = machine.run("lvs --noheadings -o devices xenvg")
    assert "lab1" in places and "lab0" not in places
    # The repaired node really has it. The next disk to die is again below the primary node2.
    for _home in range(2 if broken == "node3" else 1):
        cluster.gnt("instance", "migrate", "-f", NAME)
        home = cluster.lab[cluster.nodes_of(NAME)[0]]
        drbd.check(home, device(cluster, home), last)


def test_end(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for name in ("node2", "node3"):
        machine = cluster.lab[name]
        machine.mend_disk(0)
        # As after buying a new disk: the old records are worth nothing.
        machine.run(
            "wipefs -qa /dev/mapper/lab0; pvcreate -q -ff -y /dev/mapper/lab0 &&"
            " vgextend -q xenvg /dev/mapper/lab0 && vgreduce -q xenvg /dev/mapper/lab1 &&"
            " pvremove -q /dev/mapper/lab1"
        )
        assert drbd.volumes(machine) == []
