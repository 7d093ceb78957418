"""Why a node was or was not chosen for a new instance.

Every place is tried once more, as :mod:`ganeti.htools.place` does to choose one, and the best place
or the reasons are noted for each node. For an instance with a mirrored disk a node is looked at as
primary node; its row names the best secondary node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ganeti.htools import formats, place, reasons
from ganeti.htools.cluster import UNALLOCABLE, Cluster, Group, NoNodesError
from ganeti.htools.instance import Instance
from ganeti.htools.loading.request import New, Request
from ganeti.htools.node import Fail, Node
from ganeti.htools.place import Attempt, Options
from ganeti.htools.reasons import Shortage
from ganeti.utils.records import replace

PRIMARY = "primary"
SECONDARY = "secondary"

#: Why a node takes no instances -> what to do, in braces the name of the node.
_OPENED = {
    "offline": "gnt-node modify --offline=no {}",
    "offline, or it does not answer": "gnt-node modify --offline=no {}, if it is marked offline;"
    " otherwise see whether ganeti-noded runs there",
    "drained": "gnt-node modify --drained=no {}",
    "not vm_capable": "gnt-node modify --vm-capable=yes {}",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What was found about one node.

    :ivar chosen: ``primary`` or ``secondary`` for a chosen node, else None.
    :ivar score: the score of the cluster with the instance on this primary node, lower is better;
        None when it cannot be there, and on dedicated nodes.
    :ivar secondary: the best secondary node with this primary node; None without one.
    """

    node: str
    group: str
    chosen: str | None
    score: float | None
    secondary: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one placement.

    :ivar info: one line for each group, as an allocator reports it.
    :ivar nodes: the best node first; nodes which cannot get the instance come last.
    """

    instance: str
    info: str
    nodes: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as programs get it."""
        return {**asdict(self), "nodes": [asdict(row) for row in self.nodes]}


def explain(
    cluster: Cluster, one: New, options: Options, states: Mapping[str, str] | None = None
) -> Explanation:
    """Explain where a new instance goes.

    :param cluster: the cluster, prepared.
    :param states: name of a node -> why no instance may be placed there (``offline``).
    """
    if options.restrict_to is None:
        options = replace(options, restrict_to=one.restrict_to)
    named = None if one.group is None else cluster.find_group(one.group)
    found = place.Placement(None, None, [])
    if one.group is None:
        found = place.in_any_group(cluster, one.instance, one.required, options)
    elif named is not None:
        found = place.in_one_group(cluster, named, one.instance, one.required, options)
    chosen = () if found.instance is None else found.instance.nodes
    rows: list[tuple[tuple[int, float], Row]] = []
    for number, member in enumerate(cluster.groups):
        closed = _closed(member, one, named)
        attempts: list[Attempt] = []
        if not closed:
            try:
                attempts = _attempts(cluster, member, one, options)
            except NoNodesError as err:
                closed = str(err).lower()
        rows += [
            _row(cluster, node, member, one, closed or _unusable(node, options, states),
                 attempts, chosen, options)
            for node in cluster.nodes_of(number)
        ]  # fmt: skip
    rows.sort(key=lambda row: row[0])
    ordered = [row for _rank, row in rows]
    return Explanation(one.instance.name, ", ".join(found.log), tuple(ordered))


def explain_all(request: Request, options: Options) -> list[dict[str, Any]]:
    """Explain the choices for the new instances of a request, each of which is looked at alone.

    :param request: the request, prepared.
    :returns: for each new instance the form of :meth:`Explanation.to_dict`.
    """
    return [explain(request.cluster, one, options, request.closed).to_dict() for one in request.new]


def _attempts(cluster: Cluster, group: Group, one: New, options: Options) -> list[Attempt]:
    """Try all places in a group.

    :raises NoNodesError: it has not enough nodes.
    """
    record: list[Attempt] = []
    alone = one.group is not None
    dedicated = place.is_dedicated(cluster.nodes_of(group.index) if alone else cluster.nodes)
    place.in_group(
        cluster, group, one.instance, one.required, options,
        dedicated=dedicated, alone=alone, record=record,
    )  # fmt: skip
    return record


def _closed(group: Group, one: New, named: Group | None) -> str:
    """Return why no node of a group is looked at; empty for no reason.

    :param named: the group of the request.
    """
    if one.group is not None:
        if group is not named:
            return f"group {group.name} is not the one of the request"
    elif group.alloc_policy == UNALLOCABLE:
        return f"group {group.name} is unallocable"
    if not place.is_connected(group, one.instance):
        return f"group {group.name} is not connected to a network of the instance"
    return ""


