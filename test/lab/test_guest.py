"""Proof 1 with a whole guest: it writes checksummed blocks while it is migrated to the other node.

Emulation within emulation: the guest takes minutes to start, hence only with ``LAB_GUEST=1``.
The guest is ``recipe/guest-init``; what it says on its console is written down, with the time, by a
process on the node.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from lab.cluster import Cluster
from lab.machines import Machine

pytestmark = pytest.mark.skipif(
    not os.environ.get("LAB_GUEST"), reason="a guest within a machine is slow; set LAB_GUEST=1")

NAME = "guest"
_START_S = 3000.0
_CONSOLE = f"/var/run/ganeti/kvm-hypervisor/ctrl/{NAME}.serial"
_LOG = "/root/guest.log"
_KERNEL_ARGS = ("ro quiet mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests"
                " lpj=4000000")
# Writes each line of the console with the time at which it came.
_LISTENER = f"""
import socket, sys, time
console = socket.socket(socket.AF_UNIX)
while True:
    try:
        console.connect("{_CONSOLE}")
        break
    except OSError:
        time.sleep(0.05)
log = open("{_LOG}", "a", buffering=1)
for line in console.makefile("r", errors="replace"):
    log.write("%.3f %s" % (time.time(), line))
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


def listen(machine: Machine) -> None:
    """Write down what the guest says on this machine from now on."""
    machine.write("/root/listener.py", _LISTENER)
    machine.run(f"rm -f {_LOG}; nohup python3 /root/listener.py >/dev/null 2>&1 &")


def confirmed(machine: Machine) -> list[tuple[float, int]]:
    """(time, number) of each block which the guest confirmed here."""
    text = machine.call(f"cat {_LOG}").stdout
    return [(float(when), int(number))
            for when, number in re.findall(r"^([\d.]+) confirmed (\d+)\s*$", text, re.MULTILINE)]


def wait_for_blocks(machine: Machine, count: int) -> None:
    deadline = time.monotonic() + _START_S
    while len(confirmed(machine)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(machine.call(f"tail -20 {_LOG}").stdout)
        time.sleep(2)


@pytest.fixture(scope="module", autouse=True)
def guest(cluster: Cluster) -> None:
    """A guest on node2, mirrored to node3, which has begun to write."""
    # Every node must have the kernel by the time the hypervisor is enabled.
    cluster.gnt(
        "cluster", "modify", "--enabled-hypervisors", "fake,kvm", "-H",
        "kvm:kernel_path=/usr/share/lab/vmlinux,initrd_path=/usr/share/lab/initrd,"
        f"kvm_path=/usr/bin/qemu-system-x86_64,serial_console=true,kernel_args={_KERNEL_ARGS},"
        "disk_cache=none,vnc_bind_address=")
    for name in ("node2", "node3"):
        listen(cluster.lab[name])
    cluster.gnt(
        "instance", "add", "-t", "drbd", "--disk", "0:size=64M", "-n", "node2:node3", "-H", "kvm",
        "-B", "memory=128", "--no-nics", "--no-install", "-o", "tiny", "--no-name-check",
        "--no-ip-check", NAME)
    cluster.gnt("instance", "startup", NAME)
    wait_for_blocks(cluster.lab["node2"], 10)


def test_live_migration_during_writes(cluster: Cluster) -> None:
    source, target = cluster.lab["node2"], cluster.lab["node3"]
    begin = time.monotonic()
    cluster.gnt("instance", "migrate", "-f", NAME)
    took_s = time.monotonic() - begin
    wait_for_blocks(target, 10)
    before, after = confirmed(source), confirmed(target)
    # It went on exactly where it was.
    assert after[0][1] <= before[-1][1] + 2
    numbers = [number for _when, number in after]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    pace_s = (before[-1][0] - before[0][0]) / max(len(before) - 1, 1)
    gap_s = after[0][0] - before[-1][0]
    print(f"migration: {took_s:.1f} s; {gap_s:.1f} s between two blocks, which otherwise come every"
          f" {pace_s:.1f} s")
    cluster.in_step(NAME)


def test_failover_after_the_power_failed(cluster: Cluster) -> None:
    machine = cluster.lab["node3"]
    last = confirmed(machine)[-1][1]
    machine.power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node3")
    listen(cluster.lab["node2"])
    cluster.gnt("instance", "failover", "-f", NAME)
    # The guest itself looks how far its disk goes.
    wait_for_blocks(cluster.lab["node2"], 3)
    text = cluster.lab["node2"].run(f"cat {_LOG}")
    found = int(re.search(r"guest ready, (\d+) blocks found", text).group(1))
    assert found >= last
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "activate-disks", NAME)
    node2 = cluster.lab["node2"]
    node2.write("/root/checker.py", _CHECKER)
    node2.run(f"python3 /root/checker.py {cluster.device(NAME, 'node2')} {last}")


def test_end(cluster: Cluster) -> None:
    machine = cluster.lab["node3"]
    machine.start()
    machine.wait()
    cluster.gnt("node", "add", "--readd", "--secondary-ip", machine.secondary_ip,
                "--no-ssh-key-check", "node3")
    cluster.remove(NAME)
