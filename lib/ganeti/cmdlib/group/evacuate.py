"""Evacuating a node group: moving its instances to other groups."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.locks import require_still_same
from ganeti.cmdlib.ops.group.hooks import GroupHooks
from ganeti.cmdlib.ops.group.regroup import RegroupingUnit, adapted_jobs
from ganeti.objects import Instance
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.group import OpGroupEvacuate


@executes(OpGroupEvacuate)
class LUGroupEvacuate(RegroupingUnit[OpGroupEvacuate]):
    """Submit jobs which move all instances of a node group to other groups."""

    HOOKS = GroupHooks("group-evacuate")

    def expand_names(self) -> None:
        op = self.op
        self.group = self.config.expand_group(op.group_name)
        self._prepare(op.iallocator, op.target_groups)
        if self.group.uuid in self.targets:
            raise errors.OpPrereqError(
                f"node group {self.group.name} is to be emptied and cannot be a target, too",
                errors.ECODE_INVAL,
            )
        self._lock()

    def _instances(self) -> frozenset[str]:
        return frozenset(i.uuid for i in self._members() if not i.forthcoming)

    def _members(self) -> list[Instance]:
        nodes = {node.uuid for node in self.config.group_nodes(self.group.uuid)}
        return [
            instance
            for instance in self.config.instances()
            if nodes.intersection(self.config.instance_nodes(instance))
        ]

    def _groups(self) -> frozenset[str]:
        return super()._groups() | {self.group.uuid}

    def hook_env(self, plan: list[list[OpCode]]) -> dict[str, object]:
        return {"GROUP_NAME": self.group.name, **super().hook_env(plan)}

    def hook_nodes(self, plan: list[list[OpCode]]) -> tuple[list[str], list[str]]:
        nodes = [node.uuid for node in self.config.group_nodes(self.group.uuid)]
        all_nodes = [self.config.master_node().uuid, *nodes]
        return all_nodes, all_nodes

    def check_prereq(self) -> list[list[OpCode]]:
        op = self.op
        prereq.without_forthcoming(self, self._members(), f"node group {self.group.name}")
        if not self.guessed:
            require_still_same(
                self.guessed, self._instances(), f"instances of node group {self.group.name}"
            )
            self.log.info(f"node group {self.group.name} has no instances")
            return []
        moves, targets = self._ask(f"node group {self.group.name}")
        self.log.info(
            f"instances of node group {self.group.name} will be moved to node group"
            f" {', '.join(targets)}"
        )
        self._announce(moves)
        return adapted_jobs(
            moves.jobs,
            early_release=op.early_release,
            force_failover=op.force_failover,
            sequential=op.sequential,
        )

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)
