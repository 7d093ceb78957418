"""The two replicas of an instance's DRBD disks: their state, their roles, their connection.

Migration, failover and disk replacement call these functions.

Normally one replica is writable (*single-primary*). During a live migration both must be
(*dual-primary*): :func:`make_dual_primary` and :func:`make_single_primary` change that. For the
change the replicas are disconnected and connected again; DRBD then copies the data written in
between.

A replica which missed writes does not know that it did. So before its peer is given up,
:func:`require_good_replica` checks that the two are connected and in sync. When the other node is
dead, only the record in the configuration can tell (:mod:`.replicas`); if it does not tell, the
administrator has to accept the possible loss by an option.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks import replicas, suspended_io
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.disks.devices import (
    assemble_disks,
    connect_replicas,
    open_primary,
    shutdown_disks,
)
from ganeti.constants.disk import LDS_OKAY, LDS_UNKNOWN
from ganeti.wire.calls import (
    BLOCKDEV_CLOSE,
    BLOCKDEV_FIND_MULTI,
    BLOCKDEV_OPEN,
    DRBD_ATTACH_NET,
    DRBD_DISCONNECT_NET,
    DRBD_WAIT_SYNC,
)

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import Result, RpcRunner

POLL_S = 2.0


def mirrored_disks(config: Config, instance: Instance) -> tuple[Disk, ...]:
    """Return the disks of an instance which have a second replica on another node."""
    return tuple(disk for disk in config.instance_disks(instance) if disk.has_replicas)


def _states(
    config: Config, rpc: RpcRunner, instance: Instance, node: Node
) -> list[tuple[Disk, Result]]:
    """Ask a node for the states of its replicas of the mirrored disks of an instance."""
    disks = mirrored_disks(config, instance)
    answers = call_for_disks(rpc, BLOCKDEV_FIND_MULTI, {node.uuid: disks}, instance)
    return list(zip(disks, answers[node.uuid], strict=True))


def require_good_replica(
    ctx: Context,
    instance: Instance,
    target: Node,
    *,
    alone: bool,
    ignore: bool,
    changed: str = "Nothing was changed.",
) -> bool:
    """Check that the replicas on the target node have all writes which were ever confirmed.

    A replica which is connected to its peer and in sync has them. When the other node cannot be
    asked, only the record in the configuration can tell (:func:`~.replicas.is_latest`).

    :param alone: the other node is known to be dead, so the replicas cannot be compared.
    :param ignore: a replica which may have missed writes is only a warning, which says what is
        lost. A replica without a complete copy of the data is refused nevertheless.
    :param changed: a sentence for errors, which says what the operation has changed so far.
    :returns: whether all replicas are good; False when a possible loss was accepted.
    :raises errors.OpExecError: a replica is bad, or the target did not report its state.
    """
    all_good = True
    for disk, answer in _states(ctx.config, ctx.rpc, instance, target):
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {target.name} did not report the state of {disk.iv_name} of instance"
                f" {instance.name}: {why(answer.failure)}"
            ) from answer.failure
        status = answer.data
        here = f"{disk.iv_name} of instance {instance.name} on node {target.name}"
        if status is None:
            raise errors.OpExecError(f"{here} is not active. {changed}")
        if status.ldisk_status not in (LDS_OKAY, LDS_UNKNOWN):
            raise errors.OpExecError(f"{here} has no complete copy of the data. {changed}")
        if not status.is_degraded or (alone and replicas.is_latest(disk, target.uuid)):
            continue
        if status.ldisk_status == LDS_OKAY and status.sync_percent is not None:
            # The other replica is being synchronised from this one, which has all data.
            continue
        loss = replicas.possible_loss(ctx.config, disk, target)
        if not ignore:
            raise errors.OpExecError(
                f"{here} is not connected to its peer, and may have missed writes: {loss}."
                f" {changed} The option --ignore-consistency, where the command has it, accepts"
                " this loss."
            )
        ctx.log.warn(loss)
        all_good = False
    return all_good


def ensure_good_replica(
    ctx: Context, instance: Instance, target: Node, *, alone: bool, ignore: bool
) -> bool:
    """Check the replicas on the target node; when they are bad, activate the disks and check again.

    An interrupted operation may have left a replica inactive or not connected. Activating the disks
    connects them again. Parameters, result and errors are those of :func:`require_good_replica`.
    """
    if not alone:
        try:
            return require_good_replica(ctx, instance, target, alone=False, ignore=False)
        except errors.OpExecError as err:
            ctx.log.info(f"{err} Activating the disks")
        try:
            connect_replicas(ctx, instance, node_uuid=target.uuid)
            assemble_disks(ctx, instance)
            disks = mirrored_disks(ctx.config, instance)
            wait_in_sync(ctx.rpc, ctx.log, instance, disks, [target.uuid])
        except (errors.OpExecError, errors.RpcError) as err:
            ctx.log.warn(str(err))
    return require_good_replica(ctx, instance, target, alone=alone, ignore=ignore)


def require_good_primary(ctx: Context, instance: Instance) -> None:
    """Check that the replicas on the primary node are complete, and have all confirmed writes.

    The disks are active. A replica which is primary in the sense of DRBD was promoted only after it
    was known to have all data, and has received every write since then. A replica which is not, for
    example after a restart of the node, is promoted here under the same condition.

    :raises errors.OpExecError: a replica lost its storage, or may have missed writes.
    """
    open_primary(ctx, instance, mirrored_disks(ctx.config, instance))
    primary = ctx.config.node(instance.primary_node)
    for disk, answer in _states(ctx.config, ctx.rpc, instance, primary):
        status = answer.payload()
        if status is None or status.ldisk_status != LDS_OKAY:
            raise errors.OpExecError(
                f"{disk.iv_name} of instance {instance.name} on its primary node {primary.name} has"
                " no complete copy of the data. Nothing was changed."
            )


def compare_inactive(
    ctx: Context, instance: Instance, target: Node, *, alone: bool, ignore: bool
) -> bool:
    """Check that the replicas of inactive disks on the target node have all confirmed writes.

    Both replicas are activated for that, and none of them becomes writable; the caller deactivates
    them. When they connect, the one with less data is synchronised from the other one first.

    :param alone: the other node is known to be dead, so only the target is activated.
    :param ignore: as for :func:`require_good_replica`; likewise the result.
    :raises errors.OpExecError: a replica is bad, or it is not known.
    """
    if alone:
        connect_replicas(ctx, instance, node_uuid=target.uuid)
    else:
        try:
            connect_replicas(ctx, instance)
            wait_in_sync(
                ctx.rpc, ctx.log, instance, mirrored_disks(ctx.config, instance), [target.uuid]
            )
        except (errors.OpExecError, errors.RpcError) as err:
            if not ignore:
                raise errors.OpExecError(
                    f"the replicas of the disks of instance {instance.name} cannot be compared:"
                    f" {err}. Nothing was changed."
                ) from err
            ctx.log.warn(str(err))
            connect_replicas(ctx, instance, node_uuid=target.uuid)
    return require_good_replica(ctx, instance, target, alone=alone, ignore=ignore)


def change_primary(ctx: Context, instance: Instance, target: Node, *, ignore: bool) -> None:
    """Make another node the primary node of a stopped instance, after comparing the replicas.

    :param ignore: as for :func:`require_good_replica`.
    :raises errors.OpExecError: the replicas on the target may have missed writes.
    """
    disks = mirrored_disks(ctx.config, instance)
    source = ctx.config.node(instance.primary_node)
    good = True
    if disks:
        try:
            good = compare_inactive(ctx, instance, target, alone=source.offline, ignore=ignore)
        finally:
            shutdown_disks(ctx.config, ctx.rpc, instance, target.uuid if source.offline else None)
    with ctx.config.transaction() as change:
        change.instances.set_primary(instance.uuid, target.uuid)
        replicas.record_new_primary(change, disks, source, good=good)


def require_own_storage(config: Config, rpc: RpcRunner, instance: Instance, source: Node) -> None:
    """Check that the replicas on the source node have their storage.

    A replica without storage reads from its peer. The replicas are disconnected for a moment when
    they become dual-primary, so such a disk would fail.

    :raises errors.OpExecError: a replica has lost its storage, or the source did not report it.
    """
    for disk, answer in _states(config, rpc, instance, source):
        status = answer.payload()
        if status is not None and status.ldisk_status == LDS_OKAY:
            continue
        here = f"{disk.iv_name} of instance {instance.name}"
        if status is not None and status.sync_percent is not None:
            raise errors.OpExecError(
                f"{here} is being synchronised on node {source.name}, so the instance cannot be"
                " migrated yet. Nothing was changed. Wait for the end of the synchronisation, or"
                " fail the instance over."
            )
        raise errors.OpExecError(
            f"{here} has lost its storage on node {source.name}, so the instance cannot be"
            " migrated. Nothing was changed. Fail it over, or replace the disk first."
        )


def make_dual_primary(
    ctx: Context, instance: Instance, target: Node, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Make the mirrored disks of an instance dual-primary, so that the target may write, too.

    :param target: the secondary node, whose replicas are opened.
    :raises errors.OpExecError: the replicas cannot be disconnected or connected, or are not in
        sync.
    """
    disks = mirrored_disks(ctx.config, instance)
    if not disks:
        return
    _close(ctx.rpc, instance, disks, target)
    _reconnect(ctx, instance, disks, dual_primary=True, sleep=sleep)
    ctx.rpc.call(
        BLOCKDEV_OPEN,
        target.uuid,
        instance_name=instance.name,
        disks=(disks, instance),
        exclusive=False,
    ).payload()


