"""Forthcoming instances: reserve an instance, and make it real later.

A forthcoming instance is in the configuration with everything it will have: name, UUID, nodes,
disks with their names and minors, addresses, ports. Nothing of it exists on a node. Lists show it,
allocators (:mod:`ganeti.allocator.live`) and checks of free space
(:mod:`ganeti.cmdlib.ops.disks.capacity`) count what it will need; operations which need a guest or
a disk refuse it (:func:`ganeti.cmdlib.prereq.require_not_forthcoming`).

``OP_INSTANCE_CREATE`` makes both steps: with ``forthcoming`` it ends after the checks and the
commit of the configuration, with ``commit`` it gets the name of the reservation and completes its
parameters from there: :func:`completed_op`. A commit which fails leaves the reservation, with the
changes of the commit; one whose master dies leaves an instance marked down, like any other
creation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.ops.disks import specs
from ganeti.cmdlib.ops.params import new_instance
from ganeti.constants.instance import ADMIN_DOWN, REMOTE_IMPORT
from ganeti.objects import fill
from ganeti.objects.disk_templates import INT_MIRRORED

if TYPE_CHECKING:
    from ganeti.cmdlib.base import JobLog
    from ganeti.config import Config
    from ganeti.objects import ConfigData, Disk, Instance
    from ganeti.opcodes.instance import OpInstanceCreate


# -- parameters ------------------------------------------------------------------


def reserved_instance(config: Config, op: OpInstanceCreate) -> Instance | None:
    """Find the reservation which is to become real; None if the opcode commits none.

    :raises errors.OpPrereqError: there is none of this name, or it was made real already.
    """
    if not op.commit:
        return None
    reserved = config.expand_instance(op.instance_name)
    if not reserved.forthcoming:
        raise errors.OpPrereqError(
            f"instance {reserved.name} is not forthcoming, so there is nothing to commit",
            errors.ECODE_STATE,
        )
    return reserved


def require_possible(log: JobLog, op: OpInstanceCreate) -> None:
    """Check the parameters of a reservation.

    :raises errors.OpPrereqError: parameters exclude each other.
    """
    if not op.forthcoming:
        return
    if op.commit:
        raise errors.OpPrereqError(
            "an instance is either reserved (forthcoming) or made real (commit), not both at once",
            errors.ECODE_INVAL,
        )
    if op.mode == REMOTE_IMPORT:
        raise errors.OpPrereqError(
            "an instance from another cluster cannot be forthcoming. Reserve it without a source,"
            " and name the source with the commit.",
            errors.ECODE_INVAL,
        )
    if any(spec.get("adopt") for spec in op.disks):
        raise errors.OpPrereqError(
            "a forthcoming instance adopts no volumes. Name them when it is committed.",
            errors.ECODE_INVAL,
        )
    if op.osparams_secret:
        log.warn("secret OS parameters are not stored, give them again with the commit")


def completed_op(
    config: Config, op: OpInstanceCreate, reserved: Instance | None
) -> OpInstanceCreate:
    """Return the opcode with the parameters of the reservation where no others are given."""
    if reserved is None:
        return op.replace(start=False) if op.forthcoming else op
    op = _with_disks(new_instance.completed_op(op, reserved), config.instance_disks(reserved))
    hypervisor = (reserved.hypervisor or None) if op.hypervisor is None else op.hypervisor
    hvparams = reserved.hvparams if hypervisor == reserved.hypervisor else {}
    op = op.replace(
        instance_name=reserved.name,
        hypervisor=hypervisor,
        hvparams={**hvparams, **op.hvparams},
    )
    if op.pnode or op.pnode_uuid or op.iallocator or op.group_name or not reserved.primary_node:
        return op
    op = op.replace(pnode_uuid=reserved.primary_node)
    others = config.instance_nodes(reserved)[1:]
    if others and op.disk_template in INT_MIRRORED and not (op.snode or op.snode_uuid):
        op = op.replace(snode_uuid=others[0])
    return op


def _with_disks(op: OpInstanceCreate, disks: Sequence[Disk]) -> OpInstanceCreate:
    template = fill.disk_template(disks)
    if op.disk_template is None and not any(spec.get("dev_type") for spec in op.disks):
        op = op.replace(disk_template=template if disks or not op.disks else None)
    if op.disks:
        return op
    as_before = op.disk_template == template
    return op.replace(disks=[specs.as_given(disk, as_before=as_before) for disk in disks])


def require_unchanged(config: Config, reserved: Instance) -> None:
    """Check that the reservation did not change since the parameters were taken from it.

    :raises errors.OpPrereqError: it was changed or committed while the job waited for its locks.
    """
    fresh = config.snapshot().instances.get(reserved.uuid)
    if fresh != reserved:
        raise errors.OpPrereqError(
            f"forthcoming instance {reserved.name} was changed while the job waited. Please"
            " repeat.",
            errors.ECODE_STATE,
        )


def same_place(config: Config, reserved: Instance, template: str, nodes: Sequence[str]) -> bool:
    """Return True if disk template and nodes are the reserved ones."""
    disks = config.instance_disks(reserved)
    return fill.disk_template(disks) == template and (
        tuple(nodes) == tuple(config.instance_nodes(reserved))
    )


def without(config: ConfigData, reserved: Instance | None) -> ConfigData:
    """Return the configuration without a reservation and its disks; the same when there is none."""
    if reserved is None:
        return config
    instances = {uuid: i for uuid, i in config.instances.items() if uuid != reserved.uuid}
    disks = {uuid: d for uuid, d in config.disks.items() if uuid not in reserved.disks}
    return dataclasses.replace(config, instances=instances, disks=disks)


# -- objects ---------------------------------------------------------------------


def reservation(instance: Instance, disks: Sequence[Disk]) -> tuple[Instance, list[Disk]]:
    """Instance and disks as the configuration stores them while they are forthcoming."""
    return (
        dataclasses.replace(instance, forthcoming=True, admin_state=ADMIN_DOWN, disks_active=False),
        [dataclasses.replace(disk, forthcoming=True) for disk in disks],
    )


def real(disks: Sequence[Disk]) -> list[Disk]:
    """Reserved disks as the configuration stores them when they exist."""
    return [dataclasses.replace(disk, forthcoming=None) for disk in disks]
