"""Taking the master's address down on the master node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterDeactivateMasterIp
from ganeti.rpc import master_ip


@executes(OpClusterDeactivateMasterIp)
class LUClusterDeactivateMasterIp(LogicalUnit[OpClusterDeactivateMasterIp, None]):
    """Let the master answer for the address of the cluster no longer."""

    def expand_names(self) -> None:
        """As above."""

    def exec(self, plan: None) -> None:
        failure = master_ip.deactivate_master_ip(self.rpc, self.config.snapshot())
        if failure is not None:
            raise errors.OpExecError(f"the address of the master is still up: {failure}")
