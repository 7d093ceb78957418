"""Why a node was or was not chosen for a new instance.

Every place is tried once more, as :mod:`ganeti.htools.place` does to choose one, and the best place
or the reasons are noted for each node. For an instance with a mirrored disk a node is looked at as
primary node; its row names the best secondary node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ganeti.htools import formats, place
from ganeti.htools.cluster import UNALLOCABLE, Cluster, Group, NoNodesError
from ganeti.htools.instance import Instance
from ganeti.htools.limits import violates
from ganeti.htools.loading.request import New, Request
from ganeti.htools.node import Fail, Node
from ganeti.htools.place import Attempt, Options
from ganeti.utils.records import replace

PRIMARY = "primary"
SECONDARY = "secondary"

_REASONS = {
    Fail.MEMORY: "not enough memory, or not enough for the loss of another node",
    Fail.DISK: "not enough disk space, or too many spindles in use (spindle-ratio)",
    Fail.CPU: "too many virtual CPUs (vcpu-ratio)",
    Fail.N1: "its group would not survive the loss of a node",
    Fail.TAGS: "an instance with the same exclusion tag is there",
    Fail.MIGRATION: "its migration tags forbid it",
    Fail.DISK_COUNT: "the number of disks is not permitted",
    Fail.SPINDLES: "not enough free spindles",
    Fail.INTERNAL: "it cannot be computed",
}

_POLICY = {
    Fail.MEMORY: "the memory",
    Fail.DISK: "the disk template or the size of a disk",
    Fail.CPU: "the number of virtual CPUs",
    Fail.SPINDLES: "the use of spindles",
    Fail.DISK_COUNT: "the number of disks",
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
            _row(cluster, node, member, one.instance, closed or _unusable(node, options, states),
                 attempts, chosen)
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
    instance: Instance,
    closed: str,
    attempts: Sequence[Attempt],
    chosen: Sequence[int],
) -> tuple[tuple[int, float], Row]:
    """Make the row of a node, with its rank."""
    role = None
    if node.index in chosen:
        role = PRIMARY if node.index == chosen[0] else SECONDARY
    own = [] if closed else [one for one in attempts if one.first == node.index]
    possible = [one for one in own if not isinstance(one.value, Fail)]
    if not possible:
        reason = closed or _failure(node, group, instance, own)
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


def _failure(node: Node, group: Group, instance: Instance, own: Sequence[Attempt]) -> str:
    """Return why an instance cannot have a node as primary node."""
    if node.policy is not None:
        fail = violates(instance, node.policy, exclusive=node.exclusive_storage)
        if fail is not None:
            return f"the policy of group {group.name} does not permit {_POLICY[fail]}"
    counts: dict[Fail, int] = {}
    for one in own:
        if isinstance(one.value, Fail):
            counts[one.value] = counts.get(one.value, 0) + 1
    if not counts:
        return "no other node of its group can be the secondary node"
    if len(counts) == 1:
        return _REASONS[next(iter(counts))]
    return "; ".join(f"{_REASONS[fail]} ({counts[fail]})" for fail in Fail if fail in counts)


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
