"""Measures what a monitoring program costs which reads ``/metrics`` of the master.

Part of ``make bench`` (:mod:`devel.bench`). The page has the metrics of the node and of the whole
cluster, so it is the most expensive one. A reading costs little while the answers of the master
daemon are kept; then the master is asked, and once a minute the nodes. What a minute costs is
compared with a minute without readings.
"""

from __future__ import annotations

import os
import time
import urllib.request
from typing import NamedTuple

from devel.bench import instances, queue
from ganeti import vcluster
from ganeti.luxi import client as luxi
from ganeti.mond import node_state
from ganeti.utils import fs

_PORT = 1815
#: Seconds between two readings, as Prometheus usually has it.
EVERY_S = 15.0
_TIMEOUT_S = 120.0


class Scrapes(NamedTuple):
    """What readings cost.

    :ivar kept_ms: time of a reading while the answers of the master are kept.
    :ivar fresh_ms: time of a reading for which the master is asked.
    :ivar page_kib: size of the page.
    :ivar mond_ms: processor time of the monitoring daemon of the master for one minute of readings.
    :ivar master_ms: the same of the master daemon.
    :ivar nodes_ms: the same of all node daemons.
    """

    kept_ms: list[float]
    fresh_ms: list[float]
    page_kib: float
    mond_ms: float
    master_ms: float
    nodes_ms: float


def scrapes(
    cluster: vcluster.VirtualCluster, count: int, rounds: int, minute_s: float = 60.0
) -> Scrapes:
    """Create instances, and read the page of the master.

    :param count: number of instances; they have no disks and run.
    :param rounds: readings of each kind.
    :param minute_s: seconds of the two windows whose processor time is compared.
    """
    instances.install_os(cluster)
    nodes = [node.name for node in cluster.nodes]
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        instances.run_all(
            client,
            [
                instances.creation(f"seen{number}.example.com", nodes[number % len(nodes)])
                for number in range(count)
            ],
        )
    size = len(_read(cluster))
    fresh = []
    for _ in range(rounds):
        time.sleep(node_state.KEEP_S)  # until the answers of the master are too old
        fresh.append(_timed_ms(cluster))
    kept = [_timed_ms(cluster) for _ in range(rounds)]
    idle = _processor_s(cluster, minute_s, read=False)
    busy = _processor_s(cluster, minute_s, read=True)
    mond_s, master_s, nodes_s = (
        max(0.0, after - before) * 60.0 / minute_s for before, after in zip(idle, busy, strict=True)
    )
    return Scrapes(kept, fresh, size / 1024, mond_s * 1000, master_s * 1000, nodes_s * 1000)


def _read(cluster: vcluster.VirtualCluster) -> bytes:
    address = f"http://{cluster.nodes[0].ip}:{_PORT}/metrics"
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as response:  # noqa: S310 -- our own
        text: bytes = response.read()
    return text


def _timed_ms(cluster: vcluster.VirtualCluster) -> float:
    begun = time.perf_counter()
    _read(cluster)
    return (time.perf_counter() - begun) * 1000


def _processor_s(
    cluster: vcluster.VirtualCluster, seconds: float, *, read: bool
) -> tuple[float, float, float]:
    """Return the processor time of ganeti-mond, of the master and of the nodes in a window."""
    before = (_mond_s(cluster), *queue.cpu_s(cluster))
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if read:
            _read(cluster)
        time.sleep(min(EVERY_S, left))
    after = (_mond_s(cluster), *queue.cpu_s(cluster))
    mond, master, nodes = (late - early for early, late in zip(before, after, strict=True))
    return mond, master, nodes


def _mond_s(cluster: vcluster.VirtualCluster) -> float:
    pid = int(fs.read_file(cluster.paths(cluster.nodes[0]).pid_file("ganeti-mond")))
    fields = fs.read_file(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
