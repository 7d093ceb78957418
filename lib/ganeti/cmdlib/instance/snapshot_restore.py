"""Restore the content of the disks of a stopped instance from a snapshot.

The content is copied on the primary node onto the active disk, so that a mirrored disk sends it to
its other replica. The snapshot stays. A disk is marked while it is being written
(:mod:`~ganeti.cmdlib.ops.disks.snapshots`). After an interruption the same command starts again
from the beginning; the instance is not started before, except by force.
"""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import snapshots
from ganeti.cmdlib.ops.disks.snapshots import named
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import Level
from ganeti.objects import Instance, Node
from ganeti.opcodes.instance import OpInstanceSnapshotRestore
from ganeti.rpc.results import whole
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS, BLOCKDEV_SNAPSHOT_RESTORE

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The snapshots on the primary node, one for each disk that has one."""

    instance: Instance
    node: Node
    kept: tuple[snapshots.DiskSnapshot, ...]


@executes(OpInstanceSnapshotRestore)
class LUInstanceSnapshotRestore(LogicalUnit[OpInstanceSnapshotRestore, RestorePlan]):
    """Copy the content of a snapshot to the disks of a stopped instance."""

    HOOKS = InstanceHooks("instance-snapshot-restore")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)

    def hook_env(self, plan: RestorePlan) -> dict[str, object]:
        return {
            "SNAPSHOT_NAME": self.op.snapshot_name,
            "SNAPSHOT_DISKS": " ".join(str(one.index) for one in plan.kept),
        }

    def check_prereq(self) -> RestorePlan:
        assert self.instance is not None
        instance, name = self.instance, self.op.snapshot_name
        prereq.require_not_forthcoming(instance, "restore a snapshot of")
        prereq.require_whole_disks(self.config, instance)
        node = self.config.node(instance.primary_node)
        prereq.require_online(node)
        location.require_stopped(self.ctx, instance, "restore a snapshot of")
        found = named(self.ctx, instance, name)
        kept = [one for one in found if one.node_uuid == node.uuid]
        distant = [one for one in found if one.index not in {here.index for here in kept}]
        if distant:
            other = self.config.node(distant[0].node_uuid).name
            raise errors.OpPrereqError(
                f"snapshot {name} of disk {distant[0].index} of instance {instance.name} is on"
                f" its secondary node {other}. Make that node the primary node with 'gnt-instance"
                f" failover {instance.name}', then repeat the command.",
                errors.ECODE_STATE,
            )
        lost = [one for one in kept if not one.found.usable]
        if lost:
            raise errors.OpPrereqError(
                f"snapshot {name} of disk {lost[0].index} of instance {instance.name} is"
                " incomplete, or has lost its content",
                errors.ECODE_STATE,
            )
        self._compare_sizes(instance, node, kept)
        untouched = sorted(set(range(len(instance.disks))) - {one.index for one in kept})
        if untouched:
            self.log.info(
                f"snapshot {name} does not contain disk {', '.join(map(str, untouched))}, which"
                " stays as it is"
            )
        return RestorePlan(instance, node, tuple(kept))

    def _compare_sizes(
        self, instance: Instance, node: Node, kept: list[snapshots.DiskSnapshot]
    ) -> None:
        answer = self.rpc.call(
            BLOCKDEV_GETDIMENSIONS,
            node.uuid,
            disks=[(one.disk.data_device, instance) for one in kept],
        )
        for one, dimensions in zip(kept, whole(answer).payload(), strict=True):
            what = f"disk {one.index} of instance {instance.name}"
            if dimensions is None:
                raise errors.OpPrereqError(
                    f"{what} does not exist on node {node.name}", errors.ECODE_STATE
                )
            present = int(dimensions[0])
            if present < one.found.size_bytes:
                raise errors.OpPrereqError(
                    f"{what} has {present // _MIB} MiB, less than the"
                    f" {one.found.size_bytes // _MIB} MiB of snapshot {one.found.name}",
                    errors.ECODE_STATE,
                )
            if present > one.found.size_bytes:
                self.log.info(
                    f"{what} has grown since: the data after the first"
                    f" {one.found.size_bytes // _MIB} MiB stay as they are"
                )

    # -- act -------------------------------------------------------------------

    def steps(self, plan: RestorePlan) -> list[str]:
        instance, node = plan.instance, plan.node.name
        activate = [] if instance.disks_active else [f"activate its disks on {node}"]
        deactivate = [] if instance.disks_active else ["deactivate them again"]
        return [
            *activate,
            *(
                f"copy snapshot {one.found.name} ({one.found.size_bytes // _MIB} MiB) to disk"
                f" {one.index} of instance {instance.name} on {node}"
                for one in plan.kept
            ),
            *deactivate,
        ]

    def exec(self, plan: RestorePlan) -> None:
        instance = plan.instance
        disks = [one.disk for one in plan.kept]
        try:
            if not instance.disks_active:
                disk_work.assemble_disks(self.ctx, instance, disks=disks)
            snapshots.mark_partly_restored(self.config, instance, disks, self.op.snapshot_name)
            for one in plan.kept:
                self._restore(plan, one)
                snapshots.unmark(self.config, instance, [one.disk])
        finally:
            if not instance.disks_active:
                self._deactivate(instance)

    def _restore(self, plan: RestorePlan, one: snapshots.DiskSnapshot) -> None:
        instance, name = plan.instance, one.found.name
        self.log.feedback(
            f"* copying snapshot {name} to disk {one.index}, {one.found.size_bytes // _MIB} MiB"
        )
        answer = self.rpc.call(
            BLOCKDEV_SNAPSHOT_RESTORE, plan.node.uuid, disk=(one.disk, instance), name=name
        )
        if answer.failure is None:
            return
        later = [str(other.index) for other in plan.kept if other.index > one.index]
        rest = f" Disk {', '.join(later)} was not touched." if later else ""
        raise errors.OpExecError(
            f"could not restore snapshot {name} of instance {instance.name} on node"
            f" {plan.node.name}: {why(answer.failure)}; disk {one.index} is written partly, or"
            f" not at all.{rest} The snapshot is unchanged. Repeat 'gnt-instance restore-snapshot"
            f" {instance.name} {name}' when the cause is gone. Until then the instance is only"
            " started with --force."
        ) from answer.failure

    def _deactivate(self, instance: Instance) -> None:
        try:
            disk_work.shutdown_disks(self.config, self.rpc, self.config.instance(instance.uuid))
        except errors.OpExecError as err:
            self.log.warn(str(err), hint=f"Repeat 'gnt-instance deactivate-disks {instance.name}'.")
