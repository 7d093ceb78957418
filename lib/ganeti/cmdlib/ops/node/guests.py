"""The guests of a node which becomes offline, or comes back.

While a node is marked offline, the cluster believes that it is off, and may start its instances on
other nodes. So a node which runs instances is not marked without force, and a node which comes back
has no guest that the configuration places on another node: such a guest runs a second time, or
would do so at the next start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks.devices import shutdown_disks
from ganeti.objects import Instance, Node, fill
from ganeti.wire.calls import ALL_INSTANCES_INFO, INSTANCE_SHUTDOWN

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.rpc import RpcRunner


def running_on(config: Config, rpc: RpcRunner, node: Node) -> list[str]:
    """Return the names of the instances whose guests run on a node, also when it is marked offline.

    :raises errors.RpcError: it does not tell.
    """
    cluster = config.cluster()
    hypervisors = list(fill.group_hypervisors(cluster, config.group(node.group)))
    found: dict[str, dict[str, Any]] = rpc.call_addresses(
        ALL_INSTANCES_INFO,
        {node.name: node.primary_ip},
        hypervisors=hypervisors,
        hvparams={name: fill.fill_hv(cluster, name) for name in hypervisors},
        apart=False,
    )[node.name].payload()
    return sorted(name for name, info in found.items() if prereq.is_running(info))


def _known(config: Config) -> dict[str, Instance]:
    return {instance.name: instance for instance in config.instances()}


def require_none(ctx: Context, node: Node, *, force: bool) -> None:
    """Check before a node is marked offline that it runs no instance.

    A node which does not answer is what the mark is for.

    :param force: only warn.
    :raises errors.OpPrereqError: it runs instances.
    """
    try:
        known = _known(ctx.config)
        running = [name for name in running_on(ctx.config, ctx.rpc, node) if name in known]
    except errors.RpcError as err:
        ctx.log.info(f"node {node.name} does not tell which instances it runs: {why(err)}")
        return
    if not running:
        return
    text = (
        f"node {node.name} answers, and instances run there: {', '.join(running)}. When they are"
        " failed over, each of them runs twice, and the writes of one of its guests are lost"
    )
    if force:
        ctx.log.warn(text, hint="Switch the machine off before you fail them over.")
        return
    raise errors.OpPrereqError(
        f"{text}. Move them away with 'gnt-node migrate {node.name}', or switch the machine off."
        " With --force the node is marked nevertheless.",
        errors.ECODE_STATE,
    )


def require_none_misplaced(ctx: Context, node: Node) -> None:
    """Check that a node which is added again has no guests of other nodes.

    :raises errors.OpPrereqError: it has, or it does not tell.
    """
    misplaced(ctx, node, force=False, way="stop them there, and repeat the command")


def misplaced(ctx: Context, node: Node, *, force: bool, way: str = "") -> list[Instance]:
    """Find the guests on a returning node which the configuration places on other nodes.

    :param force: the caller stops them (:func:`stop`); and a node which does not tell its guests
        causes a warning.
    :param way: how the user stops them, for errors; the default is the command with ``force``.
    :returns: their instances; empty unless ``force``.
    :raises errors.OpPrereqError: there are such guests, or the node does not tell.
    """
    try:
        names = running_on(ctx.config, ctx.rpc, node)
    except errors.RpcError as err:
        text = f"node {node.name} does not tell which instances it runs: {why(err)}"
        if not force:
            raise errors.OpPrereqError(
                f"{text}. It may run instances which now belong to other nodes.",
                errors.ECODE_ENVIRON,
            ) from err
        ctx.log.warn(text)
        return []
    known = _known(ctx.config)
    foreign = [name for name in names if name not in known]
    if foreign:
        ctx.log.warn(
            f"node {node.name} runs instances which are not in the configuration:"
            f" {', '.join(foreign)}",
            hint="Stop them on that node by hand.",
        )
    found = [
        known[name] for name in names if name in known and known[name].primary_node != node.uuid
    ]
    if found and not force:
        placed = ", ".join(
            f"{instance.name} (belongs to node {ctx.config.node(instance.primary_node).name})"
            for instance in found
        )
        way = way or (
            f"stop them with 'gnt-node modify --offline=no --force {node.name}'. What they wrote on"
            " that node since they were failed over is lost"
        )
        raise errors.OpPrereqError(
            f"node {node.name} still runs instances which belong to other nodes now: {placed}. They"
            f" run twice, or will at their next start. Restart the machine, or {way}.",
            errors.ECODE_STATE,
        )
    return found


def stop(
    rpc: RpcRunner,
    log: JobLog,
    node: Node,
    instances: list[Instance],
    reason: Sequence[Any] | None,
) -> None:
    """Stop guests on a node which is still marked offline, at once: what they write is not kept.

    :param reason: the trail of reasons of the opcode.
    :raises errors.OpExecError: one of them may still run.
    """
    for instance in instances:
        log.feedback(f"* stopping the guest of {instance.name} on {node.name}")
        answer = rpc.call_many(
            INSTANCE_SHUTDOWN,
            [node.uuid],
            even_offline=True,
            instance=instance,
            timeout_s=0,
            reason=list(reason or []),
        )[node.uuid]
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not stop the guest of instance {instance.name} on node {node.name}:"
                f" {why(answer.failure)}. The node stays offline."
            ) from answer.failure


def release_disks(ctx: Context, node: Node, instances: list[Instance]) -> None:
    """Deactivate the disks of stopped guests on a node which is online again; failures are
    warnings."""
    for instance in instances:
        try:
            shutdown_disks(ctx.config, ctx.rpc, instance, node.uuid)
        except errors.OpExecError as err:
            ctx.log.warn(str(err), hint=f"Deactivate them on node {node.name} by hand.")
    mirrored = [one.name for one in instances if node.uuid in ctx.config.instance_nodes(one)]
    if mirrored:
        ctx.log.info(
            f"the replicas on node {node.name} of the disks of {', '.join(mirrored)} are inactive."
            " 'gnt-cluster verify-disks' activates them; where both sides were written to, make the"
            " replicas again with 'gnt-instance replace-disks --on-secondary'"
        )
