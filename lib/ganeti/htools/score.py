"""The score of a cluster: how far it is from being balanced; lower is better.

It is a weighted sum of components (manual page **hbal**). Most components are the population
standard deviation of a value over all online nodes; others count what should not be. The sums are
made in a fixed order, node by node, so that equal clusters have equal scores to the last bit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from ganeti.htools.instance import UNIT_LOAD
from ganeti.htools.node import Node, divide
from ganeti.htools.space import StorageUnit
from ganeti.utils.records import NamedTuple


class Component(NamedTuple):
    """One component of the score.

    :ivar kind: ``deviation`` or ``sum`` over online nodes, ``offline`` for the sum over offline
        nodes, or ``pairs`` for the map of location and exclusion tags.
    """

    name: str
    weight: float
    kind: str


COMPONENTS: tuple[Component, ...] = (
    Component("free_mem_cv", 0.5, "deviation"),
    Component("free_disk_cv", 0.5, "deviation"),
    Component("n1_cnt", 1, "sum"),
    Component("reserved_mem_cv", 1, "deviation"),
    Component("offline_all_cnt", 4, "offline"),
    Component("offline_pri_cnt", 16, "offline"),
    Component("vcpu_ratio_cv", 0.5, "deviation"),
    Component("cpu_load_cv", 1, "deviation"),
    Component("mem_load_cv", 1, "deviation"),
    Component("disk_load_cv", 1, "deviation"),
    Component("net_load_cv", 1, "deviation"),
    Component("pri_tags_score", 2, "sum"),
    Component("spindles_cv", 0.5, "deviation"),
    Component("free_mem_cv_forth", 0.5, "deviation"),
    Component("free_disk_cv_forth", 0.5, "deviation"),
    Component("vcpu_ratio_cv_forth", 0.5, "deviation"),
    Component("spindles_cv_forth", 0.5, "deviation"),
    Component("location_score", 1, "sum"),
    Component("location_exclusion_score", 1, "pairs"),
    Component("reserved_mem_rtotal", 0.25, "sum"),
)


def node_values(node: Node) -> list[float]:
    """Return the values of a node in all components, in their order.

    Components over online nodes are zero for an offline node, and the other way round.
    """
    primaries = len(node.real.primaries) + node.outside.primaries
    instances = primaries + len(node.real.secondaries) + node.outside.secondaries
    if node.offline:
        values = [0.0] * len(COMPONENTS)
        values[4], values[5] = float(instances), float(primaries)
        return values
    speed, spindles = node.cpu_speed, node.max_spindles
    reserved = node.reserved_ratio
    if node.pool is UNIT_LOAD:
        cpu, memory, disk, net = node.load
    else:
        cpu, memory, disk, net = map(divide, node.load, node.pool)
    # Without forthcoming instances both values are equal; this is computed for every candidate.
    free_disk, vcpus, use = node.disk_ratio, node.vcpu_ratio / speed, node.real.spindles
    use_ratio = divide(use, spindles)
    free_disk_forth, vcpus_forth, use_ratio_forth = free_disk, vcpus, use_ratio
    if node.forth is not node.real:
        free_disk_forth, vcpus_forth = node.disk_ratio_forth, node.vcpu_ratio_forth / speed
        use_ratio_forth = divide(node.forth.spindles, spindles)
    return [
        node.memory_ratio,
        free_disk,
        float(instances) if node.failing else 0.0,
        reserved,
        0.0,
        0.0,
        vcpus,
        cpu,
        memory,
        disk,
        net,
        float(node.conflicting_tags) if node.primary_tags else 0.0,
        use_ratio,
        node.memory_ratio_forth,
        free_disk_forth,
        vcpus_forth,
        use_ratio_forth,
        float(node.location_score),
        float(sum(node.location_pairs.values())) if node.location_pairs else 0.0,
        reserved,
    ]


#: Position of the component whose value depends on storage units, see :func:`unit_deviation`.
FREE_DISK = 1


if sys.version_info < (3, 12):

    def plain_sum(values: Iterable[float]) -> float:
        """Return the sum of some numbers, added one after the other."""
        return sum(values, 0.0)

else:
    # There :func:`sum` compensates for what rounding loses, so that the last bits differ.
    import functools
    import operator

    def plain_sum(values: Iterable[float]) -> float:
        """Return the sum of some numbers, added one after the other."""
        return functools.reduce(operator.add, values, 0.0)


def deviation(values: Sequence[float]) -> float:
    """Return the population standard deviation."""
    count = len(values)
    if not count:
        return 0.0
    mean = plain_sum(values) / count
    squares = plain_sum([(value - mean) * (value - mean) for value in values])
    return math.sqrt(squares / count)


def unit_share(unit: StorageUnit) -> float:
    """Return the free share of a storage unit."""
    return unit.free / unit.total if unit.total else 1.0


def wanted_units(nodes: Iterable[Node]) -> list[tuple[str, str]]:
    """Return the desired storage units which some of these nodes have."""
    return list(dict.fromkeys(wanted for node in nodes for wanted in node.storage or ()))


def unit_deviation(nodes: Iterable[Node]) -> float:
    """Return the mean over all desired storage units of the deviation of their free shares.

    Nodes without a desired storage unit do not count for it. Source: *HTools support for multiple
    storage units per node*, section *Balancing*.
    """
    shares: dict[tuple[str, str], list[float]] = {}
    for node in nodes:
        for wanted, unit in (node.storage or {}).items():
            shares.setdefault(wanted, []).append(unit_share(unit))
    if not shares:
        return 0.0
    return sum(deviation(values) for values in shares.values()) / len(shares)


def has_units(nodes: Iterable[Node]) -> bool:
    """Return True if storage units are known of all these nodes."""
    found = False
    for node in nodes:
        if node.storage is None:
            return False
        found = True
    return found


def details(nodes: Sequence[Node]) -> list[float]:
    """Return the values of all components, without their weights, in their order."""
    online = [node for node in nodes if not node.offline]
    offline = [node for node in nodes if node.offline]
    if not online:
        return [0.0] * len(COMPONENTS)
    rows = [node_values(node) for node in online]
    off_rows = [node_values(node) for node in offline]
    found: list[float] = []
    for c, component in enumerate(COMPONENTS):
        if component.kind == "deviation":
            if c == FREE_DISK and has_units(online):
                found.append(unit_deviation(online))
            else:
                found.append(deviation([row[c] for row in rows]))
        elif component.kind == "pairs":
            distinct = {pair for node in online for pair in node.location_pairs}
            found.append(sum(row[c] for row in rows) - len(distinct))
        else:
            counted = off_rows if component.kind == "offline" else rows
            found.append(plain_sum([row[c] for row in counted]))
    return found


def total(values: Sequence[float]) -> float:
    """Return the score from the values of the components."""
    result = 0.0
    for component, value in zip(COMPONENTS, values, strict=True):
        result += component.weight * value
    return result


def score(nodes: Sequence[Node]) -> float:
    """Return the score of a cluster."""
    return total(details(nodes))


def optimal_offset(nodes: Sequence[Node]) -> float:
    """Return how far the score must stay above zero, because memory is reserved for the loss of a
    node; 0 while less than two nodes have memory that is known.
    """
    peers = float(sum(sum(node.peers.values()) for node in nodes))
    memory = sum(node.total_memory for node in nodes)
    largest = max((node.total_memory for node in nodes), default=0.0)
    if memory <= largest:
        return 0.0
    return 0.25 * (divide(peers, memory - largest) - divide(peers, memory))
