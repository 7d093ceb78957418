"""Remove a snapshot of an instance."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import snapshots
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.disks.snapshots import named
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.objects import snapshots as naming
from ganeti.objects.disk_templates import LVM_BASED
from ganeti.opcodes.instance import OpInstanceSnapshotRemove
from ganeti.wire.calls import BLOCKDEV_REMOVE_MULTI


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The snapshots to be removed, each on its node."""

    instance: Instance
    kept: tuple[snapshots.DiskSnapshot, ...]


@executes(OpInstanceSnapshotRemove)
class LUInstanceSnapshotRemove(LogicalUnit[OpInstanceSnapshotRemove, RemovalPlan]):
    """Remove a snapshot of all disks which have it; a repetition removes the rest."""

    HOOKS = InstanceHooks("instance-snapshot-remove")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        assert self.instance is not None
        if level is Level.NODE:
            self.lock_nodes_of(self.instance, shared=True)
        elif level is Level.NODE_RES:
            disks = self.config.instance_disks(self.config.instance(self.instance.uuid))
            if any(disk.dev_type in LVM_BASED for disk in disks):
                self.need(level, self.config.instance_nodes(self.instance))

    def hook_env(self, plan: RemovalPlan) -> dict[str, object]:
        return {"SNAPSHOT_NAME": self.op.snapshot_name}

    def check_prereq(self) -> RemovalPlan:
        assert self.instance is not None
        kept = named(self.ctx, self.instance, self.op.snapshot_name)
        return RemovalPlan(self.instance, tuple(kept))

    def steps(self, plan: RemovalPlan) -> list[str]:
        return [
            f"remove snapshot {one.found.name} of disk {one.index} from"
            f" {self.config.node(one.node_uuid).name}"
            for one in plan.kept
        ]

    def exec(self, plan: RemovalPlan) -> None:
        parts: dict[str, list[snapshots.DiskSnapshot]] = {}
        for one in plan.kept:
            parts.setdefault(one.node_uuid, []).append(one)
        answers = call_for_disks(
            self.rpc,
            BLOCKDEV_REMOVE_MULTI,
            {
                uuid: [naming.as_disk(one.disk, one.found.name) for one in some]
                for uuid, some in parts.items()
            },
            plan.instance,
        )
        left = [
            f"disk {one.index} on node {answer.node_name}: {why(answer.failure)}"
            for uuid, some in parts.items()
            for one, answer in zip(some, answers[uuid], strict=True)
            if answer.failure is not None
        ]
        if left:
            raise errors.OpExecError(
                f"snapshot {self.op.snapshot_name} of instance {plan.instance.name} was not"
                f" removed everywhere: {'; '.join(left)}. Repeat the command when the cause is"
                " gone."
            )
