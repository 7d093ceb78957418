"""Migrate a running guest: send its memory to the target node.

The target only *accepts* the guest before the transfer is complete. When the source reports that
the transfer failed, the target forgets the guest, and only then the source goes on with it: the
target must be known to have ended. When the transfer is complete, first the configuration is
changed, then the source is cleaned up, then the target lets the guest run. With post-copy the
target has the guest before it has all of the memory; from then on the configuration names the
target, and the source never goes on.

Once the source was asked to send the guest, only its own word that it did not, or that it failed,
is a failure. When it cannot be followed, for any reason, nothing is guessed and nothing is undone:
the error asks for the clean-up mode (:mod:`.cleanup`), which finds out on which node the instance
runs. The nodes enforce the same rules (:mod:`ganeti.hypervisor.kvm.migration`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks import mirror, replicas
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.utils import retry
from ganeti.utils.undo import UndoStack
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
    from ganeti.config import Config
    from ganeti.objects import Instance, MigrationStatus, Node
    from ganeti.rpc import RpcRunner

#: States of a transfer, as hypervisors report them.
ACTIVE = "active"
COMPLETED = "completed"
FAILED = ("cancelled", "failed")
#: No migration was started; our own.
NONE = "none"
#: The target has the guest, and fetches the rest of its memory.
POSTCOPY = "postcopy-active"
#: Detail of it: the connection broke, and both nodes wait until the transfer is resumed.
POSTCOPY_PAUSED = "postcopy-paused"

#: Pauses between two questions about a transfer, in seconds: the first one is short, because a
#: small idle guest is sent in a moment; the longest; in between they are this part of the time that
#: has passed.
FIRST_POLL_S = 0.01
# For so long a target which still receives is asked why it failed.
_REASON_S = 2.0
POLL_S = 0.25
POLL_PART = 0.1
#: Number of unanswered questions in a row after which a source is given up.
UNANSWERED_POLLS = 8
#: Seconds between two lines about the progress.
REPORT_EVERY_S = 5.0


class CannotFollow(errors.GenericError):
    """It is not known how far a transfer is; it may be complete."""


class NotSent(errors.OpExecError):
    """The source reports that the guest was not sent, or not as a whole."""


def migrate(ctx: Context, plan: MigrationPlan, sleep: Callable[[float], None] = time.sleep) -> None:
    """Send the running guest to the target.

    :raises errors.OpExecError: the guest still runs on the source; or it is not known where it
        runs, then the text asks for the clean-up mode.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    mirror.require_good_replica(ctx, instance, target, alone=False, ignore=False)
    mirror.require_own_storage(ctx.config, ctx.rpc, instance, source)
    ctx.log.feedback(
        f"Moving instance {instance.name} from {source.name} to {target.name}"
        f" {'while it runs' if plan.live else 'while it is stopped'}"
    )
    if plan.balloon_mib is not None:
        ctx.log.feedback(f"* shrinking the instance to {plan.balloon_mib} MiB")
        ctx.rpc.call(
            INSTANCE_BALLOON_MEMORY, source.uuid, instance=instance, memory_mib=plan.balloon_mib
        ).payload()
    info = ctx.rpc.call(MIGRATION_INFO, source.uuid, instance=instance).payload()
    # Its interfaces may have other links in the group of the target.
    arriving = policy.in_group_of(ctx.config, instance, target)
    hint = f"Find out with 'gnt-instance migrate --cleanup {instance.name}'."
    with UndoStack(ctx.log.warn, hint=hint) as undo:
        _activate_on_target(ctx, plan, undo, sleep)
        transfer = _Transfer(ctx, plan, info)
        undo.add(
            f"the migration of {instance.name} from node {source.name} to node {target.name}",
            transfer.undo,
        )
        ctx.log.feedback(f"* preparing {target.name} to accept it")
        transfer.port = ctx.rpc.call(
            ACCEPT_INSTANCE,
            target.uuid,
            instance=arriving,
            info=info,
            target=target.secondary_ip,
            any_port=plan.any_port,
        ).payload()
        ctx.log.feedback("* sending its memory")
        try:
            transfer.send(sleep)
        except NotSent:
            raise
        except CannotFollow as err:
            undo.commit()
            raise errors.OpExecError(transfer.unknown(str(err))) from err
        except BaseException:
            # The target may have the guest: a change of either side could destroy it.
            undo.commit()
            raise
        undo.commit()
    # The guest is on the target: the configuration must say so before anything else happens.
    record_target(ctx.config, instance, target, in_sync_with=source)
    _finish(ctx, plan, info, sleep)


