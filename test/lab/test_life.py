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
    writer = drbd.Writer(cluster.machine_of(primary), "/dev/drbd0", written["last"] + 1)
    writer.more(count)
    written["last"] = writer.stop()


def check(cluster: Cluster, written: dict[str, int]) -> None:
    primary, _ = cluster.nodes_of(NAME)
    drbd.check(cluster.machine_of(primary), "/dev/drbd0", written["last"])


def in_step(cluster: Cluster) -> None:
    for name in cluster.nodes_of(NAME):
        drbd.wait_for(cluster.machine_of(name), 0, "^Connected UpToDate/UpToDate")


def test_create(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.add(NAME, "node1:node2")
    cluster.gnt("instance", "startup", NAME)
    in_step(cluster)
    show = cluster.master.run("drbdsetup show 0")
    assert 'cram-hmac-alg' in show and "10.77.2.2:11000" in show
    write(cluster, written, 200)


def test_two_minors_with_different_secrets_do_not_meet(cluster: Cluster) -> None:
    (disk,) = cluster.config()["disks"].values()
    assert len(disk["logical_id"][5]) == 40
    assert disk["logical_id"][3:5] == [0, 0]


def test_migrate(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.gnt("instance", "migrate", "-f", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    in_step(cluster)
    # Two writers only as long as needed.
    for machine in (cluster.lab["node1"], cluster.lab["node2"]):
        assert "allow-two-primaries" not in machine.run("drbdsetup show 0")
    assert drbd.minors(cluster.lab["node2"])[0].primary
    assert not drbd.minors(cluster.lab["node1"])[0].primary
    check(cluster, written)
    write(cluster, written, 100)


def test_grow(cluster: Cluster, written: dict[str, int]) -> None:
    cluster.gnt("instance", "grow-disk", NAME, "0", "64M")
    size = cluster.lab["node2"].run("blockdev --getsize64 /dev/drbd0")
    assert int(size) == 320 << 20
    in_step(cluster)
    check(cluster, written)


def test_failover_after_the_primary_lost_power(
    cluster: Cluster, written: dict[str, int]
) -> None:
    primary = cluster.lab["node2"]
    writer = drbd.Writer(primary, "/dev/drbd0", written["last"] + 1)
    writer.more(200)
    primary.power_off()
    written["last"] = writer.ended()
    # While nobody says that the node is dead, its instance is not started elsewhere.
    assert "node2" in cluster.fails("instance", "failover", "-f", NAME)
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node2")
    cluster.gnt("instance", "failover", "-f", NAME)
    assert cluster.nodes_of(NAME) == ("node1", "node2")
    check(cluster, written)
    write(cluster, written, 100)


def test_the_old_primary_comes_back_as_secondary(
    cluster: Cluster, written: dict[str, int]
) -> None:
    machine = cluster.lab["node2"]
    machine.start()
    machine.wait()
    cluster.gnt("node", "add", "--readd", "--secondary-ip", machine.secondary_ip,
                "--no-ssh-key-check", "node2")
    cluster.gnt("instance", "activate-disks", NAME)
    in_step(cluster)
    assert not drbd.minors(machine)[0].primary
    check(cluster, written)


def test_remove_leaves_nothing(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {}
        assert drbd.volumes(machine) == []
    config = cluster.config()
    assert config["disks"] == {}
    assert config["cluster"]["tcpudp_port_pool"] == [11000]
