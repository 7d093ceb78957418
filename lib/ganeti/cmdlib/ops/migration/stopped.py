"""Fail an instance over: stop it on the source node, start it on the target node.

The configuration names the target as soon as the instance is stopped on the source. If the master
dies then, the watcher starts the instance on the target.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import mirror
from ganeti.cmdlib.ops.disks.devices import shutdown_disks
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.wire.calls import INSTANCE_SHUTDOWN


def fail_over(
    unit: AnyUnit, plan: MigrationPlan, *, shutdown_timeout_s: int, ignore_consistency: bool
) -> None:
    """Stop the instance on the source, make the target its primary node, and start it there if
    it is marked up.

    :raises errors.OpExecError: the text says on which node the instance is now.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    if instance.disks_active:
        mirror.ensure_good_replica(
            unit, instance, target, alone=source.offline, ignore=ignore_consistency
        )
    unit.feedback(f"Failing instance {instance.name} over from {source.name} to {target.name}")
    if source.offline:
        unit.warn(f"node {source.name} is offline: not stopping the instance there")
    else:
        _stop_on_source(unit, plan, shutdown_timeout_s, ignore_consistency)
    with unit.config.transaction() as change:
        change.set_instance_primary(instance.uuid, target.uuid)
    if instance.admin_state != prereq.ADMIN_UP:
        return
    unit.feedback(f"* starting it on {target.name}")
    try:
        # The former primary node has the other replica now; that node may be dead.
        power.start(unit, unit.config.instance(instance.uuid), ignore_secondaries=True)
    except errors.OpExecError as err:
        raise errors.OpExecError(
            f"{err}. The instance was stopped and belongs to node {target.name} now, marked to run."
            f" Start it with 'gnt-instance startup {instance.name}' when the cause is gone."
        ) from err


def _stop_on_source(
    unit: AnyUnit, plan: MigrationPlan, shutdown_timeout_s: int, ignore_consistency: bool
) -> None:
    instance, source = plan.instance, plan.source
    unit.feedback(f"* stopping it on {source.name}")
    answer = unit.rpc.call(
        INSTANCE_SHUTDOWN,
        source.uuid,
        instance=instance,
        timeout_s=shutdown_timeout_s,
        reason=list(unit.op.reason or []),
    )
    if answer.failure is not None:
        if not ignore_consistency:
            raise errors.OpExecError(
                f"could not stop instance {instance.name} on node {source.name}:"
                f" {why(answer.failure)}."
                " Only if that machine is certainly off, repeat with --ignore-consistency."
            ) from answer.failure
        unit.warn(
            f"could not stop instance {instance.name} on node {source.name}: {why(answer.failure)}",
            hint="Make sure that the machine is off before the instance starts elsewhere.",
        )
    try:
        shutdown_disks(unit, instance, source.uuid)
    except errors.OpExecError as err:
        if not ignore_consistency:
            raise
        unit.warn(str(err))
