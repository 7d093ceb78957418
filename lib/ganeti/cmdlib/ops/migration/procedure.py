"""Bringing an instance to another node: live, frozen, or by stopping and starting it.

Shared by the units of migrate and failover. :func:`plan_move` decides, :func:`move_running` and
:func:`move_stopped` act,
:func:`clean_up` repairs after an interrupted attempt.

Invariants: the instance never runs on two nodes, and the configuration names the node on which it
runs, or will run:

* the target only *accepts* before the transfer is complete; when anything fails before, the target
  forgets it and the source goes on;
* when the transfer is complete, the configuration is changed first, then the source is tidied;
* when the source does not answer in between, nothing is guessed: the error asks for the clean-up
  mode, which looks where the instance runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.disks import mirror
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.ops.guest import location, power
from ganeti.cmdlib.ops.policy.instance import require_policy
from ganeti.cmdlib.undo import Undo
from ganeti.constants.disk import INT_MIRRORED, MIRRORED
from ganeti.constants.hv import CAN_MIGRATE
from ganeti.wire.calls import (
    ACCEPT_INSTANCE,
    ALL_INSTANCES_INFO,
    INSTANCE_BALLOON_MEMORY,
    INSTANCE_FINALIZE_MIGRATION_DST,
    INSTANCE_FINALIZE_MIGRATION_SRC,
    INSTANCE_GET_MIGRATION_STATUS,
    INSTANCE_MIGRATABLE,
    INSTANCE_MIGRATE,
    INSTANCE_SHUTDOWN,
    MIGRATION_INFO,
)

if TYPE_CHECKING:
    from ganeti.objects import Instance, MigrationStatus, Node

ACTIVE = "active"
COMPLETED = "completed"
FAILED = ("cancelled", "failed")

#: Pauses between two looks at a transfer: at first, because a small idle guest is sent in a moment,
#: and in the end. In between they are a small part of the time that has passed.
FIRST_POLL_S = 0.01
POLL_S = 0.25
POLL_PART = 0.1
#: A source which does not answer for so many polls in a row is given up.
UNANSWERED_POLLS = 8
#: Seconds between two lines about the progress.
REPORT_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What to do with an instance.

    :ivar failover: stop it and start it on the target, instead of sending it while it runs.
    :ivar balloon_mib: shrink the guest to so much memory before it is sent.
    :ivar running: it runs on the source now.
    """

    instance: Instance
    source: Node
    target: Node
    failover: bool
    live: bool
    running: bool
    balloon_mib: int | None = None


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """Nodes which may know something about an interrupted move."""

    instance: Instance
    source: Node
    nodes: tuple[Node, ...]


def require_mirrored(unit: AnyUnit, instance: Instance, action: str) -> None:
    """:raises errors.OpPrereqError: no other node has the disks of the instance."""
    template = unit.config.disk_template(instance)
    if template not in MIRRORED:
        raise errors.OpPrereqError(
            f"cannot {action} instance {instance.name}: its disks ({template}) exist on its primary"
            " node only",
            errors.ECODE_STATE,
        )


def plan_move(
    unit: AnyUnit,
    instance: Instance,
    target: Node,
    *,
    failover: bool,
    live: bool = True,
    allow_failover: bool = False,
    allow_runtime_changes: bool = False,
    ignore_policy: bool = False,
    ignore_versions: bool = False,
) -> MovePlan:
    """Check everything and decide how the instance gets to the target.

    :raises errors.OpPrereqError: it cannot go there, or not now.
    """
    action = "fail over" if failover else "migrate"
    config = unit.config
    prereq.require_not_forthcoming(instance, action)
    require_mirrored(unit, instance, action)
    prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), action)
    source = config.node(instance.primary_node)
    if target.uuid == source.uuid:
        raise errors.OpPrereqError(
            f"instance {instance.name} is already on node {target.name}", errors.ECODE_STATE
        )
    prereq.require_target(target)
    filled = config.filled(instance)
    require_policy(unit, filled, target, ignore=ignore_policy)
    running = False
    if not failover:
        failover, running = _may_migrate(
            unit, instance, source, target, allow_failover, ignore_versions
        )
    if failover:
        # It is stopped on its primary node only, before it starts on the other one.
        info = location.require_only_on_primary(unit, instance, primary_may_be_dead=True)
        running = prereq.is_running(info)
    balloon_mib = None
    if instance.admin_state == prereq.ADMIN_UP:
        prereq.require_instance_bridges(unit, filled, target.uuid)
        free_mib = prereq.require_free_memory(
            unit,
            target.uuid,
            f"running instance {instance.name}",
            filled.beparams["minmem"],
            instance.hypervisor,
            filled.hvparams,
        )
        if not failover:
            balloon_mib = _needs_balloon(unit, instance, free_mib, allow_runtime_changes, target)
    return MovePlan(instance, source, target, failover, live, running, balloon_mib)


