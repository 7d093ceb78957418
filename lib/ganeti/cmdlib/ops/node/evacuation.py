"""Emptying a node: what migrating and evacuating its instances have in common.

``OP_NODE_MIGRATE`` makes a migration for each primary instance. ``OP_NODE_EVACUATE`` also takes
those which do not run or whose node is dead, and, in the modes ``secondary-only`` and ``all``,
the disks of which the node has the second copy. Where they go is said by the user, with a target
node, or by an allocator (manual page **ganeti-iallocator**): an evacuation asks it once for all
instances, in mode ``node-evacuate``, and checks the jobs it wants before they are submitted; each
migration asks it by itself when its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, LogicalUnit, PlanT
from ganeti.cmdlib.locks import require_still_same
from ganeti.locking import Level
from ganeti.objects import Instance, Node
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate


def evacuation_target(unit: AnyUnit, name: str | None, uuid: str | None) -> Node | None:
    """The node which the user named; None when none was.

    :raises errors.OpPrereqError: unknown, or name and uuid are those of two nodes.
    """
    if not name and not uuid:
        return None
    node = unit.config.expand_node(name or uuid or "")
    if uuid is not None and node.uuid != uuid:
        raise errors.OpPrereqError(
            f"target node {node.name} does not have uuid {uuid}", errors.ECODE_INVAL
        )
    return node


def check_target(node: Node, target: Node) -> None:
    if node.uuid == target.uuid:
        raise errors.OpPrereqError(
            f"node {node.name} cannot be the target of its own instances", errors.ECODE_INVAL
        )
    prereq.require_target(target)


EvacuationOpT = TypeVar("EvacuationOpT", bound=OpNodeEvacuate | OpNodeMigrate)


class EvacuationUnit(LogicalUnit[EvacuationOpT, PlanT]):
    """What both units do first, and their locks: the instances, then the nodes.

    Nothing is changed under these locks; they keep what is decided true until the jobs, which ask
    for their own, are known.
    """

    def _find_node(self) -> Node:
        """:raises errors.OpPrereqError: unknown, or name and uuid are those of two nodes."""
        node = self.config.expand_node(self.op.node_name)
        if self.op.node_uuid is not None and node.uuid != self.op.node_uuid:
            raise errors.OpPrereqError(
                f"node {node.name} does not have uuid {self.op.node_uuid}", errors.ECODE_NOENT
            )
        return node

    def _lock(self, node: Node, instances: Sequence[Instance], target: Node | None) -> None:
        self.node = node
        self.target = target
        self.guessed = frozenset(instance.uuid for instance in instances)
        self.need(Level.INSTANCE, self.guessed, shared=True)
        nodes = [node.uuid] if target is None else [node.uuid, target.uuid]
        self.lock_nodes(nodes, shared=True)

    def _still(self, instances: Sequence[Instance]) -> None:
        require_still_same(
            self.guessed, {i.uuid for i in instances}, f"instances of node {self.node.name}"
        )
