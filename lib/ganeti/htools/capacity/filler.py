"""Places equal instances on a copy of a cluster, and remembers what was computed for them.

Equal instances are tried on the same nodes again and again, and one more instance changes only two
nodes. So what each node would be with the instance is kept, and computed again for changed nodes
only. The pairs of nodes are put in the order of their scores by
:mod:`ganeti.htools.capacity.ranking`. Instances on one node are tried on every node, and so are
pairs when a node has no memory or processors, so that a score may not be a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ganeti.htools import balance, moves, redundancy
from ganeti.htools.capacity import ranking
from ganeti.htools.capacity.places import Place, Plan
from ganeti.htools.capacity.ranking import Ranking
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE, NOBODY, Instance
from ganeti.htools.limits import violates
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple


class Attempt(NamedTuple):
    """What came out of trying all places for one instance.

    :ivar best: the place, or None when there is none.
    """

    best: Place | None
    failures: dict[Fail, int]


class Role(NamedTuple):
    """A node with the new instance.

    :ivar row: its component values.
    """

    node: Node
    row: list[float]


class Filler:
    """Fills a copy of a cluster.

    :param before: how many instances there were before the first new one.
    """

    def __init__(self, cluster: Cluster, plan_: Plan, before: int) -> None:
        self.cluster = cluster.copy()
        self._plan = plan_
        self._before = before
        self._values = balance.Values(cluster.nodes, sums=False)
        self._ranking = self._make_ranking(cluster)
        if self._ranking is None:
            self._values.sum_up()
        self._instance: Instance | None = None
        self._primaries: dict[int, dict[int, Role | Fail]] = {}
        self._secondaries: dict[int, dict[int, Role | Fail]] = {}
        self._checker = redundancy.Checker(plan_.checked, online_only=plan_.options.accept_existing)
        self._survived: bool | None = None

    @property
    def ranked(self) -> bool:
        """True if the best pair is found without scoring every pair."""
        return self._ranking is not None

    def _make_ranking(self, cluster: Cluster) -> Ranking | None:
        plan_ = self._plan
        if not plan_.members or plan_.required == 1 or not plan_.options.ranking:
            return None
        if not ranking.usable(cluster.nodes):
            return None
        return Ranking(cluster.nodes, self._values, plan_.members)

    def attempt(self, instance: Instance, *, count: bool = True) -> Attempt:
        """Try all places for an instance, and change nothing.

        :param count: say also why places are not possible when there is a possible one.
        """
        self._begin(instance)
        failures: dict[Fail, int] | None = None
        if self._ranking is None:
            possible, failures = self._try_one_by_one(instance)
            ranked = self._ranked(possible)
        else:
            ranked = self._try_ranking(self._ranking, instance)
        best, refused = self._first_to_survive(ranked)
        if failures is None:
            assert self._ranking is not None
            failures = self._ranking.failures(instance) if count or best is None else {}
        if refused and best is None:
            failures[Fail.N1] = failures.get(Fail.N1, 0) + refused
        return Attempt(best, failures)

    def order(self, instance: Instance) -> Iterator[Place]:
        """Return the possible places, from the best score to the worst.

        Of equal ones the last is first.

        It does not look whether the cluster survives the loss of a node.
        """
        self._begin(instance)
        if self._ranking is None:
            return self._ranked(self._try_one_by_one(instance)[0])
        return self._try_ranking(self._ranking, instance)

    def _begin(self, instance: Instance) -> None:
        """Forget what was computed for another instance."""
        if instance is not self._instance:
            self._instance = instance
            self._primaries.clear()
            self._secondaries.clear()
            if self._ranking is not None:
                self._ranking.forget_all()

    def _first_to_survive(self, ranked: Iterator[Place]) -> tuple[Place | None, int]:
        """Return the first place where the cluster survives the loss of any node, and how many
        before.
        """
        if not self._plan.options.capacity_checks:
            return next(ranked, None), 0
        refused = 0
        for place in ranked:
            if self._survives(place):
                return place, refused
            refused += 1
        return None, refused

    def _try_one_by_one(self, instance: Instance) -> tuple[list[Place], dict[Fail, int]]:
        failures: dict[Fail, int] = {}
        possible: list[Place] = []
        for place in self._plan.places:
            found = self._refusal(instance, place)
            if found is None:
                possible.append(place)
            else:
                failures[found] = failures.get(found, 0) + 1
        return possible, failures

    def _try_ranking(self, pairs: Ranking, instance: Instance) -> Iterator[Place]:
        for index in sorted(pairs.stale):
            first = self._first(instance, (index, NO_NODE))
            second = self._second(instance, (NOBODY, index))
            pairs.set_roles(
                index,
                first if isinstance(first, Fail) else first.row,
                second if isinstance(second, Fail) else second.row,
            )
        return pairs.ranked(instance.secondary_memory)

    def put(self, instance: Instance, place: Place) -> Instance:
        """Place an instance."""
        roles = self._roles(place)
        nodes = [role.node.copy() for role in roles]
        number = len(self.cluster.instances)
        count = number - self._before
        new = moves.moved(instance, self.cluster.nodes, *place)
        new.index = number
        new.name = new.alias = f"new-{count}"
        self.cluster.instances.append(new)
        for node in nodes:
            node.give_number(number)
            self.cluster.nodes[node.index] = node
        self._values.take_over(nodes, [role.row for role in roles])
        if self._ranking is None:
            self._values.sum_up()
        for node in nodes:
            self._primaries.pop(node.index, None)
            self._secondaries.pop(node.index, None)
            if self._ranking is not None:
                self._ranking.update(node, self._values.rows[node.index])
        return new

    def _common(self, place: Place) -> int:
        nodes = self.cluster.nodes
        if place[1] == NO_NODE:
            return 0
        return len(nodes[place[0]].location_tags & nodes[place[1]].location_tags)

    def _refusal(self, instance: Instance, place: Place) -> Fail | None:
        first = self._first(instance, place)
        if isinstance(first, Fail):
            return first
        if place[1] == NO_NODE:
            return None
        second = self._second(instance, place)
        return second if isinstance(second, Fail) else None

    def _first(self, instance: Instance, place: Place) -> Role | Fail:
        known = self._primaries.setdefault(place[0], {})
        common = self._common(place)
        found = known.get(common)
        if found is None:
            node = self.cluster.nodes[place[0]].copy()
            policy = node.policy
            fail = policy and violates(instance, policy, exclusive=node.exclusive_storage)
            if not fail:
                # A copy on its nodes is only needed where it differs from the new instance.
                differs = common or instance.desired_locations
                fail = node.add_primary(
                    moves.moved(instance, self.cluster.nodes, *place) if differs else instance
                )
            found = known[common] = fail or Role(node, self._values.row(node))
        return found

    def _second(self, instance: Instance, place: Place) -> Role | Fail:
        known = self._secondaries.setdefault(place[1], {})
        found = known.get(place[0])
        if found is None:
            node = self.cluster.nodes[place[1]].copy()
            fail = node.add_secondary(instance, place[0])
            found = known[place[0]] = fail or Role(node, self._values.row(node))
        return found

    def _roles(self, place: Place) -> list[Role]:
        """Return the nodes of a possible place with the instance."""
        assert self._instance is not None
        found = [self._first(self._instance, place)]
        if place[1] != NO_NODE:
            found.append(self._second(self._instance, place))
        assert not any(isinstance(one, Fail) for one in found)
        return found  # type: ignore[return-value]

    def _ranked(self, possible: Sequence[Place]) -> Iterator[Place]:
        """Yield the places from the best score to the worst; of equal ones the last comes first."""
        left = list(possible)
        while left:
            found = self._best(left)
            yield found
            left.remove(found)

    def _best(self, possible: Sequence[Place]) -> Place:
        if len(possible) == 1:
            return possible[0]
        values = self._values
        sums = values.allocation_sums()
        scores = []
        for place in possible:
            roles = self._roles(place)
            scores.append(
                values.allocation(sums, [one.node for one in roles], [one.row for one in roles])
            )
        best = 0
        for number, value in enumerate(scores):
            if value <= scores[best]:
                best = number
        return possible[best]

    def _survives(self, place: Place) -> bool:
        """Return True if the cluster survives the loss of any node with one more instance."""
        assert self._instance is not None
        cluster = self.cluster
        if self._survived is None:
            # It stays so: instances are only placed where nodes can be lost afterwards. And another
            # instance never helps a node which cannot be lost.
            self._survived = self._checker.check(cluster.nodes, cluster.instances)
        if not self._survived:
            return False
        after = list(cluster.nodes)
        for role in self._roles(place):
            after[role.node.index] = role.node
        new = moves.moved(self._instance, cluster.nodes, *place)
        touched = [index for index in place if index != NO_NODE]
        return self._checker.check_more(after, [*cluster.instances, new], touched)
