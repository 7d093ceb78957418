"""Questions of programs to the placement programs, and their answers as JSON has them.

The REST daemon asks them (:mod:`ganeti.helpers.placement`): how many more instances fit, which
moves balance the cluster, what it would be after some changes, and where an instance would be put.
The options and their errors are those of the programs **hspace**, **hbal** and **hail**.

What a node does not tell is not known: nothing is placed on a node which does not answer, and the
answer names it in ``unknown_nodes``. It is neither full nor empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.client.htools import execute, hbal, hspace, loading, luxi, options, reports
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.constants import query
from ganeti.htools import balance, capacity, explain, redundancy, what_if
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import form
from ganeti.htools.loading import request as req
from ganeti.htools.place import Options as PlaceOptions
from ganeti.objects import disk_templates
from ganeti.platform import machine


class NoCapacityError(errors.GenericError):
    """The cluster has no nodes which may be filled."""


#: The most moves of the answer to a what-if question.
WHAT_IF_MOVES = 50


def answer(question: str, words: Sequence[str], body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a question about the cluster of the master daemon on this machine.

    :param question: one of :data:`QUESTIONS`.
    :param words: options of the program which answers it, such as ``--group=rack2``.
    :param body: what has the form of an object: the changes, or the new instance.
    :returns: the answer of the function of the question, and ``unknown_nodes``: names of nodes
        which should answer and do not.
    :raises errors.GenericError: an option is wrong, or the cluster cannot be read.
    """
    function, names = QUESTIONS[question]
    values = options.parse([*names, "luxi"], ["--luxi", *words])
    if not machine.current().has_own_system:
        # The nodes of a virtual cluster share the memory of one machine, so sums never agree.
        values.options["verbose"] = 0
    found = function(values, body)
    return {**_finite(found), "unknown_nodes": _unknown_nodes(values)}


def _unknown_nodes(values: Values) -> list[str]:
    """Return the names of the nodes which are in service and do not say what they have."""
    fields = ["name", "offline", "drained", "vm_capable", "mtotal"]
    with luxi.connect(values.luxi) as client:
        rows = client.query(query.NODE, fields)["data"]
    with form.checked("an answer of the master daemon about nodes"):
        return [
            name[1]
            for name, offline, drained, capable, memory in rows
            if not offline[1]
            and not drained[1]
            and capable[1] is not False
            and memory[0] != query.RS_NORMAL
        ]


# -- capacity --------------------------------------------------------------------------------------


def _capacity(values: Values, _body: Mapping[str, Any]) -> dict[str, Any]:
    """How many more instances fit, and why no more do: the answer of ``hspace``, with reasons."""
    standard = hspace.size("standard", values.standard_alloc)
    largest = hspace.size("tiered", values.tiered_alloc)
    cluster = loading.load(values, one_group=True)
    run = hspace.Run(values, cluster, standard, largest)
    try:
        tiers, filled = run.fill()
    except prog.Failure as err:
        raise NoCapacityError(str(err)) from err
    found = run.as_dict(tiers, filled)
    reached = values.max_length >= 0 and len(filled.placed) >= values.max_length
    found["standard"]["reasons"] = [] if reached else _no_more(run, filled.cluster)
    return found


def _no_more(run: hspace.Run, full: Cluster) -> list[str]:
    """Say in sentences why one more instance of the standard size has no place."""
    one = req.New(run.instance(run.standard), capacity.required_nodes(run.template))
    chosen = PlaceOptions(capacity_checks=not run.values.no_capacity_checks)
    return explain.no_place(full, one, chosen)


# -- balance ---------------------------------------------------------------------------------------


def _balance(values: Values, _body: Mapping[str, Any]) -> dict[str, Any]:
    """The moves of ``hbal`` for one group or for each group, with their opcodes."""
    whole = loading.load(values)
    return {"groups": _solutions(values, whole)}


def _solutions(values: Values, whole: Cluster) -> list[dict[str, Any]]:
    group = values.options.get("group")
    if group is not None and whole.find_group(group) is None:
        known = ", ".join(one.name for one in whole.groups)
        raise prog.Failure(f"unknown node group '{group}'; there are {known}")
    found = []
    for one in whole.groups:
        if group in (None, one.name, one.uuid) and whole.nodes_of(one.index):
            part = whole.only(one.index)
            initial, final, steps = hbal.solve(values, part)
            solution = reports.solution(part, initial, final, steps)
            for rows, some in zip(solution["job_sets"], balance.job_sets(steps), strict=True):
                for row, step in zip(rows, some, strict=True):
                    row["opcodes"] = [op.to_dict() for op in execute.opcodes_with(step, part, {})]
            found.append({"group": one.name, "uuid": one.uuid, **solution})
    return found


# -- what if ---------------------------------------------------------------------------------------


