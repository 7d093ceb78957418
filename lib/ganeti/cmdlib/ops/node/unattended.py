"""What may be done with the instances of a dead node when no administrator is there to decide.

Two things must be certain. The guest does not run any more: the node is fenced, which means that
its out-of-band helper reports the machine as switched off, or that its hardware watchdog must have
restarted it. And the disks have every confirmed
write: they are shared, or the record of the configuration shows that the replica on the secondary
node is the latest one (``doc/design-data-safety.rst``, rule A2).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import replicas
from ganeti.cmdlib.ops.liveness import oob
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants import node_watchdog as node_watchdog_c
from ganeti.objects import Instance, Node, WatchdogPromise, disk_templates, updated
from ganeti.rpc.results import is_gone
from ganeti.utils import clock
from ganeti.wire.calls import VERSION

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.rpc import RpcRunner

#: Whether a node which is left behind answers again; it usually does not, and that takes time.
_QUESTION = dataclasses.replace(VERSION, timeout_s=2)
#: Seconds which the helper has for each of its commands.
HELPER_TIMEOUT_S = 20


#: Seconds between two questions whether a node which is left behind answers again.
_ASK_S = 1.0


def fence(
    ctx: Context,
    node: Node,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Node:
    """Make certain that no guest runs on a machine: by its helper, or by its hardware watchdog.

    :returns: the node, with the record by which it is left behind.
    :raises errors.OpExecError: it is not certain.
    """
    program = oob.program_of(ctx.config, node)
    if program:
        try:
            _switch_off(ctx.config, ctx.rpc, node, program)
        except errors.OpExecError as err:
            if not node.restarts_itself():
                raise
            ctx.log.warn(f"node {node.name}: {err}; waiting for its watchdog instead")
        else:
            return node
    if not node.restarts_itself():
        known = "" if node.watchdog is None else node.watchdog.reason
        because = f" ({known})" if known else ""
        raise errors.OpExecError(
            "it has no out-of-band helper and no watchdog which restarts it"
            f"{because}, so that it is not known whether its guests still run. Set the node"
            " parameter oob_program, or use 'gnt-cluster modify --node-watchdog=yes'"
        )
    return _wait_for_watchdog(ctx, node, sleep, monotonic)


def _wait_for_watchdog(
    ctx: Context,
    node: Node,
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> Node:
    """Leave a node behind, and wait until its watchdog must have restarted it.

    :raises errors.OpExecError: the record cannot be stored, or the node answers again.
    """
    promise = node.watchdog
    assert promise is not None
    if promise.left_at is None:
        promise = dataclasses.replace(promise, left_at=clock.now())
    try:
        node = _record(ctx.config, node, promise)
        # The time runs from here: a majority of the candidates has the record.
        ctx.config.require_committed()
    except errors.ConfigurationError as err:
        raise errors.OpExecError(f"it cannot be recorded that it is left behind: {err}") from err
    begin = monotonic()
    end = begin + node_watchdog_c.certain_s(promise.timeout_s)
    ctx.log.info(
        f"node {node.name} gets no leave to feed its watchdog any more; it has restarted in"
        f" {end - begin:.0f} s"
    )
    while (left_s := end - monotonic()) > 0:
        sleep(min(_ASK_S, left_s))
        failure = ctx.rpc.call(_QUESTION, node.uuid).failure
        if not is_gone(failure):
            _record(ctx.config, node, dataclasses.replace(promise, left_at=None))
            raise errors.OpExecError("it answers again, so that it is not left behind")
    return node


def _record(config: Config, node: Node, promise: WatchdogPromise) -> Node:
    """Store a record; returns the node with it.

    :raises errors.OpExecError: another record has replaced the one of this node.
    """
    with config.transaction() as change:
        present = change.data.nodes[node.uuid]
        if present.watchdog != node.watchdog:
            raise errors.OpExecError("what it has promised has changed meanwhile")
        if present.watchdog != promise:
            change.nodes.update(updated(present, watchdog=promise))
    return config.node(node.uuid)


def _switch_off(config: Config, rpc: RpcRunner, node: Node, program: str) -> None:
    """Switch a machine off, and have its helper confirm that it is off.

    :raises errors.OpExecError: it is not certain that the machine is off.
    """
    try:
        if not _is_on(config, rpc, node, program):
            return
        oob.ask(config, rpc, node, program, oob.POWER_OFF, HELPER_TIMEOUT_S)
        if not _is_on(config, rpc, node, program):
            return
    except (errors.RpcError, errors.ParseError) as err:
        raise errors.OpExecError(f"its out-of-band helper failed: {why(err)}") from err
    raise errors.OpExecError("its out-of-band helper reports that the machine is still on")


def _is_on(config: Config, rpc: RpcRunner, node: Node, program: str) -> bool:
    answer = oob.ask(config, rpc, node, program, oob.POWER_STATUS, HELPER_TIMEOUT_S)
    return bool(answer[oob.POWERED])


def why_left(
    config: Config, instance: Instance, node: Node, complete: Collection[str]
) -> str | None:
    """Return why an instance of a fenced node is not started elsewhere; None if it is.

    :param complete: UUIDs of disks whose other replica has all confirmed writes, which the
        configuration does not say yet
        (:func:`ganeti.cmdlib.ops.disks.suspended_io.complete_without`).
    """
    template = config.disk_template(instance)
    if template in disk_templates.EXT_MIRRORED:
        others = placement.candidates(config.snapshot(), node.group) - {node.uuid}
        if config.cluster().default_iallocator or len(others) == 1:
            return None
        return (
            "the cluster has no default instance allocator which chooses a node for it. Set one"
            " with 'gnt-cluster modify --default-iallocator'"
        )
    if template not in disk_templates.INT_MIRRORED:
        return f"its disks ({template}) are on this node only"
    (other,) = (config.node(uuid) for uuid in config.secondary_nodes(instance))
    if other.offline:
        return f"its secondary node {other.name} is offline"
    doubtful = [
        disk
        for disk in config.instance_disks(instance)
        if not replicas.is_latest(disk, other.uuid) and disk.uuid not in complete
    ]
    if doubtful:
        return (
            f"it is not known whether the replicas on node {other.name} have all confirmed writes,"
            " because the mirror may have been interrupted before the node failed. Decide with"
            f" 'gnt-instance failover --ignore-consistency {instance.name}'"
        )
    return None
