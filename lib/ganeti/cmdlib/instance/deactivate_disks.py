"""Deactivate the disks of an instance by hand."""

from __future__ import annotations

from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.activation_unit import DiskActivationUnit
from ganeti.cmdlib.ops.liveness import location
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceDeactivateDisks


@executes(OpInstanceDeactivateDisks)
class LUInstanceDeactivateDisks(DiskActivationUnit[OpInstanceDeactivateDisks]):
    """Deactivate the disks of a stopped instance on all its nodes."""

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "deactivate disks of")
        if self.op.force:
            location.require_not_elsewhere(self.ctx, instance)
            return instance
        prereq.require_online(self.config.node(instance.primary_node))
        location.require_stopped(self.ctx, instance, "deactivate disks of")
        return instance

    def exec(self, plan: Instance) -> None:
        disk_work.shutdown_disks(self.config, self.rpc, plan)
        with self.config.transaction() as change:
            change.instances.set_disks_active(plan.uuid, False)
