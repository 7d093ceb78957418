"""What the commonest operations on instances do, in words, for their dry runs.

Each function belongs to one ``exec`` and says in the same order what that does
(:meth:`~ganeti.cmdlib.base.LogicalUnit.steps`); whoever changes one changes the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.migration.failover_to_any import AnywherePlan
from ganeti.cmdlib.ops.migration.procedure import CleanupPlan, MovePlan
from ganeti.constants.disk import INT_MIRRORED
from ganeti.constants.instance import ADMIN_OFFLINE, ADMIN_UP, CREATE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import Instance


def _node(unit: AnyUnit, uuid: str) -> str:
    return unit.config.node(uuid).name


def _nodes(unit: AnyUnit, instance: Instance) -> str:
    return ", ".join(_node(unit, uuid) for uuid in unit.config.instance_nodes(instance))


def _start(unit: AnyUnit, instance: Instance, node: str) -> list[str]:
    count = len(instance.disks)
    disks = f"activate its {count} disks on {node}" if count > 1 else f"activate its disk on {node}"
    return [disks, f"start it on {node}"] if count else [f"start it on {node}"]


def startup(unit: AnyUnit, plan: Any) -> list[str]:
    """Of ``LUInstanceStartup``."""
    instance = plan.instance
    steps = [] if unit.op.no_remember else [f"mark instance {instance.name} as up"]
    if plan.node_offline:
        return [*steps, "leave the node alone, which is offline"]
    if plan.running:
        return [*steps, "leave it alone, it runs already"]
    paused = ["leave it paused"] if unit.op.startup_paused else []
    return [*steps, *_start(unit, instance, _node(unit, instance.primary_node)), *paused]


def shutdown(unit: AnyUnit, plan: Any) -> list[str]:
    """Of ``LUInstanceShutdown``."""
    instance = plan.instance
    steps = (
        []
        if unit.op.no_remember or instance.admin_state == ADMIN_OFFLINE
        else [f"mark instance {instance.name} as down"]
    )
    if plan.node_offline:
        return [*steps, "leave the node alone, which is offline"]
    return [
        *steps,
        f"stop it on {_node(unit, instance.primary_node)}, at the latest after {unit.op.timeout} s",
        f"deactivate its disks on {_nodes(unit, instance)}",
    ]


def reboot(unit: AnyUnit, plan: Any) -> list[str]:
    """Of ``LUInstanceReboot``."""
    instance = plan.instance
    node = _node(unit, instance.primary_node)
    steps = [f"mark instance {instance.name} as up"]
    if plan.on_node:
        return [*steps, f"let the hypervisor of {node} reboot it ({unit.op.reboot_type})"]
    if plan.running:
        steps += [
            f"stop it on {node}, at the latest after {unit.op.shutdown_timeout} s",
            f"deactivate its disks on {_nodes(unit, instance)}",
        ]
    return [*steps, *_start(unit, instance, node)]


def remove(unit: AnyUnit, instance: Instance) -> list[str]:
    """Of ``LUInstanceRemove``."""
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


def _anywhere(plan: AnywherePlan) -> list[str]:
    instance, source, target = plan.instance, plan.source, plan.target.name
    steps = [f"make an empty half of its disks on {target}"]
    if not source.offline:
        steps.append(f"stop instance {instance.name} on {source.name}")
    steps += [
        f"make {target} its primary node, mirrored to {plan.partner.name}",
        f"let {target} be filled from {plan.partner.name}",
    ]
    if instance.admin_state == ADMIN_UP:
        steps.append(f"start it on {target}")
    return [
        *steps,
        "wait until all is in step",
        f"destroy the old half of its disks on {plan.left.name}",
    ]


def move(unit: AnyUnit, plan: MovePlan | CleanupPlan | AnywherePlan) -> list[str]:
    """Of ``LUInstanceMigrate`` and ``LUInstanceFailover``."""
    if isinstance(plan, AnywherePlan):
        return _anywhere(plan)
    if isinstance(plan, CleanupPlan):
        names = ", ".join(node.name for node in plan.nodes)
        return [
            f"look on {names} where instance {plan.instance.name} runs",
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
        f"let {target} wait for it",
        f"send it from {source} to {target}{'' if plan.live else ', frozen meanwhile'}",
        f"make {target} its primary node",
        f"let only {target} write to its disks"
        if mirrored
        else f"deactivate its disks on {source}",
    ]


def create(unit: AnyUnit, plan: Any) -> list[str]:
    """Of ``LUInstanceCreate``."""
    nodes = ", ".join(node.name for node in plan.nodes)
    if unit.op.forthcoming:
        return [f"reserve resources for instance {unit.op.instance_name} on {nodes}"]
    adopted = any(wish.get("adopt") for wish in plan.disk_wishes)
    steps = [
        f"make forthcoming instance {unit.op.instance_name} real"
        if unit.op.commit
        else f"add instance {unit.op.instance_name} to the configuration"
    ]
    steps += [
        f"{'take over' if wish.get('adopt') else 'make'} disk {index} ({plan.disk_template},"
        f" {wish.get('size')} MiB) on {nodes}"
        for index, wish in enumerate(plan.disk_wishes)
    ]
    if plan.disk_template in INT_MIRRORED and unit.op.wait_for_sync:
        steps.append("wait until the halves of the disks are in step")
    if plan.disk_wishes and not (unit.op.no_install or adopted or not unit.op.os_type):
        steps.append(
            f"let OS {unit.op.os_type} install it on {plan.node.name}"
            if unit.op.mode == CREATE
            else f"import its contents on {plan.node.name}"
        )
    return steps + ([f"start it on {plan.node.name}"] if unit.op.start else [])


def grow(unit: AnyUnit, plan: Any) -> list[str]:
    """Of ``LUInstanceGrowDisk``."""
    instance = plan.instance
    return [
        f"rehearse on {_nodes(unit, instance)}",
        f"grow disk {unit.op.disk} of instance {instance.name} from {plan.disk.size} MiB to"
        f" {plan.size_mib} MiB on {_nodes(unit, instance)}",
        *(
            ["wait until its halves are in step"]
            if unit.op.wait_for_sync and plan.disk.dev_type in INT_MIRRORED
            else []
        ),
    ]
