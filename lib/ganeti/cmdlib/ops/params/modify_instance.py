"""Changes of the parameters and of the marked state of an existing instance.

``LUInstanceSetParams.check_prereq`` calls these functions. They ask nodes, but change nothing; they
return the instance as it will be, and append the changes to the results of the opcode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ganeti import errors, ht
from ganeti.cmdlib import prereq
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.params import devices, os
from ganeti.cmdlib.ops.params import instance as params
from ganeti.constants.disk import USERSPACE
from ganeti.constants.instance import BE_PARAM_TYPES
from ganeti.objects import Instance, Node, fill, hypervisors

if TYPE_CHECKING:
    from ganeti.cmdlib.base import Context, LogicalUnit
    from ganeti.opcodes.instance import OpInstanceSetParams

    ModifyingUnit: TypeAlias = LogicalUnit[OpInstanceSetParams, Any]

ChangeResult: TypeAlias = tuple[str, Any]
"""What was changed, such as ``be/maxmem``, and its new value, a JSON value."""


def planned_parameters(
    unit: ModifyingUnit, instance: Instance, primary: Node, results: list[ChangeResult]
) -> Instance:
    """Check changes of hypervisor, backend and OS parameters.

    :param primary: the (new) primary node.
    :raises errors.OpPrereqError: a parameter is wrong, or a node cannot use it.
    """
    op = unit.op
    values: dict[str, Any] = {}
    os_name = op.os_name or instance.os
    if op.os_name:
        values["os"] = os_name
        results.append(("os", os_name))
    hypervisor = instance.hypervisor
    present = instance.hvparams
    if op.hypervisor and op.hypervisor != hypervisor:
        require_other_hypervisor(unit.ctx, instance, op.hypervisor)
        if present:
            unit.log.info(
                f"these parameters of hypervisor {hypervisor} are dropped:"
                f" {', '.join(sorted(present))}"
            )
        hypervisor, present = op.hypervisor, {}
        values["hypervisor"], values["hvparams"] = hypervisor, present
        results.append(("hypervisor", hypervisor))
    if op.hvparams:
        values["hvparams"] = devices.updated_params(
            f"parameters of hypervisor {hypervisor}",
            present,
            op.hvparams,
            lambda given: params.checked_hvparams(hypervisor, given),
            hypervisors.of(hypervisor).parameters,
        )
        results += [(f"hv/{key}", value) for key, value in sorted(op.hvparams.items())]
    if op.beparams:
        given = params.split_memory(op.beparams)
        values["beparams"] = devices.updated_params(
            "backend parameters",
            instance.beparams,
            given,
            params.checked_beparams,
            BE_PARAM_TYPES,
        )
        results += [(f"be/{key}", value) for key, value in sorted(given.items())]
    for name, label in (("osparams", "os"), ("osparams_private", "os_private")):
        changes = getattr(op, name)
        if changes:
            merged = os.merged(getattr(instance, name), changes)
            private = name == "osparams_private"
            values[name] = ht.PrivateDict(merged) if private else merged
            results += [
                (f"{label}/{key}", "<hidden>" if private else changes[key])
                for key in sorted(changes)
            ]
    planned = dataclasses.replace(instance, **values)
    _check_planned(unit, instance, planned, primary)
    return planned


def require_other_hypervisor(ctx: Context, instance: Instance, name: str) -> None:
    """Check that a stopped instance may change to another hypervisor.

    :raises errors.OpPrereqError: the cluster or a node of the instance does not have it, the
        instance runs, or its disks are opened by the present hypervisor itself.
    """
    config = ctx.config
    if name not in config.cluster().enabled_hypervisors:
        raise errors.OpPrereqError(
            f"hypervisor {name} is not enabled in this cluster, only"
            f" {', '.join(config.cluster().enabled_hypervisors)}",
            errors.ECODE_STATE,
        )
    prereq.require_admin_state(
        instance, (prereq.ADMIN_DOWN, prereq.ADMIN_OFFLINE), "change the hypervisor of"
    )
    for uuid in config.instance_nodes(instance):
        node = config.node(uuid)
        prereq.require_online(node)
        prereq.require_hypervisor(ctx.config, node, name)
    info = location.require_only_on_primary(ctx, instance, certain_to="change the hypervisor of")
    if prereq.is_running(info):
        raise errors.OpPrereqError(
            f"instance {instance.name} still runs; stop it before its hypervisor is changed",
            errors.ECODE_STATE,
        )
    if hypervisors.of(name).opens_disk_uris:
        return
    for index, disk in enumerate(config.filled(instance).disks_info):
        if (disk.params or {}).get("access") == USERSPACE:
            raise errors.OpPrereqError(
                f"disk {index} of instance {instance.name} has access={USERSPACE}, which"
                f" hypervisor {name} does not support. Set access=kernelspace first",
                errors.ECODE_STATE,
            )


def _check_planned(
    unit: ModifyingUnit, instance: Instance, planned: Instance, primary: Node
) -> None:
    op, cluster = unit.op, unit.config.cluster()
    filled_hv = fill.instance_hv(cluster, planned)
    filled_be = fill.fill_be(cluster, planned.beparams)
    params.require_sane_backend(filled_be)
    if op.hvparams or planned.hypervisor != instance.hypervisor:
        params.require_hv_syntax(planned.hypervisor, filled_hv)
        nodes = [primary.uuid, *unit.config.secondary_nodes(instance)]
        prereq.hvparams_check(unit.config, nodes, planned.hypervisor, filled_hv).make(unit.rpc)
    if (op.os_name or op.osparams or op.osparams_private) and not op.force:
        _check_os(unit, planned, primary)
    if op.beparams and not op.force and not primary.offline:
        _check_memory(unit, instance, filled_be, filled_hv, primary)


def _check_os(unit: ModifyingUnit, planned: Instance, primary: Node) -> None:
    osparams, image = os.for_installation(
        unit.config.cluster(), planned.os, planned.osparams, planned.osparams_private, {}
    )
    if not planned.os:
        if image:
            return
        raise errors.OpPrereqError(
            f"instance {planned.name} has no operating system", errors.ECODE_INVAL
        )
    prereq.require_online(primary)
    wanted = prereq.WantedOs(planned.os, osparams, unit.op.force_variant)
    prereq.require_os(unit.config, unit.rpc, primary.uuid, wanted)


def _check_memory(
    unit: ModifyingUnit,
    instance: Instance,
    filled_be: Mapping[str, Any],
    filled_hv: Mapping[str, Any],
    primary: Node,
) -> None:
    """Check that an instance with more memory can still be started on its node."""
    before = fill.fill_be(unit.config.cluster(), instance.beparams)
    if filled_be["maxmem"] <= before["maxmem"]:
        return
    hypervisor = unit.op.hypervisor or instance.hypervisor
    used_mib = location.info_on_primary(unit.config, unit.rpc, instance).get("memory", 0)
    free_mib = prereq.node_facts(unit.rpc, primary.uuid, hypervisor, filled_hv).get("memory_free")
    if isinstance(free_mib, int) and filled_be["minmem"] > free_mib + used_mib:
        raise errors.OpPrereqError(
            f"node {primary.name} lacks {filled_be['minmem'] - free_mib - used_mib} MiB to"
            f" start instance {instance.name} with this memory. Use --force to set it"
            " nevertheless.",
            errors.ECODE_NORES,
        )


def check_runtime_memory(
    unit: ModifyingUnit, instance: Instance, planned: Instance, results: list[ChangeResult]
) -> None:
    """Check a change of the memory of the running guest.

    :param planned: the instance as it will be; its limits count.
    :raises errors.OpPrereqError: it does not run, the size is outside of its limits, or the node
        has too little free memory.
    """
    wanted_mib = unit.op.runtime_mem
    if not wanted_mib:
        return
    info = location.require_only_on_primary(unit.ctx, instance)
    if not prereq.is_running(info):
        raise errors.OpPrereqError(f"instance {instance.name} does not run", errors.ECODE_STATE)
    filled = unit.config.filled(planned)
    low, high = filled.beparams["minmem"], filled.beparams["maxmem"]
    if not unit.op.force and not low <= wanted_mib <= high:
        raise errors.OpPrereqError(
            f"instance {instance.name} must have between {low} and {high} MiB of memory. Use"
            " --force to go beyond.",
            errors.ECODE_INVAL,
        )
    more_mib = wanted_mib - int(info.get("memory", 0))
    if more_mib > 0:
        prereq.memory_check(
            unit.config.node(instance.primary_node),
            f"growing the memory of instance {instance.name}",
            more_mib,
            instance.hypervisor,
            filled.hvparams,
        ).make(unit.rpc)
    results.append(("runtime_memory", wanted_mib))


def planned_admin_state(
    unit: ModifyingUnit, planned: Instance, results: list[ChangeResult]
) -> Instance:
    """Check a change between the marked states *down* and *offline*.

    :raises errors.OpPrereqError: the instance is marked up.
    """
    if unit.op.offline is None:
        return planned
    wanted = prereq.ADMIN_OFFLINE if unit.op.offline else prereq.ADMIN_DOWN
    allowed = prereq.ADMIN_DOWN if unit.op.offline else prereq.ADMIN_OFFLINE
    if planned.admin_state == wanted:
        return planned
    prereq.require_admin_state(planned, (allowed,), f"set the state {wanted!r} of")
    results.append(("admin_state", wanted))
    return dataclasses.replace(planned, admin_state=wanted)
