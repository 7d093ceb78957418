"""Persistent snapshots on real volumes and real mirrors.

LVM itself says what is checked here: that a snapshot holds all that was confirmed before it, is
good after every block of its disk was overwritten, goes when its volume goes, and that the volume
cannot grow meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import Machine

NAME = "snapshots"
BLOCKS = 300
MIB = 64


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
        cluster.remove(name)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {}, machine.name
        assert drbd.volumes(machine) == [], machine.name


def listed(cluster: Cluster) -> list[tuple[str, str, int, bool]]:
    """Name, node, size in MiB, and whether it is good."""
    rows = json.loads(cluster.gnt("instance", "list-snapshots", "-o", "json", NAME))
    assert all(row["ctime"] is not None for row in rows)
    return [(row["snapshot"], row["node"], row["size"], row["usable"]) for row in rows]


def snapshot(machine: Machine, name: str) -> str:
    """The device of the only snapshot of this name."""
    (volume,) = (one for one in drbd.volumes(machine) if one.endswith(f".snap.{name}"))
    return f"/dev/{GROUP}/{volume}"


def write_some(cluster: Cluster, node: str, device: str) -> None:
    writer = drbd.Writer(cluster.lab[node], device)
    writer.wait_for(BLOCKS)
    writer.stop()


def overwrite(machine: Machine, device: str) -> None:
    """Every block of the device becomes another."""
    machine.run(f"dd if=/dev/urandom of={device} bs=1M count={MIB} oflag=direct")


def no_orphans(cluster: Cluster) -> None:
    assert "ENODEORPHANLV" not in cluster.master.call("gnt-cluster verify --error-codes").stdout


def test_a_mirror(cluster: Cluster) -> None:
    node1, node2 = cluster.lab["node1"], cluster.lab["node2"]
    cluster.add(NAME, "node1:node2", size=f"{MIB}M")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    device = cluster.device(NAME, "node1")
    writer = drbd.Writer(node1, device)
    writer.wait_for(BLOCKS)
    before = writer.confirmed
    cluster.gnt("instance", "snapshot", "--snapshot-name", "live", NAME)
    writer.stop()
    # All that was confirmed before is in it, though the writer went on.
    drbd.check(node1, snapshot(node1, "live"), before)
    assert listed(cluster) == [("live", "node1", MIB, True)]
    no_orphans(cluster)

    assert "LVM does not grow a volume" in cluster.fails("instance", "grow-disk", NAME, "0", "64M")
    assert "would destroy snapshots" in cluster.fails("instance", "replace-disks", "-p", NAME)
    assert "would destroy snapshots" in cluster.fails(
        "instance", "failover", "-f", "-n", "node3", NAME
    )
    # The other replica has none.
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.in_step(NAME)

    overwrite(node1, device)
    cluster.gnt("instance", "shutdown", NAME)
    assert listed(cluster) == [("live", "node1", MIB, True)]
    cluster.gnt("instance", "restore-snapshot", "-f", NAME, "live")
    assert drbd.minors(node1) == {} and drbd.minors(node2) == {}
    for node in ("node1", "node2"):
        # Both replicas have it, and it can be used again.
        cluster.gnt("instance", "startup", NAME)
        cluster.in_step(NAME)
        drbd.check(cluster.lab[node], cluster.device(NAME, node), before)
        assert listed(cluster) == [("live", "node1", MIB, True)]
        if node == "node1":
            cluster.gnt("instance", "failover", "-f", NAME)
    cluster.gnt("instance", "shutdown", NAME)
    assert "gnt-instance failover" in cluster.fails(
        "instance", "restore-snapshot", "-f", NAME, "live"
    )
    assert "would destroy snapshots" in cluster.fails(
        "instance", "replace-disks", "-n", "node3", NAME
    )
    assert "would destroy snapshots" in cluster.fails("instance", "modify", "-t", "plain", NAME)
    cluster.gnt("instance", "failover", "-f", NAME)
    # The volumes stay below a mirror and without one, and so do their snapshots.
    cluster.gnt("instance", "modify", "-t", "plain", NAME)
    assert listed(cluster) == [("live", "node1", MIB, True)]
    cluster.gnt("instance", "modify", "-t", "drbd", "-n", "node2", NAME)
    assert listed(cluster) == [("live", "node1", MIB, True)]
    cluster.gnt("instance", "remove-snapshot", NAME, "live")
    assert listed(cluster) == [] and len(drbd.volumes(node1)) == 2
    cluster.gnt("instance", "grow-disk", NAME, "0", "64M")


def test_a_stopped_mirror_and_one_that_is_stopped_meanwhile(cluster: Cluster) -> None:
    node1 = cluster.lab["node1"]
    cluster.add(NAME, "node1:node2", size=f"{MIB}M")
    cluster.gnt("instance", "snapshot", "--snapshot-name", "down", NAME)
    assert drbd.minors(node1) == {}
    cluster.gnt("instance", "startup", NAME)
    cluster.gnt(
        "instance",
        "snapshot",
        "--shutdown",
        "--shutdown-timeout=0",
        "--snapshot-name",
        "between",
        NAME,
    )
    assert cluster.fields("instance", NAME, "status") == ["running"]
    assert [name for name, *_rest in listed(cluster)] == ["between", "down"]
    # Several of one volume, all of which survive that it is written anew.
    overwrite(node1, cluster.device(NAME, "node1"))
    assert [usable for *_rest, usable in listed(cluster)] == [True, True]
    no_orphans(cluster)
    # What goes with the instance is looked for when the test has ended.


def test_a_half_without_all_data(cluster: Cluster) -> None:
    """A snapshot of it would have some of the old and some of the new."""
    node1 = cluster.lab["node1"]
    cluster.add(NAME, "node1:node2", size=f"{MIB}M")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    node1.run(f"drbdsetup detach {cluster.minor(NAME, 'node1')}")
    assert "has an incomplete replica" in cluster.fails("instance", "snapshot", NAME)
    assert len(drbd.volumes(node1)) == 2


@pytest.mark.parametrize("size", [MIB, MIB + 1])
def test_a_volume(cluster: Cluster, size: int) -> None:
    """Also one which LVM rounds up to whole extents."""
    machine = cluster.lab["node2"]
    cluster.add(NAME, "node2", template="plain", size=f"{size}M")
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(machine)
    device = f"/dev/{GROUP}/{volume}"
    write_some(cluster, "node2", device)
    whole = machine.run(f"sha256sum <{device}")
    cluster.gnt("instance", "snapshot", "--snapshot-name", "a", NAME)
    machine.run(f"dd if=/dev/urandom of={device} bs=1M oflag=direct || true")
    assert machine.run(f"sha256sum <{device}") != whole
    assert machine.run(f"sha256sum <{snapshot(machine, 'a')}") == whole
    cluster.gnt("instance", "deactivate-disks", NAME)
    for _ in range(2):
        cluster.gnt("instance", "restore-snapshot", "-f", NAME, "a")
        assert machine.run(f"sha256sum <{device}") == whole
        assert machine.run(f"sha256sum <{snapshot(machine, 'a')}") == whole
    drbd.check(machine, device, BLOCKS)
    assert "would destroy snapshots" in cluster.fails("instance", "move", "-f", "-n", "node3", NAME)
    assert "is a snapshot of a disk" in cluster.fails(
        "instance",
        "add",
        "-t",
        "plain",
        "--disk",
        f"0:adopt={volume}.snap.a",
        "-n",
        "node2",
        "--no-nics",
        "--no-install",
        "-o",
        "tiny",
        "--no-name-check",
        "--no-ip-check",
        "other",
    )


def test_a_mirror_of_no_whole_extents(cluster: Cluster) -> None:
    """Its snapshot is a little larger than itself."""
    node1 = cluster.lab["node1"]
    cluster.add(NAME, "node1:node2", size=f"{MIB + 1}M")
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    device = cluster.device(NAME, "node1")
    write_some(cluster, "node1", device)
    whole = node1.run(f"sha256sum <{device}")
    cluster.gnt("instance", "snapshot", "--snapshot-name", "a", NAME)
    overwrite(node1, device)
    cluster.gnt("instance", "deactivate-disks", NAME)
    cluster.gnt("instance", "restore-snapshot", "-f", NAME, "a")
    cluster.gnt("instance", "activate-disks", NAME)
    assert node1.run(f"sha256sum <{cluster.device(NAME, 'node1')}") == whole


def test_no_room(cluster: Cluster) -> None:
    """Counted before anything is made."""
    machine = cluster.lab["node2"]
    free = float(machine.run(f"vgs --noheadings --nosuffix --units m -o vg_free {GROUP}"))
    cluster.add(NAME, "node2", template="plain", size=f"{int(free * 0.6)}M")
    assert "not enough space on node node2" in cluster.fails("instance", "snapshot", NAME)
    assert len(drbd.volumes(machine)) == 1


def test_one_which_runs_full_is_told_and_hinders_nobody(cluster: Cluster) -> None:
    """Ours cannot; but one that an administrator made under such a name."""
    machine = cluster.lab["node2"]
    cluster.add(NAME, "node2", template="plain", size=f"{MIB}M")
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(machine)
    machine.run(f"lvcreate -q -s -L 8M -n {volume}.snap.small {GROUP}/{volume}")
    assert [usable for *_rest, usable in listed(cluster)] == [True]
    overwrite(machine, f"/dev/{GROUP}/{volume}")
    assert [usable for *_rest, usable in listed(cluster)] == [False]
    cluster.gnt("instance", "deactivate-disks", NAME)
    assert "lost its content" in cluster.fails("instance", "restore-snapshot", "-f", NAME, "small")
    cluster.gnt("instance", "move", "-f", "-n", "node3", NAME)
    assert listed(cluster) == [] and drbd.volumes(machine) == []
