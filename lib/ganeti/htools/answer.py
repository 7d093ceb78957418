"""Answering a request for placement, as the allocator ``hail`` does.

Source: manual page **ganeti-iallocator**.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ganeti import TYPE_CHECKING
from ganeti.htools import cluster as model
from ganeti.htools import evacuate, place
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE
from ganeti.htools.loading import request as req
from ganeti.htools.moves import Kind, Move
from ganeti.htools.place import Options
from ganeti.utils.records import NamedTuple, record, replace

if TYPE_CHECKING:
    from typing import Any


@record(frozen=True, slots=True)
class Answer:
    """An answer in its published form, and the cluster after what it proposes."""

    success: bool
    info: str
    result: Any
    cluster: Cluster

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as the program prints it."""
        return {"success": self.success, "info": self.info, "result": self.result}


def prepare(request: req.Request) -> list[str]:
    """Make the cluster of a request, and its new instances, ready.

    :returns: what is inconsistent in the cluster.
    :raises ParseError: a value is not possible.
    """
    warnings = model.prepare(request.cluster)
    for one in request.new:
        model.prepare_new(request.cluster, one.instance)
    return warnings


class Tell(NamedTuple):
    """What an answer tells beside its published form.

    :ivar remark: gets remarks for users who want to know more.
    :ivar reasons: gets, for each instance without a place, its name and why, in sentences
        (:mod:`ganeti.htools.reasons`); None when nobody reads them, because they take time.
    :ivar networks: UUID of a network -> its name, for these sentences.
    """

    remark: Callable[[str], None] = lambda _text: None
    reasons: Callable[[str, Sequence[str]], None] | None = None
    networks: Mapping[str, str] = MappingProxyType({})


def answer(
    request: req.Request, cluster: Cluster, options: Options, tell: Tell | None = None
) -> Answer:
    """Answer a request.

    :param cluster: the cluster, prepared; usually that of the request.
    """
    handler = _HANDLERS[request.kind]
    return handler(request, cluster, options, tell or Tell())


def _tell_no_place(
    tell: Tell, request: req.Request, one: req.New, cluster: Cluster, options: Options
) -> None:
    if tell.reasons is not None:
        # Few requests fail, and fewer are asked why.
        from ganeti.htools import explain

        lines = explain.no_place(cluster, one, options, request.closed, tell.networks)
        tell.reasons(one.instance.name, lines)


def _tell_moves(tell: Tell, cluster: Cluster, reasons: Mapping[int, Sequence[str]]) -> None:
    if tell.reasons is not None:
        for index, lines in reasons.items():
            tell.reasons(cluster.instances[index].name, lines)


def _failed(reason: str, cluster: Cluster, result: Any = None) -> Answer:
    return Answer(False, f"Request failed: {reason}", [] if result is None else result, cluster)


def _names(cluster: Cluster, indices: Sequence[int]) -> list[str]:
    return [cluster.nodes[index].name for index in indices]


def _own_options(one: req.New, options: Options) -> Options:
    restricted = options.restrict_to if options.restrict_to is not None else one.restrict_to
    return replace(options, restrict_to=restricted)


def _place(
    one: req.New, cluster: Cluster, options: Options, explain: Callable[[str], None]
) -> place.Placement:
    own = _own_options(one, options)
    if one.group is None:
        return place.in_any_group(cluster, one.instance, one.required, own, explain=explain)
    group = cluster.find_group(one.group)
    if group is None:
        return place.Placement(None, None, [f"Unknown group '{one.group}'"])
    return place.in_one_group(cluster, group, one.instance, one.required, own, explain=explain)


def _allocate(request: req.Request, cluster: Cluster, options: Options, tell: Tell) -> Answer:
    found = _place(request.new[0], cluster, options, tell.remark)
    if found.cluster is None or found.instance is None:
        _tell_no_place(tell, request, request.new[0], cluster, options)
        return _failed(", ".join(found.log), cluster)
    info = f"Request successful: {', '.join(found.log)}"
    return Answer(True, info, _names(cluster, found.instance.nodes), found.cluster)


def _multi_allocate(request: req.Request, cluster: Cluster, options: Options, tell: Tell) -> Answer:
    placed: list[list[Any]] = []
    failed: list[str] = []
    once: list[str] = []
    for one in request.new:
        found = _place(one, cluster, options, once.append)
        if found.cluster is None or found.instance is None:
            failed.append(one.instance.name)
            _tell_no_place(tell, request, one, cluster, options)
        else:
            cluster = found.cluster
            placed.append([one.instance.name, _names(cluster, found.instance.nodes)])
    for text in dict.fromkeys(once):
        tell.remark(text)
    info = (
        f"Request successful: {len(failed)} instances failed to allocate and {len(placed)} were"
        " allocated successfully"
    )
    return Answer(True, info, [placed, failed], cluster)


