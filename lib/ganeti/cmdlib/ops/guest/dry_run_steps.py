"""Steps of the most frequent operations on instances, as a dry run shows them.

Each function belongs to the ``exec`` of one logical unit and names its steps in the same order
(:meth:`~ganeti.cmdlib.base.LogicalUnit.steps`). A change of one needs a change of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.migration.cleanup import CleanupPlan
from ganeti.cmdlib.ops.migration.failover_to_any import FailoverToAnyPlan
from ganeti.cmdlib.ops.migration.migrate_to_any import MigrateToAnyPlan
from ganeti.constants.disk import INT_MIRRORED
from ganeti.constants.instance import ADMIN_OFFLINE, ADMIN_UP, CREATE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit, LogicalUnit
    from ganeti.cmdlib.ops.creation.plan import CreatePlan
    from ganeti.cmdlib.ops.migration.plan import MigrationPlan
    from ganeti.objects import Disk, Instance
    from ganeti.opcodes.instance import (
        OpInstanceCreate,
        OpInstanceGrowDisk,
        OpInstanceReboot,
        OpInstanceRemove,
        OpInstanceShutdown,
        OpInstanceStartup,
    )


def _node(unit: AnyUnit, uuid: str) -> str:
    return unit.config.node(uuid).name


def _nodes(unit: AnyUnit, instance: Instance) -> str:
    return ", ".join(_node(unit, uuid) for uuid in unit.config.instance_nodes(instance))


def _start(unit: AnyUnit, instance: Instance, node: str) -> list[str]:
    count = len(instance.disks)
    disks = f"activate its {count} disks on {node}" if count > 1 else f"activate its disk on {node}"
    return [disks, f"start it on {node}"] if count else [f"start it on {node}"]


def startup(
    unit: LogicalUnit[OpInstanceStartup, Any],
    instance: Instance,
    *,
    node_offline: bool,
    running: bool,
) -> list[str]:
    """Steps of ``LUInstanceStartup``.

    :param node_offline: the primary node is offline.
    :param running: the instance runs already.
    """
    steps = [] if unit.op.no_remember else [f"mark instance {instance.name} as up"]
    if node_offline:
        return [*steps, "do nothing on the node, which is offline"]
    if running:
        return [*steps, "do nothing on the node, where the instance runs already"]
    paused = ["leave it paused"] if unit.op.startup_paused else []
    return [*steps, *_start(unit, instance, _node(unit, instance.primary_node)), *paused]


def shutdown(
    unit: LogicalUnit[OpInstanceShutdown, Any], instance: Instance, *, node_offline: bool
) -> list[str]:
    """Steps of ``LUInstanceShutdown``.

    :param node_offline: the primary node is offline.
    """
    steps = (
        []
        if unit.op.no_remember or instance.admin_state == ADMIN_OFFLINE
        else [f"mark instance {instance.name} as down"]
    )
    if node_offline:
        return [*steps, "do nothing on the node, which is offline"]
    return [
        *steps,
        f"stop it on {_node(unit, instance.primary_node)}, at the latest after {unit.op.timeout} s",
        f"deactivate its disks on {_nodes(unit, instance)}",
    ]


def reboot(
    unit: LogicalUnit[OpInstanceReboot, Any], instance: Instance, *, running: bool, on_node: bool
) -> list[str]:
    """Steps of ``LUInstanceReboot``.

    :param running: the instance runs now.
    :param on_node: the hypervisor reboots it; else it is stopped and started.
    """
    node = _node(unit, instance.primary_node)
    steps = [f"mark instance {instance.name} as up"]
    if on_node:
        return [*steps, f"let the hypervisor of {node} reboot it ({unit.op.reboot_type})"]
    if running:
        steps += [
            f"stop it on {node}, at the latest after {unit.op.shutdown_timeout} s",
            f"deactivate its disks on {_nodes(unit, instance)}",
        ]
    return [*steps, *_start(unit, instance, node)]


def remove(unit: LogicalUnit[OpInstanceRemove, Any], instance: Instance) -> list[str]:
    """Steps of ``LUInstanceRemove``."""
    steps = [f"mark instance {instance.name} as down"] if instance.admin_state == ADMIN_UP else []
    if not instance.forthcoming:
        steps.append(
            f"stop it on {_node(unit, instance.primary_node)}, at the latest after"
            f" {unit.op.shutdown_timeout} s"
        )
        steps += [
            f"remove disk {index} ({disk.dev_type}, {disk.size} MiB) from {_nodes(unit, instance)}"
            for index, disk in enumerate(unit.config.instance_disks(instance))
        ]
    return [*steps, f"remove instance {instance.name} from the configuration"]


def _failover_to_any(plan: FailoverToAnyPlan) -> list[str]:
    instance, source, target = plan.instance, plan.source, plan.target.name
    steps = [f"make an empty replica of its disks on {target}"]
    if not source.offline:
        steps.append(f"stop instance {instance.name} on {source.name}")
    steps += [
        f"make {target} its primary node, mirrored to {plan.partner.name}",
        f"synchronise {target} from {plan.partner.name}",
    ]
    start = [f"start it on {target}"] if instance.admin_state == ADMIN_UP else []
    wait = ["wait until the replicas are in sync"]
    return [
        *steps,
        *(wait + start if plan.wait_for_sync else start + wait),
        f"destroy the old replica of its disks on {plan.left.name}",
    ]


def _migrate_to_any(plan: MigrateToAnyPlan) -> list[str]:
    source, target = plan.migration.source.name, plan.migration.target.name
    shrink = plan.migration.balloon_mib
    return [
        f"make a replica of its disks on {target}",
        f"disconnect {source} from {plan.left.name} and connect it to {target}",
        "wait until the replicas are in sync",
        f"destroy the old replica of its disks on {plan.left.name}",
        *([] if shrink is None else [f"shrink it to {shrink} MiB"]),
        f"let both {source} and {target} write to its disks",
        f"prepare {target} to accept it",
        f"send it from {source} to {target}{'' if plan.migration.live else ', paused meanwhile'}",
        f"make {target} its primary node, mirrored to {source}",
        f"let only {target} write to its disks",
    ]


def migrate(
    unit: AnyUnit, plan: MigrationPlan | MigrateToAnyPlan | CleanupPlan | FailoverToAnyPlan
) -> list[str]:
    """Steps of ``LUInstanceMigrate`` and ``LUInstanceFailover``."""
    if isinstance(plan, MigrateToAnyPlan):
        return _migrate_to_any(plan)
    if isinstance(plan, FailoverToAnyPlan):
        return _failover_to_any(plan)
    if isinstance(plan, CleanupPlan):
        names = ", ".join(node.name for node in plan.nodes)
        return [
            f"find out on which of {names} instance {plan.instance.name} runs",
            "make that node its primary node",
            "remove what is left on the others",
        ]
    instance, source, target = plan.instance, plan.source.name, plan.target.name
    if plan.failover:
        steps = (
            []
            if plan.source.offline
            else [f"stop instance {instance.name} on {source}", f"deactivate its disks on {source}"]
        )
        steps.append(f"make {target} its primary node")
        return steps + (_start(unit, instance, target) if instance.admin_state == ADMIN_UP else [])
    mirrored = unit.config.disk_template(instance) in INT_MIRRORED
    shrink = [] if plan.balloon_mib is None else [f"shrink it to {plan.balloon_mib} MiB"]
    return [
        *shrink,
        f"let both {source} and {target} write to its disks"
        if mirrored
        else f"activate its disks on {target}",
        f"prepare {target} to accept it",
        f"send it from {source} to {target}{'' if plan.live else ', paused meanwhile'}",
        f"make {target} its primary node",
        f"let only {target} write to its disks"
        if mirrored
        else f"deactivate its disks on {source}",
    ]


def create(unit: LogicalUnit[OpInstanceCreate, Any], plan: CreatePlan) -> list[str]:
    """Steps of ``LUInstanceCreate``."""
    nodes = ", ".join(node.name for node in plan.nodes)
    if unit.op.forthcoming:
        return [f"reserve resources for instance {unit.op.instance_name} on {nodes}"]
    adopted = any(spec.get("adopt") for spec in plan.disk_specs)
    steps = [
        f"make forthcoming instance {unit.op.instance_name} real"
        if unit.op.commit
        else f"add instance {unit.op.instance_name} to the configuration"
    ]
    steps += [
        f"{'adopt' if spec.get('adopt') else 'make'} disk {index} ({plan.disk_template},"
        f" {spec.get('size')} MiB) on {nodes}"
        for index, spec in enumerate(plan.disk_specs)
    ]
    if plan.disk_template in INT_MIRRORED and unit.op.wait_for_sync:
        steps.append("wait until the replicas of the disks are in sync")
    if plan.disk_specs and not (unit.op.no_install or adopted or not unit.op.os_type):
        steps.append(
            f"install OS {unit.op.os_type} on {plan.node.name}"
            if unit.op.mode == CREATE
            else f"import the content of the disks on {plan.node.name}"
        )
    return steps + ([f"start it on {plan.node.name}"] if unit.op.start else [])


def grow(
    unit: LogicalUnit[OpInstanceGrowDisk, Any], instance: Instance, disk: Disk, size_mib: int
) -> list[str]:
    """Steps of ``LUInstanceGrowDisk``.

    :param size_mib: the new size of the disk in MiB.
    """
    nodes = _nodes(unit, instance)
    return [
        f"simulate the growth on {nodes}",
        f"grow disk {unit.op.disk} of instance {instance.name} from {disk.size} MiB to"
        f" {size_mib} MiB on {nodes}",
        *(
            ["wait until its replicas are in sync"]
            if unit.op.wait_for_sync and disk.dev_type in INT_MIRRORED
            else []
        ),
    ]
