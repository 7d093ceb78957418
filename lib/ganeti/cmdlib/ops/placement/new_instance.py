"""Where a new instance goes: the nodes which the user named, or which an allocator chooses.

Until the allocator has chosen, the locks of all nodes which it may choose are needed; with
opportunistic locking only those of nodes which are free at this moment, so that the creation never
waits for what others do, but may find too few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, PlanT
from ganeti.cmdlib.ops.install import forthcoming
from ganeti.cmdlib.ops.nics import specs
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants.disk import INT_MIRRORED
from ganeti.locking import Level
from ganeti.objects import Instance, Node, NodeGroup
from ganeti.opcodes.instance import OpInstanceCreate


class PlacedUnit(LogicalUnit[OpInstanceCreate, PlanT]):
    """Nodes and their locks, for the unit which makes an instance.

    That unit fills in the attributes in its ``expand_names``.
    """

    name: str
    hypervisor: str
    template: str
    group: NodeGroup | None
    allocator: str | None
    reserved: Instance | None

    def declare_locks(self, level: Level) -> None:
        if self.allocator is None:
            return
        if level is Level.NODE:
            self.need(Level.NODE, self._candidates(), shared=True)
        elif level is Level.NODE_RES:
            self.need(Level.NODE_RES, self.owned(Level.NODE))

    def locks_acquired(self, level: Level) -> None:
        super().locks_acquired(level)
        if self.allocator is None or level not in (Level.NODE, Level.NODE_RES):
            return
        held = self.owned(level)
        if level is Level.NODE_RES:
            self.release_locks(Level.NODE, self.owned(Level.NODE) - held)
        self._require_enough(held)

    def _candidates(self) -> frozenset[str]:
        group_uuid = None if self.group is None else self.group.uuid
        return placement.candidates(self.config.snapshot(), group_uuid)

    def _require_enough(self, usable: frozenset[str]) -> None:
        """The nodes whose locks are held can make up a place at all."""
        needed = allocator.required_nodes(self.template)
        if len(usable) >= needed:
            return
        possible = len(self._candidates())
        if self.op.opportunistic_locking and possible >= needed:
            raise errors.OpPrereqError(
                f"instance {self.name} needs {needed} node{'s' * (needed > 1)}, and of the"
                f" {possible} which could take it only {len(usable)} are free at the moment."
                " Please retry.",
                errors.ECODE_TEMP_NORES,
            )
        where = "" if self.group is None else f" in group {self.group.name}"
        raise errors.OpPrereqError(
            f"instance {self.name} needs {needed} node{'s' * (needed > 1)}, only {possible}"
            f"{where} may get new instances",
            errors.ECODE_NORES,
        )

    def named_nodes(self) -> list[Node]:
        """The nodes which the user named: the primary, and for mirrored disks the secondary."""
        op = self.op
        primary = self._named_node(op.pnode, op.pnode_uuid)
        if self.template not in INT_MIRRORED:
            if op.snode or op.snode_uuid:
                self.warn(
                    f"a secondary node has no meaning for disks of kind {self.template} and is"
                    " ignored"
                )
            return [primary]
        if not op.snode and not op.snode_uuid:
            raise errors.OpPrereqError(
                f"disks of kind {self.template} need a secondary node. Name both with"
                " --node PRIMARY:SECONDARY.",
                errors.ECODE_INVAL,
            )
        secondary = self._named_node(op.snode, op.snode_uuid)
        if secondary.uuid == primary.uuid:
            raise errors.OpPrereqError(
                f"node {primary.name} cannot be both primary and secondary", errors.ECODE_INVAL
            )
        return [primary, secondary]

    def _named_node(self, name: str | None, uuid: str | None) -> Node:
        node = self.config.expand_node(uuid or name or "")
        if name and uuid and self.config.expand_node(name).uuid != node.uuid:
            raise errors.OpPrereqError(f"node {name} does not have uuid {uuid}", errors.ECODE_INVAL)
        return node

    def require_named_node(self, node: Node) -> Node:
        fresh = self.config.node(node.uuid)
        prereq.require_target(fresh)
        if self.group is not None and fresh.group != self.group.uuid:
            raise errors.OpPrereqError(
                f"node {fresh.name} is not in group {self.group.name}", errors.ECODE_INVAL
            )
        return fresh

    def place(
        self,
        beparams_filled: Mapping[str, Any],
        wishes: list[dict[str, Any]],
        planned_nics: list[specs.PlannedNic],
    ) -> list[Node]:
        """Let the allocator choose, and give back the locks of all other nodes."""
        op, config = self.op, forthcoming.without(self.config.snapshot(), self.reserved)
        held, now = self.owned(Level.NODE_RES), self._candidates()
        self._require_enough(held & now)
        request = allocator.Allocate(
            name=self.name,
            hypervisor=self.hypervisor,
            os=op.os_type or "",
            memory_mib=beparams_filled["maxmem"],
            vcpus=beparams_filled["vcpus"],
            spindle_use=beparams_filled["spindle_use"],
            disk_template=self.template,
            disks=tuple(wishes),
            nics=tuple(allocator.allocate_nic(p.nic, p.filled) for p in planned_nics),
            tags=tuple(op.tags),
            group=None if self.group is None else self.group.uuid,
            # Also without opportunistic locking: a node may have come since the locks were taken.
            only_nodes=held & now if op.opportunistic_locking or now - held else None,
        )
        name = self.allocator or ""
        chosen = placement.ask_allocator(
            self, name, config, request, temporary=op.opportunistic_locking
        )
        nodes = [config.nodes[uuid] for uuid in chosen]
        self.release_locks(Level.NODE_RES, self.owned(Level.NODE_RES) - set(chosen))
        self.release_locks(Level.NODE, self.owned(Level.NODE) - set(chosen))
        groups = {node.group for node in nodes}
        self.release_locks(Level.NODEGROUP, self.owned(Level.NODEGROUP) - groups)
        self.info(
            f"Selected nodes for instance {self.name} via iallocator {name}:"
            f" {', '.join(node.name for node in nodes)}"
        )
        return nodes
