"""A guest on DRBD writes all the time while its cluster is taken over and given back.

Emulation within emulation, hence only with ``LAB_GUEST=1``; and with the packages of the original,
which ``GANETI_ORIGINAL_DIR`` names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import machines, original
from lab.guest import NAME, Guest
from lab.original import OriginalCluster

PRIMARY, SECONDARY = "node2", "node1"
_REASON = original.reason_to_skip()
_PID = f"/var/run/ganeti/kvm-hypervisor/pid/{NAME}"

pytestmark = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Two machines, with the packages of the original instead of the project."""
    yield from original.machines(tmp_path_factory.mktemp("original"), 2, "logs-takeover")


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> OriginalCluster:
    """A cluster of the original."""
    found = OriginalCluster(lab)
    found.make_original()
    return found


@pytest.fixture(scope="module")
def guest(cluster: OriginalCluster) -> Guest:
    """A guest which the original has started, and which has begun to write."""
    found = Guest(cluster)
    for machine in cluster.lab:
        found.listen(machine.name)
    cluster.gnt(
        "instance", "add", "-t", "drbd", "--disk", "0:size=64M", "-n", f"{PRIMARY}:{SECONDARY}",
        "-B", "minmem=128,maxmem=128", "--no-nics", "--no-install", "-o", "blocks", "--no-start",
        "--no-name-check", "--no-ip-check", NAME,
    )  # fmt: skip
    assert found.starts(PRIMARY, lambda: cluster.gnt("instance", "startup", NAME)) == (0, 1 << 17)
    cluster.in_step(NAME)
    found.write_more(PRIMARY)
    return found


def same(cluster: OriginalCluster) -> list[str]:
    """What no takeover changes: the process, its start, the devices of DRBD and their secret."""
    machine = cluster.lab[PRIMARY]
    pid = machine.run(f"cat {_PID}").strip()
    started = machine.run(f"cut -d' ' -f22 /proc/{pid}/stat")
    return [pid, started, *cluster.replicas()]


def test_a_guest_on_drbd_is_taken_over(cluster: OriginalCluster, guest: Guest) -> None:
    before = same(cluster)
    count = len(guest.confirmed(PRIMARY))
    print(f"before: {count} blocks, at most {guest.went_on(PRIMARY):.1f} s between two of them")
    print(cluster.master.run(f"{cluster.unpack_ours()} -f run", timeout_s=3600.0))
    assert "of Ganeti in Python" in cluster.version()
    assert same(cluster) == before
    pause_s = guest.went_on(PRIMARY)
    print(f"after: {guest.last} blocks, at most {pause_s:.1f} s between two of them")
    cluster.in_step(NAME)
    assert cluster.fields("instance", NAME, "status") == ["running"]


def test_it_is_given_back(cluster: OriginalCluster, guest: Guest) -> None:
    before = same(cluster)
    print(cluster.master.run("ganeti-takeover -f back", timeout_s=3600.0))
    assert "ganeti 3.0" in cluster.version()
    assert same(cluster) == before
    pause_s = guest.went_on(PRIMARY)
    print(f"at the end: {guest.last} blocks, at most {pause_s:.1f} s between two of them")
    cluster.in_step(NAME)
    assert cluster.fields("instance", NAME, "status") == ["running"]


def test_the_original_stops_it_and_nothing_is_missing(
    cluster: OriginalCluster, guest: Guest
) -> None:
    guest.stop()
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    guest.check(PRIMARY, cluster.device(NAME, PRIMARY))
    cluster.remove(NAME)