def _unusable(node: Node, options: Options, states: Mapping[str, str] | None) -> str:
    if states and node.name in states:
        return states[node.name]
    if node.offline:
        return "offline"
    if options.restrict_to is not None and node.name not in options.restrict_to:
        return "not one of the nodes to which the choice is restricted"
    return ""


def _row(
    cluster: Cluster,
    node: Node,
    group: Group,
    one: New,
    closed: str,
    attempts: Sequence[Attempt],
    chosen: Sequence[int],
    options: Options,
) -> tuple[tuple[int, float], Row]:
    """Make the row of a node, with its rank."""
    role = None
    if node.index in chosen:
        role = PRIMARY if node.index == chosen[0] else SECONDARY
    own = [] if closed else [tried for tried in attempts if tried.first == node.index]
    possible = [one for one in own if not isinstance(one.value, Fail)]
    if not possible:
        reason = closed or _failure(cluster, node, group, one, own, options)
        if role == SECONDARY:
            reason = f"best secondary node; as primary node: {reason}"
        rank = (1 if role is None else 0, 0.0)
        return rank, Row(node.name, group.name, role, None, None, reason)
    # Of equal places the last one is taken.
    best = min(reversed(possible), key=lambda one: one.value)  # type: ignore[arg-type, return-value]
    if role == PRIMARY and len(chosen) > 1:
        best = next(one for one in possible if one.second == chosen[1])
    partner = cluster.nodes[best.second].name if best.second >= 0 else None
    score = best.value if isinstance(best.value, float) else None
    if role == PRIMARY:
        reason = f"the best place: score {place.show_value(best.value)}"  # type: ignore[arg-type]
    elif role == SECONDARY:
        reason = "best secondary node; possible as primary node"
    else:
        reason = "possible, but another place is better"
    refused = len(own) - len(possible)
    if refused:
        reason += f"; {refused} of {len(own)} secondary nodes are not possible"
    rank = (0, -1.0 if role == PRIMARY else score if score is not None else 0.0)
    return rank, Row(node.name, group.name, role, score, partner, reason)


def _failure(
    cluster: Cluster, node: Node, group: Group, one: New, own: Sequence[Attempt], options: Options
) -> str:
    """Return why an instance cannot have a node as primary node."""
    instance, force = one.instance, options.ignore_soft_errors
    if node.policy is not None:
        found = reasons.against_policy(
            instance, group, exclusive=node.exclusive_storage, ways=False
        )
        if found:
            return "; ".join(found)
    shortage = reasons.as_primary(cluster, node, instance, force=force)
    if shortage is not None:
        return reasons.fact(shortage, instance.name)
    if any(attempt.value is Fail.N1 for attempt in own):
        return reasons.fact(reasons.loss(cluster, instance, node), instance.name)
    seconds = _second_shortages(cluster, node, [one.second for one in own], one, force=force)
    if not seconds:
        return "no other node of its group can be the secondary node"
    lines = reasons.summary(seconds, instance.name, len(own), "as secondary node: ", ways=False)
    return "; ".join(lines)


def _second_shortages(
    cluster: Cluster, first: Node, seconds: Iterable[int], one: New, *, force: bool
) -> list[Shortage]:
    """Return why nodes cannot be the secondary node beside a primary node."""
    found = (
        reasons.as_secondary(
            cluster, cluster.nodes[index], one.instance, first.index, force=force
        )
        for index in seconds
        if index >= 0
    )  # fmt: skip
    return [shortage for shortage in found if shortage is not None]


# -- no place at all --------------------------------------------------------------------------


