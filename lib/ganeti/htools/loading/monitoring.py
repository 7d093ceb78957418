"""The load of processors, as the monitoring daemons of the nodes report it.

Two of their collectors are understood: ``cpu-avg-load`` has the load of a whole node, which is
divided among its instances by their virtual CPUs; ``xen-cpu-avg-load`` has the load of each
instance. Data which is not complete is not used: a node without a load would seem to be idle.

Source: monitoring daemon, ``/1/report/all``; manual page hbal(1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.htools.cluster import Cluster
from ganeti.htools.node import Node
from ganeti.wire import json

CPU = "cpu-avg-load"
XEN_CPU = "xen-cpu-avg-load"

#: Name of a node -> its reports, each an object with at least ``name`` and ``data``.
Reports = Mapping[str, Sequence[Mapping[str, Any]]]


def collector(*, xen: bool) -> str:
    """Return the name of the collector whose data is used."""
    return XEN_CPU if xen else CPU


def parse(text: str) -> dict[str, list[dict[str, Any]]]:
    """Read a file with reports: a list of objects with ``node`` and ``reports``.

    :raises ParseError: the text has another form.
    """
    data = json.loads(text)
    if not isinstance(data, list):
        raise errors.ParseError("a list of nodes with their reports is expected")
    found: dict[str, list[dict[str, Any]]] = {}
    for one in data:
        name = one.get("node") if isinstance(one, dict) else None
        if not isinstance(name, str):
            raise errors.ParseError(f"an object with the key 'node' is expected, not {one!r:.100}")
        if "reports" not in one:
            raise errors.ParseError(f"node {name}: key 'reports' not found")
        found[name] = check_reports(name, one["reports"])
    return found


def check_reports(node: str, data: Any) -> list[dict[str, Any]]:
    """Check that a value is a list of reports.

    :raises ParseError: it is not.
    """
    if not isinstance(data, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in data
    ):
        raise errors.ParseError(f"node {node}: its reports are not a list of objects with a 'name'")
    return data


def apply(cluster: Cluster, reports: Reports, *, xen: bool = False) -> list[str]:
    """Replace the processor load of a prepared cluster by what nodes report.

    Only nodes which are online must have reported.

    :param xen: use the load of each instance, and not that of the nodes.
    :returns: what is missing, one text for each; then nothing was changed.
    """
    wanted = collector(xen=xen)
    nodes = [node for node in cluster.nodes if not node.offline]
    data = {
        node.index: one.get("data")
        for node in nodes
        for one in reports.get(node.name, ())
        if one["name"] == wanted
    }
    missing = [f"node {node.name}" for node in nodes if node.index not in data]
    loads: dict[int, float] = {}
    totals: dict[int, float] = {}
    for node in nodes:
        if node.index not in data:
            continue
        if xen:
            _guest_loads(cluster, node, data[node.index], loads, missing)
            totals[node.index] = sum(loads.get(index, 0.0) for index in node.real.primaries)
            continue
        total = _number(data[node.index], "cpu_total")
        if total is None:
            missing.append(f"node {node.name}")
            continue
        totals[node.index] = total
        for index in node.real.primaries:
            loads[index] = total * cluster.instances[index].vcpus / max(1, node.real.vcpus)
    if missing:
        return missing
    for index, load in loads.items():
        instance = cluster.instances[index]
        instance.load = instance.load._replace(cpu=load)
    for index, total in totals.items():
        node = cluster.nodes[index]
        node.load = node.load._replace(cpu=total)
    return []


def _guest_loads(
    cluster: Cluster, node: Node, data: Any, loads: dict[int, float], missing: list[str]
) -> None:
    for index in node.real.primaries:
        name = cluster.instances[index].name
        load = _number(data, name)
        if load is None:
            missing.append(f"instance {name}")
        else:
            loads[index] = load


def _number(data: Any, key: str) -> float | None:
    value = data.get(key) if isinstance(data, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
