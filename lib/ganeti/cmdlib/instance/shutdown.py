"""Stop an instance."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import Level
from ganeti.objects import Instance
from ganeti.opcodes.instance import OpInstanceShutdown


@dataclass(frozen=True, slots=True)
class StopPlan:
    """The instance to stop.

    :ivar node_offline: its primary node is offline, so that it is only marked down.
    :ivar stopped: it is marked down, and does not run.
    """

    instance: Instance
    node_offline: bool
    stopped: bool = False


@executes(OpInstanceShutdown)
class LUInstanceShutdown(LogicalUnit[OpInstanceShutdown, StopPlan]):
    """Stop an instance; an instance which does not run is only marked down."""

    HOOKS = InstanceHooks("instance-stop")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE and self.instance is not None:
            self.lock_nodes_of(self.instance, shared=True)

    def hook_env(self, plan: StopPlan) -> dict[str, object]:
        return {"TIMEOUT": self.op.timeout}

    def check_prereq(self) -> StopPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "shut down")
        if self.op.force:
            if instance.admin_state == prereq.ADMIN_OFFLINE:
                self.log.warn(
                    f"instance {instance.name} is marked offline, it is shut down because of force"
                )
        else:
            prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), "shut down")
        location.require_not_elsewhere(self.ctx, instance)
        node = self.config.node(instance.primary_node)
        if node.offline and self.op.ignore_offline_nodes:
            self.log.warn(
                f"node {node.name} is offline: instance {instance.name} is only marked down"
            )
            return StopPlan(instance, True)
        prereq.require_online(node)
        return StopPlan(instance, False, self._is_stopped(instance))

    def _is_stopped(self, instance: Instance) -> bool:
        """Return whether the instance is marked down, and its node says that it does not run."""
        if instance.admin_state != prereq.ADMIN_DOWN:
            return False
        try:
            return not prereq.is_running(location.info_on_primary(self.config, self.rpc, instance))
        except errors.GenericError:  # the stop itself says what is wrong
            return False

    def steps(self, plan: StopPlan) -> list[str]:
        instance = plan.instance
        unmarked = self.op.no_remember or instance.admin_state == prereq.ADMIN_OFFLINE
        steps = [] if unmarked else [f"mark instance {instance.name} as down"]
        if plan.node_offline:
            return [*steps, "do nothing on the node, which is offline"]
        return [*steps, *power.stop_steps(self.config, instance, self.op.timeout)]

    def exec(self, plan: StopPlan) -> None:
        instance = plan.instance
        if not self.op.no_remember and instance.admin_state != prereq.ADMIN_OFFLINE:
            source = self.op.admin_state_source or "admin"
            if instance.disks:
                with self.config.transaction() as change:
                    change.instances.mark(instance.uuid, prereq.ADMIN_DOWN, source)
            else:
                # Without disks nothing is deactivated later, so one transaction is enough.
                with self.config.transaction() as change:
                    change.instances.mark(instance.uuid, prereq.ADMIN_DOWN, source)
                    change.instances.set_disks_active(instance.uuid, False)
        if plan.node_offline:
            return
        instance = self.config.instance(instance.uuid)
        try:
            power.stop(self.config, self.rpc, instance, self.op.timeout, self.op.reason)
            power.deactivate_disks(self.config, self.rpc, instance)
            if plan.stopped:
                self.log.already(f"instance {instance.name} was stopped already")
        except errors.OpExecError as err:
            if self.op.no_remember:
                raise
            raise errors.OpExecError(
                f"{err}. The instance is marked down. Repeat the command when the cause is gone."
            ) from err
