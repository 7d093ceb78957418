"""Repair after an interrupted migration: ``gnt-instance migrate --cleanup``.

:func:`clean_up` asks the nodes on which of them the instance runs. It then makes both sides of the
migration and the configuration agree with that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import mirror
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.ops.migration import live
from ganeti.cmdlib.ops.migration.plan import require_mirrored
from ganeti.constants.disk import INT_MIRRORED
from ganeti.wire.calls import (
    ALL_INSTANCES_INFO,
    INSTANCE_FINALIZE_MIGRATION_DST,
    INSTANCE_FINALIZE_MIGRATION_SRC,
    INSTANCE_GET_MIGRATION_STATUS,
)

if TYPE_CHECKING:
    from ganeti.objects import Instance, Node


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The nodes on which an interrupted migration may have left the instance."""

    instance: Instance
    source: Node
    nodes: tuple[Node, ...]


def plan_cleanup(unit: AnyUnit, instance: Instance) -> CleanupPlan:
    """List the nodes which may run the instance: its group's, or the two of a mirrored one.

    :raises errors.OpPrereqError: the disks exist on the primary node only.
    """
    require_mirrored(unit, instance, "clean up after a migration of")
    source = unit.config.node(instance.primary_node)
    nodes = tuple(
        node
        for node in _possible_nodes(unit, instance, source)
        if node.vm_capable and not node.offline
    )
    return CleanupPlan(instance, source, nodes)


def _possible_nodes(unit: AnyUnit, instance: Instance, source: Node) -> list[Node]:
    if unit.config.disk_template(instance) in INT_MIRRORED:
        return [unit.config.node(uuid) for uuid in unit.config.instance_nodes(instance)]
    return [node for node in unit.config.nodes() if node.group == source.group]


def clean_up(unit: AnyUnit, plan: CleanupPlan) -> None:
    """Find out where the instance runs, and make both sides and the configuration agree.

    :raises errors.OpExecError: it runs nowhere or on several nodes, or a node does not answer.
    """
    instance, source = plan.instance, plan.source
    unit.feedback(f"Finding out where instance {instance.name} runs")
    running, incoming = _running_and_incoming(unit, plan)
    others = [node for node in running if node.uuid != source.uuid]
    if not running:
        raise errors.OpExecError(
            f"instance {instance.name} runs nowhere. Use 'gnt-instance shutdown {instance.name}' to"
            " release its disks, then start it."
        )
    if len(running) == 1:
        keeper = running[0]
    elif len(running) == 2 and len(others) == 1:
        keeper = _interrupted_between(unit, instance, source, others[0])
    else:
        names = ", ".join(node.name for node in running)
        raise errors.OpExecError(
            f"instance {instance.name} runs on several nodes: {names}. Stop all but one by hand."
        )
    # No other node may go on with the instance.
    for node in (*incoming, *others):
        if node.uuid != keeper.uuid:
            live.abort_on_target(unit, instance, node, None)
    if keeper.uuid == source.uuid:
        unit.feedback(f"* it runs on its primary node {source.name}")
        live.continue_on_source(unit, instance, source, True)
    else:
        unit.feedback(f"* it runs on {keeper.name}, which becomes its primary node")
        with unit.config.transaction() as change:
            change.set_instance_primary(instance.uuid, keeper.uuid)
        if source in plan.nodes:
            unit.rpc.call(
                INSTANCE_FINALIZE_MIGRATION_SRC,
                source.uuid,
                instance=instance,
                success=True,
                live=True,
            ).payload()
        unit.rpc.call(
            INSTANCE_FINALIZE_MIGRATION_DST,
            keeper.uuid,
            instance=unit.config.instance(instance.uuid),
            info=None,
            success=True,
        ).payload()
    others = [node for node in plan.nodes if node.uuid != keeper.uuid]
    if unit.config.disk_template(instance) in INT_MIRRORED:
        # This activates a replica which is not active; then the two connect as single-primary.
        assemble_disks(unit, unit.config.instance(instance.uuid), ignore_secondaries=True)
    for node in others:
        if unit.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(unit, unit.config.instance(instance.uuid), node)
        else:
            shutdown_disks(unit, instance, node.uuid)
    unit.feedback("* done")


def _running_and_incoming(unit: AnyUnit, plan: CleanupPlan) -> tuple[list[Node], list[Node]]:
    """The nodes which run the guest, and those with an incoming migration of it."""
    hypervisor = plan.instance.hypervisor
    hvparams = unit.config.filled(plan.instance).hvparams
    answers = unit.rpc.call_many(
        ALL_INSTANCES_INFO,
        [node.uuid for node in plan.nodes],
        hypervisors=[hypervisor],
        hvparams={hypervisor: hvparams},
    )
    running: list[Node] = []
    incoming: list[Node] = []
    for node in plan.nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {node.name} did not report whether it runs instance {plan.instance.name}:"
                f" {why(answer.failure)}. If the machine is off, mark it offline first."
            ) from answer.failure
        info = answer.data.get(plan.instance.name)
        if info:
            (running if prereq.is_running(info) else incoming).append(node)
    return running, incoming


def _interrupted_between(unit: AnyUnit, instance: Instance, source: Node, other: Node) -> Node:
    """Decide which of two nodes with the guest keeps it, by the state which the source reports."""
    answer = unit.rpc.call(INSTANCE_GET_MIGRATION_STATUS, source.uuid, instance=instance)
    status = None if answer.failure is not None else answer.data.status
    # A guest which once came to the source by migration reports "completed", too, but the source
    # has sent nothing then.
    if status == live.COMPLETED and answer.data.total_ram:
        return other
    if status == live.ACTIVE or status in live.FAILED:
        unit.feedback(f"* a transfer to {other.name} was interrupted")
        return source
    raise errors.OpExecError(
        f"instance {instance.name} runs on both {source.name} and {other.name}. Stop one of them"
        " by hand."
    )
