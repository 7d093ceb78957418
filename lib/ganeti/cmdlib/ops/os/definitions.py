"""Merging the OS definitions of the nodes into one summary of the cluster.

Listing OS definitions, their query and cluster verification use this module. Source: manual page
**ganeti-os-interface**.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti.utils.text import natural_key

if TYPE_CHECKING:
    from ganeti.objects import Cluster
    from ganeti.rpc import Result


@dataclass(frozen=True, slots=True)
class NodeOs:
    """One OS definition of one node; a node may have several of one name in its search path."""

    path: str
    valid: bool
    message: str
    variants: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    api_versions: tuple[int, ...]
    trusted: bool
    os_version: str = ""
    hypervisors: tuple[str, ...] = ()


@dataclass(slots=True)
class OsSummary:
    """One OS definition in the whole cluster.

    Variants, parameters, API versions and hypervisors are those which all nodes have.

    :ivar valid: all nodes which answered have a valid one, in the same version.
    :ivar node_status: UUID of a node -> rows ``[path, valid, message, variants, parameters, API
        versions, trusted]``, with version and hypervisors if the node reported them.
    """

    name: str
    valid: bool
    hidden: bool
    blacklisted: bool
    variants: list[str]
    parameters: list[tuple[str, str]]
    api_versions: list[int]
    trusted: bool
    os_hvp: dict[str, Any] = field(default_factory=dict)
    osparams: dict[str, Any] = field(default_factory=dict)
    os_versions: list[str] = field(default_factory=list)
    hypervisors: list[str] = field(default_factory=list)
    node_status: dict[str, list[list[Any]]] = field(default_factory=dict)


def parse_row(row: list[Any]) -> tuple[str, NodeOs]:
    """Read one row of the answer to ``os_diagnose``.

    :returns: name of the OS, and the definition.
    """
    name, path, valid, message, variants, parameters, api_versions, trusted, *more = row
    os_version, hypervisors = more if len(more) == 2 else ("", ())
    return name, NodeOs(
        path,
        valid,
        message,
        tuple(variants or ()),
        tuple((key, doc) for key, doc in parameters or ()),
        tuple(api_versions or ()),
        trusted,
        os_version,
        tuple(hypervisors),
    )


def collect(cluster: Cluster, answers: Mapping[str, Result]) -> list[OsSummary]:
    """Merge the answers of nodes; nodes which did not answer are left out.

    :param answers: UUID of a node -> its answer to ``os_diagnose``.
    :returns: summaries, sorted by name.
    """
    by_name: dict[str, dict[str, list[NodeOs]]] = {}
    asked = [uuid for uuid, answer in answers.items() if answer.failure is None]
    for uuid in asked:
        for row in answers[uuid].data:
            name, found = parse_row(row)
            by_name.setdefault(name, {}).setdefault(uuid, []).append(found)
    return [
        _merge(cluster, name, by_name[name], asked) for name in sorted(by_name, key=natural_key)
    ]


def _merge(
    cluster: Cluster, name: str, per_node: Mapping[str, list[NodeOs]], asked: list[str]
) -> OsSummary:
    firsts = [per_node[uuid][0] for uuid in asked if uuid in per_node]
    everywhere = len(firsts) == len(asked)
    versions = sorted({first.os_version for first in firsts}, key=natural_key)
    summary = OsSummary(
        name=name,
        valid=everywhere and all(first.valid for first in firsts) and len(versions) == 1,
        hidden=name in cluster.hidden_os,
        blacklisted=name in cluster.blacklisted_os,
        variants=_shared([first.variants for first in firsts]),
        parameters=_shared([first.parameters for first in firsts]),
        api_versions=sorted(_shared([first.api_versions for first in firsts])),
        trusted=all(first.trusted for first in firsts),
        os_hvp=dict(cluster.os_hvp.get(name, {})),
        osparams=dict(cluster.osparams.get(name, {})),
        os_versions=versions,
        hypervisors=_shared([first.hypervisors for first in firsts]),
    )
    for uuid in asked:
        summary.node_status[uuid] = [
            [
                found.path,
                found.valid,
                found.message,
                list(found.variants),
                [list(pair) for pair in found.parameters],
                list(found.api_versions),
                found.trusted,
                *(
                    [found.os_version, list(found.hypervisors)]
                    if found.os_version or found.hypervisors
                    else ()
                ),
            ]
            for found in per_node.get(uuid, [])
        ]
    return summary


def _shared(lists: list[tuple[Any, ...]]) -> list[Any]:
    """Return the items which are in all lists, in the order of the first list."""
    first, *others = lists
    return [item for item in first if all(item in other for other in others)]
