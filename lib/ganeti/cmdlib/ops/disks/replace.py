"""Replace the storage of mirrored disks, while the instance goes on running.

Either new volumes take the place of the old ones on one of the two nodes, or another node becomes
the secondary node. In both cases the replica on the other node is the only complete one until the
new one is in sync, so nothing begins before that replica is known to be good.

Every new volume, and every volume which is going to be destroyed, is in the configuration with a
mark (:mod:`~ganeti.cmdlib.ops.disks.convert`) as long as it belongs to no disk. After an
interruption the same command destroys marked volumes and makes the missing ones again.

``LUInstanceReplaceDisks`` makes the :class:`ReplacePlan` and calls :class:`Replacement`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, LuContext, why
from ganeti.cmdlib.ops.disks import (
    capacity,
    convert,
    mirror,
    snapshots,
    specs,
    suspended_io,
    sync,
)
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.policy import ratios
from ganeti.constants.disk import PLAIN
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node
from ganeti.rpc.results import whole
from ganeti.wire.calls import (
    BLOCKDEV_ADDCHILDREN,
    BLOCKDEV_GETDIMENSIONS,
    BLOCKDEV_REMOVECHILDREN,
    BLOCKDEV_RENAME,
    DRBD_ATTACH_NET,
    DRBD_DISCONNECT_NET,
)

if TYPE_CHECKING:
    from ganeti.wire.calls.base import Call

#: Suffixes of the names of volumes which will become, and which were, part of a disk.
_NEW, _OLD = "_new", "_old"


@dataclass(frozen=True, slots=True)
class ReplacePlan:
    """The disks which get new storage, and where.

    :ivar disks: number and disk.
    :ivar node: the node with the new storage.
    :ivar other: the node whose replica stays.
    :ivar new_secondary: ``node`` becomes the secondary node; else it is one of the present nodes.
    """

    instance: Instance
    disks: tuple[tuple[int, Disk], ...]
    node: Node
    other: Node
    new_secondary: bool


def plan_new_secondary(
    ctx: Context,
    instance: Instance,
    disks: Sequence[tuple[int, Disk]],
    node: Node,
    override: policy.Override,
) -> ReplacePlan:
    """Check that a node can become the secondary node, and plan that.

    :param disks: number and disk of all disks.
    :raises errors.OpPrereqError: the node has a replica already, or cannot take one.
    """
    config = ctx.config
    primary = config.node(instance.primary_node)
    (secondary_uuid,) = config.secondary_nodes(instance)
    secondary = config.node(secondary_uuid)
    for present, role in ((primary, "primary"), (secondary, "secondary")):
        if node.uuid == present.uuid:
            raise errors.OpPrereqError(
                f"node {node.name} is already the {role} node of instance {instance.name}",
                errors.ECODE_INVAL,
            )
    prereq.require_target(ctx.config, node, instance.hypervisor)
    snapshots.require_none(
        ctx,
        instance,
        "replace the secondary node of",
        nodes=[secondary.uuid],
        may_be_dead=True,
    )
    filled = config.filled(instance)
    if node.group != primary.group:
        # It could never start on a secondary node in a group without its networks.
        policy.in_group_of(config, instance, node)
        disk_work.require_disks_allowed(config, instance, node)
        policy.require_policy(ctx.config, ctx.log, filled, node, override)
    ratios.require(
        ctx.config, ctx.log, instance.name, node,
        ratios.use_of(filled.beparams, filled.disk_template, primary=False),
        override=override.or_if(primary.offline), facts=None, without=instance.uuid,
    )  # fmt: skip
    capacity.require_free_space(
        ctx.config,
        ctx.rpc,
        [node.uuid],
        capacity.volumes_mib([disk for _index, disk in disks]),
        new_minors=len(disks),
    )
    return ReplacePlan(instance, tuple(disks), node, primary, True)


def clear_detached(ctx: Context, instance: Instance) -> None:
    """Destroy volumes which an earlier replacement has left; a failure is a warning."""
    try:
        convert.clear(ctx, instance)
    except errors.GenericError as err:
        ctx.log.warn(
            f"volumes of an earlier replacement of disks of instance {instance.name} were not"
            f" removed: {err}",
            hint="The next replacement, or the removal of the instance, tries again.",
        )


class Replacement:
    """Carries out one plan; :meth:`run` is called once.

    :param early_release: destroy the old volumes, and allow other jobs on the nodes, before the new
        replicas are in sync.
    """

    def __init__(self, ctx: LuContext, plan: ReplacePlan, *, early_release: bool) -> None:
        self._ctx = ctx
        self._plan = plan
        self._early_release = early_release

    def run(self) -> None:
        """Replace the storage and wait until the new replicas are in sync.

        :raises errors.OpExecError: a step failed; the text says how to continue.
        """
        ctx, plan = self._ctx, self._plan
        instance = plan.instance
        was_active = instance.disks_active
        numbers = ", ".join(str(index) for index, _disk in plan.disks)
        suspended_io.unprotect(ctx.config, ctx.rpc, instance, [disk for _index, disk in plan.disks])
        ctx.log.feedback(f"Replacing disk(s) {numbers} for instance '{instance.name}'")
        if not was_active:
            disk_work.assemble_disks(ctx, instance)
        try:
            # The replica which stays is the only complete one for a while. Nothing is destroyed
            # before it is known to be good, not even volumes of an interrupted replacement.
            if plan.other.uuid == instance.primary_node:
                mirror.require_good_primary(ctx, instance)
            else:
                mirror.ensure_good_replica(ctx, instance, plan.other, alone=False, ignore=False)
            clear_detached(ctx, instance)
            if plan.new_secondary:
                self._to_other_node()
            else:
                self._on_one_node()
        finally:
            if not was_active:
                disk_work.shutdown_disks(ctx.config, ctx.rpc, ctx.config.instance(instance.uuid))

    def _finish(self, instance: Instance, disks: list[Disk]) -> None:
        """Wait until the disks are in sync; destroy the old volumes before or after that."""
        ctx = self._ctx
        if self._early_release:
            clear_detached(ctx, instance)
            ctx.locks.downgrade(ctx.owner, Level.NODE_RES)
        sync.require_in_sync(ctx, instance, disks)
        if not self._early_release:
            clear_detached(ctx, instance)

    # -- new storage on one of the nodes ---------------------------------------

    def _on_one_node(self) -> None:
        ctx, plan = self._ctx, self._plan
        for index, disk in plan.disks:
            ctx.log.feedback(f"* exchanging the storage of disk {index} on node {plan.node.name}")
            self._exchange(index, disk)
        # After a split brain the replicas are not connected; the new one has no data to lose.
        answers = ctx.rpc.call_many(
            DRBD_ATTACH_NET,
            [plan.node.uuid, plan.other.uuid],
            disks=([disk for _index, disk in plan.disks], plan.instance),
            multimaster=False,
        )
        for answer in answers.values():
            if answer.failure is not None:
                ctx.log.warn(
                    f"node {answer.node_name} does not connect the disks of instance"
                    f" {plan.instance.name} to their peers: {why(answer.failure)}"
                )
        self._finish(plan.instance, [disk for _index, disk in plan.disks])

    def _exchange(self, index: int, disk: Disk) -> None:
        """Exchange the volumes of a disk for new ones, which get the same names."""
        ctx, instance, node = self._ctx, self._plan.instance, self._plan.node
        present = self._present(disk)
        new = [_renamed(child, _NEW) for child in disk.children]
        old = [_renamed(child, _OLD) for child in disk.children]
        convert.add_parts(ctx.config, ctx.rpc, instance, [*new, *old], node.uuid)
        self._create_volumes(new, node)
        self._change_disk(
            BLOCKDEV_REMOVECHILDREN,
            index,
            "detached from its storage",
            disk=(disk, instance),
            children=(disk.children, instance),
        )
        pairs = [
            (child, renamed)
            for child, renamed, exists in zip(disk.children, old, present, strict=True)
            if exists
        ]
        pairs += list(zip(new, disk.children, strict=True))
        self._change_disk(
            BLOCKDEV_RENAME,
            index,
            "given new storage",
            renames=[(device, instance, renamed.logical_id) for device, renamed in pairs],
        )
        self._change_disk(
            BLOCKDEV_ADDCHILDREN,
            index,
            "attached to its new storage",
            disk=(disk, instance),
            children=(disk.children, instance),
        )

    def _present(self, disk: Disk) -> list[bool]:
        """Return for each volume of a disk whether it exists on the node.

        After a loss they may be missing.
        """
        answer = self._ctx.rpc.call(
            BLOCKDEV_GETDIMENSIONS,
            self._plan.node.uuid,
            disks=[(child, self._plan.instance) for child in disk.children],
        )
        return [size is not None for size in whole(answer).payload()]

    def _create_volumes(self, devices: list[Disk], node: Node) -> None:
        instance = self._plan.instance
        try:
            disk_work.create_devices(self._ctx, instance, {node.uuid: devices})
        except errors.OpExecError as err:
            raise errors.OpExecError(f"{err}; the disk was not changed") from err

    def _change_disk(self, call: Call, index: int, what: str, **args: Any) -> None:
        """Call the node with the new storage.

        :param what: the change in words, for errors.
        :raises errors.OpExecError: it failed.
        """
        plan = self._plan
        answer = self._ctx.rpc.call(call, plan.node.uuid, **args)
        if answer.failure is not None:
            raise errors.OpExecError(
                f"disk {index} of instance {plan.instance.name} cannot be {what} on node"
                f" {plan.node.name}: {why(answer.failure)}; its replica on node"
                f" {plan.other.name} is in use. Repeat the command when the cause is gone."
            ) from answer.failure

    # -- another secondary node ------------------------------------------------

    def _to_other_node(self) -> None:
        ctx, plan = self._ctx, self._plan
        instance, primary, node = plan.instance, plan.other, plan.node
        old = [ctx.config.disk(disk.uuid) for _index, disk in plan.disks]
        (old_secondary_uuid,) = ctx.config.secondary_nodes(instance)
        minors = ctx.config.allocate_minors([node.uuid] * len(old))
        new = [
            specs.with_other_replica(disk, (primary.uuid, node.uuid), node.uuid, minor)
            for disk, minor in zip(old, minors, strict=True)
        ]
        parts = [child for disk in new for child in disk.children]
        convert.add_parts(ctx.config, ctx.rpc, instance, parts, node.uuid)
        for index in range(len(new)):
            ctx.log.feedback(f"* making the replica of disk {index} on node {node.name}")
        try:
            disk_work.create_devices(ctx, instance, {node.uuid: new})
        except errors.OpExecError as err:
            raise errors.OpExecError(f"{err}; its disks were not changed") from err
        old_secondary = ctx.config.node(old_secondary_uuid)
        if not old_secondary.offline:
            ctx.log.feedback(f"* deactivating disks on the old secondary node {old_secondary.name}")
            disk_work.try_to_shut_down(ctx, instance, old, old_secondary)
        self._change_peer(old, new, old_secondary)
        self._finish(
            ctx.config.instance(instance.uuid), [ctx.config.disk(disk.uuid) for disk in new]
        )

    def _change_peer(self, old: list[Disk], new: list[Disk], old_secondary: Node) -> None:
        """Disconnect the primary from the old replica of each disk; connect it to the new one."""
        ctx, plan = self._ctx, self._plan
        instance, primary, node = plan.instance, plan.other, plan.node
        answer = ctx.rpc.call(DRBD_DISCONNECT_NET, primary.uuid, disks=(old, instance))
        if answer.failure is not None:
            raise errors.OpExecError(
                f"the replicas of the disks of instance {instance.name} cannot be disconnected on"
                f" node {primary.name}: {why(answer.failure)}. 'gnt-instance activate-disks"
                f" {instance.name}' connects them again."
            ) from answer.failure
        # From here on the new node has the other replica, even if the master dies before the two
        # are connected.
        with ctx.config.transaction() as change:
            convert.exchange_parts(
                ctx.config, change, instance, old, new, made_on=node, left=old_secondary
            )
        changed = [ctx.config.disk(disk.uuid) for disk in new]
        answers = ctx.rpc.call_many(
            DRBD_ATTACH_NET, [primary.uuid, node.uuid], disks=(changed, instance), multimaster=False
        )
        for answer in answers.values():
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"the replicas of the disks of instance {instance.name} cannot be connected on"
                    f" node {answer.node_name}: {why(answer.failure)}; node {node.name} is the"
                    f" secondary node now. Use 'gnt-instance activate-disks {instance.name}' when"
                    " the cause is gone."
                ) from answer.failure


def _renamed(volume: Disk, suffix: str) -> Disk:
    group, name = volume.volume_id
    return dataclasses.replace(volume, dev_type=PLAIN, logical_id=(group, f"{name}{suffix}"))
