"""Moving instances away from their nodes or groups, for allocator requests.

Each instance gets a list of moves, and after it the next one is looked at in the changed cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence

from ganeti import errors
from ganeti.htools import moves, place, score
from ganeti.htools.cluster import UNALLOCABLE, Cluster, Group, NoNodesError
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import field, record


class Mode(enum.Enum):
    """What of an instance moves."""

    PRIMARY = "primary-only"
    SECONDARY = "secondary-only"
    ALL = "all"


class CannotMoveError(errors.GenericError):
    """An instance cannot be moved."""


@record(slots=True)
class Solution:
    """The result for several instances.

    :ivar moved: number of the instance, number of its group, and its moves.
    :ivar failed: number of the instance, and the reason.
    """

    cluster: Cluster
    moved: list[tuple[int, int, list[Move]]] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)


def _take(cluster: Cluster, done: moves.Done) -> None:
    for node in done.nodes:
        cluster.nodes[node.index] = node
    cluster.instances[done.instance.index] = done.instance


def _group_score(nodes: Sequence[Node], members: Iterable[int], changed: moves.Done) -> float:
    new = {node.index: node for node in changed.nodes}
    return score.score([new.get(index) or nodes[index] for index in members])


def _best(
    cluster: Cluster, instance: Instance, kind: Kind, targets: Sequence[int], *, force: bool
) -> tuple[Move, moves.Done]:
    nodes = cluster.nodes
    group = nodes[targets[0]].group if targets else -1
    members = [node.index for node in nodes if node.group == group]
    found: tuple[float, Move, moves.Done] | None = None
    failures = ""
    for target in targets:
        move = Move(kind, target)
        done = moves.apply(nodes, instance, move, force=force)
        if isinstance(done, Fail):
            failures += f" Node {nodes[target].name} failed: {done.value};"
            continue
        value = _group_score(nodes, members, done)
        # Of equal nodes the last one is taken.
        if found is None or value <= found[0]:
            found = (value, move, done)
    if found is None:
        raise CannotMoveError(f"Can't find any good node: {failures}")
    return found[1], found[2]


def one(
    cluster: Cluster,
    instance: Instance,
    mode: Mode,
    targets: Sequence[int],
    *,
    ignore_soft_errors: bool = False,
) -> tuple[Cluster, list[Move]]:
    """Move one instance; the cluster is not changed.

    :param targets: numbers of the nodes it may move to.
    :returns: the changed cluster and the moves.
    :raises CannotMoveError: it cannot be moved, with the reason.
    """
    after = cluster.copy()
    if instance.starts_anywhere:
        if mode is Mode.SECONDARY:
            raise CannotMoveError(
                f"Instances with disk template '{instance.template}' can't execute change secondary"
            )
        move, done = _best(after, instance, Kind.FAILOVER_TO_ANY, targets, force=ignore_soft_errors)
        _take(after, done)
        return after, [move]
    if not instance.mirrored:
        raise CannotMoveError(f"Instances of type {instance.template} cannot be relocated")
    if mode is Mode.PRIMARY:
        failover = moves.apply(after.nodes, instance, Move(Kind.FAILOVER), force=ignore_soft_errors)
        if isinstance(failover, Fail):
            raise CannotMoveError(f"Can't failover to secondary: {failover.value}")
        _take(after, failover)
        return after, [Move(Kind.FAILOVER)]
    if mode is Mode.SECONDARY:
        move, done = _best(
            after, instance, Kind.REPLACE_SECONDARY, targets, force=ignore_soft_errors
        )
        _take(after, done)
        return after, [move]
    return _both(after, instance, targets, force=ignore_soft_errors)


def _both(
    cluster: Cluster, instance: Instance, targets: Sequence[int], *, force: bool
) -> tuple[Cluster, list[Move]]:
    """Move both disks of a mirrored instance."""
    best: tuple[float, Cluster, list[Move]] | None = None
    failure = "no nodes available"
    group = cluster.nodes[targets[0]].group if targets else -1
    members = [node.index for node in cluster.nodes if node.group == group]
    for first in targets:
        for second in targets:
            if first == second:
                continue
            try:
                after, steps = _through(cluster, instance, first, second, force=force)
            except CannotMoveError as err:
                failure = str(err)
                continue
            value = score.score([after.nodes[index] for index in members])
            # Of equal pairs the last one is taken.
            if best is None or value <= best[0]:
                best = (value, after, steps)
    if best is None:
        raise CannotMoveError(f"Can't find any good nodes for relocation: {failure}")
    return best[1], best[2]


def _through(
    cluster: Cluster, instance: Instance, first: int, second: int, *, force: bool
) -> tuple[Cluster, list[Move]]:
    after = cluster.copy()
    steps: list[Move] = []
    if cluster.nodes[instance.primary].offline:
        # Its data is on the secondary node only, so it must run there first.
        steps.append(Move(Kind.FAILOVER))
    steps += [
        Move(Kind.REPLACE_SECONDARY, first),
        Move(Kind.FAILOVER),
        Move(Kind.REPLACE_SECONDARY, second),
    ]
    names = {
        0: "Changing secondary to new primary",
        1: "Failing over to new primary",
        2: "Changing secondary to final secondary",
    }
    shift = len(steps) - len(names)
    for position, move in enumerate(steps):
        done = moves.apply(after.nodes, after.instances[instance.index], move, force=force)
        if isinstance(done, Fail):
            name = names.get(position - shift, "Failing over to the secondary")
            raise CannotMoveError(f"Allocation failed: {name}: {done.value}")
        _take(after, done)
    return after, steps


def _available(cluster: Cluster, group: int, excluded: Collection[int]) -> list[int]:
    return [
        node.index
        for node in cluster.nodes
        if node.group == group and not node.offline and node.index not in excluded
    ]


def nodes(
    cluster: Cluster, instances: Iterable[int], mode: Mode, options: place.Options
) -> Solution:
    """Move instances away from their nodes, inside their groups.

    Source: manual page **ganeti-iallocator**, *node-evacuate*.
    """
    solution = Solution(cluster.copy())
    chosen = list(instances)
    # No instance may move to a node which is being emptied.
    empty: set[int] = set()
    for index in chosen:
        instance = cluster.instances[index]
        if mode in (Mode.PRIMARY, Mode.ALL):
            empty.add(instance.primary)
        if mode in (Mode.SECONDARY, Mode.ALL) and instance.secondary != NO_NODE:
            empty.add(instance.secondary)
    for index in chosen:
        now = solution.cluster
        instance = now.instances[index]
        group = now.nodes[instance.primary].group
        excluded = {*empty, *instance.nodes}
        _one_more(solution, instance, mode, _available(now, group, excluded), group, options)
    return solution


def _one_more(
    solution: Solution,
    instance: Instance,
    mode: Mode,
    targets: Sequence[int],
    group: int,
    options: place.Options,
) -> None:
    try:
        after, steps = one(
            solution.cluster, instance, mode, targets,
            ignore_soft_errors=options.ignore_soft_errors,
        )  # fmt: skip
    except CannotMoveError as err:
        solution.failed.append((instance.index, str(err)))
        return
    solution.cluster = after
    solution.moved.append((instance.index, group, steps))


def groups(
    cluster: Cluster, instances: Iterable[int], wanted: Sequence[Group], options: place.Options
) -> Solution:
    """Move instances to other groups.

    :param wanted: the possible groups; empty for all but their own.
    """
    solution = Solution(cluster.copy())
    for index in instances:
        now = solution.cluster
        instance = now.instances[index]
        own = now.nodes[instance.primary].group
        possible = [group for group in wanted or now.groups if group.index != own]
        try:
            chosen = _best_group(now, instance, possible, options)
        except CannotMoveError as err:
            solution.failed.append((index, str(err)))
            continue
        targets = _available(now, chosen.index, instance.nodes)
        _one_more(solution, instance, Mode.ALL, targets, chosen.index, options)
    return solution


def _best_group(
    cluster: Cluster, instance: Instance, possible: Sequence[Group], options: place.Options
) -> Group:
    """Return the group where the instance would be best, if it were new."""
    if not possible:
        raise CannotMoveError("no groups for evacuation")
    required = 2 if instance.mirrored else 1
    best: tuple[tuple[int, float], Group] | None = None
    log: list[str] = []
    for group in possible:
        if not place.is_connected(group, instance):
            log.append(place.not_connected(group, instance))
            continue
        try:
            found = place.in_group(cluster, group, instance, required, options)
        except NoNodesError as err:
            log.append(f"Group {group.name}: error {err}")
            continue
        log.append(place.describe(group, found, cluster.nodes))
        if found.best is None or group.alloc_policy == UNALLOCABLE:
            continue
        value = found.best.value
        rank = (place.preference(group), value if isinstance(value, float) else 0.0)
        if best is None or rank < best[0]:
            best = (rank, group)
    if best is None:
        raise CannotMoveError(", ".join(log))
    return best[1]


def relocate(
    cluster: Cluster, instance: Instance, excluded: Collection[int], options: place.Options
) -> tuple[Cluster, int]:
    """Choose another secondary node, or another node on shared storage.

    :param excluded: numbers of the nodes to leave.
    :returns: the changed cluster and the new node.
    :raises CannotMoveError: there is none.
    """
    if not instance.mirrored and not instance.starts_anywhere:
        raise CannotMoveError("Can't relocate non-mirrored instances")
    mode = Mode.SECONDARY if instance.mirrored else Mode.PRIMARY
    group = cluster.nodes[instance.primary].group
    targets = _available(cluster, group, {*excluded, *instance.nodes})
    after, _ = one(cluster, instance, mode, targets, ignore_soft_errors=options.ignore_soft_errors)
    new = after.instances[instance.index]
    return after, new.secondary if instance.mirrored else new.primary
