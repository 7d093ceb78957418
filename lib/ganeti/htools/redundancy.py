"""Whether the cluster survives the loss of any one node, with everything that ran on it.

This is stronger than the memory reserved for mirrored instances: instances on shared storage must
find another node in their group, too, and instances on local disks must find capacity to be
installed again. Only hard limits count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti.htools import moves, score
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.limits import violates
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node


def can_be_emptied(nodes: Sequence[Node], instances: Sequence[Instance], lost: Node) -> bool:
    """Whether all primary instances of a node can run elsewhere."""
    if not lost.primaries:
        return True
    left = list(nodes)
    own = [instances[index] for index in lost.primaries]
    others: list[Instance] = []
    for instance in own:
        if not instance.mirrored or instance.secondary == NO_NODE:
            others.append(instance)
        elif not _move(left, instance, Move(Kind.FAILOVER)):
            return False
    escapes = [
        node.index for node in nodes if node.group == lost.group and node.index != lost.index
        and not node.offline
    ]  # fmt: skip
    for instance in others:
        if instance.shared_storage and not _move_to_best(left, instance, escapes):
            return False
    again = [one for one in others if not one.shared_storage]
    return all(_install_again(left, one, escapes) for one in sorted(again, key=lambda i: -i.memory))


def _move(nodes: list[Node], instance: Instance, move: Move) -> bool:
    done = moves.apply(nodes, instance, move, force=True)
    if isinstance(done, Fail):
        return False
    for node in done.nodes:
        nodes[node.index] = node
    return True


def _move_to_best(nodes: list[Node], instance: Instance, targets: Iterable[int]) -> bool:
    best: tuple[float, moves.Done] | None = None
    members = [node.index for node in nodes if node.group == nodes[instance.primary].group]
    for target in targets:
        done = moves.apply(nodes, instance, Move(Kind.FAILOVER_TO_ANY, target), force=True)
        if isinstance(done, Fail):
            continue
        changed = {node.index: node for node in done.nodes}
        value = score.score([changed.get(index) or nodes[index] for index in members])
        if best is None or value < best[0]:
            best = (value, done)
    if best is None:
        return False
    for node in best[1].nodes:
        nodes[node.index] = node
    return True


def _install_again(nodes: list[Node], instance: Instance, targets: Iterable[int]) -> bool:
    for target in targets:
        node = nodes[target].copy()
        if node.policy is not None and violates(
            instance, node.policy, exclusive=node.exclusive_storage
        ):
            continue
        if node.add_primary(moves.moved(instance, nodes, target, NO_NODE), force=True) is None:
            nodes[target] = node
            return True
    return False


def not_redundant(
    nodes: Sequence[Node], instances: Sequence[Instance], groups: Iterable[int] | None = None
) -> list[Node]:
    """The nodes which cannot be emptied.

    :param groups: look at these groups only; None for all.
    """
    wanted = None if groups is None else set(groups)
    return [
        node
        for node in nodes
        if (wanted is None or node.group in wanted) and not can_be_emptied(nodes, instances, node)
    ]


def is_redundant(
    nodes: Sequence[Node], instances: Sequence[Instance], groups: Iterable[int] | None = None
) -> bool:
    """Whether every node of the groups can be emptied."""
    wanted = None if groups is None else set(groups)
    return all(
        can_be_emptied(nodes, instances, node)
        for node in nodes
        if wanted is None or node.group in wanted
    )
