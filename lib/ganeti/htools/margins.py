"""Whether a cluster with one more instance survives the loss of any one node, answered quickly.

What could not survive before does not count: an instance without another place stays without one,
wherever the new one goes (:func:`ganeti.htools.redundancy.stranded`).

The answer is that of :func:`ganeti.htools.redundancy.is_redundant` for the changed cluster, which
moves every instance of every node on a model. A search asks this for each place which it tries, and
a new instance changes at most two nodes. So what the other nodes need is summed up once, and a
place is compared with the sums:

- the mirrored instances of a lost node have one way to go. They all fit when the memory of each of
  their secondary nodes is more than the sum of those which come from there;
- the other instances fit in any order when one node can take all of them (*refuge*).

Only where these sums leave the answer open are the instances moved on the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti.htools import redundancy
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.limits import violates
from ganeti.htools.node import Node
from ganeti.htools.space import sharing

#: Number of refuges which is enough: a place changes at most two nodes.
_ENOUGH = 3


class _Loss:
    """What must go elsewhere when a node is lost.

    :ivar mirrored: number of a node -> MiB of memory which come to it, because it is the secondary
        node.
    :ivar others: the instances which may go to any node of the group.
    """

    __slots__ = ("mirrored", "node", "others", "refuges")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.mirrored: dict[int, int] = {}
        self.others: list[Instance] = []
        self.refuges: list[int] = []


class Margins:
    """Sums over a cluster; the cluster must not change while they are used."""

    def __init__(
        self,
        nodes: Sequence[Node],
        instances: Sequence[Instance],
        groups: Iterable[int] | None = None,
    ) -> None:
        """Sum up.

        :param groups: nodes of these groups may be lost; None for all.
        """
        self._nodes = nodes
        self._instances = instances
        self._groups = None if groups is None else frozenset(groups)
        self._ignored = redundancy.stranded(nodes, instances, self._groups)
        #: Number of a node -> the largest sum of memory which comes to it from one other node.
        self._worst: dict[int, int] = {}
        self._by_group: dict[int, list[Node]] = {}
        for node in nodes:
            self._by_group.setdefault(node.group, []).append(node)
        self._losses = {
            node.index: _Loss(node) for node in nodes if self._groups is None
            or node.group in self._groups
        }  # fmt: skip
        #: No instance can be added so that the cluster survives.
        self._lost = not all(self._sum_up(loss) for loss in self._losses.values())
        self._fragile: list[_Loss] = []
        self._base: dict[int, bool] = {}
        if not self._lost:
            for loss in self._losses.values():
                if loss.others:
                    self._find_refuges(loss)
                    if len(loss.refuges) < _ENOUGH:
                        self._fragile.append(loss)

    def _sum_up(self, loss: _Loss) -> bool:
        """Sum up a node; false when its mirrored instances can never go where they must."""
        lost = loss.node
        for index in lost.real.primaries:
            if index in self._ignored:
                continue
            instance = self._instances[index]
            if not instance.mirrored or instance.secondary == NO_NODE:
                loss.others.append(instance)
                continue
            target = self._nodes[instance.secondary]
            memory = instance.memory if instance.uses_memory else 0
            loss.mirrored[target.index] = loss.mirrored.get(target.index, 0) + memory
            if not ((lost.offline or _keeps(lost, instance)) and _keeps(target, instance)):
                return False
        for number, memory in loss.mirrored.items():
            target = self._nodes[number]
            if target.unallocated_memory <= memory or target.rejects_migration_from(lost):
                return False
            self._worst[number] = max(self._worst.get(number, 0), memory)
        return True

    def _find_refuges(self, loss: _Loss) -> None:
        for node in self._by_group.get(loss.node.group, ()):
            if self._is_refuge(node, loss, loss.others):
                loss.refuges.append(node.index)
                if len(loss.refuges) == _ENOUGH:
                    return

    @staticmethod
    def _is_refuge(node: Node, loss: _Loss, others: Sequence[Instance], more: int = 0) -> bool:
        """Return True if a node can take all of some instances of a lost one, besides the mirrored.

        :param more: MiB of memory which come to it in addition.
        """
        # With exclusive storage every instance takes spindles, in an order which counts.
        if node.index == loss.node.index or node.offline or node.exclusive_storage:
            return False
        needed = loss.mirrored.get(node.index, 0) + more
        disk = 0
        units: dict[tuple[str, str], int] = {}
        for one in others:
            needed += one.memory if one.uses_memory else 0
            if one.shared_storage:
                if node.rejects_migration_from(loss.node):
                    return False
            elif node.policy and violates(one, node.policy, exclusive=False):
                return False
            if one.local_storage:
                disk += one.disk
            if node.storage is not None and one.takes_units:
                for part in one.disks:
                    if part.unit is None or part.unit not in node.storage:
                        return False
                    for unit in sharing(part.unit):
                        units[unit] = units.get(unit, 0) + part.size
        if node.unallocated_memory <= needed:
            return False
        if node.storage is not None:
            if any(unit in node.storage and node.storage[unit].free < size
                   for unit, size in units.items()):  # fmt: skip
                return False
        elif any(one.local_storage for one in others):
            return min(node.real.free_disk, node.forth.free_disk) > disk
        return True

    def holds(self, new: Instance, first: Node, second: Node | None = None) -> bool:
        """Return True if the cluster survives the loss of any node after an instance was placed.

        :param new: the instance on its nodes. A new one has the number -1; one that comes from
            another group has its own.
        :param first: its primary node, with the instance; ``second`` likewise its secondary node.
        """
        if new.forthcoming:
            return self._move(new, first, second)
        if self._lost:
            return False
        # More comes to the primary node than it can take.
        if first.unallocated_memory <= self._worst.get(first.index, -1):
            return False
        loss = self._losses.get(first.index)
        if loss is not None and second is not None:
            needed = loss.mirrored.get(second.index, 0) + (new.memory if new.uses_memory else 0)
            if second.unallocated_memory <= needed or second.rejects_migration_from(first):
                return False
        if _is_open(first) or (second is not None and _is_open(second)):
            return self._move(new, first, second)
        if loss is not None and second is None:
            verdict = self._survives(loss, [*loss.others, new], new, first, None)
            if not verdict:
                return False
        return all(
            self._survives(one, one.others, new, first, second)
            for one in self._fragile
            if second is not None or one is not loss
        )

    def _survives(
        self,
        loss: _Loss,
        others: Sequence[Instance],
        new: Instance,
        first: Node,
        second: Node | None,
    ) -> bool:
        """Return True if the instances of one lost node find a place, with the changed nodes."""
        group = loss.node.group
        changed = {first.index: first}
        if second is not None:
            changed[second.index] = second
        if group != first.group and loss.mirrored.keys().isdisjoint(changed):
            known = self._base.get(loss.node.index)
            if known is None:
                known = self._base[loss.node.index] = redundancy.can_be_emptied(
                    self._nodes, self._instances, loss.node, self._ignored
                )
            return known
        if others is loss.others and any(one not in changed for one in loss.refuges):
            return True
        best = 0
        for node in self._by_group.get(group, ()):
            now = changed.get(node.index, node)
            more = 0
            if second is not None and loss.node.index == first.index and now is second:
                more = new.memory if new.uses_memory else 0
            if self._is_refuge(now, loss, others, more):
                return True
            if node.index != loss.node.index:
                best = max(best, now.unallocated_memory)
        if any(best <= (one.memory if one.uses_memory else 0) for one in others):
            return False
        return redundancy.can_be_emptied(
            self._after(changed),
            self._with(new),
            changed.get(loss.node.index, loss.node),
            self._ignored - {new.index},
        )

    def _move(self, new: Instance, first: Node, second: Node | None) -> bool:
        """Decide on the model."""
        changed = {node.index: node for node in (first, second) if node is not None}
        return redundancy.is_redundant(
            self._after(changed),
            self._with(new),
            self._groups,
            ignored=self._ignored - {new.index},
        )

    def _with(self, new: Instance) -> list[Instance]:
        """Return the instances with the new one, which is found by its number."""
        if new.index == -1:
            return [*self._instances, new]
        instances = list(self._instances)
        instances[new.index] = new
        return instances

    def _after(self, changed: dict[int, Node]) -> list[Node]:
        return [changed.get(node.index, node) for node in self._nodes]


def _is_open(node: Node) -> bool:
    """Return True if the sums do not say if a node with a new instance keeps what it had."""
    if node.exclusive_storage:
        return True
    return node.storage is not None and any(one.free < 0 for one in node.storage.values())


def _keeps(node: Node, instance: Instance) -> bool:
    """Return True if a node has the disks of a mirrored instance within its limits, so that they
    stay.
    """
    if node.storage is not None:
        if not all(
            disk.unit in node.storage and node.storage[disk.unit].free >= 0
            for disk in instance.disks
            if disk.unit is not None
        ) or any(disk.unit is None for disk in instance.disks):
            return False
    elif min(node.real.free_disk, node.forth.free_disk) <= 0:
        return False
    if node.exclusive_storage:
        return instance.spindles is not None and (
            min(node.real.free_spindles, node.forth.free_spindles) >= 0
        )
    return True
