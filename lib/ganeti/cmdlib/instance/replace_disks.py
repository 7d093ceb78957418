"""Replace the storage of mirrored disks: check and plan.

:mod:`ganeti.cmdlib.ops.disks.replace` carries out the plan.
"""

from __future__ import annotations

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, replace, snapshots
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.disks.replace import ReplacePlan
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.disk import (
    LDS_FAULTY,
    REPLACE_AUTO,
    REPLACE_NEW_SECONDARY,
    REPLACE_ON_PRIMARY,
    REPLACE_ON_SECONDARY,
)
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node
from ganeti.opcodes.instance import OpInstanceReplaceDisks
from ganeti.wire.calls import BLOCKDEV_FIND_MULTI


@executes(OpInstanceReplaceDisks)
class LUInstanceReplaceDisks(LogicalUnit[OpInstanceReplaceDisks, ReplacePlan | None]):
    """Make new volumes for mirrored disks: on the primary, the secondary, or another node."""

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
                    "a new secondary node gets all disks. Do not name disks.", errors.ECODE_INVAL
                )
        elif named or op.iallocator:
            raise errors.OpPrereqError(
                "a node or an allocator is allowed only for a new secondary node",
                errors.ECODE_INVAL,
            )
        self.remote = (
            self.config.expand_node(op.remote_node_uuid or op.remote_node or "") if named else None
        )
        instance = self.lock_instance(op.instance_name, op.instance_uuid)
        self.allocator = None
        if op.mode == REPLACE_NEW_SECONDARY:
            self.allocator = placement.choose_allocator(
                self.config,
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
        if not disks or any(not disk.has_replicas for disk in disks):
            raise errors.OpPrereqError(
                f"disks of instance {instance.name} have template"
                f" {self.config.disk_template(instance)}; only mirrored disks can be replaced",
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
        location.require_only_on_primary(self.ctx, instance, certain_to="replace disks of")
        chosen = [
            (index, prereq.disk_by_index(self.config, instance, index)) for index in op.disks
        ] or list(enumerate(disks))
        if op.mode == REPLACE_NEW_SECONDARY:
            return self._plan_new_secondary(instance, chosen, secondary)
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
            self.ctx,
            instance,
            "replace disks of",
            nodes=[node.uuid],
            disks=[index for index, _disk in chosen],
        )
        capacity.require_free_space(
            self.config,
            self.rpc,
            [node.uuid],
            capacity.volumes_mib([disk for _index, disk in chosen]),
        )
        return ReplacePlan(instance, tuple(chosen), node, other, False)

    def _plan_new_secondary(
        self, instance: Instance, chosen: list[tuple[int, Disk]], secondary: Node
    ) -> ReplacePlan:
        if self.allocator is not None:
            request = allocator.Relocate(instance.uuid, (secondary.uuid,))
            (uuid,) = placement.ask_allocator(
                self.rpc, self.log, self.allocator, self.config.snapshot(), request
            )
            node = self.config.node(uuid)
            self.log.info(
                f"Selected new secondary for instance {instance.name} via iallocator"
                f" {self.allocator}: {node.name}"
            )
        else:
            assert self.remote is not None
            node = self.config.node(self.remote.uuid)
        return replace.plan_new_secondary(
            self.ctx, instance, chosen, node, policy.Override(self.op.ignore_ipolicy, self.op.OP_ID)
        )

    def _faulty(
        self, instance: Instance, chosen: list[tuple[int, Disk]], primary: Node, secondary: Node
    ) -> tuple[str, list[tuple[int, Disk]]] | None:
        """Find the node on which disks are broken.

        :returns: the mode of the replacement on that node, and the broken disks with their numbers;
            None when no disk is broken.
        :raises errors.OpPrereqError: a disk is not active, or disks are broken on both nodes.
        """
        online = [node.uuid for node in (primary, secondary) if not node.offline]
        asked = dict.fromkeys(online, [disk for _index, disk in chosen])
        answers = call_for_disks(self.rpc, BLOCKDEV_FIND_MULTI, asked, instance)
        broken: dict[str, list[tuple[int, Disk]]] = {}
        for mode, node in ((REPLACE_ON_PRIMARY, primary), (REPLACE_ON_SECONDARY, secondary)):
            prereq.require_online(node)
            for (index, disk), answer in zip(chosen, answers[node.uuid], strict=True):
                status = answer.payload()
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
                f"disks of instance {instance.name} are broken on both nodes. Name the disks and"
                " the node with --disks and --on-primary or --on-secondary.",
                errors.ECODE_STATE,
            )
        for mode, disks in broken.items():
            return mode, disks
        return None

    # -- act -------------------------------------------------------------------

    def steps(self, plan: ReplacePlan | None) -> list[str]:
        if plan is None:
            return ["do nothing, because no disk is broken"]
        numbers = ", ".join(str(index) for index, _disk in plan.disks)
        made = f"make new volumes for disk {numbers} on {plan.node.name}"
        if plan.new_secondary:
            what = [
                f"disconnect {plan.other.name} from its peer and connect it to {plan.node.name}"
            ]
        else:
            what = [f"exchange the volumes on {plan.node.name}"]
        return [made, *what, "wait until the replicas are in sync", "destroy the old volumes"]

    def exec(self, plan: ReplacePlan | None) -> None:
        if plan is None:
            self.log.info("no disk is broken, so nothing is replaced")
            assert self.instance is not None
            replace.clear_detached(self.ctx, self.instance)
            return
        replace.Replacement(self.ctx, plan, early_release=self.op.early_release).run()
