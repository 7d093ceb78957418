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


def _least_slope(count: int) -> float:
    """Return what more reserved memory does to the score, for each share of the memory, at least.

    A value lies at most ``sqrt(count - 1)`` deviations beside the mean of ``count`` values.
    """
    return WEIGHTS[_RESERVED_SUM] - WEIGHTS[_RESERVED] * math.sqrt(max(0, count - 1)) / count


Place = tuple[int, int]


def usable(nodes: Sequence[Node]) -> bool:
    """Return True if the score of a pair is always a number."""
    return not any(
        not (node.offline or (node.total_memory and node.total_cpus and node.max_spindles))
        for node in nodes
    )


#: A group and location tags: the nodes which have both.
_Block = tuple[int, frozenset[str]]
#: Positions of classes, and the multiple of a column of numbers, one for each class.
_Order = list[int]
_Multiple = tuple[float, list[float]]
#: A score, both nodes with a negative sign, and further pairs with the same score.
_Ready = tuple[float, int, int, Iterator[Place]]


class _Pairs(NamedTuple):
    """The pairs of the nodes of two blocks.

    :ivar more: what all these pairs cost because of the locations which both nodes share.
    :ivar firsts: positions of the classes of primary nodes, in the order of their bounds;
        ``seconds`` those of secondary nodes.
    """

    more: float
    firsts: _Order
    seconds: _Order


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
        memory = [nodes[index].total_memory for index in members]
        self._least_memory, self._most_memory = min(memory), max(memory)

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
        """Yield why a node cannot be secondary beside those for which it reserves memory already.

        Memory which it has to reserve is a reason before space for forthcoming instances is one.
        """
        node = self._nodes[index]
        if (
            node.real.secondaries == node.forth.secondaries
            and node.real.primaries == node.forth.primaries
        ):
            return
        for peer in node.peers:
            reason = None if peer == index else node.copy().add_secondary(instance, peer)
            if reason is not None:
                yield peer, reason

    def _reserve(self, first: int, second: int, needed: int) -> Row | None:
        """Return what the secondary node of a pair becomes; None when it has too little memory."""
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
        new[_FAILING] = (
            len(node.real.primaries) + len(node.real.secondaries) + 1.0 if failing else 0.0
        )
        new[_RESERVED] = new[_RESERVED_SUM] = reserved / node.total_memory
        return new

    # -- the order ------------------------------------------------------------------------------

    def ranked(self, needed: int) -> Iterator[Place]:
        """Yield the possible pairs, from the best score to the worst.

        Of equal ones the last comes first.

        The nodes must not change while it is used.
        """
        tracks = self._tracks
        tracks.sum_up()
        firsts, seconds = self._first.classes, self._second.classes
        if not (firsts and seconds):
            return
        constant, first_bounds, second_bounds = self._bounds()
        least, most = self._losses(needed)
        constant += min(0.0, most)
        # Pairs to visit, by their bounds, with the positions in both orders; and visited ones, by
        # their scores.
        waiting: list[tuple[float, int, _Pairs | _Kept, int, int]] = []
        ready: list[_Ready] = []
        number = 0
        second_blocks = _blocks(second_bounds, seconds, self._one_block)
        for (group, locations), order in _blocks(first_bounds, firsts, self._one_block).items():
            for (other_group, others), other_order in second_blocks.items():
                if group == other_group:
                    more = WEIGHTS[_LOCATION] * len(locations & others)
                    bound = first_bounds[order[0]] + second_bounds[other_order[0]] + more
                    waiting.append((bound, number, _Pairs(more, order, other_order), 0, 0))
                    number += 1
        heapq.heapify(waiting)
        while waiting or ready:
            while waiting and (
                not ready
                or waiting[0][0] + constant <= ready[0][0] + TOLERANCE * max(1.0, abs(ready[0][0]))
            ):
                _, _, found, i, j = heapq.heappop(waiting)
                if isinstance(found, _Kept):
                    self._visit_kept(found, needed, ready)
                    continue
                more, order, other_order = found
                # The positions which come after this one, and after no other one.
                following = []
                if j + 1 < len(other_order):
                    following.append((i, j + 1))
                if not j and i + 1 < len(order):
                    following.append((i + 1, 0))
                for x, y in following:
                    number += 1
                    bound = first_bounds[order[x]] + second_bounds[other_order[y]] + more
                    heapq.heappush(waiting, (bound, number, found, x, y))
                kept = self._visit(firsts[order[i]], seconds[other_order[j]], needed, ready)
                if kept is not None:
                    number += 1
                    heapq.heappush(waiting, (kept.value + least - constant, number, kept, 0, 0))
            if ready:
                value, first_sign, second_sign, pairs_left = heapq.heappop(ready)
                yield -first_sign, -second_sign
                _push(ready, value, pairs_left)

    def _losses(self, needed: int) -> tuple[float, float]:
        """Return what it costs at least that a node reserves memory for the same primary node
        already.

        :returns: the cost for 1 MiB, and for as much as it can be.
        """
        slope = _least_slope(self._tracks.counts[_RESERVED])
        most = slope * needed / self._least_memory
        return (most, most) if slope < 0 else (slope / self._most_memory, most)

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
        """Return True if the secondary node of a pair reserves more memory than beside other
        nodes.
        """
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

    def _bounds(self) -> tuple[float, list[float], list[float]]:
        """Return what is in the scores of all pairs, and the bounds of the classes of both
        roles.
        """
        tracks, first, second = self._tracks, self._first, self._second
        sqrt = math.sqrt
        constant = sum([tracks.terms[c] for c in SUMS])
        sides = [first.sums, second.sums]
        columns: tuple[list[_Multiple], list[_Multiple]] = ([], [])
        for t, c in enumerate(tracks.numbers):
            total, number = tracks.total[c], tracks.counts[c]
            weight = tracks.weights[t] / number
            low, high, least, most, changes = first.extent(t, total)
            other_low, other_high, other_least, other_most, other_changes = second.extent(t, total)
            # What rounding may make of the difference of two large sums.
            sums = abs(low) + abs(high) + abs(other_low) + abs(other_high)
            rounding = 1e-14 * (number * tracks.squares[c] + sums)
            middle = tracks.variance[c] - rounding
            if not (changes or other_changes):
                constant += weight * sqrt(max(middle, 0.0))
                continue
            if not (changes and other_changes):
                own = 0 if changes else 1
                sides[own] = (first if changes else second).add_roots(
                    sides[own], t, total, middle, weight, low + other_low
                )
                continue
            # A change of both nodes adds the product of both changes, twice.
            products = (
                least * other_least, least * other_most, most * other_least, most * other_most
            )  # fmt: skip
            common = middle - max(products) / 2
            start = max(0.0, common + low + other_low)
            highest = middle - min(products) / 2 + 2 * rounding
            end = max(start, highest + high + other_high, 1e-300)
            root = sqrt(start)
            steep = weight / (root + sqrt(end))
            constant += weight * root + steep * (common - start)
            constant += first.multiply(t, total, steep, columns[0])
            constant += second.multiply(t, total, steep, columns[1])
        return constant, _combined(sides[0], columns[0]), _combined(sides[1], columns[1])


