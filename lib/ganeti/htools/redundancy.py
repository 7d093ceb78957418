"""Whether the cluster survives the loss of any one node, with everything that ran on it.

This is stronger than the memory reserved for mirrored instances: instances on shared storage must
find another node in their group, too, and instances on local disks must find capacity to be
installed again. Only hard limits count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ganeti.htools import moves, score
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.limits import violates
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node
from ganeti.htools.space import Space, Wanted


def can_be_emptied(
    nodes: Sequence[Node],
    instances: Sequence[Instance],
    lost: Node,
    ignored: Collection[int] = (),
) -> bool:
    """Return True if all primary instances of a node can run elsewhere.

    :param ignored: numbers of instances which need not.
    """
    return not any(_stranded(nodes, instances, lost, ignored))


def stranded(
    nodes: Sequence[Node], instances: Sequence[Instance], groups: Iterable[int] | None = None
) -> set[int]:
    """Return the numbers of the instances which cannot run elsewhere when their node is lost.

    :param groups: look at nodes of these groups only; None for all.
    """
    return {
        one.index
        for node in Checker(groups).lost(nodes, instances)
        for one in _stranded(nodes, instances, node)
    }


def _stranded(
    nodes: Sequence[Node],
    instances: Sequence[Instance],
    lost: Node,
    ignored: Collection[int] = (),
) -> Iterator[Instance]:
    """Move the primary instances of a node elsewhere, and yield those without a place."""
    own = [instances[index] for index in lost.real.primaries if index not in ignored]
    if not own:
        return
    left = list(nodes)
    others: list[Instance] = []
    for instance in own:
        if not instance.mirrored or instance.secondary == NO_NODE:
            others.append(instance)
        elif not _move(left, instance, Move(Kind.FAILOVER)):
            yield instance
    # Like the original, this counts what is free on nodes that are marked offline. The free memory
    # of nodes which are really offline is not known, and counts as zero.
    escapes = [
        node.index for node in nodes if node.group == lost.group and node.index != lost.index
    ]
    for instance in others:
        if instance.starts_anywhere and not _move_to_best(left, instance, escapes):
            yield instance
    again = [one for one in others if not one.starts_anywhere]
    for instance in sorted(again, key=lambda i: -i.memory):
        if not _install_again(left, instance, escapes):
            yield instance


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


def is_redundant(
    nodes: Sequence[Node],
    instances: Sequence[Instance],
    groups: Iterable[int] | None = None,
    *,
    online_only: bool = False,
    ignored: Collection[int] = (),
) -> bool:
    """Return True if every node can be emptied.

    :param groups: look at these groups only; None for all.
    :param online_only: leave out nodes which are offline already.
    :param ignored: numbers of instances which need not run elsewhere.
    """
    wanted = None if groups is None else set(groups)
    return all(
        can_be_emptied(nodes, instances, node, ignored)
        for node in nodes
        if (wanted is None or node.group in wanted) and not (online_only and node.offline)
    )


class Checker:
    """Checks again and again whether a cluster survives the loss of any node.

    The answers are those of :func:`is_redundant`. Most nodes are judged from sums: for a node with
    mirrored instances it counts how much memory those with the same secondary node need together.

    :param groups: look at these groups only; None for all.
    :param online_only: leave out nodes which are offline already.
    """

    def __init__(self, groups: Iterable[int] | None = None, *, online_only: bool = False) -> None:
        self._groups = None if groups is None else set(groups)
        self._online_only = online_only
        self._known: dict[int, tuple[tuple[int, ...], _Facts]] = {}

    def check(self, nodes: Sequence[Node], instances: Sequence[Instance]) -> bool:
        """Return True if every node can be emptied."""
        return all(self._can_be_emptied(nodes, instances, node) for node in self._looked_at(nodes))

    def lost(self, nodes: Sequence[Node], instances: Sequence[Instance]) -> list[Node]:
        """Return the nodes which cannot be emptied."""
        return [
            node
            for node in self._looked_at(nodes)
            if not self._can_be_emptied(nodes, instances, node)
        ]

    def _looked_at(self, nodes: Iterable[Node]) -> list[Node]:
        return [
            node
            for node in nodes
            if (self._groups is None or node.group in self._groups)
            and not (self._online_only and node.offline)
        ]

    def check_more(
        self, nodes: Sequence[Node], instances: Sequence[Instance], changed: Iterable[int]
    ) -> bool:
        """Return True if every node can be emptied, when it could be before some nodes got an
        instance.
        """
        touched = set(changed)
        groups = {nodes[index].group for index in touched}
        for node in self._looked_at(nodes):
            if node.index in touched:
                good = self._can_be_emptied(nodes, instances, node)
            elif node.group in groups and node.real.primaries:
                facts = self._facts(node, instances)
                if facts.shared or facts.again:
                    good = self._can_be_emptied(nodes, instances, node)
                elif touched.isdisjoint(facts.needed):
                    continue
                else:
                    # Mirrored instances go to their secondary nodes, and the others had enough.
                    good = self._can_be_emptied(nodes, instances, node, touched)
            else:
                continue
            if not good:
                return False
        return True

    def _can_be_emptied(
        self,
        nodes: Sequence[Node],
        instances: Sequence[Instance],
        lost: Node,
        only: Collection[int] | None = None,
    ) -> bool:
        quick = self._quick(nodes, instances, lost, only)
        return can_be_emptied(nodes, instances, lost) if quick is None else quick

    def _facts(self, lost: Node, instances: Sequence[Instance]) -> _Facts:
        # The facts of a node are kept with the tuple of its instances, which changes with them.
        known = self._known.get(lost.index)
        if known is not None and known[0] is lost.real.primaries:
            return known[1]
        facts = _Facts([instances[index] for index in lost.real.primaries])
        if -1 not in lost.real.primaries:
            self._known[lost.index] = (lost.real.primaries, facts)
        return facts

    def _quick(
        self,
        nodes: Sequence[Node],
        instances: Sequence[Instance],
        lost: Node,
        only: Collection[int] | None = None,
    ) -> bool | None:
        """Return the answer from sums; None when only moving the instances one by one tells.

        :param only: the secondary nodes to look at; None for all.
        """
        if not lost.real.primaries:
            return True
        if not _is_simple(lost):
            return None
        facts = self._facts(lost, instances)
        free: dict[int, int] = {}
        needed = facts.needed.items()
        for index, memory in needed if only is None else [n for n in needed if n[0] in only]:
            target = nodes[index]
            # The disks of a node that is offline already are not checked.
            checked = (target,) if lost.offline else (target, lost)
            wanted = facts.units[index]
            if not _is_simple(target) or not all([_keeps(one, wanted) for one in checked]):
                return None
            free[index] = target.unallocated_memory - memory
            if free[index] <= 0:
                return False
        if not (facts.shared or facts.again):
            return True
        escapes = [node for node in nodes if node.group == lost.group and node.index != lost.index]
        if not all(_is_simple(node) for node in escapes):
            return None
        if facts.shared_units and any(node.storage is not None for node in escapes):
            return None
        memory_left = [free.get(node.index, node.unallocated_memory) for node in escapes]
        if facts.shared and facts.again:
            everything = sum(facts.shared) + sum(one.memory for one in facts.again)
            if min(memory_left, default=0) <= everything:
                return None
            # Every node has enough memory for all of them, so only disk space decides.
            return _fit_in_order(facts.again, escapes, memory_left)
        if facts.shared:
            return _fit_anywhere(facts.shared, memory_left)
        return _fit_in_order(facts.again, escapes, memory_left)


class _Facts:
    """What a node needs elsewhere when it is lost.

    :ivar needed: secondary node -> memory of its mirrored instances there.
    :ivar units: secondary node -> the desired storage units of their disks.
    :ivar shared: memory of the instances which other nodes can start.
    :ivar shared_units: whether some of these need a storage unit.
    :ivar again: the instances which must be installed again, the largest first.
    """

    __slots__ = ("again", "needed", "shared", "shared_units", "units")

    def __init__(self, own: Iterable[Instance]) -> None:
        self.needed: dict[int, int] = {}
        self.units: dict[int, set[Wanted | None]] = {}
        self.shared: list[int] = []
        self.shared_units = False
        self.again: list[Instance] = []
        for one in own:
            memory = one.memory if one.uses_memory else 0
            if one.mirrored and one.secondary != NO_NODE:
                self.needed[one.secondary] = self.needed.get(one.secondary, 0) + memory
                self.units.setdefault(one.secondary, set()).update(disk.unit for disk in one.disks)
            elif one.starts_anywhere:
                self.shared.append(memory)
                self.shared_units = self.shared_units or one.takes_units
            else:
                self.again.append(one)
        self.again.sort(key=lambda one: -one.memory)


def _is_simple(node: Node) -> bool:
    """Return True if only memory and disk space limit what comes to a node."""
    return not (node.exclusive_storage or node.migration_tags)


def _keeps(node: Node, wanted: Iterable[Wanted | None]) -> bool:
    """Return True if the disks of mirrored instances which a node has already stay within its
    limits.
    """
    storage = node.storage
    if storage is None:
        return min(node.real.free_disk, node.forth.free_disk) > 0
    return all([one is not None and one in storage and storage[one].free >= 0 for one in wanted])


def _fit_anywhere(needed: Sequence[int], free: Sequence[int]) -> bool | None:
    """Return True if instances fit some nodes, whichever is chosen for each of them.

    The result is None for maybe.
    """
    total, largest = sum(needed), max(needed)
    if total and total >= sum(one for one in free if one > 0):
        return False
    # An instance finds no node only when each has at most its size left.
    left = sum(max(0, one) for one in free) - (total - min(needed))
    return True if left > len(free) * max(largest, 1) else None


def _fit_in_order(
    again: Sequence[Instance], targets: Sequence[Node], memory_left: Sequence[int]
) -> bool:
    """Return True if each instance fits the first node which still has enough for it."""
    memory, spaces = (
        list(memory_left),
        [Space(min(node.real.free_disk, node.forth.free_disk), node.storage) for node in targets],
    )
    position, last = 0, None
    for one in again:
        needed = one.memory if one.uses_memory else 0
        size = (
            needed,
            one.disk,
            one.local_storage,
            one.vcpus,
            one.spindle_use,
            one.disks,
            one.template,
        )
        if size != last:
            # Equal instances fit no node that was full for the one before.
            position, last = 0, size
        while position < len(targets):
            policy = targets[position].policy
            if (
                memory[position] > needed
                and not (policy is not None and violates(one, policy, exclusive=False))
                and spaces[position].take(one)
            ):
                break
            position += 1
        else:
            return False
        memory[position] -= needed
    return True
