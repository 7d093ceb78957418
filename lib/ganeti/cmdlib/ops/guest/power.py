"""Starting and stopping, as several logical units need it.

``admin_state`` in the configuration is what shall be; these functions make it so on a node. The
units write the desired state first: when the master dies in between, the watcher (or the same
command again) finishes the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.undo import Undo
from ganeti.wire.calls import INSTANCE_SHUTDOWN, INSTANCE_START

if TYPE_CHECKING:
    from ganeti.objects import Instance


def start(
    unit: AnyUnit,
    instance: Instance,
    *,
    paused: bool = False,
    hvparams: Mapping[str, Any] | None = None,
    beparams: Mapping[str, Any] | None = None,
    ignore_secondaries: bool = False,
) -> None:
    """Activate the disks and start the instance on its primary node.

    :param hvparams: overrides for this start only; likewise ``beparams``.
    :param ignore_secondaries: start with mirrors which cannot be activated on their second node.
    :raises errors.OpExecError: it does not run, its disks are inactive again; or the node was
        lost, then both may be otherwise.
    """
    node_name = unit.config.node(instance.primary_node).name
    with Undo(unit.warn) as undo:
        # Half an assembly counts too.
        undo.add(
            f"active disks of {instance.name} on node {node_name}", shutdown_disks, unit, instance
        )
        assemble_disks(unit, instance, ignore_secondaries=ignore_secondaries)
        with unit.config.transaction() as change:
            change.set_disks_active(instance.uuid, True)
        undo.add("disks marked active", _mark_disks_inactive, unit, instance)
        answer = unit.rpc.call(
            INSTANCE_START,
            instance.primary_node,
            instance=(instance, dict(hvparams or {}), dict(beparams or {})),
            startup_paused=paused,
            reason=list(unit.op.reason or []),
        )
        if isinstance(answer.failure, errors.NodeUnreachable):
            # It may well run; without its disks it would not for long.
            undo.commit()
            raise errors.OpExecError(
                f"could not start instance {instance.name}: {answer.failure}. It may run"
                " nevertheless, so its disks stay active"
            ) from answer.failure
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not start instance {instance.name} on node {node_name}:"
                f" {why(answer.failure)}"
            ) from answer.failure
        undo.commit()


def stop(unit: AnyUnit, instance: Instance, timeout_s: int) -> None:
    """Stop the instance on its primary node; does nothing when it does not run.

    :raises errors.OpExecError: it may still run; nothing else was changed.
    """
    node_name = unit.config.node(instance.primary_node).name
    answer = unit.rpc.call(
        INSTANCE_SHUTDOWN,
        instance.primary_node,
        instance=instance,
        timeout_s=timeout_s,
        reason=list(unit.op.reason or []),
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not shut down instance {instance.name} on node {node_name}:"
            f" {why(answer.failure)}"
        ) from answer.failure


def deactivate_disks(unit: AnyUnit, instance: Instance) -> None:
    """Deactivate the disks of a stopped instance and say so in the configuration."""
    shutdown_disks(unit, instance)
    _mark_disks_inactive(unit, instance)


def _mark_disks_inactive(unit: AnyUnit, instance: Instance) -> None:
    with unit.config.transaction() as change:
        change.set_disks_active(instance.uuid, False)
