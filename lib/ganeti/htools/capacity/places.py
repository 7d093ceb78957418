"""Which places of a cluster may be filled with new instances, and what these are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ganeti.htools import redundancy, units
from ganeti.htools.cluster import UNALLOCABLE, Cluster
from ganeti.htools.instance import NO_NODE, Disk, Instance, Size
from ganeti.htools.node import Node
from ganeti.htools.policy import Spec
from ganeti.objects import disk_templates
from ganeti.utils.records import record

Place = tuple[int, int]


@record(frozen=True, slots=True)
class Options:
    """How groups which already cannot survive the loss of a node count.

    :ivar independent: leave them out, and fill the other groups.
    :ivar accept_existing: fill them, too, but add no new nodes which cannot be lost.
    :ivar capacity_checks: whether the cluster must survive the loss of any node afterwards.
    :ivar ranking: whether the score of a pair may be put together from the roles of both nodes;
        otherwise every pair is tried by itself.
    """

    independent: bool = False
    accept_existing: bool = False
    capacity_checks: bool = True
    ranking: bool = True


@record(slots=True)
class Plan:
    """Which places of a cluster may be filled, see :func:`plan`.

    :ivar bad_nodes: nodes which could not start the instances of another node.
    :ivar nodes: all nodes; ``members`` the numbers of those which may be primary nodes.
    :ivar required: how many nodes an instance has.
    :ivar refused: nothing may be placed, because there are bad nodes.
    :ivar checked: numbers of the groups which must survive the loss of a node afterwards; None
        for all.
    """

    bad_nodes: list[Node]
    nodes: Sequence[Node]
    members: list[int]
    required: int
    refused: bool
    checked: Collection[int] | None
    options: Options

    @property
    def places(self) -> Iterator[Place]:
        """Primary and secondary nodes to try, in this order."""
        for first in self.members:
            if self.required == 1:
                yield first, NO_NODE
                continue
            group = self.nodes[first].group
            for second in self.members:
                if second != first and self.nodes[second].group == group:
                    yield first, second


def required_nodes(template: str) -> int:
    """Return how many nodes an instance with a disk template has."""
    return 2 if template in disk_templates.INT_MIRRORED else 1


def bad_groups(cluster: Cluster, options: Options) -> list[int]:
    """Return the numbers of the groups which do not survive the loss of one of their nodes."""
    checker = redundancy.Checker(online_only=options.accept_existing)
    bad = {node.group for node in checker.lost(cluster.nodes, cluster.instances)}
    bad.update(node.group for node in cluster.nodes if node.failing and not node.offline)
    return [group.index for group in cluster.groups if group.index in bad]


def plan(cluster: Cluster, template: str, options: Options) -> Plan:
    """Find the places which may be filled.

    :raises NoNodesError: there are none; raised unless bad nodes are the reason.
    """
    bad_nodes = [node for node in cluster.nodes if node.failing and not node.offline]
    touched = {node.group for node in bad_nodes}
    bad = set(bad_groups(cluster, options)) if options.independent else set()
    left_out = bad if options.independent else set() if options.accept_existing else touched
    usable = [
        node
        for node in cluster.nodes
        if not node.offline
        and node.group not in left_out
        and cluster.groups[node.group].alloc_policy != UNALLOCABLE
    ]
    required = required_nodes(template)
    sizes = Counter(node.group for node in usable)
    all_groups = {node.group for node in cluster.nodes}
    ignored = bad if options.independent else touched if options.accept_existing else set()
    refused = bool(touched) and not options.accept_existing
    if options.independent:
        refused = refused and touched == all_groups
    return Plan(
        bad_nodes=bad_nodes,
        nodes=cluster.nodes,
        members=[node.index for node in usable if sizes[node.group] >= required],
        required=required,
        refused=refused,
        checked=all_groups - ignored if ignored else None,
        options=options,
    )


def new_instance(spec: Spec, template: str, cluster: Cluster, *, spindle_use: int = 1) -> Instance:
    """Make an instance of a size which can be placed.

    :param spindle_use: how much it uses the spindles of nodes which instances share. The size says
        how many spindles it needs of nodes with exclusive storage.
    """
    disks = (Disk(spec.disk_size, spec.spindle_use),)
    size = Size(spec.memory, spec.disk_size, spec.cpus, disks, spindle_use)
    instance = Instance("new", size, template)
    known = (wanted for node in cluster.nodes if not node.offline for wanted in node.storage or ())
    units.derive_for(instance, known)
    return instance
