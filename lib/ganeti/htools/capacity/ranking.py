"""All pairs of nodes for one more mirrored instance, in the order of their scores.

What a node becomes as primary node does not depend on the secondary node, and as secondary node
only the memory to be reserved does. So the caller computes each node once in each role, and the
score of a pair is put together from both roles.

Nearly all pairs are never looked at. For each role a *bound* is computed, so that the score of a
pair is at least the sum of the bounds of its two roles:

- a component which only one of the roles changes is a part of the bound itself;
- a component which both change is the square root of a sum with one part from each role. Between
  its least and its greatest value the square root is above the straight line through both, and the
  line is a sum of two parts again.

The pairs are visited in the order of their bounds, and those with a bound above the best score are
left. Nodes with the same values are one *class*, so that a symmetrical cluster needs few
computations, too. The score of a visited pair is computed as
:meth:`ganeti.htools.balance.Values.allocation` does, to the last bit.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from ganeti.htools import score
from ganeti.htools.balance import TOLERANCE, Values
from ganeti.htools.capacity.roles import SUMS, WEIGHTS, Class, Row, Side, Tracks
from ganeti.htools.instance import Instance
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple

_NAMES = {one.name: number for number, one in enumerate(score.COMPONENTS)}
_FAILING = _NAMES["n1_cnt"]
_LOCATION = _NAMES["location_score"]
#: The components whose value is the share of the reserved memory.
_RESERVED, _RESERVED_SUM = _NAMES["reserved_mem_cv"], _NAMES["reserved_mem_rtotal"]

#: By how much the slopes of nodes of one size differ because of rounding, for a slope of one.
_EQUAL = 1e-12


def _least_slope(count: int) -> float:
    """What more reserved memory does to the score, for each share of the memory, at least.

    A value lies at most ``sqrt(count - 1)`` deviations beside the mean of ``count`` values.
    """
    return WEIGHTS[_RESERVED_SUM] - WEIGHTS[_RESERVED] * math.sqrt(max(0, count - 1)) / count


Place = tuple[int, int]


def usable(nodes: Sequence[Node]) -> bool:
    """Whether the score of a pair is always a number."""
    return not any(
        not (node.offline or (node.total_memory and node.total_cpus and node.max_spindles))
        for node in nodes
    )


#: A group and location tags: the nodes which have both.
_Block = tuple[int, frozenset[str]]
#: Classes with the bounds of their role, in ascending order.
_Bounds = list[tuple[float, Class]]
#: A score, both nodes with a negative sign, and further pairs with the same score.
_Ready = tuple[float, int, int, Iterator[Place]]


class _Pairs:
    """The pairs of two classes at one position of the order of their bounds."""

    __slots__ = ("firsts", "i", "j", "more", "seconds")

    def __init__(
        self, firsts: _Bounds, seconds: _Bounds, more: float, i: int = 0, j: int = 0
    ) -> None:
        #: What all these pairs cost because of the locations which both nodes share.
        self.more = more
        self.firsts = firsts
        self.seconds = seconds
        self.i = i
        self.j = j

    def bound(self) -> float:
        return self.firsts[self.i][0] + self.seconds[self.j][0] + self.more

    def following(self) -> Iterator[_Pairs]:
        """The positions which come after this one, and after no other one."""
        if self.j + 1 < len(self.seconds):
            yield _Pairs(self.firsts, self.seconds, self.more, self.i, self.j + 1)
        if not self.j and self.i + 1 < len(self.firsts):
            yield _Pairs(self.firsts, self.seconds, self.more, self.i + 1)


class _Kept(NamedTuple):
    """The pairs of two classes whose secondary node reserves memory for the primary node already.

    :ivar value: the score of the other pairs of these classes.
    """

    first: Class
    second: Class
    value: float


class Ranking:
    """The pairs which an instance may have.

    :ivar members: the numbers of the nodes.
    :ivar stale: the nodes whose roles must be set before :meth:`ranked` is called.
    """

    def __init__(self, nodes: Sequence[Node], values: Values, members: Sequence[int]) -> None:
        """Prepare.

        :param nodes: all nodes of the cluster.
        :param values: the component values of these nodes.
        :param members: the nodes which may get the instance, in ascending order; both nodes of a
            pair are in one group. Of pairs with the same score the last one wins.
        """
        self.members = members
        self.stale = set(members)
        self._nodes = list(nodes)
        self._tracks = Tracks(nodes, values.rows, values.columns())
        self._first, self._second = self._make_sides()
        self._one_block = len({(nodes[i].group, nodes[i].location_tags) for i in members}) == 1
        self._rows: dict[int, tuple[Row | Fail, Row | Fail]] = {}

    def update(self, node: Node, row: Row) -> None:
        """Take over a node which has changed, without its roles."""
        index = node.index
        self._nodes[index] = node
        self._tracks.update(index, row)
        self.forget(index)
        if self._tracks.separates(row):
            self._build_again()

    def forget(self, index: int) -> None:
        """Forget the roles of a node."""
        self._first.remove(index)
        self._second.remove(index)
        self._rows.pop(index, None)
        self.stale.add(index)

    def forget_all(self) -> None:
        """Forget the roles of all nodes."""
        for index in self.members:
            self.forget(index)

    def set_roles(self, index: int, first: Row | Fail, second: Row | Fail) -> None:
        """Say what a node becomes in each role: its component values, or why it cannot.

        :param second: for a primary node for which the node reserves no memory yet.
        """
        self.stale.discard(index)
        self._rows[index] = first, second
        if any(
            [not isinstance(row, Fail) and self._tracks.separates(row) for row in (first, second)]
        ):
            self._build_again()
        else:
            self._add(index)

    def _add(self, index: int) -> None:
        node, old = self._nodes[index], self._tracks.row(index)
        for side, new in zip((self._first, self._second), self._rows[index], strict=True):
            if isinstance(new, Fail):
                side.fails[index] = new
            else:
                side.add(node, old, new, self._tracks)

    def _make_sides(self) -> tuple[Side, Side]:
        count = len(self._tracks.numbers)
        return Side(count), Side(count)

    def _build_again(self) -> None:
        self._first, self._second = self._make_sides()
        for index in self._rows:
            self._add(index)

    # -- pairs which are not possible -----------------------------------------------------------

    def failures(self, instance: Instance) -> dict[Fail, int]:
        """Count why pairs are not possible for an instance."""
        needed = instance.secondary_memory
        found: dict[Fail, int] = {}

        def count(fail: Fail, number: int) -> None:
            if number:
                found[fail] = found.get(fail, 0) + number

        nodes = self._nodes
        sizes: dict[int, int] = {}
        firsts: dict[int, int] = {}
        for index in self.members:
            group = nodes[index].group
            sizes[group] = sizes.get(group, 0) + 1
            firsts[group] = firsts.get(group, 0) + (index in self._first)
        for index in self.members:
            group = nodes[index].group
            fail = self._first.fails.get(index)
            if fail is not None:
                count(fail, sizes[group] - 1)
            fail = self._second.fails.get(index)
            if fail is not None:
                left = firsts[group] - (index in self._first)
                for peer, reason in self._other_reasons(index, instance):
                    if reason is not fail and peer in self._first and nodes[peer].group == group:
                        count(reason, 1)
                        left -= 1
                count(fail, left)
            else:
                count(Fail.MEMORY, sum(
                    1 for peer in nodes[index].peers
                    if peer != index and peer in self._first and nodes[peer].group == group
                    and self._reserve(peer, index, needed) is None
                ))  # fmt: skip
        return found

    def _other_reasons(self, index: int, instance: Instance) -> Iterator[tuple[int, Fail]]:
        """Why a node cannot be secondary beside those for which it reserves memory already.

        Memory which it has to reserve is a reason before space for forthcoming instances is one.
        """
        node = self._nodes[index]
        if node.secondaries == node.secondaries_forth and node.primaries == node.primaries_forth:
            return
        for peer in node.peers:
            reason = None if peer == index else node.copy().add_secondary(instance, peer)
            if reason is not None:
                yield peer, reason

    def _reserve(self, first: int, second: int, needed: int) -> Row | None:
        """What the secondary node of a pair becomes; None when it has too little memory."""
        node = self._nodes[second]
        row = self._rows[second][1]
        assert not isinstance(row, Fail)
        reserved = node.peers.get(first, 0) + needed
        if reserved <= max(node.reserved_memory, needed):
            return row
        failing = node.unallocated_memory <= reserved
        if failing and not node.failing:
            return None
        new = list(row)
        new[_FAILING] = len(node.primaries) + len(node.secondaries) + 1.0 if failing else 0.0
        new[_RESERVED] = new[_RESERVED_SUM] = reserved / node.total_memory
        return new

    # -- the order ------------------------------------------------------------------------------

    def ranked(self, needed: int) -> Iterator[Place]:
        """The possible pairs, from the best score to the worst; of equal ones the last comes first.

        The nodes must not change while it is used.
        """
        tracks = self._tracks
        tracks.sum_up()
        constant, first_bounds, second_bounds = self._bounds()
        least, most = self._losses(needed)
        constant += min(0.0, most)
        # Pairs to visit, by their bounds; and visited ones, by their scores.
        waiting: list[tuple[float, int, _Pairs | _Kept]] = []
        ready: list[_Ready] = []
        number = 0
        for (group, locations), firsts in first_bounds.items():
            for (other_group, others), seconds in second_bounds.items():
                if group == other_group:
                    pairs = _Pairs(firsts, seconds, WEIGHTS[_LOCATION] * len(locations & others))
                    waiting.append((pairs.bound(), number, pairs))
                    number += 1
        heapq.heapify(waiting)
        while waiting or ready:
            while waiting and (
                not ready
                or waiting[0][0] + constant <= ready[0][0] + TOLERANCE * max(1.0, abs(ready[0][0]))
            ):
                found = heapq.heappop(waiting)[2]
                if isinstance(found, _Kept):
                    self._visit_kept(found, needed, ready)
                    continue
                for more in found.following():
                    number += 1
                    heapq.heappush(waiting, (more.bound(), number, more))
                first, second = found.firsts[found.i][1], found.seconds[found.j][1]
                kept = self._visit(first, second, needed, ready)
                if kept is not None:
                    number += 1
                    heapq.heappush(waiting, (kept.value + least - constant, number, kept))
            if ready:
                value, first_sign, second_sign, pairs_left = heapq.heappop(ready)
                yield -first_sign, -second_sign
                _push(ready, value, pairs_left)

    def _losses(self, needed: int) -> tuple[float, float]:
        """What it costs at least that a node reserves memory for the same primary node already.

        :returns: the cost for 1 MiB, and for as much as it can be.
        """
        slope = _least_slope(self._tracks.counts[_RESERVED])
        memory = [self._nodes[index].total_memory for index in self.members]
        most = slope * needed / min(memory)
        return (most, most) if slope < 0 else (slope / max(memory), most)

    def _visit(self, first: Class, second: Class, needed: int, ready: list[_Ready]) -> _Kept | None:
        """Compute the score of the pairs of two classes.

        :returns: their pairs whose scores were not computed; None when there are none.
        """
        first = _beside(first, second)
        if len(first.members) == len(second.members) == 1:
            pair = first.members[0], second.members[0]
            row = None if pair[0] == pair[1] else self._reserve(*pair, needed)
            if row is not None:
                value = self._tracks.value(first, second.old, row)
                heapq.heappush(ready, (value, -pair[0], -pair[1], iter(())))
            return None
        value = self._tracks.value(first, second.old, second.new)
        _push(ready, value, self._plain(first, second, needed))
        if any(self._nodes[index].peers for index in second.members):
            return _Kept(first, second, value)
        return None

    def _keeps(self, first: int, second: int, needed: int) -> bool:
        """Whether the secondary node of a pair reserves more memory than beside other nodes."""
        node = self._nodes[second]
        known = node.peers.get(first, 0)
        return known > 0 and known + needed > max(node.reserved_memory, needed)

    def _plain(self, first: Class, second: Class, needed: int) -> Iterator[Place]:
        for one in reversed(first.members):
            for other in reversed(second.members):
                if one != other and not self._keeps(one, other, needed):
                    yield one, other

    def _visit_kept(self, kept: _Kept, needed: int, ready: list[_Ready]) -> None:
        values: dict[tuple[float, float], float] = {}
        for other in kept.second.members:
            peers = self._nodes[other].peers
            for one in kept.first.members:
                if one not in peers or one == other or not self._keeps(one, other, needed):
                    continue
                row = self._reserve(one, other, needed)
                if row is None:
                    continue
                key = row[_RESERVED], row[_FAILING]
                if key not in values:
                    values[key] = self._tracks.value(kept.first, kept.second.old, row)
                heapq.heappush(ready, (values[key], -one, -other, iter(())))

    def _bounds(self) -> tuple[float, dict[_Block, _Bounds], dict[_Block, _Bounds]]:
        """The bounds of both roles, in ascending order for each block, and what is in all pairs."""
        tracks, sides = self._tracks, (self._first, self._second)
        if not all(side.classes for side in sides):
            return 0.0, {}, {}
        bounds = [list(side.sums) for side in sides]
        constant = sum([tracks.terms[c] for c in SUMS])
        for t, c in enumerate(tracks.numbers):
            weight = tracks.weights[t] / tracks.counts[c]
            parts = [_Part(side, t, tracks.total[c]) for side in sides]
            low, high = sum([one.low for one in parts]), sum([one.high for one in parts])
            # What rounding may make of the difference of two large sums.
            largest = max(abs(low), abs(high))
            rounding = 1e-14 * (tracks.counts[c] * tracks.squares[c] + largest)
            middle = tracks.variance[c] - rounding
            changing = [own for own in (0, 1) if parts[own].changes]
            if not changing:
                constant += weight * math.sqrt(max(middle, 0.0))
            elif len(changing) == 1:
                own = changing[0]
                bounds[own] = parts[own].add_roots(bounds[own], middle, weight)
            else:
                # A change of both nodes adds the product of both changes, twice.
                products = [-a * b / 2 for a in parts[0].ends for b in parts[1].ends]
                start = max(0.0, middle + low + min(products))
                end = max(start, middle + 2 * rounding + high + max(products), 1e-300)
                steep = weight / (math.sqrt(start) + math.sqrt(end))
                constant += weight * math.sqrt(start) + steep * (middle + min(products) - start)
                for own in (0, 1):
                    bounds[own], more = parts[own].add_line(bounds[own], steep)
                    constant += more
        return (
            constant,
            _sorted(bounds[0], self._first.classes, self._one_block),
            _sorted(bounds[1], self._second.classes, self._one_block),
        )


class _Part:
    """What one role adds to the variance of a track, for each class.

    :ivar low: the least of it; ``high`` the most.
    :ivar ends: the least and the greatest slope.
    """

    __slots__ = ("changes", "ends", "fixed", "high", "low", "slopes", "total")

    def __init__(self, side: Side, track: int, total: float) -> None:
        fixed = self.fixed = side.fixed[track]
        slopes = self.slopes = side.slopes[track]
        self.total = total
        least, most, low, high = side.spread(track)
        self.ends = least, most
        self.changes = bool(least or most or low or high)
        if most - least <= _EQUAL * abs(most):
            # Nodes of one size: only the fixed parts differ.
            self.slopes = []
        else:
            fixed = self.fixed = [a + total * b for a, b in zip(fixed, slopes, strict=True)]
            low, high, least, most = min(fixed), max(fixed), 0.0, 0.0
        self.low = low + min(total * least, total * most)
        self.high = high + max(total * least, total * most)

    def _rest(self) -> float:
        """What is not in the fixed parts, or a little less."""
        return min([self.total * one for one in self.ends]) if not self.slopes else 0.0

    def add_roots(self, bounds: list[float], middle: float, weight: float) -> list[float]:
        """Add the deviation which each class leads to."""
        middle += self._rest()
        sqrt = math.sqrt
        if middle + min(self.fixed) > 0:
            return [a + weight * sqrt(middle + b) for a, b in zip(bounds, self.fixed, strict=True)]
        return [
            a + weight * sqrt(max(middle + b, 0.0)) for a, b in zip(bounds, self.fixed, strict=True)
        ]

    def add_line(self, bounds: list[float], steep: float) -> tuple[list[float], float]:
        """Add a multiple of the parts; returns also what is to be added to all bounds."""
        added = [a + steep * b for a, b in zip(bounds, self.fixed, strict=True)]
        return added, steep * self._rest()


def _sorted(
    bounds: Sequence[float], classes: Sequence[Class], one_block: bool
) -> dict[_Block, _Bounds]:
    """Sort the bounds, for each block.

    :param one_block: whether all classes are in one.
    """
    ordered = [(bounds[n], classes[n]) for n in sorted(range(len(bounds)), key=bounds.__getitem__)]
    if one_block:
        return {classes[0][:2]: ordered}
    found: dict[_Block, _Bounds] = {}
    for pair in ordered:
        found.setdefault(pair[1][:2], []).append(pair)
    return found


def _beside(first: Class, second: Class) -> Class:
    """A class of primary nodes beside one of secondary nodes, with the locations they share."""
    shared = len(first.locations & second.locations)
    if not shared:
        return first
    new = list(first.new)
    new[_LOCATION] += shared
    return first._replace(new=tuple(new))


def _push(ready: list[_Ready], value: float, pairs: Iterator[Place]) -> None:
    """Add the next pair of some with the same score."""
    pair = next(pairs, None)
    if pair is not None:
        heapq.heappush(ready, (value, -pair[0], -pair[1], pairs))
