"""Figures for ``doc/performance.rst``: how fast a mirror is filled, beside one set up by hand."""

from __future__ import annotations

import time

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import Machine

NAME = "figures"
SIZE_MIB = 256
_MINOR, _PORT = 200, 7799


def filled(machine: Machine, minor: int) -> float:
    """Throw away the copy of a machine; MiB per second until it is back."""
    begin = time.monotonic()
    machine.run(f"drbdsetup invalidate {minor}")
    # The answer may come when everything is over already.
    drbd.wait_for(machine, minor, "^Connected UpToDate/UpToDate", timeout_s=1200)
    return SIZE_MIB / (time.monotonic() - begin)


def by_hand(machine: Machine, own: str, other: str) -> None:
    """Make one replica with drbdsetup, without a limit of its speed."""
    machine.run(
        f"lvcreate -qq -Wn -y -L {SIZE_MIB}m -n hand {GROUP} &&"
        f" lvcreate -qq -Wn -y -L 128m -n hand_meta {GROUP} &&"
        f" drbdmeta --force /dev/drbd{_MINOR} v08 /dev/{GROUP}/hand_meta flex-external create-md"
        " >/dev/null 2>&1 && drbdsetup new-resource hand &&"
        f" drbdsetup new-minor hand {_MINOR} 0 &&"
        f" drbdsetup attach {_MINOR} /dev/{GROUP}/hand /dev/{GROUP}/hand_meta flexible &&"
        f" drbdsetup disk-options {_MINOR} --c-plan-ahead 0 --resync-rate 1G &&"
        f" drbdsetup connect hand ipv4:{own}:{_PORT} ipv4:{other}:{_PORT} --protocol C"
    )


def test_filling_a_mirror(cluster: Cluster) -> None:
    primary, secondary = cluster.lab["node2"], cluster.lab["node3"]
    by_hand(primary, primary.secondary_ip, secondary.secondary_ip)
    by_hand(secondary, secondary.secondary_ip, primary.secondary_ip)
    primary.run(f"drbdsetup primary {_MINOR} --force")
    drbd.wait_for(secondary, _MINOR, "^Connected UpToDate/UpToDate", timeout_s=1200)
    cluster.add(NAME, "node2:node3", size=f"{SIZE_MIB}M")
    cluster.gnt("instance", "activate-disks", NAME)
    ours, hand = [], []
    # In turns, so that other work on the machine affects both.
    for _round in range(3):
        hand.append(filled(secondary, _MINOR))
        ours.append(filled(secondary, cluster.minor(NAME, "node3")))
    print(
        f"filling {SIZE_MIB} MiB: {max(ours):.0f} MiB/s, by hand {max(hand):.0f} MiB/s"
        f" ({', '.join(f'{a:.0f}/{b:.0f}' for a, b in zip(ours, hand, strict=True))})"
    )
    # The configured rate is 60 MiB/s; nothing else may slow it down.
    assert max(ours) > min(max(hand), 60) / 2
    cluster.remove(NAME)
    for machine in (primary, secondary):
        machine.run(f"drbdsetup down hand && lvremove -f {GROUP}/hand {GROUP}/hand_meta")
        assert drbd.volumes(machine) == []
