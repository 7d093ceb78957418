"""Choosing nodes for new instances: every node, or pair of nodes, is tried and scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from ganeti.htools import moves, pair_scores, redundancy
from ganeti.htools.balance import Values
from ganeti.htools.cluster import UNALLOCABLE, Cluster, Group, NoNodesError
from ganeti.htools.formats import fixed
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.limits import violates
from ganeti.htools.margins import Margins
from ganeti.htools.node import Fail, Node
from ganeti.htools.policy import Range
from ganeti.utils.records import NamedTuple, field, record

#: Better policies of groups come first.
_PREFERENCE = {"preferred": 0, "last_resort": 1, UNALLOCABLE: 2}


@record(frozen=True, slots=True)
class Options:
    """How nodes are chosen.

    :ivar capacity_checks: whether the group must survive the loss of any node afterwards, but for
        the instances which could not survive before.
    :ivar restrict_to: names of the only nodes which may be chosen; None for all.
    """

    ignore_soft_errors: bool = False
    capacity_checks: bool = True
    restrict_to: Collection[str] | None = None


class Choice(NamedTuple):
    """A possible place of an instance.

    :ivar instance: the instance on its nodes.
    :ivar changed: these nodes with the instance.
    :ivar value: the score, or on dedicated nodes the lost allocations and then the free space.
    """

    instance: Instance
    changed: tuple[Node, ...]
    value: float | tuple[tuple[int, ...], int]


@record(slots=True)
class Result:
    """What came out of trying all places.

    :ivar failures: for each attempt that failed, why; in the order of the attempts.
    """

    best: Choice | None = None
    successes: int = 0
    failures: list[Fail] = field(default_factory=list)

    def failure_counts(self) -> dict[Fail, int]:
        """Return how often each reason occurred."""
        counts: dict[Fail, int] = {}
        for fail in self.failures:
            counts[fail] = counts.get(fail, 0) + 1
        return counts


class Attempt(NamedTuple):
    """One place which was tried.

    :ivar second: number of the secondary node, or ``NO_NODE``.
    :ivar value: as in :class:`Choice`, estimated to about nine digits; or why it is not possible.
    """

    first: int
    second: int
    value: Fail | float | tuple[tuple[int, ...], int]


# -- dedicated nodes ------------------------------------------------------------------------------


def is_dedicated(nodes: Iterable[Node]) -> bool:
    """Return True if all nodes have exclusive storage, so that instances share no disks."""
    return all(node.exclusive_storage for node in nodes)


def _fits(node: Node, limits: Range) -> int:
    spec = limits.smallest
    numbers = []
    for have, need in (
        (node.unallocated_memory, spec.memory),
        (node.real.free_disk, spec.disk_size),
    ):
        if need > 0:
            numbers.append(have // need)
    if node.max_vcpus >= 0 and spec.cpus > 0:
        numbers.append((node.max_vcpus - node.real.vcpus) // spec.cpus)
    return max(0, min(numbers, default=0))


def lost_allocations(before: Sequence[Node], after: Sequence[Node]) -> tuple[int, ...]:
    """Return how many instances of each smallest size fit no more; the largest size comes first."""
    ranges = before[0].policy.ranges if before[0].policy else ()
    ordered = sorted(ranges, key=lambda one: one.smallest.disk_size, reverse=True)
    return tuple(
        sum(_fits(node, limits) for node in before) - sum(_fits(node, limits) for node in after)
        for limits in ordered
    )


# -- trying all places ----------------------------------------------------------------------------


class Places:
    """Tries places for instances in a cluster, or in one group of it."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        *,
        group: int | None = None,
        dedicated: bool = False,
        record: list[Attempt] | None = None,
    ) -> None:
        """Prepare.

        :param group: number of the group in which places are tried, and whose nodes may be lost;
            None for all groups.
        :param record: gets every place which is tried.
        """
        self._record = record
        self._cluster = cluster
        self._groups = None if group is None else (group,)
        self._options = options
        self._dedicated = dedicated
        self._second_roles: dict[int, pair_scores.Role | Fail] = {}
        self._allowed = [
            node
            for node in cluster.nodes
            if not node.offline
            and (group is None or node.group == group)
            and (options.restrict_to is None or node.name in options.restrict_to)
        ]

    @cached_property
    def _values(self) -> Values:
        return Values(self._cluster.nodes)

    @cached_property
    def _scores(self) -> pair_scores.Scores:
        return pair_scores.Scores(self._cluster.nodes)

    @cached_property
    def _margins(self) -> Margins | None:
        """Answers whether the groups survive the loss of any node; None when nobody asks."""
        if not self._options.capacity_checks or self._dedicated:
            return None
        cluster = self._cluster
        return Margins(cluster.nodes, cluster.instances, self._groups)

    @cached_property
    def _stranded(self) -> set[int]:
        """The instances which did not survive the loss of their node before."""
        return redundancy.stranded(self._cluster.nodes, self._cluster.instances, self._groups)

    def find(self, instance: Instance, required: int) -> Result:
        """Try all places; for one instance only, because what was computed for it is kept.

        :param required: 1, or 2 for a secondary node, too.
        :raises NoNodesError: there are not enough nodes.
        """
        allowed = [node.index for node in self._allowed]
        if not allowed or len(allowed) < required:
            raise NoNodesError("Not enough online nodes" if required > 1 else "No online nodes")
        result = Result()
        if self._dedicated or not pair_scores.usable(self._cluster.nodes):
            for first in allowed:
                for second in self._seconds(first) if required > 1 else (NO_NODE,):
                    self._try(result, instance, first, second)
            return result
        return self._find_by_estimate(result, instance, required)

    def _seconds(self, first: int) -> list[int]:
        """Return the possible secondary nodes beside a primary node."""
        group = self._cluster.nodes[first].group
        return [node.index for node in self._allowed if node.index != first and node.group == group]

    def _find_by_estimate(self, result: Result, instance: Instance, required: int) -> Result:
        """Estimate the scores of all places, and compute that of the best ones."""
        force, margins = self._options.ignore_soft_errors, self._margins
        estimates: list[tuple[float, int, int, pair_scores.Role]] = []
        for node in self._allowed:
            first = node.index
            primary = self._scores.primary(instance, first, force=force)
            seconds = self._seconds(first) if required > 1 else [NO_NODE]
            if isinstance(primary, Fail):
                result.failures += [primary] * len(seconds)
                self._note((first, second, primary) for second in seconds)
                continue
            if required == 1:
                if margins is not None and not margins.holds(primary.instance, primary.node):
                    result.failures.append(Fail.N1)
                    self._note([(first, NO_NODE, Fail.N1)])
                else:
                    estimates.append((self._scores.alone(primary), first, NO_NODE, primary))
                continue
            for second, found in self._pairs(instance, primary, seconds):
                if isinstance(found, Fail):
                    result.failures.append(found)
                    self._note([(first, second, found)])
                else:
                    estimates.append((found, first, second, primary))
        self._note((one[1], one[2], one[0]) for one in estimates)
        result.successes = len(estimates)
        self._choose(result, instance, estimates)
        return result

    def _note(
        self, tried: Iterable[tuple[int, int, Fail | float | tuple[tuple[int, ...], int]]]
    ) -> None:
        if self._record is not None:
            self._record += [Attempt(*one) for one in tried]

    def _pairs(
        self, instance: Instance, primary: pair_scores.Role, seconds: Sequence[int]
    ) -> Iterator[tuple[int, float | Fail]]:
        """Estimate the scores of a primary node with each secondary node."""
        force, margins = self._options.ignore_soft_errors, self._margins
        roles = []
        for second in seconds:
            if second not in self._second_roles:
                self._second_roles[second] = self._scores.secondary(instance, second, force=force)
            roles.append(self._second_roles[second])
        values = iter(
            self._scores.pairs(
                primary, [one for one in roles if not isinstance(one, Fail)], force=force
            )
        )
        for second, role in zip(seconds, roles, strict=True):
            if isinstance(role, Fail):
                yield second, role
                continue
            value = next(values)
            if (
                margins is not None
                and not isinstance(value, Fail)
                and not margins.holds(primary.instance, primary.node, role.node)
            ):
                value = Fail.N1
            yield second, value

    def _choose(
        self,
        result: Result,
        instance: Instance,
        estimates: Sequence[tuple[float, int, int, pair_scores.Role]],
    ) -> None:
        """Take the best of the estimated places; of equal places the last one."""
        values = [one[0] for one in estimates if not math.isnan(one[0])]
        limit = math.inf
        if values and len(values) == len(estimates):
            best = min(values)
            limit = best + pair_scores.slack(best)
        for estimate, first, second, primary in estimates:
            if estimate > limit:
                continue
            found = self.changed(instance, first, second)
            assert not isinstance(found, Fail)
            new, changed = found
            value = self._scores.exact(primary, changed)
            if result.best is None or value <= result.best.value:  # type: ignore[operator]
                result.best = Choice(new, changed, value)

    def _try(self, result: Result, instance: Instance, first: int, second: int) -> None:
        found = self._place(instance, first, second)
        self._note([(first, second, found if isinstance(found, Fail) else found.value)])
        if isinstance(found, Fail):
            result.failures.append(found)
            return
        result.successes += 1
        # Of equal places the last one is taken.
        if result.best is None or found.value <= result.best.value:  # type: ignore[operator]
            result.best = found

    def try_secondary(self, result: Result, instance: Instance, second: int) -> None:
        """Try a secondary node of an existing instance."""
        if all(node.index != second for node in self._allowed):
            return
        nodes, force = self._cluster.nodes, self._options.ignore_soft_errors
        primary, secondary = nodes[instance.primary].copy(), nodes[second].copy()
        new = moves.moved(instance, nodes, instance.primary, second)
        new.become_mirrored()
        primary.location_score += new.location_score - instance.location_score
        fail = secondary.add_secondary(new, instance.primary, force=force)
        if fail is None and self._options.capacity_checks:
            after, instances = list(nodes), list(self._cluster.instances)
            after[primary.index], after[second] = primary, secondary
            instances[new.index] = new
            if not redundancy.is_redundant(after, instances, self._groups, ignored=self._stranded):
                fail = Fail.N1
        if fail is not None:
            result.failures.append(fail)
            return
        result.successes += 1
        changed = (primary, secondary)
        choice = Choice(new, changed, self._score(changed))
        if result.best is None or choice.value <= result.best.value:  # type: ignore[operator]
            result.best = choice

    def changed(
        self, instance: Instance, first: int, second: int
    ) -> tuple[Instance, tuple[Node, ...]] | Fail:
        """Place an instance on copies of two nodes.

        :returns: the instance and the copies, or why it is not possible.
        """
        nodes, force = self._cluster.nodes, self._options.ignore_soft_errors
        primary = nodes[first].copy()
        policy = primary.policy
        fail = policy and violates(instance, policy, exclusive=primary.exclusive_storage)
        if fail:
            return fail
        new = moves.moved(instance, nodes, first, second)
        fail = primary.add_primary(new, force=force)
        if fail is not None:
            return fail
        if second == NO_NODE:
            return new, (primary,)
        secondary = nodes[second].copy()
        fail = secondary.add_secondary(new, first, force=force)
        return fail or (new, (primary, secondary))

    def _place(self, instance: Instance, first: int, second: int) -> Choice | Fail:
        found = self.changed(instance, first, second)
        if isinstance(found, Fail):
            return found
        new, changed = found
        if self._margins is not None and not self._margins.holds(new, *changed):
            return Fail.N1
        if self._dedicated:
            lost = lost_allocations([self._cluster.nodes[one.index] for one in changed], changed)
            return Choice(new, changed, (lost, sum(node.real.free_disk for node in changed)))
        return Choice(new, changed, self._score(changed))

    def _score(self, changed: tuple[Node, ...]) -> float:
        return self._values.exact(changed, [self._values.row(node) for node in changed])


