"""Instance policy: what sizes of instances a node group wants to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.objects import hypervisors, ipolicy

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import FilledInstance, Node


# Larger disks count, whatever they are called.
_FIRMWARE_DISK_MIB = 64


def counted_sizes(
    hypervisor: str,
    filled: Callable[[], Mapping[str, Any]],
    disks: Iterable[tuple[str | None, int]],
) -> list[int | None]:
    """Sizes of disks as :func:`violations` wants them: of those which belong to the firmware none,
    as they are as small as they are whatever sizes instances shall have.

    :param filled: tells the hypervisor parameters, when they matter.
    :param disks: name and size in MiB of each.
    """
    sizes: list[int | None] = []
    for name, size in disks:
        descriptor = hypervisors.of(hypervisor)
        small = name in descriptor.firmware_disk_names and size <= _FIRMWARE_DISK_MIB
        own = small and name in descriptor.firmware_disks(filled())
        sizes.append(None if own else size)
    return sizes


def violations(
    unit: AnyUnit,
    node: Node,
    *,
    beparams: Mapping[str, Any],
    disk_sizes_mib: Iterable[int | None],
    nic_count: int,
    disk_template: str,
) -> list[str]:
    """In which ways an instance would violate the policy of the node's group."""
    group = unit.config.snapshot().nodegroups[node.group]
    return ipolicy.check(
        unit.config.cluster().fill_ipolicy(group),
        memory_mib=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        disk_sizes_mib=disk_sizes_mib,
        nic_count=nic_count,
        spindle_use=beparams["spindle_use"],
        disk_template=disk_template,
    )


def instance_violations(unit: AnyUnit, instance: FilledInstance, node: Node) -> list[str]:
    """The same for an instance which exists."""
    group = unit.config.snapshot().nodegroups[node.group]
    return of_instance(unit.config.cluster().fill_ipolicy(group), instance)


def of_instance(policy: Mapping[str, Any], instance: FilledInstance) -> list[str]:
    """In which ways an instance violates a (filled) policy."""
    return ipolicy.check(
        policy,
        memory_mib=instance.beparams["maxmem"],
        vcpus=instance.beparams["vcpus"],
        disk_sizes_mib=counted_sizes(
            instance.hypervisor,
            lambda: instance.hvparams,
            ((disk.name, disk.size) for disk in instance.disks_info),
        ),
        nic_count=len(instance.nics),
        spindle_use=instance.beparams["spindle_use"],
        disk_template=instance.disk_template,
    )


def require_policy(unit: AnyUnit, instance: FilledInstance, node: Node, *, ignore: bool) -> None:
    """The instance fits the policy of the node's group; with ``ignore``, violations are
    warnings."""
    refuse(unit, instance.name, node, instance_violations(unit, instance, node), ignore=ignore)


def refuse(unit: AnyUnit, name: str, node: Node, found: list[str], *, ignore: bool) -> None:
    """Refuse because of the violations found, if any; or warn."""
    if not found:
        return
    group = unit.config.snapshot().nodegroups[node.group]
    text = f"instance {name} violates the policy of group {group.name}: {'; '.join(found)}"
    if not ignore:
        raise errors.OpPrereqError(f"{text}. Use --ignore-ipolicy to override.", errors.ECODE_INVAL)
    unit.warn(text)