def _may_migrate(
    unit: AnyUnit,
    instance: Instance,
    source: Node,
    target: Node,
    allow_failover: bool,
    ignore_versions: bool,
) -> tuple[bool, bool]:
    """Can the guest be sent while it runs? Returns (failover instead, runs now)."""
    if source.offline:
        return _instead(unit, instance, f"its node {source.name} is offline", allow_failover), False
    running = prereq.is_running(prereq.running_info(unit, instance))
    if unit.config.filled(instance).beparams["always_failover"]:
        unit.info(f"instance {instance.name} shall always be failed over, not migrated")
        return True, running
    if not running:
        return _instead(unit, instance, "it does not run", allow_failover), False
    if instance.hypervisor not in CAN_MIGRATE:
        problem = f"hypervisor {instance.hypervisor} cannot migrate"
        return _instead(unit, instance, problem, allow_failover), True
    answer = unit.rpc.call(INSTANCE_MIGRATABLE, source.uuid, instance=instance)
    if isinstance(answer.failure, errors.NodeCallFailed):
        return _instead(unit, instance, answer.failure.message, allow_failover), True
    answer.payload()
    _compare_versions(unit, instance, source, target, ignore_versions)
    return False, True


def _instead(unit: AnyUnit, instance: Instance, problem: str, allow_failover: bool) -> bool:
    if not allow_failover:
        raise errors.OpPrereqError(
            f"cannot migrate instance {instance.name}: {problem}. Use failover, or allow it with"
            " --allow-failover.",
            errors.ECODE_STATE,
        )
    unit.info(f"instance {instance.name} is failed over instead of migrated: {problem}")
    return True


def _compare_versions(
    unit: AnyUnit, instance: Instance, source: Node, target: Node, ignore: bool
) -> None:
    """A guest may move to the same or a newer hypervisor, hardly ever to an older one."""
    hvparams = unit.config.filled(instance).hvparams
    versions = [
        prereq.node_facts(unit, node.uuid, instance.hypervisor, hvparams).get("hv_version")
        for node in (source, target)
    ]
    old, new = versions
    if not isinstance(old, list) or not isinstance(new, list) or old <= new:
        return
    text = (
        f"hypervisor {instance.hypervisor} is version {_dotted(old)} on node {source.name},"
        f" but only {_dotted(new)} on node {target.name}"
    )
    if not ignore:
        raise errors.OpPrereqError(
            f"{text}. Use --ignore-hvversions to try nevertheless.", errors.ECODE_STATE
        )
    unit.warn(text)


def _dotted(version: list[int]) -> str:
    return ".".join(str(part) for part in version)


def _needs_balloon(
    unit: AnyUnit, instance: Instance, free_mib: int, allowed: bool, target: Node
) -> int | None:
    current_mib = prereq.running_info(unit, instance).get("memory", 0)
    if not isinstance(current_mib, int) or current_mib <= free_mib:
        return None
    if not allowed:
        raise errors.OpPrereqError(
            f"instance {instance.name} uses {current_mib} MiB, node {target.name} has {free_mib}"
            " MiB"
            " free, and changes of the running instance are not allowed",
            errors.ECODE_NORES,
        )
    return free_mib


# -- moving a running guest ------------------------------------------------------


