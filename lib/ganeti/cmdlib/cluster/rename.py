"""Changing the name of the cluster, the master address, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import ClusterHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.master_address import move_address
from ganeti.cmdlib.ops.network.checks import require_unused
from ganeti.constants import net as net_c
from ganeti.constants import node_verify as nv
from ganeti.objects import updated
from ganeti.opcodes.cluster import OpClusterRename
from ganeti.utils import net
from ganeti.utils.text import comma_join
from ganeti.wire.calls import NODE_VERIFY


@dataclass(frozen=True, slots=True)
class RenamePlan:
    """Old and new name, old and new master address."""

    old_name: str
    old_ip: str
    name: str
    ip: str


@executes(OpClusterRename)
class LUClusterRename(LogicalUnit[OpClusterRename, RenamePlan]):
    """Rename the cluster; the address of the new name becomes the master address.

    Result: the new name.
    """

    HOOKS = ClusterHooks("cluster-rename")
    REQ_BGL = True

    def hook_env(self, plan: RenamePlan) -> dict[str, object]:
        return {"OP_TARGET": plan.old_name, "NEW_NAME": self.op.name}

    def hook_nodes(self, plan: RenamePlan) -> tuple[list[str], list[str]]:
        return [self.config.master_node().uuid], [node.uuid for node in self.config.nodes()]

    def check_prereq(self) -> RenamePlan:
        cluster = self.config.cluster()
        prereq.valid_host_name(self.op.name, "cluster name")
        host = prereq.resolve(self.op.name, "cluster name")
        plan = RenamePlan(cluster.cluster_name, cluster.master_ip, host.name, host.ip)
        if (plan.name, plan.ip) == (plan.old_name, plan.old_ip):
            raise errors.OpPrereqError(
                f"the cluster already has the name {plan.name} and the address {plan.ip}",
                errors.ECODE_INVAL,
            )
        if self.config.node_by_name(plan.name) is not None:
            raise errors.OpPrereqError(
                f"the cluster cannot have the name of node {plan.name}", errors.ECODE_NOTUNIQUE
            )
        require_unused(self.config, [plan.ip], f"cluster {plan.name}", owner_uuid=cluster.uuid)
        if net.is_ipv6(plan.ip) != (cluster.primary_ip_family == net_c.IP6_FAMILY):
            raise errors.OpPrereqError(
                f"{plan.ip} is of another address family than the cluster", errors.ECODE_INVAL
            )
        if plan.ip != plan.old_ip:
            self._require_free(plan)
        return plan

    def _require_free(self, plan: RenamePlan) -> None:
        """Check that no node can reach the new address.

        :raises errors.OpPrereqError: the address is in use, or no node could check it.
        """
        # All of 127.0.0.0/8 is one machine, which answers for every address.
        if plan.ip.startswith("127."):
            return
        answers = self.rpc.call_many(
            NODE_VERIFY,
            [node.uuid for node in self.config.online_nodes()],
            checks={nv.MASTERIP: [plan.name, plan.ip]},
            cluster_name=plan.old_name,
            all_hvparams={},
        )
        reaching = [
            answer.node_name
            for answer in answers.values()
            if answer.failure is None and answer.data[nv.MASTERIP]
        ]
        asked = [answer for answer in answers.values() if answer.failure is None]
        if reaching:
            raise errors.OpPrereqError(
                f"the address {plan.ip} of {plan.name} is in use: node {comma_join(reaching)} can"
                " reach it",
                errors.ECODE_NOTUNIQUE,
            )
        if not asked:
            raise errors.OpPrereqError(
                f"no node could check whether the address {plan.ip} is in use",
                errors.ECODE_ENVIRON,
            )

    def steps(self, plan: RenamePlan) -> list[str]:
        return [
            f"take the master address {plan.old_ip} down",
            f"rename the cluster from {plan.old_name} to {plan.name}",
            f"bring the master address {plan.ip} up; if that fails, undo everything",
            *(
                ["write the new name into the known SSH hosts of the nodes"]
                if plan.name != plan.old_name and ssh_keys.is_managed(self.config.cluster())
                else []
            ),
        ]

    def exec(self, plan: RenamePlan) -> str:
        def to(name: str, ip: str) -> Any:
            return lambda: self._write(name, ip)

        move_address(self.ctx, to(plan.name, plan.ip), to(plan.old_name, plan.old_ip))
        if plan.name != plan.old_name:
            ssh_keys.distribute(self.ctx)
        return plan.name

    def _write(self, name: str, ip: str) -> None:
        with self.config.transaction() as change:
            change.cluster.update(updated(change.data.cluster, cluster_name=name, master_ip=ip))
