"""Removing an instance, with its disks."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import convert_disks, run
from ganeti.cmdlib.instance import disks as disk_work
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceRemove


@executes(OpInstanceRemove)
class LUInstanceRemove(LogicalUnit):
    """Stop an instance, remove its disks, forget it.

    Interrupted at any point, the instance is still in the configuration (marked down) and the same
    command finishes.
    """

    op: OpInstanceRemove
    HOOKS = InstanceHooks("instance-remove")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            self.need(level, self.config.instance_nodes(self.instance), shared=level is Level.NODE)

    def hook_env(self, plan: Any) -> dict[str, object]:
        return {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout}

    def hook_nodes(self, plan: Any) -> tuple[list[str], list[str]]:
        assert self.instance is not None
        master = self.config.master_node().uuid
        return [master], [*self.config.instance_nodes(plan), master]

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        if not self.op.ignore_failures:
            for uuid in self.config.instance_nodes(self.instance):
                prereq.require_online(self.config.node(uuid))
        return self.instance

    def exec(self, plan: Instance) -> None:
        # Marked down first, so that nobody starts it again while it disappears.
        if plan.admin_state == prereq.ADMIN_UP:
            self.config.mark_instance(plan.uuid, prereq.ADMIN_DOWN)
        instance = self.config.instance(plan.uuid)
        disks = self.config.instance_disks(instance)
        if not instance.forthcoming:
            self._stop(instance)
            self._remove_disks(instance, disks)
        self.config.remove_instance(instance.uuid)

    def _stop(self, instance: Instance) -> None:
        try:
            run.stop(self, instance, self.op.shutdown_timeout)
        except errors.OpExecError as err:
            self._tolerate(str(err), instance)

    def _remove_disks(self, instance: Instance, disks: Any) -> None:
        for index, disk in enumerate(disks):
            try:
                disk_work.remove_disk(self, instance, disk)
            except errors.RpcError as err:
                self._tolerate(
                    f"disk {index} of instance {instance.name} was not removed: {err}", instance
                )
        try:
            convert_disks.clear(self, instance)
        except errors.RpcError as err:
            self._tolerate(f"disks of a former kind were not removed: {err}", instance)
        try:
            disk_work.remove_storage_dir(self, instance, disks)
        except errors.RpcError as err:
            self._tolerate(
                f"the disk directory of instance {instance.name} was not removed: {err}", instance
            )

    def _tolerate(self, problem: str, instance: Instance) -> None:
        if self.op.ignore_failures:
            self.warn(problem)
            return
        raise errors.OpExecError(
            f"{problem}; the instance is still in the configuration, marked down. Repeat the"
            " command when the cause is gone, or use 'gnt-instance remove --ignore-failures"
            f" {instance.name}'."
        )
