"""Repair after an interrupted migration: ``gnt-instance migrate --cleanup``.

:func:`clean_up` asks the nodes which of them have the instance, and how far a migration is which
they send or receive. Then it makes both sides of the migration and the configuration agree.

- A transfer which goes on is ended by its source, where the guest stays; when it was sent
  meanwhile, the target has it. If the target ended first, the guest might be sent to nobody.
- A node which has sent the whole guest never runs it on. The guest is where it was received; when
  no node has it, the error says so, and the user starts the instance again.
- A node which has not sent it, or not as a whole, keeps it; the other one ends first.
- When the connection broke after the target had got the guest (post-copy), the transfer is resumed.
- When a node does not answer, or two nodes have a guest and no report explains why, nothing is
  changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import mirror
from ganeti.cmdlib.ops.disks.devices import assemble_disks, shutdown_disks
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.migration import live
from ganeti.cmdlib.ops.migration.plan import require_mirrored
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.wire.calls import (
    ACCEPT_INSTANCE,
    ALL_INSTANCES_INFO,
    INSTANCE_FINALIZE_MIGRATION_DST,
    INSTANCE_FINALIZE_MIGRATION_SRC,
    INSTANCE_GET_MIGRATION_STATUS,
    INSTANCE_MIGRATE,
    INSTANCE_SHUTDOWN,
)

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, MigrationStatus, Node
    from ganeti.rpc import RpcRunner


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The nodes on which an interrupted migration may have left the instance."""

    instance: Instance
    source: Node
    nodes: tuple[Node, ...]

    def steps(self, _config: Config) -> list[str]:
        """Return the steps of :func:`clean_up`, for a dry run."""
        names = ", ".join(node.name for node in self.nodes)
        return [
            f"find out on which of {names} instance {self.instance.name} runs",
            "make that node its primary node",
            "remove what is left on the others",
        ]


def plan_cleanup(config: Config, rpc: RpcRunner, instance: Instance) -> CleanupPlan:
    """List the nodes which may run the instance: its group's, or the two of a mirrored one.

    :raises errors.OpPrereqError: the disks exist on the primary node only.
    """
    require_mirrored(config, instance, "clean up after a migration of")
    location.require_not_on_offline_node(config, rpc, instance)
    source = config.node(instance.primary_node)
    nodes = tuple(
        node
        for node in _possible_nodes(config, instance, source)
        if node.vm_capable and not node.offline
    )
    return CleanupPlan(instance, source, nodes)


def _possible_nodes(config: Config, instance: Instance, source: Node) -> list[Node]:
    if config.disk_template(instance) in INT_MIRRORED:
        return [config.node(uuid) for uuid in config.instance_nodes(instance)]
    return [node for node in config.nodes() if node.group == source.group]


@dataclass(frozen=True, slots=True)
class _Found:
    """What the nodes have of an instance.

    :ivar here: nodes with a guest which was not sent as a whole, with what they report about a
        migration.
    :ivar sent: nodes which have sent the guest, likewise.
    :ivar waiting: nodes which wait for a guest.
    """

    here: Mapping[str, MigrationStatus]
    sent: Mapping[str, MigrationStatus]
    waiting: Sequence[str]

    def known(self) -> set[str]:
        """Return the nodes which have anything of the guest."""
        return {*self.here, *self.sent, *self.waiting}

    def sender(self) -> str | None:
        """Return the node which sends the guest now; only the sender knows its memory size."""
        for uuid, report in self.here.items():
            if report.status == live.ACTIVE and report.total_ram:
                return uuid
        return None

    def may_keep(self, uuid: str, source: Node) -> bool:
        """Return True if a node with the guest keeps it although other nodes have it, too.

        It is the source, and the others have received a guest which nobody let run there: the
        configuration would name them.
        """
        others = [report for other, report in self.here.items() if other != uuid]
        return not others or (uuid == source.uuid and all(map(_has_arrived, others)))