def move_running(
    unit: AnyUnit, plan: MovePlan, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Send the running guest to the target.

    :raises errors.OpExecError: it still runs on the source; or nobody knows, then the text asks
        for the clean-up mode.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    mirrored = unit.config.disk_template(instance) in INT_MIRRORED
    mirror.require_good_replica(unit, instance, target, alone=False, ignore=False)
    mirror.require_own_storage(unit, instance, source)
    unit.feedback(
        f"Moving instance {instance.name} from {source.name} to {target.name} while it runs"
    )
    if plan.balloon_mib is not None:
        unit.feedback(f"* shrinking the instance to {plan.balloon_mib} MiB")
        unit.rpc.call(
            INSTANCE_BALLOON_MEMORY, source.uuid, instance=instance, memory_mib=plan.balloon_mib
        ).payload()
    info = unit.rpc.call(MIGRATION_INFO, source.uuid, instance=instance).payload()
    hint = f"Look at it with 'gnt-instance migrate --cleanup {instance.name}'."
    with Undo(unit.warn, hint=hint) as undo:
        if mirrored:
            undo.add(
                f"disks of {instance.name} writable on node {target.name}",
                mirror.make_single_primary,
                unit,
                instance,
                target,
                sleep,
            )
        else:
            undo.add(
                f"active disks of {instance.name} on node {target.name}",
                shutdown_disks,
                unit,
                instance,
                target.uuid,
            )
        unit.feedback(f"* activating its disks on {target.name}")
        if mirrored:
            mirror.make_dual_primary(unit, instance, target, sleep)
        else:
            assemble_disks(unit, instance, target.uuid)
        undo.add(
            f"the receiving side of {instance.name} on node {target.name}",
            _forget_on_target,
            unit,
            instance,
            target,
            info,
        )
        unit.feedback(f"* preparing {target.name} to accept it")
        unit.rpc.call(
            ACCEPT_INSTANCE, target.uuid, instance=instance, info=info, target=target.secondary_ip
        ).payload()
        undo.add(
            f"the sending side of {instance.name} on node {source.name}",
            _stay_on_source,
            unit,
            instance,
            source,
            plan.live,
        )
        unit.feedback("* sending its memory")
        try:
            _transfer(unit, plan, sleep)
        except _SourceSilent as err:
            # Nobody knows which side has the guest: touching either could lose it.
            undo.commit()
            raise errors.OpExecError(
                f"node {source.name} stopped answering while instance {instance.name} was sent:"
                f" {err};"
                f" it runs there or on node {target.name}. {hint}"
            ) from err
        undo.commit()
    # The guest runs on the target: that must be known before anything else happens.
    with unit.config.transaction() as change:
        change.set_instance_primary(instance.uuid, target.uuid)
    _finish(unit, plan, info, sleep)


class _SourceSilent(errors.GenericError):
    """The source does not answer although a transfer is under way."""


def _transfer(unit: AnyUnit, plan: MovePlan, sleep: Callable[[float], None]) -> None:
    """Send, and wait until the transfer is complete.

    :raises errors.OpExecError: it failed, the guest is still on the source.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    answer = unit.rpc.call(
        INSTANCE_MIGRATE,
        source.uuid,
        cluster_name=unit.config.cluster_name,
        instance=instance,
        target=target.secondary_ip,
        live=plan.live,
    )
    if isinstance(answer.failure, errors.NodeUnreachable):
        raise _SourceSilent(str(answer.failure))
    if answer.failure is not None:
        raise errors.OpExecError(
            f"could not migrate instance {instance.name} to node {target.name}:"
            f" {why(answer.failure)}"
        ) from answer.failure
    silent = 0
    waited_s = REPORT_EVERY_S
    pause_s = min(FIRST_POLL_S, POLL_S)
    passed_s = 0.0
    while True:
        answer = unit.rpc.call(INSTANCE_GET_MIGRATION_STATUS, source.uuid, instance=instance)
        if isinstance(answer.failure, errors.NodeUnreachable):
            silent += 1
            pause_s = POLL_S
            if silent >= UNANSWERED_POLLS:
                raise _SourceSilent(str(answer.failure))
        elif answer.failure is not None:
            raise errors.OpExecError(
                f"could not follow the migration of instance {instance.name}: {why(answer.failure)}"
            ) from answer.failure
        else:
            silent = 0
            status: MigrationStatus = answer.data
            if status.status == COMPLETED:
                unit.feedback(f"* all memory is sent{_times(status)}")
                return
            if status.status in FAILED:
                raise errors.OpExecError(
                    f"the migration of instance {instance.name} to node {target.name}"
                    f" {status.status}"
                )
            if waited_s >= REPORT_EVERY_S and status.total_ram:
                percent = 100.0 * (status.transferred_ram or 0) / status.total_ram
                unit.feedback(f"* {min(percent, 99.9):.1f} % of its memory is sent")
                waited_s = 0.0
        sleep(pause_s)
        waited_s += pause_s
        passed_s += pause_s
        pause_s = min(max(FIRST_POLL_S, passed_s * POLL_PART), POLL_S)


def _times(status: MigrationStatus) -> str:
    """How long it took, when the hypervisor says so."""
    if status.total_time is None or status.downtime is None:
        return ""
    return f" ({status.total_time / 1000:.1f} s, the instance stood still for {status.downtime} ms)"


def _forget_on_target(unit: AnyUnit, instance: Instance, target: Node, info: object) -> None:
    unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=instance, info=info, success=False
    ).payload()


def _stay_on_source(unit: AnyUnit, instance: Instance, source: Node, live: bool) -> None:
    unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC, source.uuid, instance=instance, success=False, live=live
    ).payload()


def _finish(unit: AnyUnit, plan: MovePlan, info: object, sleep: Callable[[float], None]) -> None:
    """Tidy both sides after a complete transfer; what fails here is reported, the guest is safe."""
    instance, source, target = plan.instance, plan.source, plan.target
    moved = unit.config.instance(instance.uuid)
    problems = []
    answer = unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC,
        source.uuid,
        instance=instance,
        success=True,
        live=plan.live,
    )
    if answer.failure is not None:
        problems.append(f"node {source.name} could not forget it: {why(answer.failure)}")
    answer = unit.rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST, target.uuid, instance=moved, info=info, success=True
    )
    if answer.failure is not None:
        problems.append(f"node {target.name} could not complete it: {why(answer.failure)}")
    try:
        if unit.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(unit, moved, source, sleep)
        else:
            shutdown_disks(unit, instance, source.uuid)
    except errors.GenericError as err:
        problems.append(str(err))
    if problems:
        raise errors.OpExecError(
            f"instance {instance.name} runs on node {target.name} now, but {'; '.join(problems)}."
            f" Run 'gnt-instance migrate --cleanup {instance.name}' when the cause is gone."
        )
    unit.feedback("* done")


# -- stop here, start there ------------------------------------------------------


def move_stopped(
    unit: AnyUnit, plan: MovePlan, *, shutdown_timeout_s: int, ignore_consistency: bool
) -> None:
    """Stop the instance on the source, make the target its primary node, start it there when it
    shall run.

    :raises errors.OpExecError: the text says on which node it is now.
    """
    instance, source, target = plan.instance, plan.source, plan.target
    if instance.disks_active:
        mirror.ensure_good_replica(
            unit, instance, target, alone=source.offline, ignore=ignore_consistency
        )
    unit.feedback(f"Failing instance {instance.name} over from {source.name} to {target.name}")
    if source.offline:
        unit.warn(f"node {source.name} is offline: not stopping the instance there")
    else:
        _stop_on_source(unit, plan, shutdown_timeout_s, ignore_consistency)
    # From here on the target is where it belongs; if the master dies, the watcher starts it there.
    with unit.config.transaction() as change:
        change.set_instance_primary(instance.uuid, target.uuid)
    if instance.admin_state != prereq.ADMIN_UP:
        return
    unit.feedback(f"* starting it on {target.name}")
    try:
        # The old node has the other half now; it may be dead.
        power.start(unit, unit.config.instance(instance.uuid), ignore_secondaries=True)
    except errors.OpExecError as err:
        raise errors.OpExecError(
            f"{err}. The instance was stopped and belongs to node {target.name} now, marked to run."
            f" Start it with 'gnt-instance startup {instance.name}' when the cause is gone."
        ) from err


def _stop_on_source(
    unit: AnyUnit, plan: MovePlan, shutdown_timeout_s: int, ignore_consistency: bool
) -> None:
    instance, source = plan.instance, plan.source
    unit.feedback(f"* stopping it on {source.name}")
    answer = unit.rpc.call(
        INSTANCE_SHUTDOWN,
        source.uuid,
        instance=instance,
        timeout_s=shutdown_timeout_s,
        reason=list(unit.op.reason or []),
    )
    if answer.failure is not None:
        if not ignore_consistency:
            raise errors.OpExecError(
                f"could not stop instance {instance.name} on node {source.name}:"
                f" {why(answer.failure)}."
                " Only if that machine is certainly off, repeat with --ignore-consistency."
            ) from answer.failure
        unit.warn(
            f"could not stop instance {instance.name} on node {source.name}: {why(answer.failure)}",
            hint="Make sure that the machine is off before the instance starts elsewhere.",
        )
    try:
        shutdown_disks(unit, instance, source.uuid)
    except errors.OpExecError as err:
        if not ignore_consistency:
            raise
        unit.warn(str(err))


# -- repairing -------------------------------------------------------------------


def plan_cleanup(unit: AnyUnit, instance: Instance) -> CleanupPlan:
    """Look up the nodes which may run the instance: its group's, or the two of a mirrored one."""
    require_mirrored(unit, instance, "clean up after a migration of")
    source = unit.config.node(instance.primary_node)
    nodes = tuple(
        node for node in _possible(unit, instance, source) if node.vm_capable and not node.offline
    )
    return CleanupPlan(instance, source, nodes)


def _possible(unit: AnyUnit, instance: Instance, source: Node) -> list[Node]:
    if unit.config.disk_template(instance) in INT_MIRRORED:
        return [unit.config.node(uuid) for uuid in unit.config.instance_nodes(instance)]
    return [node for node in unit.config.nodes() if node.group == source.group]


def clean_up(unit: AnyUnit, plan: CleanupPlan) -> None:
    """Find out where the instance runs, and make both sides and the configuration agree.

    :raises errors.OpExecError: it runs nowhere or in several places, or a node does not answer.
    """
    instance, source = plan.instance, plan.source
    unit.feedback(f"Looking where instance {instance.name} runs")
    running, waiting = _where_it_runs(unit, plan)
    others = [node for node in running if node.uuid != source.uuid]
    if not running:
        raise errors.OpExecError(
            f"instance {instance.name} runs nowhere. Use 'gnt-instance shutdown {instance.name}' to"
            " release its disks, then start it."
        )
    if len(running) == 1:
        winner = running[0]
    elif len(running) == 2 and len(others) == 1:
        winner = _interrupted_between(unit, instance, source, others[0])
    else:
        names = ", ".join(node.name for node in running)
        raise errors.OpExecError(
            f"instance {instance.name} runs on several nodes: {names}. Stop all but one by hand."
        )
    # Nobody but the winner may go on with it.
    for node in (*waiting, *others):
        if node.uuid != winner.uuid:
            _forget_on_target(unit, instance, node, None)
    if winner.uuid == source.uuid:
        unit.feedback(f"* it runs on its primary node {source.name}")
        _stay_on_source(unit, instance, source, True)
    else:
        unit.feedback(f"* it runs on {winner.name}, which becomes its primary node")
        with unit.config.transaction() as change:
            change.set_instance_primary(instance.uuid, winner.uuid)
        if source in plan.nodes:
            unit.rpc.call(
                INSTANCE_FINALIZE_MIGRATION_SRC,
                source.uuid,
                instance=instance,
                success=True,
                live=True,
            ).payload()
        unit.rpc.call(
            INSTANCE_FINALIZE_MIGRATION_DST,
            winner.uuid,
            instance=unit.config.instance(instance.uuid),
            info=None,
            success=True,
        ).payload()
    others = [node for node in plan.nodes if node.uuid != winner.uuid]
    if unit.config.disk_template(instance) in INT_MIRRORED:
        # Where a half is not active, it is now; then the two meet with one writer.
        assemble_disks(unit, unit.config.instance(instance.uuid), ignore_secondaries=True)
    for node in others:
        if unit.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(unit, unit.config.instance(instance.uuid), node)
        else:
            shutdown_disks(unit, instance, node.uuid)
    unit.feedback("* done")


def _where_it_runs(unit: AnyUnit, plan: CleanupPlan) -> tuple[list[Node], list[Node]]:
    """The nodes which run the guest, and those which wait for its memory."""
    hypervisor = plan.instance.hypervisor
    hvparams = unit.config.filled(plan.instance).hvparams
    answers = unit.rpc.call_many(
        ALL_INSTANCES_INFO,
        [node.uuid for node in plan.nodes],
        hypervisors=[hypervisor],
        hvparams={hypervisor: hvparams},
    )
    running: list[Node] = []
    waiting: list[Node] = []
    for node in plan.nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {node.name} does not tell whether it runs instance {plan.instance.name}:"
                f" {why(answer.failure)}. If the machine is off, mark it offline first."
            ) from answer.failure
        info = answer.data.get(plan.instance.name)
        if info:
            (running if prereq.is_running(info) else waiting).append(node)
    return running, waiting


def _interrupted_between(unit: AnyUnit, instance: Instance, source: Node, other: Node) -> Node:
    """Both sides know it: which one has the guest, as far as the sender can tell?"""
    answer = unit.rpc.call(INSTANCE_GET_MIGRATION_STATUS, source.uuid, instance=instance)
    status = None if answer.failure is not None else answer.data.status
    # A guest which once came to the source by migration says "completed" too, but sent nothing.
    if status == COMPLETED and answer.data.total_ram:
        return other
    if status == ACTIVE or status in FAILED:
        unit.feedback(f"* a transfer to {other.name} was interrupted")
        return source
    raise errors.OpExecError(
        f"instance {instance.name} runs on both {source.name} and {other.name}. Stop one of them"
        " by hand."
    )
