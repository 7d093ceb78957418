"""The program ``hroller``: plans reboots of nodes without stopping instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti.client.htools import loading
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools import formats, reboots
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.node import Node
from ganeti.wire import json

OPTIONS = (
    "luxi", "master", "text-data", "ialloc-src", "offline", "offline-maintenance", "verbose",
    "quiet", "no-headers", "node-tags", "save", "group", "print-moves", "full-evacuation",
    "skip-non-redundant", "ignore-non-redundant", "force", "one-step-only",
    "static-kvm-node-memory", "output",
)  # fmt: skip


def execute(values: Values) -> int:
    """Plan the reboots."""
    cluster = loading.load(values)
    _check_master(values, cluster)
    chosen = _chosen(values, cluster)
    if not chosen:
        raise prog.Failure("Cannot create node graph")
    options = reboots.Options(
        offline=values.offline_maintenance,
        evacuate=values.full_evacuation,
        ignore_non_redundant=values.ignore_non_redundant,
    )
    if values.output != "json":
        _print_graph(values, cluster, chosen)
    steps = reboots.plan(cluster, chosen, options)
    if values.one_step_only:
        del steps[1:]
    if values.save is not None:
        prog.save(f"{values.save}.original", cluster, "before hroller run")
    if values.output == "json":
        prog.out(json.dumps({"steps": [_as_dict(cluster, one) for one in steps]}))
        return 0
    if not values.no_headers:
        title = "First Reboot Group" if values.one_step_only else "Node Reboot Groups"
        prog.out(f"'{title}'")
    for part in steps:
        names = [node.name for node in part.nodes]
        prog.out("\n".join(names) if values.one_step_only else ",".join(names))
        if values.print_moves:
            for one in part.moved:
                prog.out(f"  {one.name} {' '.join(_nodes(cluster, one))}")
    return 0


def _print_graph(values: Values, cluster: Cluster, chosen: Sequence[Node]) -> None:
    """Print the graph and how many groups each way to colour it finds, when the user wants to know.

    The graph has all nodes from the first to the last chosen one, and for each node its neighbours.
    """
    if values.verbose < 2:
        return
    found = reboots.graph(cluster, chosen, offline=values.offline_maintenance)
    edges = {index: found.get(index, []) for index in range(min(found), max(found) + 1)}
    if values.verbose > 2:
        rows = (
            f"({index},[{','.join(str(one) for one in reversed(others))}])"
            for index, others in edges.items()
        )
        prog.out(f"Node Graph: array ({min(edges)},{max(edges)}) [{','.join(rows)}]")
    ways = sorted(reboots.colourings(edges).items(), key=lambda way: (len(way[1]), way[0]))
    text, before = "", 0
    for name, groups in ways:
        if text:
            text += " TIE " if len(groups) == before else " LOOSE "  # glossary: allow
        text += f"{name}: {len(groups)} ({','.join(str(len(one)) for one in groups)})"
        before = len(groups)
    prog.out(text)


def _check_master(values: Values, cluster: Cluster) -> None:
    masters = [node.name for node in cluster.nodes if node.master]
    if len(masters) > 1:
        raise prog.Failure(f"Found more than one master node: {formats.texts(masters)}")
    if not masters:
        text = "No master node found (maybe not supported by backend)."
        if not values.force:
            raise prog.Failure(text)
        prog.err(f"Warning: {text}")


def _chosen(values: Values, cluster: Cluster) -> list[Node]:
    group = None
    if values.group is not None:
        group = cluster.find_group(values.group)
        if group is None:
            raise prog.Failure(f"Cannot find target group '{values.group}'")
    tags = None if values.node_tags is None else set(values.node_tags)
    return [
        node
        for node in cluster.nodes
        if not node.offline
        and (group is None or node.group == group.index)
        and (tags is None or not tags.isdisjoint(node.tags))
        and not (values.skip_non_redundant and _has_non_redundant(cluster, node))
    ]


def _has_non_redundant(cluster: Cluster, node: Node) -> bool:
    return any(cluster.instances[index].secondary == NO_NODE for index in node.real.primaries)


def _nodes(cluster: Cluster, instance: Instance) -> list[str]:
    return [cluster.nodes[index].name for index in instance.nodes]


def _as_dict(cluster: Cluster, part: reboots.Step) -> dict[str, Any]:
    return {
        "nodes": [node.name for node in part.nodes],
        "moves": [{"instance": one.name, "to": _nodes(cluster, one)} for one in part.moved],
    }


PROGRAM = prog.Program("hroller", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
