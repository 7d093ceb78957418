"""Choose the nodes of a new instance: the user names them, or an allocator chooses.

Until the allocator has chosen, the locks of all nodes which it may choose are needed. With
opportunistic locking the job takes only those locks which are free at this moment: it never waits
for other jobs, but may get too few nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ganeti import allocator, errors
from ganeti.allocator import LiveData
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, PlanT
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.disks.specs import DiskSpec
from ganeti.cmdlib.ops.install import forthcoming
from ganeti.cmdlib.ops.nics import specs
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.transfer.import_source import ImportSource
from ganeti.locking import Level
from ganeti.objects import Instance, Node, NodeGroup
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.opcodes.instance import OpInstanceCreate


class NewInstanceUnit(LogicalUnit[OpInstanceCreate, PlanT]):
    """Base of the unit which creates an instance: its nodes and their locks.

    The unit sets the attributes in its ``expand_names``.

    :ivar ip: address of the name, if it was resolved.
    :ivar template: disk template.
    :ivar allocator: name of the allocator which chooses the nodes; None when the user named them.
    :ivar given_nodes: the nodes which the user named, the primary first.
    :ivar reserved: the forthcoming instance which becomes real.
    :ivar keeps_disks: the disks of the reservation are kept, as far as their nodes are.
    :ivar imported: the source of the content of the disks; None for an installation.
    :ivar read_nodes: UUIDs of nodes on which content is read, so their locks are held to the end.
    :ivar facts: UUID of a node -> what its hypervisor reported to the allocator just before.
    """

    name: str
    ip: str | None
    uuid: str
    hypervisor: str
    template: str
    group: NodeGroup | None
    allocator: str | None
    given_nodes: list[Node]
    reserved: Instance | None
    keeps_disks: bool
    imported: ImportSource | None
    read_nodes: frozenset[str] = frozenset()
    facts: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

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
        return placement.candidates(self.config.snapshot(), group_uuid, self.hypervisor)

    def _all(self) -> frozenset[str]:
        """Return the UUIDs of the candidates and of those which only lack the hypervisor."""
        group_uuid = None if self.group is None else self.group.uuid
        return placement.candidates(self.config.snapshot(), group_uuid)

    def _require_enough(self, usable: frozenset[str]) -> None:
        """Check that the nodes whose locks are held are enough for the disk template."""
        needed = allocator.required_nodes(self.template)
        if len(usable) >= needed:
            return
        possible = len(self._candidates())
        if self.op.opportunistic_locking and possible >= needed:
            raise errors.OpPrereqError(
                f"instance {self.name} needs {needed} node{'s' * (needed > 1)}, and of"
                f" {possible} possible ones only {len(usable)} are not locked at this moment."
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
        """Return the nodes which the user named: the primary, and for mirrored disks the
        secondary.
        """
        op = self.op
        primary = self._named_node(op.pnode, op.pnode_uuid)
        if self.template not in INT_MIRRORED:
            if op.snode or op.snode_uuid:
                self.log.warn(
                    f"the secondary node is ignored: disks of template {self.template} are on one"
                    " node only"
                )
            return [primary]
        if not op.snode and not op.snode_uuid:
            raise errors.OpPrereqError(
                f"disks of template {self.template} need a secondary node. Name both with"
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
            raise errors.OpPrereqError(
                f"node {name} is not the one that the UUID in the request names", errors.ECODE_INVAL
            )
        return node

    def require_named_nodes(self) -> list[Node]:
        """Check that the nodes which the user named may get the instance; returns them as now."""
        given = [self.require_named_node(node) for node in self.given_nodes]
        reach.require_directory(self.ctx, self.template, given)
        return given

    def require_named_node(self, node: Node) -> Node:
        """Check that a node which the user named may get the instance; returns it as it is now."""
        fresh = self.config.node(node.uuid)
        prereq.require_target(self.config, fresh, self.hypervisor)
        if self.group is not None and fresh.group != self.group.uuid:
            raise errors.OpPrereqError(
                f"node {fresh.name} is not in group {self.group.name}", errors.ECODE_INVAL
            )
        return fresh

    def _no_place_hint(self) -> str:
        hint = "" if self.op.explain else "Use --explain to see the reason for each node."
        nodes = [node for node in self.config.nodes() if node.vm_capable]
        if len(nodes) == 1:
            # An allocator may refuse what nothing can take over, and then refuses everything.
            name = nodes[0].name
            hint += f" The cluster has no other node for instances; name this one with '-n {name}'."
        return hint.strip()

    def _keep_facts(self, found: LiveData) -> None:
        self.facts = {uuid: node.facts for uuid, node in found.nodes.items()}

    def place(
        self,
        beparams_filled: Mapping[str, Any],
        disk_specs: list[DiskSpec],
        planned_nics: list[specs.PlannedNic],
    ) -> list[Node]:
        """Let the allocator choose, and release the locks of all other nodes.

        :raises errors.OpPrereqError: it found no place.
        """
        op, config = self.op, forthcoming.without(self.config.snapshot(), self.reserved)
        held, now = self.owned(Level.NODE_RES), self._candidates()
        self._require_enough(held & now)
        reached = reach.with_directory(self.ctx, self.template, held & now)
        if reached is not None and len(reached) < allocator.required_nodes(self.template):
            raise errors.OpPrereqError(
                f"instance {self.name} has no place: no node has the directory for disks of"
                f" template {self.template}, see the warnings",
                errors.ECODE_NORES,
            )
        restricted = op.opportunistic_locking or self._all() - held
        request = allocator.Allocate(
            name=self.name,
            hypervisor=self.hypervisor,
            os=op.os_type or "",
            memory_mib=beparams_filled["maxmem"],
            vcpus=beparams_filled["vcpus"],
            spindle_use=beparams_filled["spindle_use"],
            disk_template=self.template,
            disks=tuple(disk_specs),
            nics=tuple(allocator.allocate_nic(p.nic, p.filled) for p in planned_nics),
            tags=tuple(op.tags),
            group=None if self.group is None else self.group.uuid,
            # Needed without opportunistic locking, too: a node may have been added meanwhile.
            # So it is when some nodes of the group do not have the hypervisor.
            only_nodes=reached or (held & now if restricted else None),
        )
        name = self.allocator or ""
        chosen = placement.ask_allocator(
            self.rpc,
            self.log,
            name,
            config,
            request,
            temporary=op.opportunistic_locking,
            explain=bool(op.explain),
            hint=self._no_place_hint(),
            on_live=self._keep_facts,
        )
        nodes = [config.nodes[uuid] for uuid in chosen]
        self.release_locks(Level.NODE_RES, self.owned(Level.NODE_RES) - set(chosen))
        kept = {*chosen, *self.read_nodes}
        self.release_locks(Level.NODE, self.owned(Level.NODE) - kept)
        groups = {node.group for node in nodes}
        self.release_locks(Level.NODEGROUP, self.owned(Level.NODEGROUP) - groups)
        self.log.info(
            f"Selected nodes for instance {self.name} via iallocator {name}:"
            f" {', '.join(node.name for node in nodes)}"
        )
        return nodes
