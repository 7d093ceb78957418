"""Removing an instance, with its disks."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import convert_disks, run, steps
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
        if self.instance.forthcoming:
            # No hook was told that it was added.
            return [], []
        master = self.config.master_node().uuid
        return [master], [*self.config.instance_nodes(plan), master]

    def check_prereq(self) -> Instance:
        assert self.instance is not None
        if not (self.op.ignore_failures or self.instance.forthcoming):
            for uuid in self.config.instance_nodes(self.instance):
                node = self.config.node(uuid)
                if node.offline:
                    raise errors.OpPrereqError(
                        f"node {node.name} of instance {self.instance.name} is marked offline. With"
                        " --ignore-failures the instance is removed, and what that node has of it"
                        " stays there.",
                        errors.ECODE_STATE,
                    )
                prereq.require_online(node)
        return self.instance

    def steps(self, plan: Instance) -> list[str]:
        return steps.remove(self, plan)

    def exec(self, plan: Instance) -> None:
        remove_instance(
            self,
            plan,
            timeout_s=self.op.shutdown_timeout,
            ignore_failures=self.op.ignore_failures,
        )


def remove_instance(
    unit: LogicalUnit, instance: Instance, *, timeout_s: int, ignore_failures: bool
) -> None:
    """Stop an instance, remove its disks, forget it.

    :param timeout_s: how long the guest has to stop by itself.
    :param ignore_failures: go on when something cannot be removed, and only say so.
    :raises errors.OpExecError: the instance is still in the configuration, marked down.
    """
    # Marked down first, so that nobody starts it again while it disappears.
    if instance.admin_state == prereq.ADMIN_UP:
        unit.config.mark_instance(instance.uuid, prereq.ADMIN_DOWN)
    fresh = unit.config.instance(instance.uuid)
    if not fresh.forthcoming:
        try:
            run.stop(unit, fresh, timeout_s)
        except errors.OpExecError as err:
            _tolerate(unit, str(err), fresh, ignore=ignore_failures)
        _remove_disks(unit, fresh, ignore=ignore_failures)
    unit.config.remove_instance(fresh.uuid)


def _remove_disks(unit: LogicalUnit, instance: Instance, *, ignore: bool) -> None:
    disks = unit.config.instance_disks(instance)
    for index, disk in enumerate(disks):
        try:
            disk_work.remove_disk(unit, instance, disk)
        except errors.RpcError as err:
            _tolerate(
                unit,
                f"disk {index} of instance {instance.name} was not removed: {err}",
                instance,
                ignore=ignore,
            )
    try:
        convert_disks.clear(unit, instance)
    except errors.RpcError as err:
        _tolerate(unit, f"disks of a former kind were not removed: {err}", instance, ignore=ignore)
    try:
        disk_work.remove_storage_dir(unit, instance, disks)
    except errors.RpcError as err:
        _tolerate(
            unit,
            f"the disk directory of instance {instance.name} was not removed: {err}",
            instance,
            ignore=ignore,
        )


def _tolerate(unit: LogicalUnit, problem: str, instance: Instance, *, ignore: bool) -> None:
    if ignore:
        unit.warn(problem)
        return
    raise errors.OpExecError(
        f"{problem}; the instance is still in the configuration, marked down. Repeat the"
        " command when the cause is gone, or use 'gnt-instance remove --ignore-failures"
        f" {instance.name}'."
    )
