"""Measures the memory of the daemons of a master's machine.

Part of ``make bench`` (:mod:`devel.bench`). The proportional set size of a process counts a page
which several processes share in equal parts to each of them. In a virtual cluster the daemons of
other nodes, and other Python programs of the machine, share the pages of programs and libraries,
so the sum is less than what a machine with these daemons alone would need. Therefore the second sum
counts the pages of files once, as if no other program used them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from devel.bench import instances
from devel.bench.figures import Figure, figure
from ganeti import vcluster
from ganeti.http import server
from ganeti.luxi import client as luxi
from ganeti.utils import fs

#: After the last call: until idle children of node daemons and idle handles of the master are gone.
SETTLE_S: Final = server.KEEP_S + 15.0

#: Daemons of the master, in the order of the table.
_DAEMONS = ("ganeti-masterd", "ganeti-noded", "ganeti-rapi", "ganeti-confd")
_MEMORY_GOAL_MIB = 120.0


class Used(NamedTuple):
    """The memory of a process, in KiB.

    :ivar name: the daemon to which it belongs.
    :ivar child: the process was forked by the daemon.
    :ivar pss: its proportional set size.
    :ivar anonymous: the proportional part of it which belongs to no file.
    """

    name: str
    pid: int
    child: bool
    pss: float
    anonymous: float


class Machine(NamedTuple):
    """The memory of the daemons of one machine.

    :ivar alone_kib: what the daemons would need if no other program used pages of their files.
    """

    processes: list[Used]
    alone_kib: float

    @property
    def pss_kib(self) -> float:
        """The sum of the proportional set sizes, in KiB."""
        return sum(one.pss for one in self.processes)


def fill(cluster: vcluster.VirtualCluster, count: int) -> None:
    """Create running instances without disks, with jobs."""
    instances.install_os(cluster)
    nodes = [node.name for node in cluster.nodes]
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        instances.run_all(
            client,
            [
                instances.creation(f"held{number}.example.com", nodes[number % len(nodes)])
                for number in range(count)
            ],
        )


def measure(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    """Measure without instances, soon after the creation of 300, and at rest."""
    count = 10 if quick else 300
    none = at_rest(cluster, 5.0)
    fill(cluster, count)
    busy = at_rest(cluster, 5.0)
    rest = at_rest(cluster, 5.0 if quick else SETTLE_S)
    moments = (
        ("none", "no instances", none, None),
        ("busy", f"5 s after {count} creations", busy, _MEMORY_GOAL_MIB),
        ("rest", f"{count} instances, at rest", rest, _MEMORY_GOAL_MIB),
    )
    found = [
        one
        for key, title, machine, goal in moments
        for one in (
            figure(f"memory_{key}", f"all daemons of the master, {title}", "MiB",
                   [machine.pss_kib / 1024], budget=goal),
            figure(f"memory_{key}_alone", "  the pages of files counted once", "MiB",
                   [machine.alone_kib / 1024]),
            figure(f"memory_{key}_processes", "  processes", "", [len(machine.processes)]),
        )
    ]  # fmt: skip
    return [
        *found,
        *(figure(f"memory_{name}", f"  {name}, at rest", "MiB",
                 [sum(one.pss for one in rest.processes if one.name == name) / 1024])
          for name in _DAEMONS),
    ]  # fmt: skip


def at_rest(cluster: vcluster.VirtualCluster, settle_s: float = SETTLE_S) -> Machine:
    """Measure the daemons of the first node when the cluster has been idle for a while."""
    time.sleep(settle_s)
    return now(cluster)


def now(cluster: vcluster.VirtualCluster) -> Machine:
    """Measure the daemons of the first node."""
    names = _daemons(cluster)
    found: list[Used] = []
    once: dict[str, float] = {}
    for pid, (name, child) in sorted(names.items()):
        try:
            rollup = dict(_sizes(fs.read_file(f"/proc/{pid}/smaps_rollup").splitlines()))
            mappings = fs.read_file(f"/proc/{pid}/smaps").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a child which has ended meanwhile
        found.append(Used(name, pid, child, rollup["Pss"], rollup["Pss_Anon"]))
        for place, kib in _file_pages(mappings):
            once[place] = max(kib, once.get(place, 0.0))
    return Machine(found, sum(one.anonymous for one in found) + sum(once.values()))


def _daemons(cluster: vcluster.VirtualCluster) -> dict[int, tuple[str, bool]]:
    """Return the processes of the first node: pid -> name of the daemon, whether it is a child."""
    directory = cluster.paths(cluster.nodes[0]).run_dir
    found: dict[int, tuple[str, bool]] = {}
    for name in os.listdir(directory):
        if name.endswith(".pid"):
            pid = int(fs.read_file(f"{directory}/{name}"))
            if os.path.exists(f"/proc/{pid}"):
                found[pid] = (name.removesuffix(".pid"), False)
    parents = dict(_parents())
    while True:
        more = {
            pid: (found[parent][0], True)
            for pid, parent in parents.items()
            if parent in found and pid not in found
        }
        if not more:
            return found
        found.update(more)


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process of the machine with its parent."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = fs.read_file(f"/proc/{name}/stat").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(name), int(fields[1])


def _sizes(lines: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield names and KiB from lines such as ``Pss:  12 kB``."""
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            yield name, float(words[0])


def _file_pages(lines: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield, for each mapping of a file in a ``smaps``, place and KiB of its unchanged pages."""
    place, resident = "", 0.0
    for line in lines:
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            # address, permissions, offset, device, inode, path
            place = f"{words[3]} {words[4]} {words[2]}" if words[4] != "0" else ""
        elif place and words[0] == "Rss:":
            resident = float(words[1])
        elif place and words[0] == "Anonymous:":
            yield place, resident - float(words[1])