def make_single_primary(
    ctx: Context, instance: Instance, other: Node, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Make the mirrored disks of an instance single-primary again.

    :param other: the node which may not write any more.
    :raises errors.OpExecError: the replicas cannot be disconnected or connected, or are not in
        sync.
    """
    disks = mirrored_disks(ctx.config, instance)
    if disks:
        _close(ctx.rpc, instance, disks, other)
        _reconnect(ctx, instance, disks, dual_primary=False, sleep=sleep)
        suspended_io.protect(ctx.config, ctx.rpc, ctx.config.instance(instance.uuid), disks)


def _close(rpc: RpcRunner, instance: Instance, disks: Sequence[Disk], node: Node) -> None:
    rpc.call(
        BLOCKDEV_CLOSE, node.uuid, instance_name=instance.name, disks=(disks, instance)
    ).payload()


def _reconnect(
    ctx: Context,
    instance: Instance,
    disks: Sequence[Disk],
    *,
    dual_primary: bool,
    sleep: Callable[[float], None],
) -> None:
    nodes = list(dict.fromkeys(uuid for disk in disks for uuid in disk.all_node_uuids()))
    which = (disks, instance)
    suspended_io.unprotect(ctx.config, ctx.rpc, ctx.config.instance(instance.uuid), disks)
    answers = ctx.rpc.call_many(DRBD_DISCONNECT_NET, nodes, disks=which)
    _require_all(instance, answers, "disconnected")
    answers = ctx.rpc.call_many(DRBD_ATTACH_NET, nodes, disks=which, multimaster=dual_primary)
    _require_all(instance, answers, "connected")
    wait_in_sync(ctx.rpc, ctx.log, instance, disks, nodes, sleep)


def _require_all(instance: Instance, answers: Mapping[str, Result], what: str) -> None:
    for answer in answers.values():
        if answer.failure is not None:
            raise errors.OpExecError(
                f"the replicas of the disks of instance {instance.name} cannot be {what} on node"
                f" {answer.node_name}: {why(answer.failure)}"
            ) from answer.failure


def wait_in_sync(
    rpc: RpcRunner,
    log: JobLog,
    instance: Instance,
    disks: Sequence[Disk],
    nodes: Sequence[str],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until all replicas on these nodes are connected to their peers and in sync.

    :raises errors.OpExecError: a replica cannot connect to its peer.
    """
    reported = 100.0
    while True:
        answers = rpc.call_many(DRBD_WAIT_SYNC, nodes, disks=(disks, instance))
        lowest, done = 100.0, True
        for answer in answers.values():
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"disks of instance {instance.name} on node {answer.node_name} are not in sync:"
                    f" {why(answer.failure)}"
                ) from answer.failure
            in_sync, percent = answer.data
            done, lowest = done and bool(in_sync), min(lowest, float(percent))
        if done:
            return
        if lowest != reported:
            # A replica without connection cannot compare itself with its peer.
            log.feedback(
                f"* disks of instance {instance.name} are {lowest:.1f} % in sync"
                if lowest
                else f"* waiting for the disks of instance {instance.name} to connect to their"
                " peers"
            )
            reported = lowest
        sleep(POLL_S)
