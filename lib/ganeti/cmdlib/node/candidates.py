"""Master candidates: the nodes which keep copies of the configuration and the job queue.

A node becomes one by its flag *and* by its certificate being listed; the list is what other nodes
check when somebody calls them. The functions here keep both together.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.objects import updated
from ganeti.wire.calls import NODE_CRYPTO_TOKENS

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import ConfigData, Node

SSL = "ssl"
GET = "get"


def eligible(node: Node) -> bool:
    """May this node be a master candidate?"""
    return node.master_capable and not node.offline and not node.drained


def wanted_count(data: ConfigData, without: Collection[str] = ()) -> int:
    """How many candidates there should be, when the nodes ``without`` do not count."""
    possible = sum(1 for n in data.nodes.values() if eligible(n) and n.uuid not in without)
    return min(possible, data.cluster.candidate_pool_size)


def present_count(data: ConfigData, without: Collection[str] = ()) -> int:
    """How many there are."""
    return sum(
        1
        for n in data.nodes.values()
        if eligible(n) and n.master_candidate and n.uuid not in without
    )


def certificate_digest(unit: LogicalUnit, node: Node) -> str:
    """Ask a configured node for the digest of its client certificate.

    :raises errors.OpExecError: it did not tell.
    """
    answer = unit.rpc.call(NODE_CRYPTO_TOKENS, node.uuid, requests=[[SSL, GET, None]])
    return digest_of(node.name, answer.payload())


def digest_of(node_name: str, tokens: list[list[str]]) -> str:
    """Pick the certificate's digest out of an answer to ``node_crypto_tokens``."""
    for kind, token in tokens:
        if kind == SSL:
            return token
    raise errors.OpExecError(f"node {node_name} did not tell the digest of its certificate")


def promote(unit: LogicalUnit, node: Node) -> None:
    """Make a configured node a master candidate."""
    digest = certificate_digest(unit, node)
    unit.config.set_candidate_cert(node.uuid, digest)
    if not node.master_candidate:
        unit.config.update_node(updated(node, master_candidate=True))


def fill_pool(unit: LogicalUnit, without: Collection[str] = ()) -> None:
    """Promote nodes until there are as many candidates as there should be.

    A node which does not answer is skipped with a warning.
    """
    for node in unit.config.nodes():
        data = unit.config.snapshot()
        if present_count(data, without) >= wanted_count(data, without):
            return
        if node.uuid in without or node.master_candidate or not eligible(node):
            continue
        try:
            promote(unit, node)
        except (errors.RpcError, errors.OpExecError) as err:
            unit.warn(f"node {node.name} could not become a master candidate: {err}")
            continue
        unit.info(f"node {node.name} is now a master candidate")
