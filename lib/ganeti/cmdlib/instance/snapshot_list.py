"""Listing and removing snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import snapshots
from ganeti.constants.disk import LVM_BASED
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.objects import snapshots as naming
from ganeti.opcodes.instance import OpInstanceSnapshotList, OpInstanceSnapshotRemove
from ganeti.wire.calls import BLOCKDEV_REMOVE

_MIB = 1 << 20


@executes(OpInstanceSnapshotList)
class LUInstanceSnapshotList(LogicalUnit):
    """Ask the nodes which snapshots they have; takes no locks."""

    op: OpInstanceSnapshotList

    def expand_names(self) -> None:
        self.wanted = [self.config.expand_instance(name) for name in self.op.instances] or list(
            self.config.instances()
        )

    def check_prereq(self) -> list[Instance]:
        return self.wanted

    def dry_run_result(self, plan: list[Instance]) -> list[dict[str, Any]]:
        return []

    def exec(self, plan: list[Instance]) -> list[dict[str, Any]]:
        kept, silent = snapshots.look(self, plan)
        for node_uuid, failure in silent.items():
            self.warn(
                f"node {self.config.node(node_uuid).name} does not tell its snapshots:"
                f" {why(failure)}"
            )
        return [
            {
                "instance": one.instance.name,
                "snapshot": one.found.name,
                "disk": one.index,
                "disk_uuid": one.disk.uuid,
                "node": self.config.node(one.node_uuid).name,
                "size": one.found.size_bytes // _MIB,
                "ctime": one.found.made,
                "usable": one.found.usable,
            }
            for one in kept
        ]


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The snapshots to be removed, each on its node."""

    instance: Instance
    kept: tuple[snapshots.Kept, ...]


@executes(OpInstanceSnapshotRemove)
class LUInstanceSnapshotRemove(LogicalUnit):
    """Remove a snapshot of all disks which have it; repeated, it removes what is left."""

    op: OpInstanceSnapshotRemove
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
        kept = named(self, self.instance, self.op.snapshot_name)
        return RemovalPlan(self.instance, tuple(kept))

    def steps(self, plan: RemovalPlan) -> list[str]:
        return [
            f"remove snapshot {one.found.name} of disk {one.index} from"
            f" {self.config.node(one.node_uuid).name}"
            for one in plan.kept
        ]

    def exec(self, plan: RemovalPlan) -> None:
        left = []
        for one in plan.kept:
            answer = self.rpc.call(
                BLOCKDEV_REMOVE,
                one.node_uuid,
                disk=(naming.as_disk(one.disk, one.found.name), plan.instance),
            )
            if answer.failure is not None:
                left.append(f"disk {one.index} on node {answer.node_name}: {why(answer.failure)}")
        if left:
            raise errors.OpExecError(
                f"snapshot {self.op.snapshot_name} of instance {plan.instance.name} was not"
                f" removed everywhere: {'; '.join(left)}. Repeat the command when the cause is"
                " gone."
            )


def named(unit: LogicalUnit, instance: Instance, name: str) -> list[snapshots.Kept]:
    """The snapshots of an instance with this name, one for each disk and node.

    :raises errors.OpPrereqError: there is none.
    """
    prereq.require_not_forthcoming(instance, "look for snapshots of")
    kept = snapshots.of_instance(unit, instance)
    found = [one for one in kept if one.found.name == name]
    if not found:
        foreign = {
            disk.dev_type
            for disk in unit.config.instance_disks(instance)
            if disk.dev_type in snapshots.ONLY_MADE
        }
        if foreign:
            raise errors.OpPrereqError(
                f"instance {instance.name} has disks of kind {', '.join(sorted(foreign))}, whose"
                f" snapshots only their storage provider knows; there is no snapshot {name} of"
                " another disk",
                errors.ECODE_NOENT,
            )
        others = f"; it has {snapshots.names(kept)}" if kept else ", nor any other"
        raise errors.OpPrereqError(
            f"instance {instance.name} has no snapshot {name}{others}", errors.ECODE_NOENT
        )
    return found
