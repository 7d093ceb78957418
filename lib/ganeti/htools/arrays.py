"""The search for the best move on arrays: all moves of a step are scored at once.

The score of every move is estimated from sums over the nodes, of which a move changes two or three.
Then the moves are tried on the model, the best estimate first, until no other estimate can be
better. So a wrong estimate would cost time, or miss a move, but never make a move that is not
legal; :mod:`ganeti.htools.balance` has the same search without arrays, and tests compare the two.

Only this module imports numpy, when a search is large enough to need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganeti.htools import score
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Node
from ganeti.htools.space import sharing

Array = Any

_COMPONENTS = {one.name: number for number, one in enumerate(score.COMPONENTS)}
_WEIGHT = {one.name: one.weight for one in score.COMPONENTS}

#: What is added to a node with a primary or secondary instance, in units of the instance:
#: component -> (amount of a primary, amount of a secondary, capacity of the node, sign).
_LINEAR = (
    ("free_mem_cv", "memory", None, "memory", -1),
    ("free_disk_cv", "disk", "disk", "disk", -1),
    ("vcpu_ratio_cv", "vcpus", None, "cpus", 1),
    ("cpu_load_cv", "load_cpu", None, "one", 1),
    ("mem_load_cv", "load_memory", None, "one", 1),
    ("disk_load_cv", "load_disk", "load_disk", "one", 1),
    ("net_load_cv", "load_net", None, "one", 1),
    ("spindles_cv", "spindles", "spindles", "spindles", 1),
    ("free_mem_cv_forth", "memory_forth", None, "memory", -1),
    ("free_disk_cv_forth", "disk_forth", "disk_forth", "disk", -1),
    ("vcpu_ratio_cv_forth", "vcpus_forth", None, "cpus", 1),
    ("spindles_cv_forth", "spindles_forth", "spindles_forth", "spindles", 1),
)  # fmt: skip

# What a move takes from its primary (P), secondary (S) and target (T) node, and gives to them.
_ROLES: dict[Kind, dict[str, str]] = {
    Kind.REPLACE_SECONDARY: {"P": "", "S": "-s", "T": "+s"},
    Kind.REPLACE_AND_FAILOVER: {"P": "-p+s", "S": "-s", "T": "+p"},
    Kind.REPLACE_PRIMARY: {"P": "-p", "S": "", "T": "+p"},
    Kind.FAILOVER_AND_REPLACE: {"P": "-p", "S": "-s+p", "T": "+s"},
    Kind.FAILOVER: {"P": "-p+s", "S": "-s+p", "T": ""},
    Kind.FAILOVER_TO_ANY: {"P": "-p", "S": "", "T": "+p"},
}


def usable(nodes: Sequence[Node]) -> bool:
    """Return True if the estimates know everything that counts in a cluster."""
    return not any(
        node.exclusive_storage or (not node.offline and not (node.total_memory and node.total_cpus))
        for node in nodes
    )


class Estimates:
    """Estimated scores of all moves of some instances.

    :param nodes: all nodes.
    :param rows: the component values of each node, see :class:`ganeti.htools.balance.Values`.
    """

    def __init__(self, nodes: Sequence[Node], rows: Sequence[Sequence[float]]) -> None:
        self._nodes = nodes
        self._values = np.array(rows, dtype=float)
        self._online = np.array([not node.offline for node in nodes])
        self._count = int(self._online.sum())
        live = self._values[self._online]
        self._shift = live.mean(axis=0) if self._count else np.zeros(self._values.shape[1])
        centered = live - self._shift
        # For reserved memory; the sums of other components are made where they are needed.
        self._sums = centered.sum(axis=0)
        self._squares = (centered * centered).sum(axis=0)
        self._totals = self._values.sum(axis=0)
        memory = np.array([node.total_memory for node in nodes])
        disk = np.array([node.total_disk for node in nodes])
        cpus = np.array([node.total_cpus * node.cpu_speed for node in nodes])
        spindles = np.array([node.max_spindles for node in nodes])
        self._inverse = {
            "memory": _inverse(memory),
            "disk": _inverse(disk),
            "cpus": _inverse(cpus),
            "spindles": _inverse(spindles),
            "one": np.ones(len(nodes)),
        }
        self._free_disk = np.array([float(node.real.free_disk) for node in nodes])
        self._unallocated = np.array([float(node.unallocated_memory) for node in nodes])
        self._reserved = np.array([float(node.reserved_memory) for node in nodes])
        self._failing = np.array([node.failing for node in nodes])
        self._placed = np.array(
            [len(node.real.primaries) + len(node.real.secondaries) for node in nodes], dtype=float
        )
        # Columns after those of the nodes are nodes outside of this part of a cluster.
        width = max((peer + 1 for node in nodes for peer in node.peers), default=0)
        self._peers = np.zeros((len(nodes), max(len(nodes), width)))
        for node in nodes:
            for peer, amount in node.peers.items():
                self._peers[node.index, peer] = amount
        self._tags: dict[tuple[str, ...], tuple[Array, Array]] = {}
        self._units = _units(nodes)
        some = any(node.location_tags or node.location_score for node in nodes)
        self._locations = _Locations(nodes) if some else None

    def estimate(self, instances: Sequence[Instance], kind: Kind) -> Array:
        """Estimate the score after a kind of move of some instances to each node.

        :returns: an array with a row for each instance and a column for each node, or with one
            column for a failover; infinite where the move is not possible.
        """
        facts = _Facts(instances)
        roles = _ROLES[kind]
        columns = 1 if kind == Kind.FAILOVER else len(self._nodes)
        result = np.zeros((len(instances), columns))
        for name, primary, secondary, capacity, sign in _LINEAR:
            if self._units is not None and name == "free_disk_cv":
                result += self._unit_deviation(instances, roles, facts)
                continue
            amounts = {
                "p": sign * facts.amounts[primary],
                "s": sign * facts.amounts[secondary] if secondary else None,
            }
            result += self._linear(name, capacity, amounts, roles, facts)
        self._add_reserved(result, facts, kind, roles)
        self._add_counts(result, facts, kind)
        self._add_tags(result, instances, facts, roles)
        for name in ("location_score", "location_exclusion_score"):
            result += _WEIGHT[name] * self._totals[_COMPONENTS[name]]
        if self._locations is not None:
            self._locations.add(result, instances, kind)
        self._exclude(result, facts, kind, roles)
        return result

    def _linear(
        self,
        name: str,
        capacity: str,
        amounts: dict[str, Array | None],
        roles: dict[str, str],
        facts: _Facts,
    ) -> Array:
        number = _COMPONENTS[name]
        return _WEIGHT[name] * self._changed(
            self._values[:, number], self._inverse[capacity], self._online, amounts, roles, facts
        )

    def _unit_deviation(
        self, instances: Sequence[Instance], roles: dict[str, str], facts: _Facts
    ) -> Array:
        """Return the component for free disk space where storage units are known."""
        units = self._units or {}
        result: Array = 0.0
        for wanted, (shares, inverse, there) in units.items():
            taken = -np.array([_taken(one, wanted) for one in instances])
            amounts: dict[str, Array | None] = {"p": taken, "s": taken}
            result = result + self._changed(shares, inverse, there, amounts, roles, facts)
        return _WEIGHT["free_disk_cv"] * result / max(1, len(units))

    def _changed(
        self,
        values: Array,
        inverse: Array,
        counted: Array,
        amounts: dict[str, Array | None],
        roles: dict[str, str],
        facts: _Facts,
    ) -> Array:
        """Return the deviation of values over the counted nodes after moves."""
        count = int(counted.sum())
        shift = values[counted].mean() if count else 0.0
        centered = np.where(counted, values - shift, 0.0)
        inverse = np.where(counted, inverse, 0.0)
        total = np.full(len(facts.primary), centered.sum())
        squares = np.full(len(facts.primary), (centered * centered).sum())
        for role, place in (("P", facts.primary), ("S", facts.secondary)):
            change = _net(roles[role], amounts)
            if change is None:
                continue
            change = change * inverse[place]
            total += change
            squares += change * (2 * centered[place] + change)
        given = _net(roles["T"], amounts)
        if given is None:
            total, squares = total[:, None], squares[:, None]
        else:
            change = np.outer(given, inverse)
            squares = squares[:, None] + change * (2 * centered + change)
            total = total[:, None] + change
        return _deviation(total, squares, count)

    def _without(self, node: Array, peer: Array, amount: Array) -> Array:
        """Reserved memory of nodes without an amount for one peer, and the changed peer rows."""
        rows = self._peers[node].copy()
        index = np.arange(len(node))
        rows[index, peer] = np.maximum(rows[index, peer] - amount, 0.0)
        return rows

    def _reserved_after(
        self, facts: _Facts, kind: Kind, roles: dict[str, str]
    ) -> tuple[dict[str, Array], Array]:
        """Return the memory which nodes have to keep free after a move.

        :returns: that of the primary (P) and of the secondary node (S), and that of each target.
        """
        needed = facts.amounts["needed"]
        p, s = facts.primary, facts.secondary
        left_s = self._without(s, p, needed)
        reserved = {"P": self._reserved[p][:, None], "S": self._reserved[s][:, None]}
        if "-s" in roles["S"] or kind == Kind.REPLACE_PRIMARY:
            reserved["S"] = np.where(
                (needed > 0)[:, None], left_s.max(axis=1)[:, None], reserved["S"]
            )
        if kind == Kind.REPLACE_PRIMARY:
            beside = left_s[:, : len(self._nodes)] + needed[:, None]
            reserved["S"] = np.maximum(reserved["S"], beside)
        if kind == Kind.REPLACE_AND_FAILOVER:
            beside = self._peers[p, : len(self._nodes)] + needed[:, None]
            reserved["P"] = np.maximum(reserved["P"], beside)
        if kind == Kind.FAILOVER:
            reserved["P"] = np.maximum(reserved["P"], (self._peers[p, s] + needed)[:, None])
        target = self._reserved[None, :]
        if kind == Kind.REPLACE_SECONDARY:
            target = np.maximum(target, self._peers[:, p].T + needed[:, None])
        elif kind == Kind.FAILOVER_AND_REPLACE:
            target = np.maximum(target, self._peers[:, s].T + needed[:, None])
        return reserved, target

    def _add_reserved(
        self, result: Array, facts: _Facts, kind: Kind, roles: dict[str, str]
    ) -> None:
        """Add the components for reserved memory and for nodes that fail N+1."""
        memory, real = facts.amounts["memory"], facts.amounts["real"]
        moves_memory = facts.amounts["needed"] > 0
        p, s = facts.primary, facts.secondary
        shape = result.shape
        column = np.broadcast_to
        # Reserved memory, unallocated memory and number of instances of the three nodes afterwards.
        reserved, target = self._reserved_after(facts, kind, roles)
        number = _COMPONENTS["reserved_mem_cv"]
        inverse = self._inverse["memory"]
        shift = self._shift[number]
        values = self._values[:, number]
        total = np.full(shape, self._sums[number])
        squares = np.full(shape, self._squares[number])
        sums = np.full(shape, self._totals[number])
        failing = np.full(shape, self._totals[_COMPONENTS["n1_cnt"]])
        unallocated = {
            role: self._unallocated[node] + memory * _sign(roles[role], "p")
            for role, node in (("P", p), ("S", s))
        }
        for role, node in (("P", p), ("S", s)):
            if kind == Kind.FAILOVER_TO_ANY and role == "S":
                continue
            online = self._online[node][:, None]
            after = column(reserved[role] * inverse[node][:, None], shape)
            before = values[node][:, None]
            change = np.where(online, after - before, 0.0)
            total += change
            squares += np.where(online, (after - shift) ** 2 - (before - shift) ** 2, 0.0)
            sums += change
            fails = unallocated[role][:, None] <= column(reserved[role], shape)
            if roles[role] == "-s":
                fails = np.where(moves_memory[:, None], fails, self._failing[node][:, None])
            fails = np.where(real[:, None] > 0, fails, self._failing[node][:, None])
            placed = self._placed[node] + real * (
                _sign(roles[role], "p", -1) + _sign(roles[role], "s", -1)
            )
            old = self._values[node, _COMPONENTS["n1_cnt"]]
            failing += np.where(online, fails * placed[:, None] - old[:, None], 0.0)
        if kind != Kind.FAILOVER:
            after = target * inverse[None, :]
            before = values[None, :]
            change = after - before
            total += change
            squares += (after - shift) ** 2 - (before - shift) ** 2
            sums += change
            taken = memory if roles["T"] == "+p" else np.zeros(len(p))
            fails = (self._unallocated[None, :] - taken[:, None]) <= target
            fails = np.where(real[:, None] > 0, fails, self._failing[None, :])
            placed = self._placed[None, :] + real[:, None]
            old = self._values[None, :, _COMPONENTS["n1_cnt"]]
            failing += fails * placed - old
        result += _WEIGHT["reserved_mem_cv"] * _deviation(total, squares, self._count)
        result += _WEIGHT["reserved_mem_rtotal"] * sums
        result += _WEIGHT["n1_cnt"] * failing

    def _add_counts(self, result: Array, facts: _Facts, kind: Kind) -> None:
        """Add the instances on offline nodes; a target is always online."""
        p, s = facts.primary, facts.secondary
        off = (~self._online).astype(float)
        real = facts.amounts["real"]
        second = np.where(facts.mirrored, off[s], 0.0)
        before_all, before_primary = off[p] + second, off[p]
        after_all, after_primary = {
            Kind.FAILOVER: (off[p] + second, second),
            Kind.REPLACE_SECONDARY: (off[p], off[p]),
            Kind.REPLACE_AND_FAILOVER: (off[p], 0.0 * second),
            Kind.REPLACE_PRIMARY: (second, 0.0 * second),
            Kind.FAILOVER_AND_REPLACE: (second, second),
            Kind.FAILOVER_TO_ANY: (0.0 * second, 0.0 * second),
        }[kind]
        everything = self._totals[_COMPONENTS["offline_all_cnt"]]
        primaries = self._totals[_COMPONENTS["offline_pri_cnt"]]
        weight_all, weight_primary = _WEIGHT["offline_all_cnt"], _WEIGHT["offline_pri_cnt"]
        value = weight_all * (everything + real * (after_all - before_all)) + weight_primary * (
            primaries + real * (after_primary - before_primary)
        )
        result += value[:, None]

    def _add_tags(
        self,
        result: Array,
        instances: Sequence[Instance],
        facts: _Facts,
        roles: dict[str, str],
    ) -> None:
        weight = _WEIGHT["pri_tags_score"]
        result += weight * self._totals[_COMPONENTS["pri_tags_score"]]
        if "-p" not in roles["P"]:
            return
        for row, instance in enumerate(instances):
            tags = instance.exclusion_tags
            if not tags:
                continue
            adds, removes = self._tag_counts(tags)
            p, s = instance.primary, instance.secondary
            if self._online[p]:
                result[row] -= weight * removes[p]
            if "+p" in roles["S"]:
                result[row] += weight * adds[s]
            else:
                result[row] += weight * adds

    def _tag_counts(self, tags: tuple[str, ...]) -> tuple[Array, Array]:
        """For each node: conflicts which one more instance makes, and one less removes."""
        found = self._tags.get(tags)
        if found is None:
            counts = np.array([[n.primary_tags.get(tag, 0) for n in self._nodes] for tag in tags])
            found = ((counts > 0).sum(axis=0).astype(float), (counts > 1).sum(axis=0).astype(float))
            self._tags[tags] = found
        return found

    def _exclude(self, result: Array, facts: _Facts, kind: Kind, roles: dict[str, str]) -> None:
        """Exclude what is certainly not possible; the rest is found out by trying."""
        if kind == Kind.FAILOVER:
            result[~self._online[facts.secondary]] = np.inf
            return
        index = np.arange(len(facts.primary))
        result[:, ~self._online] = np.inf
        result[index, facts.primary] = np.inf
        if kind != Kind.FAILOVER_TO_ANY:
            result[index, facts.secondary] = np.inf
        if kind in (Kind.REPLACE_PRIMARY, Kind.FAILOVER_AND_REPLACE):
            result[~self._online[facts.secondary]] = np.inf
        real = facts.amounts["real"][:, None] > 0
        if roles["T"] == "+p":
            left = self._unallocated[None, :] - facts.amounts["memory"][:, None]
            result[(left <= 0) & real] = np.inf
        if self._units is not None:
            return
        left = self._free_disk[None, :] - facts.amounts["disk"][:, None]
        result[(left <= 0) & (facts.amounts["disk"][:, None] > 0)] = np.inf


def _deviation(total: Array, squares: Array, count: int) -> Array:
    count = max(1, count)
    mean = total / count
    return np.sqrt(np.maximum(squares / count - mean * mean, 0.0))


def _taken(instance: Instance, wanted: tuple[str, str]) -> float:
    """Return what the disks of an instance take of a storage unit."""
    if instance.forthcoming or not instance.takes_units:
        return 0.0
    return float(sum(disk.size for disk in instance.disks if wanted in sharing(disk.unit)))


def _units(nodes: Sequence[Node]) -> dict[tuple[str, str], tuple[Array, Array, Array]] | None:
    """Desired unit -> free share, inverse size, and whether it counts, for each node."""
    if not score.has_units(node for node in nodes if not node.offline):
        return None
    found = {}
    wanted = {unit for node in nodes if not node.offline for unit in node.storage or ()}
    for one in sorted(wanted):
        units = [None if node.offline else (node.storage or {}).get(one) for node in nodes]
        totals = np.array([0.0 if unit is None else float(unit.total) for unit in units])
        free = np.array([0.0 if unit is None else float(unit.free) for unit in units])
        inverse = _inverse(totals)
        shares = np.where(totals > 0, free * inverse, 1.0)
        found[one] = (shares, inverse, np.array([unit is not None for unit in units]))
    return found


def _inverse(values: Array) -> Array:
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values != 0)


def _sign(changes: str, what: str, unit: int = 1) -> int:
    """1 where something is taken from a node (its memory becomes free), -1 where it is given."""
    return unit * (changes.count(f"-{what}") - changes.count(f"+{what}"))


def _net(changes: str, amounts: dict[str, Array | None]) -> Array | None:
    """Return what a node gets from a move, in units of the instances; None for nothing."""
    net: Array | None = None
    for what in "ps":
        amount = amounts[what]
        sign = -_sign(changes, what)
        if sign and amount is not None:
            net = sign * amount if net is None else net + sign * amount
    return net


class _Locations:
    """What moves change in the components which count location tags."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._names = names = sorted({tag for node in nodes for tag in node.location_tags})
        self._online = np.array([float(not node.offline) for node in nodes])
        #: Node, location tag -> whether the node has it.
        has = [[float(name in node.location_tags) for name in names] for node in nodes]
        self._has = np.array(has).reshape(len(nodes), len(names))
        self._common = self._has @ self._has.T
        #: Location and exclusion tag -> how many instances have them, on online nodes.
        self._counts: dict[tuple[str, str], int] = {}
        for node in nodes:
            for pair, count in node.location_pairs.items() if not node.offline else ():
                self._counts[pair] = self._counts.get(pair, 0) + count
        self._known: dict[tuple[str, ...], tuple[Array, Array]] = {}

    def add(self, result: Array, instances: Sequence[Instance], kind: Kind) -> None:
        """Add to estimates what a kind of move of some instances changes.

        :param result: see :meth:`Estimates.estimate`; distinct pairs are not subtracted yet.
        """
        result -= _WEIGHT["location_exclusion_score"] * len(self._counts)
        everywhere = np.arange(len(self._online))
        for row, one in enumerate(instances):
            if one.forthcoming:
                continue
            p, s = one.primary, one.secondary
            first, second = {
                Kind.FAILOVER: (np.array([s]), p),
                Kind.REPLACE_SECONDARY: (np.array([p]), everywhere),
                Kind.REPLACE_AND_FAILOVER: (everywhere, p),
                Kind.REPLACE_PRIMARY: (everywhere, s),
                Kind.FAILOVER_AND_REPLACE: (np.array([s]), everywhere),
                Kind.FAILOVER_TO_ANY: (everywhere, s),
            }[kind]
            after = self._lacking(one)[first]
            if one.secondary != NO_NODE:
                after = after + self._common[first, second]
            change = self._online[first] * after - self._online[p] * one.location_score
            result[row] += _WEIGHT["location_score"] * change
            if one.exclusion_tags:
                weight = _WEIGHT["location_exclusion_score"]
                result[row] += weight * self._pairs(one.exclusion_tags, p)[first]

    def _lacking(self, instance: Instance) -> Array:
        """Return how many of the desired locations of an instance each node lacks."""
        desired = instance.desired_locations
        if not desired:
            return np.zeros(len(self._online))
        wanted = np.array([float(name in desired) for name in self._names])
        found: Array = len(desired) - self._has @ wanted
        return found

    def _pairs(self, tags: tuple[str, ...], primary: int) -> Array:
        """Return how many more pairs of tags occur again when a node gets an instance of another
        one.

        :param tags: exclusion tags of the instance.
        """
        known = self._known.get(tags)
        if known is None:
            counts = np.array([[self._counts.get((name, tag), 0) for name in self._names]
                               for tag in tags]).reshape(len(tags), len(self._names))  # fmt: skip
            known = self._known[tags] = (
                (counts >= 2).sum(axis=0).astype(float), (counts >= 1).sum(axis=0).astype(float)
            )  # fmt: skip
        removed, added = known
        has = self._has * self._online[:, None]
        found: Array = has @ ((1.0 - has[primary]) * added) - (1.0 - has) @ (has[primary] * removed)
        return found


