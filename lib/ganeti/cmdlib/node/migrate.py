"""Migrating all primary instances of a node, each in its own job."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.ops.node.evacuation import (
    EvacuationUnit,
    check_target,
    evacuation_target,
    untouched,
)
from ganeti.objects import Instance, disk_templates
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.opcodes.node import OpNodeMigrate


@executes(OpNodeMigrate)
class LUNodeMigrate(EvacuationUnit[OpNodeMigrate, list[Instance]]):
    """Submit jobs which migrate all primary instances of a node."""

    HOOKS = NodeHooks("node-migrate")

    def expand_names(self) -> None:
        op = self.op
        if op.live is not None and op.mode is not None:
            raise errors.OpPrereqError(
                "parameter live is the old form of mode, so only one of them may be used",
                errors.ECODE_INVAL,
            )
        node = self._find_node()
        target = evacuation_target(self.config, op.target_node, op.target_node_uuid)
        instances = self.config.node_instances(node.uuid)[0]
        if any(self._is_free(instance) for instance in instances):
            # Each job asks the allocator; here it is only checked that there is one.
            self._choose_allocator(node, target, "--target-node")
        self._lock(node, instances, target)

    def _is_free(self, instance: Instance) -> bool:
        """Tell whether an instance may be moved to any node, because its disks are shared."""
        return self.config.disk_template(instance) in disk_templates.EXT_MIRRORED

    def hook_env(self, plan: list[Instance]) -> dict[str, object]:
        return {
            "NODE_NAME": self.node.name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def hook_nodes(self, plan: list[Instance]) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> list[Instance]:
        if self.target is not None:
            check_target(self.config, self.node, self.config.node(self.target.uuid))
        primaries = self.config.node_instances(self.node.uuid)[0]
        self._require_unchanged(primaries)
        instances = prereq.without_forthcoming(self, primaries, f"node {self.node.name}")
        stuck = [
            f"{instance.name} (its disks exist on one node only)"
            for instance in instances
            if self.config.disk_template(instance) not in disk_templates.MIRRORED
        ]
        if stuck:
            movable = [
                instance.name
                for instance in instances
                if self.config.disk_template(instance) in disk_templates.MIRRORED
            ]
            raise errors.OpPrereqError(
                f"instances cannot be migrated away from node {self.node.name}:"
                f" {', '.join(stuck)}. {untouched(movable)}",
                errors.ECODE_STATE,
            )
        return instances

    def exec(self, plan: list[Instance]) -> ResultWithJobs:
        op = self.op
        target = None if self.target is None else self.target.name
        jobs: list[list[OpCode]] = []
        for instance in plan:
            free = self._is_free(instance)
            jobs.append(
                [
                    OpInstanceMigrate(
                        instance_name=instance.name,
                        mode=op.mode,
                        live=op.live,
                        cleanup=False,
                        target_node=target if free else None,
                        iallocator=op.iallocator if free else None,
                        ignore_ipolicy=op.ignore_ipolicy,
                        allow_runtime_changes=op.allow_runtime_changes,
                    )
                ]
            )
        return ResultWithJobs(jobs)
