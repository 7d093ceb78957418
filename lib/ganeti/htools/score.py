"""The score of a cluster: how far it is from being balanced; lower is better.

It is a weighted sum of components (manual page **hbal**). Most components are the population
standard deviation of a value over all online nodes; others count what should not be. The sums are
made in a fixed order, node by node, so that equal clusters have equal scores to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ganeti.htools.node import Node, divide


class Component(NamedTuple):
    """One component of the score."""

    name: str
    weight: float
    #: ``deviation`` or ``sum`` over online nodes, ``offline`` for the sum over offline nodes, or
    #: ``pairs`` for the map of location and exclusion tags.
    kind: str
    value: Callable[[Node], float]


def _instances(node: Node) -> int:
    return len(node.primaries) + len(node.secondaries)


def _failing(node: Node) -> int:
    return _instances(node) if node.failing else 0


def _pairs(node: Node) -> int:
    return sum(node.location_pairs.values())


COMPONENTS: tuple[Component, ...] = (
    Component("free_mem_cv", 0.5, "deviation", lambda n: n.memory_ratio),
    Component("free_disk_cv", 0.5, "deviation", lambda n: n.disk_ratio),
    Component("n1_cnt", 1, "sum", _failing),
    Component("reserved_mem_cv", 1, "deviation", lambda n: n.reserved_ratio),
    Component("offline_all_cnt", 4, "offline", _instances),
    Component("offline_pri_cnt", 16, "offline", lambda n: len(n.primaries)),
    Component("vcpu_ratio_cv", 0.5, "deviation", lambda n: n.vcpu_ratio / n.cpu_speed),
    Component("cpu_load_cv", 1, "deviation", lambda n: divide(n.load.cpu, n.pool.cpu)),
    Component("mem_load_cv", 1, "deviation", lambda n: divide(n.load.memory, n.pool.memory)),
    Component("disk_load_cv", 1, "deviation", lambda n: divide(n.load.disk, n.pool.disk)),
    Component("net_load_cv", 1, "deviation", lambda n: divide(n.load.net, n.pool.net)),
    Component("pri_tags_score", 2, "sum", lambda n: n.conflicting_tags),
    Component(
        "spindles_cv", 0.5, "deviation", lambda n: divide(n.instance_spindles, n.max_spindles)
    ),
    Component("free_mem_cv_forth", 0.5, "deviation", lambda n: n.memory_ratio_forth),
    Component("free_disk_cv_forth", 0.5, "deviation", lambda n: n.disk_ratio_forth),
    Component("vcpu_ratio_cv_forth", 0.5, "deviation", lambda n: n.vcpu_ratio_forth / n.cpu_speed),
    Component(
        "spindles_cv_forth",
        0.5,
        "deviation",
        lambda n: divide(n.instance_spindles_forth, n.max_spindles),
    ),
    Component("location_score", 1, "sum", lambda n: n.location_score),
    Component("location_exclusion_score", 1, "pairs", _pairs),
    Component("reserved_mem_rtotal", 0.25, "sum", lambda n: n.reserved_ratio),
)

#: Position of the component whose value depends on storage units, see :func:`unit_deviation`.
FREE_DISK = 1


def deviation(values: Sequence[float]) -> float:
    """The population standard deviation."""
    count = len(values)
    if not count:
        return 0.0
    total = 0.0
    for value in values:
        total += value
    mean = total / count
    squares = 0.0
    for value in values:
        squares += (value - mean) * (value - mean)
    return math.sqrt(squares / count)


def unit_deviation(nodes: Iterable[Node]) -> float:
    """The mean over all desired storage units of the deviation of their free shares.

    Nodes without a desired storage unit do not count for it. Source: *HTools support for multiple
    storage units per node*, section *Balancing*.
    """
    shares: dict[tuple[str, str], list[float]] = {}
    for node in nodes:
        for wanted, unit in (node.storage or {}).items():
            shares.setdefault(wanted, []).append(unit.free / unit.total if unit.total else 1.0)
    if not shares:
        return 0.0
    return sum(deviation(values) for values in shares.values()) / len(shares)


def has_units(nodes: Iterable[Node]) -> bool:
    """Whether storage units are known of all these nodes."""
    found = False
    for node in nodes:
        if node.storage is None:
            return False
        found = True
    return found


def details(nodes: Sequence[Node]) -> list[float]:
    """The values of all components, without their weights, in their order."""
    online = [node for node in nodes if not node.offline]
    offline = [node for node in nodes if node.offline]
    if not online:
        return [0.0] * len(COMPONENTS)
    found: list[float] = []
    for component in COMPONENTS:
        value = component.value
        if component.kind == "deviation":
            if component.name == "free_disk_cv" and has_units(online):
                found.append(unit_deviation(online))
            else:
                found.append(deviation([value(node) for node in online]))
        elif component.kind == "pairs":
            distinct = {pair for node in online for pair in node.location_pairs}
            found.append(float(sum(value(node) for node in online) - len(distinct)))
        else:
            total = 0.0
            for node in offline if component.kind == "offline" else online:
                total += value(node)
            found.append(total)
    return found


def total(values: Sequence[float]) -> float:
    """The score from the values of the components."""
    result = 0.0
    for component, value in zip(COMPONENTS, values, strict=True):
        result += component.weight * value
    return result


def score(nodes: Sequence[Node]) -> float:
    """The score of a cluster."""
    return total(details(nodes))


def optimal_offset(nodes: Sequence[Node]) -> float:
    """How far the score must stay above zero, because memory is reserved for the loss of a node."""
    if len(nodes) <= 1:
        return 0.0
    peers = float(sum(sum(node.peers.values()) for node in nodes))
    memory = sum(node.total_memory for node in nodes)
    largest = max(node.total_memory for node in nodes)
    return 0.25 * (divide(peers, memory - largest) - divide(peers, memory))
