"""What if: a cluster with changes which nobody has made yet.

A change is written ``KIND=VALUE``:

========================== =====================================================================
``fail-node=NODE,...``     the nodes fail at once and stay offline; instances with another node
                           which lives go on, as ``hbal --evac-mode`` moves them
``drain-node=NODE,...``    the nodes take no more instances; those which they have stay
``remove-node=NODE,...``   as if they had failed, and were then removed from the cluster
``remove-group=GROUP``     the same for all nodes of a group
``add-nodes=COUNT:NODE``   COUNT new, empty nodes, each like this one
``add-instances=COUNT:SIZE[:TEMPLATE]``
                           COUNT new instances; the size is *disk,memory,cpus[,spindles]*
``vcpu-ratio=RATIO``       this ratio in the policies of the cluster and of all groups
``spindle-ratio=RATIO``    the same for spindles
``disk-templates=NAME,...``
                           these disk templates in all policies
``std-size=SIZE``          this standard size in all policies
``min-size=SIZE``          this smallest size in all policies, which have one range of sizes
``max-size=SIZE``          the same for the largest size
========================== =====================================================================

Changes are made in the order in which they are given. The cluster of the caller is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ganeti import errors
from ganeti.htools import balance, capacity, moves, redundancy, score
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading.simulation import amount
from ganeti.htools.moves import Move
from ganeti.htools.node import Fail, Node, Resources
from ganeti.htools.policy import Policy, Range, Spec
from ganeti.htools.space import StorageUnit
from ganeti.objects import disk_templates
from ganeti.utils import suggest
from ganeti.utils.records import field, record, replace
from ganeti.utils.text import match_name_component

_SPEC_MIN, _SPEC_MAX = 3, 4
_MOST = 10_000
#: The most instances which :func:`summary` tries to place; more would take minutes.
_COUNTED = 100


@record(frozen=True, slots=True)
class Change:
    """A change, as it was written, and what became of it.

    :ivar moved: names of instances which went to other nodes.
    :ivar without_place: names of instances which found no place, so that they are not there.
    """

    text: str
    moved: tuple[str, ...] = ()
    without_place: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the change as JSON has it."""
        return {
            "change": self.text,
            "moved": list(self.moved),
            "without_place": list(self.without_place),
        }


@record(slots=True)
class Changed:
    """A cluster after changes."""

    cluster: Cluster
    changes: list[Change] = field(default_factory=list)


def apply(cluster: Cluster, texts: Iterable[str]) -> Changed:
    """Make the changes to a copy of a prepared cluster.

    :raises ParseError: a change is not understood, or names an unknown node; or a policy is not
        consistent after all changes.
    """
    result = Changed(cluster.copy())
    used = {node.group for node in cluster.nodes}
    for text in texts:
        kind, equal, value = text.partition("=")
        make = _KINDS.get(kind)
        if make is None or not equal:
            known = ", ".join(f"{one}=..." for one in _KINDS)
            raise errors.ParseError(f"unknown change '{text}'; there are {known}")
        try:
            result.changes.append(make(result, text, value))
        except errors.ParseError as failure:
            raise errors.ParseError(f"change '{text}': {failure}") from failure
    if any(change.text.partition("=")[0] in _SIZES for change in result.changes):
        for group in result.cluster.groups:
            if group.index in used:
                _require_consistent(f"the policy of group {group.name}", group.policy)
        _require_consistent("the policy of the cluster", result.cluster.policy)
    return result


def _node(cluster: Cluster, name: str) -> Node:
    names = [node.name for node in cluster.nodes]
    full = match_name_component(name, names, case_sensitive=False)
    found = cluster.find_node(full or name)
    if found is None:
        similar = suggest.did_you_mean(name, names)
        raise errors.ParseError(f"unknown node '{name}'" + (f".{similar}" if similar else ""))
    return found


def _split_count(value: str) -> tuple[int, str]:
    count, _, rest = value.partition(":")
    if not (count.isascii() and count.isdecimal() and 0 < int(count) <= _MOST and rest):
        raise errors.ParseError(f"COUNT:... is expected, with a count from 1 to {_MOST}")
    return int(count), rest


# -- nodes ----------------------------------------------------------------------------------------


