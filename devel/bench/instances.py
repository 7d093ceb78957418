"""Measures the operations on instances: create, start, stop, migrate and remove, for one and many.

Part of ``make bench`` (:mod:`devel.bench`). The instances have no disks and the fake hypervisor, so
the figures show the cluster itself: the queue, locks, checks, node calls, hooks, and the
configuration with its copies on all candidates. Every node gets an OS definition whose scripts do
nothing.
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


class OneInstance(NamedTuple):
    """Times in milliseconds, from the submission of a job until its end is known."""

    create_ms: list[float]
    shutdown_ms: list[float]
    startup_ms: list[float]
    migrate_ms: list[float]
    remove_ms: list[float]


class ManyInstances(NamedTuple):
    """Rates of many jobs at once; CPU time of the master and of all node daemons per instance."""

    created_per_s: float
    removed_per_s: float
    master_ms: float
    nodes_ms: float


def install_os(cluster: vcluster.VirtualCluster) -> None:
    """Install an OS definition whose scripts do nothing on every node."""
    for node in cluster.nodes:
        directory = f"{cluster.paths(node).root}/srv/ganeti/os/{OS}"
        fs.make_dirs(directory, 0o755)
        fs.write_file(f"{directory}/ganeti_api_version", "20\n", mode=0o644)
        fs.write_file(f"{directory}/parameters.list", "", mode=0o644)
        for name in _SCRIPTS:
            fs.write_file(f"{directory}/{name}", "#!/bin/sh\nexit 0\n", mode=0o755)


def creation(name: str, node: str | None) -> OpInstanceCreate:
    """Return the opcode for an instance without disks and NICs, which is started.

    :param node: the primary node; None for the one which the default allocator chooses.
    """
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


def one(cluster: vcluster.VirtualCluster, rounds: int) -> OneInstance:
    """Create, stop, start, migrate and remove one instance repeatedly."""
    socket = cluster.paths(cluster.nodes[0]).master_socket
    first, second = (node.name for node in cluster.nodes[:2])
    found = OneInstance([], [], [], [], [])
    with luxi.Client(socket) as client:
        # The first round includes lazy imports, and is not counted.
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


class PlacedInstances(NamedTuple):
    """Times in milliseconds of creations on a named node, and with the default allocator."""

    named_ms: list[float]
    chosen_ms: list[float]


def placed(cluster: vcluster.VirtualCluster, rounds: int) -> PlacedInstances:
    """Create instances in turn on a named node and where the default allocator puts them."""
    socket = cluster.paths(cluster.nodes[0]).master_socket
    found = PlacedInstances([], [])
    with luxi.Client(socket) as client:
        # The first round includes lazy imports, and is not counted.
        for number in range(rounds + 1):
            node = cluster.nodes[number % len(cluster.nodes)].name
            for samples, name, target in (
                (found.named_ms, f"named{number}.example.com", node),
                (found.chosen_ms, f"chosen{number}.example.com", None),
            ):
                begun = time.perf_counter()
                queue.wait(client, client.submit_job([creation(name, target)]))
                samples.append((time.perf_counter() - begun) * 1000)
        names = [
            f"{kind}{n}.example.com" for n in range(rounds + 1) for kind in ("named", "chosen")
        ]
        run_all(client, [OpInstanceRemove(instance_name=name) for name in names])
    for samples in found:
        del samples[0]
    return found


def many(cluster: vcluster.VirtualCluster, count: int) -> ManyInstances:
    """Create many instances with one request, distributed over the nodes; then remove all."""
    socket = cluster.paths(cluster.nodes[0]).master_socket
    names = [f"many{number}.example.com" for number in range(count)]
    nodes = [node.name for node in cluster.nodes]
    with luxi.Client(socket) as client:
        queue.wait(client, client.submit_job([creation("warm.example.com", nodes[0])]))
        before = queue.cpu_s(cluster)
        created_s = run_all(
            client,
            [creation(name, nodes[number % len(nodes)]) for number, name in enumerate(names)],
        )
        after = queue.cpu_s(cluster)
        removed_s = run_all(client, [OpInstanceRemove(instance_name=name) for name in names])
        queue.wait(client, client.submit_job([OpInstanceRemove(instance_name="warm.example.com")]))
    return ManyInstances(
        count / created_s,
        count / removed_s,
        (after[0] - before[0]) / count * 1000,
        (after[1] - before[1]) / count * 1000,
    )


def run_all(client: luxi.Client, ops: Sequence[OpCode]) -> float:
    """Submit a job for each opcode with one request, and wait for all; returns the seconds.

    :raises errors.OpExecError: a job was refused.
    """
    begun = time.perf_counter()
    ids = []
    for accepted, answer in client.submit_many_jobs([[op] for op in ops]):
        if not accepted:
            raise errors.OpExecError(f"a job was refused: {answer}")
        ids.append(int(answer))
    queue.wait_for_all(client, ids)
    return time.perf_counter() - begun
