"""Start and stop instances, for several logical units.

``admin_state`` in the configuration is the wanted state; these functions establish it on a node.
The units write the wanted state first: when the master dies in between, the watcher (or the same
command again) finishes the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.objects import halt
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import INSTANCE_CONTINUE, INSTANCE_SHUTDOWN, INSTANCE_START

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance
    from ganeti.rpc import Result, RpcRunner


def start(
    ctx: Context,
    instance: Instance,
    reason: Sequence[Any] | None,
    *,
    paused: bool = False,
    hvparams: Mapping[str, Any] | None = None,
    beparams: Mapping[str, Any] | None = None,
    ignore_secondaries: bool = False,
    accept_loss: bool = False,
    active: bool = False,
) -> None:
    """Activate the disks and start the instance on its primary node.

    :param reason: the trail of reasons of the opcode.
    :param hvparams: overrides for this start only; likewise ``beparams``.
    :param ignore_secondaries: start although disks cannot be activated on their secondary node.
    :param accept_loss: start although the replicas on the primary node may have missed writes,
        which are then lost.
    :param active: the same job has activated the disks just before.
    :raises errors.OpExecError: it does not run and its disks are inactive again; or the node became
        unreachable, then it may run and its disks stay active.
    """
    node_name = ctx.config.node(instance.primary_node).name
    with UndoStack(ctx.log.warn) as undo:
        # Registered first, because an activation may fail after some of the disks.
        undo.add(
            f"active disks of {instance.name} on node {node_name}",
            shutdown_disks,
            ctx.config,
            ctx.rpc,
            instance,
        )
        if not active:
            assemble_disks(
                ctx,
                instance,
                ignore_secondaries=ignore_secondaries,
                accept_loss=accept_loss,
            )
        with ctx.config.transaction() as change:
            change.instances.set_disks_active(instance.uuid, True)
            if instance.pending_changes:
                change.instances.forget_pending(instance.uuid)
        undo.add("disks marked active", _mark_disks_inactive, ctx.config, instance)
        answer = ctx.rpc.call(
            INSTANCE_START,
            instance.primary_node,
            instance=(instance, dict(hvparams or {}), dict(beparams or {})),
            startup_paused=paused,
            reason=list(reason or []),
        )
        if isinstance(answer.failure, errors.NodeUnreachable):
            # It may run, and a running instance needs its disks.
            undo.commit()
            raise errors.OpExecError(
                f"could not start instance {instance.name}: {answer.failure}. It may run"
                " nevertheless, therefore its disks stay active"
            ) from answer.failure
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not start instance {instance.name} on node {node_name}:"
                f" {why(answer.failure)}"
            ) from answer.failure
        undo.commit()


def go_on(ctx: Context, instance: Instance, reason: Sequence[Any] | None) -> None:
    """Let a halted guest run on.

    :param reason: the trail of reasons of the opcode.
    :raises errors.OpExecError: it could not run on, or has halted again.
    """
    node_name = ctx.config.node(instance.primary_node).name
    answer = ctx.rpc.call(
        INSTANCE_CONTINUE, instance.primary_node, instance=instance, reason=list(reason or [])
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"instance {instance.name} could not be continued on node {node_name}:"
            f" {why(answer.failure)}"
        ) from answer.failure
    found = halt.of_facts(answer.data)
    if found is not None:
        raise errors.OpExecError(
            f"instance {instance.name} has halted again on node {node_name}: {found.text()}."
            f" {found.remedy(instance.name)}"
        )


def start_steps(instance: Instance, node_name: str) -> list[str]:
    """Return the steps of :func:`start`, for a dry run."""
    count = len(instance.disks)
    disks = f"its {count} disks" if count > 1 else "its disk"
    activated = [f"activate {disks} on {node_name}"] if count else []
    return [*activated, f"start it on {node_name}"]


def stop(
    config: Config, rpc: RpcRunner, instance: Instance, timeout_s: int, reason: Sequence[Any] | None
) -> None:
    """Stop the instance on its primary node; does nothing when it does not run.

    :param timeout_s: seconds which the guest has to stop by itself.
    :param reason: the trail of reasons of the opcode.
    :raises errors.OpExecError: it may still run; nothing else was changed.
    """
    node_name = config.node(instance.primary_node).name
    answer = ask_to_stop(rpc, instance, instance.primary_node, timeout_s, reason)
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not shut down instance {instance.name} on node {node_name}:"
            f" {why(answer.failure)}"
        ) from answer.failure


def say_stopping(ctx: Context, instance: Instance, timeout_s: int) -> None:
    """Say that the job waits until a guest has stopped, which may take as long as it has."""
    node_name = ctx.config.node(instance.primary_node).name
    ctx.log.waiting(
        f"waiting until instance {instance.name} has stopped on node {node_name}. It is killed"
        f" after {timeout_s} s (--shutdown-timeout)."
    )


def ask_to_stop(
    rpc: RpcRunner,
    instance: Instance,
    node_uuid: str,
    timeout_s: int,
    reason: Sequence[Any] | None,
) -> Result:
    """Stop the guest of an instance on a node, and return how that ended.

    :param timeout_s: seconds which the guest has to stop by itself.
    :param reason: the trail of reasons of the opcode.
    """
    return rpc.call(
        INSTANCE_SHUTDOWN,
        node_uuid,
        instance=instance,
        timeout_s=timeout_s,
        reason=list(reason or []),
    )


def deactivate_disks(config: Config, rpc: RpcRunner, instance: Instance) -> None:
    """Deactivate the disks of a stopped instance and mark them inactive in the configuration."""
    shutdown_disks(config, rpc, instance)
    _mark_disks_inactive(config, instance)


def stop_steps(config: Config, instance: Instance, timeout_s: int) -> list[str]:
    """Return the steps of :func:`stop` and :func:`deactivate_disks`, for a dry run."""
    node = config.node(instance.primary_node).name
    return [
        f"stop it on {node}, at the latest after {timeout_s} s",
        f"deactivate its disks on {', '.join(config.instance_node_names(instance))}",
    ]


def _mark_disks_inactive(config: Config, instance: Instance) -> None:
    with config.transaction() as change:
        change.instances.set_disks_active(instance.uuid, False)
