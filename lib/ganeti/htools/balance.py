"""Balancing: move instances, one step at a time, so that the score falls as far as possible.

A step tries every legal move of every movable instance and takes the one with the lowest score; of
equal ones the first. Small clusters are searched one move after the other; large ones with arrays
(:mod:`ganeti.htools.arrays`), which gives the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType

from ganeti.htools import moves, score
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple, field, record

#: Moves to try above which arrays are faster, the time to import numpy included.
ARRAYS_PAY = 500


@record(frozen=True, slots=True)
class Options:
    """What a search may do.

    :ivar evacuate: move only instances on offline nodes.
    :ivar restricted_migration: never migrate an instance away from an online primary node, except
        to its secondary node.
    :ivar ignore_soft_errors: allow what only violates policies.
    :ivar min_gain: what one step must gain while the score is at most ``min_gain_limit``.
    :ivar arrays_from: number of instances times nodes from which arrays are used.
    """

    disk_moves: bool = True
    instance_moves: bool = True
    evacuate: bool = False
    restricted_migration: bool = False
    ignore_soft_errors: bool = False
    min_score: float = 1e-9
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    arrays_from: int = ARRAYS_PAY


class Step(NamedTuple):
    """One move of a solution.

    :ivar instance: number of the instance.
    :ivar before: its nodes before the step.
    :ivar after: its nodes after the step.
    :ivar score: score of the cluster after the step.
    """

    instance: int
    before: tuple[int, int]
    after: tuple[int, int]
    move: Move
    score: float

    @property
    def involved(self) -> frozenset[int]:
        """The numbers of all nodes which take part."""
        return frozenset(one for one in (*self.before, *self.after) if one != NO_NODE)


@record(slots=True)
class State:
    """A cluster during a search; its lists change from step to step."""

    nodes: list[Node]
    instances: list[Instance]
    score: float
    steps: list[Step] = field(default_factory=list)


def start(cluster: Cluster) -> State:
    """Begin a search."""
    return State(list(cluster.nodes), list(cluster.instances), score.score(cluster.nodes))


def run(
    state: State, options: Options, *, max_steps: int = -1, offset: float = 0.0
) -> Iterator[Step]:
    """Improve a cluster, step by step, until nothing helps; changes the state.

    :param max_steps: the most steps of the whole solution; negative for no limit.
    :param offset: added to the minimum score, see :func:`ganeti.htools.score.optimal_offset`.
    """
    finder = Finder(state, options)
    while max_steps < 0 or len(state.steps) < max_steps:
        if state.score <= options.min_score + offset:
            return
        step = finder.next()
        if step is None:
            return
        yield step


def candidates(
    instance: Instance, nodes: Sequence[Node], targets: Sequence[int], options: Options
) -> Iterator[Move]:
    """Yield the moves of an instance which a search tries, legal or not, in their order."""
    if instance.mirrored and instance.secondary != NO_NODE:
        primary, secondary = instance.primary, instance.secondary
        use_secondary = options.instance_moves and not nodes[secondary].offline
        if use_secondary:
            yield Move(Kind.FAILOVER)
        if not options.disk_moves:
            return
        # Restricted migration: nothing is migrated away from an online node after its disks moved.
        may_leave = not options.restricted_migration or nodes[primary].offline
        kinds = [Kind.REPLACE_SECONDARY]
        if options.instance_moves and may_leave:
            kinds.append(Kind.REPLACE_AND_FAILOVER)
            if use_secondary and not options.restricted_migration:
                kinds.append(Kind.REPLACE_PRIMARY)
        if use_secondary and may_leave:
            kinds.append(Kind.FAILOVER_AND_REPLACE)
        for target in targets:
            if target not in (primary, secondary):
                for kind in kinds:
                    yield Move(kind, target)
    elif instance.shared_storage and options.instance_moves:
        for target in targets:
            if target != instance.primary:
                yield Move(Kind.FAILOVER_TO_ANY, target)


def movable(state: State, options: Options) -> list[Instance]:
    """Return the instances which a search may move."""
    return [
        one
        for one in state.instances
        if one.movable
        and one.auto_balance
        and (one.mirrored or one.shared_storage)
        and (not options.evacuate or any(state.nodes[index].offline for index in one.nodes))
    ]


class Finder:
    """Finds the next step of a state."""

    def __init__(self, state: State, options: Options) -> None:
        self._state = state
        self._options = options
        self._values = Values(state.nodes)

    def next(self) -> Step | None:
        """Take the best step; None when no step is good enough."""
        found = self._search()
        if found is None:
            return None
        instance, move, done, new_score = found
        state, options = self._state, self._options
        if new_score >= state.score or (
            state.score <= options.min_gain_limit and state.score - new_score < options.min_gain
        ):
            return None
        before = (instance.primary, instance.secondary)
        after = (done.instance.primary, done.instance.secondary)
        step = Step(instance.index, before, after, move, new_score)
        for node in done.nodes:
            state.nodes[node.index] = node
        state.instances[instance.index] = done.instance
        state.score = new_score
        state.steps.append(step)
        self._values.update(done.nodes)
        return step

    def _search(self) -> tuple[Instance, Move, moves.Done, float] | None:
        state, options = self._state, self._options
        chosen = movable(state, options)
        targets = [node.index for node in state.nodes if not node.offline]
        if targets and len(chosen) * len(targets) >= options.arrays_from:
            from ganeti.htools import arrays  # numpy takes longer to load than a small search

            if arrays.usable(state.nodes):
                return self._search_arrays(arrays, chosen)
        best: tuple[Instance, Move, moves.Done, float] | None = None
        for instance in chosen:
            own = self._best_of(instance, targets)
            if own is not None and own[3] < (best[3] if best else state.score):
                best = own
        return best

    def _search_arrays(
        self, arrays: ModuleType, chosen: Sequence[Instance]
    ) -> tuple[Instance, Move, moves.Done, float] | None:
        state, options = self._state, self._options
        estimates = arrays.Estimates(state.nodes, self._values.rows)
        scored = [
            (some, kind, estimates.estimate(some, kind))
            for kind, some in kinds_of(chosen, state.nodes, options)
            if some
        ]
        slack = TOLERANCE * max(1.0, state.score)
        best: tuple[tuple[float, int, int, int], moves.Done, Instance, Move] | None = None
        tried = 0
        count = _FIRST_TRIED
        while True:
            # More and more moves are looked at, until the rest cannot be better.
            limit = min(arrays.smallest(scored, count), state.score + slack)
            ordered = arrays.ordered(scored, limit)
            for estimate, instance, move in ordered[tried:]:
                if best is not None and estimate > best[0][0] + slack:
                    return best[2], best[3], best[1], best[0][0]
                done = moves.apply(state.nodes, instance, move, force=options.ignore_soft_errors)
                if isinstance(done, Fail):
                    continue
                value = self._values.exact(
                    done.nodes, [self._values.row(node) for node in done.nodes]
                )
                rank = (value, instance.index, move.target, int(move.kind))
                if value < state.score and (best is None or rank < best[0]):
                    best = (rank, done, instance, move)
            if limit >= state.score + slack:
                break
            tried, count = len(ordered), count * 8
        return None if best is None else (best[2], best[3], best[1], best[0][0])

    def _best_of(
        self, instance: Instance, targets: Sequence[int]
    ) -> tuple[Instance, Move, moves.Done, float] | None:
        state, options, values = self._state, self._options, self._values
        best: tuple[Instance, Move, moves.Done, float] | None = None
        limit = state.score
        for move in candidates(instance, state.nodes, targets, options):
            done = moves.apply(state.nodes, instance, move, force=options.ignore_soft_errors)
            if isinstance(done, Fail):
                continue
            rows = [values.row(node) for node in done.nodes]
            if values.estimate(done.nodes, rows) > limit + TOLERANCE * max(1.0, limit):
                continue
            exact = values.exact(done.nodes, rows)
            if exact < limit:
                limit = exact
                best = (instance, move, done, exact)
        return best


#: Number of moves with the best estimates which are tried before all others are examined again.
_FIRST_TRIED = 64


def kinds_of(
    chosen: Sequence[Instance], nodes: Sequence[Node], options: Options
) -> list[tuple[Kind, list[Instance]]]:
    """For each kind of move the instances which may make it, see :func:`candidates`."""
    found: dict[Kind, list[Instance]] = {kind: [] for kind in Kind}
    targets = [node.index for node in nodes if not node.offline]
    for instance in chosen:
        # One target besides its own nodes shows all kinds.
        shown = [index for index in targets if index not in instance.nodes][:1]
        for move in candidates(instance, nodes, shown, options):
            found[move.kind].append(instance)
    return list(found.items())


#: By how much an estimated score may differ from the exact one, for a score of one.
TOLERANCE = 1e-9

_DEVIATIONS = [i for i, one in enumerate(score.COMPONENTS) if one.kind == "deviation"]
_SUMS = [i for i, one in enumerate(score.COMPONENTS) if one.kind in ("sum", "offline")]
_PAIRS = next(i for i, one in enumerate(score.COMPONENTS) if one.kind == "pairs")
_WEIGHTS = [one.weight for one in score.COMPONENTS]


class Column(NamedTuple):
    """One value of each row: a component of the score, or the free share of a storage unit.

    :ivar weight: its weight in the score.
    :ivar kind: see :class:`ganeti.htools.score.Component`.
    :ivar members: the numbers of the nodes for which it counts, in ascending order.
    """

    weight: float
    kind: str
    members: Sequence[int]


class Values:
    """The component values of all nodes, and their sums.

    With the sums the score after a move is estimated from the two or three nodes which it changes.
    The exact score adds all nodes in their order again, like :func:`ganeti.htools.score.score`.
    """

    def __init__(self, nodes: Sequence[Node], *, sums: bool = True) -> None:
        """Compute the values.

        :param sums: make the sums, too; without them only the rows may be used.
        """
        self._nodes = list(nodes)
        self._online = [i for i, node in enumerate(nodes) if not node.offline]
        self.units = score.has_units(nodes[i] for i in self._online)
        #: The desired storage units whose free shares are at the end of each row.
        self.wanted = score.wanted_units(nodes[i] for i in self._online) if self.units else []
        self.rows = [self.row(node) for node in nodes]
        if sums:
            self.sum_up()
        else:
            self._unit_deviation = self._deviation_of_units()

    def row(self, node: Node) -> list[float]:
        """Return the values of a node in all components, and the free share of each storage unit.

        Those that do not count for the node are zero.
        """
        row = score.node_values(node)
        if self.units:
            row[score.FREE_DISK] = 0.0
            storage = {} if node.offline else node.storage or {}
            for wanted in self.wanted:
                unit = storage.get(wanted)
                row.append(0.0 if unit is None else score.unit_share(unit))
        return row

    def sum_up(self) -> None:
        """Make the sums."""
        count = len(score.COMPONENTS)
        # The sums are taken around a middle value, because the variance is a small difference.
        online = [self.rows[i] for i in self._online]
        number = len(online)
        self._shift = [
            math.fsum(row[c] for row in online) / number if number else 0.0 for c in range(count)
        ]
        self._sums = [math.fsum(row[c] - self._shift[c] for row in online) for c in range(count)]
        self._squares = [
            math.fsum((row[c] - self._shift[c]) ** 2 for row in online) for c in range(count)
        ]
        self._totals = [math.fsum(row[c] for row in self.rows) for c in range(count)]
        self._unit_deviation = self._deviation_of_units()
        self.has_pairs = any(node.location_pairs for node in self._nodes)

    def _deviation_of_units(self) -> float:
        return score.unit_deviation(self._nodes[i] for i in self._online) if self.units else 0.0

    def update(self, changed: Sequence[Node]) -> None:
        """Take over changed nodes, and make the sums again."""
        self.take_over(changed, [self.row(node) for node in changed])
        self.sum_up()

    def take_over(self, changed: Iterable[Node], rows: Iterable[list[float]]) -> None:
        """Take over changed nodes and their values, without the sums."""
        for node, row in zip(changed, rows, strict=True):
            self._nodes[node.index] = node
            self.rows[node.index] = row

    def estimate(self, changed: Sequence[Node], rows: Sequence[list[float]]) -> float:
        """Estimate the score after a change, to about :data:`TOLERANCE`."""
        number = len(self._online)
        result = 0.0
        shifts, old_rows = self._shift, self.rows
        pairs = [
            (old_rows[node.index], row)
            for node, row in zip(changed, rows, strict=True)
            if not node.offline
        ]
        for c in _DEVIATIONS:
            total, squares, shift = self._sums[c], self._squares[c], shifts[c]
            for old, new in pairs:
                before, after = old[c], new[c]
                if before != after:
                    before -= shift
                    after -= shift
                    total += after - before
                    squares += after * after - before * before
            variance = squares / number - (total / number) ** 2 if number else 0.0
            if variance > 0:
                result += _WEIGHTS[c] * math.sqrt(variance)
            elif variance != variance:  # not a number: a node without memory
                result = math.nan
        for c in _SUMS:
            value = self._totals[c]
            for node, new in zip(changed, rows, strict=True):
                value += new[c] - old_rows[node.index][c]
            result += _WEIGHTS[c] * value
        if self.units:
            result += _WEIGHTS[score.FREE_DISK] * self.units_after(changed)
        if self.has_pairs:
            result += _WEIGHTS[_PAIRS] * self._pairs_after(changed, rows)
        return result

    def _after(self, changed: Sequence[Node]) -> list[Node]:
        nodes = list(self._nodes)
        for node in changed:
            nodes[node.index] = node
        return nodes

    def units_after(self, changed: Sequence[Node]) -> float:
        if all(node.storage is self._nodes[node.index].storage for node in changed):
            return self._unit_deviation
        nodes = self._after(changed)
        return score.unit_deviation(nodes[i] for i in self._online)

    def _pairs_after(self, changed: Sequence[Node], rows: Sequence[list[float]]) -> float:
        nodes = self._after(changed)
        count = self._totals[_PAIRS] + math.fsum(
            row[_PAIRS] - self.rows[node.index][_PAIRS]
            for node, row in zip(changed, rows, strict=True)
        )
        distinct = {pair for i in self._online for pair in nodes[i].location_pairs}
        return count - len(distinct)

    def columns(self) -> list[Column]:
        """Return what counts for each value of a row."""
        everyone = list(range(len(self._nodes)))
        found = [
            Column(one.weight, one.kind, self._online if one.kind == "deviation" else everyone)
            for one in score.COMPONENTS
        ]
        for wanted in self.wanted:
            having = [i for i in self._online if wanted in (self._nodes[i].storage or {})]
            weight = _WEIGHTS[score.FREE_DISK] / len(self.wanted)
            found.append(Column(weight, "deviation", having))
        return found

    def allocation_sums(self) -> list[tuple[Column, float, float]]:
        """For each column the sum over its nodes, and their squared number times the variance.

        Unlike the sums for estimates, these are made like the original makes them for allocations:
        equally good places of a symmetrical cluster then have equal scores, and the last one wins.
        """
        found = []
        for c, column in enumerate(self.columns()):
            sums = squares = 0.0
            for index in column.members:
                value = self.rows[index][c]
                sums += value
                squares += value * value
            found.append((column, sums, len(column.members) * squares - sums * sums))
        return found

    def allocation(
        self,
        sums: Sequence[tuple[Column, float, float]],
        changed: Sequence[Node],
        rows: Sequence[list[float]],
    ) -> float:
        """Return the score after an allocation on online nodes.

        :param sums: see :meth:`allocation_sums`.
        """
        result = 0.0
        old_rows = [self.rows[node.index] for node in changed]
        for c, (column, total, variance) in enumerate(sums):
            number = len(column.members)
            for old, new in zip(old_rows, rows, strict=True):
                difference = new[c] - old[c]
                squares = new[c] * new[c] - old[c] * old[c]
                variance += (number * squares - 2 * total * difference) - difference * difference
                total += difference
            if column.kind == "deviation":
                value = math.sqrt(variance if variance == variance and variance > 0 else 0.0)
                value = value / number if variance == variance else math.nan
            elif column.kind == "pairs":
                value = self._pairs_after(changed, rows) if self.has_pairs else 0.0
            else:
                value = total
            result += column.weight * value
        return result

    def exact(self, changed: Sequence[Node], rows: Sequence[list[float]]) -> float:
        """Compute the score after a change, to the last bit."""
        new_rows = {node.index: row for node, row in zip(changed, rows, strict=True)}
        online = [new_rows.get(i) or self.rows[i] for i in self._online]
        everyone = [new_rows.get(i) or row for i, row in enumerate(self.rows)]
        result = 0.0
        for c, component in enumerate(score.COMPONENTS):
            if component.kind == "deviation":
                if c == score.FREE_DISK and self.units:
                    value = self.units_after(changed)
                else:
                    value = score.deviation([row[c] for row in online])
            elif component.kind == "pairs":
                value = self._pairs_after(changed, rows) if self.has_pairs else 0.0
            else:
                value = score.plain_sum([row[c] for row in everyone])
            result += component.weight * value
        return result


def job_sets(steps: Sequence[Step]) -> list[list[Step]]:
    """Split a solution into sets; the moves of a set share no node and can run at once."""
    sets: list[list[Step]] = []
    used: frozenset[int] = frozenset()
    for step in reversed(steps):
        if sets and used.isdisjoint(step.involved):
            sets[0].insert(0, step)
            used |= step.involved
        else:
            sets.insert(0, [step])
            used = step.involved
    return sets
