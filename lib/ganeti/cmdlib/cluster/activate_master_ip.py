"""Bringing the master's address up on the master node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterActivateMasterIp
from ganeti.rpc import master_ip


@executes(OpClusterActivateMasterIp)
class LUClusterActivateMasterIp(LogicalUnit[OpClusterActivateMasterIp, None]):
    """Let the master answer for the address of the cluster."""

    def expand_names(self) -> None:
        """Nothing is locked: only the master is concerned, and nothing else is changed."""

    def exec(self, plan: None) -> None:
        failure = master_ip.activate_master_ip(self.rpc, self.config.snapshot())
        if failure is not None:
            raise errors.OpExecError(f"the address of the master is not up: {failure}")