def add(cluster: Cluster, choice: Choice) -> Instance:
    """Add a placed instance to a cluster; changes its lists."""
    instance = choice.instance
    instance.index = len(cluster.instances)
    cluster.instances.append(instance)
    for node in choice.changed:
        new = node.copy()
        new.renumber(lambda indices: tuple(instance.index if i == -1 else i for i in indices))
        cluster.nodes[new.index] = new
    return instance


def with_secondary(
    cluster: Cluster, instance: Instance, nodes: Iterable[Node], options: Options
) -> Result:
    """Try secondary nodes for an instance that gets one; its primary node stays."""
    result = Result()
    places = Places(cluster, options, group=cluster.nodes[instance.primary].group)
    for node in nodes:
        if node.index != instance.primary:
            places.try_secondary(result, instance, node.index)
    return result


# -- choosing a group -----------------------------------------------------------------------------


@record(slots=True)
class Placement:
    """The answer to a request for one instance.

    :ivar cluster: the cluster with the instance; None when there is no place.
    :ivar log: what happened, for the user.
    """

    cluster: Cluster | None
    instance: Instance | None
    log: list[str]


def in_any_group(
    cluster: Cluster,
    instance: Instance,
    required: int,
    options: Options,
    *,
    explain: Callable[[str], None] | None = None,
) -> Placement:
    """Place an instance in the best group that takes instances; the cluster is not changed."""
    # For the log, groups which take no instances are tried, too.
    dedicated = is_dedicated(
        node for node in cluster.nodes if cluster.groups[node.group].alloc_policy != UNALLOCABLE
    )
    _say_dedicated(dedicated, explain)
    first_log: list[str] = []
    log: list[str] = []
    best: tuple[tuple[int, float | tuple[tuple[int, ...], int]], Group, Choice] | None = None
    for group in cluster.groups:
        if not is_connected(group, instance):
            first_log.append(not_connected(group, instance))
            continue
        try:
            found = in_group(cluster, group, instance, required, options, dedicated=dedicated)
        except NoNodesError as err:
            if cluster.nodes_of(group.index):
                log.append(f"Group {group.name}: error {err}")
            continue
        log.append(describe(group, found, cluster.nodes))
        if found.best is None or group.alloc_policy == UNALLOCABLE:
            continue
        rank = (_PREFERENCE[group.alloc_policy], found.best.value)
        if best is None or rank < best[0]:
            best = (rank, group, found.best)
    if best is None:
        return Placement(None, None, [*first_log, *log])
    after = cluster.copy()
    placed = add(after, best[2])
    return Placement(after, placed, [f"Selected group: {best[1].name}", *first_log, *log])


