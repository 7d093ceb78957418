"""Grow a disk of an instance.

All nodes first simulate the growth, at the same time. When none of them objects, the storage of all
replicas grows to the wanted size, measured by its present size, and what was added is overwritten
(:mod:`.wipe`). Then the configuration gets the new size, and last the device on top of the
storage grows, such as DRBD. So a device is never larger than the configuration says, and what is
overwritten is never in use.

After an interruption the same command with an absolute size completes the growth. One with an
amount does so as long as the configuration has the old size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, sizes, snapshots, sync, wipe
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.specs import resized
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, disk_templates, updated
from ganeti.objects.disk_templates import GROWABLE, LVM_BASED
from ganeti.opcodes.instance import OpInstanceGrowDisk
from ganeti.utils import text
from ganeti.wire.calls import BLOCKDEV_GROW


@dataclass(frozen=True, slots=True)
class GrowPlan:
    """The disk, and its size after the growth (MiB)."""

    instance: Instance
    disk: Disk
    size_mib: int

    @property
    def delta_mib(self) -> int:
        """The difference to the configured size (MiB)."""
        return self.size_mib - self.disk.size


@executes(OpInstanceGrowDisk)
class LUInstanceGrowDisk(LogicalUnit[OpInstanceGrowDisk, GrowPlan]):
    """Make one disk of an instance larger; the guest sees it after its next start."""

    HOOKS = InstanceHooks("disk-grow")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)

    def hook_env(self, plan: GrowPlan) -> dict[str, object]:
        return {"DISK": self.op.disk, "AMOUNT": self.op.amount, "ABSOLUTE": self.op.absolute}

    def check_prereq(self) -> GrowPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "grow a disk of")
        disk = prereq.disk_by_index(self.config, instance, self.op.disk)
        if disk.dev_type not in GROWABLE:
            raise errors.OpPrereqError(
                f"disk {self.op.disk} of instance {instance.name} has template {disk.dev_type},"
                " which cannot grow",
                errors.ECODE_INVAL,
            )
        for uuid in disk_work.disk_nodes(disk, instance.primary_node):
            prereq.require_online(self.config.node(uuid))
        location.require_only_on_primary(self.ctx, instance, certain_to="grow a disk of")
        if disk.dev_type in LVM_BASED:
            snapshots.require_none(
                self.ctx,
                instance,
                "grow a disk of",
                disks=[self.op.disk],
                also_lost=True,
                reason="LVM does not grow a volume which has snapshots",
            )
        plan = GrowPlan(instance, disk, self._wanted_mib(instance, disk))
        self._require_possible(plan)
        self._check_policy(plan)
        grown = capacity.volumes_mib([resized(disk, plan.size_mib)])
        before = capacity.volumes_mib([disk])
        capacity.require_free_space(
            self.config,
            self.rpc,
            disk_work.disk_nodes(disk, instance.primary_node),
            {
                group: size - before.get(group, 0)
                for group, size in grown.items()
                if size > before.get(group, 0)
            },
        )
        capacity.warn_of_little_space(self.ctx, instance, disk, plan.delta_mib)
        return plan

    def _wanted_mib(self, instance: Instance, disk: Disk) -> int:
        amount_mib = text.parse_unit(self.op.amount)
        if not self.op.absolute:
            return disk.size + amount_mib
        if amount_mib < disk.size:
            raise errors.OpPrereqError(
                f"disk {self.op.disk} of instance {instance.name} has"
                f" {text.format_unit(disk.size)} and cannot shrink to"
                f" {text.format_unit(amount_mib)}",
                errors.ECODE_STATE,
            )
        return amount_mib

    def _require_possible(self, plan: GrowPlan) -> None:
        """Check that the metadata of a mirrored disk are large enough for the wanted size.

        They belong to a device in use, so they cannot grow with the disk.
        """
        disk, name = plan.disk, plan.instance.name
        largest = disk.largest_mib
        if largest is None or plan.size_mib <= largest:
            return
        template = disk_templates.of(disk.dev_type)
        problem = (
            f"disk {self.op.disk} of instance {name} cannot grow to"
            f" {text.format_unit(plan.size_mib)} ({plan.size_mib} MiB)"
        )
        if template.largest_mib is not None and plan.size_mib > template.largest_mib:
            raise errors.OpPrereqError(
                f"{problem}: a disk of template {disk.dev_type} has at most"
                f" {text.format_unit(template.largest_mib)}",
                errors.ECODE_INVAL,
            )
        assert disk.metadata_device is not None
        recorded = (
            f" The configuration says {disk.size} MiB already. Correct that with"
            f" 'gnt-cluster repair-disk-sizes {name}' while the instance runs."
            if disk.size > largest
            else ""
        )
        raise errors.OpPrereqError(
            f"{problem}: its metadata on each node have {disk.metadata_device.size} MiB, which is"
            f" enough for {largest} MiB.{recorded} To make larger metadata, stop the instance and"
            f" convert its disks with 'gnt-instance modify -t plain {name}', grow the disk, and"
            f" convert the disks with 'gnt-instance modify -t {disk.dev_type} -n NODE {name}'.",
            errors.ECODE_STATE,
        )

    def _check_policy(self, plan: GrowPlan) -> None:
        filled = self.config.filled(plan.instance)
        before = set(
            policy.instance_violations(
                self.config, filled, self.config.node(plan.instance.primary_node)
            )
        )
        disks = tuple(
            resized(disk, plan.size_mib) if disk.uuid == plan.disk.uuid else disk
            for disk in filled.disks_info
        )
        node = self.config.node(plan.instance.primary_node)
        after = policy.instance_violations(
            self.config, dataclasses.replace(filled, disks_info=disks), node
        )
        # Violations which exist already are not caused by this operation.
        new = [found for found in after if found not in before]
        policy.refuse(
            self.config,
            self.log,
            plan.instance.name,
            node,
            new,
            policy.Override(self.op.ignore_ipolicy, self.op.OP_ID),
        )

    def steps(self, plan: GrowPlan) -> list[str]:
        disk = plan.disk
        nodes = ", ".join(self.config.instance_node_names(plan.instance))
        waits = self.op.wait_for_sync and disk.has_replicas
        return [
            f"simulate the growth on {nodes}",
            f"grow disk {self.op.disk} of instance {plan.instance.name} from {disk.size} MiB to"
            f" {plan.size_mib} MiB on {nodes}",
            *(["wait until its replicas are in sync"] if waits else []),
        ]

    def exec(self, plan: GrowPlan) -> None:
        instance, disk = plan.instance, plan.disk
        self.log.feedback(
            f"Growing disk {self.op.disk} of instance '{instance.name}' by"
            f" {text.format_unit(plan.delta_mib)} to {text.format_unit(plan.size_mib)}"
        )
        disk_work.assemble_disks(self.ctx, instance, disks=[disk])
        nodes = disk_work.disk_nodes(disk, instance.primary_node)
        missing = self._missing_mib(plan, nodes)
        self._grow(plan, missing, dry_run=True, backing_store=True)
        reached_mib = wipe.reached_mib(self.rpc, instance, disk)
        self._require_larger(plan, reached_mib)
        wipe.begin_growth(self.config, disk, reached_mib)
        self._grow(plan, missing, dry_run=False, backing_store=True)
        for uuid in nodes:
            wipe.wipe(self.ctx, instance, disk.data_device, uuid, offset_mib=reached_mib)
        with self.config.transaction() as change:
            grown = resized(self.config.disk(disk.uuid), plan.size_mib)
            change.disks.update(updated(grown, unwiped_from=None))
        self._grow_device(plan)
        self.downgrade_locks(Level.NODE_RES)
        changed = self.config.disk(disk.uuid)
        if self.op.wait_for_sync and not sync.wait_for_sync(self.ctx, instance, [changed]):
            self.log.warn(
                "the disks are not in sync yet. See their state with 'gnt-instance info'."
            )
        fresh = self.config.instance(instance.uuid)
        if not fresh.disks_active:
            if self.op.wait_for_sync or not changed.has_replicas:
                disk_work.shutdown_disks(self.config, self.rpc, fresh, disks=[changed])
            else:
                self.log.warn(
                    f"instance {instance.name} is stopped; its disk stays active until it is"
                    " synchronised. Deactivate it with 'gnt-instance deactivate-disks' then."
                )

    def _require_larger(self, plan: GrowPlan, reached_mib: int) -> None:
        """Check that the device of a mirrored disk is not larger than wanted.

        An older version recorded the new size last, so an interrupted growth may have left such a
        device, and a guest may have written to all of it.
        """
        if plan.disk.has_replicas and reached_mib > plan.size_mib:
            raise errors.OpExecError(
                f"disk {self.op.disk} of instance {plan.instance.name} has {reached_mib} MiB"
                " already, more than the configuration says. Correct that with"
                f" 'gnt-cluster repair-disk-sizes {plan.instance.name}', and repeat the command."
            )

    def _missing_mib(self, plan: GrowPlan, nodes: Iterable[str]) -> dict[str, int]:
        """Return by how much the storage has to grow on each node; without those where it is."""
        present = sizes.present_bytes(self.rpc, plan.instance, plan.disk.data_device, nodes)
        missing = {
            # Where the storage cannot be measured, the configured size counts.
            uuid: plan.size_mib - (plan.disk.size if size is None else sizes.rounded_up_mib(size))
            for uuid, size in present.items()
        }
        return {uuid: amount_mib for uuid, amount_mib in missing.items() if amount_mib > 0}

    def _grow_device(self, plan: GrowPlan) -> None:
        """Grow the device on top of the storage; the configuration has the new size already."""
        try:
            amounts = {plan.instance.primary_node: plan.delta_mib}
            self._grow(plan, amounts, dry_run=False, backing_store=False)
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err} Its storage and the configuration have {plan.size_mib} MiB now. Complete"
                f" the growth with 'gnt-instance grow-disk --absolute {plan.instance.name}"
                f" {self.op.disk} {plan.size_mib}'."
            ) from err

    def _grow(
        self, plan: GrowPlan, amounts: Mapping[str, int], *, dry_run: bool, backing_store: bool
    ) -> None:
        """Grow the disk on several nodes at the same time.

        :param amounts: UUID of a node -> by how much (MiB).
        """
        answers = self.rpc.call_many(
            BLOCKDEV_GROW,
            amounts,
            per_node={
                uuid: {
                    "amount_mib": amount_mib,
                    "exclusive_storage": disk_work.exclusive_storage(self.config, uuid),
                }
                for uuid, amount_mib in amounts.items()
            },
            disk=(plan.disk, plan.instance),
            dry_run=dry_run,
            backing_store=backing_store,
        )
        for answer in answers.values():
            if answer.failure is not None:
                again = " Repeat the command when the cause is gone." if backing_store else ""
                raise errors.OpExecError(
                    f"disk {self.op.disk} of instance {plan.instance.name} cannot grow on node"
                    f" {answer.node_name}: {why(answer.failure)}.{again}"
                ) from answer.failure
