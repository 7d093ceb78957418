"""Repairing a volume group of a node."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.node.storage_query import storage_arguments
from ganeti.constants import disk as disk_c
from ganeti.objects import BlockDevStatus, Disk, Instance
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

        :raises errors.OpPrereqError: one of them is faulty, missing, or could not be checked.
        """
        primaries, secondaries = self.config.node_instances(self.node.uuid)
        replicas = [
            (disk, instance, uuid)
            for instance in (*primaries, *secondaries)
            if instance.disks_active
            for uuid in self.config.instance_nodes(instance)
            if uuid != self.node.uuid
            for disk in self.config.instance_disks(instance)
            if disk.dev_type == disk_c.DRBD8
        ]
        for (disk, instance, uuid), status in zip(replicas, self._ask(replicas), strict=True):
            bad = (disk_c.LDS_FAULTY, disk_c.LDS_UNKNOWN)
            if status is not None and status.ldisk_status not in bad:
                continue
            problem = (
                f"{disk.iv_name} of instance {instance.name} has no good replica on node"
                f" {self.config.node(uuid).name}"
            )
            if not self.op.ignore_consistency:
                raise errors.OpPrereqError(
                    f"{problem}. Use --ignore-consistency to repair all the same.",
                    errors.ECODE_STATE,
                )
            self.warn(problem)

    def _ask(self, replicas: Sequence[tuple[Disk, Instance, str]]) -> list[BlockDevStatus | None]:
        """Ask nodes for the states of replicas: all nodes at once, each for one disk at a time.

        :param replicas: disk, instance, UUID of the node.
        :returns: for each replica its state; None if it does not exist or the node did not answer.
        """
        waiting: dict[str, list[int]] = {}
        for number, (_disk, _instance, uuid) in enumerate(replicas):
            waiting.setdefault(uuid, []).append(number)
        found: list[BlockDevStatus | None] = [None] * len(replicas)
        while waiting:
            asked = {uuid: numbers.pop(0) for uuid, numbers in waiting.items()}
            answers = self.rpc.call_many(
                BLOCKDEV_FIND,
                list(asked),
                per_node={uuid: {"disk": replicas[number][:2]} for uuid, number in asked.items()},
            )
            for uuid, number in asked.items():
                if answers[uuid].failure is None:
                    found[number] = answers[uuid].data
            waiting = {uuid: numbers for uuid, numbers in waiting.items() if numbers}
        return found

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