def in_one_group(
    cluster: Cluster,
    group: Group,
    instance: Instance,
    required: int,
    options: Options,
    *,
    explain: Callable[[str], None] | None = None,
) -> Placement:
    """Place an instance in one group, as if there were no others; the cluster is not changed."""
    if not is_connected(group, instance):
        return Placement(None, None, [f"The {not_connected(group, instance)}"])
    members = cluster.nodes_of(group.index)
    dedicated = bool(members) and is_dedicated(members)
    _say_dedicated(dedicated, explain)
    try:
        found = in_group(
            cluster, group, instance, required, options, dedicated=dedicated, alone=True
        )
    except NoNodesError as err:
        return Placement(None, None, [str(err)])
    log = [describe(group, found, cluster.nodes)]
    if found.best is None:
        return Placement(None, None, log)
    after = cluster.copy()
    return Placement(after, add(after, found.best), log)


def _say_dedicated(dedicated: bool, explain: Callable[[str], None] | None) -> None:
    if dedicated and explain is not None:
        explain("Allocation on a dedicated cluster; using lost-allocations metrics.")


def is_connected(group: Group, instance: Instance) -> bool:
    """Return True if a group is connected to all networks of an instance."""
    return all(nic.network is None or nic.network in group.networks for nic in instance.nics)


