"""A guest of Xen on DRBD writes all the time while its cluster is taken over and given back.

The original has started the guest, with a UUID of the domain which it does not tell anybody and
without any file which our driver writes. Our daemons must find and manage it, and the original must
manage a guest which our daemons have started.

Emulation within emulation, hence only with ``LAB_GUEST=1``; and with the packages of the original,
which ``GANETI_ORIGINAL_DIR`` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import machines, original
from lab.cluster import prepare_xen
from lab.guest import NAME, XenGuest
from lab.original import OriginalCluster
from lab.waiting import wait_until

#: Where the guest is started, and where it is migrated to.
FIRST, SECOND = "node2", "node1"
_PATIENCE_S = 900.0
_PARAMETERS = (
    f"{original.KERNEL},blockdev_prefix=xvd,root_path=,xen_cmd=xl,"
    "kernel_args=console=hvc0 quiet mitigations=off nokaslr lab.pause=0.3"
)
_REASON = original.reason_to_skip()

pytestmark = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Two machines under Xen, with the packages of the original instead of the project."""
    yield from original.machines(
        tmp_path_factory.mktemp("original"), 2, "logs-takeover-xen", under_xen=True
    )


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> OriginalCluster:
    """A cluster of the original, whose domain 0 comes before the guests."""
    prepare_xen(lab, "xen-br0")
    found = OriginalCluster(lab)
    found.make_original("xen-pvm", _PARAMETERS)
    return found


@pytest.fixture(scope="module")
def guest(cluster: OriginalCluster) -> XenGuest:
    """A guest which the original has started, and which has begun to write."""
    found = XenGuest(cluster)
    for machine in cluster.lab:
        found.listen(machine.name)
    cluster.gnt(
        "instance", "add", "-t", "drbd", "--disk", "0:size=64M", "-n", f"{FIRST}:{SECOND}",
        "-B", "minmem=96,maxmem=96", "--net", "0:link=labbr", "--no-install", "-o", "blocks",
        "--no-start", "--no-name-check", "--no-ip-check", NAME,
    )  # fmt: skip
    assert found.starts(FIRST, lambda: cluster.gnt("instance", "startup", NAME)) == (0, 1 << 17)
    cluster.in_step(NAME)
    found.write_more(FIRST)
    return found


def same(cluster: OriginalCluster, node: str) -> list[str]:
    """What no takeover changes: number and UUID of the domain, devices of DRBD, their secret."""
    return [*domain(cluster, node), *cluster.replicas()]


def domain(cluster: OriginalCluster, node: str) -> list[str]:
    """Number and UUID of the only domain of the guest."""
    assert [one.name for one in cluster.lab if one.call(f"xl domid {NAME}").returncode == 0] == [
        node
    ]
    (found,) = json.loads(cluster.lab[node].run(f"xl list --long {NAME}"))
    return [str(found["domid"]), found["config"]["c_info"]["uuid"]]


def devices(cluster: OriginalCluster, node: str) -> tuple[int, int, int]:
    """How many NICs and disks the guest has, and how many interfaces the bridge."""
    machine = cluster.lab[node]
    nics, disks = (
        len(machine.run(f"xl {command} {NAME}").splitlines()) - 1
        for command in ("network-list", "block-list")
    )
    return nics, disks, len(machine.run("ip -o link show master labbr").splitlines())


def test_the_check_of_a_cluster_with_xen(cluster: OriginalCluster, guest: XenGuest) -> None:
    """It knows the version of Xen on the nodes, and finds nothing which would not work."""
    done = cluster.master.run(f"{cluster.unpack_ours()} --output=json check")
    report = json.loads(done)
    assert report["possible"], done
    assert {one["code"] for one in report["findings"]} <= {"features", "new-packages"}, done
    assert guest.last > 0