def clean_up(ctx: Context, plan: CleanupPlan, sleep: Callable[[float], None] = time.sleep) -> None:
    """Find out which node has the instance, and make both sides and the configuration agree.

    :raises errors.OpExecError: no node has it, or several have, or a node does not answer.
    """
    instance, source = plan.instance, plan.source
    nodes = {node.uuid: node for node in plan.nodes}
    ctx.log.feedback(f"Finding out where instance {instance.name} runs")
    found, stays = _settled(ctx, plan, sleep)
    chosen = nodes[stays or _node_that_keeps(ctx, plan, found)]
    arrived = chosen.uuid in found.waiting or _has_arrived(found.here[chosen.uuid])
    # No other node may go on with the instance. Those which have sent it cannot.
    for uuid in found.waiting:
        if uuid != chosen.uuid:
            live.abort_on_target(ctx.rpc, instance, nodes[uuid], None)
    for uuid in found.here:
        if uuid != chosen.uuid:
            ctx.rpc.call(
                INSTANCE_SHUTDOWN, uuid, instance=instance, timeout_s=0, reason=[]
            ).payload()
    if chosen.uuid == source.uuid:
        ctx.log.feedback(f"* it runs on its primary node {source.name}")
    else:
        ctx.log.feedback(f"* it runs on {chosen.name}, which becomes its primary node")
        live.record_target(ctx.config, instance, chosen)
    if chosen.uuid in found.here and found.here[chosen.uuid].status == live.POSTCOPY:
        _complete_postcopy(ctx, instance, chosen, [nodes[uuid] for uuid in found.sent], sleep)
    known = found.known() | {source.uuid}
    for uuid in dict.fromkeys((*found.sent, source.uuid)):
        if uuid in nodes and uuid != chosen.uuid:
            _forget_sent(ctx.rpc, instance, uuid)
    _forget_transfers(ctx.rpc, instance, [uuid for uuid in nodes if uuid not in known])
    if arrived or chosen.uuid != source.uuid:
        _let_run(ctx.config, ctx.rpc, instance, chosen)
    elif chosen.uuid != stays:
        live.continue_on_source(ctx.rpc, instance, source, True)
    others = [node for node in plan.nodes if node.uuid != chosen.uuid]
    if ctx.config.disk_template(instance) in INT_MIRRORED:
        # This activates a replica which is not active; then the two connect as single-primary.
        assemble_disks(ctx, ctx.config.instance(instance.uuid), ignore_secondaries=True)
    for node in others:
        if ctx.config.disk_template(instance) in INT_MIRRORED:
            mirror.make_single_primary(ctx, ctx.config.instance(instance.uuid), node)
        else:
            shutdown_disks(ctx.config, ctx.rpc, instance, node.uuid)
    ctx.log.feedback("* done")


def _forget_sent(rpc: RpcRunner, instance: Instance, node_uuid: str) -> None:
    """End a guest which was sent from a node."""
    rpc.call(
        INSTANCE_FINALIZE_MIGRATION_SRC, node_uuid, instance=instance, success=True, live=True
    ).payload()


def _forget_transfers(rpc: RpcRunner, instance: Instance, node_uuids: Sequence[str]) -> None:
    """Remove what nodes without a guest keep of a transfer: the guest ended when all was sent."""
    answers = rpc.call_many(INSTANCE_GET_MIGRATION_STATUS, node_uuids, instance=instance)
    for uuid, answer in answers.items():
        # Most hypervisors know nothing of a guest which a node does not have: that is a failure.
        if answer.failure is None and _has_sent(answer.data):
            _forget_sent(rpc, instance, uuid)


def _let_run(config: Config, rpc: RpcRunner, instance: Instance, node: Node) -> None:
    """Let a guest which has arrived on a node run."""
    rpc.call(
        INSTANCE_FINALIZE_MIGRATION_DST,
        node.uuid,
        instance=config.instance(instance.uuid),
        info=None,
        success=True,
    ).payload()


