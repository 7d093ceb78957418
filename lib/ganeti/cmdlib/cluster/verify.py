"""Verifying the whole cluster: submits the jobs which do it."""

from __future__ import annotations

from typing import Any

from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterVerify, OpClusterVerifyConfig, OpClusterVerifyGroup


@executes(OpClusterVerify)
class LUClusterVerify(LogicalUnit[OpClusterVerify, list[str]]):
    """Submit a job for the configuration and one for each node group, or for one group only."""

    def check_prereq(self) -> list[str]:
        if self.op.group_name is not None:
            return [self.config.expand_group(self.op.group_name).uuid]
        groups = self.config.snapshot().nodegroups.values()
        return [group.uuid for group in sorted(groups, key=lambda group: group.name)]

    def exec(self, plan: list[str]) -> ResultWithJobs:
        common: dict[str, Any] = {
            "debug_simulate_errors": self.op.debug_simulate_errors,
            "error_codes": self.op.error_codes,
            "ignore_errors": list(self.op.ignore_errors),
            "verbose": self.op.verbose,
        }
        jobs: list[list[OpCode]] = []
        if self.op.group_name is None:
            jobs.append([OpClusterVerifyConfig(**common)])
        for group_uuid in plan:
            # Relative job number: each group waits for the end of the configuration's job.
            depends = [[-len(jobs), []]] if self.op.group_name is None else None
            jobs.append(
                [
                    OpClusterVerifyGroup(
                        group_name=group_uuid,
                        skip_checks=list(self.op.skip_checks),
                        verify_clutter=self.op.verify_clutter,
                        depends=depends,
                        **common,
                    )
                ]
            )
        return ResultWithJobs(jobs)
