"""Placing equal instances, one after the other, until there is no place for another one."""

from __future__ import annotations

from itertools import groupby

from ganeti.htools.capacity.filler import Filler
from ganeti.htools.capacity.places import Plan, required_nodes
from ganeti.htools.cluster import Cluster, NoNodesError
from ganeti.htools.instance import Instance
from ganeti.htools.node import Fail
from ganeti.utils.records import field, record


@record(slots=True)
class Filled:
    """A cluster after new instances were placed until no place was left.

    :ivar placed: the new instances, in the order in which they were placed.
    :ivar failures: why there is no place for one more; reason -> number of places.
    :ivar refused: nothing was tried, see :class:`Plan`.
    """

    cluster: Cluster
    placed: list[Instance] = field(default_factory=list)
    failures: dict[Fail, int] = field(default_factory=dict)
    refused: bool = False

    def reasons(self) -> list[tuple[Fail, int]]:
        """Return all reasons, the most frequent first; only one when places were not even tried."""
        if self.refused:
            return list(self.failures.items())
        counts = [(fail, self.failures.get(fail, 0)) for fail in Fail]
        return sorted(counts, key=lambda item: -item[1])

    def sizes(self) -> list[tuple[Instance, int]]:
        """Return the sizes of the new instances in order, each with how many of it follow each
        other.
        """
        return [
            (group[0], len(group))
            for group in (list(some) for _, some in groupby(self.placed, key=_size))
        ]


def _size(instance: Instance) -> tuple[int, int, int, int]:
    return (instance.memory, instance.disk, instance.vcpus, instance.spindles or 0)


def fill(cluster: Cluster, plan_: Plan, instance: Instance, *, limit: int | None = None) -> Filled:
    """Place equal instances until there is no place for another one.

    :param limit: the most instances; None for no limit.
    :raises NoNodesError: there are no places to try.
    """
    if plan_.refused:
        return Filled(cluster, failures={Fail.N1: 1}, refused=True)
    result = Filled(cluster)
    require_places(plan_, instance)
    filler = Filler(cluster, plan_, len(cluster.instances))
    place_all(filler, result, instance, limit)
    result.cluster = filler.cluster
    return result


def require_places(plan_: Plan, instance: Instance) -> None:
    if not plan_.members:
        required = required_nodes(instance.template)
        raise NoNodesError("Not enough online nodes" if required > 1 else "No online nodes")


def place_all(filler: Filler, result: Filled, instance: Instance, limit: int | None) -> None:
    while True:
        # At the limit, too: the failures say which places are lost for one more.
        full = limit is not None and len(result.placed) >= limit
        found = filler.attempt(instance, count=full)
        result.failures = found.failures
        if found.best is None or full:
            return
        result.placed.append(filler.put(instance, found.best))