def _settled(
    ctx: Context, plan: CleanupPlan, sleep: Callable[[float], None]
) -> tuple[_Found, str | None]:
    """Return what the nodes have of the instance when no transfer goes on any more.

    :returns: also the UUID of the node which has ended its transfer, and runs the guest on.
    :raises errors.OpExecError: a node does not answer, or the transfer does not end.
    """
    for _attempt in range(live.UNANSWERED_POLLS):
        found = _find(ctx.config, ctx.rpc, plan, sleep)
        uuid = found.sender()
        if uuid is None or not found.may_keep(uuid, plan.source):
            return found, None
        sender = ctx.config.node(uuid)
        ctx.log.feedback(f"* ending the transfer of its memory from {sender.name}")
        try:
            live.continue_on_source(ctx.rpc, plan.instance, sender, True)
        except errors.NodeCallFailed as err:
            # It was sent meanwhile, or the guest has ended: the node reports that from now on.
            problem = why(err)
            sleep(live.POLL_S)
            continue
        found = _find(ctx.config, ctx.rpc, plan, sleep)
        stays = uuid in found.here and found.may_keep(uuid, plan.source)
        return found, uuid if stays else None
    raise errors.OpExecError(
        f"the migration of instance {plan.instance.name} from node {sender.name} does not end:"
        f" {problem}"
    )


def _find(
    config: Config, rpc: RpcRunner, plan: CleanupPlan, sleep: Callable[[float], None]
) -> _Found:
    """Ask all nodes what they have of the instance.

    :raises errors.OpExecError: a node does not answer.
    """
    for _attempt in range(live.UNANSWERED_POLLS):
        running, waiting = _running_and_waiting(config, rpc, plan)
        reports = {node.uuid: _report(rpc, plan.instance, node) for node in running}
        sent = {uuid: report for uuid, report in reports.items() if _has_sent(report)}
        here = {uuid: report for uuid, report in reports.items() if uuid not in sent}
        found = _Found(here, sent, [node.uuid for node in waiting])
        if len(here) != 2 or all(report.status != live.ACTIVE for report in here.values()):
            break
        # Both sides of a transfer have the guest for a moment, until the source knows how it ended.
        sleep(live.POLL_S)
    return found


def _node_that_keeps(ctx: Context, plan: CleanupPlan, found: _Found) -> str:
    """Return the UUID of the node which keeps the instance.

    :raises errors.OpExecError: it is nowhere, or on several nodes without a known reason.
    """
    instance, source = plan.instance, plan.source
    names = {node.uuid: node.name for node in plan.nodes}
    if len(found.here) == 1:
        (chosen,) = found.here
        return chosen
    if not found.here and len(found.sent) == len(found.waiting) == 1:
        if next(iter(found.sent.values())).status == live.COMPLETED:
            # It is about to have read all of what was sent.
            return found.waiting[0]
    if not found.here:
        for uuid in found.waiting:
            if uuid != source.uuid:
                live.abort_on_target(ctx.rpc, instance, ctx.config.node(uuid), None)
        if len(found.sent) == 1 and source.uuid not in found.sent:
            # The configuration names the other node, where the user can start it.
            _forget_sent(ctx.rpc, instance, next(iter(found.sent)))
        if found.sent:
            raise errors.OpExecError(
                f"instance {instance.name} was sent from node"
                f" {', '.join(names[uuid] for uuid in found.sent)}, where it cannot run on, and no"
                f" node has received it. Use 'gnt-instance shutdown {instance.name}', then start"
                " it."
            )
        raise errors.OpExecError(
            f"instance {instance.name} runs nowhere. Use 'gnt-instance shutdown {instance.name}' to"
            " release its disks, then start it."
        )
    if len(found.here) == 2 and source.uuid in found.here:
        sender = found.here[source.uuid]
        (other,) = set(found.here) - {source.uuid}
        if sender.status in live.FAILED and found.may_keep(source.uuid, source):
            # The transfer failed when all was sent.
            ctx.log.feedback(f"* a transfer to {names[other]} failed")
            return source.uuid
    raise errors.OpExecError(
        f"instance {instance.name} runs on several nodes:"
        f" {', '.join(names[uuid] for uuid in found.here)}. Stop all but one by hand."
    )


