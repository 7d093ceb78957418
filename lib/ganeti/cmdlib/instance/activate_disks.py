"""Activate the disks of an instance by hand."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import sync
from ganeti.cmdlib.ops.disks.activation_unit import DiskActivationUnit
from ganeti.cmdlib.ops.liveness import location
from ganeti.objects import Disk, Instance
from ganeti.opcodes.instance import OpInstanceActivateDisks
from ganeti.utils.undo import UndoStack

ActivatedDisk: TypeAlias = list[str | None]


@executes(OpInstanceActivateDisks)
class LUInstanceActivateDisks(DiskActivationUnit[OpInstanceActivateDisks]):
    """Make the disks usable on the primary node; active disks stay active."""

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "activate disks of")
        prereq.require_online_primary(self.config, self.instance)
        location.require_not_elsewhere(self.ctx, self.instance)
        return self.instance

    def exec(self, plan: Instance) -> list[ActivatedDisk]:
        """Activate the disks.

        :returns: for each disk its primary node, its name in the configuration and its device.
        """
        disks = self.config.instance_disks(plan)
        if self.op.ignore_size:
            disks = tuple(_without_size(disk) for disk in disks)
        was_active = plan.disks_active
        with UndoStack(self.log.warn) as undo:
            if not was_active:
                undo.add(
                    f"active disks of {plan.name}",
                    disk_work.shutdown_disks,
                    self.config,
                    self.rpc,
                    plan,
                )
            found = disk_work.assemble_disks(self.ctx, plan, disks=disks)
            undo.commit()
        with self.config.transaction() as change:
            change.instances.set_disks_active(plan.uuid, True)
        if self.op.wait_for_sync:
            try:
                sync.require_in_sync(self.ctx, plan, disks)
            except errors.OpExecError:
                if not was_active:
                    with self.config.transaction() as change:
                        change.instances.set_disks_active(plan.uuid, False)
                raise
        return [list(row) for row in found]


def _without_size(disk: Disk) -> Disk:
    """Return the disk without its size, so that the node does not compare sizes."""
    return dataclasses.replace(
        disk, size=0, children=tuple(_without_size(child) for child in disk.children)
    )