def not_connected(group: Group, instance: Instance) -> str:
    """Say that a group lacks a network of an instance."""
    return f"group {group.name} is not connected to a network required by instance {instance.name}"


def in_group(
    cluster: Cluster,
    group: Group,
    instance: Instance,
    required: int,
    options: Options,
    *,
    dedicated: bool = False,
    alone: bool = False,
    record: list[Attempt] | None = None,
) -> Result:
    """Try all places in one group.

    :param alone: whether the score is that of the group; otherwise it is that of the cluster.
    :param record: gets every place which is tried.
    """
    if not alone:
        places = Places(cluster, options, group=group.index, dedicated=dedicated, record=record)
        return places.find(instance, required)
    numbers = {NO_NODE: NO_NODE}
    for position, node in enumerate(cluster.nodes_of(group.index)):
        numbers[position] = node.index
    tried: list[Attempt] = []
    places = Places(cluster.only(group.index), options, dedicated=dedicated, record=tried)
    found = places.find(instance, required)
    if record is not None:
        record += [Attempt(numbers[one.first], numbers[one.second], one.value) for one in tried]
    if found.best is not None:
        chosen = found.best.instance
        first, second = numbers[chosen.primary], numbers[chosen.secondary]
        placed = Places(cluster, options).changed(instance, first, second)
        assert not isinstance(placed, Fail)
        found.best = Choice(*placed, found.best.value)
    return found


def describe(group: Group, result: Result, nodes: Sequence[Node]) -> str:
    """One line about a group, as users get it."""
    return f"Group {group.name} ({group.alloc_policy}): {summary(result, nodes)}"


def summary(result: Result, nodes: Sequence[Node]) -> str:
    """Return what came out, as users get it."""
    counts = result.failure_counts()
    reasons = ", ".join(f"{fail.value}: {counts[fail]}" for fail in Fail if fail in counts)
    if result.best is None:
        return f"No valid allocation solutions, failure reasons: {reasons}"
    chosen = "/".join(nodes[index].name for index in result.best.instance.nodes)
    return (
        f"score: {show_value(result.best.value)}, successes {result.successes}, failures"
        f" {len(result.failures)} ({reasons}) for node(s) {chosen}"
    )


def show_value(value: float | tuple[tuple[int, ...], int]) -> str:
    """Write the value of a place."""
    if isinstance(value, tuple):
        return f"([{','.join(str(one) for one in value[0])}],{value[1]})"
    return fixed(value, 8)


def preference(group: Group) -> int:
    """Return the rank of the allocation policy of a group; lower is better."""
    return _PREFERENCE[group.alloc_policy]
