"""Repairing a volume group of a node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks import replicas
from ganeti.cmdlib.ops.node.storage_query import storage_arguments
from ganeti.constants import disk as disk_c
from ganeti.objects import Disk, Instance
from ganeti.opcodes.node import OpRepairNodeStorage
from ganeti.wire.calls import BLOCKDEV_FIND, STORAGE_EXECUTE

FIX_CONSISTENCY = "fix-consistency"
REPAIRABLE = (disk_c.ST_LVM_VG,)


@executes(OpRepairNodeStorage)
class LURepairNodeStorage(LogicalUnit[OpRepairNodeStorage, None]):
    """Remove the lost physical volumes from a volume group."""

    def expand_names(self) -> None:
        op = self.op
        if op.storage_type not in REPAIRABLE or not op.name:
            raise errors.OpPrereqError(
                f"storage units of type {op.storage_type!r} cannot be repaired",
                errors.ECODE_INVAL,
            )
        self.node = self.lock_node(op.node_name, op.node_uuid)

    def check_prereq(self) -> None:
        """Check the other replicas of the disks on the node, which may be the only good ones.

        The repair removes volumes, also those of disks which are not active. So each of the other
        replicas must be known to have all data: it is seen in use, or the configuration says that
        the one on this node is outdated. That both were in sync once is not enough: the other node
        may have come back with older data since.

        :raises errors.OpPrereqError: one of them may lack data, or is missing.
        """
        primaries, secondaries = self.config.node_instances(self.node.uuid)
        pairs = [
            (disk, instance)
            for instance in (*primaries, *secondaries)
            for disk in replicas.mirrored(self.config.instance_disks(instance))
            if not disk.forthcoming
        ]
        seen = {one.disk.uuid: one for one in replicas.observe(self.config, self.rpc, pairs)}
        for disk, instance in pairs:
            if self._is_kept_elsewhere(disk, instance, seen.get(disk.uuid)):
                continue
            other = self.config.node(replicas.other_node(disk, self.node.uuid))
            problem = (
                f"{disk.iv_name} of instance {instance.name} has no replica on node {other.name}"
                " which is known to have all data, so its data may be lost"
            )
            if not self.op.ignore_consistency:
                raise errors.OpPrereqError(
                    f"{problem}. Activate the disks of the instance and wait until they are in"
                    " sync, or accept the loss with --ignore-consistency.",
                    errors.ECODE_STATE,
                )
            self.log.warn(problem)

    def _is_kept_elsewhere(
        self, disk: Disk, instance: Instance, seen: replicas.Observation | None
    ) -> bool:
        """Tell whether the replica on the other node has all data, so that this one may go."""
        if seen is not None and (seen.equal or seen.outdated == self.node.uuid):
            return True
        if disk.outdated_node != self.node.uuid:
            return False
        other = replicas.other_node(disk, self.node.uuid)
        found = self.rpc.call(BLOCKDEV_FIND, other, disk=(disk.children[0], instance))
        return found.failure is None and found.data is not None

    def exec(self, plan: None) -> None:
        op = self.op
        self.log.feedback(f"Repairing storage unit {op.name} on node {self.node.name} ...")
        answer = self.rpc.call(
            STORAGE_EXECUTE,
            self.node.uuid,
            su_name=op.storage_type,
            su_args=storage_arguments(self.config, op.storage_type),
            name=op.name,
            op=FIX_CONSISTENCY,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"storage unit {op.name} of node {self.node.name} was not repaired:"
                f" {why(answer.failure)}"
            ) from answer.failure
