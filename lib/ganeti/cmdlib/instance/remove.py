"""Remove an instance with its disks."""

from __future__ import annotations

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.guest.removal import remove_instance
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceRemove


@executes(OpInstanceRemove)
class LUInstanceRemove(LogicalUnit[OpInstanceRemove, Instance]):
    """Stop an instance, remove its disks, and remove it from the configuration.

    After an interruption the instance is still in the configuration, marked down, and the same
    command completes the removal.
    """

    HOOKS = InstanceHooks("instance-remove")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        self.need_instance_nodes(level)

    def hook_env(self, plan: Instance) -> dict[str, object]:
        return {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def hook_nodes(self, plan: Instance) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        if self.instance.forthcoming:
            # The hooks did not run when it was reserved, either.
            return [], []
        master = self.config.master_node().uuid
        return [master], [*self.config.instance_nodes(plan), master]

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        if self.op.unfinished_import and self.instance.importing_since is None:
            raise errors.OpPrereqError(
                f"the import or copy of instance {self.instance.name} has ended, or it was started."
                " It is not removed.",
                errors.ECODE_STATE,
            )
        if self.instance.forthcoming:
            return self.instance
        if not self.op.ignore_failures:
            for uuid in self.config.instance_nodes(self.instance):
                node = self.config.node(uuid)
                if node.offline:
                    raise errors.OpPrereqError(
                        f"node {node.name} of instance {self.instance.name} is marked offline. With"
                        " --ignore-failures the instance is removed, and its disks stay on that"
                        " node.",
                        errors.ECODE_STATE,
                    )
                prereq.require_online(node)
        location.require_not_elsewhere(
            self.ctx, self.instance, certain_to="" if self.op.ignore_failures else "remove"
        )
        return self.instance

    def steps(self, plan: Instance) -> list[str]:
        steps = (
            [f"mark instance {plan.name} as down"] if plan.admin_state == prereq.ADMIN_UP else []
        )
        if not plan.forthcoming:
            node = self.config.node(plan.primary_node).name
            steps.append(f"stop it on {node}, at the latest after {self.op.shutdown_timeout} s")
            nodes = ", ".join(self.config.instance_node_names(plan))
            steps += [
                f"remove disk {index} ({disk.dev_type}, {disk.size} MiB) from {nodes}"
                for index, disk in enumerate(self.config.instance_disks(plan))
            ]
        return [*steps, f"remove instance {plan.name} from the configuration"]

    def exec(self, plan: Instance) -> None:
        remove_instance(
            self.ctx,
            plan,
            timeout_s=self.op.shutdown_timeout,
            reason=self.op.reason,
            ignore_failures=self.op.ignore_failures,
        )
