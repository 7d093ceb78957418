"""Which nodes have an export of an instance."""

from __future__ import annotations

from ganeti.cmdlib.base import AnyUnit
from ganeti.wire.calls import backup as calls


def nodes_with_export(unit: AnyUnit, name: str) -> tuple[list[str], list[str]]:
    """Uuids of the nodes which have an export of this name, and names of those which do not say."""
    nodes = [node.uuid for node in unit.config.nodes() if not node.offline]
    answers = unit.rpc.call_many(calls.EXPORT_LIST, nodes)
    having = [
        uuid for uuid, answer in answers.items() if answer.failure is None and name in answer.data
    ]
    unresponsive = [answer.node_name for answer in answers.values() if answer.failure is not None]
    return having, unresponsive
