"""Which nodes of a cluster are not needed, and which ones are needed again.

Source: manual page **hsqueeze**.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ganeti.constants.disk import DISKLESS
from ganeti.htools import balance
from ganeti.htools import tags as htags
from ganeti.htools.balance import Step
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE, Instance, Size
from ganeti.htools.moves import moved
from ganeti.htools.node import Node


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    :ivar online: the nodes are to be switched on; otherwise they are to be switched off.
    :ivar nodes: these nodes; empty for no action, or when there are no nodes to switch on.
    :ivar steps: the moves of instances which belong to it.
    :ivar cluster: the cluster afterwards.
    :ivar enough: afterwards every node has the wanted capacity; False only when all nodes on
        standby do not suffice.
    """

    online: bool
    nodes: list[Node]
    steps: list[Step]
    cluster: Cluster
    enough: bool = True


def may_go(cluster: Cluster) -> list[Node]:
    """Return the nodes which may be switched off, those with most primary instances first."""
    found = [
        node
        for node in cluster.nodes
        if not node.offline
        and not node.master
        and not node.real.secondaries
        and all(cluster.instances[index].starts_anywhere for index in node.real.primaries)
    ]
    return sorted(found, key=lambda node: -len(node.real.primaries))


def on_standby(cluster: Cluster) -> list[Node]:
    """Return the nodes which may be switched on."""
    return [
        node
        for node in cluster.nodes
        if node.offline and any(tag.startswith(htags.STANDBY) for tag in node.tags)
    ]


def plan(cluster: Cluster, *, minimal: float, target: float) -> Plan:
    """Decide what to do; the cluster is not changed.

    :param minimal: nodes are switched on when not every node has capacity for one more instance of
        the standard size multiplied by this factor.
    :param target: nodes are switched off as long as every other node keeps such a capacity.
    """
    chosen: list[Node] = []
    steps: list[Step] = []
    after = cluster
    # The original looks at offline nodes here, too: their memory is not known and counts as zero,
    # so that it wants nodes to be switched on whenever one is really offline.
    if not _have_capacity(cluster, minimal):
        # Without further nodes, balancing is all that can be done.
        _, after, steps = _served(cluster, minimal)
        enough = False
        for node in on_standby(cluster):
            chosen.append(node)
            enough, after, steps = _served(_switched(cluster, chosen, offline=False), minimal)
            if enough:
                break
        return Plan(True, chosen, steps, after, enough)
    for node in reversed(may_go(cluster)):
        enough, now, found = _served(_switched(cluster, [*chosen, node], offline=True), target)
        if enough:
            chosen.append(node)
            steps, after = found, now
    return Plan(False, sorted(chosen, key=lambda node: node.index), steps, after)


def _switched(cluster: Cluster, chosen: Iterable[Node], *, offline: bool) -> Cluster:
    new = cluster.copy()
    for node in chosen:
        changed = node.copy()
        changed.offline = offline
        new.nodes[node.index] = changed
    return new


def _served(cluster: Cluster, factor: float) -> tuple[bool, Cluster, list[Step]]:
    """Balance a cluster.

    :returns: whether every online node then has capacity for a larger standard instance, the
        cluster, and the steps.
    """
    state = balance.start(cluster)
    steps = list(balance.run(state, balance.Options(min_gain=0.0)))
    after = cluster.copy()
    after.nodes, after.instances = state.nodes, state.instances
    if any(node.offline and (node.real.primaries or node.real.secondaries) for node in after.nodes):
        return False, after, steps
    return _have_capacity(after, factor), after, steps


def _have_capacity(cluster: Cluster, factor: float) -> bool:
    """Return True if every online node can take an instance of `factor` times the standard size."""
    standard = cluster.policy.standard
    more = Instance(
        "new",
        Size(
            memory=int(factor * standard.memory),
            disk=0,
            vcpus=int(factor * standard.cpus),
            spindle_use=int(factor * standard.spindle_use),
        ),
        DISKLESS,
    )
    return all(
        node.copy().add_primary(moved(more, cluster.nodes, node.index, NO_NODE)) is None
        for node in cluster.nodes
        if not node.offline
    )
