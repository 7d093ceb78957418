"""Mirrored disks of more than 4 TiB, whose metadata are larger than those of smaller disks.

The data volumes are in a volume group whose physical volume reads as zeros and forgets what is
written, except for its beginning with the metadata of LVM. The metadata of DRBD are on real disks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster

NAME = "large"
LARGE = "largevg"
TIB = 1 << 20
#: The largest disk for which metadata of 128 MiB are enough.
OLD_LIMIT_MIB = 4193152
_NODES = ("node1", "node2")
_REAL_SECTORS = 8 << 11
_KEPT = f"0 {_REAL_SECTORS} linear /dev/loop6 2048"
_TABLE = rf"{_KEPT}\n{_REAL_SECTORS} {(6 << 31) - _REAL_SECTORS} zero\n"
# The metadata of LVM are in the part which is kept. It begins behind the first MiB of the loop
# device, where LVM would find its label, too.
_OWN_METADATA = "--metadatasize 4m --dataalignment 8m"


@pytest.fixture(scope="module", autouse=True)
def group(cluster: Cluster) -> Iterator[None]:
    """A volume group of 6 TiB on two machines, and an instance policy which allows its disks."""
    for name in _NODES:
        cluster.lab[name].run(
            "modprobe dm-zero && truncate -s 9M /root/large && losetup /dev/loop6 /root/large &&"
            f" printf '{_TABLE}' | dmsetup create large &&"
            f" pvcreate -q {_OWN_METADATA} /dev/mapper/large &&"
            f" vgcreate -q {LARGE} /dev/mapper/large"
        )
    yield
    for name in _NODES:
        cluster.lab[name].run(
            f"vgremove -q -f {LARGE} && pvremove -q /dev/mapper/large && dmsetup remove large &&"
            " losetup -d /dev/loop6 && rm /root/large"
        )


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
        cluster.remove(name)
    for name in _NODES:
        assert drbd.minors(cluster.lab[name]) == {}


def add(cluster: Cluster, size_mib: int) -> None:
    cluster.gnt(
        "instance", "add", "-t", "drbd", "-n", ":".join(_NODES),
        "--disk", f"0:size={size_mib}M,vg={LARGE},metavg={GROUP}",
        "-B", "minmem=64,maxmem=64", "--no-nics", "--no-install", "-o", "tiny", "--no-start",
        "--no-name-check", "--no-ip-check", "--no-wait-for-sync", "--ignore-ipolicy", NAME,
    )  # fmt: skip


def device_mib(cluster: Cluster, node: str) -> int:
    """The size of the mirrored device."""
    machine = cluster.lab[node]
    return int(machine.run(f"blockdev --getsize64 {cluster.device(NAME, node)}")) >> 20


def metadata_mib(cluster: Cluster, node: str) -> float:
    """The size of the only metadata volume."""
    found = cluster.lab[node].run(
        f"lvs --noheadings --nosuffix --units m -o lv_size -S 'lv_name=~_meta' {GROUP}"
    )
    return float(found)


def have_storage(cluster: Cluster) -> None:
    """Check that no replica is without its storage."""
    for node in _NODES:
        state = drbd.minors(cluster.lab[node])[cluster.minor(NAME, node)]
        assert state.local_disk in ("UpToDate", "Inconsistent"), f"{node}: {state}"


def test_a_large_disk_keeps_its_storage(cluster: Cluster) -> None:
    add(cluster, 5 * TIB)
    for node in _NODES:
        assert metadata_mib(cluster, node) == 164.0
    cluster.gnt("instance", "startup", NAME)
    have_storage(cluster)
    assert device_mib(cluster, "node1") == 5 * TIB
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "startup", NAME)
    have_storage(cluster)
    assert device_mib(cluster, "node1") == 5 * TIB


def test_a_disk_does_not_grow_past_its_metadata(cluster: Cluster) -> None:
    """DRBD really attaches what we call the largest disk for metadata of 128 MiB."""
    add(cluster, OLD_LIMIT_MIB)
    for node in _NODES:
        assert metadata_mib(cluster, node) == 128.0
    cluster.gnt("instance", "startup", NAME)
    have_storage(cluster)
    problem = cluster.fails(
        "instance", "grow-disk", "--absolute", "--ignore-ipolicy", "--no-wait-for-sync", NAME, "0",
        f"{5 * TIB}M",
    )  # fmt: skip
    assert "enough for 4193152 MiB" in problem
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "startup", NAME)
    have_storage(cluster)
    assert device_mib(cluster, "node1") == OLD_LIMIT_MIB
