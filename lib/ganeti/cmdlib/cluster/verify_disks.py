"""Verifying the disks of instances: submits a job for each node group."""

from __future__ import annotations

from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.opcodes.cluster import OpClusterVerifyDisks
from ganeti.opcodes.group import OpGroupVerifyDisks


@executes(OpClusterVerifyDisks)
class LUClusterVerifyDisks(LogicalUnit[OpClusterVerifyDisks, list[str]]):
    """Submit a job for each node group, or for one group only."""

    def check_prereq(self) -> list[str]:
        if self.op.group_name is not None:
            return [self.config.expand_group(self.op.group_name).name]
        return [group.name for group in self.config.groups()]

    def exec(self, plan: list[str]) -> ResultWithJobs:
        return ResultWithJobs(
            [[OpGroupVerifyDisks(group_name=name, is_strict=self.op.is_strict)] for name in plan]
        )
