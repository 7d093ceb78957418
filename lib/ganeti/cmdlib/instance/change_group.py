"""Move an instance to another node group."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.group.regroup import RegroupingUnit, adapted_jobs
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
)


@executes(OpInstanceChangeGroup)
class LUInstanceChangeGroup(RegroupingUnit[OpInstanceChangeGroup]):
    """Move one instance to another group."""

    HOOKS = InstanceHooks("instance-change-group")

    def expand_names(self) -> None:
        op = self.op
        found = self.lock_instance(op.instance_name, op.instance_uuid, shared=True)
        self._prepare(op.iallocator, op.target_groups)
        self._uuid = found.uuid
        self.guessed = self._instances()
        present = sorted(set(self.targets) & self._groups())
        if present:
            raise errors.OpPrereqError(
                f"instance {found.name} is in group {self.config.group(present[0]).name} already",
                errors.ECODE_INVAL,
            )

    def _instances(self) -> frozenset[str]:
        return frozenset((self._uuid,))

    def hook_nodes(self, plan: list[list[OpCode]]) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> list[list[OpCode]]:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "change the group of")
        moves, _targets = self._ask(f"instance {self.instance.name}")
        self._announce(moves)
        return adapted_jobs(moves.jobs, early_release=self.op.early_release)

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)