def _activate_on_target(
    ctx: Context, plan: MigrationPlan, undo: UndoStack, sleep: Callable[[float], None]
) -> None:
    """Make the disks usable on the target, too; a failure of the migration undoes it."""
    instance, target = plan.instance, plan.target
    mirrored = ctx.config.disk_template(instance) in INT_MIRRORED
    if mirrored:
        undo.add(
            f"disks of {instance.name} writable on node {target.name}",
            mirror.make_single_primary,
            ctx,
            instance,
            target,
            sleep,
        )
    else:
        undo.add(
            f"active disks of {instance.name} on node {target.name}",
            shutdown_disks,
            ctx.config,
            ctx.rpc,
            instance,
            target.uuid,
        )
    ctx.log.feedback(f"* activating its disks on {target.name}")
    if mirrored:
        mirror.make_dual_primary(ctx, instance, target, sleep)
    else:
        assemble_disks(ctx, instance, target.uuid)


class _Transfer:
    """The transfer of a guest.

    :ivar port: at which the target waits; None for that of all migrations.
    """

    port: int | None = None

    def __init__(self, ctx: Context, plan: MigrationPlan, info: object) -> None:
        self._ctx = ctx
        self._plan = plan
        self._info = info
        self._asked = False
        self._handed_over = False

    def send(self, sleep: Callable[[float], None]) -> None:
        """Send the guest, and wait until the transfer is complete.

        :raises NotSent: the guest is still on the source.
        :raises CannotFollow: the state of the transfer is not known, or it cannot go on.
        """
        ctx, plan = self._ctx, self._plan
        self._asked = True
        answer = ctx.rpc.call(
            INSTANCE_MIGRATE,
            plan.source.uuid,
            cluster_name=ctx.config.cluster_name,
            instance=plan.instance,
            target=plan.target.secondary_ip,
            live=plan.live,
            port=self.port,
        )
        # After a failure, too, the source may have begun: it is asked.
        try:
            follow(
                ctx.rpc,
                ctx.log,
                plan.instance,
                plan.source,
                sleep,
                failure=answer.failure,
                on_postcopy=self._hand_over,
            )
        except NotSent as err:
            if self._handed_over:
                raise CannotFollow(str(err)) from err
            reason = self._reason_of_target(sleep)
            if reason:
                raise NotSent(f"{err}. Node {plan.target.name} says: {reason}") from err
            raise

    def _reason_of_target(self, sleep: Callable[[float], None]) -> str:
        """Return why the target did not receive the guest, where it knows that.

        The source notices the end of the connection before the target has recorded its reason, so
        a target which still receives is asked again for a short time. The result is an empty text
        where the target knows no reason.
        """
        plan = self._plan

        def reason() -> str:
            answer = self._ctx.rpc.call(
                INSTANCE_GET_MIGRATION_STATUS, plan.target.uuid, instance=plan.instance
            )
            status: MigrationStatus | None = None if answer.failure is not None else answer.data
            if status is None:
                return ""
            if not status.error and status.status == ACTIVE:
                raise retry.Again
            return status.error or ""

        try:
            return retry.until(reason, timeout_s=_REASON_S, sleep=sleep)
        except errors.RetryTimeout:
            return ""

    def _hand_over(self) -> None:
        """Record that the target has the guest, which waits there for the rest of its memory."""
        if self._handed_over:
            return
        ctx, plan = self._ctx, self._plan
        record_target(ctx.config, plan.instance, plan.target, in_sync_with=plan.source)
        self._handed_over = True
        ctx.log.feedback(
            f"* it is on {plan.target.name} now, which waits for the rest of its memory"
        )

    def undo(self) -> None:
        """Undo a transfer which has failed: the target ends before the source goes on.

        :raises errors.OpExecError: the target is not known to have ended, so the source was left
            alone; or the source cannot go on.
        """
        ctx, plan = self._ctx, self._plan
        instance, source, target = plan.instance, plan.source, plan.target
        try:
            abort_on_target(ctx.rpc, instance, target, self._info)
        except errors.GenericError as err:
            if not self._asked:
                raise
            raise errors.OpExecError(
                f"{err}; because node {target.name} may have the instance, it was not continued on"
                f" node {source.name}"
            ) from err
        if self._asked:
            continue_on_source(ctx.rpc, instance, source, plan.live)

    def unknown(self, problem: str) -> str:
        """Return the error text when the transfer cannot be followed."""
        name, source, target = self._plan.instance.name, self._plan.source, self._plan.target
        command = f"'gnt-instance migrate --cleanup {name}'"
        if self._handed_over:
            return (
                f"instance {name} is on node {target.name} now, but a part of its memory is still"
                f" on node {source.name}, and the transfer cannot be followed: {problem}. Resume it"
                f" with {command}."
            )
        return (
            f"cannot follow the migration of instance {name} from node {source.name}: {problem}; it"
            f" is there or on node {target.name}. Neither was changed. Find out with {command}."
        )


def record_target(
    config: Config, instance: Instance, target: Node, *, in_sync_with: Node | None = None
) -> None:
    """Make the node which has the guest now its primary node in the configuration.

    :param in_sync_with: the former primary node, if the replicas there are known to be in sync.
    """
    with config.transaction() as change:
        change.instances.set_primary(instance.uuid, target.uuid)
        if in_sync_with is not None:
            disks = config.instance_disks(instance)
            replicas.record_new_primary(change, disks, in_sync_with, good=True)