class _Facts:
    """The amounts of instances as arrays."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.primary = np.array([one.primary for one in instances], dtype=int)
        self.secondary = np.array(
            [one.primary if one.secondary == NO_NODE else one.secondary for one in instances],
            dtype=int,
        )
        self.mirrored = np.array([one.secondary != NO_NODE for one in instances])
        real = np.array([0.0 if one.forthcoming else 1.0 for one in instances])
        forth = {
            "memory_forth": [float(one.memory) for one in instances],
            "disk_forth": [float(one.disk if one.local_storage else 0) for one in instances],
            "vcpus_forth": [float(one.vcpus if one.uses_cpu else 0) for one in instances],
            "spindles_forth": [
                float(one.spindle_use if one.local_storage else 0) for one in instances
            ],
        }
        self.amounts: dict[str, Array] = {key: np.array(value) for key, value in forth.items()}
        self.amounts["real"] = real
        for name in ("disk", "vcpus", "spindles"):
            self.amounts[name] = self.amounts[f"{name}_forth"] * real
        self.amounts["memory"] = np.array(
            [float(one.memory if one.uses_memory else 0) for one in instances]
        )
        self.amounts["needed"] = np.array([float(one.secondary_memory) for one in instances])
        for position, name in enumerate(("cpu", "memory", "disk", "net")):
            self.amounts[f"load_{name}"] = real * np.array(
                [one.load[position] for one in instances]
            )


def ordered(
    estimates: Sequence[tuple[Sequence[Instance], Kind, Array]], limit: float
) -> list[tuple[float, Instance, Move]]:
    """Return the moves whose estimate is at most a limit, the lowest estimate first."""
    found: list[tuple[float, Instance, Move]] = []
    for instances, kind, values in estimates:
        for row, column in zip(*np.nonzero(values <= limit), strict=True):
            target = NO_NODE if kind == Kind.FAILOVER else int(column)
            found.append((float(values[row, column]), instances[int(row)], Move(kind, target)))
    found.sort(key=lambda one: one[0])
    return found


def smallest(estimates: Sequence[tuple[Sequence[Instance], Kind, Array]], count: int) -> float:
    """Return the estimate at a position in the order of all estimates.

    It is infinite when there are fewer.
    """
    parts = [values.ravel() for _, _, values in estimates if values.size]
    if not parts:
        return float("inf")
    flat = np.concatenate(parts)
    if len(flat) <= count:
        return float("inf")
    return float(np.partition(flat, count)[count])


__all__ = ["Array", "Estimates", "np", "ordered", "smallest", "usable"]
