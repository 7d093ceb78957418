"""Placing instances which become smaller, until none of any size fits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from ganeti.htools.capacity.equal_sizes import Filled, place_all, require_places
from ganeti.htools.capacity.filler import Attempt, Filler
from ganeti.htools.capacity.places import Plan
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Instance
from ganeti.htools.node import Fail

#: By how much one step of :func:`tiered` shrinks a resource; memory and disk space in MiB.
UNITS = {Fail.MEMORY: 64, Fail.DISK: 256, Fail.CPU: 1, Fail.SPINDLES: 1}


def shrink(instance: Instance, reason: Fail, steps: int = 1) -> Instance | None:
    """Make an instance smaller in the resource which some nodes lack.

    :returns: None when it cannot become so small, or when the size is not the reason.
    """
    unit = UNITS.get(reason)
    if unit is None:
        return None
    less = unit * steps
    if reason is Fail.MEMORY:
        return (
            None
            if instance.memory - less < unit
            else instance.resized(memory=instance.memory - less)
        )
    if reason is Fail.CPU:
        return (
            None if instance.vcpus - less < unit else instance.resized(vcpus=instance.vcpus - less)
        )
    if reason is Fail.DISK:
        disks = tuple(one._replace(size=one.size - less) for one in instance.disks)
        if any(one.size < unit for one in disks):
            return None
        return instance.resized(disk=instance.disk - less * len(disks), disks=disks)
    if instance.spindles is None or instance.spindles - less < unit:
        return None
    disks = tuple(one._replace(spindles=(one.spindles or 0) - less) for one in instance.disks)
    return instance.resized(disks=disks)


def tiered(
    cluster: Cluster, plan_: Plan, instances: Sequence[Instance], *, limit: int | None = None
) -> Filled:
    """Place instances which become smaller.

    :param instances: the largest instance of each range of sizes, in their order.
    :param limit: the most instances; None for no limit.
    :raises NoNodesError: there are no places to try.
    """
    if plan_.refused:
        return Filled(cluster, failures={Fail.N1: 1}, refused=True)
    result = Filled(cluster)
    for instance in instances:
        require_places(plan_, instance)
        result = _Tiers(cluster, plan_, limit).run(result, instance)
    return result


class _Tiers:
    """One range of sizes."""

    def __init__(self, cluster: Cluster, plan_: Plan, limit: int | None) -> None:
        self._plan = plan_
        self._limit = limit
        groups = {cluster.nodes[index].group for index in plan_.members}
        ranges = [one.smallest for group in groups for one in cluster.groups[group].policy.ranges]
        # Below each of these sizes a policy calls an instance too small.
        self._bounds = {
            Fail.MEMORY: {one.memory for one in ranges},
            Fail.DISK: {one.disk_size for one in ranges},
            Fail.CPU: {one.cpus for one in ranges},
            Fail.SPINDLES: {one.spindle_use for one in ranges},
        }

    def run(self, before: Filled, instance: Instance) -> Filled:
        """Place instances of a size and of smaller ones, after those which were placed before."""
        count = len(before.cluster.instances) - len(before.placed)
        filler = Filler(before.cluster, self._plan, count)
        found = Filled(before.cluster, list(before.placed))
        while True:
            place_all(filler, found, instance, self._limit)
            found.cluster = filler.cluster
            if self._limit is not None and len(found.placed) >= self._limit:
                return found
            smaller, failures = self._next(filler, instance, found)
            if smaller is None:
                found.failures = failures
                return found
            instance = smaller

    def _next(
        self, filler: Filler, instance: Instance, found: Filled
    ) -> tuple[Instance | None, dict[Fail, int]]:
        """Return the next smaller size which fits, or why there is none."""
        attempt = Attempt(None, found.failures)
        # Shrinks which led here: (size, reason) from the largest to the smallest.
        path: list[tuple[Instance, Fail]] = []
        while attempt.best is None:
            reason = _most_frequent(attempt.failures)
            step = self._until(
                filler,
                instance,
                reason,
                functools.partial(_changes, reason),
            )
            path.append((instance, reason))
            if step is None:
                break
            instance, attempt = step
        else:
            return instance, {}
        return self._alternative(filler, path), found.failures

    def _until(
        self,
        filler: Filler,
        instance: Instance,
        reason: Fail,
        done: Callable[[Attempt], bool],
    ) -> tuple[Instance, Attempt] | None:
        """Shrink one resource until a condition is true; None when it never is."""
        low = 0
        for last in self._stretches(instance, reason):
            # In one stretch no policy begins to call the size too small. So a smaller size fits
            # where a larger one did, and the first one is found by doubling and halving.
            found: tuple[int, Instance, Attempt] | None = None
            width = 1
            while found is None and low < last:
                steps = min(low + width, last)
                tried = self._try(filler, instance, reason, steps)
                if done(tried[2]):
                    found = tried
                else:
                    low, width = steps, width * 2
            while found is not None and found[0] - low > 1:
                tried = self._try(filler, instance, reason, (low + found[0]) // 2)
                if done(tried[2]):
                    found = tried
                else:
                    low = tried[0]
            if found is not None:
                return found[1], found[2]
        return None

    def _try(
        self, filler: Filler, instance: Instance, reason: Fail, steps: int
    ) -> tuple[int, Instance, Attempt]:
        smaller = shrink(instance, reason, steps)
        assert smaller is not None
        return steps, smaller, filler.attempt(smaller)

    def _stretches(self, instance: Instance, reason: Fail) -> list[int]:
        """Return the last steps of shrinking a resource before each policy calls it too small."""
        unit = UNITS.get(reason)
        if unit is None:
            return []
        amount = _amount(instance, reason)
        ends = {(amount - bound) // unit for bound in self._bounds[reason] if bound <= amount}
        return sorted(end for end in ends | {(amount - unit) // unit} if end > 0)

    def _alternative(
        self, filler: Filler, path: Sequence[tuple[Instance, Fail]]
    ) -> Instance | None:
        """Another resource to shrink, when shrinking what most places lack leads nowhere.

        It is shrunk until no place lacks it; then there must be a place.
        """
        for instance, reason in reversed(path):
            for steps in (*reversed(self._stretches(instance, reason)), 0):
                size = self._try(filler, instance, reason, steps)[1] if steps else instance
                failures = filler.attempt(size).failures
                for other in _by_frequency(failures):
                    if not failures.get(other):
                        continue
                    found = self._until(
                        filler,
                        size,
                        other,
                        functools.partial(_suffices, other),
                    )
                    if found is not None and found[1].best is not None:
                        return found[0]
        return None


def _amount(instance: Instance, reason: Fail) -> int:
    if reason is Fail.MEMORY:
        return instance.memory
    if reason is Fail.CPU:
        return instance.vcpus
    if reason is Fail.DISK:
        return min((one.size for one in instance.disks), default=0)
    return instance.spindles or 0


def _changes(reason: Fail, attempt: Attempt) -> bool:
    """Return True if there is a place, or another reason is the most frequent one."""
    return attempt.best is not None or _most_frequent(attempt.failures) is not reason


def _suffices(reason: Fail, attempt: Attempt) -> bool:
    """Return True if there is a place, or a reason has gone."""
    return attempt.best is not None or not attempt.failures.get(reason)


def _most_frequent(failures: Mapping[Fail, int]) -> Fail:
    """Return the most frequent reason; of equally frequent ones the last."""
    return _by_frequency(failures)[0]


def _by_frequency(failures: Mapping[Fail, int]) -> list[Fail]:
    counts = [(failures.get(fail, 0), number, fail) for number, fail in enumerate(Fail)]
    return [fail for _, _, fail in sorted(counts, reverse=True, key=lambda item: item[:2])]