def follow(
    rpc: RpcRunner,
    log: JobLog,
    instance: Instance,
    source: Node,
    sleep: Callable[[float], None] = time.sleep,
    *,
    failure: errors.GenericError | None = None,
    on_postcopy: Callable[[], None] = lambda: None,
) -> None:
    """Wait until a transfer is complete.

    :param failure: why the source did not confirm that it began to send.
    :param on_postcopy: called whenever the source reports that the target has the guest.
    :raises NotSent: the source reports that it did not begin, or that the transfer failed.
    :raises CannotFollow: nothing else is known. The transfer may be complete.
    """
    unanswered = 0
    waited_s = REPORT_EVERY_S
    pause_s = min(FIRST_POLL_S, POLL_S)
    passed_s = 0.0
    while True:
        answer = rpc.call(INSTANCE_GET_MIGRATION_STATUS, source.uuid, instance=instance)
        problem: errors.GenericError | None = answer.failure
        status: MigrationStatus | None = None if problem is not None else answer.data
        if status is not None and _sent_nothing(status):
            if failure is not None and not isinstance(failure, errors.NodeUnreachable):
                raise NotSent(
                    f"could not migrate instance {instance.name} from node {source.name}:"
                    f" {why(failure)}"
                ) from failure
            # The request may be on its way still.
            status = None
            problem = failure or errors.GenericError("its hypervisor reports no migration")
        if status is None:
            unanswered += 1
            pause_s = POLL_S
            # A node which answers has asked the hypervisor several times.
            if isinstance(problem, errors.NodeCallFailed) or unanswered >= UNANSWERED_POLLS:
                raise CannotFollow(why(problem)) from problem
        else:
            unanswered = 0
            if status.status == COMPLETED:
                log.feedback(f"* all memory is sent{_durations(status)}")
                return
            if status.status in FAILED:
                reason = status.error or (why(failure) if failure is not None else "")
                raise NotSent(
                    f"the migration of instance {instance.name} from node {source.name}"
                    f" {status.status}{f': {reason}' if reason else ''}"
                )
            if status.status == POSTCOPY:
                on_postcopy()
                if status.postcopy_status == POSTCOPY_PAUSED:
                    raise CannotFollow("the connection between the nodes broke")
            if waited_s >= REPORT_EVERY_S and status.total_ram:
                percent = 100.0 * (status.transferred_ram or 0) / status.total_ram
                log.feedback(f"* {min(percent, 99.9):.1f} % of its memory is sent")
                waited_s = 0.0
        sleep(pause_s)
        waited_s += pause_s
        passed_s += pause_s
        pause_s = min(max(FIRST_POLL_S, passed_s * POLL_PART), POLL_S)


def _sent_nothing(status: MigrationStatus) -> bool:
    """Return True if a source has not begun; a guest which has come to it is complete there.

    Only the sender knows its memory size.
    """
    return status.status == NONE or (status.status == COMPLETED and not status.total_ram)


def _durations(status: MigrationStatus) -> str:
    """Return how long the transfer and the pause took, for the log; empty if the hypervisor is not
    able to report it.
    """
    if status.total_time is None or status.downtime is None:
        return ""
    return f" ({status.total_time / 1000:.1f} s, the instance was paused for {status.downtime} ms)"


def abort_on_target(rpc: RpcRunner, instance: Instance, target: Node, info: object) -> None:
    """End the incoming migration on the target, so that it does not wait for the guest."""
    rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=instance, info=info, success=False
    ).payload()


def continue_on_source(rpc: RpcRunner, instance: Instance, source: Node, live: bool) -> None:
    """End the outgoing migration on the source, where the guest goes on."""
    rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC, source.uuid, instance=instance, success=False, live=live
    ).payload()


def _finish(
    ctx: Context, plan: MigrationPlan, info: object, sleep: Callable[[float], None]
) -> None:
    """Clean up both sides after a complete transfer; failures are reported, the guest is safe."""
    instance, source, target = plan.instance, plan.source, plan.target
    moved = ctx.config.instance(instance.uuid)
    problems = []
    answer = ctx.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC,
        source.uuid,
        instance=instance,
        success=True,
        live=plan.live,
    )
    if answer.failure is not None:
        problems.append(f"node {source.name} could not remove it: {why(answer.failure)}")
    answer = ctx.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=moved, info=info, success=True
    )
    if answer.failure is not None:
        problems.append(f"node {target.name} could not complete it: {why(answer.failure)}")
    try:
        if ctx.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(ctx, moved, source, sleep)
        else:
            shutdown_disks(ctx.config, ctx.rpc, instance, source.uuid)
    except errors.GenericError as err:
        problems.append(str(err))
    if problems:
        raise errors.OpExecError(
            f"instance {instance.name} runs on node {target.name} now, but {'; '.join(problems)}."
            f" Run 'gnt-instance migrate --cleanup {instance.name}' when the cause is gone."
        )
    ctx.log.feedback("* done")
