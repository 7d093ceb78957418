"""Base of the units of migrate and failover: the target node, the locks, and the hooks.

Where an instance goes depends on its disks. Those which we mirror have one other node, their
secondary, and get a new replica when the user names another one. Those which several nodes see can
go to any node, which the user names or an allocator chooses (manual page **ganeti-iallocator**,
mode ``relocate``).

Locks: the instance; then source and target, the nodes themselves shared and their resources
exclusively. While an allocator chooses there are more of them: all nodes of the instance's group
which could take it, because the facts which the allocator gets must stay true until the instance is
there. The locks of nodes which were not chosen are released at once (``doc/design-placement.rst``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, PlanT
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.migration import cleanup
from ganeti.cmdlib.ops.migration.cleanup import CleanupPlan
from ganeti.cmdlib.ops.migration.plan import MigrationPlan, require_mirrored
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.policy.instance import Override
from ganeti.locking import Level
from ganeti.objects.disk_templates import EXT_MIRRORED, INT_MIRRORED
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate

if TYPE_CHECKING:
    from ganeti.objects import Instance, Node


MigrationOpT = TypeVar("MigrationOpT", bound=OpInstanceFailover | OpInstanceMigrate)


class MigrationUnit(LogicalUnit[MigrationOpT, PlanT]):
    """A unit which brings one instance to another node.

    The opcode has ``instance_name``, ``instance_uuid``, ``target_node``, ``target_node_uuid``,
    ``iallocator`` and ``cleanup``.

    :ivar target: the target node; None in clean-up mode, and until the allocator has chosen.
    :ivar allocator: name of the allocator which chooses; None when the node is known.
    """

    #: The operation, for messages.
    ACTION = "move"

    target: Node | None
    allocator: str | None

    @property
    def override(self) -> Override:
        """Whether violations of the policy are warnings."""
        return Override(self.op.ignore_ipolicy, self.op.OP_ID)

    def expand_names(self) -> None:
        instance = self.lock_instance(self.op.instance_name, self.op.instance_uuid)
        self._find_target(instance)

    def declare_locks(self, level: Level) -> None:
        assert self.instance is not None
        if level is Level.NODEGROUP:
            # From now on no other job can change the disks, so the target is determined again.
            self._find_target(self.instance)
            if self.allocator is not None:
                self.need(level, [self._group()], shared=True)
        elif level is Level.NODE:
            self.need(level, self._nodes(self.instance), shared=True)
        elif level is Level.NODE_RES:
            # The operation uses memory and disks of the nodes, the nodes stay as they are.
            self.need(level, self.owned(Level.NODE))

    def locks_acquired(self, level: Level) -> None:
        super().locks_acquired(level)
        if level is Level.NODE and self.allocator is not None:
            group = self._group()
            if group not in self.owned(Level.NODEGROUP):
                raise errors.OpPrereqError(
                    "the node of the instance changed its group while the job waited for its"
                    " locks. Please retry.",
                    errors.ECODE_STATE,
                )

    def _group(self) -> str:
        assert self.instance is not None
        return self.config.node(self.instance.primary_node).group

    def _find_target(self, instance: Instance) -> None:
        """Fill in ``target`` and ``allocator``.

        :raises errors.OpPrereqError: the disks of the instance exclude the node or the allocator
            which the user gave.
        """
        op = self.op
        self.target = self.allocator = None
        prereq.require_not_forthcoming(instance, self.ACTION)
        if op.cleanup:
            return
        named = self._named_target()
        template = self.config.disk_template(instance)
        require_mirrored(self.config, instance, self.ACTION)
        if template in INT_MIRRORED:
            if op.iallocator:
                raise errors.OpPrereqError(
                    f"instance {instance.name} has mirrored disks ({template}), so that it goes to"
                    " its secondary node, or to a node which you name. An allocator is for shared"
                    " disks only.",
                    errors.ECODE_STATE,
                )
            if named is not None:
                self.target = named
                return
            (uuid,) = self.config.secondary_nodes(instance)
            self.target = self.config.node(uuid)
            return
        self.target = named or self._only_other(instance)
        self.allocator = placement.choose_allocator(
            self.config,
            op.iallocator,
            what=f"instance {instance.name}",
            node_option="--target-node",
            node_given=self.target is not None,
        )

    def _only_other(self, instance: Instance) -> Node | None:
        """Return the target node when the user names none and only one is possible."""
        if self.op.iallocator or self.config.cluster().default_iallocator:
            return None
        primary = self.config.node(instance.primary_node)
        others = placement.candidates(self.config.snapshot(), primary.group) - {primary.uuid}
        return self.config.node(*others) if len(others) == 1 else None

    def _named_target(self) -> Node | None:
        """:raises errors.OpPrereqError: unknown node, or name and uuid are those of two."""
        name, uuid = self.op.target_node, self.op.target_node_uuid
        if not name and not uuid:
            return None
        node = self.config.expand_node(uuid or name or "")
        if name and uuid and self.config.expand_node(name).uuid != uuid:
            raise errors.OpPrereqError(
                f"target node {name} is not the one that the UUID in the request names",
                errors.ECODE_INVAL,
            )
        return node

    def _nodes(self, instance: Instance) -> set[str]:
        primary = self.config.node(instance.primary_node)
        if self.allocator is not None:
            return {primary.uuid, *placement.candidates(self.config.snapshot(), primary.group)}
        if self.target is not None:
            return {*self.config.instance_nodes(instance), self.target.uuid}
        return {node.uuid for node in self.config.nodes() if node.group == primary.group}

    def chosen_target(self) -> Node:
        """Return the target node as configured now; ask the allocator if it has to choose.

        :raises errors.OpPrereqError: the allocator found none.
        """
        assert self.instance is not None
        if self.allocator is None:
            assert self.target is not None
            return self.config.node(self.target.uuid)
        require_mirrored(self.config, self.instance, self.ACTION)
        primary = self.instance.primary_node
        request = allocator.Relocate(self.instance.uuid, relocate_from=(primary,))
        others = self.owned(Level.NODE_RES) - {primary}
        config = reach.config_without(self.ctx, [self.instance], others)
        (uuid,) = placement.ask_allocator(self.rpc, self.log, self.allocator, config, request)
        self.target = self.config.node(uuid)
        if uuid not in self.owned(Level.NODE_RES):
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} chose node {self.target.name}, which was not"
                " available when the job took its locks. Please retry.",
                errors.ECODE_STATE,
            )
        for level in (Level.NODE_RES, Level.NODE):
            self.release_locks(level, self.owned(level) - {primary, uuid})
        self.log.info(
            f"Selected nodes for instance {self.instance.name} via iallocator"
            f" {self.allocator}: {self.target.name}"
        )
        return self.target

    def move_env(self, plan: MigrationPlan | CleanupPlan) -> dict[str, object]:
        """Hook variables: the names of the old and the new nodes."""
        assert self.instance is not None
        present = self.config.instance(self.instance.uuid)
        primary = self.config.node(present.primary_node)
        target = primary if isinstance(plan, CleanupPlan) else plan.target
        mirrored = self.config.disk_template(present) not in EXT_MIRRORED and target != primary
        return {
            "OLD_PRIMARY": primary.name,
            "NEW_PRIMARY": target.name,
            # Primary and secondary node change their roles.
            "OLD_SECONDARY": target.name if mirrored else "",
            "NEW_SECONDARY": primary.name if mirrored else "",
        }

    def nodes_with_hooks(self) -> list[str]:
        """Return the UUIDs of the nodes whose hooks run: the master, the nodes of the instance,
        the target.
        """
        assert self.instance is not None
        nodes = [self.config.master_node().uuid, *self.config.instance_nodes(self.instance)]
        if self.target is not None:
            nodes.append(self.target.uuid)
        return list(dict.fromkeys(nodes))

    def plan_cleanup(self) -> CleanupPlan:
        """Plan the repair after an interrupted migration.

        :raises errors.OpPrereqError: the disks exist on the primary node only.
        """
        assert self.instance is not None
        return cleanup.plan_cleanup(self.config, self.rpc, self.instance)