def _combined(start: list[float], columns: Sequence[_Multiple]) -> list[float]:
    """Add multiples of columns to a column, several at a time."""
    found = start
    position = 0
    while len(columns) - position >= _AT_ONCE:
        (a, one), (b, two), (c, three) = columns[position : position + _AT_ONCE]
        found = [
            s + a * x + b * y + c * z for s, x, y, z in zip(found, one, two, three, strict=True)
        ]
        position += _AT_ONCE
    for a, one in columns[position:]:
        found = [s + a * x for s, x in zip(found, one, strict=True)]
    return found


#: Number of columns which :func:`_combined` adds at a time.
_AT_ONCE = 3


def _blocks(
    bounds: Sequence[float], classes: Sequence[Class], one_block: bool
) -> dict[_Block, _Order]:
    """Return the positions of the classes of each block, in the order of their bounds.

    :param one_block: whether all classes are in one.
    """
    ordered = sorted(range(len(bounds)), key=bounds.__getitem__)
    if one_block:
        return {classes[0][:2]: ordered}
    found: dict[_Block, _Order] = {}
    for position in ordered:
        found.setdefault(classes[position][:2], []).append(position)
    return found


def _beside(first: Class, second: Class) -> Class:
    """Return a class of primary nodes beside one of secondary nodes, with the locations they
    share.
    """
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
