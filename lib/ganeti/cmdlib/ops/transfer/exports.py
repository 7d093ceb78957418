"""Finding the nodes which have an export of an instance, and removing unfinished ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.cmdlib.base import Context, why
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.rpc import RpcRunner


def nodes_with_export(config: Config, rpc: RpcRunner, name: str) -> tuple[list[str], list[str]]:
    """Find the nodes which have an export; nodes which are marked offline are not asked.

    :param name: name of the export, which is the name of its instance.
    :returns: UUIDs of the nodes which have it, and names of the nodes which did not answer.
    """
    nodes = [node.uuid for node in config.nodes() if not node.offline]
    answers = rpc.call_many(calls.EXPORT_LIST, nodes)
    having = [
        uuid for uuid, answer in answers.items() if answer.failure is None and name in answer.data
    ]
    unresponsive = [answer.node_name for answer in answers.values() if answer.failure is not None]
    return having, unresponsive


def remove_unfinished(ctx: Context, name: str) -> None:
    """Remove what interrupted exports have left, from all nodes which are not marked offline.

    A node which does not answer is asked again by the next export.

    :param name: name of the export, which is the name of its instance.
    """
    nodes = [node.uuid for node in ctx.config.nodes() if not node.offline]
    answers = ctx.rpc.call_many(calls.EXPORT_REMOVE, nodes, export=f"{name}{calls.UNFINISHED}")
    for answer in answers.values():
        if answer.failure is not None:
            ctx.log.warn(
                f"what an interrupted export of {name} may have left on node {answer.node_name}"
                f" could not be removed: {why(answer.failure)}"
            )
