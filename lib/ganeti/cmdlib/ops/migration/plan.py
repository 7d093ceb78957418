"""Plan how an instance gets to another node: by a migration, or by a failover.

:func:`plan_migration` checks everything and decides. :mod:`.live` and :mod:`.failover` carry out
the plan. The logical units ``LUInstanceMigrate`` and ``LUInstanceFailover`` call them. A failover
of a mirrored instance to a node without a replica has a plan of its own, see
:mod:`.failover_to_any`.

Invariants of all modules of this package: the instance never runs on two nodes, and the
configuration names the node on which it runs, or will run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.policy.instance import Override
from ganeti.cmdlib.ops.policy.ratios import require_policy
from ganeti.constants import hv
from ganeti.objects import halt as halts
from ganeti.objects import hypervisors
from ganeti.objects.disk_templates import INT_MIRRORED, MIRRORED
from ganeti.wire.calls import INSTANCE_MIGRATABLE

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Node
    from ganeti.rpc import RpcRunner


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """How the instance gets from the source node to the target node.

    :ivar failover: stop it and start it on the target, instead of sending it while it runs.
    :ivar live: the guest goes on running while its memory is sent; False: it is paused.
    :ivar running: the instance runs on the source now.
    :ivar balloon_mib: shrink the guest to this memory (MiB) before it is sent; None: do not.
    :ivar any_port: both nodes can agree on a port for this migration.
    """

    instance: Instance
    source: Node
    target: Node
    failover: bool
    live: bool
    running: bool
    balloon_mib: int | None = None
    any_port: bool = False

    def steps(self, config: Config) -> list[str]:
        """Return the steps of the migration or failover, for a dry run."""
        instance, source, target = self.instance, self.source.name, self.target.name
        if self.failover:
            stop = [
                f"stop instance {instance.name} on {source}",
                f"deactivate its disks on {source}",
            ]
            wanted = instance.admin_state == prereq.ADMIN_UP
            return [
                *([] if self.source.offline else stop),
                f"make {target} its primary node",
                *(power.start_steps(instance, target) if wanted else []),
            ]
        mirrored = config.disk_template(instance) in INT_MIRRORED
        shrink = [] if self.balloon_mib is None else [f"shrink it to {self.balloon_mib} MiB"]
        return [
            *shrink,
            f"let both {source} and {target} write to its disks"
            if mirrored
            else f"activate its disks on {target}",
            *self.transfer_steps(),
            f"make {target} its primary node",
            f"let only {target} write to its disks"
            if mirrored
            else f"deactivate its disks on {source}",
        ]

    def transfer_steps(self) -> list[str]:
        """Return the steps in which the guest is sent, for a dry run."""
        target = self.target.name
        paused = "" if self.live else ", paused meanwhile"
        return [
            f"prepare {target} to accept it",
            f"send it from {self.source.name} to {target}{paused}",
        ]


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """What the user asks for, and what he accepts.

    :ivar failover: stop the instance and start it on the target.
    :ivar live: the guest goes on running while its memory is sent.
    :ivar allow_failover: fail over where a migration is not possible.
    :ivar allow_runtime_changes: the guest may be shrunk to the free memory of the target.
    :ivar override: whether violations of the policy are warnings.
    :ivar ignore_versions: the hypervisor of the target may be older.
    :ivar ignore_consistency: a failover may leave a node which is marked as offline, but not off.
    """

    failover: bool
    override: Override
    live: bool = True
    allow_failover: bool = False
    allow_runtime_changes: bool = False
    ignore_versions: bool = False
    ignore_consistency: bool = False


def require_mirrored(config: Config, instance: Instance, action: str) -> None:
    """Check that another node can reach the disks of the instance.

    :raises errors.OpPrereqError: the disks exist on the primary node only.
    """
    template = config.disk_template(instance)
    if template not in MIRRORED:
        raise errors.OpPrereqError(
            f"cannot {action} instance {instance.name}: its disks ({template}) exist on its primary"
            " node only",
            errors.ECODE_STATE,
        )


def plan_migration(
    ctx: Context, instance: Instance, target: Node, options: MigrationOptions
) -> MigrationPlan:
    """Check everything and decide how the instance gets to the target.

    :raises errors.OpPrereqError: it cannot go there, or not now.
    """
    failover = options.failover
    action = "fail over" if failover else "migrate"
    config = ctx.config
    prereq.require_not_forthcoming(instance, action)
    require_mirrored(ctx.config, instance, action)
    prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), action)
    source = config.node(instance.primary_node)
    if target.uuid == source.uuid:
        raise errors.OpPrereqError(
            f"instance {instance.name} is already on node {target.name}", errors.ECODE_STATE
        )
    prereq.require_target(ctx.config, target, instance.hypervisor)
    filled = config.filled(policy.in_group_of(config, instance, target))
    if target.group != source.group:
        disk_work.require_disks_allowed(config, instance, target)
    running, facts, any_port = False, None, False
    if not failover:
        failover, running, facts, any_port = _may_migrate(ctx, instance, source, target, options)
    if failover:
        # The failover stops it on its primary node only, before it starts on the other one.
        info = location.require_failover(ctx, instance, force=options.ignore_consistency)
        running = prereq.is_running(info)
    facts = require_policy(ctx, filled, target, options.override, facts=facts)
    balloon_mib = None
    if instance.admin_state == prereq.ADMIN_UP:
        free_mib = prereq.require_can_run(
            ctx.config, ctx.rpc, filled, target, facts, restart=failover and running
        )
        if not failover:
            balloon_mib = _needed_balloon(
                ctx.config, ctx.rpc, instance, free_mib, options.allow_runtime_changes, target
            )
    reach.require(ctx, instance, target)
    return MigrationPlan(
        instance, source, target, failover, options.live, running, balloon_mib, any_port
    )


class _Way(NamedTuple):
    """How an instance gets to its target.

    :ivar running: its guest runs now.
    :ivar facts: what the hypervisor of the target has reported; None if it was not asked.
    :ivar any_port: both nodes can agree on a port.
    """

    failover: bool
    running: bool
    facts: dict[str, Any] | None = None
    any_port: bool = False


def _may_migrate(
    ctx: Context,
    instance: Instance,
    source: Node,
    target: Node,
    options: MigrationOptions,
) -> _Way:
    """Decide whether the guest can be sent while it runs."""
    allow_failover = options.allow_failover
    if source.offline:
        problem = f"its node {source.name} is offline"
        return _Way(_failover_instead(ctx.log, instance, problem, allow_failover), running=False)
    info = location.require_only_on_primary(ctx, instance)
    running = prereq.is_running(info)
    halt = halts.of_facts(info)
    if halt is not None and halt.kind == hv.HALT_PAUSED:
        raise errors.OpPrereqError(
            f"cannot migrate instance {instance.name}: its guest does not run, and would run"
            f" afterwards: {halt.text()}. {halt.remedy(instance.name)}",
            errors.ECODE_STATE,
        )
    if ctx.config.filled(instance).beparams["always_failover"]:
        ctx.log.info(
            f"instance {instance.name} is failed over, not migrated, because always_failover is set"
        )
        return _Way(failover=True, running=running)
    if not running:
        return _Way(
            _failover_instead(ctx.log, instance, "it does not run", allow_failover), running=False
        )
    if halt is not None and halt.kind == hv.HALT_ENDED:
        problem = f"its guest cannot run on: {halt.text()}"
        return _Way(_failover_instead(ctx.log, instance, problem, allow_failover), running=True)
    if not hypervisors.of(instance.hypervisor).can_migrate:
        problem = f"hypervisor {instance.hypervisor} cannot migrate"
        return _Way(_failover_instead(ctx.log, instance, problem, allow_failover), running=True)
    answer = ctx.rpc.call(INSTANCE_MIGRATABLE, source.uuid, instance=instance)
    if isinstance(answer.failure, errors.NodeCallFailed):
        problem = answer.failure.message
        return _Way(_failover_instead(ctx.log, instance, problem, allow_failover), running=True)
    answer.payload()
    facts = prereq.facts_of_nodes(
        ctx.rpc,
        [source.uuid, target.uuid],
        instance.hypervisor,
        ctx.config.filled(instance).hvparams,
    )
    before, after = facts[source.uuid], facts[target.uuid]
    if before.get(hv.FACT_MIGRATION_PROTOCOL) != after.get(hv.FACT_MIGRATION_PROTOCOL):
        problem = (
            f"node {source.name} sends guests in another way than node {target.name} receives them,"
            " because they have different releases. Install the same release on both nodes"
        )
        return _Way(_failover_instead(ctx.log, instance, problem, allow_failover), running=True)
    _compare_versions(ctx, instance, (source, before), (target, after), options.ignore_versions)
    any_port = all(one.get(hv.FACT_MIGRATION_ANY_PORT) is True for one in (before, after))
    return _Way(failover=False, running=True, facts=after, any_port=any_port)


def _failover_instead(log: JobLog, instance: Instance, problem: str, allow_failover: bool) -> bool:
    if not allow_failover:
        raise errors.OpPrereqError(
            f"cannot migrate instance {instance.name}: {problem}. Use failover, or allow it with"
            " --allow-failover.",
            errors.ECODE_STATE,
        )
    log.info(f"instance {instance.name} is failed over instead of migrated: {problem}")
    return True


def _compare_versions(
    ctx: Context,
    instance: Instance,
    before: tuple[Node, Mapping[str, Any]],
    after: tuple[Node, Mapping[str, Any]],
    ignore: bool,
) -> None:
    """Check that the target's hypervisor is not older: old ones seldom accept newer guests.

    :param before: the source, and what its hypervisor has reported; `after` is the target.
    """
    (source, old_facts), (target, new_facts) = before, after
    old, new = old_facts.get("hv_version"), new_facts.get("hv_version")
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
    ctx.log.warn(text)


def _dotted(version: list[int]) -> str:
    return ".".join(str(part) for part in version)


def _needed_balloon(
    config: Config, rpc: RpcRunner, instance: Instance, free_mib: int, allowed: bool, target: Node
) -> int | None:
    """Memory (MiB) to which the guest must shrink to fit on the target; None if it fits."""
    current_mib = location.info_on_primary(config, rpc, instance).get("memory", 0)
    if not isinstance(current_mib, int) or current_mib <= free_mib:
        return None
    if not allowed:
        raise errors.OpPrereqError(
            f"instance {instance.name} uses {current_mib} MiB, node {target.name} has {free_mib}"
            " MiB free, and changes of the running instance are not allowed",
            errors.ECODE_NORES,
        )
    return free_mib
