"""The address of the master: bringing it up and taking it down on the master's node."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp
from ganeti.rpc import master_ip


@executes(OpClusterActivateMasterIp)
class LUClusterActivateMasterIp(LogicalUnit):
    """Let the master answer for the address of the cluster."""

    op: OpClusterActivateMasterIp

    def expand_names(self) -> None:
        """Nothing is locked: only the master is concerned, and nothing else is changed."""

    def exec(self, plan: Any) -> None:
        failure = master_ip.activate_master_ip(self.rpc, self.config.snapshot())
        if failure is not None:
            raise errors.OpExecError(f"the address of the master is not up: {failure}")


@executes(OpClusterDeactivateMasterIp)
class LUClusterDeactivateMasterIp(LogicalUnit):
    """Let the master answer for the address of the cluster no longer."""

    op: OpClusterDeactivateMasterIp

    def expand_names(self) -> None:
        """As above."""

    def exec(self, plan: Any) -> None:
        failure = master_ip.deactivate_master_ip(self.rpc, self.config.snapshot())
        if failure is not None:
            raise errors.OpExecError(f"the address of the master is still up: {failure}")
