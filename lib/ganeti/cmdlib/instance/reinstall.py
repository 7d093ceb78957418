"""Installing the operating system of a stopped instance again.

What is installed is written down first. An installation that broke off leaves a stopped instance
with half an operating system on its disks; the same command begins anew.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.instance import disks as disk_work
from ganeti.cmdlib.instance import os_params
from ganeti.cmdlib.undo import Undo
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceReinstall
from ganeti.wire.calls import INSTANCE_OS_ADD


@dataclass(frozen=True, slots=True)
class ReinstallPlan:
    """``osparams`` are all parameters of this installation."""

    instance: Instance
    os_name: str
    osparams: dict[str, Any]


@executes(OpInstanceReinstall)
class LUInstanceReinstall(LogicalUnit):
    """Run the create script of an operating system on the disks of a stopped instance."""

    op: OpInstanceReinstall
    HOOKS = InstanceHooks("instance-reinstall")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level in (Level.NODE, Level.NODE_RES) and self.instance is not None:
            nodes = self.config.instance_nodes(self.instance)
            self.need(level, nodes, shared=level is Level.NODE)

    def check_prereq(self) -> ReinstallPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "reinstall")
        prereq.require_online(self.config.node(instance.primary_node))
        prereq.require_stopped(self, instance, "reinstall")
        if not instance.disks:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no disks to install anything on",
                errors.ECODE_INVAL,
            )
        os_name = self.op.os_type or instance.os
        if not os_name:
            raise errors.OpPrereqError(
                f"instance {instance.name} has no operating system. Name one with --os-type.",
                errors.ECODE_INVAL,
            )
        osparams = os_params.for_installation(
            self.config.cluster(),
            os_name,
            os_params.merged(instance.osparams, self.op.osparams),
            os_params.merged(instance.osparams_private, self.op.osparams_private),
            self.op.osparams_secret or {},
        )
        prereq.require_os(
            self, instance.primary_node, os_name, osparams, force_variant=self.op.force_variant
        )
        return ReinstallPlan(instance, os_name, osparams)

    def steps(self, plan: ReinstallPlan) -> list[str]:
        node = self.config.node(plan.instance.primary_node).name
        return [
            f"run the create script of OS {plan.os_name} for instance {plan.instance.name} on"
            f" {node}, which destroys what is on its disks"
        ]

    def exec(self, plan: ReinstallPlan) -> None:
        instance = plan.instance
        if plan.os_name != instance.os:
            self.feedback(f"Changing OS to '{plan.os_name}'...")
            self.config.update_instance(dataclasses.replace(instance, os=plan.os_name))
            instance = self.config.instance(instance.uuid)
        with Undo(self.warn) as undo:
            # Taken back in any case: the instance is stopped afterwards as it was before.
            undo.add(f"active disks of {instance.name}", disk_work.shutdown_disks, self, instance)
            disk_work.assemble_disks(self, instance)
            self.info("Running the OS's create script...")
            answer = self.rpc.call(
                INSTANCE_OS_ADD,
                instance.primary_node,
                instance=(instance, None, None, plan.osparams),
                reinstall=True,
                debug_level=self.op.debug_level or 0,
            )
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"could not install OS {instance.os} for instance {instance.name} on node"
                    f" {answer.node_name}: {why(answer.failure)}"
                ) from answer.failure
        if instance.disks_active:
            self.config.set_disks_active(instance.uuid, False)
