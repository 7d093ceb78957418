"""Proof 1 with a whole guest, which writes checksummed blocks through everything that happens.

Emulation within emulation: each start of the guest takes minutes, hence only with ``LAB_GUEST=1``.
See :mod:`lab.guest`.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.guest import NAME, Guest
from lab.machines import SECONDARY, Machine

pytestmark = pytest.mark.skipif(
    not os.environ.get("LAB_GUEST"), reason="a guest within a machine is slow; set LAB_GUEST=1"
)

NODES = ("node1", "node2", "node3")
# Connects to each port of migrations of a node as often as it can, and says nothing.
_ATTACKER = """
import socket, sys, time
held = []
while True:
    for port in range(8102, 8106):
        for _attempt in range(5):
            peer = socket.socket()
            peer.settimeout(1)
            try:
                peer.connect((sys.argv[1], port))
            except OSError:
                peer.close()
                break
            held.append(peer)
            print("connected", port, flush=True)
    del held[:-500]
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def guest(cluster: Cluster, kvm: None) -> Guest:
    """A guest on node2, mirrored to node3, which has begun to write."""
    found = Guest(cluster)
    for name in NODES:
        found.listen(name)
    cluster.gnt(
        "instance",
        "add",
        "-t",
        "drbd",
        "--disk",
        "0:size=64M",
        "-n",
        "node2:node3",
        "-H",
        "kvm",
        "-B",
        "memory=128",
        "--no-nics",
        "--no-install",
        "-o",
        "tiny",
        "--no-name-check",
        "--no-ip-check",
        NAME,
    )
    begin = time.monotonic()
    assert found.starts("node2", lambda: cluster.gnt("instance", "startup", NAME)) == (0, 1 << 17)
    print(f"the guest was up after {time.monotonic() - begin:.0f} s")
    found.write_more("node2")
    return found


def ahead_s(machine: Machine) -> tuple[float, float]:
    """How far a machine's clock is ahead of ours, and how much that may be wrong; seconds."""
    found = []
    for _attempt in range(10):
        begin = time.time()
        theirs = float(machine.run("date +%s.%N"))
        end = time.time()
        found.append(((end - begin) / 2, theirs - (begin + end) / 2))
    wrong, ahead = min(found)
    return ahead, wrong


def test_live_migration_during_writes(cluster: Cluster, guest: Guest) -> None:
    source, target = cluster.lab["node2"], cluster.lab["node3"]
    begin = time.monotonic()
    said = cluster.gnt("instance", "migrate", "-f", NAME)
    took_s = time.monotonic() - begin
    guest.write_more("node3")
    before, after = guest.confirmed("node2"), guest.confirmed("node3")
    # It went on exactly where it was.
    assert before[-1][1] < after[0][1] <= before[-1][1] + 2
    numbers = [number for _when, number in after]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    (here, wrong), (there, also_wrong) = ahead_s(source), ahead_s(target)
    still_s = guest.event("node3", "RESUME") - guest.event("node2", "STOP") - there + here
    sent = re.search(r"\(([\d.]+) s, the instance was paused for (\d+) ms\)", said)
    assert sent is not None, said
    pace_s = (before[-1][0] - before[0][0]) / (len(before) - 1)
    gap_s = after[0][0] - before[-1][0] - there + here
    print(
        f"migration: {took_s:.1f} s; memory sent in {sent.group(1)} s; still for {still_s:.2f} s"
        f" (+- {wrong + also_wrong:.2f}), {gap_s:.2f} s between two blocks, else {pace_s:.2f} s"
    )
    cluster.in_step(NAME)


def test_live_migration_under_attack(cluster: Cluster, guest: Guest) -> None:
    """A machine in the network holds silent connections to each port, and the guest moves on.

    There and back; all blocks which it confirms follow each other.
    """
    attacker = cluster.lab["node1"]
    attacker.write("/root/attacker.py", _ATTACKER)
    for source, target in (("node3", "node2"), ("node2", "node3")):
        address = cluster.lab[target].secondary_ip
        attack = attacker.spawn(f"exec python3 /root/attacker.py {address}")
        try:
            cluster.gnt("instance", "migrate", "-f", NAME)
        finally:
            attacker.call("pkill -f '^python3 /root/attacker.py'")
        said, _ = attack.communicate(timeout=60)
        connected = said.count("connected")
        print(f"{connected} silent connections during the migration to {target}")
        assert connected >= 5, said
        before = guest.confirmed(source)[-1][1]
        guest.write_more(target)
        numbers = [number for _when, number in guest.confirmed(target) if number > before]
        assert numbers[0] <= before + 2
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        cluster.in_step(NAME)
    assert cluster.nodes_of(NAME)[0] == "node3"


