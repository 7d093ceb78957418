"""Logical volumes on real disks: their placement, operations on them, and lists.

node2 has two physical volumes in the cluster's group, and a second group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import Machine

OTHER = "othervg"
NAME = "volumes"


@pytest.fixture(scope="module", autouse=True)
def disks(cluster: Cluster) -> Iterator[None]:
    """Add free space on node2, and an OS definition which only copies blocks."""
    machine = cluster.lab["node2"]
    machine.run(
        f"pvcreate -q /dev/mapper/lab1 && vgextend -q {GROUP} /dev/mapper/lab1 &&"
        " truncate -s 1G /root/other && losetup /dev/loop7 /root/other &&"
        f" pvcreate -q /dev/loop7 && vgcreate -q {OTHER} /dev/loop7"
    )
    cluster.install_blocks_os()
    yield
    machine.run(
        f"vgreduce -q {GROUP} /dev/mapper/lab1 && pvremove -q /dev/mapper/lab1 &&"
        f" vgremove -q {OTHER} && pvremove -q /dev/loop7 && losetup -d /dev/loop7"
    )


@pytest.fixture
def node2(cluster: Cluster) -> Machine:
    return cluster.lab["node2"]


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.lab["node2"].call(f"pkill -9 -f '^python3 {drbd.WRITER}'")
    for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
        cluster.remove(name)
    assert drbd.volumes(cluster.lab["node2"]) == []
    assert cluster.lab["node2"].run(f"lvs --noheadings {OTHER}").strip() == ""


def add(
    cluster: Cluster,
    *words: str,
    name: str = NAME,
    disks: tuple[str, ...] = ("size=64M",),
    template: str = "plain",
) -> None:
    """An instance with these disks on node2, not started."""
    given = [word for number, disk in enumerate(disks) for word in ("--disk", f"{number}:{disk}")]
    nodes = "node2" if template == "plain" else "node2:node3"
    cluster.gnt(
        "instance",
        "add",
        "-t",
        template,
        *given,
        "-n",
        nodes,
        "-B",
        "memory=64",
        "--no-nics",
        "--no-install",
        "-o",
        "blocks",
        "--no-name-check",
        "--no-ip-check",
        *words,
        name,
    )


def places(machine: Machine, group: str = GROUP) -> dict[str, set[str]]:
    """Logical volume -> physical volumes it is on."""
    found: dict[str, set[str]] = {}
    for line in machine.run(f"lvs --noheadings --separator '|' -o lv_name,devices {group}").split():
        name, _, devices = line.partition("|")
        found.setdefault(name, set()).update(part.partition("(")[0] for part in devices.split(","))
    return found


def test_volumes_of_an_instance_are_kept_together(cluster: Cluster, node2: Machine) -> None:
    add(cluster, disks=("size=64M",) * 3)
    first = places(node2)
    assert len(first) == 3 and len(set.union(*first.values())) == 1, first
    # The next instance goes where more is free.
    add(cluster, disks=("size=64M",) * 2, name="second")
    second = {name: where for name, where in places(node2).items() if name not in first}
    assert len(second) == 2 and len(set.union(*second.values())) == 1, second
    assert set.union(*first.values()) != set.union(*second.values())


def test_a_closed_physical_volume_gets_nothing(cluster: Cluster, node2: Machine) -> None:
    def allocatable() -> list[str]:
        return cluster.gnt(
            "node",
            "list-storage",
            "-t",
            "lvm-pv",
            "--no-headers",
            "--separator=|",
            "-o",
            "name,allocatable",
            "node2",
        ).split()

    assert "/dev/mapper/lab0|Y" in allocatable()
    cluster.gnt("node", "modify-storage", "--allocatable=no", "node2", "lvm-pv", "/dev/mapper/lab0")
    assert "/dev/mapper/lab0|N" in allocatable()
    for number in range(3):
        add(cluster, name=f"closed{number}")
    assert set.union(*places(node2).values()) == {"/dev/mapper/lab1"}
    cluster.gnt("node", "modify-storage", "--allocatable=no", "node2", "lvm-pv", "/dev/mapper/lab1")
    text = cluster.fails(
        "instance",
        "add",
        "-t",
        "plain",
        "--disk",
        "0:size=64M",
        "-n",
        "node2",
        "--no-nics",
        "--no-install",
        "-o",
        "blocks",
        "--no-name-check",
        "none",
    )
    assert "no physical volume which accepts new volumes" in text, text
    for disk in ("lab0", "lab1"):
        cluster.gnt(
            "node", "modify-storage", "--allocatable=yes", "node2", "lvm-pv", f"/dev/mapper/{disk}"
        )


def test_stripes(cluster: Cluster, node2: Machine) -> None:
    cluster.gnt("cluster", "modify", "-D", "plain:stripes=2")
    try:
        add(cluster)
        cluster.gnt("instance", "grow-disk", NAME, "0", "64M")
    finally:
        cluster.gnt("cluster", "modify", "-D", "plain:stripes=1")
    size, stripes = node2.run(
        f"lvs --noheadings --units m --nosuffix -o lv_size,stripes {GROUP}"
    ).split()[:2]
    assert (float(size), stripes) == (128.0, "2")
    (where,) = places(node2).values()
    assert where == {"/dev/mapper/lab0", "/dev/mapper/lab1"}


def test_another_volume_group(cluster: Cluster, node2: Machine) -> None:
    add(cluster, disks=("size=64M", f"size=32M,vg={OTHER}"))
    assert len(places(node2)) == 1 and len(places(node2, OTHER)) == 1
    listed = cluster.gnt(
        "node", "volumes", "--no-headers", "--separator=|", "-o", "vg,instance,size", "node2"
    ).split()
    assert sorted(listed) == [f"{OTHER}|{NAME}|32", f"{GROUP}|{NAME}|64"]
    units = cluster.gnt(
        "node",
        "list-storage",
        "-t",
        "lvm-vg",
        "--no-headers",
        "--separator=|",
        "-o",
        "name,used",
        "node2",
    ).split()
    assert sorted(units) == [f"{OTHER}|32", f"{GROUP}|64"]
    assert "cannot be renamed into another" not in cluster.gnt("cluster", "verify-disks")


def test_a_running_guest_is_exported(cluster: Cluster, node2: Machine) -> None:
    """The copy is that of one moment, and the snapshot is gone afterwards."""
    add(cluster)
    cluster.gnt("instance", "startup", NAME)
    (volume,) = drbd.volumes(node2)
    writer = drbd.Writer(node2, f"/dev/{GROUP}/{volume}")
    writer.wait_for(200)
    before = writer.confirmed
    cluster.gnt("backup", "export", "--noshutdown", "-n", "node3", NAME)
    assert drbd.volumes(node2) == [volume]
    writer.stop()
    cluster.remove(NAME)
    cluster.gnt(
        "backup",
        "import",
        "-t",
        "plain",
        "--src-node=node3",
        "-n",
        "node2",
        "--no-nics",
        "--no-name-check",
        "--no-ip-check",
        NAME,
    )
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(node2)
    drbd.check(node2, f"/dev/{GROUP}/{volume}", before)
    cluster.gnt("backup", "remove", NAME)


def test_wiping(cluster: Cluster, node2: Machine) -> None:
    def content() -> int:
        """How many bytes of the only volume are not zero."""
        (volume,) = drbd.volumes(node2)
        return int(node2.run(f"tr -d '\\000' </dev/{GROUP}/{volume} | wc -c"))

    add(cluster, disks=("size=32M",))
    (volume,) = drbd.volumes(node2)
    node2.run(
        f"head -c 32M /dev/urandom | dd of=/dev/{GROUP}/{volume} bs=1M oflag=direct iflag=fullblock"
    )
    (before,) = places(node2).values()
    cluster.remove(NAME)
    add(cluster, disks=("size=32M",))
    # The former owner's data are there: without this the test would prove nothing.
    assert list(places(node2).values()) == [before] and content() > 1 << 20
    cluster.remove(NAME)
    cluster.gnt("cluster", "modify", "--prealloc-wipe-disks=yes")
    try:
        add(cluster, disks=("size=32M",))
    finally:
        cluster.gnt("cluster", "modify", "--prealloc-wipe-disks=no")
    assert list(places(node2).values()) == [before] and content() == 0


def test_what_is_inactive_is_activated(cluster: Cluster, node2: Machine) -> None:
    add(cluster)
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(node2)
    node2.run(f"lvchange -an {GROUP}/{volume}")
    assert NAME in cluster.gnt("cluster", "verify-disks")
    assert node2.run(f"lvs --noheadings -o lv_active {GROUP}/{volume}").strip() == "active"
    assert NAME not in cluster.gnt("cluster", "verify-disks")
    node2.run(f"lvremove -f {GROUP}/{volume}")
    done = cluster.master.call("gnt-cluster verify-disks")
    assert f"{GROUP}/{volume}" in done.stdout + done.stderr


def test_recorded_sizes(cluster: Cluster, node2: Machine) -> None:
    add(cluster)
    (volume,) = drbd.volumes(node2)
    node2.run(f"lvextend -q -L +64m {GROUP}/{volume}")
    assert NAME in cluster.gnt("cluster", "repair-disk-sizes")
    assert cluster.fields("instance", NAME, "disk.size/0") == ["128"]


def test_exclusive_storage(cluster: Cluster, node2: Machine) -> None:
    cluster.gnt("group", "modify", "--node-parameters", "exclusive_storage=true", "default")
    try:
        add(cluster, disks=("size=64M,spindles=1",))
        add(cluster, disks=("size=64M,spindles=1",), name="second")
        found = places(node2)
        assert len(found) == 2 and len(set.union(*found.values())) == 2, found
        text = cluster.fails(
            "instance",
            "add",
            "-t",
            "plain",
            "--disk",
            "0:size=64M,spindles=1",
            "-n",
            "node2",
            "--no-nics",
            "--no-install",
            "-o",
            "blocks",
            "--no-name-check",
            "third",
        )
        assert "0 MiB free" in text, text
    finally:
        for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
            cluster.remove(name)
        cluster.gnt("group", "modify", "--node-parameters", "exclusive_storage=default", "default")


def test_what_an_allocator_is_told(cluster: Cluster) -> None:
    """The allocator receives the storage units as LVM has them (Ganeti storage units design)."""
    add(cluster)
    sent = json.loads(
        cluster.gnt(
            "debug",
            "allocator",
            "--dir=in",
            "--mode=allocate",
            "--disks=64",
            "--memory=64",
            "-o",
            "blocks",
            "-t",
            "plain",
            "new",
        )
    )
    units = {tuple(unit["sunit"][:2]): unit for unit in sent["nodes"]["node2"]["storage"]}
    group = units["lvm-vg", GROUP]
    free, total = (
        float(word)
        for word in cluster.lab["node2"]
        .run(f"vgs --noheadings --units m --nosuffix -o vg_free,vg_size {GROUP}")
        .split()
    )
    assert (group["free"], group["total"]) == (int(free), int(total))
    assert units["drbd8", GROUP]["free"] == group["free"]
