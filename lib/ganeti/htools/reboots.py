"""Planning reboots: groups of nodes which can be rebooted together, without stopping instances.

Two nodes may not be rebooted together when one is primary and the other one secondary node of an
instance, or when instances of both would be migrated to the same secondary node. This is a graph,
and its colours are the groups. Instances without a secondary node must be moved away first, so a
group is split until they find capacity on the nodes which stay.

Source: manual page **hroller**.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ganeti import errors
from ganeti.htools import moves
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.node import Node

Graph = dict[int, list[int]]


class CapacityError(errors.GenericError):
    """The instances of a node find no capacity on the nodes which stay."""


@dataclass(frozen=True, slots=True)
class Options:
    """How reboots are planned.

    :ivar offline: instances are stopped during the maintenance, and not migrated.
    :ivar evacuate: no replica may stay on a node that is rebooted.
    :ivar ignore_non_redundant: instances without a secondary node stay where they are.
    """

    offline: bool = False
    evacuate: bool = False
    ignore_non_redundant: bool = False


@dataclass(slots=True)
class Step:
    """Nodes which are rebooted together.

    :ivar moved: the instances which must be moved away first, on their new nodes.
    """

    nodes: list[Node]
    moved: list[Instance] = field(default_factory=list)


def graph(cluster: Cluster, chosen: Iterable[Node], *, offline: bool) -> Graph:
    """Return which of the chosen nodes may not be rebooted together.

    :returns: for each node its neighbours, once for each instance which they share; a node is its
        own neighbour when others keep replicas of its instances.
    """
    found: Graph = {node.index: [] for node in chosen}
    for instance in cluster.instances:
        one, other = instance.primary, instance.secondary
        if one in found and other in found:
            found[one].append(other)
            found[other].append(one)
    if offline:
        return found
    for node in cluster.nodes:
        # The published listing of the graph has the edges in this order.
        users = [cluster.instances[index].primary for index in node.real.secondaries]
        users = [one for one in dict.fromkeys(users) if one in found]
        for one in users:
            found[one] += [other for other in users if other not in found[one]]
    return found


def _greedy(edges: Graph, choose: Callable[[dict[int, int]], int]) -> dict[int, int]:
    """Colour one node after the other with the first colour that no neighbour has."""
    colours: dict[int, int] = {}
    while len(colours) < len(edges):
        node = choose(colours)
        taken = {colours[other] for other in edges[node] if other in colours}
        colours[node] = next(number for number in range(len(edges)) if number not in taken)
    return colours


def colourings(edges: Graph) -> dict[str, list[list[int]]]:
    """Divide a graph into groups without edges between their nodes, in three ways.

    :returns: published name of the way -> groups of nodes. *LF* takes the nodes with most edges
        first, *Dsatur* those whose neighbours have most colours, *Dcolor* those with most coloured
        neighbours.
    """

    def coloured(node: int, colours: dict[int, int]) -> list[int]:
        return [colours[other] for other in edges[node] if other in colours]

    ways: dict[str, Callable[[int, dict[int, int]], int]] = {
        "LF": lambda node, colours: 0,
        "Dsatur": lambda node, colours: len(set(coloured(node, colours))),
        "Dcolor": lambda node, colours: len(coloured(node, colours)),
    }

    def chooser(way: Callable[[int, dict[int, int]], int]) -> Callable[[dict[int, int]], int]:
        def choose(colours: dict[int, int]) -> int:
            left = [node for node in edges if node not in colours]
            return max(left, key=lambda node: (way(node, colours), len(edges[node]), node))

        return choose

    return {name: _groups(_greedy(edges, chooser(way))) for name, way in ways.items()}


def _groups(colours: dict[int, int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for node in sorted(colours):
        groups.setdefault(colours[node], []).append(node)
    return [groups[number] for number in sorted(groups)]


def colour(edges: Graph) -> list[list[int]]:
    """Divide a graph into few groups without edges between their nodes."""
    return min(colourings(edges).values(), key=len)


def plan(cluster: Cluster, chosen: Sequence[Node], options: Options) -> list[Step]:
    """Plan the reboots of the chosen nodes; the cluster is not changed.

    The largest groups come first; the group of the master node is the last one, and the master node
    the last in it.

    :raises CapacityError: the instances of a node cannot be moved away.
    """
    steps: list[Step] = []
    for group in colour(graph(cluster, chosen, offline=options.offline)):
        waiting = list(group)
        while waiting:
            part, waiting = _first_step(cluster, waiting, options)
            steps.append(part)
    for part in steps:
        part.nodes.sort(key=lambda node: (node.master, node.index))
        last = {one.index: one for one in part.moved}
        part.moved = sorted(last.values(), key=lambda one: one.index)
    steps.sort(key=lambda one: (any(node.master for node in one.nodes), -len(one.nodes)))
    return steps


@dataclass(slots=True)
class _State:
    """The cluster while nodes are emptied."""

    nodes: list[Node]
    instances: list[Instance]

    def copy(self) -> _State:
        return _State(list(self.nodes), list(self.instances))


def _first_step(cluster: Cluster, group: Sequence[int], options: Options) -> tuple[Step, list[int]]:
    """As many nodes of a group as can be emptied together, and the rest."""
    part = Step([])
    left: list[int] = []
    state = _State(list(cluster.nodes), list(cluster.instances))
    for number in group:
        after = state.copy()
        gone = {number, *(node.index for node in part.nodes)}
        moved = _empty(after, number, gone, options)
        if moved is None:
            left.append(number)
            continue
        state = after
        part.nodes.append(cluster.nodes[number])
        part.moved += moved
    if not part.nodes:
        kind = "" if options.evacuate else "non-redundant "
        raise CapacityError(f"Not enough capacity to move {kind}instances")
    directly = _together(cluster, part.nodes, options)
    if directly is not None:
        part.moved = directly
    return part, left


def _together(cluster: Cluster, nodes: Sequence[Node], options: Options) -> list[Instance] | None:
    """Empty nodes without moving an instance from one of them to another; None if not possible."""
    state = _State(list(cluster.nodes), list(cluster.instances))
    gone = {node.index for node in nodes}
    moved: list[Instance] = []
    for node in nodes:
        found = _empty(state, node.index, gone, options)
        if found is None:
            return None
        moved += found
    return moved


def _empty(state: _State, number: int, gone: set[int], options: Options) -> list[Instance] | None:
    """Move away what a node must lose; None when that is not possible. Changes the state.

    What came to the node from one that is emptied, too, moves on. Where space is scarce, the order
    decides who gets it: instances without a replica first, then mirrored primary instances from the
    oldest one, then replicas.
    """
    moved: list[Instance] = []
    node = state.nodes[number]
    instances = state.instances
    single = [one for one in node.real.primaries if instances[one].secondary == NO_NODE]
    mirrored = [one for one in reversed(node.real.primaries) if instances[one].secondary != NO_NODE]
    replicas = node.real.secondaries if options.evacuate else ()
    for index in (*single, *mirrored, *replicas):
        instance = state.instances[index]
        places: list[tuple[int, int]] = []
        if instance.secondary == NO_NODE:
            if options.ignore_non_redundant:
                continue
            places = [(target, NO_NODE) for target in _targets(state.nodes, node.group, gone)]
        elif options.evacuate:
            stays = instance.secondary if instance.primary == number else instance.primary
            targets = _targets(state.nodes, node.group, gone | {stays})
            places = [(stays, target) for target in targets]
        else:
            continue
        found = (_to(state.nodes, instance, *place) for place in places)
        new = next((one for one in found if one is not None), None)
        if new is None:
            return None
        state.instances[index] = new
        moved.append(new)
    return moved


def _targets(nodes: Sequence[Node], group: int, gone: set[int]) -> list[int]:
    return [
        node.index
        for node in nodes
        if node.group == group and not node.offline and node.index not in gone
    ]


def _to(nodes: list[Node], instance: Instance, primary: int, secondary: int) -> Instance | None:
    """Move an instance to other nodes; None when it does not fit. Changes the list of nodes.

    Only hard limits count, because instances come back after the reboot.
    """
    after = list(nodes)

    def change(index: int) -> Node:
        after[index] = after[index].copy()
        return after[index]

    new = moves.moved(instance, nodes, primary, secondary)
    change(instance.primary).remove_primary(instance)
    if instance.secondary != NO_NODE:
        change(instance.secondary).remove_secondary(instance)
    if change(primary).add_primary(new, force=True) is not None:
        return None
    second = None if secondary == NO_NODE else change(secondary)
    if second is not None and second.add_secondary(new, primary, force=True) is not None:
        return None
    nodes[:] = after
    return new
