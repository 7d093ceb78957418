"""What OS definitions the nodes have, and whether they agree.

:func:`collect` is also what the query for operating systems reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.opcodes.os import OpOsDiagnose
from ganeti.utils.text import natural_key
from ganeti.wire.calls import OS_DIAGNOSE

if TYPE_CHECKING:
    from ganeti.objects import Cluster
    from ganeti.rpc import Result


@dataclass(frozen=True, slots=True)
class NodeOs:
    """One definition as one node found it; a node may find several of a name in its search path."""

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
    """One definition on the whole cluster.

    ``valid`` when every node that was asked has it, in the same version, and its first one is
    valid; variants, parameters, interface versions and hypervisors are those which all nodes share.
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
    """Read one row of the answer to ``os_diagnose``."""
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

    :param answers: node uuid to the result of ``os_diagnose``.
    :returns: sorted by name.
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
    """Members of all lists, in the order of the first."""
    first, *others = lists
    return [item for item in first if all(item in other for other in others)]


@executes(OpOsDiagnose)
class LUOsDiagnose(LogicalUnit):
    """Ask the nodes for their OS definitions; answers rows of the wanted fields."""

    op: OpOsDiagnose

    def check_prereq(self) -> None:
        unknown = sorted(set(self.op.output_fields) - set(_FIELDS))
        if unknown:
            raise errors.OpPrereqError(
                f"unknown fields of an operating system: {', '.join(unknown)}", errors.ECODE_INVAL
            )

    def exec(self, plan: Any) -> list[list[Any]]:
        nodes = [node.uuid for node in self.config.vm_capable_nodes() if not node.offline]
        answers = self.rpc.call_many(OS_DIAGNOSE, nodes)
        for answer in answers.values():
            if answer.failure is not None:
                self.warn(
                    f"node {answer.node_name} does not tell its OS definitions:"
                    f" {why(answer.failure)}"
                )
        found = collect(self.config.cluster(), answers)
        wanted = set(self.op.names)
        # Without being asked for, only what can be used is shown.
        rows = []
        for summary in found:
            if wanted and summary.name not in wanted:
                continue
            usable = summary.valid and not summary.hidden and not summary.blacklisted
            if usable or wanted or set(self.op.output_fields) & _TELLING:
                rows.append([_FIELDS[name](summary) for name in self.op.output_fields])
        return rows


_FIELDS: dict[str, Any] = {
    "name": lambda s: s.name,
    "valid": lambda s: s.valid,
    "node_status": lambda s: s.node_status,
    "variants": lambda s: s.variants,
    "parameters": lambda s: [list(pair) for pair in s.parameters],
    "api_versions": lambda s: s.api_versions,
    "hidden": lambda s: s.hidden,
    "blacklisted": lambda s: s.blacklisted,
    "trusted": lambda s: s.trusted,
    "os_hvp": lambda s: s.os_hvp,
    "osparams": lambda s: s.osparams,
    "os_versions": lambda s: s.os_versions,
    "hypervisors": lambda s: s.hypervisors,
}
#: Fields which tell why a definition cannot be used: asking for one shows all definitions.
_TELLING = frozenset(("valid", "node_status", "hidden", "blacklisted"))