def _nodes(cluster: Cluster, value: str) -> list[Node]:
    """Return the nodes of a list of names, separated by commas."""
    found = {node.index: node for node in (_node(cluster, name) for name in value.split(","))}
    return list(found.values())


def _group_nodes(cluster: Cluster, name: str) -> list[Node]:
    group = cluster.find_group(name)
    if group is None:
        known = [one.name for one in cluster.groups]
        raise errors.ParseError(f"unknown group '{name}'.{suggest.hint(name, known)}")
    found = cluster.nodes_of(group.index)
    if not found:
        raise errors.ParseError(f"group {group.name} has no nodes")
    return found


def _lose(cluster: Cluster, lost: Sequence[Node], text: str) -> Change:
    """Take nodes out of service at the same time, and move their instances within their groups."""
    numbers = {node.index for node in lost}
    touched = _indices_on(cluster, numbers)
    for node in lost:
        gone = node.copy()
        gone.offline = gone.lost = True
        cluster.nodes[node.index] = gone
    for group in dict.fromkeys(node.group for node in lost):
        _leave(cluster, group)
    left = _indices_on(cluster, numbers)
    moved = [cluster.instances[index].name for index in sorted(touched - left)]
    return Change(
        text, tuple(moved), tuple(cluster.instances[index].name for index in sorted(left))
    )


def _indices_on(cluster: Cluster, numbers: set[int]) -> set[int]:
    return {one.index for one in cluster.instances if numbers.intersection(one.nodes)}


def _remove(result: Changed, text: str, lost: Sequence[Node]) -> Change:
    change = _lose(result.cluster, lost, text)
    numbers = {node.index for node in lost}
    kept = [node for node in result.cluster.nodes if node.index not in numbers]
    result.cluster = result.cluster.part(kept, removed=True)
    return change


def _remove_node(result: Changed, text: str, value: str) -> Change:
    return _remove(result, text, _nodes(result.cluster, value))


def _remove_group(result: Changed, text: str, value: str) -> Change:
    return _remove(result, text, _group_nodes(result.cluster, value))


def _fail_node(result: Changed, text: str, value: str) -> Change:
    cluster = result.cluster
    lost = _nodes(cluster, value)
    change = _lose(cluster, lost, text)
    for node in lost:
        cluster.nodes[node.index] = _closed(cluster.nodes[node.index], lost=True)
    return change


def _drain_node(result: Changed, text: str, value: str) -> Change:
    for node in _nodes(result.cluster, value):
        result.cluster.nodes[node.index] = _closed(node, lost=node.lost)
    return Change(text)


def _closed(node: Node, *, lost: bool) -> Node:
    """Make an offline node: nobody counts on what it has, as with one that is read so."""
    found = node.copy()
    found.offline, found.lost = True, lost
    found.total_memory = found.total_disk = found.total_cpus = 0.0
    found.own_memory = found.unaccounted_memory = 0
    found.free_memory = found.free_memory_forth = 0
    found.real = node.real._replace(free_disk=0, free_spindles=0)
    found.forth = node.forth._replace(free_disk=0, free_spindles=0)
    if node.storage is not None:
        found.storage = {}
    if node.policy is not None:
        found.set_policy(node.policy)
    return found


def _leave(cluster: Cluster, group: int) -> None:
    """Move instances away from the offline nodes of a group, as ``hbal --evac-mode`` does."""
    members = [node.index for node in cluster.nodes_of(group)]
    part = cluster.only(group)
    number = {one.name: one.index for one in cluster.instances}
    state = balance.start(part)
    options = balance.Options(evacuate=True, min_gain=0.0)
    for step in balance.run(state, options):
        instance = cluster.instances[number[part.instances[step.instance].name]]
        target = members[step.move.target] if step.move.target >= 0 else step.move.target
        done = moves.apply(cluster.nodes, instance, Move(step.move.kind, target))
        if isinstance(done, Fail):
            break
        for node in done.nodes:
            cluster.nodes[node.index] = node
        cluster.instances[instance.index] = done.instance


def _add_nodes(result: Changed, text: str, value: str) -> Change:
    count, name = _split_count(value)
    cluster = result.cluster
    like = _node(cluster, name)
    if like.offline:
        raise errors.ParseError(f"node {like.name} is offline, so its capacity is not known")
    taken = {node.name for node in cluster.nodes}
    number = 0
    for _ in range(count):
        number += 1
        while f"new-node-{number}" in taken:
            number += 1
        cluster.nodes.append(_like(like, f"new-node-{number}", len(cluster.nodes)))
    return Change(text)


