"""Activating and deactivating the disks of an instance by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.instance import disks as disk_work
from ganeti.cmdlib.instance import sync
from ganeti.cmdlib.undo import Undo
from ganeti.locking import Level
from ganeti.objects import Disk, Instance
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceDeactivateDisks


class _DiskUnit(LogicalUnit):
    """Works on the disks of one instance, on all nodes which have them."""

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            nodes = self.config.instance_nodes(self.instance)
            self.need(level, nodes, shared=level is Level.NODE)


@executes(OpInstanceActivateDisks)
class LUInstanceActivateDisks(_DiskUnit):
    """Make the disks usable on the primary node; what is active already stays so."""

    op: OpInstanceActivateDisks

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "activate disks of")
        prereq.require_online(self.config.node(self.instance.primary_node))
        return self.instance

    def exec(self, plan: Instance) -> list[list[Any]]:
        disks = self.config.instance_disks(plan)
        if self.op.ignore_size:
            disks = tuple(_without_size(disk) for disk in disks)
        was_active = plan.disks_active
        with Undo(self.warn) as undo:
            if not was_active:
                undo.add(f"active disks of {plan.name}", disk_work.shutdown_disks, self, plan)
            found = disk_work.assemble_disks(self, plan, disks=disks)
            undo.commit()
        self.config.set_disks_active(plan.uuid, True)
        if self.op.wait_for_sync:
            try:
                sync.require_in_step(self, plan, disks)
            except errors.OpExecError:
                if not was_active:
                    self.config.set_disks_active(plan.uuid, False)
                raise
        return [list(row) for row in found]


def _without_size(disk: Disk) -> Disk:
    """A disk whose recorded size is not compared with what is there."""
    return dataclasses.replace(
        disk, size=0, children=tuple(_without_size(child) for child in disk.children)
    )


@executes(OpInstanceDeactivateDisks)
class LUInstanceDeactivateDisks(_DiskUnit):
    """Give the disks of a stopped instance back to the system."""

    op: OpInstanceDeactivateDisks

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "deactivate disks of")
        if self.op.force:
            return instance
        prereq.require_online(self.config.node(instance.primary_node))
        prereq.require_stopped(self, instance, "deactivate disks of")
        return instance

    def exec(self, plan: Instance) -> None:
        disk_work.shutdown_disks(self, plan)
        self.config.set_disks_active(plan.uuid, False)