def test_an_interrupted_mirror(cluster: Cluster, guest: Guest) -> None:
    """The guest confirms blocks which its secondary misses; it is not moved there."""
    primary, secondary = cluster.lab["node3"], cluster.lab["node2"]
    secondary.cable(SECONDARY, plugged=False)
    drbd.wait_for(primary, cluster.minor(NAME, "node3"), "DUnknown$")
    guest.write_more("node3")
    for command in ("failover", "migrate"):
        text = cluster.fails("instance", command, "-f", NAME)
        assert "may have missed writes" in text, text
    guest.write_more("node3")
    secondary.cable(SECONDARY, plugged=True)
    cluster.in_step(NAME)
    # It never stopped; the next test counts its blocks on the other node.
    numbers = [number for _when, number in guest.confirmed("node3")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_failover_after_the_power_failed(cluster: Cluster, guest: Guest) -> None:
    guest.write_more("node3", 3)
    cluster.lab["node3"].power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node3")
    # The guest itself looks how far its disk goes.
    # Nobody can compare the replicas any more. We know that they were connected until the end.
    assert "cannot be compared" in cluster.fails("instance", "failover", "-f", NAME)
    failover = ("failover", "-f", "--ignore-consistency", NAME)
    found, _size = guest.starts("node2", lambda: cluster.gnt("instance", *failover))
    assert found >= guest.last > 20
    guest.write_more("node2")


def test_new_storage_on_the_third_node_and_growth(cluster: Cluster, guest: Guest) -> None:
    before = guest.confirmed("node2")[-1][1]
    cluster.gnt("instance", "replace-disks", "-n", "node1", NAME)
    cluster.in_step(NAME)
    cluster.gnt("instance", "grow-disk", NAME, "0", "64M")
    cluster.in_step(NAME)
    guest.write_more("node2", 3)
    # The guest wrote all the time, and never waited for long.
    times = [when for when, number in guest.confirmed("node2") if number >= before]
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    print(f"{len(gaps)} blocks while disks were replaced and grew, {max(gaps):.1f} s apart at most")
    cluster.switch_on("node3")
    guest.listen("node3")


def test_to_plain_and_back(cluster: Cluster, guest: Guest) -> None:
    guest.stop()
    cluster.gnt("instance", "modify", "-t", "plain", NAME)
    cluster.gnt("instance", "activate-disks", NAME)
    (volume,) = drbd.volumes(cluster.lab["node2"])
    guest.check("node2", f"/dev/{GROUP}/{volume}")
    found, size = guest.starts("node2", lambda: cluster.gnt("instance", "startup", NAME))
    assert found >= guest.last and size == 1 << 18
    guest.write_more("node2")
    guest.stop()
    cluster.gnt("instance", "modify", "-t", "drbd", "-n", "node3", NAME)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    guest.check("node2", cluster.device(NAME, "node2"))


def test_failover_to_a_node_with_nothing_of_it(cluster: Cluster, guest: Guest) -> None:
    cluster.gnt("instance", "startup", NAME)
    found, _size = guest.starts(
        "node1",
        lambda: cluster.gnt(
            "instance", "failover", "-f", "--shutdown-timeout=0", "-n", "node1", NAME
        ),
    )
    assert found >= guest.last
    guest.write_more("node1")
    guest.stop()
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    guest.check("node1", cluster.device(NAME, "node1"))


def test_end(cluster: Cluster) -> None:
    cluster.remove(NAME)
    for machine in cluster.lab:
        machine.call("pkill -f '^python3 /root/listener.py'")
        assert drbd.minors(machine) == {} and drbd.volumes(machine) == [], machine.name