def _like(node: Node, name: str, index: int) -> Node:
    """Make an empty node with the capacity of another one."""
    storage = node.storage
    if storage is not None:
        storage = {
            key: StorageUnit(unit.total, unit.total, unit.arguments)
            for key, unit in storage.items()
        }
    new = Node(
        name,
        Resources(
            total_memory=node.total_memory,
            own_memory=node.own_memory,
            free_memory=int(node.total_memory) - node.own_memory,
            total_disk=node.total_disk,
            free_disk=int(node.total_disk),
            total_cpus=node.total_cpus,
            own_cpus=node.own_cpus,
            spindles=node.total_spindles,
            free_spindles=node.total_spindles if node.exclusive_storage else 0,
            cpu_speed=node.cpu_speed,
            storage=storage,
        ),
        group=node.group,
        exclusive_storage=node.exclusive_storage,
        tags=node.tags,
        hypervisor=node.hypervisor,
    )
    new.alias = name
    new.index = index
    if node.policy is not None:
        new.set_policy(node.policy)
    new.migration_tags, new.accepted_tags = node.migration_tags, node.accepted_tags
    new.location_tags = node.location_tags
    new.build_peers(())
    return new


# -- instances ------------------------------------------------------------------------------------


def _add_instances(result: Changed, text: str, value: str) -> Change:
    count, rest = _split_count(value)
    size, _, template = rest.partition(":")
    cluster = result.cluster
    template = template or cluster.policy.templates[0]
    if template not in disk_templates.ALL:
        raise errors.ParseError(f"unknown disk template '{template}'")
    instance = capacity.new_instance(_spec(size), template, cluster)
    plan = capacity.plan(cluster, template, capacity.Options())
    placed = 0
    try:
        filled = capacity.fill(cluster, plan, instance, limit=count)
    except errors.GenericError:
        pass  # There is no node for the first one.
    else:
        placed = len(filled.placed)
        result.cluster = filled.cluster
    # The capacity names them new-1, new-2 and so on.
    without = tuple(f"new-{number}" for number in range(placed + 1, count + 1))
    return Change(text, (), without)


def _spec(text: str) -> Spec:
    fields = text.split(",")
    if not _SPEC_MIN <= len(fields) <= _SPEC_MAX or not all(
        one.isascii() and one.isdecimal() for one in fields[2:]
    ):
        raise errors.ParseError(f"'{text}' is not a size; disk,memory,cpus[,spindles] is expected")
    spindles = int(fields[3]) if len(fields) > _SPEC_MIN else 1
    return Spec(
        amount("memory", fields[1]), int(fields[2]), amount("disk", fields[0]), 1, 1, spindles
    )


# -- policies -------------------------------------------------------------------------------------


def _change_policies(result: Changed, changed: Callable[[Policy], Policy]) -> None:
    cluster = result.cluster
    cluster.policy = changed(cluster.policy)
    cluster.groups = [replace(one, policy=changed(one.policy)) for one in cluster.groups]
    nodes = []
    for node in cluster.nodes:
        new = node.copy()
        new.set_policy(cluster.groups[node.group].policy)
        nodes.append(new)
    cluster.nodes = nodes


