"""Repairing a storage unit of a node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.node.storage_query import storage_arguments
from ganeti.constants import disk as disk_c
from ganeti.opcodes.node import (
    OpRepairNodeStorage,
)
from ganeti.wire.calls import (
    BLOCKDEV_FIND,
    STORAGE_EXECUTE,
)

FIX_CONSISTENCY = "fix-consistency"
REPAIRABLE = (disk_c.ST_LVM_VG,)


@executes(OpRepairNodeStorage)
class LURepairNodeStorage(LogicalUnit[OpRepairNodeStorage, None]):
    """Take lost devices out of a volume group."""

    def expand_names(self) -> None:
        op = self.op
        if op.storage_type not in REPAIRABLE or not op.name:
            raise errors.OpPrereqError(
                f"storage of type {op.storage_type!r} cannot be repaired", errors.ECODE_INVAL
            )
        self.node = self.lock_node(op.node_name, op.node_uuid)

    def check_prereq(self) -> None:
        """Nobody's only good copy may be on this node."""
        primaries, secondaries = self.config.node_instances(self.node.uuid)
        for instance in (*primaries, *secondaries):
            if not instance.disks_active:
                continue
            for uuid in self.config.instance_nodes(instance):
                if uuid != self.node.uuid:
                    self._check_other_half(instance.uuid, uuid)

    def _check_other_half(self, instance_uuid: str, node_uuid: str) -> None:
        instance = self.config.instance(instance_uuid)
        for disk in self.config.instance_disks(instance):
            if disk.dev_type != disk_c.DRBD8:
                continue
            answer = self.rpc.call(BLOCKDEV_FIND, node_uuid, disk=(disk, instance))
            status = None if answer.failure is not None else answer.data
            if status is not None and status.ldisk_status != disk_c.LDS_FAULTY:
                continue
            problem = (
                f"disk {disk.iv_name} of instance {instance.name} is not in order on node"
                f" {self.config.node(node_uuid).name}"
            )
            if not self.op.ignore_consistency:
                raise errors.OpPrereqError(
                    f"{problem}. Use --ignore-consistency to repair all the same.",
                    errors.ECODE_STATE,
                )
            self.warn(problem)

    def exec(self, plan: None) -> None:
        op = self.op
        self.feedback(f"Repairing storage unit {op.name} on node {self.node.name} ...")
        answer = self.rpc.call(
            STORAGE_EXECUTE,
            self.node.uuid,
            su_name=op.storage_type,
            su_args=storage_arguments(self, op.storage_type),
            name=op.name,
            op=FIX_CONSISTENCY,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"storage unit {op.name} of node {self.node.name} was not repaired:"
                f" {why(answer.failure)}"
            ) from answer.failure
