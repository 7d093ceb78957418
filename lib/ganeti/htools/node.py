"""Nodes, as the placement programs see them, and what placing an instance on one changes.

A node is never changed in place by a search: :meth:`Node.copy` makes a copy, and the four
operations (:meth:`~Node.add_primary`, :meth:`~Node.add_secondary`, :meth:`~Node.remove_primary`,
:meth:`~Node.remove_secondary`) change the copy. The containers of a node are replaced, never
changed, so copies may share them.

What instances use of a node is counted twice, in two :class:`Usage`: by real instances alone, and
*with forthcoming*, as if the instances which are only reserved existed. Each change of them is
written once; while a node has no forthcoming instance, both are one object.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping

from ganeti import TYPE_CHECKING
from ganeti.htools.instance import NO_LOAD, UNIT_LOAD, Instance, memory_to_keep
from ganeti.htools.policy import most_spindles, most_vcpus
from ganeti.htools.space import StorageUnit, units_after, units_fit
from ganeti.utils.records import NamedTuple

if TYPE_CHECKING:
    from typing import TypeVar

    from ganeti.htools.policy import Policy

    K = TypeVar("K")


class Fail(enum.Enum):
    """Why an instance cannot be placed; the value is the published name."""

    MEMORY = "FailMem"
    DISK = "FailDisk"
    CPU = "FailCPU"
    N1 = "FailN1"
    TAGS = "FailTags"
    MIGRATION = "FailMig"
    DISK_COUNT = "FailDiskCount"
    SPINDLES = "FailSpindles"
    INTERNAL = "FailInternal"


def divide(numerator: float, denominator: float) -> float:
    """Divide like a processor does: by zero it is infinite, or not a number."""
    if denominator:
        return numerator / denominator
    if not numerator or math.isnan(numerator):
        return math.nan
    return math.copysign(math.inf, numerator)


class Usage(NamedTuple):
    """What instances use of a node. It never changes; its methods return another one.

    :ivar primaries: numbers of the primary instances, the newest first.
    :ivar vcpus: virtual CPUs of the primary instances, and the CPUs of the node itself.
    :ivar free_disk: MiB.
    :ivar spindles: spindles which instances share; 0 with exclusive storage.
    :ivar free_spindles: with exclusive storage; negative when an instance has no known number.
    """

    primaries: tuple[int, ...]
    secondaries: tuple[int, ...]
    vcpus: int
    free_disk: int
    spindles: float
    free_spindles: int

    def plus(
        self, instance: Instance, primary: bool, disk: int, spindles: int, free_spindles: int
    ) -> Usage:
        """Add an instance.

        :param disk: MiB of the free disk space which it takes.
        :param spindles: spindles which it shares.
        :param free_spindles: those which are free then.
        """
        primaries, secondaries, vcpus, free_disk, shared, _ = self
        if primary:
            primaries = (instance.index, *primaries)
            if instance.uses_cpu:
                vcpus += instance.vcpus
        else:
            secondaries = (instance.index, *secondaries)
        return Usage(
            primaries, secondaries, vcpus, free_disk - disk, shared + spindles, free_spindles
        )

    def minus(
        self, instance: Instance, primary: bool, disk: int, spindles: int, free_spindles: int
    ) -> Usage:
        """Remove an instance; the parameters are those of :meth:`plus`."""
        primaries, secondaries, vcpus, free_disk, shared, _ = self
        index = instance.index
        if primary:
            primaries = tuple(one for one in primaries if one != index)
            if instance.uses_cpu:
                vcpus -= instance.vcpus
        else:
            secondaries = tuple(one for one in secondaries if one != index)
        return Usage(
            primaries, secondaries, vcpus, free_disk + disk, shared - spindles, free_spindles
        )


class Outside(NamedTuple):
    """How many real instances of a node have their other node outside of the part of a cluster.

    They are no instances of the part; they count in the score of a node that is offline.
    """

    primaries: int = 0
    secondaries: int = 0

    def plus(self, before: Usage, after: Usage) -> Outside:
        """Add the instances which are missing afterwards."""
        return Outside(
            self.primaries + len(before.primaries) - len(after.primaries),
            self.secondaries + len(before.secondaries) - len(after.secondaries),
        )


class Resources(NamedTuple):
    """What a node has to give, without regard to the instances which are placed on it.

    :ivar total_memory: MiB.
    :ivar own_memory: MiB which the node needs for itself.
    :ivar free_memory: MiB which were free when it was asked.
    :ivar total_disk: MiB.
    :ivar free_disk: MiB.
    :ivar free_spindles: with exclusive storage.
    :ivar storage: desired storage unit -> the unit of this node; None when units are not known.
    """

    total_memory: float = 0.0
    own_memory: int = 0
    free_memory: int = 0
    total_disk: float = 0.0
    free_disk: int = 0
    total_cpus: float = 0.0
    own_cpus: int = 1
    spindles: int = 1
    free_spindles: int = 0
    cpu_speed: float = 1.0
    storage: dict[tuple[str, str], StorageUnit] | None = None


class Node:
    """A node and what is placed on it; its resources are attributes, too.

    :ivar instance_memory: MiB which the instances running on it should occupy.
    :ivar free_memory_forth: MiB which would be free of that, with forthcoming.
    :ivar real: what its real instances use.
    :ivar forth: what its instances use, with forthcoming.
    :ivar outside: counts of instances which this part of the cluster does not have.
    :ivar unaccounted_memory: MiB which something unknown occupies; negative when instances use
        less than they may.
    :ivar peers: number of a node -> MiB of memory to keep free for instances of that node. In a
        part of a cluster, numbers above those of its nodes are nodes outside.
    :ivar reserved_memory: MiB which must stay free for the loss of any one other node.
    :ivar max_vcpus: how many virtual CPUs may be placed; negative for no limit.
    :ivar min_disk: MiB of disk space which should stay free.
    :ivar migration_tags: those of its tags which limit migrations from it.
    :ivar accepted_tags: nodes with only these migration tags may migrate to it.
    :ivar lost: it does not answer, so nothing is known of it and nothing can migrate from it.
    """

    def __init__(
        self,
        name: str,
        resources: Resources,
        *,
        group: int = 0,
        offline: bool = False,
        master: bool = False,
        exclusive_storage: bool = False,
        tags: tuple[str, ...] = (),
        hypervisor: str | None = None,
    ) -> None:
        self.name = name
        self.alias = name
        self.index = -1
        self.group = group
        self.total_memory = resources.total_memory
        self.own_memory = resources.own_memory
        self.instance_memory = 0
        self.free_memory = self.free_memory_forth = resources.free_memory
        self.unaccounted_memory = 0
        self.total_disk = resources.total_disk
        self.total_cpus = resources.total_cpus
        self.cpu_speed = resources.cpu_speed
        self.own_cpus = resources.own_cpus
        self.total_spindles = resources.spindles
        self.real = self.forth = Usage(
            (), (), resources.own_cpus, resources.free_disk, 0.0, resources.free_spindles
        )
        self.outside = Outside()
        self.peers: dict[int, int] = {}
        self.reserved_memory = 0
        self.failing = False
        self.min_disk_ratio = 0.0
        self.min_disk = 0
        self.max_vcpus = -1
        self.max_spindles = -1.0
        self.offline = offline
        self.master = master
        self.tags = tags
        self.pool = UNIT_LOAD
        self.load = NO_LOAD
        self.primary_tags: dict[str, int] = {}
        self.policy: Policy | None = None
        self.exclusive_storage = exclusive_storage
        self.migration_tags: frozenset[str] = frozenset()
        self.accepted_tags: frozenset[str] = frozenset()
        self.location_tags: frozenset[str] = frozenset()
        self.location_score = 0
        #: (location tag, exclusion tag) -> number of primary instances.
        self.location_pairs: dict[tuple[str, str], int] = {}
        self.hypervisor = hypervisor
        self.storage = resources.storage
        self.lost = False

    def copy(self) -> Node:
        """Make a copy that may be changed."""
        new = Node.__new__(Node)
        new.__dict__.update(self.__dict__)
        return new

    # -- derived values ---------------------------------------------------------------------------

    @property
    def unallocated_memory(self) -> int:
        """MiB of memory which no instance may use, and nothing unknown does."""
        free = int(self.total_memory) - self.own_memory - self.instance_memory
        unknown = self.unaccounted_memory
        return free - unknown if unknown > 0 else free

    @property
    def available_memory(self) -> int:
        """MiB of memory for new instances: without what must stay free for other nodes."""
        return max(0, self.unallocated_memory - self.reserved_memory)

    @property
    def available_disk(self) -> int:
        """MiB of disk space for new instances."""
        return max(0, self.real.free_disk - self.min_disk)

    @property
    def memory_ratio(self) -> float:
        """The share of its memory which no instance may use."""
        return divide(self.unallocated_memory, self.total_memory)

    @property
    def memory_ratio_forth(self) -> float:
        """The share of its memory which is free, with forthcoming."""
        return divide(self.free_memory_forth, self.total_memory)

    @property
    def disk_ratio(self) -> float:
        """The free share of its disk space, or of its spindles with exclusive storage."""
        return self._disk_ratio(self.real)

    @property
    def disk_ratio_forth(self) -> float:
        """The free share of its disk space or spindles, with forthcoming."""
        return self._disk_ratio(self.forth)

    def _disk_ratio(self, usage: Usage) -> float:
        if self.exclusive_storage:
            return usage.free_spindles / self.total_spindles if self.total_spindles else 1.0
        return usage.free_disk / self.total_disk if self.total_disk else 1.0

    @property
    def reserved_ratio(self) -> float:
        """The share of its memory which must stay free for other nodes."""
        return divide(self.reserved_memory, self.total_memory)

    @property
    def vcpu_ratio(self) -> float:
        """Virtual CPUs for each real one."""
        return divide(self.real.vcpus, self.total_cpus)

    @property
    def vcpu_ratio_forth(self) -> float:
        """Virtual CPUs for each real one, with forthcoming."""
        return divide(self.forth.vcpus, self.total_cpus)

    @property
    def conflicting_tags(self) -> int:
        """How many of its primary instances share an exclusion tag with another one."""
        return sum(self.primary_tags.values()) - len(self.primary_tags)

    @property
    def instances(self) -> tuple[int, ...]:
        """The numbers of all its instances, also the forthcoming ones."""
        return self.forth.primaries + self.forth.secondaries

    def set_policy(self, policy: Policy) -> None:
        """Apply the limits of the policy of its group."""
        self.policy = policy
        self.max_vcpus = most_vcpus(policy.vcpu_ratio, self.total_cpus)
        self.max_spindles = most_spindles(policy.spindle_ratio, self.total_spindles)

    def set_min_disk(self, ratio: float) -> None:
        """Set the share of its disk space which should stay free."""
        self.min_disk_ratio = ratio
        self.min_disk = math.floor(ratio * self.total_disk)

    def set_max_vcpus(self, ratio: float) -> None:
        """Set how many virtual CPUs may be placed for each real one."""
        self.max_vcpus = most_vcpus(ratio, self.total_cpus)

    def _use(self, instance: Instance, change: Callable[[Usage], Usage]) -> None:
        """Apply a change by an instance to what is used."""
        before = self.forth
        self.forth = change(before)
        if not instance.forthcoming:
            self.real = self.forth if self.real is before else change(self.real)

    def renumber(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Give its instances other numbers.

        :param change: returns the new numbers of some of them.
        """

        def renumbered(usage: Usage) -> Usage:
            return usage._replace(
                primaries=change(usage.primaries), secondaries=change(usage.secondaries)
            )

        before = self.forth
        self.forth = renumbered(before)
        self.real = self.forth if self.real is before else renumbered(self.real)

    # -- what exists when the cluster is loaded -------------------------------------------------

    def load_primary(self, instance: Instance) -> None:
        """Note an existing primary instance; its space is already missing from the free space."""
        self._count_tags(instance, 1)
        self._load(instance, primary=True)
        if not instance.uses_memory:
            self.free_memory_forth -= instance.memory
        if instance.forthcoming:
            return
        if instance.uses_memory:
            self.instance_memory += instance.memory
        self.load = self.load.plus(instance.load)

    def load_secondary(self, instance: Instance) -> None:
        """Note an existing secondary instance."""
        self._load(instance, primary=False)
        if not instance.forthcoming:
            self.load = self.load._replace(disk=self.load.disk + instance.load.disk)

    def _load(self, instance: Instance, *, primary: bool) -> None:
        """Count an existing instance; only the space of a forthcoming one is still free."""
        disk = spindles = 0
        if instance.forthcoming:
            disk, spindles = self._space_of(instance)
        use = self._spindle_use(instance)
        self._use(
            instance,
            lambda usage: usage.plus(instance, primary, disk, use, usage.free_spindles - spindles),
        )

    def build_peers(self, instances: Iterable[Instance]) -> None:
        """Compute the memory to keep free from its secondary instances."""
        self.peers = peers = memory_to_keep(
            (one.primary, one.secondary_memory) for one in instances
        )
        self.reserved_memory = max(peers.values(), default=0)
        # What the node itself reports as free is believed until something moves.
        self.failing = self.free_memory <= self.reserved_memory

    def _update_reserved(self) -> None:
        self.reserved_memory = max(self.peers.values(), default=0)
        self.update_failing()

    def update_failing(self) -> None:
        """Compute again whether it could not start the instances of another node."""
        self.failing = self.unallocated_memory <= self.reserved_memory

    def _space_of(self, instance: Instance) -> tuple[int, int]:
        """Return the disk space (MiB) and the spindles of its own which an instance has here."""
        return (
            instance.disk if instance.local_storage else 0,
            (instance.spindles or 0) if self.exclusive_storage else 0,
        )

    def _spindle_use(self, instance: Instance) -> int:
        if self.exclusive_storage or not instance.local_storage:
            return 0
        return instance.spindle_use

    def _count_tags(self, instance: Instance, sign: int) -> None:
        # Forthcoming instances count for exclusion tags, but not for locations.
        if instance.exclusion_tags:
            self.primary_tags = _counted(self.primary_tags, instance.exclusion_tags, sign)
            if self.location_tags and not instance.forthcoming:
                self.location_pairs = _counted(self.location_pairs, self.pairs(instance), sign)
        if not instance.forthcoming:
            self.location_score += sign * instance.location_score

    def pairs(self, instance: Instance) -> list[tuple[str, str]]:
        """Return the pairs of its location tags and the exclusion tags of an instance."""
        return [
            (location, tag)
            for location in sorted(self.location_tags)
            for tag in instance.exclusion_tags
        ]

    # -- placing ----------------------------------------------------------------------------------

    def remove_primary(self, instance: Instance) -> None:
        """Remove a primary instance; ``instance`` has the location score which was added."""
        self._count_tags(instance, -1)
        self._remove(instance, primary=True)
        self.free_memory_forth += instance.memory
        if instance.forthcoming:
            return
        if instance.uses_memory:
            self.instance_memory -= instance.memory
        self.load = self.load.minus(instance.load)
        self.update_failing()

    def remove_secondary(self, instance: Instance) -> None:
        """Remove a secondary instance."""
        self._remove(instance, primary=False)
        if instance.forthcoming:
            return
        self.load = self.load._replace(disk=self.load.disk - instance.load.disk)
        if instance.secondary_memory:
            peers = dict(self.peers)
            left = peers.get(instance.primary, 0) - instance.secondary_memory
            if left > 0:
                peers[instance.primary] = left
            else:
                peers.pop(instance.primary, None)
            self.peers = peers
            self._update_reserved()

    def _remove(self, instance: Instance, *, primary: bool) -> None:
        """Give back what an instance uses, but not its memory and its load."""
        disk, spindles = self._space_of(instance)
        use = self._spindle_use(instance)
        self._use(
            instance,
            lambda usage: usage.minus(instance, primary, disk, use, usage.free_spindles + spindles),
        )
        if self.storage is not None and not instance.forthcoming:
            self.storage = units_after(self.storage, instance, -1)

    def _with(self, instance: Instance, *, primary: bool) -> tuple[Usage, Usage]:
        """Return what real instances use, and what is used with forthcoming, with one more."""
        disk = instance.disk if instance.local_storage else 0
        use = self._spindle_use(instance)
        real, forth = self.real, self.forth
        spindles = self._spindles_after(instance, forth.free_spindles)
        after = forth.plus(instance, primary, disk, use, spindles)
        if instance.forthcoming:
            return real, after
        if real is forth:
            return after, after
        spindles = self._spindles_after(instance, real.free_spindles)
        return real.plus(instance, primary, disk, use, spindles), after

    def add_primary(self, instance: Instance, *, force: bool = False) -> Fail | None:
        """Add a primary instance.

        :param force: ignore soft errors.
        :returns: why it cannot be added, and then the node is not changed; None when it was.
        """
        real, forth = self._with(instance, primary=True)
        free_memory_forth = self.free_memory_forth - instance.memory
        if not instance.forthcoming:
            memory = instance.memory if instance.uses_memory else 0
            unallocated = self.unallocated_memory - memory
            failing = unallocated <= self.reserved_memory
            fail = self._refuses(instance, force, unallocated, real, failing)
            if fail is not None:
                return fail
        # What is reserved may not be taken, neither by a real instance nor by another reservation.
        # When both limits are broken, the reason is that of the real one.
        fail = self._refuses(instance, force, max(free_memory_forth, force), forth, False)
        if fail is not None:
            return fail
        if not instance.forthcoming:
            self.instance_memory += memory
            self.failing = failing
            self.load = self.load.plus(instance.load)
            if self.storage is not None:
                self.storage = units_after(self.storage, instance, 1)
        self._count_tags(instance, 1)
        self.real, self.forth = real, forth
        self.free_memory_forth = free_memory_forth
        return None

    def _refuses(
        self, instance: Instance, force: bool, memory: int, usage: Usage, failing: bool
    ) -> Fail | None:
        """Return why a primary instance cannot be added.

        :param memory: MiB which are free then.
        :param usage: what is used then.
        :param failing: the node could not start the instances of another node then.
        """
        if memory <= 0:
            return Fail.MEMORY
        if self.storage is not None and not units_fit(self.storage, instance):
            return Fail.DISK
        if instance.local_storage:
            fail = self._disk_refuses(instance, force, usage)
            if fail is not None:
                return fail
        if force:
            return None
        if failing and not self.failing:
            return Fail.MEMORY
        if 0 <= self.max_vcpus < usage.vcpus:
            return Fail.CPU
        if instance.exclusion_tags and not self.primary_tags.keys().isdisjoint(
            instance.exclusion_tags
        ):
            return Fail.TAGS
        return None

    def _disk_refuses(self, instance: Instance, force: bool, usage: Usage) -> Fail | None:
        if self.storage is not None:
            if not units_fit(self.storage, instance):
                return Fail.DISK
        elif usage.free_disk <= 0 or (usage.free_disk < self.min_disk and not force):
            return Fail.DISK
        if self.exclusive_storage:
            if usage.free_spindles < 0:
                return Fail.SPINDLES
        elif not force and usage.spindles > self.max_spindles:
            return Fail.DISK
        return None

    def _spindles_after(self, instance: Instance, free: int) -> int:
        if not self.exclusive_storage:
            # Spindles which instances share are not counted; the published files then have none.
            return 0
        return -1 if instance.spindles is None else free - instance.spindles

    def add_secondary(
        self, instance: Instance, primary: int, *, force: bool = False, unchecked: bool = False
    ) -> Fail | None:
        """Add a secondary instance.

        :param primary: the number of its primary node.
        :param force: ignore soft errors.
        :param unchecked: add it in any case: its disks are on the node, which is offline, so that
            its free space is not known.
        :returns: why it cannot be added, and then the node is not changed; None when it was.
        """
        if not instance.mirrored:
            return Fail.DISK
        force = force or unchecked
        real, forth = self._with(instance, primary=False)
        needed = instance.secondary_memory
        if not instance.forthcoming:
            fail = self._disk_refuses(instance, force, real)
            if fail is not None and not unchecked:
                return fail
            unallocated = self.unallocated_memory
            if needed >= unallocated and not force:
                return Fail.MEMORY
            peer = self.peers.get(primary, 0) + needed
            reserved = max(self.reserved_memory, peer)
            failing = unallocated <= reserved
            if failing and not self.failing and not force:
                return Fail.MEMORY
        fail = self._disk_refuses(instance, force, forth)
        if fail is not None and not unchecked:
            return fail
        if not force and needed >= self.free_memory_forth:
            return Fail.MEMORY
        if not instance.forthcoming:
            self.peers = {**self.peers, primary: peer}
            self.reserved_memory = reserved
            self.failing = failing
            self.load = self.load._replace(disk=self.load.disk + instance.load.disk)
            if self.storage is not None:
                self.storage = units_after(self.storage, instance, 1)
        self.real, self.forth = real, forth
        return None

    def give_number(self, number: int) -> None:
        """Give the newest instance, which had none (-1), its number."""
        self.renumber(
            lambda indices: (number, *indices[1:]) if indices and indices[0] == -1 else indices
        )

    def rejects_migration_from(self, source: Node) -> bool:
        """Return True if its tags forbid migrations from another node."""
        return not source.migration_tags <= self.accepted_tags


def _counted(counts: Mapping[K, int], keys: Iterable[K], sign: int) -> dict[K, int]:
    new = dict(counts)
    for key in keys:
        count = new.get(key, 0) + sign
        if count:
            new[key] = count
        else:
            new.pop(key, None)
    return new
