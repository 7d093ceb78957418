"""A whole guest on the machines, as the nodes hear it: it writes and confirms blocks.

The guest is ``recipe/guest-init``. It checks its disk whenever it starts; what it says on its
console, and what QEMU tells of a guest under it, is written down with the time by processes on the
nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from lab.cluster import Cluster
from lab.waiting import wait_until

NAME = "guest"
_START_S = 1800.0
_CONTROL = "/var/run/ganeti/kvm-hypervisor/ctrl"
_XEN_CONSOLE = f"/var/log/xen/console/guest-{NAME}.log"
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
# Writes each new line of a file with the time.
_READER = """
import os, sys, time
log = open(sys.argv[2], "w", buffering=1)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
with log, open(sys.argv[1], errors="replace") as source:
    rest = ""
    while True:
        rest += source.read()
        *lines, rest = rest.split("\\n")
        for line in lines:
            log.write("%.3f %s\\n" % (time.time(), line.strip()))
        time.sleep(0.1)
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
    """The guest under QEMU, as the nodes hear it.

    :ivar last: the last block that it ever confirmed.
    """

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

    def went_on(self, *nodes: str) -> float:
        """Check that it goes on, and has written each number once, after one start.

        :param nodes: those on which it ran, in this order.
        :returns: the longest time between two blocks, in seconds.
        """
        self.write_more(nodes[-1])
        confirmed = [one for node in nodes for one in self.confirmed(node)]
        numbers = [number for _when, number in confirmed]
        missing = set(range(1, numbers[-1] + 1)).difference(numbers)
        # A migration may divide one line between the consoles of two nodes.
        assert numbers == sorted(set(numbers)) and len(missing) < len(nodes), missing
        assert sum(self.console(node).count("guest ready") for node in nodes) == 1
        times = [when for when, _number in confirmed]
        return max(after - before for before, after in zip(times, times[1:], strict=False))

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


class XenGuest(Guest):
    """The guest under Xen, whose consoles its nodes write into files."""

    def listen(self, node: str) -> None:
        """From now on write down what it says on this node."""
        machine = self.cluster.lab[node]
        machine.write("/root/reader.py", _READER)
        machine.write("/root/checker.py", _CHECKER)
        machine.run(f"nohup python3 /root/reader.py {_XEN_CONSOLE} {_CONSOLE} >/dev/null 2>&1 &")
