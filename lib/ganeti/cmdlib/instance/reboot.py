"""Reboot an instance."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.node_checks import Answers
from ganeti.cmdlib.ops.disks import snapshots, wipe
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.constants.instance import REBOOT_FULL, REBOOT_HARD, REBOOT_SOFT
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceReboot
from ganeti.wire.calls import INSTANCE_REBOOT


@dataclass(frozen=True, slots=True)
class RebootPlan:
    """The instance, and how it is rebooted.

    :ivar running: the instance runs now.
    :ivar on_node: the hypervisor reboots it; else it is stopped and started.
    """

    instance: Instance
    running: bool
    on_node: bool


@executes(OpInstanceReboot)
class LUInstanceReboot(LogicalUnit[OpInstanceReboot, RebootPlan]):
    """Reboot an instance; one which does not run is started."""

    HOOKS = InstanceHooks("instance-reboot")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE and self.instance is not None:
            self.lock_nodes_of(self.instance, shared=True)
        elif (
            level is Level.NODE_RES
            and self.instance is not None
            and self.op.reboot_type == REBOOT_FULL
        ):
            self.need(level, self.config.instance_nodes(self.instance))

    def hook_env(self, plan: RebootPlan) -> dict[str, object]:
        return {
            "IGNORE_SECONDARIES": self.op.ignore_secondaries,
            "REBOOT_TYPE": self.op.reboot_type,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
        }

    def check_prereq(self) -> RebootPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "reboot")
        prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), "reboot")
        node = prereq.require_online_primary(self.config, instance)
        filled = self.config.filled(instance)
        attachable = prereq.instance_bridges_check(filled, node)
        only_here = location.only_on_primary_check(self.config, self.log, instance)
        usable = prereq.hvparams_check(
            self.config, [node.uuid], instance.hypervisor, filled.hvparams
        )
        # The node checks the other types itself.
        parameters = [usable] if self.op.reboot_type == REBOOT_FULL else []
        answers = Answers(self.rpc, [attachable, only_here, *parameters])
        answers.judge(attachable)
        running = prereq.is_running(answers.judge(only_here))
        if running:
            for check in parameters:
                answers.judge(check)
        if not running:
            snapshots.require_restored(self.log, instance)
        return RebootPlan(
            instance, running, running and self.op.reboot_type in (REBOOT_SOFT, REBOOT_HARD)
        )

    def steps(self, plan: RebootPlan) -> list[str]:
        instance = plan.instance
        node = self.config.node(instance.primary_node).name
        steps = [f"mark instance {instance.name} as up"]
        if plan.on_node:
            return [*steps, f"let the hypervisor of {node} reboot it ({self.op.reboot_type})"]
        if plan.running:
            steps += power.stop_steps(self.config, instance, self.op.shutdown_timeout)
        return [*steps, *power.start_steps(instance, node)]

    def exec(self, plan: RebootPlan) -> None:
        with self.config.transaction() as change:
            change.instances.mark(plan.instance.uuid, prereq.ADMIN_UP)
        instance = self.config.instance(plan.instance.uuid)
        if plan.on_node:
            for disk in self.config.instance_disks(instance):
                wipe.finish(self.ctx, instance, disk)
            answer = self.rpc.call(
                INSTANCE_REBOOT,
                instance.primary_node,
                instance=instance,
                reboot_type=self.op.reboot_type,
                shutdown_timeout_s=self.op.shutdown_timeout,
                reason=list(self.op.reason or []),
            )
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"could not reboot instance {instance.name}: {why(answer.failure)}"
                ) from answer.failure
            if self.op.reboot_type == REBOOT_HARD and instance.pending_changes:
                with self.config.transaction() as change:
                    change.instances.forget_pending(instance.uuid)
            return
        if plan.running:
            power.say_stopping(self.ctx, instance, self.op.shutdown_timeout)
            power.stop(self.config, self.rpc, instance, self.op.shutdown_timeout, self.op.reason)
            power.deactivate_disks(self.config, self.rpc, instance)
        else:
            self.log.info(f"instance {instance.name} did not run, it is started now")
        power.start(
            self.ctx,
            self.config.instance(instance.uuid),
            self.op.reason,
            ignore_secondaries=self.op.ignore_secondaries,
        )
