"""Distributing the configuration, the common files and the SSH keys again."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import distribute_files
from ganeti.cmdlib.ops.node import candidates
from ganeti.locking import ALL, Level
from ganeti.opcodes.cluster import OpClusterRedistConf


@executes(OpClusterRedistConf)
class LUClusterRedistConf(LogicalUnit[OpClusterRedistConf, None]):
    """Send configuration, common files and SSH keys to all nodes, and compare the job queues.

    Nodes which are not master candidates remove what only candidates have.
    """

    def expand_names(self) -> None:
        self.need(Level.NODE, ALL, shared=True)

    def exec(self, plan: None) -> None:
        for failure in self.config.redistribute():
            name = self.config.node(failure.node_uuid).name
            self.log.warn(f"node {name} did not accept the {failure.what}: {failure.message}")
        # A node may have been unreachable when it was demoted.
        candidates.give_up(
            self.rpc, self.log, *(node for node in self.config.nodes() if not node.master_candidate)
        )
        distribute_files(self.ctx)
        ssh_keys.distribute(self.ctx)
        if self.ctx.job_files is not None:
            self.ctx.job_files.compare_copies()
