"""Taking the master address down on the master node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterDeactivateMasterIp
from ganeti.rpc import master_ip


@executes(OpClusterDeactivateMasterIp)
class LUClusterDeactivateMasterIp(LogicalUnit[OpClusterDeactivateMasterIp, None]):
    """Take the master address down."""

    def expand_names(self) -> None:
        """Take no locks, because no object of the configuration is changed."""

    def exec(self, plan: None) -> None:
        failure = master_ip.deactivate_master_ip(self.rpc, self.config.snapshot())
        if failure is not None:
            raise errors.OpExecError(f"the master address was not taken down: {failure}")
