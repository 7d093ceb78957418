"""Proof 1 with a whole guest, which writes checksummed blocks through everything that happens.

Emulation within emulation: each start of the guest takes minutes, hence only with ``LAB_GUEST=1``.
The guest is ``recipe/guest-init``. It checks its disk whenever it starts; what it says on its
console, and what its QEMU tells of itself, is written down with the time by processes on the nodes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import SECONDARY, Machine
from lab.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not os.environ.get("LAB_GUEST"), reason="a guest within a machine is slow; set LAB_GUEST=1"
)

NAME = "guest"
NODES = ("node1", "node2", "node3")
_START_S = 1800.0
_CONTROL = "/var/run/ganeti/kvm-hypervisor/ctrl"
_CONSOLE, _EVENTS = "/root/guest-console.log", "/root/guest-events.log"
# Writes each line that comes from a socket with the time at which it came, whenever there is one.
_LISTENER = """
import socket, sys, time
path, log, greeting = sys.argv[1], open(sys.argv[2], "w", buffering=1), sys.argv[3]
while True:
    time.sleep(0.1)
    with socket.socket(socket.AF_UNIX) as peer:
        try:
            peer.connect(path)
            peer.sendall(greeting.encode())
            for line in peer.makefile("r", errors="replace", newline="\\n"):
                log.write("%.3f %s\\n" % (time.time(), line.strip()))
        except OSError:
            pass
"""
_CHECKER = """
import hashlib, sys
wrong = []
with open(sys.argv[1], "rb") as disk:
    for number in range(1, int(sys.argv[2]) + 1):
        disk.seek(number * 4096)
        line = disk.read(4096).split(b"\\n")[0].decode()
        if line != "block %d %s" % (number, hashlib.md5(b"%d lab\\n" % number).hexdigest()):
            wrong.append(number)
sys.exit("wrong blocks: %s" % wrong if wrong else 0)
"""


class Guest:
    """The guest, as the nodes hear it; :attr:`last` is the last block that it ever confirmed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last = 0

    def listen(self, node: str) -> None:
        """From now on write down what it says on this node."""
        machine = self.cluster.lab[node]
        machine.write("/root/listener.py", _LISTENER)
        machine.write("/root/checker.py", _CHECKER)
        hello = json.dumps({"execute": "qmp_capabilities"})
        for socket, log, greeting in (("serial", _CONSOLE, ""), ("kvmd", _EVENTS, hello)):
            machine.run(
                f"nohup python3 /root/listener.py {_CONTROL}/{NAME}.{socket} {log}"
                f" '{greeting}' >/dev/null 2>&1 &"
            )

    def console(self, node: str) -> str:
        """Everything it said there, each line after its time."""
        return self.cluster.lab[node].run(f"cat {_CONSOLE}")

    def confirmed(self, node: str) -> list[tuple[float, int]]:
        """(time, number) of each block that it confirmed there."""
        found = [
            (float(when), int(number))
            for when, number in re.findall(
                r"^([\d.]+) confirmed (\d+)$", self.console(node), re.MULTILINE
            )
        ]
        self.last = max([self.last, *(number for _when, number in found)])
        return found

    def write_more(self, node: str, count: int = 10) -> None:
        """Wait until it confirmed so many more blocks there."""
        before = len(self.confirmed(node))
        wait_until(
            lambda: len(self.confirmed(node)) >= before + count,
            lambda: f"{count} blocks on {node}: {self.console(node)[-2000:]}",
            _START_S,
            pause_s=2,
        )

    def starts(self, node: str, start: Callable[[], object]) -> tuple[int, int]:
        """Start it; what it found when it was up: (blocks in order, sectors of its disk)."""
        before = len(self.console(node))
        start()
        found = wait_until(
            lambda: re.search(
                r"guest ready, (\d+) blocks found, (\d+) sectors", self.console(node)[before:]
            ),
            lambda: f"the guest is up on {node}: {self.console(node)[-2000:]}",
            _START_S,
            pause_s=2,
        )
        assert found is not None
        return int(found.group(1)), int(found.group(2))

    def event(self, node: str, name: str) -> float:
        """Return the time of the last such event of QEMU, by the clock of the node."""
        text = self.cluster.lab[node].run(f"cat {_EVENTS}")
        times = re.findall(rf'^([\d.]+) .*"event": "{name}"', text, re.MULTILINE)
        assert times, f"no {name} on {node}: {text[-2000:]}"
        return float(times[-1])

    def stop(self) -> None:
        """Shut the guest down in an orderly way."""
        (node,) = self.cluster.fields("instance", NAME, "pnode")
        self.cluster.gnt("instance", "shutdown", NAME)
        self.confirmed(node)

    def check(self, node: str, device: str) -> None:
        """All confirmed blocks are on a device."""
        self.cluster.lab[node].run(f"python3 /root/checker.py {device} {self.last}")


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
