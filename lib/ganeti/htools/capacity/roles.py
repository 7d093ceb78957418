"""What nodes become with one more instance, and the sums over all nodes from which scores come.

Used by :mod:`ganeti.htools.capacity.ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganeti.htools import score
from ganeti.htools.balance import Column
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple

_COMPONENTS = score.COMPONENTS
WEIGHTS = [one.weight for one in _COMPONENTS]
#: The components which are sums, and the number of pairs of tags.
SUMS = [n for n, one in enumerate(_COMPONENTS) if one.kind != "deviation"]
_PAIRS = next(n for n, one in enumerate(_COMPONENTS) if one.kind == "pairs")

Row = Sequence[float]

#: Number of removed classes after which the spreads of a side are computed again.
_SPREADS_STAY = 6

#: The least and the greatest slope of a track, the least and the greatest fixed part, and whether
#: all slopes are equal but for rounding.
Spread = tuple[float, float, float, float, bool]

#: By how much the slopes of nodes of one size differ because of rounding, for a slope of one.
_EQUAL = 1e-12


def _spread(least: float, most: float, low: float, high: float) -> Spread:
    return least, most, low, high, most - least <= _EQUAL * abs(most)


class Class(NamedTuple):
    """Nodes which have the same values before and after they get a role.

    :ivar locations: their location tags.
    :ivar members: their numbers, in ascending order.
    """

    group: int
    locations: frozenset[str]
    old: tuple[float, ...]
    new: tuple[float, ...]
    members: list[int]


class Side:
    """The classes of one role, and lists with one item for each class.

    :ivar fixed: for each track, with ``slopes``, what the role adds to its variance: ``fixed +
        slope * total``, where ``total`` is the sum over all nodes before the role.
    :ivar sums: what the role adds to the weighted components which are sums.
    """

    def __init__(self, tracks: int) -> None:
        self.fails: dict[int, Fail] = {}
        self.classes: list[Class] = []
        self.fixed: list[list[float]] = [[] for _ in range(tracks)]
        self.slopes: list[list[float]] = [[] for _ in range(tracks)]
        self.sums: list[float] = []
        #: Track -> see :meth:`spread`.
        self._spreads: list[Spread | None] = [None] * tracks
        self._removed = 0
        self._class_of: dict[int, Class] = {}
        self._position: dict[tuple[int, frozenset[str], Row, Row], int] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._class_of

    def remove(self, index: int) -> None:
        """Remove a node."""
        self.fails.pop(index, None)
        found = self._class_of.pop(index, None)
        if found is None:
            return
        found.members.remove(index)
        if found.members:
            return
        self._removed += 1
        if self._removed == _SPREADS_STAY or not self._class_of:
            self._removed = 0
            self._spreads = [None] * len(self._spreads)
        position = self._position.pop(found[:-1])
        last = self.classes.pop()
        if last is not found:
            self.classes[position] = last
            self._position[last[:-1]] = position
        for values in (self.sums, *self.fixed, *self.slopes):
            moved = values.pop()
            if last is not found:
                values[position] = moved

    def spread(self, track: int) -> Spread:
        """Return the spread of a track.

        Removed classes still count for a while, so that a change does not look at all classes.
        """
        known = self._spreads[track]
        if known is None:
            slopes, fixed = self.slopes[track], self.fixed[track]
            known = _spread(min(slopes), max(slopes), min(fixed), max(fixed))
            self._spreads[track] = known
        return known

    def extent(self, track: int, total: float) -> tuple[float, float, float, float, bool]:
        """Return the least and greatest part, the least and greatest slope, and whether any is not
        zero.

        :param total: the sum over all nodes.
        """
        least, most, low, high, equal = self._spreads[track] or self.spread(track)
        if not equal:
            parts = [
                a + total * b for a, b in zip(self.fixed[track], self.slopes[track], strict=True)
            ]
            return min(parts), max(parts), least, most, True
        if not (least or most):
            return low, high, 0.0, 0.0, low != 0.0 or high != 0.0
        # Nodes of one size: only the fixed parts differ.
        same, other = total * least, total * most
        if same > other:
            same, other = other, same
        return low + same, high + other, least, most, True

    def add_roots(
        self,
        bounds: list[float],
        track: int,
        total: float,
        middle: float,
        weight: float,
        low: float,
    ) -> list[float]:
        """Add to some bounds the deviations of a track to which only this role adds a part.

        :param middle: its variance before.
        :param low: the least part.
        """
        least, most, _, _, equal = self.spread(track)
        parts, sqrt = self.fixed[track], math.sqrt
        positive = middle + low > 0
        if not equal:
            parts = [a + total * b for a, b in zip(parts, self.slopes[track], strict=True)]
        else:
            middle += min(total * least, total * most)
        if positive:
            return [s + weight * sqrt(middle + a) for s, a in zip(bounds, parts, strict=True)]
        return [s + weight * sqrt(max(middle + a, 0.0)) for s, a in zip(bounds, parts, strict=True)]

    def multiply(
        self, track: int, total: float, factor: float, columns: list[tuple[float, list[float]]]
    ) -> float:
        """Add a multiple of the parts to some columns; returns what all parts have in common.

        :param columns: gets pairs of a factor and a list with one item for each class.
        """
        least, most, _, _, equal = self.spread(track)
        columns.append((factor, self.fixed[track]))
        if not equal:
            columns.append((factor * total, self.slopes[track]))
            return 0.0
        return factor * min(total * least, total * most)

    def add(self, node: Node, old: Row, new: Row, tracks: Tracks) -> None:
        """Add a node.

        :param old: its values before it gets the role, and ``new`` afterwards.
        """
        index = node.index
        key = node.group, node.location_tags, tuple(old), tuple(new)
        position = self._position.get(key)
        if position is None:
            position = self._position[key] = len(self.classes)
            self.classes.append(Class(*key, []))
            self.sums.append(
                sum([WEIGHTS[c] * (new[c] - old[c]) for c in SUMS if new[c] != old[c]])
            )
            for track, (value, slope) in enumerate(tracks.parts(old, new)):
                self.fixed[track].append(value)
                self.slopes[track].append(slope)
                known = self._spreads[track]
                if known is not None:
                    least, most, low, high, _ = known
                    if not (least <= slope <= most and low <= value <= high):
                        self._spreads[track] = _spread(
                            min(least, slope), max(most, slope), min(low, value), max(high, value)
                        )
        found = self._class_of[index] = self.classes[position]
        found.members.append(index)
        found.members.sort()


class Tracks:
    """The sums of all components, and which components always have the same values.

    :ivar numbers: the components with values of their own.
    """

    def __init__(
        self, nodes: Sequence[Node], rows: Sequence[Row], columns: Sequence[Column]
    ) -> None:
        """Sum up.

        :param rows: the values of each node, and ``columns`` what counts for each of them; see
            :class:`ganeti.htools.balance.Values`.
        """
        width = len(columns)
        self._rows = list(rows)
        self._all_weights = [one.weight for one in columns]
        self._deviates = [one.kind == "deviation" for one in columns]
        self._deviations = [c for c, deviates in enumerate(self._deviates) if deviates]
        #: Column -> for how many nodes it counts.
        self.counts = [len(one.members) for one in columns]
        #: Column -> number of a node -> its place in the column.
        self._places: list[dict[int, int]] = []
        for c, column in enumerate(columns):
            same = c and self._places[-1].keys() == set(column.members)
            self._places.append(
                self._places[-1] if same else {n: place for place, n in enumerate(column.members)}
            )
        self._columns = [[rows[n][c] for n in one.members] for c, one in enumerate(columns)]
        self._squares = [[value * value for value in column] for column in self._columns]
        # New instances have no exclusion tags, so that the distinct pairs of tags stay the same.
        self._distinct = len({pair for node in nodes if not node.offline
                              for pair in node.location_pairs})  # fmt: skip
        self.total = [0.0] * width
        self.squares = [0.0] * width
        #: Column -> its squared number of nodes times its variance.
        self.variance = [0.0] * width
        #: Column -> its part of the score.
        self.terms = [0.0] * width
        self._changed = set(range(width))
        #: Column -> an earlier one with the same values of the same nodes.
        self._same: dict[int, int] = {}
        self.numbers: list[int] = []
        self.weights: list[float] = []
        for c in self._deviations:
            for other in self._deviations[: self._deviations.index(c)]:
                if (
                    other not in self._same
                    and columns[c].members == columns[other].members
                    and self._columns[c] == self._columns[other]
                ):
                    self._same[c] = other
                    break
        self._number()

    def _number(self) -> None:
        weights = self._all_weights
        self.numbers = [c for c in self._deviations if c not in self._same]
        self.weights = [
            weights[c] + sum(weights[other] for other, one in self._same.items() if one == c)
            for c in self.numbers
        ]

    def separates(self, row: Row) -> bool:
        """Find components which were the same and now differ; returns whether there are some."""
        found = [c for c, other in self._same.items() if row[c] != row[other]]
        for c in found:
            del self._same[c]
        if found:
            self._number()
        return bool(found)

    def update(self, index: int, row: Row) -> None:
        """Take over the values of a node."""
        old = self._rows[index]
        for c, places in enumerate(self._places):
            if row[c] != old[c]:
                place = places[index]
                self._columns[c][place] = row[c]
                self._squares[c][place] = row[c] * row[c]
                self._changed.add(c)
        self._rows[index] = row

    def sum_up(self) -> None:
        """Add up what has changed, one node after the other, as everywhere."""
        for c in sorted(self._changed):
            number = self.counts[c]
            same = self._same.get(c)
            if same is not None:
                self.total[c], self.variance[c] = self.total[same], self.variance[same]
            else:
                total = self.total[c] = score.plain_sum(self._columns[c])
                squares = self.squares[c] = score.plain_sum(self._squares[c])
                self.variance[c] = number * squares - total * total
            weight = self._all_weights[c]
            if self._deviates[c]:
                variance = self.variance[c]
                self.terms[c] = weight * (math.sqrt(max(variance, 0.0)) / number)
            else:
                distinct = self._distinct if c == _PAIRS else 0
                self.terms[c] = weight * (self.total[c] - distinct)
        self._changed.clear()

    def row(self, index: int) -> Row:
        """Return the values of a node."""
        return self._rows[index]

    def parts(self, old: Row, new: Row) -> list[tuple[float, float]]:
        """Return what a changed node adds to the variance of each track, see :class:`Side`."""
        found = []
        for c in self.numbers:
            number = self.counts[c]
            before, after = old[c], new[c]
            if before == after:
                found.append((0.0, 0.0))
            else:
                change = after - before
                found.append(
                    (number * (after * after - before * before) - change * change, -2 * change)
                )
        return found

    def value(self, first: Class, old: Row, new: Row) -> float:
        """Return the score of a pair, to the last bit.

        :param old: values of the secondary node before it gets its role, and ``new`` afterwards.
        """
        totals, variances, terms = self.total, self.variance, self.terms
        weights, deviates, counts = self._all_weights, self._deviates, self.counts
        result = 0.0
        for c, (before, after, old_c, new_c) in enumerate(
            zip(first.old, first.new, old, new, strict=True)
        ):
            if before == after and old_c == new_c:
                result += terms[c]
                continue
            weight, total, number = weights[c], totals[c], counts[c]
            more = after - before
            extra = new_c - old_c
            if not deviates[c]:
                result += weight * (total + more + extra)
                continue
            variance = variances[c]
            if more:
                added = after * after - before * before
                variance += (number * added - 2 * total * more) - more * more
            if extra:
                added = new_c * new_c - old_c * old_c
                variance += (number * added - 2 * (total + more) * extra) - extra * extra
            if variance > 0:
                result += weight * (math.sqrt(variance) / number)
        return result