def no_place(
    cluster: Cluster,
    one: New,
    options: Options,
    states: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[str]:
    """Say why a new instance has no place, in sentences with numbers and the way out.

    :param cluster: the cluster, prepared.
    :param states: name of a node -> why no instance may be placed there (``offline``).
    :param names: UUID of a network -> its name.
    """
    if options.restrict_to is None:
        options = replace(options, restrict_to=one.restrict_to)
    wanted = [
        group
        for group in cluster.groups
        if one.group is None or one.group in (group.name, group.uuid)
    ]
    if not wanted:
        if one.group is None:
            return ["the cluster has no node group: gnt-group add makes one"]
        return [f"there is no group {one.group}: gnt-group list shows all groups"]
    lines = []
    for group in wanted:
        found = group_refuses(cluster, group, one, options, states, names)
        prefix = f"group {group.name}: " if len(wanted) > 1 else ""
        lines += [
            line if f"group {group.name}" in line else prefix + line
            for line in found
        ]  # fmt: skip
    return list(dict.fromkeys(lines))


def group_refuses(
    cluster: Cluster,
    group: Group,
    one: New,
    options: Options,
    states: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[str]:
    """Say why a new instance has no place in a group; the parameters are those of
    :func:`no_place`.
    """
    instance, members = one.instance, cluster.nodes_of(group.index)
    if one.group is None and group.alloc_policy == UNALLOCABLE:
        return [
            f"group {group.name} takes no new instances (unallocable): gnt-group modify"
            f" --alloc-policy=preferred {group.name}"
        ]
    if not members:
        return [f"group {group.name} has no nodes: gnt-group assign-nodes {group.name} NODE"]
    missing = _missing_networks(group, instance, names)
    if missing:
        return missing
    closed = {node.name: _unusable(node, options, states) for node in members}
    usable = [node for node in members if not closed[node.name]]
    exclusive = members[0].exclusive_storage
    too_large = reasons.against_policy(instance, group, exclusive=exclusive)
    if too_large:
        return too_large
    lines = _too_few(usable, closed, group, one)
    if lines:
        return lines
    lines = _shortages(cluster, group, usable, one, options)
    left = _not_usable(closed)
    return lines + ([f"not usable: {left}"] if left else [])


def _missing_networks(
    group: Group, instance: Instance, names: Mapping[str, str] | None
) -> list[str]:
    missing = [
        (names or {}).get(nic.network, nic.network)
        for nic in instance.nics
        if nic.network is not None and nic.network not in group.networks
    ]
    return [
        f"group {group.name} is not connected to network {name}, in which {instance.name} has an"
        f" interface: gnt-network connect {name} {group.name}"
        for name in dict.fromkeys(missing)
    ]


def _not_usable(closed: Mapping[str, str]) -> str:
    """List the nodes which take no instances, and what to do."""
    parts = []
    for name, reason in closed.items():
        if reason:
            way = _OPENED.get(reason, "").format(name)
            parts.append(f"{name} is {reason}" + (f" ({way})" if way else ""))
    return ", ".join(parts)


def _too_few(
    usable: Sequence[Node], closed: Mapping[str, str], group: Group, one: New
) -> list[str]:
    """Say that a group has too few usable nodes, if so."""
    if len(usable) >= one.required:
        return []
    left = _not_usable(closed)
    if not usable:
        return [f"no node of group {group.name} can have {one.instance.name}: {left}"]
    only = "usable " if left else ""
    return [
        f"{usable[0].name} is the only {only}node of group {group.name}, and disks of template"
        f" {one.instance.template} need a second one"
        + (f"; {left}" if left else "")
        + ": add a node to the group, or use disk template plain (-t plain)"
    ]


def _shortages(
    cluster: Cluster, group: Group, usable: Sequence[Node], one: New, options: Options
) -> list[str]:
    """Say why none of the usable nodes of a group can have a new instance."""
    instance, force = one.instance, options.ignore_soft_errors
    found = {
        node.index: reasons.as_primary(cluster, node, instance, force=force) for node in usable
    }
    able = [node for node in usable if found[node.index] is None]
    primaries = [shortage for shortage in found.values() if shortage is not None]
    lines = reasons.summary(primaries, instance.name, len(usable))
    if not able:
        return lines
    attempts = _attempts(cluster, group, one, options)
    lost = [one.first for one in attempts if one.value is Fail.N1]
    if lost:
        shortage = reasons.loss(cluster, instance, cluster.nodes[lost[0]])
        lines += reasons.summary([shortage], instance.name, len(usable))
    if one.required > 1:
        seconds: dict[str, Shortage] = {}
        # What keeps a node from both roles is said once.
        said = {(shortage.node, shortage.cause) for shortage in primaries}
        for node in able:
            others = [two.index for two in usable if two is not node]
            for shortage in _second_shortages(cluster, node, others, one, force=force):
                if (shortage.node, shortage.cause) not in said:
                    seconds.setdefault(shortage.node, shortage)
        role = "as secondary node: "
        lines += reasons.summary(seconds.values(), instance.name, len(usable), role)
    return lines


def text(explanations: Sequence[Mapping[str, Any]]) -> str:
    """Write the explanations of several placements for people.

    :param explanations: each in the form of :meth:`Explanation.to_dict`.
    """
    return "\n\n".join(f"{one['instance']}: {one['info']}\n{table(one)}" for one in explanations)


def table(explanation: Mapping[str, Any]) -> str:
    """Write an explanation for people.

    :param explanation: the form of :meth:`Explanation.to_dict`.
    """
    rows = [("Node", "Group", "Chosen", "Score", "Secondary", "Reason")]
    for row in explanation["nodes"]:
        score = "-" if row["score"] is None else formats.fixed(row["score"], 8)
        rows.append(
            (row["node"], row["group"], row["chosen"] or "-", score, row["secondary"] or "-",
             row["reason"])
        )  # fmt: skip
    lines = formats.table(rows, [False, False, False, True, False, False])
    return "\n".join(line.rstrip() for line in lines)
