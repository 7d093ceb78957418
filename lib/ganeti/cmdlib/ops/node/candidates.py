"""Master candidates: the nodes which keep copies of the configuration and the job queue.

A node becomes one by its flag *and* by its certificate being listed; the list is what other nodes
check when somebody calls them. The functions here keep both together.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.objects import updated
from ganeti.wire.calls import NODE_CRYPTO_TOKENS, NODE_DEMOTE_FROM_MC

if TYPE_CHECKING:
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


def certificate_digest(unit: AnyUnit, node: Node) -> str:
    """Ask a node for the digest of its client certificate; it need not be configured or online yet.

    :raises errors.RpcError: it did not answer.
    """
    answer = unit.rpc.call_addresses(
        NODE_CRYPTO_TOKENS, {node.name: node.primary_ip}, requests=[[SSL, GET, None]]
    )[node.name]
    for kind, token in answer.payload():
        if kind == SSL:
            return str(token)
    raise errors.NodeCallFailed(
        node.name, NODE_CRYPTO_TOKENS.name, "does not tell the digest of its certificate"
    )


def promote(unit: AnyUnit, node: Node) -> None:
    """Make a configured node a master candidate."""
    digest = certificate_digest(unit, node)
    with unit.config.transaction() as change:
        change.update_node(updated(node, master_candidate=True))
        change.set_candidate_cert(node.uuid, digest)


def fill_pool(unit: AnyUnit, without: Collection[str] = ()) -> None:
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
        except errors.RpcError as err:
            unit.warn(f"node {node.name} could not become a master candidate: {err}")
            continue
        unit.info(f"node {node.name} is now a master candidate")


def give_up(unit: AnyUnit, node: Node) -> None:
    """Tell a node that it is no master candidate any more; the configuration says so already.

    A node which cannot be told keeps old copies, which is a warning and does no harm.
    """
    if node.offline:
        return
    answer = unit.rpc.call(NODE_DEMOTE_FROM_MC, node.uuid)
    if answer.failure is not None:
        unit.warn(f"node {node.name} keeps copies of configuration and jobs: {why(answer.failure)}")


def demote(unit: AnyUnit, node: Node) -> None:
    """Make a master candidate an ordinary node."""
    with unit.config.transaction() as change:
        change.update_node(updated(node, master_candidate=False))
    give_up(unit, node)


def keep_pool_size(unit: AnyUnit) -> None:
    """Promote or demote nodes until there are as many candidates as there should be.

    For a changed ``candidate_pool_size``. The master stays; of the others the last ones by name go.
    All nodes must be locked.
    """
    before = unit.config.master_candidates()
    fill_pool(unit)
    _shrink_pool(unit)
    if unit.config.master_candidates() != before:
        ssh_keys.distribute(unit)


def _shrink_pool(unit: AnyUnit) -> None:
    for node in reversed(unit.config.nodes()):
        data = unit.config.snapshot()
        if present_count(data) <= data.cluster.candidate_pool_size:
            return
        if node.uuid != data.cluster.master_node and node.master_candidate and eligible(node):
            demote(unit, node)
            unit.info(f"node {node.name} is no master candidate any more")
