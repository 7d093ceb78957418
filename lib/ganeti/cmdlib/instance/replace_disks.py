"""Replacing the storage below mirrored disks, while the instance goes on.

On one of the nodes the storage is taken away, exchanged and given back; or another node becomes the
secondary. In both cases the half which stays has the only copy until the new one is in step, so
nothing begins before that half is known to be good.

Every volume which is made, and every one which is about to be destroyed, is in the configuration
with a mark (:mod:`~ganeti.cmdlib.ops.disks.convert`) as long as it belongs to no disk. The
same command run again destroys what an interrupted run has left, and makes anew what is missing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, convert, mirror, snapshots, specs, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.disk import (
    DRBD8,
    LDS_FAULTY,
    PLAIN,
    REPLACE_AUTO,
    REPLACE_NEW_SECONDARY,
    REPLACE_ON_PRIMARY,
    REPLACE_ON_SECONDARY,
)
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node
from ganeti.opcodes.instance import OpInstanceReplaceDisks
from ganeti.wire.calls import (
    BLOCKDEV_ADDCHILDREN,
    BLOCKDEV_FIND,
    BLOCKDEV_GETDIMENSIONS,
    BLOCKDEV_REMOVECHILDREN,
    BLOCKDEV_RENAME,
    BLOCKDEV_SHUTDOWN,
    DRBD_ATTACH_NET,
    DRBD_DISCONNECT_NET,
)

#: Endings of the names of volumes which wait to take a place, and which have lost it.
_NEW, _OLD = "_new", "_old"


@dataclass(frozen=True, slots=True)
class ReplacePlan:
    """Which disks get new storage where.

    :ivar node: where; for a new secondary that node.
    :ivar other: the node whose half stays.
    :ivar new_secondary: ``node`` takes the place of the present secondary.
    """

    instance: Instance
    disks: tuple[tuple[int, Disk], ...]
    node: Node
    other: Node
    new_secondary: bool


@executes(OpInstanceReplaceDisks)
class LUInstanceReplaceDisks(LogicalUnit[OpInstanceReplaceDisks, ReplacePlan | None]):
    """New volumes below mirrored disks: on the primary, on the secondary, or on another node."""

    HOOKS = InstanceHooks("mirrors-replace")

    def expand_names(self) -> None:
        op = self.op
        named = bool(op.remote_node or op.remote_node_uuid)
        if op.mode == REPLACE_NEW_SECONDARY:
            if named and op.iallocator:
                raise errors.OpPrereqError(
                    "give either a new secondary node or an instance allocator, not both",
                    errors.ECODE_INVAL,
                )
            if op.disks:
                raise errors.OpPrereqError(
                    "a new secondary node gets all disks, not only some", errors.ECODE_INVAL
                )
        elif named or op.iallocator:
            raise errors.OpPrereqError(
                "a node or an allocator only has a meaning for a new secondary node",
                errors.ECODE_INVAL,
            )
        self.remote = (
            self.config.expand_node(op.remote_node_uuid or op.remote_node or "") if named else None
        )
        instance = self.lock_instance(op.instance_name, op.instance_uuid)
        self.allocator = None
        if op.mode == REPLACE_NEW_SECONDARY:
            self.allocator = placement.choose_allocator(
                self,
                op.iallocator,
                what=f"a new secondary node of instance {instance.name}",
                node_option="--new-secondary",
                node_given=self.remote is not None,
            )

    def declare_locks(self, level: Level) -> None:
        if level not in (Level.NODE, Level.NODE_RES) or self.instance is None:
            return
        uuids = set(self.config.instance_nodes(self.instance))
        if self.remote is not None:
            uuids.add(self.remote.uuid)
        if self.allocator is not None:
            group = self.config.node(self.instance.primary_node).group
            uuids |= placement.candidates(self.config.snapshot(), group)
        self.need(level, uuids, shared=level is Level.NODE)

    def hook_env(self, plan: ReplacePlan | None) -> dict[str, object]:
        assert self.instance is not None
        secondaries = self.config.secondary_nodes(self.instance)
        return {
            "MODE": self.op.mode,
            "NEW_SECONDARY": plan.node.name if plan is not None and plan.new_secondary else "",
            "OLD_SECONDARY": self.config.node(secondaries[0]).name if secondaries else "",
        }

    def hook_nodes(self, plan: ReplacePlan | None) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        nodes = [self.config.master_node().uuid, self.instance.primary_node]
        if plan is not None and plan.new_secondary:
            nodes.append(plan.node.uuid)
        return nodes, nodes

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> ReplacePlan | None:
        assert self.instance is not None
        instance, op = self.instance, self.op
        prereq.require_not_forthcoming(instance, "replace disks of")
        disks = self.config.instance_disks(instance)
        if not disks or any(disk.dev_type != DRBD8 for disk in disks):
            raise errors.OpPrereqError(
                f"disks of instance {instance.name} are of kind"
                f" {self.config.disk_template(instance)}; only mirrored ones can be replaced",
                errors.ECODE_INVAL,
            )
        secondaries = self.config.secondary_nodes(instance)
        if len(secondaries) != 1:
            raise errors.OpPrereqError(
                f"instance {instance.name} has {len(secondaries)} secondary nodes, not one",
                errors.ECODE_STATE,
            )
        primary, secondary = (
            self.config.node(instance.primary_node),
            self.config.node(secondaries[0]),
        )
        prereq.require_online(primary)
        chosen = [
            (index, prereq.disk_by_index(self, instance, index)) for index in op.disks
        ] or list(enumerate(disks))
        if op.mode == REPLACE_NEW_SECONDARY:
            return self._plan_new_secondary(instance, chosen, primary, secondary)
        mode = op.mode
        if mode == REPLACE_AUTO:
            found = self._faulty(instance, chosen, primary, secondary)
            if found is None:
                return None
            mode, chosen = found
        node, other = (primary, secondary) if mode == REPLACE_ON_PRIMARY else (secondary, primary)
        prereq.require_online(node)
        prereq.require_online(other)
        snapshots.require_none(
            self,
            instance,
            "replace disks of",
            nodes=[node.uuid],
            disks=[index for index, _disk in chosen],
        )
        capacity.require_free_space(
            self, [node.uuid], capacity.volumes_mib([disk for _index, disk in chosen])
        )
        return ReplacePlan(instance, tuple(chosen), node, other, False)

    def _plan_new_secondary(
        self, instance: Instance, chosen: list[tuple[int, Disk]], primary: Node, secondary: Node
    ) -> ReplacePlan:
        if self.allocator is not None:
            request = allocator.Relocate(instance.uuid, (secondary.uuid,))
            (uuid,) = placement.ask_allocator(self, self.allocator, self.config.snapshot(), request)
            node = self.config.node(uuid)
            self.info(
                f"Selected new secondary for instance {instance.name} via iallocator"
                f" {self.allocator}: {node.name}"
            )
        else:
            assert self.remote is not None
            node = self.config.node(self.remote.uuid)
        for present, role in ((primary, "primary"), (secondary, "secondary")):
            if node.uuid == present.uuid:
                raise errors.OpPrereqError(
                    f"node {node.name} is the {role} node of instance {instance.name} already",
                    errors.ECODE_INVAL,
                )
        prereq.require_target(node)
        snapshots.require_none(
            self,
            instance,
            "replace the secondary node of",
            nodes=[secondary.uuid],
            may_be_dead=True,
        )
        if node.group != primary.group:
            policy.require_policy(
                self, self.config.filled(instance), node, ignore=self.op.ignore_ipolicy
            )
        capacity.require_free_space(
            self, [node.uuid], capacity.volumes_mib([disk for _index, disk in chosen])
        )
        return ReplacePlan(instance, tuple(chosen), node, primary, True)

    def _faulty(
        self, instance: Instance, chosen: list[tuple[int, Disk]], primary: Node, secondary: Node
    ) -> tuple[str, list[tuple[int, Disk]]] | None:
        """Find the node on which disks are broken.

        :returns: the mode of the replacement on that node, and the broken disks with their numbers;
            None when no disk is broken.
        :raises errors.OpPrereqError: a disk is not active, or disks are broken on both nodes.
        """
        online = [node.uuid for node in (primary, secondary) if not node.offline]
        answers = self.rpc.call_together(
            (BLOCKDEV_FIND, online, {"disk": (disk, instance)}) for _index, disk in chosen
        )
        broken: dict[str, list[tuple[int, Disk]]] = {}
        for mode, node in ((REPLACE_ON_PRIMARY, primary), (REPLACE_ON_SECONDARY, secondary)):
            prereq.require_online(node)
            for (index, disk), by_node in zip(chosen, answers, strict=True):
                status = by_node[node.uuid].payload()
                if status is None:
                    raise errors.OpPrereqError(
                        f"disk {index} of instance {instance.name} is not active on node"
                        f" {node.name}. Use 'gnt-instance activate-disks {instance.name}'.",
                        errors.ECODE_STATE,
                    )
                if status.ldisk_status == LDS_FAULTY:
                    broken.setdefault(mode, []).append((index, disk))
        if len(broken) > 1:
            raise errors.OpPrereqError(
                f"disks of instance {instance.name} are broken on both nodes. Name what to replace"
                " with --disks and --on-primary or --on-secondary.",
                errors.ECODE_STATE,
            )
        for mode, disks in broken.items():
            return mode, disks
        return None

    # -- act -------------------------------------------------------------------

    def steps(self, plan: ReplacePlan | None) -> list[str]:
        if plan is None:
            return ["nothing, no disk is broken"]
        numbers = ", ".join(str(index) for index, _disk in plan.disks)
        made = f"make new volumes for disk {numbers} on {plan.node.name}"
        if plan.new_secondary:
            what = [f"let {plan.other.name} leave its partner and meet {plan.node.name}"]
        else:
            what = [f"exchange the volumes on {plan.node.name}"]
        return [made, *what, "wait until all is in step", "destroy the old volumes"]

    def exec(self, plan: ReplacePlan | None) -> None:
        if plan is None:
            self.info("no disk is broken, nothing to replace")
            assert self.instance is not None
            self._clear(self.instance)
            return
        instance = plan.instance
        was_active = instance.disks_active
        numbers = ", ".join(str(index) for index, _disk in plan.disks)
        self.feedback(f"Replacing disk(s) {numbers} for instance '{instance.name}'")
        self._clear(instance)
        if not was_active:
            disk_work.assemble_disks(self, instance, ignore_secondaries=plan.new_secondary)
        try:
            # What stays is the only copy for a while.
            mirror.require_good_replica(self, instance, plan.other, alone=True, ignore=False)
            if plan.new_secondary:
                self._to_other_node(plan)
            else:
                self._on_one_node(plan)
        finally:
            if not was_active:
                disk_work.shutdown_disks(self, self.config.instance(instance.uuid))

    def _clear(self, instance: Instance) -> None:
        try:
            convert.clear(self, instance)
        except errors.RpcError as err:
            self.warn(
                f"volumes of an earlier replacement were not removed: {err}",
                hint="The next replacement, or the removal of the instance, tries again.",
            )

    def _finish(self, instance: Instance, disks: list[Disk]) -> None:
        """Wait until all is in step; destroy what is not needed any more before or after that."""
        if self.op.early_release:
            self._clear(instance)
            self.downgrade_locks(Level.NODE_RES)
        sync.require_in_sync(self, instance, disks)
        if not self.op.early_release:
            self._clear(instance)

    # -- new storage on one of the nodes ---------------------------------------

    def _on_one_node(self, plan: ReplacePlan) -> None:
        instance = plan.instance
        for index, disk in plan.disks:
            self.feedback(f"* exchanging the storage of disk {index} on node {plan.node.name}")
            self._exchange(plan, index, disk)
        # After a split brain each half stands alone; the new one has nothing that could be lost.
        answers = self.rpc.call_many(
            DRBD_ATTACH_NET,
            [plan.node.uuid, plan.other.uuid],
            disks=([disk for _index, disk in plan.disks], instance),
            multimaster=False,
        )
        for answer in answers.values():
            if answer.failure is not None:
                self.warn(
                    f"node {answer.node_name} does not look for the other half:"
                    f" {why(answer.failure)}"
                )
        self._finish(instance, [disk for _index, disk in plan.disks])

    def _exchange(self, plan: ReplacePlan, index: int, disk: Disk) -> None:
        """Let new volumes, under the same names, take the place of the old ones."""
        instance, node = plan.instance, plan.node
        present = self._present(plan, disk)
        fresh = [_renamed(child, _NEW) for child in disk.children]
        gone = [_renamed(child, _OLD) for child in disk.children]
        self._mark(instance, node, [*fresh, *gone])
        for device in fresh:
            self._create(instance, index, device, node)
        self._ask(
            BLOCKDEV_REMOVECHILDREN,
            plan,
            index,
            "taken from its storage",
            disk=(disk, instance),
            children=(disk.children, instance),
        )
        pairs = [
            (old, new)
            for old, new, there in zip(disk.children, gone, present, strict=True)
            if there
        ]
        pairs += list(zip(fresh, disk.children, strict=True))
        self._ask(
            BLOCKDEV_RENAME,
            plan,
            index,
            "given new storage",
            renames=[(old, instance, new.logical_id) for old, new in pairs],
        )
        self._ask(
            BLOCKDEV_ADDCHILDREN,
            plan,
            index,
            "attached to its new storage",
            disk=(disk, instance),
            children=(disk.children, instance),
        )

    def _present(self, plan: ReplacePlan, disk: Disk) -> list[bool]:
        """Which of the volumes below a disk exist on the node; after a loss it may be none."""
        answer = self.rpc.call(
            BLOCKDEV_GETDIMENSIONS,
            plan.node.uuid,
            disks=[(child, plan.instance) for child in disk.children],
        )
        return [size is not None for size in answer.payload()]

    def _mark(self, instance: Instance, node: Node, devices: list[Disk]) -> None:
        """Note volumes which belong to no disk, so that they are not lost track of."""
        with self.config.transaction() as change:
            for device in devices:
                change.add_detached_disk(convert.detached_part(self, instance, device, node.uuid))

    def _create(self, instance: Instance, index: int, device: Disk, node: Node) -> None:
        try:
            disk_work.create_device(self, instance, device, node.uuid, on_primary=False)
        except errors.RpcError as err:
            raise errors.OpExecError(
                f"could not make a volume for disk {index} of instance {instance.name} on node"
                f" {node.name}: {why(err)}; the disk is as it was"
            ) from err

    def _ask(self, call: Any, plan: ReplacePlan, index: int, what: str, **args: Any) -> None:
        answer = self.rpc.call(call, plan.node.uuid, **args)
        if answer.failure is not None:
            raise errors.OpExecError(
                f"disk {index} of instance {plan.instance.name} cannot be {what} on node"
                f" {plan.node.name}: {why(answer.failure)}; its other half, on node"
                f" {plan.other.name}, is in use. Repeat the command when the cause is gone."
            ) from answer.failure

    # -- another secondary node ------------------------------------------------

    def _to_other_node(self, plan: ReplacePlan) -> None:
        instance, primary, node = plan.instance, plan.other, plan.node
        old = [disk for _index, disk in plan.disks]
        (old_secondary_uuid,) = self.config.secondary_nodes(instance)
        minors = self.config.allocate_minors([node.uuid] * len(old), self.ctx.ec_id)
        new = [
            _mirrored_to(disk, primary.uuid, node.uuid, minor)
            for disk, minor in zip(old, minors, strict=True)
        ]
        self._mark(instance, node, [child for disk in new for child in disk.children])
        for index, disk in enumerate(new):
            self.feedback(f"* making the half of disk {index} on node {node.name}")
            for child in disk.children:
                self._create(instance, index, child, node)
            try:
                disk_work.create_device(
                    self, instance, disk, node.uuid, on_primary=False, children=False
                )
            except errors.RpcError as err:
                raise errors.OpExecError(
                    f"could not make the half of disk {index} of instance {instance.name} on node"
                    f" {node.name}: {why(err)}; its disks are as they were"
                ) from err
        old_secondary = self.config.node(old_secondary_uuid)
        if not old_secondary.offline:
            self.feedback(f"* leaving the old secondary node {old_secondary.name}")
            for index, disk in enumerate(old):
                answer = self.rpc.call(BLOCKDEV_SHUTDOWN, old_secondary.uuid, disk=(disk, instance))
                if answer.failure is not None:
                    self.warn(
                        f"disk {index} stays active on node {old_secondary.name}:"
                        f" {why(answer.failure)}",
                        hint="Look at that node when it is over.",
                    )
        self._change_partner(plan, old, new, old_secondary)
        self._finish(
            self.config.instance(instance.uuid), [self.config.disk(disk.uuid) for disk in new]
        )

    def _change_partner(
        self, plan: ReplacePlan, old: list[Disk], new: list[Disk], old_secondary: Node
    ) -> None:
        """Let the primary leave the old half of each disk and meet the new one."""
        instance, primary, node = plan.instance, plan.other, plan.node
        answer = self.rpc.call(DRBD_DISCONNECT_NET, primary.uuid, disks=(old, instance))
        if answer.failure is not None:
            raise errors.OpExecError(
                f"disks of instance {instance.name} cannot be separated on node {primary.name}:"
                f" {why(answer.failure)}. 'gnt-instance activate-disks {instance.name}' connects"
                " them again."
            ) from answer.failure
        # From here on the new node has the other half, also if we die before they have met.
        mark = convert.mark(instance.uuid)
        with self.config.transaction() as change:
            for loose in convert.marked(self, instance):
                if loose.name == mark and loose.nodes == (node.uuid,):
                    change.remove_detached_disk(loose.uuid)
            for disk in new:
                change.update_disk(disk)
            for disk in old:
                for child in disk.children:
                    change.add_detached_disk(
                        convert.detached_part(self, instance, child, old_secondary.uuid)
                    )
        fresh = [self.config.disk(disk.uuid) for disk in new]
        answers = self.rpc.call_many(
            DRBD_ATTACH_NET, [primary.uuid, node.uuid], disks=(fresh, instance), multimaster=False
        )
        for answer in answers.values():
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"disks of instance {instance.name} cannot be connected on node"
                    f" {answer.node_name}: {why(answer.failure)}; node {node.name} is the secondary"
                    f" now. Use 'gnt-instance activate-disks {instance.name}' when the cause is"
                    " gone."
                ) from answer.failure


def _renamed(volume: Disk, ending: str) -> Disk:
    group, name = volume.logical_id
    return dataclasses.replace(volume, dev_type=PLAIN, logical_id=(group, f"{name}{ending}"))


def _mirrored_to(disk: Disk, primary: str, secondary: str, minor: int) -> Disk:
    """A mirrored disk with its other half on another node."""
    node_a, _node_b, port, minor_a, minor_b, secret = disk.logical_id
    own = minor_a if node_a == primary else minor_b
    nodes = (primary, secondary)
    children = tuple(dataclasses.replace(child, nodes=nodes) for child in disk.children)
    return dataclasses.replace(
        disk,
        logical_id=(*nodes, port, own, minor, secret or specs.new_secret()),
        children=children,
        nodes=nodes,
    )
