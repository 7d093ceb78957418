"""Describe the console of an instance."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.guest.console import (
    describe,
)
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceConsole


@executes(OpInstanceConsole)
class LUInstanceConsole(LogicalUnit[OpInstanceConsole, Instance]):
    """Describe the console of a running instance."""

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid, shared=True)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE and self.instance is not None:
            self.lock_nodes_of(self.instance, primary_only=True, shared=True)

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "open the console of")
        prereq.require_online_primary(self.config, self.instance)
        return self.instance

    def exec(self, plan: Instance) -> dict[str, Any]:
        """Describe the console; the result is a serialised ``InstanceConsole``."""
        if not prereq.is_running(location.info_on_primary(self.config, self.rpc, plan)):
            # The error names another node on which it runs.
            location.require_not_elsewhere(self.ctx, plan)
            raise errors.OpExecError(
                f"instance {plan.name} is not running, it is marked {plan.admin_state!r}"
            )
        return describe(self.config.snapshot(), plan)
