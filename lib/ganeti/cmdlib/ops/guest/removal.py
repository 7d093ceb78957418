"""Remove an instance and its disks; also used at the end of an export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks import convert
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.guest import power
from ganeti.objects import Instance, hypervisors
from ganeti.wire.calls import CONSOLE_LOG_REMOVE


def remove_instance(
    ctx: Context,
    instance: Instance,
    *,
    timeout_s: int,
    reason: Sequence[Any] | None,
    ignore_failures: bool,
) -> None:
    """Stop an instance, remove its disks, and remove it from the configuration.

    :param timeout_s: seconds which the guest has to stop by itself.
    :param reason: the trail of reasons of the opcode.
    :param ignore_failures: warn about disks which cannot be removed, and go on.
    :raises errors.OpExecError: the instance is still in the configuration, marked down.
    """
    # Marked down first, so that the watcher does not start it again during the removal.
    if instance.admin_state == prereq.ADMIN_UP:
        with ctx.config.transaction() as change:
            change.instances.mark(instance.uuid, prereq.ADMIN_DOWN)
    fresh = ctx.config.instance(instance.uuid)
    if not fresh.forthcoming:
        if instance.admin_state == prereq.ADMIN_UP:
            power.say_stopping(ctx, fresh, timeout_s)
        try:
            power.stop(ctx.config, ctx.rpc, fresh, timeout_s, reason)
        except errors.OpExecError as err:
            _tolerate(ctx.log, str(err), fresh, ignore=ignore_failures)
        _remove_disks(ctx, fresh, ignore=ignore_failures)
        _remove_console_log(ctx, fresh)
    with ctx.config.transaction() as change:
        change.instances.remove(fresh.uuid)


def _remove_console_log(ctx: Context, instance: Instance) -> None:
    """Remove the log of the console from the nodes of the instance; a failure is a warning.

    No other instance ever shows it, and ``ganeti-cleaner`` removes what is left on a node.
    """
    if not hypervisors.of(instance.hypervisor).keeps_console_log:
        return
    nodes = [
        uuid for uuid in ctx.config.instance_nodes(instance) if not ctx.config.node(uuid).offline
    ]
    answers = ctx.rpc.call_many(
        CONSOLE_LOG_REMOVE, nodes, instance_name=instance.name, instance_uuid=instance.uuid
    )
    for answer in answers.values():
        if answer.failure is not None:
            ctx.log.warn(
                f"the console log of instance {instance.name} was not removed from node"
                f" {answer.node_name}: {why(answer.failure)}"
            )


def _remove_disks(ctx: Context, instance: Instance, *, ignore: bool) -> None:
    disks = ctx.config.instance_disks(instance)
    try:
        disk_work.remove_disks(ctx, instance, disks)
    except errors.OpExecError as err:
        _tolerate(ctx.log, str(err), instance, ignore=ignore)
    try:
        convert.clear(ctx, instance, last=True)
    except (errors.OpExecError, errors.RpcError) as err:
        _tolerate(
            ctx.log,
            f"detached volumes of instance {instance.name} were not removed: {err}",
            instance,
            ignore=ignore,
        )
    try:
        disk_work.remove_storage_dir(ctx, instance, disks)
    except errors.RpcError as err:
        _tolerate(
            ctx.log,
            f"the disk directory of instance {instance.name} was not removed: {err}",
            instance,
            ignore=ignore,
        )


def _tolerate(log: JobLog, problem: str, instance: Instance, *, ignore: bool) -> None:
    if ignore:
        log.warn(problem)
        return
    raise errors.OpExecError(
        f"{problem}; the instance is still in the configuration, marked down. Repeat the"
        " command when the cause is gone, or use 'gnt-instance remove --ignore-failures"
        f" {instance.name}'."
    )
