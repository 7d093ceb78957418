"""The scores of all places for one new instance.

A place changes one node, or two. What a node contributes to the score with the instance as primary
does not depend on the other node, and as secondary only the memory to be reserved does. So each
node is changed once in each role, and the score of a pair is estimated from the sums of both. The
exact score, to the last bit, is computed only for places whose estimate is near the best one.

Not for clusters with location tags, where the score of an instance depends on the pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganeti.htools import moves, score
from ganeti.htools.balance import TOLERANCE, Values
from ganeti.htools.instance import NO_NODE, NOBODY, Instance
from ganeti.htools.limits import violates
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple

_COMPONENTS = score.COMPONENTS
_WEIGHTS = [one.weight for one in _COMPONENTS]
_NAMES = {one.name: number for number, one in enumerate(_COMPONENTS)}
_FAILING = _NAMES["n1_cnt"]
_RESERVED = _NAMES["reserved_mem_cv"]
_RESERVED_SUM = _NAMES["reserved_mem_rtotal"]
_SUMS = [n for n, one in enumerate(_COMPONENTS) if one.kind in ("sum", "offline")]
_PAIRS = next(n for n, one in enumerate(_COMPONENTS) if one.kind == "pairs")


class _Track:
    """Values whose deviation counts: a component, or the free shares of a storage unit.

    ``total`` and ``squares`` are sums of the differences from ``shift``, a value in the middle.
    """

    __slots__ = ("count", "shift", "squares", "total", "weight")

    def __init__(self, values: Sequence[float], weight: float) -> None:
        self.count = len(values)
        self.weight = weight
        self.shift = math.fsum(values) / self.count if values else 0.0
        self.total = math.fsum(value - self.shift for value in values)
        self.squares = math.fsum((value - self.shift) ** 2 for value in values)

    def change(self, before: float, after: float) -> tuple[float, float]:
        """Return what a changed value adds to the sums."""
        before -= self.shift
        after -= self.shift
        return after - before, after * after - before * before

    def deviation(self, total: float, squares: float) -> float:
        """Return the weighted deviation after a change of the sums."""
        mean = (self.total + total) / self.count
        variance = (self.squares + squares) / self.count - mean * mean
        # Rounding may make it negative; a node without memory makes it not a number.
        if variance <= 0:
            return 0.0
        return self.weight * math.sqrt(variance) if variance > 0 else math.nan


class Role(NamedTuple):
    """A node with the new instance.

    :ivar changes: track -> what it adds to the sums.
    :ivar sums: what it adds to the components which are sums.
    """

    node: Node
    instance: Instance
    row: list[float]
    changes: dict[int, tuple[float, float]]
    sums: float


class Scores:
    """Scores of a cluster with one more instance."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._values = Values(nodes, sums=False)
        self._online = [node.index for node in nodes if not node.offline]
        self._position = {index: place for place, index in enumerate(self._online)}
        rows = self._values.rows
        self._columns = [[rows[i][c] for i in self._online] for c in range(len(_COMPONENTS))]
        self._everyone = [[row[c] for row in rows] for c in range(len(_COMPONENTS))]
        self._tracks = {
            c: _Track([rows[index][c] for index in column.members], column.weight)
            for c, column in enumerate(self._values.columns())
            if column.kind == "deviation" and not (c == score.FREE_DISK and self._values.units)
        }
        self._sums = math.fsum(_WEIGHTS[c] * value for c in _SUMS for value in self._everyone[c])
        self._exact: dict[tuple[int, int], float] = {}
        #: The tracks which secondary roles change, and that of the reserved memory.
        self._shared = {_RESERVED}

    # -- the two roles --------------------------------------------------------------------------

    def primary(self, instance: Instance, index: int, *, force: bool) -> Role | Fail:
        """Place the instance on its primary node."""
        node = self._nodes[index].copy()
        fail = node.policy and violates(instance, node.policy, exclusive=node.exclusive_storage)
        if fail:
            return fail
        new = moves.moved(instance, self._nodes, index, NO_NODE)
        return node.add_primary(new, force=force) or self._role(node, new)

    def secondary(self, instance: Instance, index: int, *, force: bool) -> Role | Fail:
        """Place the instance on its secondary node, for a primary node which is not known yet."""
        node = self._nodes[index].copy()
        fail = node.add_secondary(instance, NOBODY, force=force)
        if fail is not None:
            return fail
        role = self._role(node, instance)
        self._shared.update(role.changes)
        return role

    def _role(self, node: Node, new: Instance) -> Role:
        before, after = self._values.rows[node.index], self._values.row(node)
        changes = {}
        for c, track in self._tracks.items():
            if before[c] != after[c]:
                changes[c] = track.change(before[c], after[c])
        sums = sum(_WEIGHTS[c] * (after[c] - before[c]) for c in _SUMS)
        return Role(node, new, after, changes, sums)

    # -- scores ---------------------------------------------------------------------------------

    def alone(self, first: Role) -> float:
        """Estimate the score with the instance on one node."""
        changes, none = first.changes, (0.0, 0.0)
        return self._sums + first.sums + math.fsum(
            track.deviation(*changes.get(c, none)) for c, track in self._tracks.items()
        )  # fmt: skip

    def pairs(self, first: Role, seconds: Sequence[Role], *, force: bool) -> list[float | Fail]:
        """Estimate the scores with one primary node and each of some secondary nodes.

        :returns: for each of them the score, or why it cannot be.
        """
        tracks, own, none = self._tracks, first.changes, (0.0, 0.0)
        shared = self._shared
        fixed = self._sums + first.sums + math.fsum(
            track.deviation(*own.get(c, none)) for c, track in tracks.items() if c not in shared
        )  # fmt: skip
        table = [
            (
                c, tracks[c].total + own.get(c, none)[0], tracks[c].squares + own.get(c, none)[1],
                1.0 / tracks[c].count, tracks[c].weight,
            )
            for c in shared
        ]  # fmt: skip
        needed = first.instance.secondary_memory
        number = first.node.index
        found: list[float | Fail] = []
        for second in seconds:
            node, changes = second.node, second.changes
            value = fixed + second.sums
            peer = self._nodes[node.index].peers.get(number, 0)
            if peer and peer + needed > node.reserved_memory:
                reserved = self._reserve(second, peer + needed, force=force)
                if isinstance(reserved, Fail):
                    found.append(reserved)
                    continue
                value += reserved[0]
                changes = {**changes, _RESERVED: reserved[1]}
            for c, total, squares, share, weight in table:
                more_total, more_squares = changes.get(c, none)
                mean = (total + more_total) * share
                variance = (squares + more_squares) * share - mean * mean
                if variance > 0:
                    value += weight * math.sqrt(variance)
                elif variance != variance:
                    value = variance
            found.append(value)
        return found

    def _reserve(
        self, second: Role, reserved: int, *, force: bool
    ) -> tuple[float, tuple[float, float]] | Fail:
        """Reserve more memory on the secondary node than for an unknown primary node.

        :returns: what is added to the sums of the score, and to those of the reserved memory.
        """
        node, index = second.node, second.node.index
        failing = node.unallocated_memory <= reserved
        if failing and not self._nodes[index].failing and not force:
            return Fail.MEMORY
        ratio = _ratio(reserved, node)
        count = len(node.real.primaries) + len(node.real.secondaries)
        more = _WEIGHTS[_FAILING] * ((count if failing else 0) - second.row[_FAILING])
        more += _WEIGHTS[_RESERVED_SUM] * (ratio - second.row[_RESERVED_SUM])
        track = self._tracks[_RESERVED]
        return more, track.change(self._values.rows[index][_RESERVED], ratio)

    def exact(self, first: Role, changed: Sequence[Node]) -> float:
        """Compute the score of a place to the last bit, like :func:`ganeti.htools.score.score`.

        :param changed: the primary node, and then the secondary node if there is one.
        """
        second = changed[1] if len(changed) > 1 else None
        rows = [first.row] if second is None else [first.row, self._values.row(second)]
        before = None if second is None else self._values.rows[second.index]
        result = 0.0
        for c, component in enumerate(_COMPONENTS):
            if component.kind == "pairs":
                value = 0.0
            elif c == score.FREE_DISK and self._values.units:
                value = self._values.units_after(changed)
            elif before is None or before[c] == rows[1][c]:
                key = (c, first.node.index)
                known = self._exact.get(key)
                if known is None:
                    known = self._exact[key] = self._component(c, changed[:1], rows)
                value = known
            else:
                value = self._component(c, changed, rows)
            result += component.weight * value
        return result

    def _component(self, c: int, changed: Sequence[Node], rows: Sequence[list[float]]) -> float:
        if _COMPONENTS[c].kind == "deviation":
            values = list(self._columns[c])
            for node, row in zip(changed, rows, strict=False):
                values[self._position[node.index]] = row[c]
            return score.deviation(values)
        values = list(self._everyone[c])
        for node, row in zip(changed, rows, strict=False):
            values[node.index] = row[c]
        value = 0.0
        for one in values:
            value += one
        return value


def usable(nodes: Sequence[Node]) -> bool:
    """Return True if the estimates know everything that counts in a cluster."""
    return not any(node.location_tags for node in nodes)


def slack(best: float) -> float:
    """By how much an estimate may be above the best one when its exact score may be the best."""
    return 4 * TOLERANCE * max(1.0, abs(best))


def _ratio(reserved: int, node: Node) -> float:
    probe = node.copy()
    probe.reserved_memory = reserved
    return probe.reserved_ratio
