"""Measures what instances cost: making, starting, stopping, migrating and removing one, and many.

Part of ``make bench`` (:mod:`devel.bench`). The instances are diskless and of the fake
hypervisor, so that what is measured is the cluster: the queue, locks, checks, node calls, hooks and
the configuration with its copies on all candidates. The operating system is one whose scripts do
nothing, made for the purpose on every node.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from devel.bench import queue
from ganeti import errors, vcluster
from ganeti.luxi import client as luxi
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceMigrate,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.utils import fs

OS = "bench"
_SCRIPTS = ("create", "export", "import", "rename", "verify")


class One(NamedTuple):
    """Samples in milliseconds, from submitting to the end being known."""

    create_ms: list[float]
    shutdown_ms: list[float]
    startup_ms: list[float]
    migrate_ms: list[float]
    remove_ms: list[float]


class Many(NamedTuple):
    """What many at once did; CPU times of the master daemon and of all node daemons."""

    created_per_s: float
    removed_per_s: float
    master_ms: float
    nodes_ms: float


def install_os(cluster: vcluster.VirtualCluster) -> None:
    """Put an operating system whose scripts do nothing on every node."""
    for node in cluster.nodes:
        directory = f"{cluster.paths(node).root}/srv/ganeti/os/{OS}"
        fs.make_dirs(directory, 0o755)
        fs.write_file(f"{directory}/ganeti_api_version", "20\n", mode=0o644)
        fs.write_file(f"{directory}/parameters.list", "", mode=0o644)
        for name in _SCRIPTS:
            fs.write_file(f"{directory}/{name}", "#!/bin/sh\nexit 0\n", mode=0o755)


def creation(name: str, node: str) -> OpInstanceCreate:
    """A diskless instance without network interfaces, started."""
    return OpInstanceCreate(
        instance_name=name,
        mode="create",
        disk_template="diskless",
        disks=[],
        nics=[],
        os_type=OS,
        pnode=node,
        beparams={"memory": 128},
        start=True,
    )


def one(cluster: vcluster.VirtualCluster, rounds: int) -> One:
    """The life of an instance, again and again."""
    socket = cluster.paths(cluster.nodes[0]).master_socket
    first, second = (node.name for node in cluster.nodes[:2])
    found = One([], [], [], [], [])
    with luxi.Client(socket) as client:
        # The first life pays for lazy imports.
        for number in range(rounds + 1):
            name = f"one{number}.example.com"
            steps: tuple[tuple[list[float], OpCode], ...] = (
                (found.create_ms, creation(name, first)),
                (found.shutdown_ms, OpInstanceShutdown(instance_name=name)),
                (found.startup_ms, OpInstanceStartup(instance_name=name)),
                (found.migrate_ms, OpInstanceMigrate(instance_name=name, target_node=second)),
                (found.remove_ms, OpInstanceRemove(instance_name=name)),
            )
            for samples, op in steps:
                begun = time.perf_counter()
                queue.wait(client, client.submit_job([op]))
                samples.append((time.perf_counter() - begun) * 1000)
    for samples in found:
        del samples[0]
    return found


def many(cluster: vcluster.VirtualCluster, count: int) -> Many:
    """Many instances, submitted in one request, spread over the nodes; then all removed."""
    socket = cluster.paths(cluster.nodes[0]).master_socket
    names = [f"many{number}.example.com" for number in range(count)]
    nodes = [node.name for node in cluster.nodes]
    with luxi.Client(socket) as client:
        queue.wait(client, client.submit_job([creation("warm.example.com", nodes[0])]))
        before = queue.cpu_s(cluster)
        created_s = _all(
            client,
            [creation(name, nodes[number % len(nodes)]) for number, name in enumerate(names)],
        )
        after = queue.cpu_s(cluster)
        removed_s = _all(client, [OpInstanceRemove(instance_name=name) for name in names])
        queue.wait(client, client.submit_job([OpInstanceRemove(instance_name="warm.example.com")]))
    return Many(
        count / created_s,
        count / removed_s,
        (after[0] - before[0]) / count * 1000,
        (after[1] - before[1]) / count * 1000,
    )


def _all(client: luxi.Client, ops: Sequence[OpCode]) -> float:
    begun = time.perf_counter()
    ids = []
    for accepted, answer in client.submit_many_jobs([[op] for op in ops]):
        if not accepted:
            raise errors.OpExecError(f"a job was refused: {answer}")
        ids.append(int(answer))
    queue.wait_for_all(client, ids)
    return time.perf_counter() - begun
