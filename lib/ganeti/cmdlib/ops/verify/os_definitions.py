"""Verification of OS definitions: all nodes should have the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.os import definitions
from ganeti.constants import node_verify as nv

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import Node

Systems = dict[str, definitions.NodeOs]


def compare(
    findings: Findings, nodes: Sequence[Node], answers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check the OS definitions of each node, and compare them with those of the first node."""
    per_node: dict[str, Systems] = {}
    for node in nodes:
        if node.uuid not in answers or not node.vm_capable:
            continue
        rows = answers[node.uuid].get(nv.OSLIST)
        if isinstance(rows, list):
            per_node[node.name] = _of_node(findings, node.name, rows)
        else:
            findings.report("ENODEOS", node.name, "did not report its OS definitions")
    if not per_node:
        return
    base_name, base = next(iter(per_node.items()))
    for node_name, found in per_node.items():
        for name, definition in found.items():
            findings.check(
                not definition.valid,
                "ENODEOS",
                node_name,
                f"OS {name} is not valid: {definition.message}",
            )
        if node_name != base_name:
            _compare_with(findings, base_name, base, node_name, found)


def _of_node(findings: Findings, node_name: str, rows: Sequence[Any]) -> Systems:
    found: Systems = {}
    for row in rows:
        name, definition = definitions.parse_row(row)
        if name in found:
            findings.report(
                "ENODEOS",
                node_name,
                f"OS {name} was found twice; {definition.path} is not used",
                warning=True,
            )
            continue
        found[name] = definition
    return found


def _compare_with(
    findings: Findings, base_name: str, base: Systems, node_name: str, found: Systems
) -> None:
    for name in sorted(set(base) | set(found)):
        if name not in found:
            findings.report("ENODEOS", node_name, f"lacks OS {name}, which {base_name} has")
            continue
        if name not in base:
            findings.report("ENODEOS", node_name, f"has OS {name}, which {base_name} lacks")
            continue
        for what in ("api_versions", "variants", "parameters"):
            here, there = getattr(found[name], what), getattr(base[name], what)
            findings.check(
                set(here) != set(there),
                "ENODEOS",
                node_name,
                f"OS {name}: {what.replace('_', ' ')} differ from those on {base_name}",
            )
        here, there = found[name].os_version, base[name].os_version
        findings.check(
            here != there,
            "ENODEOS",
            node_name,
            f"OS {name} has version '{here}', on {base_name} it is '{there}'",
        )