def _ratio(value: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        ratio = math.nan
    if not (math.isfinite(ratio) and ratio > 0):
        raise errors.ParseError(f"'{value}' is not a ratio above 0")
    return ratio


def _vcpu_ratio(result: Changed, text: str, value: str) -> Change:
    ratio = _ratio(value)
    _change_policies(result, lambda policy: replace(policy, vcpu_ratio=ratio))
    return Change(text)


def _spindle_ratio(result: Changed, text: str, value: str) -> Change:
    ratio = _ratio(value)
    _change_policies(result, lambda policy: replace(policy, spindle_ratio=ratio))
    return Change(text)


def _disk_templates(result: Changed, text: str, value: str) -> Change:
    names = tuple(value.split(","))
    unknown = [name for name in names if name not in disk_templates.ALL]
    if unknown:
        raise errors.ParseError(f"unknown disk template '{unknown[0]}'")
    _change_policies(result, lambda policy: replace(policy, templates=names))
    return Change(text)


def _resized(old: Spec, text: str) -> Spec:
    """Another size with the same counts of disks and network interfaces."""
    new = _spec(text)
    spindles = new.spindle_use if text.count(",") == _SPEC_MAX - 1 else old.spindle_use
    return replace(
        old,
        memory=new.memory,
        cpus=new.cpus,
        disk_size=new.disk_size,
        spindle_use=spindles,
    )


def _std_size(result: Changed, text: str, value: str) -> Change:
    _change_policies(
        result, lambda policy: replace(policy, standard=_resized(policy.standard, value))
    )
    return Change(text)


def _one_range(policy: Policy) -> Range:
    if len(policy.ranges) != 1:
        raise errors.ParseError(f"a policy has {len(policy.ranges)} ranges of sizes and not one")
    return policy.ranges[0]


def _min_size(result: Changed, text: str, value: str) -> Change:
    def changed(policy: Policy) -> Policy:
        found = _one_range(policy)
        return replace(policy, ranges=(replace(found, smallest=_resized(found.smallest, value)),))

    _change_policies(result, changed)
    return Change(text)


def _max_size(result: Changed, text: str, value: str) -> Change:
    def changed(policy: Policy) -> Policy:
        found = _one_range(policy)
        return replace(policy, ranges=(replace(found, largest=_resized(found.largest, value)),))

    _change_policies(result, changed)
    return Change(text)


#: Resource -> what a size has of it.
_RESOURCES: dict[str, Callable[[Spec], int]] = {
    "memory": lambda size: size.memory,
    "disk size": lambda size: size.disk_size,
    "number of processors": lambda size: size.cpus,
    "number of spindles": lambda size: size.spindle_use,
}


def _require_consistent(owner: str, policy: Policy) -> None:
    """Check the sizes of a policy.

    :raises ParseError: the smallest size exceeds the largest one, or the standard size is in no
        range.
    """
    outside = []
    for limits in policy.ranges:
        found = ""
        for name, amount_of in _RESOURCES.items():
            low, high = amount_of(limits.smallest), amount_of(limits.largest)
            if low > high:
                raise errors.ParseError(
                    f"in {owner}, the {name} of the smallest size ({low}) exceeds that of the"
                    f" largest one ({high})"
                )
            middle = amount_of(policy.standard)
            if not low <= middle <= high:
                found = f"the {name} of the standard size ({middle}) is not from {low} to {high}"
        outside.append(found)
    if outside and all(outside):
        raise errors.ParseError(f"in {owner}, {outside[0]}")


_SIZES = {"std-size": _std_size, "min-size": _min_size, "max-size": _max_size}
_KINDS = {
    "fail-node": _fail_node,
    "drain-node": _drain_node,
    "remove-node": _remove_node,
    "remove-group": _remove_group,
    "add-nodes": _add_nodes,
    "add-instances": _add_instances,
    "vcpu-ratio": _vcpu_ratio,
    "spindle-ratio": _spindle_ratio,
    "disk-templates": _disk_templates,
    **_SIZES,
}


#: The names of all kinds of changes.
KINDS = tuple(_KINDS)


# -- comparison -----------------------------------------------------------------------------------


def summary(cluster: Cluster) -> dict[str, int | float]:
    """Return what an administrator wants to compare before and after a change.

    Memory and disk space are in MiB. ``more_instances`` is how many instances of the standard size
    still fit, at most 100, with the first disk template of the policy.
    """
    online = [node for node in cluster.nodes if not node.offline]
    template = cluster.policy.templates[0]
    standard = capacity.new_instance(cluster.policy.standard, template, cluster)
    plan = capacity.plan(cluster, template, capacity.Options())
    try:
        more = len(capacity.fill(cluster, plan, standard, limit=_COUNTED).placed)
    except errors.GenericError:
        more = 0
    return {
        "nodes": len(cluster.nodes),
        "offline_nodes": len(cluster.nodes) - len(online),
        "instances": len(cluster.instances),
        "free_memory": sum(node.unallocated_memory for node in online),
        "free_disk": sum(node.real.free_disk for node in online),
        "nodes_failing_n1": sum(1 for node in online if node.failing),
        "nodes_not_evacuable": len(redundancy.Checker().lost(cluster.nodes, cluster.instances)),
        "more_instances": more,
        "score": score.score(cluster.nodes),
    }
