"""The last job of a cluster, before ``gnt-cluster destroy`` stops daemons and removes files."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import ClusterHooks
from ganeti.objects import MasterNetworkParameters
from ganeti.opcodes.cluster import OpClusterDestroy
from ganeti.wire.calls import NODE_DEACTIVATE_MASTER_IP


@executes(OpClusterDestroy)
class LUClusterDestroy(LogicalUnit[OpClusterDestroy, None]):
    """Check that the cluster is empty, run the hooks, and take the master address down.

    Result: the UUID of the master node, which ``gnt-cluster destroy`` needs.
    """

    HOOKS = ClusterHooks("cluster-destroy")
    REQ_BGL = True

    def hook_env(self, plan: None) -> dict[str, object]:
        return {"OP_TARGET": self.config.cluster_name}

    def check_prereq(self) -> None:
        master = self.config.master_node()
        others = [node.name for node in self.config.nodes() if node.uuid != master.uuid]
        if others:
            raise errors.OpPrereqError(
                f"the cluster still has other nodes: {', '.join(others)}. Remove them first.",
                errors.ECODE_INVAL,
            )
        instances = [instance.name for instance in self.config.instances()]
        if instances:
            raise errors.OpPrereqError(
                f"the cluster still has instances: {', '.join(instances)}. Remove them first.",
                errors.ECODE_INVAL,
            )

    def exec(self, plan: None) -> str:
        cluster, master = self.config.cluster(), self.config.master_node()
        # The post hooks run now, because later there is no cluster.
        if self.hooks is not None:
            self.hooks.post_on([master.uuid])
        answer = self.rpc.call(
            NODE_DEACTIVATE_MASTER_IP,
            master.uuid,
            master_params=MasterNetworkParameters(
                uuid=master.uuid,
                ip=cluster.master_ip,
                netmask=cluster.master_netmask,
                netdev=cluster.master_netdev,
                ip_family=cluster.primary_ip_family,
            ),
            use_external_mip_script=cluster.use_external_mip_script,
        )
        if answer.failure is not None:
            self.log.warn(f"the master address was not taken down: {answer.failure}")
        return master.uuid
