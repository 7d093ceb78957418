"""Sums over all nodes of a cluster: what there is, what is used, and what is free."""

from __future__ import annotations

from ganeti.htools import score
from ganeti.htools.cluster import Cluster
from ganeti.htools.node import Node, divide
from ganeti.utils.records import record


@record(frozen=True, slots=True)
class Figures:
    """Sums over all nodes of a cluster. Memory and disk space are in MiB.

    :ivar unknown_memory: what neither nodes nor instances are known to use.
    :ivar real_cpus: processors which the virtual CPUs count for, by the policies.
    :ivar largest_memory: the most which one node has for new instances; likewise ``largest_disk``.
    """

    score: float
    instances: int
    total_memory: float
    free_memory: int
    available_memory: int
    instance_memory: int
    own_memory: int
    unknown_memory: int
    total_disk: float
    free_disk: int
    available_disk: int
    total_cpus: float
    max_vcpus: int
    vcpus: int
    real_cpus: float
    total_spindles: int
    free_spindles: int
    largest_memory: int
    largest_disk: int

    @property
    def instance_disk(self) -> int:
        """Disk space which is in use."""
        return int(self.total_disk) - self.free_disk

    @property
    def instance_spindles(self) -> int:
        """Spindles which are in use."""
        return self.total_spindles - self.free_spindles


def figures(cluster: Cluster) -> Figures:
    """Sum up a cluster."""
    nodes = cluster.nodes

    def ratio(node: Node) -> float:
        return node.policy.vcpu_ratio if node.policy is not None else 1.0

    return Figures(
        score=score.score(nodes),
        instances=sum(len(node.real.primaries) for node in nodes),
        total_memory=sum(node.total_memory for node in nodes),
        free_memory=sum(node.unallocated_memory for node in nodes),
        available_memory=sum(node.available_memory for node in nodes),
        instance_memory=sum(node.instance_memory for node in nodes),
        own_memory=sum(node.own_memory for node in nodes),
        unknown_memory=sum(node.unaccounted_memory for node in nodes),
        total_disk=sum(node.total_disk for node in nodes),
        free_disk=sum(node.real.free_disk for node in nodes),
        available_disk=sum(node.available_disk for node in nodes),
        total_cpus=sum(node.total_cpus for node in nodes),
        max_vcpus=sum(node.max_vcpus for node in nodes),
        vcpus=sum(node.real.vcpus for node in nodes),
        real_cpus=sum(node.real.vcpus / ratio(node) for node in nodes),
        total_spindles=sum(node.total_spindles for node in nodes),
        free_spindles=sum(node.real.free_spindles for node in nodes),
        largest_memory=max((node.available_memory for node in nodes), default=0),
        largest_disk=max((node.available_disk for node in nodes), default=0),
    )


def shares(found: Figures) -> dict[str, float]:
    """Return the used shares of memory, disk space, virtual CPUs and spindles, by their keys."""
    return {
        "MEM_EFF": divide(found.instance_memory, found.total_memory),
        "DSK_EFF": divide(found.instance_disk, found.total_disk),
        "SPN_EFF": divide(found.instance_spindles, found.total_spindles),
        "CPU_EFF": divide(found.vcpus, found.max_vcpus),
    }
