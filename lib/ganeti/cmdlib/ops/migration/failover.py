"""Fail an instance over: stop it on the source node, start it on the target node.

Before the configuration names the target, the replicas of mirrored disks on the target are known
to have all writes which were ever confirmed: they were connected and in sync when the instance
stopped.
When the source cannot be asked any more, only the record in the configuration can show that;
otherwise ``--ignore-consistency`` accepts that writes may be lost. From then on the replicas on the
source count as outdated.

The configuration names the target as soon as the instance is stopped on the source. If the master
dies then, the watcher starts the instance on the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks import mirror, replicas, suspended_io
from ganeti.cmdlib.ops.disks.devices import shutdown_disks
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.constants.disk import DRBD8
from ganeti.objects import fill
from ganeti.utils.undo import UndoStack

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Node
    from ganeti.rpc import RpcRunner


def fail_over(
    ctx: Context,
    plan: MigrationPlan,
    *,
    shutdown_timeout_s: int,
    reason: Sequence[Any] | None,
    ignore_consistency: bool,
) -> None:
    """Stop the instance on the source, make the target its primary node, and start it there if
    it is marked up.

    :param reason: the trail of reasons of the opcode.
    :raises errors.OpExecError: the text says on which node the instance is now.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    disks = mirror.mirrored_disks(ctx.config, instance)
    if source.offline:
        suspended_io.conclude(
            ctx.config, ctx.rpc, [(disk, instance) for disk in disks], source.uuid
        )
    with UndoStack(ctx.log.warn) as undo:
        if disks and not instance.disks_active:
            undo.add(
                f"active disks of {instance.name}",
                _deactivate_compared,
                ctx.config,
                ctx.rpc,
                plan,
            )
        good = not disks or _require_latest(ctx, plan, ignore_consistency)
        ctx.log.feedback(
            f"Failing instance {instance.name} over from {source.name} to {target.name}"
        )
        if source.offline:
            ctx.log.warn(f"node {source.name} is offline: not stopping the instance there")
        else:
            _stop_on_source(ctx.rpc, ctx.log, plan, shutdown_timeout_s, reason, ignore_consistency)
            if disks and instance.disks_active:
                good = _require_still_latest(ctx, plan, ignore_consistency)
        stays_active = (
            instance.disks_active
            and instance.admin_state == prereq.ADMIN_UP
            and not _mirrors_otherwise(ctx.config, source, target)
        )
        if disks and not stays_active:
            _shut_down(ctx, plan, None, ignore_consistency)
        elif not source.offline:
            _shut_down(ctx, plan, source.uuid, ignore_consistency)
        undo.commit()
    with ctx.config.transaction() as change:
        change.instances.set_primary(instance.uuid, target.uuid)
        replicas.record_new_primary(change, disks, source, good=good)
        if disks and instance.admin_state != prereq.ADMIN_UP:
            change.instances.set_disks_active(instance.uuid, False)
    if instance.admin_state == prereq.ADMIN_UP:
        _start_on_target(ctx, plan, reason, accept_loss=ignore_consistency)


def _mirrors_otherwise(config: Config, source: Node, target: Node) -> bool:
    """Return True if the group of the target connects replicas with other parameters.

    A replica that stays active keeps the parameters with which it was connected, and its peer would
    refuse them.
    """
    if source.group == target.group:
        return False
    old, new = (
        fill.fill_diskparams(config.cluster().diskparams, config.group(node.group).diskparams)
        for node in (source, target)
    )
    return bool(old[DRBD8] != new[DRBD8])


def _start_on_target(
    ctx: Context, plan: MigrationPlan, reason: Sequence[Any] | None, *, accept_loss: bool
) -> None:
    instance, target = plan.instance, plan.target
    ctx.log.feedback(f"* starting it on {target.name}")
    try:
        # The former primary node has the other replica now; that node may be dead.
        power.start(
            ctx,
            ctx.config.instance(instance.uuid),
            reason,
            ignore_secondaries=accept_loss,
            accept_loss=accept_loss,
        )
    except errors.OpExecError as err:
        raise errors.OpExecError(
            f"{err}. The instance was stopped and belongs to node {target.name} now, marked to run."
            f" Start it with 'gnt-instance startup {instance.name}' when the cause is gone."
        ) from err


def _require_latest(ctx: Context, plan: MigrationPlan, ignore_consistency: bool) -> bool:
    """Check that the replicas on the target have all confirmed writes, before anything is changed.

    :returns: whether they have; False when a possible loss was accepted.
    :raises errors.OpExecError: they have not, or it is not known.
    """
    alone = plan.source.offline
    check = (
        mirror.ensure_good_replica
        if plan.instance.disks_active and not alone
        else mirror.compare_inactive
    )
    return check(ctx, plan.instance, plan.target, alone=alone, ignore=ignore_consistency)


def _require_still_latest(ctx: Context, plan: MigrationPlan, ignore_consistency: bool) -> bool:
    """Check again after the instance was stopped: the mirror may be interrupted meanwhile."""
    instance, source = plan.instance, plan.source
    return mirror.require_good_replica(
        ctx,
        instance,
        plan.target,
        alone=False,
        ignore=ignore_consistency,
        changed=(
            f"The instance was stopped, and belongs to node {source.name} as before: start it there"
            f" with 'gnt-instance startup {instance.name}'."
        ),
    )


def _deactivate_compared(config: Config, rpc: RpcRunner, plan: MigrationPlan) -> None:
    """Deactivate the disks, which are not in use, on the nodes that can be reached."""
    instance = config.instance(plan.instance.uuid)
    if not plan.source.offline:
        shutdown_disks(config, rpc, instance)
    else:
        shutdown_disks(config, rpc, instance, plan.target.uuid)


def _shut_down(
    ctx: Context, plan: MigrationPlan, node_uuid: str | None, ignore_consistency: bool
) -> None:
    try:
        if node_uuid is None:
            _deactivate_compared(ctx.config, ctx.rpc, plan)
        else:
            shutdown_disks(ctx.config, ctx.rpc, plan.instance, node_uuid)
    except errors.OpExecError as err:
        if not ignore_consistency:
            raise
        ctx.log.warn(str(err))


def _stop_on_source(
    rpc: RpcRunner,
    log: JobLog,
    plan: MigrationPlan,
    shutdown_timeout_s: int,
    reason: Sequence[Any] | None,
    ignore_consistency: bool,
) -> None:
    instance, source = plan.instance, plan.source
    log.feedback(f"* stopping it on {source.name}")
    answer = power.ask_to_stop(rpc, instance, source.uuid, shutdown_timeout_s, reason)
    if answer.failure is not None:
        if not ignore_consistency:
            raise errors.OpExecError(
                f"could not stop instance {instance.name} on node {source.name}:"
                f" {why(answer.failure)}."
                " Only if that machine is certainly off, repeat with --ignore-consistency."
            ) from answer.failure
        log.warn(
            f"could not stop instance {instance.name} on node {source.name}: {why(answer.failure)}",
            hint="Make sure that the machine is off before the instance starts elsewhere.",
        )
