"""Migrate a running guest: send its memory to the target node.

The target only *accepts* the guest before the transfer is complete. When anything fails before, the
target forgets the guest and the source goes on with it. When the transfer is complete, first the
configuration is changed, then the source is cleaned up. When the source is unresponsive in between,
nothing is guessed: the error asks for the clean-up mode (:mod:`.cleanup`), which finds out on which
node the instance runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import mirror
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.cmdlib.undo import UndoStack
from ganeti.constants.disk import INT_MIRRORED
from ganeti.wire.calls import (
    ACCEPT_INSTANCE,
    INSTANCE_BALLOON_MEMORY,
    INSTANCE_FINALIZE_MIGRATION_DST,
    INSTANCE_FINALIZE_MIGRATION_SRC,
    INSTANCE_GET_MIGRATION_STATUS,
    INSTANCE_MIGRATE,
    MIGRATION_INFO,
)

if TYPE_CHECKING:
    from ganeti.objects import Instance, MigrationStatus, Node

#: States of a transfer, as hypervisors report them.
ACTIVE = "active"
COMPLETED = "completed"
FAILED = ("cancelled", "failed")

#: Pauses between two questions about a transfer, in seconds: the first one is short, because a
#: small idle guest is sent in a moment; the longest; in between they are this part of the time that
#: has passed.
FIRST_POLL_S = 0.01
POLL_S = 0.25
POLL_PART = 0.1
#: A source which does not answer so many questions in a row is given up.
UNANSWERED_POLLS = 8
#: Seconds between two lines about the progress.
REPORT_EVERY_S = 5.0


class _SourceUnresponsive(errors.GenericError):
    """The source does not answer although a transfer is under way."""


def migrate(
    unit: AnyUnit, plan: MigrationPlan, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Send the running guest to the target.

    :raises errors.OpExecError: the guest still runs on the source; or it is not known where it
        runs, then the text asks for the clean-up mode.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    mirrored = unit.config.disk_template(instance) in INT_MIRRORED
    mirror.require_good_replica(unit, instance, target, alone=False, ignore=False)
    mirror.require_own_storage(unit, instance, source)
    unit.feedback(
        f"Moving instance {instance.name} from {source.name} to {target.name} while it runs"
    )
    if plan.balloon_mib is not None:
        unit.feedback(f"* shrinking the instance to {plan.balloon_mib} MiB")
        unit.rpc.call(
            INSTANCE_BALLOON_MEMORY, source.uuid, instance=instance, memory_mib=plan.balloon_mib
        ).payload()
    info = unit.rpc.call(MIGRATION_INFO, source.uuid, instance=instance).payload()
    hint = f"Find out with 'gnt-instance migrate --cleanup {instance.name}'."
    with UndoStack(unit.warn, hint=hint) as undo:
        if mirrored:
            undo.add(
                f"disks of {instance.name} writable on node {target.name}",
                mirror.make_single_primary,
                unit,
                instance,
                target,
                sleep,
            )
        else:
            undo.add(
                f"active disks of {instance.name} on node {target.name}",
                shutdown_disks,
                unit,
                instance,
                target.uuid,
            )
        unit.feedback(f"* activating its disks on {target.name}")
        if mirrored:
            mirror.make_dual_primary(unit, instance, target, sleep)
        else:
            assemble_disks(unit, instance, target.uuid)
        undo.add(
            f"the incoming migration of {instance.name} on node {target.name}",
            abort_on_target,
            unit,
            instance,
            target,
            info,
        )
        unit.feedback(f"* preparing {target.name} to accept it")
        unit.rpc.call(
            ACCEPT_INSTANCE, target.uuid, instance=instance, info=info, target=target.secondary_ip
        ).payload()
        undo.add(
            f"the outgoing migration of {instance.name} on node {source.name}",
            continue_on_source,
            unit,
            instance,
            source,
            plan.live,
        )
        unit.feedback("* sending its memory")
        try:
            _transfer(unit, plan, sleep)
        except _SourceUnresponsive as err:
            # It is not known which side has the guest: changing either side could destroy it.
            undo.commit()
            raise errors.OpExecError(
                f"node {source.name} stopped answering while instance {instance.name} was sent:"
                f" {err};"
                f" it runs there or on node {target.name}. {hint}"
            ) from err
        undo.commit()
    # The guest runs on the target: the configuration must say so before anything else happens.
    with unit.config.transaction() as change:
        change.set_instance_primary(instance.uuid, target.uuid)
    _finish(unit, plan, info, sleep)


def _transfer(unit: AnyUnit, plan: MigrationPlan, sleep: Callable[[float], None]) -> None:
    """Send the guest, and wait until the transfer is complete.

    :raises errors.OpExecError: the transfer failed, the guest is still on the source.
    :raises _SourceUnresponsive: the state of the transfer is not known.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    answer = unit.rpc.call(
        INSTANCE_MIGRATE,
        source.uuid,
        cluster_name=unit.config.cluster_name,
        instance=instance,
        target=target.secondary_ip,
        live=plan.live,
    )
    if isinstance(answer.failure, errors.NodeUnreachable):
        raise _SourceUnresponsive(str(answer.failure))
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not migrate instance {instance.name} to node {target.name}:"
            f" {why(answer.failure)}"
        ) from answer.failure
    unanswered = 0
    waited_s = REPORT_EVERY_S
    pause_s = min(FIRST_POLL_S, POLL_S)
    passed_s = 0.0
    while True:
        answer = unit.rpc.call(INSTANCE_GET_MIGRATION_STATUS, source.uuid, instance=instance)
        if isinstance(answer.failure, errors.NodeUnreachable):
            unanswered += 1
            pause_s = POLL_S
            if unanswered >= UNANSWERED_POLLS:
                raise _SourceUnresponsive(str(answer.failure))
        elif answer.failure is not None:
            raise errors.OpExecError(
                f"could not follow the migration of instance {instance.name}: {why(answer.failure)}"
            ) from answer.failure
        else:
            unanswered = 0
            status: MigrationStatus = answer.data
            if status.status == COMPLETED:
                unit.feedback(f"* all memory is sent{_durations(status)}")
                return
            if status.status in FAILED:
                raise errors.OpExecError(
                    f"the migration of instance {instance.name} to node {target.name}"
                    f" {status.status}"
                )
            if waited_s >= REPORT_EVERY_S and status.total_ram:
                percent = 100.0 * (status.transferred_ram or 0) / status.total_ram
                unit.feedback(f"* {min(percent, 99.9):.1f} % of its memory is sent")
                waited_s = 0.0
        sleep(pause_s)
        waited_s += pause_s
        passed_s += pause_s
        pause_s = min(max(FIRST_POLL_S, passed_s * POLL_PART), POLL_S)


