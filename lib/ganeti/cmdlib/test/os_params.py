"""Testing that secret OS parameters reach a job and are not stored, for ``gnt-debug
test-osparams``."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.opcodes.test import OpTestOsParams


@executes(OpTestOsParams)
class LUTestOsParams(LogicalUnit[OpTestOsParams, list[str]]):
    """Write the names of secret OS parameters to the job log, but not their values."""

    def check_prereq(self) -> list[str]:
        if not self.op.osparams_secret:
            raise errors.OpPrereqError("no secret OS parameters are given", errors.ECODE_INVAL)
        return sorted(self.op.osparams_secret)

    def exec(self, plan: list[str]) -> None:
        secrets = self.op.osparams_secret or {}
        for name in plan:
            self.log.info(f"secret parameter {name} has {len(str(secrets[name]))} characters")
