"""Adding a node group."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.ops.group.hooks import GroupHooks, require_new_name
from ganeti.cmdlib.ops.params import group
from ganeti.constants import cluster as cluster_c
from ganeti.constants import node as node_c
from ganeti.locking import Level
from ganeti.objects import NodeGroup
from ganeti.opcodes.group import OpGroupAdd
from ganeti.opcodes.network import OpNetworkConnect


@executes(OpGroupAdd)
class LUGroupAdd(LogicalUnit[OpGroupAdd, NodeGroup]):
    """Add a node group without nodes."""

    HOOKS = GroupHooks("group-add")

    def expand_names(self) -> None:
        self.uuid = self.config.new_uuid()
        self.need_new(Level.NODEGROUP, self.uuid)

    def hook_env(self, plan: NodeGroup) -> dict[str, object]:
        return {"GROUP_NAME": self.op.group_name}

    def hook_nodes(self, plan: NodeGroup) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> NodeGroup:
        op, cluster = self.op, self.config.cluster()
        require_new_name(self.config, op.group_name, "node group")
        return NodeGroup(
            name=op.group_name,
            alloc_policy=op.alloc_policy or node_c.ALLOC_PREFERRED,
            ndparams=group.merged_ndparams({}, op.ndparams or {}),
            diskparams=group.merged_diskparams({}, op.diskparams or {}),
            ipolicy=group.merged_ipolicy(cluster, {}, op.ipolicy or {}),
            hv_state_static=group.merged_hv_state({}, op.hv_state) if op.hv_state else None,
            disk_state_static=(
                group.merged_disk_state({}, op.disk_state) if op.disk_state else None
            ),
            enabled_hypervisors=group.chosen_hypervisors(cluster, op.enabled_hypervisors),
            networks={},
            uuid=self.uuid,
            serial_no=1,
        )

    def exec(self, plan: NodeGroup) -> ResultWithJobs | None:
        with self.config.transaction() as change:
            change.groups.add(plan)
        network = self.config.cluster().instance_communication_network
        if not network:
            return None
        # The instance communication network is connected to every node group.
        return ResultWithJobs(
            [
                [
                    OpNetworkConnect(
                        group_name=plan.name,
                        network_name=network,
                        network_mode=cluster_c.COMMUNICATION_MODE,
                        network_link=cluster_c.COMMUNICATION_LINK,
                        conflicts_check=True,
                    )
                ]
            ]
        )
