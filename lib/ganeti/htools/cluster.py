"""A cluster: its groups, nodes and instances, and what a loader does to make it ready.

Loaders (:mod:`ganeti.htools.loading`) make a :class:`Cluster` from one of the published forms;
:func:`prepare` then derives everything that the programs need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ganeti import errors
from ganeti.htools import tags as htags
from ganeti.htools.instance import NO_LOAD, NO_NODE, Instance, Load
from ganeti.htools.node import Node
from ganeti.htools.policy import Policy, default
from ganeti.utils.records import field, record, replace

UNALLOCABLE = "unallocable"
ALLOC_POLICIES = ("preferred", "last_resort", UNALLOCABLE)

#: Unaccounted memory and disk space (MiB) above which a node is reported.
_MEMORY_WARNING = 512
_DISK_WARNING = 1024


class NoNodesError(errors.GenericError):
    """There are no nodes to choose from."""


@record(slots=True)
class Group:
    """A node group."""

    name: str
    uuid: str
    alloc_policy: str
    index: int = -1
    tags: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    policy: Policy = field(default_factory=default)


@record(slots=True)
class Cluster:
    """A cluster; the number of a group, node or instance is its position in the list.

    Searches replace nodes and instances in lists of their own and never change these.
    """

    groups: list[Group] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    tags: tuple[str, ...] = ()
    policy: Policy = field(default_factory=default)
    #: Of a part of a cluster: short names of the instances which are left out of the list and have
    #: their primary node here.
    left_out: tuple[str, ...] = ()

    def copy(self) -> Cluster:
        """Make a copy whose lists may be changed."""
        return replace(
            self,
            groups=list(self.groups),
            nodes=list(self.nodes),
            instances=list(self.instances),
        )

    def split_instances(self) -> list[Instance]:
        """Return the instances with nodes in two groups. No balancer moves them."""
        return [one for one in self.instances if self.is_split(one)]

    def is_split(self, instance: Instance) -> bool:
        """Return True if the nodes of an instance are in two groups."""
        return len({self.nodes[index].group for index in instance.nodes}) > 1

    def names(self) -> list[str]:
        """Return the names of all nodes and instances."""
        return [node.name for node in self.nodes] + [one.name for one in self.instances]

    def nodes_of(self, group: int) -> list[Node]:
        """Return the nodes of a group."""
        return [node for node in self.nodes if node.group == group]

    def find_node(self, name: str) -> Node | None:
        """Return the node with a name, which may be shortened by the common suffix."""
        return next((one for one in self.nodes if name in (one.name, one.alias)), None)

    def find_instance(self, name: str) -> Instance | None:
        """Return the instance with a name, which may be shortened by the common suffix."""
        return next((one for one in self.instances if name in (one.name, one.alias)), None)

    def find_group(self, name: str) -> Group | None:
        """Return the group with a name or UUID."""
        return next((one for one in self.groups if name in (one.name, one.uuid)), None)

    def only(self, group: int) -> Cluster:
        """Return the part of the cluster in one group, with numbers of its own.

        Instances with a node in another group are left out.
        """
        return self.part([node for node in self.nodes if node.group == group])

    def part(self, chosen: Sequence[Node], *, removed: bool = False) -> Cluster:
        """Return the part of the cluster on some nodes, with numbers of its own.

        Instances with another node are left out of the list. The score of a node counts them
        still, and :attr:`left_out` those with their primary here.

        :param removed: the other nodes do not exist any more, so no memory is kept free for them;
            otherwise they have numbers above those of the part in :attr:`Node.peers`.
        """
        number = {node.index: position for position, node in enumerate(chosen)}
        known = dict(number)
        if not removed:
            for node in self.nodes:
                known.setdefault(node.index, len(known))
        kept = [one for one in self.instances if all(index in number for index in one.nodes)]
        order = {one.index: position for position, one in enumerate(kept)}
        nodes, left_out = [], list(self.left_out)
        for node in chosen:
            new = node.copy()
            new.index = number[node.index]
            new.renumber(lambda indices: tuple(order[i] for i in indices if i in order))
            new.outside = node.outside.plus(node.real, new.real)
            left_out += [self.instances[i].alias for i in node.forth.primaries if i not in order]
            new.peers = {known[peer]: v for peer, v in node.peers.items() if peer in known}
            nodes.append(new)
        instances = []
        for one in kept:
            second = NO_NODE if one.secondary == NO_NODE else number[one.secondary]
            moved = one.placed(number[one.primary], second)
            moved.index = order[one.index]
            instances.append(moved)
        return Cluster(self.groups, nodes, instances, self.tags, self.policy, tuple(left_out))


@record(frozen=True, slots=True)
class Options:
    """What the user asked to change while a cluster is loaded.

    :ivar offline: names of nodes to be treated as offline.
    :ivar load: name of an instance -> its load; None for one unit of each.
    :ivar selected: the only instances which may move; None for all.
    :ivar excluded: instances which may not move.
    """

    offline: Collection[str] = ()
    exclusion_tags: Sequence[str] = ()
    load: Mapping[str, Load] | None = None
    ignore_load: bool = False
    selected: Collection[str] | None = None
    excluded: Collection[str] = ()
    min_disk: float | None = None
    max_cpu: float | None = None


def one_group(cluster: Cluster, name: str) -> Cluster:
    """Return the part of a cluster in one node group, which has the policy of the group.

    :param name: name or UUID of the group.
    :raises ParseError: there is no such group.
    """
    group = cluster.find_group(name)
    if group is None:
        known = ", ".join(one.name for one in cluster.groups)
        raise errors.ParseError(f"unknown node group '{name}'; there are {known}")
    return replace(cluster.only(group.index), policy=group.policy)


#: Every number of a cluster is between this and its negative; more is an error of the source.
LIMIT = 10**15

_NODE_NUMBERS = (
    "total_memory", "own_memory", "free_memory", "total_disk", "total_cpus", "own_cpus",
    "cpu_speed", "total_spindles",
)  # fmt: skip
_INSTANCE_NUMBERS = ("memory", "disk", "vcpus", "spindle_use")
_SPEC_NUMBERS = ("memory", "cpus", "disk_size", "disk_count", "nics", "spindle_use")


def _require_number(owner: str, name: str, value: object) -> None:
    if (type(value) is not int and type(value) is not float) or not -LIMIT < value < LIMIT:
        what = name.replace("_", " ")
        raise errors.ParseError(f"{owner}: the {what} {value!r:.40} is not a possible number")


def _require_texts(owner: str, values: Iterable[object]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise errors.ParseError(f"{owner}: {value!r:.40} is not a text")


def check(cluster: Cluster) -> None:
    """Check the types and limits of what was loaded; the programs calculate with all of it.

    :raises ParseError: a value is not possible; the message names the object.
    """
    _require_texts("the tags of the cluster", cluster.tags)
    policies = [("the policy of the cluster", cluster.policy)]
    for group in cluster.groups:
        _require_texts("a node group", (group.name, group.uuid, *group.tags, *group.networks))
        if group.alloc_policy not in ALLOC_POLICIES:
            raise errors.ParseError(
                f"node group {group.name}: unknown allocation policy {group.alloc_policy!r:.40}"
            )
        policies.append((f"the policy of group {group.name}", group.policy))
    for owner, policy in policies:
        _require_number(owner, "vcpu-ratio", policy.vcpu_ratio)
        _require_number(owner, "spindle-ratio", policy.spindle_ratio)
        for spec in (
            policy.standard,
            *(end for one in policy.ranges for end in (one.smallest, one.largest)),
        ):
            for name in _SPEC_NUMBERS:
                _require_number(owner, name, getattr(spec, name))
    for node in cluster.nodes:
        _require_texts("a node", (node.name,))
        owner = f"node {node.name}"
        _require_texts(owner, node.tags)
        for name in _NODE_NUMBERS:
            _require_number(owner, name, getattr(node, name))
        _require_number(owner, "free_disk", node.real.free_disk)
        _require_number(owner, "free_spindles", node.real.free_spindles)
        if node.cpu_speed <= 0:
            raise errors.ParseError(f"{owner}: the speed of its processors has to be above 0")
        for unit in (node.storage or {}).values():
            _require_number(owner, "size of a storage unit", unit.total)
            _require_number(owner, "free space of a storage unit", unit.free)
    for one in cluster.instances:
        check_instance(one)


def check_instance(instance: Instance) -> None:
    """Check the types and limits of an instance, see :func:`check`."""
    _require_texts("an instance", (instance.name,))
    owner = f"instance {instance.name}"
    if instance.tags:
        _require_texts(owner, instance.tags)
    for name in _INSTANCE_NUMBERS:
        value = getattr(instance, name)
        if type(value) is not int or not -LIMIT < value < LIMIT:
            _require_number(owner, name, value)
    for disk in instance.disks:
        if type(disk.size) is not int or not -LIMIT < disk.size < LIMIT:
            _require_number(owner, "size of a disk", disk.size)
        if disk.spindles is not None:
            _require_number(owner, "spindles of a disk", disk.spindles)


def prepare(cluster: Cluster, options: Options | None = None) -> list[str]:
    """Derive everything from what was loaded; changes the cluster.

    :returns: nodes with unaccounted memory or disk space, as messages.
    :raises ParseError: a value is not possible, or an option names an instance or a node which does
        not exist.
    """
    check(cluster)
    options = options or Options()
    nodes, instances = cluster.nodes, cluster.instances
    for number, group in enumerate(cluster.groups):
        group.index = number
    _set_aliases(cluster)
    unknown = [
        name
        for names in (options.selected or (), options.excluded)
        for name in names
        if cluster.find_instance(name) is None
    ]
    if unknown:
        raise errors.ParseError(f"Unknown instance(s): {haskell_list(unknown)}")
    for number, node in enumerate(nodes):
        node.index = number
        if node.name in options.offline or node.alias in options.offline:
            node.offline = True
        node.set_policy(cluster.groups[node.group].policy)
    htags.apply_to_nodes(nodes, cluster.tags)
    htags.apply_to_instances(instances, cluster.tags, options.exclusion_tags)
    limited = options.selected is not None or options.excluded
    for number, instance in enumerate(instances):
        instance.index = number
        instance.movable = not cluster.is_split(instance) and (
            not limited or _may_move(instance, options)
        )
        if options.ignore_load:
            instance.load = NO_LOAD
        elif options.load is not None:
            instance.load = options.load.get(instance.name, instance.load)
    for instance in instances:
        primary = nodes[instance.primary]
        secondary = htags.secondary_of(instance, nodes)
        instance.location_score = htags.location_score(instance, primary, secondary)
        primary.load_primary(instance)
        if secondary is not None:
            secondary.load_secondary(instance)
    for node in nodes:
        recorded = int(node.total_memory) - node.own_memory - node.instance_memory
        node.unaccounted_memory = recorded - node.free_memory
        node.build_peers(instances[index] for index in node.real.secondaries)
        if options.min_disk is not None:
            node.set_min_disk(options.min_disk)
        if options.max_cpu is not None:
            node.set_max_vcpus(options.max_cpu)
    return _inconsistencies(cluster)


def prepare_new(cluster: Cluster, instance: Instance) -> None:
    """Make a new instance ready for a prepared cluster.

    :raises ParseError: a value of it is not possible.
    """
    check_instance(instance)
    htags.apply_to_instances([instance], cluster.tags)


def _may_move(instance: Instance, options: Options) -> bool:
    names = {instance.name, instance.alias}
    if options.selected is not None and names.isdisjoint(options.selected):
        return False
    return names.isdisjoint(options.excluded)


def _set_aliases(cluster: Cluster) -> None:
    suffix = common_suffix(cluster.names())
    for node in cluster.nodes:
        node.alias = node.name.removesuffix(suffix)
    for instance in cluster.instances:
        instance.alias = instance.name.removesuffix(suffix)


def common_suffix(names: Sequence[str]) -> str:
    """Return the longest domain which all names share, with its first dot; empty for none."""
    if not names:
        return ""
    domains = [name.split(".")[1:] for name in names]
    shared: list[str] = []
    for labels in zip(*(reversed(domain) for domain in domains), strict=False):
        if len(set(labels)) > 1:
            break
        shared.insert(0, labels[0])
    return "".join(f".{label}" for label in shared)


def haskell_list(texts: Sequence[str]) -> str:
    """Write texts as the published messages do: ``["a","b"]``."""
    return "[" + ",".join('"' + text.replace('"', '\\"') + '"' for text in texts) + "]"


def _inconsistencies(cluster: Cluster) -> list[str]:
    found = []
    for node in reversed(cluster.nodes):
        used = sum(
            cluster.instances[i].disk for i in (*node.real.primaries, *node.real.secondaries)
        )
        memory = node.unaccounted_memory
        disk = int(node.total_disk) - node.real.free_disk - used
        if memory > _MEMORY_WARNING or disk > _DISK_WARNING:
            found.append(
                f"node {node.alias} is missing {memory} MB ram and {int(disk / 1024)} GB disk"
            )
    return found
