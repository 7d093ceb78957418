"""Why an instance cannot be placed or moved, in sentences: one table for all programs.

The search for a place (:mod:`ganeti.htools.place`, :mod:`ganeti.htools.evacuate`) answers with a
published code (:class:`~ganeti.htools.node.Fail`), one for several causes. This module looks at the
node once more and finds the cause with its numbers (:class:`Shortage`). :data:`TEXTS` has for each
cause what an administrator reads: what is needed, what the best node has, and the way out. The code
follows in brackets, for programs and for ``doc/manual/errors.rst``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from ganeti import TYPE_CHECKING
from ganeti.htools import moves
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.limits import violates
from ganeti.htools.moves import Move
from ganeti.htools.node import Fail, Node
from ganeti.htools.space import lacking_unit
from ganeti.objects import ipolicy
from ganeti.utils.records import NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from ganeti.htools.policy import Spec


class Cause(enum.Enum):
    """What exactly is missing on a node."""

    MEMORY = "memory"
    RESERVED = "memory for the loss of a node"
    PROMISED = "memory of forthcoming instances"
    DISK = "disk space"
    PROMISED_DISK = "disk space of forthcoming instances"
    KEPT_DISK = "disk space to be kept"
    STORAGE = "storage of this kind"
    MIRROR = "mirrored disks"
    SPINDLE_RATIO = "spindle-ratio"
    SPINDLES = "spindles"
    CPU = "vcpu-ratio"
    LOSS = "capacity for the loss of a node"
    ALONE = "another node"
    TAGS = "exclusion tags"
    MIGRATION = "migration tags"
    UNKNOWN = "unknown"


class Text(NamedTuple):
    """The sentence of a cause; the names in braces are those of :class:`Shortage`.

    :ivar code: the published code.
    :ivar fact: the need of the instance, and what one node has.
    :ivar best: the same for the best of several nodes; empty if it is ``fact``.
    :ivar way: what to do.
    """

    code: Fail
    fact: str
    best: str
    way: str


TEXTS: dict[Cause, Text] = {
    Cause.MEMORY: Text(
        Fail.MEMORY,
        "{name} needs {needed} of memory, and {node} has {free} free",
        "{name} needs {needed} of memory, and the most free is {free}, on {node}",
        "use less memory (-B memory=SIZE), or stop or move other instances",
    ),
    Cause.RESERVED: Text(
        Fail.MEMORY,
        "{name} needs {needed} of memory, and {node} has {free} free, but keeps {kept} of it for"
        " the instances of another node when that is lost",
        "{name} needs {needed} of memory, and the best node, {node}, has {free} free, but keeps"
        " {kept} of it for the instances of another node when that is lost",
        "balance the group with hbal, or add a node or memory",
    ),
    Cause.PROMISED: Text(
        Fail.MEMORY,
        "{name} needs {needed} of memory, and {node} has {free} free, but {kept} of it are"
        " reserved for forthcoming instances",
        "{name} needs {needed} of memory, and the best node, {node}, has {free} free, but {kept}"
        " of it are reserved for forthcoming instances",
        "remove a reservation (gnt-instance list -F forthcoming)",
    ),
    Cause.DISK: Text(
        Fail.DISK,
        "{name} needs {needed} of disk space{detail}, and {node} has {free} free",
        "{name} needs {needed} of disk space{detail}, and the most free is {free}, on {node}",
        "use smaller disks, remove or move other instances, or enlarge the storage",
    ),
    Cause.PROMISED_DISK: Text(
        Fail.DISK,
        "{name} needs {needed} of disk space, and {node} has {free} free, but {kept} of it are"
        " reserved for forthcoming instances",
        "",
        "remove a reservation (gnt-instance list -F forthcoming)",
    ),
    Cause.KEPT_DISK: Text(
        Fail.DISK,
        "{name} needs {needed} of disk space, and {node} has {free} free, of which {kept} have to"
        " stay free",
        "",
        "use smaller disks, or a smaller --min-disk",
    ),
    Cause.STORAGE: Text(
        Fail.DISK,
        "{node} has no {detail}",
        "no node has {detail}; {node} is one of them",
        "create the storage on the node, or choose another disk template (-t)",
    ),
    Cause.MIRROR: Text(
        Fail.DISK,
        "disks of {name} are of template {detail}, which has no copy on a second node",
        "",
        "convert the disks to drbd (gnt-instance modify -t drbd), or move the instance"
        " (gnt-instance move)",
    ),
    Cause.SPINDLE_RATIO: Text(
        Fail.DISK,
        "{name} uses {needed} spindles, and the policy of group {group} (spindle-ratio) leaves"
        " {free} on {node}",
        "{name} uses {needed} spindles, and the policy of group {group} (spindle-ratio) leaves at"
        " most {free}, on {node}",
        "gnt-group modify --ipolicy-spindle-ratio=N {group}",
    ),
    Cause.SPINDLES: Text(
        Fail.SPINDLES,
        "{name} needs {needed} spindles of its own, and {node} has {free} free",
        "{name} needs {needed} spindles of its own, and the most free are {free}, on {node}",
        "use fewer spindles, or add disks to a node",
    ),
    Cause.CPU: Text(
        Fail.CPU,
        "{name} needs {needed} virtual CPUs, and the policy of group {group} (vcpu-ratio) leaves"
        " {free} on {node}",
        "{name} needs {needed} virtual CPUs, and the policy of group {group} (vcpu-ratio) leaves"
        " at most {free}, on {node}",
        "use fewer (-B vcpus=N), or gnt-group modify --ipolicy-vcpu-ratio=N {group}",
    ),
    Cause.LOSS: Text(
        Fail.N1,
        "with {name}, group {group} does not survive the loss of every node: what runs on {node}"
        " uses {needed} of memory, and the other nodes have {free} free in all",
        "",
        "add a node or memory, or do without this check:"
        " gnt-cluster modify --default-iallocator-params=no-capacity-checks",
    ),
    Cause.ALONE: Text(
        Fail.N1,
        "{node} is the only usable node of group {group}, so that nothing there survives its loss",
        "",
        "name a node of another group: -n NODE; or add a node to the group",
    ),
    Cause.TAGS: Text(
        Fail.TAGS,
        "{detail} has the same exclusion tag as {name} and runs on {node}",
        "",
        "move the other instance, add a node, or remove the tag (gnt-instance remove-tags)",
    ),
    Cause.MIGRATION: Text(
        Fail.MIGRATION,
        "the migration tags of {detail} do not allow that {name} goes to {node}",
        "",
        "correct the tags htools:migration and htools:allowmigration, see htools(1)",
    ),
    Cause.UNKNOWN: Text(
        Fail.INTERNAL,
        "it cannot be computed whether {node} can have {name}",
        "",
        "see the reasons with --explain",
    ),
}

#: Causes whose numbers are MiB.
_IN_MIB = frozenset(
    (Cause.MEMORY, Cause.RESERVED, Cause.PROMISED, Cause.DISK, Cause.PROMISED_DISK,
     Cause.KEPT_DISK, Cause.LOSS)
)  # fmt: skip

_BRACKETS = " [{}]"


class Shortage(NamedTuple):
    """Why one node cannot have an instance.

    :ivar code: the published code of the failure.
    :ivar needed: what the instance needs; MiB, or a number.
    :ivar free: what the node has.
    :ivar kept: what of it is kept for something else.
    :ivar detail: for example the name of the other instance.
    """

    cause: Cause
    node: str
    group: str
    needed: float = 0
    free: float = 0
    kept: float = 0
    detail: str = ""
    code: Fail | None = None


def amount(size_mib: float) -> str:
    """Return a size with its unit for a sentence: ``512 MiB``, ``1.5 GiB``, ``2 TiB``.

    What would be rounded to a whole unit although it is less keeps the smaller unit.
    """
    for unit, factor in (("TiB", 1024 * 1024), ("GiB", 1024)):
        if size_mib >= factor:
            number = f"{size_mib / factor:.1f}"
            whole = number.endswith(".0")
            if not whole or size_mib == int(size_mib / factor) * factor:
                return f"{number.removesuffix('.0')} {unit}"
    return f"{int(size_mib)} MiB"


def amounts(*sizes_mib: float) -> list[str]:
    """Return the sizes of one sentence; different sizes have different texts.

    When two of them would be rounded to the same text, all are in MiB.
    """
    shown = [amount(size) for size in sizes_mib]
    if len(set(shown)) < len(set(sizes_mib)):
        return [f"{int(size)} MiB" for size in sizes_mib]
    return shown


def _values(shortage: Shortage, name: str) -> dict[str, str]:
    numbers = {
        "needed": shortage.needed,
        "free": max(0, shortage.free),
        "kept": max(0, min(shortage.kept, shortage.free)),
    }
    in_mib = shortage.cause in _IN_MIB
    texts = amounts(*numbers.values()) if in_mib else [f"{one:g}" for one in numbers.values()]
    shown = dict(zip(numbers, texts, strict=True))
    return {
        **shown, "name": name, "node": shortage.node, "group": shortage.group,
        "detail": shortage.detail,
    }  # fmt: skip


def sentence(shortage: Shortage, name: str) -> str:
    """Return the sentence about one node, with the way out and the code."""
    return summary([shortage], name, 1)[0]


def fact(shortage: Shortage, name: str) -> str:
    """Return only what is needed and what the node has, with the code."""
    text = TEXTS[shortage.cause]
    code = (shortage.code or text.code).value
    return text.fact.format_map(_values(shortage, name)) + _BRACKETS.format(code)


def summary(
    shortages: Iterable[Shortage], name: str, total: int, role: str = "", *, ways: bool = True
) -> list[str]:
    """Return one sentence for each cause: the cause of the most nodes comes first.

    :param name: the instance.
    :param total: number of nodes which were looked at.
    :param role: what the nodes would be, before the sentence.
    :param ways: whether the ways out follow.
    """
    found: dict[tuple[Cause, Fail | None], list[Shortage]] = {}
    for one in shortages:
        found.setdefault((one.cause, one.code), []).append(one)
    lines = []
    for (cause, given), members in sorted(found.items(), key=lambda item: -len(item[1])):
        text = TEXTS[cause]
        best = max(members, key=lambda one: one.free - one.kept)
        pattern = text.best if len(members) > 1 and text.best else text.fact
        values = _values(best, name)
        line = role + pattern.format_map(values)
        if total > 1 and cause not in (Cause.LOSS, Cause.ALONE, Cause.MIRROR):
            line += f" (so on {len(members)} of {total} nodes)"
        if ways:
            line += f": {text.way.format_map(values)}"
        lines.append(line + _BRACKETS.format((given or text.code).value))
    return lines


# -- one node ---------------------------------------------------------------------------------


def as_primary(
    cluster: Cluster, node: Node, instance: Instance, *, force: bool = False
) -> Shortage | None:
    """Return why a node cannot have an instance as its primary node; None if it can."""
    new = moves.moved(instance, cluster.nodes, node.index, NO_NODE)
    fail = node.copy().add_primary(new, force=force)
    if fail is None:
        return None
    group = cluster.groups[node.group].name
    if fail is Fail.MEMORY:
        return _memory(node, group, new.memory if new.uses_memory else 0, new.memory)
    return _other(cluster, node, group, new, fail)


def as_secondary(
    cluster: Cluster, node: Node, instance: Instance, primary: int, *, force: bool = False
) -> Shortage | None:
    """Return why a node cannot have an instance as its secondary node; None if it can."""
    fail = node.copy().add_secondary(instance, primary, force=force)
    if fail is None:
        return None
    group = cluster.groups[node.group].name
    if not instance.mirrored:
        return Shortage(Cause.MIRROR, node.name, group, detail=instance.template)
    if fail is Fail.MEMORY:
        needed = instance.secondary_memory
        return _memory(node, group, needed, needed, node.peers.get(primary, 0))
    return _other(cluster, node, group, instance, fail)


def _memory(node: Node, group: str, needed: int, forth: int, kept: int | None = None) -> Shortage:
    """Find out which memory is missing.

    :param forth: MiB which are needed beside forthcoming instances.
    :param kept: MiB to be kept for another node.
    """
    free = node.unallocated_memory
    if needed >= free:
        # What equals the free memory does not fit: one MiB has to stay.
        free = free - 1 if needed == free else free
        return Shortage(Cause.MEMORY, node.name, group, needed, free)
    if forth >= node.free_memory_forth:
        promised = free - node.free_memory_forth
        return Shortage(Cause.PROMISED, node.name, group, needed, free, promised)
    kept = node.reserved_memory if kept is None else kept
    return Shortage(Cause.RESERVED, node.name, group, needed, free, kept)


def _other(cluster: Cluster, node: Node, group: str, instance: Instance, fail: Fail) -> Shortage:
    """Find the cause of a failure which does not concern the memory."""
    name = node.name
    if fail is Fail.DISK:
        return _disk(node, group, instance)
    if fail is Fail.CPU:
        left = node.max_vcpus - max(node.real.vcpus, node.forth.vcpus)
        return Shortage(Cause.CPU, name, group, instance.vcpus, left)
    if fail is Fail.SPINDLES:
        left = min(node.real.free_spindles, node.forth.free_spindles)
        return Shortage(Cause.SPINDLES, name, group, instance.spindles or 0, left)
    if fail is Fail.TAGS:
        tags = set(instance.exclusion_tags)
        others = (
            cluster.instances[index].name
            for index in node.forth.primaries
            if 0 <= index < len(cluster.instances)
            and tags.intersection(cluster.instances[index].exclusion_tags)
        )
        return Shortage(Cause.TAGS, name, group, detail=next(others, "an instance"))
    return Shortage(Cause.UNKNOWN, name, group, code=fail)


def _disk(node: Node, group: str, instance: Instance) -> Shortage:
    name = node.name
    if node.storage is not None and instance.takes_units:
        lacking = lacking_unit(node.storage, instance)
        if lacking is not None:
            wanted, size, free = lacking
            where = storage_name(wanted, instance.template)
            if free is None:
                return Shortage(Cause.STORAGE, name, group, detail=where)
            return Shortage(Cause.DISK, name, group, size, free, detail=f" in {where}")
    else:
        for cause, usage in ((Cause.DISK, node.real), (Cause.PROMISED_DISK, node.forth)):
            left = usage.free_disk - instance.disk
            kept = node.real.free_disk - usage.free_disk
            if left <= 0:
                free = node.real.free_disk - (not left and cause is Cause.DISK)
                return Shortage(cause, name, group, instance.disk, free, kept)
            if left < node.min_disk:
                return Shortage(
                    Cause.KEPT_DISK, name, group, instance.disk, usage.free_disk, node.min_disk
                )
    left_spindles = node.max_spindles - max(node.real.spindles, node.forth.spindles)
    return Shortage(Cause.SPINDLE_RATIO, name, group, instance.spindle_use, left_spindles)


def storage_name(wanted: tuple[str, str] | None, template: str) -> str:
    """Name a storage unit; None for one which the cluster does not have."""
    if wanted is None:
        return f"storage for disk template {template}"
    kind, key = wanted
    return f"volume group {key}" if kind in ("lvm-vg", "drbd8") else f"storage {key} ({kind})"


# -- groups -----------------------------------------------------------------------------------


def loss(cluster: Cluster, instance: Instance, node: Node) -> Shortage:
    """Return why a group does not survive the loss of a node with one more instance.

    The numbers are those of the node whose loss leaves the least memory; that of its instances
    may still be too scattered when the sum suffices.

    :param node: where the instance would be.
    """
    group = cluster.groups[node.group].name
    members = [one for one in cluster.nodes_of(node.group) if not one.offline]
    if len(members) == 1:
        return Shortage(Cause.ALONE, node.name, group)
    free = {one.index: max(0, one.unallocated_memory) for one in members}
    used = {one.index: one.instance_memory for one in members}
    used[node.index] += instance.memory
    free[node.index] = max(0, free[node.index] - instance.memory)
    total = sum(free.values())
    worst = max(members, key=lambda one: used[one.index] - (total - free[one.index]))
    return Shortage(Cause.LOSS, worst.name, group, used[worst.index], total - free[worst.index])


# -- policies ---------------------------------------------------------------------------------

_BOUNDS = "gnt-group modify --ipolicy-bounds-specs=min:.../max:... {group}"


def beyond_policy(
    group: str, what: str, value: float, low: float, high: float, *, mib: bool = False, of: str = ""
) -> str:
    """Return the sentence about a size which a policy does not allow, with the way out.

    :param what: the size: ``of memory for an instance``.
    :param mib: whether the numbers are MiB.
    :param of: what is too large or too small: ``disk 1``. Empty for the instance.
    """
    show = amount if mib else lambda number: f"{number:g}"
    limit = f"at most {show(high)}" if value > high else f"at least {show(low)}"
    verb = "allows" if value > high else "wants"
    return (
        f"the policy of group {group} {verb} {limit} {what}; {of or 'this one'} asks for"
        f" {show(value)}: {_BOUNDS.format(group=group)}"
    )


def wrong_template(group: str, template: str, allowed: Sequence[str]) -> str:
    """Return the sentence about a disk template which a policy does not allow."""
    return (
        f"the policy of group {group} does not allow disk template {template}, only"
        f" {', '.join(sorted(allowed))}: gnt-group modify --ipolicy-disk-templates=NAME,... {group}"
    )


#: Key of a policy -> the size in a sentence, whether it is in MiB, and the published code.
_SPECS: dict[str, tuple[str, bool, Fail | None]] = {
    ipolicy.MEM_SIZE: ("of memory for an instance", True, Fail.MEMORY),
    ipolicy.CPU_COUNT: ("virtual CPUs for an instance", False, Fail.CPU),
    ipolicy.DISK_SIZE: ("for a disk", True, Fail.DISK),
    ipolicy.DISK_COUNT: ("disks for an instance", False, Fail.DISK_COUNT),
    ipolicy.NIC_COUNT: ("network interfaces for an instance", False, None),
    ipolicy.SPINDLE_USE: ("spindles (spindle_use) for an instance", False, Fail.SPINDLES),
}


def violated(group: str, found: Iterable[str]) -> list[str]:
    """Return the sentences about what an instance violates of the policy of a group.

    :param found: as :func:`ganeti.objects.ipolicy.check` returns it; other texts stay.
    """
    lines = []
    for one in found:
        if not isinstance(one, ipolicy.Violation):
            lines.append(one)
            continue
        if one.spec == ipolicy.DISK_TEMPLATES:
            text = wrong_template(group, one.value, one.bounds)
            code: Fail | None = Fail.DISK
        else:
            what, mib, code = _SPECS[one.spec]
            # The text begins with the key, and for a disk its number: "disk-size/1".
            number = one.partition(" ")[0].partition("/")[2]
            of = f"disk {number}" if number and one.spec == ipolicy.DISK_SIZE else ""
            text = beyond_policy(group, what, one.value, *one.bounds, mib=mib, of=of)
        lines.append(text + (_BRACKETS.format(code.value) if code is not None else ""))
    return list(dict.fromkeys(lines))


def against_policy(
    instance: Instance, group: Group, *, exclusive: bool, ways: bool = True
) -> list[str]:
    """Return why the policy of a group does not allow the size of an instance; usually nothing.

    :param ways: whether the ways out follow.
    """
    policy = group.policy
    fail = violates(instance, policy, exclusive=exclusive)
    if fail is None:
        return []
    if instance.template not in policy.templates:
        text = wrong_template(group.name, instance.template, policy.templates)
        return [_without_way(text, ways) + _BRACKETS.format(fail.value)]
    if not policy.ranges:
        return []
    found = [
        _outside(instance, group.name, one.smallest, one.largest, exclusive=exclusive, ways=ways)
        for one in policy.ranges
    ]
    return min(found, key=len)


def _without_way(text: str, ways: bool) -> str:
    return text if ways else text.rpartition(": ")[0]


def _outside(
    instance: Instance, group: str, low: Spec, high: Spec, *, exclusive: bool, ways: bool
) -> list[str]:
    checks: list[tuple[Fail, str, str, Any, bool]] = [
        (Fail.MEMORY, "memory", "of memory for an instance", instance.memory, True),
        (Fail.CPU, "cpus", "virtual CPUs for an instance", instance.vcpus, False),
        *(
            (Fail.DISK, "disk_size", "for a disk", disk.size, True)
            for disk in instance.disks
        ),
    ]  # fmt: skip
    if exclusive:
        checks += [
            (Fail.SPINDLES, "spindle_use", "spindles for a disk", disk.spindles or 0, False)
            for disk in instance.disks
        ]
    else:
        use = instance.spindle_use
        checks.append(
            (Fail.SPINDLES, "spindle_use", "spindles (spindle_use) for an instance", use, False)
        )
    if instance.template != "diskless":
        checks.append(
            (Fail.DISK_COUNT, "disk_count", "disks for an instance", len(instance.disks), False)
        )
    lines = [
        _without_way(
            beyond_policy(group, what, value, getattr(low, key), getattr(high, key), mib=mib), ways
        )
        + _BRACKETS.format(fail.value)
        for fail, key, what, value, mib in checks
        if not getattr(low, key) <= value <= getattr(high, key)
    ]
    return list(dict.fromkeys(lines))


# -- moves ------------------------------------------------------------------------------------


def of_move(
    cluster: Cluster, instance: Instance, move: Move, *, force: bool = False
) -> Shortage | None:
    """Return why a move is impossible, with the numbers of the node which refuses it.

    None when it is possible, or the way to it is not.
    """
    fail = moves.apply(cluster.nodes, instance, move, force=force)
    if not isinstance(fail, Fail):
        return None
    nodes = cluster.nodes
    primary, secondary = moves.destination(move, instance.primary, instance.secondary)
    old = nodes[instance.primary]
    if fail is Fail.MIGRATION:
        target = nodes[secondary if move.kind == moves.Kind.REPLACE_SECONDARY else primary]
        group = cluster.groups[target.group].name
        return Shortage(Cause.MIGRATION, target.name, group, detail=old.name)
    force = force or old.offline
    new = moves.moved(instance, nodes, primary, secondary)
    found = None
    if primary != instance.primary:
        found = as_primary(cluster, _without(nodes[primary], instance), new, force=force)
    if found is None and secondary not in (NO_NODE, instance.secondary):
        kept = _without(nodes[secondary], instance)
        found = as_secondary(cluster, kept, new, primary, force=force)
    target = nodes[primary if primary != instance.primary or secondary == NO_NODE else secondary]
    group = cluster.groups[target.group].name
    return found or Shortage(Cause.UNKNOWN, target.name, group, code=fail)


def _without(node: Node, instance: Instance) -> Node:
    """Return a copy of a node without an instance."""
    new = node.copy()
    if node.index == instance.primary:
        new.remove_primary(instance)
    elif node.index == instance.secondary:
        new.remove_secondary(instance)
    return new
