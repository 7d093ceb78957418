"""The objects of a new instance, as they go into the configuration."""

from __future__ import annotations

from ganeti import ht
from ganeti.cmdlib import prereq
from ganeti.cmdlib.ops.creation.plan import CreatePlan
from ganeti.cmdlib.ops.disks import specs
from ganeti.cmdlib.ops.install import forthcoming
from ganeti.cmdlib.ops.placement.new_instance import NewInstanceUnit
from ganeti.objects import Disk, Instance, hypervisors
from ganeti.utils import clock


def instance_and_disks(
    unit: NewInstanceUnit[CreatePlan], plan: CreatePlan
) -> tuple[Instance, list[Disk]]:
    """Make the objects; this reserves their ports and DRBD minors."""
    op, reserved = unit.op, unit.reserved
    disks = _disks(unit, plan)
    now = clock.now()
    port = None
    if hypervisors.of(plan.hypervisor).needs_port:
        port = None if reserved is None else reserved.network_port
        if not port:
            port = unit.config.reserve_port()
    # Without disks nothing has to be made before it can run.
    at_once = op.start and not disks
    instance = Instance(
        name=unit.name,
        primary_node=plan.node.uuid,
        os=op.os_type or "",
        hypervisor=plan.hypervisor,
        hvparams=plan.parameters.hvparams,
        beparams=plan.parameters.beparams,
        osparams=dict(op.osparams),
        osparams_private=ht.PrivateDict(op.osparams_private or {}),
        admin_state=prereq.ADMIN_UP if at_once else prereq.ADMIN_DOWN,
        admin_state_source="admin",
        nics=tuple(planned.nic for planned in plan.nics),
        disks=tuple(disk.uuid for disk in disks),
        disks_active=at_once,
        network_port=port,
        tags=tuple(sorted(set(op.tags))),
        uuid=unit.uuid,
        ctime=now if reserved is None else reserved.ctime,
        mtime=now,
        serial_no=1 if reserved is None else reserved.serial_no,
    )
    return instance, disks


def _disks(unit: NewInstanceUnit[CreatePlan], plan: CreatePlan) -> list[Disk]:
    """Return the disks of the reservation if they can be kept, else new ones."""
    nodes = [node.uuid for node in plan.nodes]
    if (
        unit.reserved is not None
        and unit.keeps_disks
        and forthcoming.same_place(unit.config, unit.reserved, plan.disk_template, nodes)
    ):
        return forthcoming.real(unit.config.instance_disks(unit.reserved))
    return specs.make_disks(
        unit.config,
        plan.disk_template,
        plan.disk_specs,
        primary_node=plan.node.uuid,
        secondary_node=None if plan.secondary is None else plan.secondary.uuid,
        directory=plan.disk_directory,
        driver=unit.op.file_driver,
    )
