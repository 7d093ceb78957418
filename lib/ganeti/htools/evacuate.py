"""Moving instances away from their nodes or groups, for allocator requests.

Each instance gets a list of moves, and after it the next one is looked at in the changed cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from ganeti import errors
from ganeti.htools import moves, place, score
from ganeti.htools.cluster import UNALLOCABLE, Cluster, Group, NoNodesError
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple, field, record


class Mode(enum.Enum):
    """What of an instance moves."""

    PRIMARY = "primary-only"
    SECONDARY = "secondary-only"
    ALL = "all"


class CannotMoveError(errors.GenericError):
    """An instance cannot be moved.

    :ivar reasons: why, in sentences (:mod:`ganeti.htools.reasons`); the text has the published
        form.
    """

    def __init__(self, text: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.reasons = tuple(reasons) or (text,)


@record(slots=True)
class Solution:
    """The result for several instances.

    :ivar moved: number of the instance, number of its group, and its moves.
    :ivar failed: number of the instance, and the reason in the published form.
    :ivar reasons: number of an instance which cannot move -> why, in sentences.
    """

    cluster: Cluster
    moved: list[tuple[int, int, list[Move]]] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    reasons: dict[int, Sequence[str]] = field(default_factory=dict)

    def fail(self, index: int, error: CannotMoveError) -> None:
        """Note that an instance cannot move."""
        self.failed.append((index, str(error)))
        self.reasons[index] = error.reasons


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
        found_no = _no_target(cluster, instance, kind, targets, force=force)
        raise CannotMoveError(f"Can't find any good node: {failures}", found_no)
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
                f"Instances with disk template '{instance.template}' can't execute change"
                " secondary",
                [f"disks of template {instance.template} have no secondary node to change"],
            )
        move, done = _best(after, instance, Kind.FAILOVER_TO_ANY, targets, force=ignore_soft_errors)
        _take(after, done)
        return after, [move]
    if not instance.mirrored:
        raise CannotMoveError(
            f"Instances of type {instance.template} cannot be relocated", _bound(instance)
        )
    if mode is Mode.PRIMARY:
        failover = moves.apply(after.nodes, instance, Move(Kind.FAILOVER), force=ignore_soft_errors)
        if isinstance(failover, Fail):
            raise CannotMoveError(
                f"Can't failover to secondary: {failover.value}",
                _no_move(cluster, instance, [Move(Kind.FAILOVER)], force=ignore_soft_errors),
            )
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
        raise CannotMoveError(
            f"Can't find any good nodes for relocation: {failure}",
            _no_pair(cluster, instance, targets, force=force),
        )
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
        solution.fail(instance.index, err)
        return
    solution.cluster = after
    solution.moved.append((instance.index, group, steps))


class Facts(NamedTuple):
    """What the sentences about a group which an instance cannot have need beside the cluster.

    :ivar closed: name of a node -> why it takes no instances.
    :ivar networks: UUID of a network -> its name.
    """

    closed: Mapping[str, str] = MappingProxyType({})
    networks: Mapping[str, str] = MappingProxyType({})


def groups(
    cluster: Cluster,
    instances: Iterable[int],
    wanted: Sequence[Group],
    options: place.Options,
    facts: Facts | None = None,
) -> Solution:
    """Move instances to other groups.

    :param wanted: the possible groups; empty for all but their own.
    :param facts: for the sentences about instances which cannot move.
    """
    solution = Solution(cluster.copy())
    for index in instances:
        now = solution.cluster
        instance = now.instances[index]
        own = now.nodes[instance.primary].group
        possible = [group for group in wanted or now.groups if group.index != own]
        try:
            chosen = _best_group(now, instance, possible, options, facts or Facts())
        except CannotMoveError as err:
            solution.fail(index, err)
            continue
        targets = _available(now, chosen.index, instance.nodes)
        _one_more(solution, instance, Mode.ALL, targets, chosen.index, options)
    return solution


def _best_group(
    cluster: Cluster,
    instance: Instance,
    possible: Sequence[Group],
    options: place.Options,
    facts: Facts,
) -> Group:
    """Return the group where the instance would be best, if it were new."""
    if not possible:
        raise CannotMoveError(
            "no groups for evacuation",
            [
                f"there is no other node group to which {instance.name}"
                " could go: gnt-group add makes one"
            ],
        )
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
        found_no = _no_group(cluster, instance, required, possible, options, facts)
        raise CannotMoveError(", ".join(log), found_no)
    return best[1]


def _no_group(
    cluster: Cluster,
    instance: Instance,
    required: int,
    possible: Iterable[Group],
    options: place.Options,
    facts: Facts,
) -> list[str]:
    """Say why an instance can go to none of some groups."""
    from ganeti.htools import explain
    from ganeti.htools.loading.request import New

    one, lines = New(instance, required), []
    for group in possible:
        found = explain.group_refuses(cluster, group, one, options, facts.closed, facts.networks)
        named = f"group {group.name}"
        lines += [line if named in line else f"{named}: {line}" for line in found]
    return lines


# -- why not ------------------------------------------------------------------------------------

# Few moves are impossible, so what explains them is loaded then.


def _bound(instance: Instance) -> list[str]:
    return [
        f"disks of {instance.name} are of template {instance.template}, which exist on one node"
        f" only: convert them (gnt-instance modify -t drbd {instance.name}), or copy them to"
        f" another node with gnt-instance move {instance.name}"
    ]


def _no_target(
    cluster: Cluster, instance: Instance, kind: Kind, targets: Sequence[int], *, force: bool
) -> list[str]:
    """Say why an instance can move to none of some nodes."""
    if not targets:
        return _no_other(cluster, instance)
    role = "as secondary node: " if kind is Kind.REPLACE_SECONDARY else ""
    return _no_move(cluster, instance, [Move(kind, one) for one in targets], role, force=force)


def _no_move(
    cluster: Cluster, instance: Instance, tried: Sequence[Move], role: str = "", *, force: bool
) -> list[str]:
    """Say why some moves of the same kind are impossible."""
    from ganeti.htools import reasons

    found = (reasons.of_move(cluster, instance, move, force=force) for move in tried)
    short = [one for one in found if one is not None]
    return reasons.summary(short, instance.name, len(tried), role)


def _no_pair(
    cluster: Cluster, instance: Instance, targets: Sequence[int], *, force: bool
) -> list[str]:
    """Say why an instance cannot move to two other nodes."""
    from ganeti.htools import reasons

    name = instance.name
    if len(targets) < 2:
        if not targets:
            return _no_other(cluster, instance)
        only = cluster.nodes[targets[0]]
        group = cluster.groups[only.group].name
        return [
            f"{only.name} is the only other usable node of group {group}, and both nodes of {name}"
            " would have to be new: move only one of them (gnt-instance replace-disks -n NODE), or"
            " add a node to the group"
        ]
    nodes = [cluster.nodes[index] for index in targets]
    new = instance.placed(NO_NODE, NO_NODE)
    firsts = [reasons.as_primary(cluster, node, new, force=force) for node in nodes]
    seconds = [
        reasons.as_secondary(cluster, node, new, instance.primary, force=force) for node in nodes
    ]
    return [
        *reasons.summary([one for one in firsts if one is not None], name, len(nodes)),
        *reasons.summary(
            [one for one in seconds if one is not None], name, len(nodes), "as secondary node: "
        ),
    ]


def _no_other(cluster: Cluster, instance: Instance) -> list[str]:
    """Say that the group of an instance has no other node to which it could go."""
    own = cluster.nodes[instance.primary]
    group = cluster.groups[own.group].name
    others = [node for node in cluster.nodes_of(own.group) if node.index != own.index]
    way = "name one of another group: -n NODE; or add a node to the group"
    if not others:
        return [f"{own.name} is the only node of group {group}; {way}"]
    offline = [node.name for node in others if node.offline]
    holding = [node.name for node in others if not node.offline]
    parts = []
    if offline:
        parts.append(f"{', '.join(offline)} {_is(offline)} offline, drained or not vm_capable")
    if holding:
        parts.append(f"{', '.join(holding)} {_is(holding)} emptied, too, or {_has(holding)} it")
    return [
        f"group {group} has no other usable node for {instance.name}: {'; '.join(parts)}; {way}"
    ]


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def no_second(cluster: Cluster, instance: Instance, options: place.Options) -> list[str]:
    """Say why no node can become the secondary node of an instance that gets one."""
    from ganeti.htools import reasons

    own = cluster.nodes[instance.primary]
    targets = [
        node
        for node in cluster.nodes_of(own.group)
        if not node.offline
        and node.index != own.index
        and (options.restrict_to is None or node.name in options.restrict_to)
    ]
    if not targets:
        return _no_other(cluster, instance)
    new = moves.moved(instance, cluster.nodes, instance.primary, NO_NODE)
    new.become_mirrored()
    found = [
        reasons.as_secondary(
            cluster, node, new, instance.primary, force=options.ignore_soft_errors
        )
        for node in targets
    ]  # fmt: skip
    short = [one for one in found if one is not None]
    if not short:
        short = [reasons.loss(cluster, new, targets[0])]
    return reasons.summary(short, instance.name, len(targets))


def relocate(
    cluster: Cluster, instance: Instance, excluded: Collection[int], options: place.Options
) -> tuple[Cluster, int]:
    """Choose another secondary node, or another node on shared storage.

    :param excluded: numbers of the nodes to leave.
    :returns: the changed cluster and the new node.
    :raises CannotMoveError: there is none.
    """
    if not instance.mirrored and not instance.starts_anywhere:
        raise CannotMoveError("Can't relocate non-mirrored instances", _bound(instance))
    mode = Mode.SECONDARY if instance.mirrored else Mode.PRIMARY
    group = cluster.nodes[instance.primary].group
    targets = _available(cluster, group, {*excluded, *instance.nodes})
    after, _ = one(cluster, instance, mode, targets, ignore_soft_errors=options.ignore_soft_errors)
    new = after.instances[instance.index]
    return after, new.secondary if instance.mirrored else new.primary