def test_a_guest_of_xen_is_taken_over(cluster: OriginalCluster, guest: XenGuest) -> None:
    before = same(cluster, FIRST)
    count = len(guest.confirmed(FIRST))
    print(f"before: {count} blocks, at most {guest.went_on(FIRST):.1f} s between two of them")
    said = cluster.master.run(f"{cluster.unpack_ours()} -f run", timeout_s=3600.0)
    print(said)
    assert f"{FIRST}: " in said and "guests of Xen in the same domains: 1" in said
    assert "of Ganeti in Python" in cluster.version()
    assert same(cluster, FIRST) == before
    pause_s = guest.went_on(FIRST)
    print(f"after: {guest.last} blocks, at most {pause_s:.1f} s between two of them")
    cluster.in_step(NAME)
    assert cluster.fields("instance", NAME, "status", "oper_ram", "oper_vcpus") == [
        "running", "96", "1",
    ]  # fmt: skip
    cluster.gnt("cluster", "verify")


def test_our_daemons_manage_it(cluster: OriginalCluster, guest: XenGuest) -> None:
    """A NIC and a disk come, another NIC and the disk go, memory is given back; it goes on."""
    before = domain(cluster, FIRST)
    assert devices(cluster, FIRST) == (1, 1, 1)
    assert "actual state is up" in cluster.gnt("instance", "info", NAME)
    assert f"xl {NAME}" in cluster.gnt("instance", "console", "--show", NAME).replace("'", "")
    # Started already.
    cluster.gnt("instance", "startup", NAME)
    cluster.gnt("instance", "modify", "--net", "add:link=labbr", NAME)
    cluster.gnt("instance", "modify", "--disk", "add:size=16M", NAME)
    assert devices(cluster, FIRST) == (2, 2, 2)
    guest.went_on(FIRST)
    cluster.gnt("instance", "modify", "--disk", "remove", NAME)
    cluster.gnt("instance", "modify", "--net", "0:remove", NAME)
    # Xen takes a NIC out when the guest has given it up.
    wait_until(lambda: devices(cluster, FIRST) == (1, 1, 1), "both are gone", _PATIENCE_S)
    cluster.gnt("instance", "modify", "-B", "minmem=80", "--runtime-memory=88", NAME)
    assert cluster.fields("instance", NAME, "oper_ram") == ["88"]
    guest.went_on(FIRST)
    assert domain(cluster, FIRST) == before
    cluster.gnt("cluster", "verify")


def test_it_is_migrated(cluster: OriginalCluster, guest: XenGuest) -> None:
    cluster.gnt("instance", "migrate", "-f", "--non-live", NAME)
    assert cluster.nodes_of(NAME) == (SECOND, FIRST)
    guest.went_on(FIRST, SECOND)
    assert devices(cluster, SECOND) == (1, 1, 1)
    cluster.in_step(NAME)
    # It is a domain of ours now.
    (instance,) = cluster.config()["instances"].values()
    assert domain(cluster, SECOND)[1] == instance["uuid"]


def test_it_is_given_back(cluster: OriginalCluster, guest: XenGuest) -> None:
    before = same(cluster, SECOND)
    said = cluster.master.run("ganeti-takeover -f back", timeout_s=3600.0)
    print(said)
    assert f"{SECOND}: " in said and "guests of Xen in the same domains: 1" in said
    assert "ganeti 3.0" in cluster.version()
    assert same(cluster, SECOND) == before
    pause_s = guest.went_on(FIRST, SECOND)
    print(f"at the end: {guest.last} blocks, at most {pause_s:.1f} s between two of them")
    cluster.in_step(NAME)
    assert cluster.fields("instance", NAME, "status") == ["running"]
    cluster.gnt("cluster", "verify")


def test_the_original_reboots_it(cluster: OriginalCluster, guest: XenGuest) -> None:
    """Also the NIC, which our daemons have connected, is there again."""
    guest.confirmed(SECOND)
    found, _sectors = guest.starts(
        SECOND, lambda: cluster.gnt("instance", "reboot", "--type=soft", NAME)
    )
    assert found >= guest.last
    guest.write_more(SECOND)
    assert devices(cluster, SECOND) == (1, 1, 1)


def test_the_original_stops_it_and_nothing_is_missing(
    cluster: OriginalCluster, guest: XenGuest
) -> None:
    guest.stop()
    assert all(one.call(f"xl domid {NAME}").returncode for one in cluster.lab)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    guest.check(SECOND, cluster.device(NAME, SECOND))
    cluster.remove(NAME)
