"""Promoting and demoting master candidates, which keep copies of configuration and job queue.

A node is a candidate when it has the flag *and* its certificate is in the list of candidate
certificates, with which nodes authenticate the callers of node calls. The functions here change
both together.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.objects import updated
from ganeti.wire.calls import NODE_CRYPTO_TOKENS, NODE_DEMOTE_FROM_MC

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Node
    from ganeti.rpc import RpcRunner

SSL = "ssl"
GET = "get"


def eligible(node: Node) -> bool:
    """Tell whether a node may be a master candidate."""
    return node.master_capable and not node.offline and not node.drained


def wanted_count(data: ConfigData, without: Collection[str] = ()) -> int:
    """Return the number of candidates which there should be.

    :param without: UUIDs of nodes which do not count.
    """
    possible = sum(1 for n in data.nodes.values() if eligible(n) and n.uuid not in without)
    return min(possible, data.cluster.candidate_pool_size)


def present_count(data: ConfigData, without: Collection[str] = ()) -> int:
    """Return the number of candidates which there are.

    :param without: UUIDs of nodes which do not count.
    """
    return sum(
        1
        for n in data.nodes.values()
        if eligible(n) and n.master_candidate and n.uuid not in without
    )


def certificate_digest(rpc: RpcRunner, node: Node) -> str:
    """Ask a node for the digest of its client certificate.

    The node need not be in the configuration or online yet.

    :raises errors.RpcError: the node did not answer.
    """
    answer = rpc.call_addresses(
        NODE_CRYPTO_TOKENS, {node.name: node.primary_ip}, requests=[[SSL, GET, None]]
    )[node.name]
    for kind, token in answer.payload():
        if kind == SSL:
            return str(token)
    raise errors.NodeCallFailed(
        node.name, NODE_CRYPTO_TOKENS.name, "the answer has no digest of the certificate"
    )


def promote(config: Config, rpc: RpcRunner, node: Node) -> None:
    """Make a node of the configuration a master candidate.

    :raises errors.RpcError: the node did not answer.
    """
    digest = certificate_digest(rpc, node)
    with config.transaction() as change:
        change.nodes.update(updated(node, master_candidate=True))
        change.cluster.set_candidate_cert(node.uuid, digest)


def fill_pool(ctx: Context, without: Collection[str] = ()) -> None:
    """Promote nodes until there are as many candidates as there should be.

    A node which does not answer is skipped with a warning.

    :param without: UUIDs of nodes which do not count and are not promoted.
    """
    for node in ctx.config.nodes():
        data = ctx.config.snapshot()
        if present_count(data, without) >= wanted_count(data, without):
            return
        if node.uuid in without or node.master_candidate or not eligible(node):
            continue
        try:
            promote(ctx.config, ctx.rpc, node)
        except errors.RpcError as err:
            ctx.log.warn(f"node {node.name} could not become a master candidate: {err}")
            continue
        ctx.log.info(f"node {node.name} is now a master candidate")


def give_up(rpc: RpcRunner, log: JobLog, *nodes: Node) -> None:
    """Let nodes which are not candidates remove their copies of configuration and jobs.

    The configuration has to be changed before. A failure is a warning: the node refuses to act on
    old copies, but they hold secrets. Nodes which are marked offline are not called.
    """
    online = {node.uuid: node.name for node in nodes if not node.offline}
    if not online:
        return
    for uuid, answer in rpc.call_many(NODE_DEMOTE_FROM_MC, list(online)).items():
        if answer.failure is not None:
            log.warn(
                f"node {online[uuid]} keeps old copies of configuration and jobs:"
                f" {why(answer.failure)}. 'gnt-cluster redist-conf' removes them."
            )


def demote(ctx: Context, node: Node) -> None:
    """Make a master candidate a regular node."""
    with ctx.config.transaction() as change:
        change.nodes.update(updated(node, master_candidate=False))
    give_up(ctx.rpc, ctx.log, node)


def keep_pool_size(ctx: Context) -> None:
    """Promote or demote nodes after a change of ``candidate_pool_size``.

    The master is never demoted; of the other candidates those with the last names are demoted. The
    caller holds the locks of all nodes.
    """
    before = ctx.config.master_candidates()
    fill_pool(ctx)
    _shrink_pool(ctx)
    if ctx.config.master_candidates() != before:
        ssh_keys.distribute(ctx)


def _shrink_pool(ctx: Context) -> None:
    for node in reversed(ctx.config.nodes()):
        data = ctx.config.snapshot()
        if present_count(data) <= data.cluster.candidate_pool_size:
            return
        if node.uuid != data.cluster.master_node and node.master_candidate and eligible(node):
            demote(ctx, node)
            ctx.log.info(f"node {node.name} is no longer a master candidate")