def _durations(status: MigrationStatus) -> str:
    """How long the transfer and the pause took, for the log; empty if the hypervisor is not
    able to report it."""
    if status.total_time is None or status.downtime is None:
        return ""
    return f" ({status.total_time / 1000:.1f} s, the instance was paused for {status.downtime} ms)"


def abort_on_target(unit: AnyUnit, instance: Instance, target: Node, info: object) -> None:
    """End the incoming migration on the target, so that it does not wait for the guest."""
    unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=instance, info=info, success=False
    ).payload()


def continue_on_source(unit: AnyUnit, instance: Instance, source: Node, live: bool) -> None:
    """End the outgoing migration on the source, where the guest goes on."""
    unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC, source.uuid, instance=instance, success=False, live=live
    ).payload()


def _finish(
    unit: AnyUnit, plan: MigrationPlan, info: object, sleep: Callable[[float], None]
) -> None:
    """Clean up both sides after a complete transfer; failures are reported, the guest is safe."""
    instance, source, target = plan.instance, plan.source, plan.target
    moved = unit.config.instance(instance.uuid)
    problems = []
    answer = unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC,
        source.uuid,
        instance=instance,
        success=True,
        live=plan.live,
    )
    if answer.failure is not None:
        problems.append(f"node {source.name} could not remove it: {why(answer.failure)}")
    answer = unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=moved, info=info, success=True
    )
    if answer.failure is not None:
        problems.append(f"node {target.name} could not complete it: {why(answer.failure)}")
    try:
        if unit.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(unit, moved, source, sleep)
        else:
            shutdown_disks(unit, instance, source.uuid)
    except errors.GenericError as err:
        problems.append(str(err))
    if problems:
        raise errors.OpExecError(
            f"instance {instance.name} runs on node {target.name} now, but {'; '.join(problems)}."
            f" Run 'gnt-instance migrate --cleanup {instance.name}' when the cause is gone."
        )
    unit.feedback("* done")
