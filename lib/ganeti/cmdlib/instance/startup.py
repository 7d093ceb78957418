"""Start an instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.node_checks import Answers
from ganeti.cmdlib.ops.disks import snapshots
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.params.instance import checked_overrides
from ganeti.constants import hv
from ganeti.locking import Level
from ganeti.objects import FilledInstance, Instance, Node
from ganeti.objects import halt as halts
from ganeti.objects.halt import Halt
from ganeti.opcodes.instance import OpInstanceStartup


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The instance to start, with parameters for this start only.

    :ivar node_offline: its primary node is offline, so that it is only marked up.
    :ivar running: the instance runs already.
    :ivar ended: the guest has shut down by itself, and its hypervisor still has its state.
    :ivar halt: why its guest does not run, although it lives or has left something.
    :ivar unwanted: somebody has shut it down since the job was submitted, and that counts.
    """

    instance: Instance
    node_offline: bool
    running: bool
    ended: bool
    hvparams: dict[str, Any]
    beparams: dict[str, Any]
    unwanted: bool = False
    halt: Halt | None = None


@executes(OpInstanceStartup)
class LUInstanceStartup(LogicalUnit[OpInstanceStartup, StartPlan]):
    """Start a stopped instance on its primary node; a running one is not touched."""

    HOOKS = InstanceHooks("instance-start")

    def expand_names(self) -> None:
        self.lock_instance(self.op.instance_name, self.op.instance_uuid)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE and self.instance is not None:
            self.lock_nodes_of(self.instance, shared=True)
        elif level is Level.NODE_RES and self.instance is not None:
            # Exclusive: memory which is free in check_prereq must still be free in exec.
            self.need(level, self.config.instance_nodes(self.instance))

    def hook_env(self, plan: StartPlan) -> dict[str, object]:
        return {"FORCE": self.op.force}

    def check_prereq(self) -> StartPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "start")
        if self.op.wanted_only and instance.admin_state != prereq.ADMIN_UP:
            self.log.info(
                f"instance {instance.name} is not started, because it is marked"
                f" {instance.admin_state!r} now"
            )
            return StartPlan(instance, False, False, False, {}, {}, unwanted=True)
        prereq.require_whole_disks(self.config, instance)
        snapshots.require_restored(self.log, instance, force=self.op.force)
        prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), "start")
        filled, hvparams, beparams = checked_overrides(
            self.config, instance, self.op.hvparams, self.op.beparams
        )
        node = self.config.node(instance.primary_node)
        if node.offline and self.op.ignore_offline_nodes:
            self.log.warn(
                f"node {node.name} is offline: instance {instance.name} is only marked to run"
            )
            return StartPlan(instance, True, False, False, hvparams, beparams)
        prereq.require_online_primary(self.config, instance)
        info = self._check_node(filled, node, own_hvparams=bool(hvparams))
        running = prereq.is_running(info)
        ended = bool(info) and not running
        halt = halts.of_facts(info)
        if halt is not None:
            self._refuse_to_go_on(halt, node)
        return StartPlan(instance, False, running, ended, hvparams, beparams, halt=halt)

    def _refuse_to_go_on(self, halt: Halt, node: Node) -> None:
        """Check that a start may let a halted guest run on, or end it."""
        assert self.instance is not None
        if halt.is_fault or (halt.kind == hv.HALT_PAUSED and self._may_stay_paused()):
            return
        raise errors.OpPrereqError(
            f"instance {self.instance.name} does not run on node {node.name}, although it was"
            f" started: {halt.text()}. {halt.remedy(self.instance.name)}",
            errors.ECODE_STATE,
        )

    def _may_stay_paused(self) -> bool:
        return self.op.startup_paused or bool(self.op.continue_paused)

    def _check_node(
        self, filled: FilledInstance, node: Node, *, own_hvparams: bool
    ) -> Mapping[str, Any]:
        """Check that the node can start the instance.

        :param own_hvparams: the start has parameters of its own, which no node has seen before.
        :returns: the facts of its hypervisor about the instance; empty when it does not run.
        """
        assert self.instance is not None
        usable = prereq.hvparams_check(self.config, [node.uuid], filled.hypervisor, filled.hvparams)
        attachable = prereq.instance_bridges_check(filled, node)
        only_here = location.only_on_primary_check(self.config, self.log, self.instance)
        enough = prereq.memory_check(
            node,
            f"starting instance {filled.name}",
            filled.beparams["minmem"],
            filled.hypervisor,
            filled.hvparams,
        )
        parameters = [usable] if own_hvparams else []
        answers = Answers(self.rpc, [*parameters, attachable, only_here, enough])
        for check in (*parameters, attachable):
            answers.judge(check)
        info = answers.judge(only_here)
        if not prereq.is_running(info):
            answers.judge(enough)
        return info

    def steps(self, plan: StartPlan) -> list[str]:
        if plan.unwanted:
            return []
        steps = [] if self.op.no_remember else [f"mark instance {plan.instance.name} as up"]
        if plan.node_offline:
            return [*steps, "do nothing on the node, which is offline"]
        if plan.halt is not None and plan.halt.kind != hv.HALT_ENDED:
            what = "leave it paused" if self._leaves_paused(plan.halt) else "let it run on"
            return [*steps, f"{what}: {plan.halt.text()}"]
        if plan.running and plan.halt is None:
            return [*steps, "do nothing on the node, where the instance runs already"]
        node = self.config.node(plan.instance.primary_node)
        paused = ["leave it paused"] if self.op.startup_paused else []
        ended = [f"end it, because it cannot run on: {plan.halt.text()}"] if plan.halt else []
        return [*steps, *ended, *power.start_steps(plan.instance, node.name), *paused]

    def _leaves_paused(self, halt: Halt) -> bool:
        return halt.kind == hv.HALT_PAUSED and not self.op.continue_paused

    def exec(self, plan: StartPlan) -> None:
        instance = plan.instance
        if plan.unwanted:
            return
        # The wanted state first: if the master dies later, the watcher starts the instance.
        if not self.op.no_remember:
            with self.config.transaction() as change:
                change.instances.mark(instance.uuid, prereq.ADMIN_UP)
        if plan.node_offline:
            return
        # A start by force ends the warning about partly restored disks.
        snapshots.unmark(self.config, instance)
        if plan.running and plan.halt is None:
            self.log.already(f"instance {instance.name} is already running")
            return
        try:
            if plan.halt is not None and plan.halt.kind != hv.HALT_ENDED:
                self._go_on(plan.halt)
                return
            self._end_first(plan)
            power.start(
                self.ctx,
                self.config.instance(instance.uuid),
                self.op.reason,
                paused=self.op.startup_paused,
                hvparams=plan.hvparams,
                beparams=plan.beparams,
                ignore_secondaries=self.op.force,
                accept_loss=self.op.force,
            )
        except errors.OpExecError as err:
            if self.op.no_remember:
                raise
            raise errors.OpExecError(
                f"{str(err).rstrip('.')}. The instance stays marked to run; mark it down with"
                f" 'gnt-instance shutdown {instance.name}' if the watcher must not start it."
            ) from err

    def _go_on(self, halt: Halt) -> None:
        """Let a halted guest run on, unless it should stay paused."""
        assert self.instance is not None
        name = self.instance.name
        if self._leaves_paused(halt):
            self.log.info(f"instance {name} was started already, and stays paused: {halt.text()}")
            return
        self.log.info(f"instance {name} was halted, and runs on: {halt.text()}")
        power.go_on(self.ctx, self.config.instance(self.instance.uuid), self.op.reason)

    def _end_first(self, plan: StartPlan) -> None:
        """Remove what is left of a guest which has ended, or which can never run on."""
        name, timeout_s = plan.instance.name, self.op.shutdown_timeout
        if plan.halt is not None:
            self.log.info(
                f"instance {name} cannot run on, and is ended before its start: {plan.halt.text()}"
            )
            timeout_s = 0
        elif plan.ended:
            self.log.info(f"instance {name} was shut down from inside; it is cleaned up first")
        else:
            return
        power.stop(self.config, self.rpc, plan.instance, timeout_s, self.op.reason)
