"""The content of a copy: the disks of a stopped instance, or a snapshot of an instance.

The creation of an instance uses a :class:`CopySource` in place of an installation, as it uses an
export (:mod:`.import_source`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, LuContext
from ganeti.cmdlib.ops.disks import devices, sizes, snapshots, specs
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.cmdlib.ops.transfer.import_source import run_rename_script
from ganeti.objects import disk_templates
from ganeti.objects import snapshots as naming
from ganeti.objects.ipolicy import SEED_DISK
from ganeti.wire.calls.backup import RAW

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance, Node
    from ganeti.opcodes.instance import OpInstanceCreate


@dataclass(frozen=True, slots=True)
class CopySource:
    """An instance, and where its content is read.

    :ivar disks: for each disk the node, and the disk as it is read there, with its size.
    :ivar snapshot: name of the snapshot of which the disks are; empty for the present content.
    """

    instance: Instance
    disks: tuple[tuple[Node, Disk], ...] = ()
    snapshot: str = ""
    runs_scripts: ClassVar[bool] = False
    ends_with_job: ClassVar[bool] = True

    def run(self, ctx: LuContext, instance: Instance, op: OpInstanceCreate) -> None:
        """Copy the disks, and let the OS definition give the guest its new name.

        :raises errors.OpExecError: the content of a disk did not arrive.
        """
        source = self.instance
        activate = not self.snapshot and not source.disks_active
        try:
            if activate:
                ctx.log.feedback(f"* activating the disks of instance {source.name}")
                devices.assemble_disks(ctx, source)
            self._copy(ctx, instance, op.compress)
        finally:
            if activate:
                _deactivate(ctx, source)
        _give_name(ctx, source, instance, op.debug_level)

    def _copy(self, ctx: Context, instance: Instance, compress: str) -> None:
        primary = ctx.config.node(instance.primary_node)
        made = ctx.config.instance_disks(instance)
        pairs = [
            disk_copy.pair(
                ctx.config,
                instance,
                index,
                source=(node, (RAW, (disk, self.instance))),
                target=(primary, (RAW, (target, instance))),
                compress=compress,
            )
            for index, ((node, disk), target) in enumerate(zip(self.disks, made, strict=True))
        ]
        arrived = disk_copy.copy_disks(ctx.rpc, ctx.log, pairs)
        failed = [str(index) for index, ok in enumerate(arrived) if not ok]
        if failed:
            raise errors.OpExecError(
                f"disk {', '.join(failed)} of instance {self.instance.name} could not be copied to"
                f" node {primary.name}; instance {instance.name} was not made"
            )

    def hook_env(self) -> dict[str, object]:
        """Name of the copied instance, its node, and the snapshot."""
        nodes = dict.fromkeys(node.name for node, _disk in self.disks)
        return {
            "ADD_MODE": "copy",
            "SRC_INSTANCE": self.instance.name,
            "SRC_NODE": next(iter(nodes), ""),
            "SRC_SNAPSHOT": self.snapshot,
        }


def _deactivate(ctx: Context, source: Instance) -> None:
    try:
        devices.shutdown_disks(ctx.config, ctx.rpc, ctx.config.instance(source.uuid))
    except errors.OpExecError as err:
        ctx.log.warn(str(err), hint=f"Repeat 'gnt-instance deactivate-disks {source.name}'.")


def _give_name(ctx: Context, source: Instance, instance: Instance, debug_level: int | None) -> None:
    if instance.os:
        run_rename_script(ctx.rpc, ctx.log, instance, source.name, debug_level)
    elif any(disk.name == SEED_DISK for disk in ctx.config.instance_disks(instance)):
        ctx.log.warn(
            f"disk {SEED_DISK} of instance {instance.name} still has the name and the identity of"
            f" {source.name} for cloud-init, because the instance has no OS definition which writes"
            " it anew"
        )


# -- finding the content -------------------------------------------------------------------------


def stopped(ctx: Context, instance: Instance) -> CopySource:
    """Check that the present content of an instance can be copied.

    :raises errors.OpPrereqError: it runs, or may run; or a disk is not complete.
    """
    if instance.admin_state == prereq.ADMIN_UP:
        raise errors.OpPrereqError(
            f"instance {instance.name} runs, or is marked to run, so its disks change while they"
            f" are copied. {_ways(ctx, instance)}",
            errors.ECODE_STATE,
        )
    location.require_stopped(ctx, instance, "copy")
    snapshots.require_restored(ctx.log, instance)
    node = prereq.require_online_primary(ctx.config, instance)
    disks = sizes.real(ctx.rpc, instance, ctx.config.instance_disks(instance))
    return CopySource(instance, tuple((node, disk) for disk in disks))


def _ways(ctx: Context, instance: Instance) -> str:
    disks = ctx.config.instance_disks(instance)
    stop = f"Stop it with 'gnt-instance shutdown {instance.name}'"
    if not disks or any(disk.dev_type not in disk_templates.MANAGED_SNAPSHOTS for disk in disks):
        return f"{stop}, and repeat the command."
    return (
        f"{stop}, or make a snapshot with 'gnt-instance snapshot {instance.name} NAME' and copy"
        " that with --snapshot=NAME."
    )


def of_snapshot(ctx: Context, instance: Instance, name: str) -> CopySource:
    """Find the snapshot of each disk of an instance, first on its primary node.

    :raises errors.OpPrereqError: a disk has none of this name, or it has lost its content.
    """
    kept = snapshots.named(ctx, instance, name)
    found: dict[int, snapshots.DiskSnapshot] = {}
    for one in kept:
        if one.found.usable:
            found.setdefault(one.index, one)
    disks = ctx.config.instance_disks(instance)
    missing = [index for index in range(len(disks)) if index not in found]
    if missing:
        lost = any(one.index in missing for one in kept)
        raise errors.OpPrereqError(
            f"snapshot {name} of disk {', '.join(map(str, missing))} of instance {instance.name}"
            f" {'is incomplete, or has lost its content' if lost else 'does not exist'}, and a copy"
            " needs every disk. Make another snapshot with 'gnt-instance snapshot"
            f" {instance.name}'.",
            errors.ECODE_STATE,
        )
    return CopySource(instance, tuple(_readable(ctx, found[i]) for i in range(len(disks))), name)


def _readable(ctx: Context, one: snapshots.DiskSnapshot) -> tuple[Node, Disk]:
    size_mib = sizes.rounded_up_mib(one.found.size_bytes)
    if one.disk.children:
        # LVM rounds the sizes of volumes up; the mirrored disk above does not use the rest.
        size_mib = min(size_mib, one.disk.size)
    read = specs.resized(naming.as_disk(one.disk, one.found.name), size_mib)
    return ctx.config.node(one.node_uuid), read
