"""Moving nodes to another node group.

The replicas of DRBD disks are on two nodes. If these nodes are in different groups, the instance is
*split*: an allocator cannot choose its secondary node, and its parameters come from one group while
its data is in two. A move that would split instances needs ``--force``; instances which are split
already are named in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.locks import require_still_same
from ganeti.cmdlib.ops.policy.instance import newly_violates
from ganeti.cmdlib.ops.verify import machine_storage
from ganeti.locking import Level
from ganeti.objects import ConfigData, Node, fill, updated
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.opcodes.group import OpGroupAssignNodes
from ganeti.utils.text import natural_key


def split_instances(data: ConfigData, moves: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Find the instances which a move of nodes splits, and those which stay split.

    :param moves: UUID of a node -> UUID of its new group.
    :returns: names of both, sorted.
    """
    new: list[str] = []
    old: list[str] = []
    for instance in data.instances.values():
        disks = fill.instance_disks(data, instance)
        if fill.disk_template(disks) not in INT_MIRRORED:
            continue
        nodes = [instance.primary_node, *fill.secondary_nodes(instance, disks)]
        before = {data.nodes[uuid].group for uuid in nodes}
        after = {moves.get(uuid, data.nodes[uuid].group) for uuid in nodes}
        if len(after) > 1:
            (old if len(before) > 1 else new).append(instance.name)
    return sorted(new, key=natural_key), sorted(old, key=natural_key)


@executes(OpGroupAssignNodes)
class LUGroupAssignNodes(LogicalUnit[OpGroupAssignNodes, list[Node]]):
    """Move nodes to another node group."""

    def expand_names(self) -> None:
        op = self.op
        self.group = self.config.expand_group(op.group_name)
        if not op.nodes and not op.node_uuids:
            raise errors.OpPrereqError("no nodes are named", errors.ECODE_INVAL)
        self.nodes = list(
            dict.fromkeys(self.config.expand_node(name).uuid for name in op.node_uuids or op.nodes)
        )
        self.sources = {self.config.node(uuid).group for uuid in self.nodes}
        self.need(Level.NODEGROUP, {self.group.uuid, *self.sources})
        self.need(Level.NODE, self.nodes)

    def check_prereq(self) -> list[Node]:
        nodes = [self.config.node(uuid) for uuid in self.nodes]
        require_still_same(self.sources, {node.group for node in nodes}, "groups of these nodes")
        moves = dict.fromkeys(self.nodes, self.group.uuid)
        new, old = split_instances(self.config.snapshot(), moves)
        if new:
            text = f"this would split instances between node groups: {', '.join(new)}"
            if not self.op.force:
                raise errors.OpPrereqError(f"{text}. Use --force to go on.", errors.ECODE_STATE)
            self.log.warn(text)
        if old:
            self.log.warn(f"instances are split between node groups already: {', '.join(old)}")
        moving = [node for node in nodes if node.group != self.group.uuid]
        self._require_hypervisors({node.uuid for node in moving})
        self._warn_of_networks({node.uuid for node in moving})
        self._warn_of_policy({node.uuid for node in moving})
        self._require_metavg(moving)
        return moving

    def _require_metavg(self, moving: Sequence[Node]) -> None:
        """Check that the nodes have the volume group for metadata of DRBD of their new group."""
        data = self.config.snapshot()
        metavg = fill.metavg(data.cluster, data.nodegroups[self.group.uuid])
        asked = [
            node.uuid
            for node in moving
            if node.vm_capable
            and not node.offline
            and fill.metavg(data.cluster, data.nodegroups[node.group]) != metavg
        ]
        lacking, unknown = machine_storage.without_metavg(self.rpc, data.cluster, asked, metavg)
        if lacking and not self.op.force:
            raise errors.OpPrereqError(
                f"group {self.group.name} has its metadata of DRBD in volume group {metavg}:"
                f" {'; '.join(lacking)}. Create the volume group there first, or use --force to"
                " go on.",
                errors.ECODE_ENVIRON,
            )
        for problem in (*lacking, *unknown):
            self.log.warn(problem)

    def _require_hypervisors(self, moving: Set[str]) -> None:
        """Check that the instances of the nodes have their hypervisor in the new group."""
        data = self.config.snapshot()
        group = self.config.group(self.group.uuid)
        present = fill.group_hypervisors(data.cluster, group)
        without = sorted(
            (
                f"{instance.name} ({instance.hypervisor})"
                for instance in data.instances.values()
                if instance.hypervisor not in present
                and not moving.isdisjoint(self.config.instance_nodes(instance))
            ),
            key=natural_key,
        )
        if not without:
            return
        text = (
            f"group {group.name} does not have the hypervisor of these instances:"
            f" {', '.join(without)}"
        )
        if not self.op.force:
            raise errors.OpPrereqError(f"{text}. Use --force to go on.", errors.ECODE_STATE)
        self.log.warn(text)

    def _warn_of_networks(self, moving: Set[str]) -> None:
        """Warn about NICs in networks which are not connected to the new group."""
        connected = self.config.group(self.group.uuid).networks
        lost = [
            instance.name
            for instance in self.config.instances()
            if instance.primary_node in moving
            and any(nic.network and nic.network not in connected for nic in instance.nics)
        ]
        if lost:
            self.log.warn(
                f"instances in networks which are not connected to group {self.group.name}:"
                f" {', '.join(lost)}",
                hint="Connect them with 'gnt-network connect'.",
            )

    def _warn_of_policy(self, moving: Set[str]) -> None:
        """Warn about instances which violate the policy of the new group, and not that of the old
        one.
        """
        data = self.config.snapshot()

        def policy_of(uuid: str) -> dict[str, Any]:
            return fill.fill_ipolicy(data.cluster.ipolicy, data.nodegroups[uuid].ipolicy)

        after = policy_of(self.group.uuid)
        found = [
            instance.name
            for instance in self.config.instances()
            if instance.primary_node in moving
            and newly_violates(
                policy_of(data.nodes[instance.primary_node].group),
                after,
                self.config.filled(instance),
            )
        ]
        if found:
            self.log.warn(
                f"instances which violate the policy of group {self.group.name}: {', '.join(found)}"
            )

    def exec(self, plan: list[Node]) -> None:
        if not plan:
            return
        moved = {node.uuid for node in plan}
        with self.config.transaction() as change:
            for node in plan:
                change.nodes.update(updated(node, group=self.group.uuid))
            # The serial numbers of the groups grow, because their members are part of them.
            for uuid in sorted({self.group.uuid, *(node.group for node in plan)}):
                change.groups.update(updated(self.config.group(uuid)))
            reconnected = [
                instance.name
                for instance in self.config.instances()
                if instance.primary_node in moved and change.instances.connect_nics(instance.uuid)
            ]
        if reconnected:
            self.log.warn(
                f"network interfaces have other parameters in group {self.group.name}, which count"
                f" from the next start: {', '.join(reconnected)}"
            )
