"""Measures how the watcher starts many instances after a power cut: ``make bench``.

All guests of a virtual cluster die at once. A run of ``ganeti-watcher`` on the master starts them
again, in the order which an administrator has given, with a limited number of jobs at the same
time. The instances have no disks and the fake hypervisor, so the figures show the cluster itself; a
real guest adds the time in which its node starts it, as often as the node can do that at once.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from devel.bench import instances as instance
from devel.bench import queue
from ganeti import errors, vcluster
from ganeti.constants.job import REASON_WATCHER
from ganeti.luxi import client as luxi
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceRemove, OpInstanceStartup
from ganeti.opcodes.tags import OpTagsSet
from ganeti.utils import process

_RUN_S = 1800.0
_ORDER_TAG = "ganeti:watcher:order:1"


class Restart(NamedTuple):
    """One restart of all instances.

    :ivar whole_s: seconds from the start of the watcher to its end.
    :ivar first_s: seconds until the job of the instance which comes first had ended.
    :ivar most_jobs: the greatest number of its jobs which were unfinished at the same time.
    """

    whole_s: float
    first_s: float
    most_jobs: int


def restart(cluster: vcluster.VirtualCluster, count: int, number: int) -> Restart:
    """Let all guests die, and run the watcher.

    :param count: number of instances; the last one has the tag which lets it start first.
    :param number: of this restart. Its instances have names of their own, because the watcher waits
        some minutes before it starts the same instance again.
    :raises errors.OpExecError: an instance does not run afterwards, or another one was first.
    """
    instance.install_os(cluster)
    names = [f"cut{number}-{n:03}.example.com" for n in range(count)]
    nodes = [node.name for node in cluster.nodes]
    master = cluster.nodes[0]
    with luxi.Client(cluster.paths(master).master_socket) as client:
        creations: list[OpInstanceCreate] = []
        for n, name in enumerate(names):
            creation = instance.creation(name, nodes[n % len(nodes)])
            creation.ignore_ipolicy = True
            creations.append(creation)
        instance.run_all(client, creations)
        tag = OpTagsSet(kind="instance", name=names[-1], tags=[_ORDER_TAG])
        queue.wait(client, client.submit_job([tag]))
        for node in cluster.nodes:
            directory = f"{cluster.paths(node).run_dir}/fake-hypervisor"
            for guest in os.listdir(directory):
                os.unlink(f"{directory}/{guest}")
        begun, begun_wall_s = time.perf_counter(), time.time()
        process.run(
            [f"{cluster.directory}/bin/ganeti-watcher", "--no-verify-disks"],
            timeout_s=_RUN_S,
            env=vcluster.environment(cluster, master),
            log=False,
        )
        whole_s = time.perf_counter() - begun
        found = _jobs(client, begun_wall_s)
        (rows,) = [client.query("instance", ["name", "status"], None)["data"]]
        down = [cells[0][1] for cells in rows if cells[1][1] != "running"]
        instance.run_all(client, [OpInstanceRemove(instance_name=name) for name in names])
    if down:
        raise errors.OpExecError(f"{len(down)} instances do not run after the watcher: {down[:3]}")
    if len(found) != count or names[-1] not in found[0][2]:
        raise errors.OpExecError(f"the watcher did not begin with {names[-1]}: {found[:1]}")
    return Restart(whole_s, found[0][1] - begun_wall_s, _most_at_once(found))


def _jobs(client: luxi.Client, since_s: float) -> list[tuple[float, float, str]]:
    """Return the jobs of this restart that start instances: when received, when ended, summary.

    :param since_s: jobs received before this time belong to the restart which was measured before.
    """
    found = []
    for cells in client.query("job", ["received_ts", "end_ts", "summary", "ops"], None)["data"]:
        received, ended, summary, ops = (cell[1] for cell in cells)
        (first, *_), begun_s = ops, _seconds(received)
        by_watcher = any(source == REASON_WATCHER for source, *_ in first.get("reason", ()))
        if by_watcher and first["OP_ID"] == OpInstanceStartup.OP_ID and begun_s >= since_s:
            found.append((begun_s, _seconds(ended), str(summary)))
    return sorted(found)


def _seconds(stamp: tuple[int, int]) -> float:
    return stamp[0] + stamp[1] / 1e6


def _most_at_once(jobs: list[tuple[float, float, str]]) -> int:
    changes = sorted(
        [(received, 1) for received, _, _ in jobs] + [(ended, -1) for _, ended, _ in jobs]
    )
    most = now = 0
    for _when, change in changes:
        now += change
        most = max(most, now)
    return most
