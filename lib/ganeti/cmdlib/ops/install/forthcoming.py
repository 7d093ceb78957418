"""Instances which are only reserved, and making them real.

A forthcoming instance is in the configuration with everything it will have: name, UUID, nodes,
disks with their names and minors, addresses, ports. Nothing of it exists on a node. Lists show it,
allocators (:mod:`ganeti.allocator.live`) and checks of free space
(:mod:`ganeti.cmdlib.ops.disks.capacity`) count what it will need; operations which need a guest or
a disk refuse it (:func:`ganeti.cmdlib.prereq.require_not_forthcoming`).

``OP_INSTANCE_CREATE`` makes both steps: with ``forthcoming`` it ends after the checks and the
commit of the configuration, with ``commit`` it is given the reservation's name and completes its
wishes from there: :func:`prepare`. A commit which fails leaves the reservation, with what the
commit had changed of it; one whose master dies leaves an instance marked down, like any other
creation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors, ht
from ganeti.constants.disk import DRBD8, EXT, HAVE_ACCESS, INT_MIRRORED, LVM_BASED, PLAIN
from ganeti.constants.instance import ADMIN_DOWN, REMOTE_IMPORT
from ganeti.objects import fill

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import ConfigData, Disk, Instance
    from ganeti.opcodes.instance import OpInstanceCreate


# -- wishes ----------------------------------------------------------------------


def prepare(unit: AnyUnit, op: OpInstanceCreate) -> Instance | None:
    """Complete the wishes for an instance that was reserved; None for all others.

    Changes only the opcode.

    :returns: the reservation which is to become real.
    :raises errors.OpPrereqError: there is none of this name, or the wishes contradict.
    """
    if op.forthcoming and op.commit:
        raise errors.OpPrereqError(
            "an instance is either reserved (forthcoming) or made real (commit), not both at once",
            errors.ECODE_INVAL,
        )
    if op.forthcoming:
        _check_reservation(unit, op)
    if not op.commit:
        return None
    reserved = unit.config.expand_instance(op.instance_name)
    if not reserved.forthcoming:
        raise errors.OpPrereqError(
            f"instance {reserved.name} is not forthcoming, so there is nothing to commit",
            errors.ECODE_STATE,
        )
    op.instance_name = reserved.name
    _take_over(unit, op, reserved)
    return reserved


def _check_reservation(unit: AnyUnit, op: OpInstanceCreate) -> None:
    if op.mode == REMOTE_IMPORT:
        raise errors.OpPrereqError(
            "an instance which another cluster sends cannot be forthcoming. Reserve it without a"
            " source, and name that with the commit.",
            errors.ECODE_INVAL,
        )
    if any(wish.get("adopt") for wish in op.disks):
        raise errors.OpPrereqError(
            "a forthcoming instance adopts no volumes. Name them when it is committed.",
            errors.ECODE_INVAL,
        )
    if op.osparams_secret:
        unit.warn("secret OS parameters are not kept, they must be given again with the commit")
    op.start = False


def _take_over(unit: AnyUnit, op: OpInstanceCreate, reserved: Instance) -> None:
    """What is not said is as reserved."""
    disks = unit.config.instance_disks(reserved)
    template = fill.disk_template(disks)
    if op.disk_template is None and not any(wish.get("dev_type") for wish in op.disks):
        op.disk_template = template if disks or not op.disks else None
    if not op.disks:
        op.disks = [_wish(disk, as_before=op.disk_template == template) for disk in disks]
    if op.hypervisor is None:
        op.hypervisor = reserved.hypervisor or None
    if op.hypervisor == reserved.hypervisor:
        op.hvparams = {**reserved.hvparams, **op.hvparams}
    given = dict(op.beparams)
    if "memory" in given:
        given["minmem"] = given["maxmem"] = given.pop("memory")
    op.beparams = {**reserved.beparams, **given}
    if op.os_type is None:
        op.os_type = reserved.os or None
    if op.os_type == reserved.os:
        _take_osparams(op, reserved)
    if not op.tags:
        op.tags = list(reserved.tags)
    if not (op.pnode or op.pnode_uuid or op.iallocator or op.group_name) and reserved.primary_node:
        op.pnode_uuid = reserved.primary_node
        others = unit.config.instance_nodes(reserved)[1:]
        mirrored = op.disk_template in INT_MIRRORED
        if others and mirrored and not (op.snode or op.snode_uuid):
            op.snode_uuid = others[0]


def _take_osparams(op: OpInstanceCreate, reserved: Instance) -> None:
    """A parameter which is given now, in whichever visibility, goes before the reserved one."""
    given = {*op.osparams, *(op.osparams_private or ()), *(op.osparams_secret or ())}

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in given}

    op.osparams = {**kept(reserved.osparams), **op.osparams}
    private = {**kept(reserved.osparams_private), **(op.osparams_private or {})}
    op.osparams_private = ht.PrivateDict(private) if private else None


def _wish(disk: Disk, *, as_before: bool) -> dict[str, Any]:
    """A reserved disk as somebody would ask for it.

    :param as_before: False when it becomes one of another kind, which has other parameters.
    """
    wish: dict[str, Any] = {"size": disk.size, "mode": disk.mode, "name": disk.name or "none"}
    if not as_before:
        return wish
    params = dict(disk.params or {})
    access = params.pop("access", None)
    if access and disk.dev_type in HAVE_ACCESS:
        wish["access"] = access
    if disk.spindles is not None:
        wish["spindles"] = disk.spindles
    volumes = [part.logical_id[0] for part in disk.walk() if part.dev_type == PLAIN]
    if disk.dev_type in LVM_BASED and volumes:
        wish["vg"] = volumes[0]
    if disk.dev_type == DRBD8 and len(volumes) > 1:
        wish["metavg"] = volumes[1]
    if disk.dev_type == EXT:
        wish |= {**params, "provider": disk.logical_id[0]}
    return wish


def require_unchanged(unit: AnyUnit, reserved: Instance) -> None:
    """The reservation is still what the wishes were completed from.

    :raises errors.OpPrereqError: it was changed or committed while the job waited for its locks.
    """
    fresh = unit.config.snapshot().instances.get(reserved.uuid)
    if fresh != reserved:
        raise errors.OpPrereqError(
            f"forthcoming instance {reserved.name} was changed while the job waited. Please"
            " repeat.",
            errors.ECODE_STATE,
        )


def same_place(unit: AnyUnit, reserved: Instance, template: str, nodes: Sequence[str]) -> bool:
    """Are these the kind of disks and the nodes which were reserved?"""
    disks = unit.config.instance_disks(reserved)
    return fill.disk_template(disks) == template and (
        tuple(nodes) == tuple(unit.config.instance_nodes(reserved))
    )


def without(config: ConfigData, reserved: Instance | None) -> ConfigData:
    """The configuration as it would be without a reservation."""
    if reserved is None:
        return config
    instances = {uuid: i for uuid, i in config.instances.items() if uuid != reserved.uuid}
    disks = {uuid: d for uuid, d in config.disks.items() if uuid not in reserved.disks}
    return dataclasses.replace(config, instances=instances, disks=disks)


# -- what it becomes -------------------------------------------------------------


def reservation(instance: Instance, disks: Sequence[Disk]) -> tuple[Instance, list[Disk]]:
    """Instance and disks as they are stored while they are only reserved."""
    return (
        dataclasses.replace(instance, forthcoming=True, admin_state=ADMIN_DOWN, disks_active=False),
        [dataclasses.replace(disk, forthcoming=True) for disk in disks],
    )


def real(disks: Sequence[Disk]) -> list[Disk]:
    """Reserved disks as they are stored when they shall exist."""
    return [dataclasses.replace(disk, forthcoming=None) for disk in disks]
