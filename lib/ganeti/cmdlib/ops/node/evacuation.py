"""The base class of the logical units which move all instances away from a node.

``OP_NODE_MIGRATE`` submits a migration for each primary instance. ``OP_NODE_EVACUATE`` also moves
instances which do not run or whose node is dead, and, in the modes ``secondary-only`` and ``all``,
the secondary replicas on the node. The target is a node which the user names, or an allocator
chooses it (manual page **ganeti-iallocator**): an evacuation asks the allocator once for all
instances, in mode ``node-evacuate``, and checks its jobs before they are submitted; each migration
job asks the allocator itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, PlanT
from ganeti.cmdlib.locks import require_still_same
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.locking import Level
from ganeti.objects import Instance, Node
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMaintenanceStart, OpNodeMigrate

if TYPE_CHECKING:
    from ganeti.config import Config


def evacuation_target(config: Config, name: str | None, uuid: str | None) -> Node | None:
    """Find the target node which the user named; None without one.

    :raises errors.OpPrereqError: the node is unknown, or name and UUID are those of two nodes.
    """
    if not name and not uuid:
        return None
    node = config.expand_node(name or uuid or "")
    if uuid is not None and node.uuid != uuid:
        raise errors.OpPrereqError(
            f"target node {node.name} is not the one that the UUID in the request names",
            errors.ECODE_INVAL,
        )
    return node


def check_target(config: Config, node: Node, target: Node) -> None:
    """Check that the target can take the instances of a node.

    :raises errors.OpPrereqError: it is the same node, or may not get instances.
    """
    if node.uuid == target.uuid:
        raise errors.OpPrereqError(
            f"node {node.name} cannot be the target of its own instances", errors.ECODE_INVAL
        )
    prereq.require_target(config, target, None)
    for name in sorted({one.hypervisor for one in config.node_instances(node.uuid)[0]}):
        prereq.require_hypervisor(config, target, name)


EvacuationOpT = TypeVar(
    "EvacuationOpT", bound=OpNodeEvacuate | OpNodeMaintenanceStart | OpNodeMigrate
)


class EvacuationUnit(LogicalUnit[EvacuationOpT, PlanT]):
    """Finds the node and holds shared locks of its instances, the node and the target.

    Nothing is changed under these locks. They keep the configuration as it is until the jobs are
    submitted, which take their own locks.
    """

    def _find_node(self) -> Node:
        """Find the node to be emptied.

        :raises errors.OpPrereqError: it is unknown, or name and UUID are those of two nodes.
        """
        node = self.config.expand_node(self.op.node_name)
        if self.op.node_uuid is not None and node.uuid != self.op.node_uuid:
            raise errors.OpPrereqError(
                f"node {node.name} is not the one that the UUID in the request names",
                errors.ECODE_NOENT,
            )
        return node

    def _choose_allocator(self, node: Node, target: Node | None, node_option: str) -> str | None:
        """Choose the allocator; None when there is a target, which ``node_option`` names."""
        return placement.choose_allocator(
            self.config,
            self.op.iallocator,
            what=f"the instances on node {node.name}",
            node_option=node_option,
            node_given=target is not None,
        )

    def _lock(self, node: Node, instances: Sequence[Instance], target: Node | None) -> None:
        self.node = node
        self.target = target
        self.guessed = frozenset(instance.uuid for instance in instances)
        self.need(Level.INSTANCE, self.guessed, shared=True)
        nodes = [node.uuid] if target is None else [node.uuid, target.uuid]
        self.lock_nodes(nodes, shared=True)

    def _require_unchanged(self, instances: Sequence[Instance]) -> None:
        require_still_same(
            self.guessed, {i.uuid for i in instances}, f"instances of node {self.node.name}"
        )


def untouched(movable: Sequence[str]) -> str:
    """Tell that nothing was moved, and which instances would have been.

    :param movable: the names of these instances.
    """
    if not movable:
        return "Nothing was moved."
    return (
        f"Nothing was moved; without the instances which cannot be moved, it would have moved"
        f" {', '.join(movable)}."
    )