def _allocate_secondary(
    request: req.Request, cluster: Cluster, options: Options, tell: Tell
) -> Answer:
    instance = cluster.find_instance(request.names[0])
    if instance is None:
        # The cluster may be another one than that of the request (``hail -t``).
        return _failed(f"Unknown instance '{request.names[0]}'", cluster)
    group = cluster.nodes[instance.primary].group
    result = place.with_secondary(cluster, instance, cluster.nodes_of(group), options)
    if result.best is None:
        reasons = evacuate.no_second(cluster, instance, options)
        _tell_moves(tell, cluster, {instance.index: reasons})
        return _failed(place.summary(result, cluster.nodes), cluster, "")
    after = cluster.copy()
    new = result.best.instance
    after.instances[instance.index] = new
    for node in result.best.changed:
        after.nodes[node.index] = node
    info = f"Request successful: {place.summary(result, cluster.nodes)}"
    return Answer(True, info, cluster.nodes[new.secondary].name, after)


def _relocate(request: req.Request, cluster: Cluster, options: Options, tell: Tell) -> Answer:
    instance = cluster.find_instance(request.names[0])
    if instance is None:
        # The cluster may be another one than that of the request (``hail -t``).
        return _failed(f"Unknown instance '{request.names[0]}'", cluster)
    nodes = [cluster.find_node(name) for name in request.nodes]
    try:
        after, node = evacuate.relocate(
            cluster, instance, [one.index for one in nodes if one is not None], options
        )
    except evacuate.CannotMoveError as err:
        _tell_moves(tell, cluster, {instance.index: err.reasons})
        return _failed(str(err), cluster)
    return Answer(True, "Request successful: success", _names(cluster, [node]), after)


def _indices(request: req.Request, cluster: Cluster) -> list[int]:
    found = [cluster.find_instance(name) for name in request.names]
    return [one.index for one in found if one is not None]


def _evacuate(request: req.Request, cluster: Cluster, options: Options, tell: Tell) -> Answer:
    mode = evacuate.Mode(request.evacuation_mode)
    solution = evacuate.nodes(cluster, _indices(request, cluster), mode, options)
    return _moves(solution, tell)


def _change_group(request: req.Request, cluster: Cluster, options: Options, tell: Tell) -> Answer:
    wanted = [cluster.find_group(uuid) for uuid in request.groups]
    solution = evacuate.groups(
        cluster,
        _indices(request, cluster),
        [group for group in wanted if group is not None],
        options,
        evacuate.Facts(request.closed, tell.networks),
    )
    return _moves(solution, tell)


def _moves(solution: evacuate.Solution, tell: Tell) -> Answer:
    cluster = solution.cluster
    _tell_moves(tell, cluster, solution.reasons)
    moved = []
    jobs = []
    for index, group, steps in solution.moved:
        instance = cluster.instances[index]
        moved.append([instance.name, cluster.groups[group].name, _names(cluster, instance.nodes)])
        jobs.append([opcode for step in steps for opcode in opcodes(step, instance.name, cluster)])
    failed = [[cluster.instances[index].name, reason] for index, reason in solution.failed]
    info = (
        f"Request successful: {len(failed)} instances failed to move and {len(moved)} were moved"
        " successfully"
    )
    return Answer(True, info, [moved, failed, jobs], cluster)


def opcodes(move: Move, name: str, cluster: Cluster) -> list[dict[str, Any]]:
    """Return the opcodes of a move, in their published form."""
    target = None if move.target == NO_NODE else cluster.nodes[move.target].name
    over: dict[str, Any] = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name}
    if move.kind == Kind.FAILOVER_TO_ANY:
        over["target_node"] = target
    over |= {
        "allow_runtime_changes": False,
        "ignore_ipolicy": False,
        "cleanup": False,
        "allow_failover": True,
        "ignore_hvversions": True,
    }
    replace_disks = {
        "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
        "instance_name": name,
        "early_release": False,
        "ignore_ipolicy": False,
        "mode": "replace_new_secondary",
        "disks": [],
        "remote_node": target,
    }
    return {
        Kind.FAILOVER: [over],
        Kind.FAILOVER_TO_ANY: [over],
        Kind.REPLACE_SECONDARY: [replace_disks],
        Kind.REPLACE_AND_FAILOVER: [replace_disks, over],
        Kind.REPLACE_PRIMARY: [over, replace_disks, over],
        Kind.FAILOVER_AND_REPLACE: [over, replace_disks],
    }[move.kind]


_HANDLERS = {
    req.ALLOCATE: _allocate,
    req.ALLOCATE_SECONDARY: _allocate_secondary,
    req.CHANGE_GROUP: _change_group,
    req.MULTI_ALLOCATE: _multi_allocate,
    req.NODE_EVACUATE: _evacuate,
    req.RELOCATE: _relocate,
}