def _what_if(values: Values, body: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster before and after changes: what fits, what survives, and the moves."""
    cluster = loading.load(values, one_group=True)
    result = what_if.apply(cluster, body["changes"])
    after = result.cluster
    found: dict[str, Any] = {
        "changes": [one.to_dict() for one in result.changes],
        "moves": _moves(cluster, after),
        "before": _health(cluster),
        "after": _health(after),
    }
    if body.get("balance"):
        values.options["max_length"] = WHAT_IF_MOVES
        values.options.pop("group", None)
        found["balance"] = _solutions(values, after)
    return found


def _moves(before: Cluster, after: Cluster) -> list[dict[str, Any]]:
    """Return the instances which have other nodes after the changes, with both."""

    def nodes(cluster: Cluster) -> dict[str, list[str]]:
        return {
            one.name: [cluster.nodes[index].name for index in one.nodes]
            for one in cluster.instances
        }

    then = nodes(after)
    return [
        {"instance": name, "from": old, "to": then[name]}
        for name, old in nodes(before).items()
        if name in then and then[name] != old
    ]


def _health(cluster: Cluster) -> dict[str, Any]:
    lost = redundancy.Checker().lost(cluster.nodes, cluster.instances)
    return {
        **what_if.summary(cluster),
        "failing_n1": [node.name for node in cluster.nodes if node.failing and not node.offline],
        "not_evacuable": [node.name for node in lost],
    }


# -- place -----------------------------------------------------------------------------------------


def _place(values: Values, body: Mapping[str, Any]) -> dict[str, Any]:
    """Where a new instance would be put, with the reasons for each node."""
    cluster = loading.load(values)
    template = body.get("disk_template") or cluster.policy.templates[0]
    if template not in disk_templates.ALL:
        raise prog.Failure(f"there is no disk template '{template}'")
    sizes = [int(size) for size in body["disks"]]
    described = {
        "name": body.get("name") or "new",
        "memory": body["memory"],
        "vcpus": body["vcpus"],
        "spindle_use": body.get("spindle_use", 1),
        "disk_template": template,
        "disks": [{"size": size} for size in sizes],
        "disk_space_total": sum(disk_templates.space_mib(template, size) for size in sizes),
        "tags": body.get("tags") or [],
        "nics": [{"network": name} for name in body.get("networks") or ()],
        "group_name": body.get("group"),
    }
    if body.get("nodes") is not None:
        described["restrict-to-nodes"] = [_full_name(cluster, name) for name in body["nodes"]]
    new = req.new_instance(described, cluster)
    if new.group is not None and cluster.find_group(new.group) is None:
        known = ", ".join(one.name for one in cluster.groups)
        raise prog.Failure(f"unknown node group '{new.group}'; there are {known}")
    model.prepare_new(cluster, new.instance)
    chosen = PlaceOptions(
        ignore_soft_errors=values.ignore_soft_errors,
        capacity_checks=not values.no_capacity_checks,
    )
    found = explain.explain(cluster, new, chosen, _closed(values)).to_dict()
    place = {row["chosen"]: row["node"] for row in found["nodes"] if row["chosen"]}
    nodes = [place[role] for role in (explain.PRIMARY, explain.SECONDARY) if role in place]
    why = [] if nodes else explain.no_place(cluster, new, chosen, _closed(values))
    return {
        "instance": found["instance"],
        "chosen": nodes,
        "info": found["info"],
        "reasons": why,
        "nodes": found["nodes"],
    }


def _full_name(cluster: Cluster, name: str) -> str:
    node = cluster.find_node(name)
    if node is None:
        raise prog.Failure(f"there is no node '{name}'")
    return node.name


def _closed(values: Values) -> dict[str, str]:
    """Return why nodes take no instances, by their names."""
    with luxi.connect(values.luxi) as client:
        rows = client.query(query.NODE, ["name", "offline", "drained", "vm_capable"])["data"]
    found = {}
    with form.checked("an answer of the master daemon about nodes"):
        for (_, name), (_, offline), (_, drained), (_, capable) in rows:
            if capable is False:
                found[name] = "not vm_capable"
            elif offline or drained:
                found[name] = "offline" if offline else "drained"
    return found


def _finite(value: Any) -> Any:
    """Return a value for JSON, which has no infinite numbers."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: Question -> the function which answers it, and the options of the programs which it takes.
QUESTIONS = {
    "capacity": (
        _capacity,
        (
            "disk-template", "spindle-use", "independent-groups", "accept-existing-errors",
            "no-capacity-checks", "max-length", "standard-alloc", "tiered-alloc", "group",
            "static-kvm-node-memory", "offline", "max-cpu", "min-disk", "what-if", "verbose",
        ),
    ),
    "balance": (
        _balance,
        (
            "evac-mode", "restricted-migration", "group", "max-length", "min-score", "min-gain",
            "min-gain-limit", "no-disk-moves", "no-instance-moves", "ignore-soft-errors",
            "select-instances", "exclude-instances", "static-kvm-node-memory", "verbose",
        ),
    ),
    "what-if": (
        _what_if,
        (
            "evac-mode", "restricted-migration", "group", "max-length", "min-score", "min-gain",
            "min-gain-limit", "no-disk-moves", "no-instance-moves", "ignore-soft-errors",
            "static-kvm-node-memory", "verbose",
        ),
    ),
    "place": (
        _place,
        ("ignore-soft-errors", "no-capacity-checks", "static-kvm-node-memory", "verbose"),
    ),
}  # fmt: skip