def _complete_postcopy(
    ctx: Context,
    instance: Instance,
    target: Node,
    sources: Sequence[Node],
    sleep: Callable[[float], None],
) -> None:
    """Complete the transfer of a guest which has arrived without all of its memory.

    :raises errors.OpExecError: the rest of its memory is lost, or cannot be sent now.
    """
    if not sources:
        raise errors.OpExecError(
            f"instance {instance.name} is on node {target.name}, but a part of its memory was lost"
            f" with the guest on the other node. Use 'gnt-instance shutdown --timeout=0"
            f" {instance.name}', then start it."
        )
    (source,) = sources
    paused = [
        _report(ctx.rpc, instance, node).postcopy_status == live.POSTCOPY_PAUSED
        for node in (target, source)
    ]
    if any(paused):
        ctx.log.feedback(f"* resuming the transfer from {source.name} to {target.name}")
        address = {"instance": instance, "target": target.secondary_ip}
        port = None
        if paused[0]:
            port = ctx.rpc.call(
                ACCEPT_INSTANCE, target.uuid, info=None, any_port=True, **address
            ).payload()
        if paused[1]:
            ctx.rpc.call(
                INSTANCE_MIGRATE,
                source.uuid,
                cluster_name=ctx.config.cluster_name,
                live=True,
                port=port,
                **address,
            ).payload()
    try:
        live.follow(ctx.rpc, ctx.log, instance, source, sleep)
    except (live.CannotFollow, live.NotSent) as err:
        raise errors.OpExecError(
            f"instance {instance.name} is on node {target.name}, but a part of its memory is still"
            f" on node {source.name}: {err}. Repeat the command when the nodes reach each other."
        ) from err


def _running_and_waiting(
    config: Config, rpc: RpcRunner, plan: CleanupPlan
) -> tuple[list[Node], list[Node]]:
    """Return the nodes which have the guest, and those with an incoming migration of it."""
    hypervisor = plan.instance.hypervisor
    hvparams = config.filled(plan.instance).hvparams
    answers = rpc.call_many(
        ALL_INSTANCES_INFO,
        [node.uuid for node in plan.nodes],
        hypervisors=[hypervisor],
        hvparams={hypervisor: hvparams},
        apart=False,
    )
    running: list[Node] = []
    waiting: list[Node] = []
    for node in plan.nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {node.name} did not report whether it runs instance {plan.instance.name}:"
                f" {why(answer.failure)}. If the machine is off, mark it offline first."
            ) from answer.failure
        info = answer.data.get(plan.instance.name)
        if info:
            (running if prereq.is_running(info) else waiting).append(node)
    return running, waiting


def _report(rpc: RpcRunner, instance: Instance, node: Node) -> MigrationStatus:
    """Return what a node reports about the migration of a guest.

    :raises errors.OpExecError: it does not.
    """
    answer = rpc.call(INSTANCE_GET_MIGRATION_STATUS, node.uuid, instance=instance)
    if answer.failure is not None:
        raise errors.OpExecError(
            f"node {node.name} has instance {instance.name}, but did not report about its"
            f" migration: {why(answer.failure)}. Nothing was changed. When its hypervisor does not"
            " answer any more, end the guest on that node by hand, then repeat the command."
        ) from answer.failure
    status: MigrationStatus = answer.data
    return status


def _has_sent(report: MigrationStatus) -> bool:
    """Return True if a node has sent its guest as a whole.

    Only the sender knows its memory size.
    """
    return report.status in (live.COMPLETED, live.POSTCOPY) and bool(report.total_ram)


def _has_arrived(report: MigrationStatus) -> bool:
    """Return True if a guest came to a node by migration."""
    return report.status in (live.COMPLETED, live.POSTCOPY) and not report.total_ram
