"""Fail a mirrored instance over to a node which has no replica of its disks.

Source: Ganeti design 2.0, *Failover to any node*. That text names the nodes as follows: P1 and S1
are the present primary and secondary node, P2 is the node which the user names. One of P1 and S1
stays as the partner of P2 (it is S2): the one which the user names; otherwise S1 as long as its
replica is good, else P1. In this order:

1. S2 is known to have a good replica, and P2 has free space; until here nothing is changed;
2. empty volumes for a replica are made on P2;
3. the instance is stopped, and its disks are deactivated on P1;
4. in one step the configuration says that the instance is on P2, mirrored to S2;
5. P2 and S2 connect; as soon as P2 is being synchronised from S2, the instance starts there. DRBD
   reads over the network what P2 does not have yet. If the user wants to wait, the instance starts
   only when the replicas are in sync: a broken network then causes no errors in the guest;
6. when the replicas are in sync, the replica on the node which was left is destroyed.

While P2 is being synchronised, the instance depends on S2 and on the network between the two.
Without ``--ignore-consistency`` nothing begins before S2 is known to have all data. Volumes which
an interruption leaves are in the configuration with a mark, as after a replacement of disks. They
are removed with the next replacement, or with the instance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import (
    capacity,
    convert,
    mirror,
    snapshots,
    specs,
    suspended_io,
    sync,
)
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.guest import power
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.policy.instance import Override
from ganeti.cmdlib.ops.policy.ratios import require_policy
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.wire.calls import (
    BLOCKDEV_CLOSE,
    DRBD_ATTACH_NET,
    DRBD_DISCONNECT_NET,
    DRBD_WAIT_SYNC,
)

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Node


@dataclass(frozen=True, slots=True)
class FailoverToAnyPlan:
    """The nodes of a failover to any node.

    :ivar source: P1, the present primary node.
    :ivar target: P2, the node to which the instance goes.
    :ivar partner: S2, the node whose good replica stays.
    :ivar left: the node which loses its replica.
    :ivar named: the user has named the partner, so that no other node takes its place.
    :ivar wait_for_sync: the instance starts only when the replicas are in sync.
    :ivar good: the partner is known to have all confirmed writes; False when a loss was accepted.
    """

    instance: Instance
    source: Node
    target: Node
    partner: Node
    left: Node
    named: bool = False
    wait_for_sync: bool = False
    good: bool = True

    def env(self) -> dict[str, object]:
        """Hook variables: the names of the old and the new nodes."""
        other = self.left if self.partner.uuid == self.source.uuid else self.partner
        return {
            "OLD_PRIMARY": self.source.name,
            "NEW_PRIMARY": self.target.name,
            "OLD_SECONDARY": other.name,
            "NEW_SECONDARY": self.partner.name,
        }

    def steps(self, _config: Config) -> list[str]:
        """Return the steps of :class:`FailoverToAny`, for a dry run."""
        source, target, partner = self.source.name, self.target.name, self.partner.name
        stop = [] if self.source.offline else [f"stop instance {self.instance.name} on {source}"]
        wanted = self.instance.admin_state == prereq.ADMIN_UP
        start = [f"start it on {target}"] if wanted else []
        wait = ["wait until the replicas are in sync"]
        return [
            f"make an empty replica of its disks on {target}",
            *stop,
            f"make {target} its primary node, mirrored to {partner}",
            f"synchronise {target} from {partner}",
            *(wait + start if self.wait_for_sync else start + wait),
            f"destroy the old replica of its disks on {self.left.name}",
        ]


def applies(config: Config, instance: Instance, target: Node) -> bool:
    """Return True if the instance's disks are mirrored, and the target has no replica of them."""
    mirrored = config.disk_template(instance) in INT_MIRRORED
    return mirrored and target.uuid not in config.instance_nodes(instance)


def plan(
    ctx: Context,
    instance: Instance,
    target: Node,
    override: Override,
    *,
    ignore_consistency: bool = False,
    partner: Node | None = None,
    wait_for_sync: bool = False,
) -> FailoverToAnyPlan:
    """Check everything and decide which of the present nodes stays.

    :param partner: the present node which the user wants to stay.
    :param wait_for_sync: start the instance only when the replicas are in sync.
    :raises errors.OpPrereqError: it cannot go there, or neither node can stay.
    """
    config = ctx.config
    prereq.require_not_forthcoming(instance, "fail over")
    prereq.require_admin_state(instance, (prereq.ADMIN_UP, prereq.ADMIN_DOWN), "fail over")
    prereq.require_target(ctx.config, target, instance.hypervisor)
    source = config.node(instance.primary_node)
    (secondary_uuid,) = config.secondary_nodes(instance)
    secondary = config.node(secondary_uuid)
    if target.group != source.group:
        raise errors.OpPrereqError(
            f"node {target.name} is not in the group of instance {instance.name}",
            errors.ECODE_INVAL,
        )
    running = prereq.is_running(location.require_failover(ctx, instance, force=ignore_consistency))
    filled = config.filled(instance)
    facts = require_policy(ctx, filled, target, override)
    disks = mirror.mirrored_disks(config, instance)
    capacity.require_free_space(
        config, ctx.rpc, [target.uuid], capacity.volumes_mib(disks), new_minors=len(disks)
    )
    if instance.admin_state == prereq.ADMIN_UP:
        prereq.require_can_run(config, ctx.rpc, filled, target, facts, restart=running)
    stays, left = _partner(instance, source, secondary, partner)
    _require_no_snapshots(ctx, instance, left)
    return FailoverToAnyPlan(
        instance,
        source,
        target,
        stays,
        left,
        named=partner is not None,
        wait_for_sync=wait_for_sync,
    )


def _partner(
    instance: Instance, source: Node, secondary: Node, named: Node | None
) -> tuple[Node, Node]:
    """Return the node which stays, and the node which is left.

    :param named: the node which stays because the user has named it.
    :raises errors.OpPrereqError: no node can stay, or not the named one.
    """
    if source.offline and secondary.offline:
        raise errors.OpPrereqError(
            f"both nodes of instance {instance.name} ({source.name}, {secondary.name}) are"
            " offline, no other node has its data",
            errors.ECODE_STATE,
        )
    if named is None:
        return (source, secondary) if secondary.offline else (secondary, source)
    if named.uuid not in (source.uuid, secondary.uuid):
        raise errors.OpPrereqError(
            f"node {named.name} has no replica of the disks of instance {instance.name}. Name"
            f" {source.name} or {secondary.name}.",
            errors.ECODE_INVAL,
        )
    prereq.require_online(named)
    return named, secondary if named.uuid == source.uuid else source


def _require_no_snapshots(ctx: Context, instance: Instance, left: Node) -> None:
    snapshots.require_none(
        ctx,
        instance,
        f"take the replicas of the disks from {left.name} of",
        nodes=[left.uuid],
        may_be_dead=True,
    )


class FailoverToAny:
    """Carries out one plan; :meth:`run` is called once.

    :param ignore_consistency: accept the loss of writes which the partner may have missed.
    """

    def __init__(
        self,
        ctx: Context,
        plan: FailoverToAnyPlan,
        *,
        shutdown_timeout_s: int,
        reason: Sequence[Any] | None,
        ignore_consistency: bool,
    ) -> None:
        self._ctx = ctx
        self._config = ctx.config
        self._rpc = ctx.rpc
        self._plan = plan
        self._shutdown_timeout_s = shutdown_timeout_s
        self._reason = reason
        self._ignore_consistency = ignore_consistency

    def run(self) -> None:
        """Fail the instance over, and wait until its replicas are in sync.

        :raises errors.OpExecError: the text says to which node the instance belongs now.
        """
        ctx, config = self._ctx, self._config
        instance, target = self._plan.instance, self._plan.target
        was_active = instance.disks_active
        self._let_write_alone()
        try:
            self._check_partner()
            # Nothing is destroyed before the replica which stays is known to be good.
            convert.clear(ctx, instance)
            ctx.log.feedback(
                f"Failing instance {instance.name} over from {self._plan.source.name} to"
                f" {target.name}, mirrored to {self._plan.partner.name}"
            )
            old = mirror.mirrored_disks(config, instance)
            new = self._make_replicas(old)
        except errors.GenericError:
            if not was_active:
                disk_work.shutdown_disks(config, self._rpc, instance)
            raise
        self._stop()
        self._deactivate_old_disks(old)
        with config.transaction() as change:
            convert.exchange_parts(
                config, change, instance, old, new, made_on=target, left=self._plan.left
            )
            change.instances.set_primary(instance.uuid, target.uuid)
        moved = config.instance(instance.uuid)
        disks = mirror.mirrored_disks(config, moved)
        self._connect(moved, disks)
        if self._plan.wait_for_sync:
            self._wait_before_start(moved, disks)
        if instance.admin_state == prereq.ADMIN_UP:
            self._start(moved)
        if not self._plan.wait_for_sync:
            sync.require_in_sync(ctx, moved, disks)
        self._remove_old_replicas(moved)
        if not was_active and instance.admin_state != prereq.ADMIN_UP:
            disk_work.shutdown_disks(config, self._rpc, moved)

    # -- the replica which stays -----------------------------------------------

    def _let_write_alone(self) -> None:
        """Let the disks be written without their peers, before the replicas are separated."""
        config, instance, source = self._config, self._plan.instance, self._plan.source
        disks = mirror.mirrored_disks(config, instance)
        if source.offline:
            pairs = [(disk, instance) for disk in disks]
            suspended_io.conclude(config, self._rpc, pairs, source.uuid)
        else:
            suspended_io.unprotect(config, self._rpc, instance, disks)

    def _check_partner(self) -> None:
        """Check that the partner has all writes which were ever confirmed.

        Unless the user has named it, the primary node takes its place when the replica of the
        secondary one is broken.

        :raises errors.OpExecError: neither has them, or it is not known.
        """
        plan = self._plan
        if plan.left.offline:
            if plan.partner.uuid == plan.source.uuid and plan.instance.disks_active:
                mirror.require_good_primary(self._ctx, plan.instance)
            else:
                good = mirror.compare_inactive(
                    self._ctx,
                    plan.instance,
                    plan.partner,
                    alone=True,
                    ignore=self._ignore_consistency,
                )
                self._plan = dataclasses.replace(plan, good=good)
        elif plan.named and plan.partner.uuid == plan.source.uuid:
            self._require_primary()
        elif plan.named:
            # The other node answers, so no loss needs to be accepted: that node can stay.
            self._compare_secondary(ignore=False)
        else:
            self._keep_secondary_or_primary()

    def _compare_secondary(self, *, ignore: bool) -> bool:
        """Check the replica of the secondary node, which is the partner; both nodes answer."""
        plan = self._plan
        check = (
            mirror.ensure_good_replica if plan.instance.disks_active else mirror.compare_inactive
        )
        return check(self._ctx, plan.instance, plan.partner, alone=False, ignore=ignore)

    def _keep_secondary_or_primary(self) -> None:
        ctx, plan = self._ctx, self._plan
        try:
            self._compare_secondary(ignore=False)
        except errors.OpExecError as err:
            refusal = err
        else:
            return
        try:
            if not plan.instance.disks_active:
                disk_work.assemble_disks(ctx, plan.instance)
            mirror.require_good_primary(ctx, plan.instance)
        except errors.OpExecError as err:
            if not self._ignore_consistency:
                raise errors.OpExecError(f"{refusal} {err}") from err
            good = self._compare_secondary(ignore=True)
            self._plan = dataclasses.replace(plan, good=good)
            return
        _require_no_snapshots(ctx, plan.instance, plan.partner)
        ctx.log.warn(f"{refusal} Node {plan.source.name} keeps its replica instead")
        self._plan = dataclasses.replace(plan, partner=plan.source, left=plan.partner)

    def _require_primary(self) -> None:
        """Check the replicas on the primary node; if that fails, activate the disks and check
        again.

        An interrupted operation may have left a replica inactive or not connected.

        :raises errors.OpExecError: a replica is not complete, or may have missed writes.
        """
        ctx, instance = self._ctx, self._plan.instance
        if instance.disks_active:
            try:
                mirror.require_good_primary(ctx, instance)
            except (errors.OpExecError, errors.RpcError) as err:
                ctx.log.info(f"{err} Activating the disks")
            else:
                return
        disk_work.assemble_disks(ctx, instance)
        mirror.require_good_primary(ctx, instance)

    # -- the replica which moves -----------------------------------------------

    def _make_replicas(self, old: tuple[Disk, ...]) -> tuple[Disk, ...]:
        """Make volumes and metadata on the target; its DRBD devices are active, and not
        connected.
        """
        ctx, instance, target = self._ctx, self._plan.instance, self._plan.target
        minors = self._config.allocate_minors([target.uuid] * len(old))
        nodes = (target.uuid, self._plan.partner.uuid)
        new = tuple(
            specs.with_other_replica(disk, nodes, target.uuid, minor)
            for disk, minor in zip(old, minors, strict=True)
        )
        parts = [child for disk in new for child in disk.children]
        convert.add_parts(self._config, self._rpc, instance, parts, target.uuid)
        for disk in new:
            ctx.log.feedback(f"* making {disk.iv_name} on node {target.name}")
        try:
            disk_work.create_devices(ctx, instance, {target.uuid: new})
        except errors.OpExecError as err:
            convert.clear(ctx, instance)
            raise errors.OpExecError(f"{err}; nothing was changed") from err
        return new

    def _deactivate_old_disks(self, old: tuple[Disk, ...]) -> None:
        """Deactivate the disks on the node which is left; on the partner they stay active,
        read-only and not connected.
        """
        instance, partner, left = self._plan.instance, self._plan.partner, self._plan.left
        if not left.offline:
            disk_work.try_to_shut_down(self._ctx, instance, old, left)
        for call, args in (
            (BLOCKDEV_CLOSE, {"instance_name": instance.name}),
            (DRBD_DISCONNECT_NET, {}),
        ):
            answer = self._rpc.call(call, partner.uuid, disks=(old, instance), **args)
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"the replicas of the disks of instance {instance.name} cannot be disconnected"
                    f" on node {partner.name}: {why(answer.failure)}. The instance is stopped and"
                    f" still belongs to node {self._plan.source.name}."
                ) from answer.failure

    def _connect(self, moved: Instance, disks: tuple[Disk, ...]) -> None:
        """Let target and partner connect; the target is being synchronised afterwards."""
        target, partner = self._plan.target, self._plan.partner
        nodes = [target.uuid, partner.uuid]
        which = (disks, moved)
        for answers in (
            self._rpc.call_many(DRBD_ATTACH_NET, nodes, disks=which, multimaster=False),
            self._rpc.call_many(DRBD_WAIT_SYNC, nodes, disks=which),
        ):
            for answer in answers.values():
                if answer.failure is not None:
                    raise errors.OpExecError(
                        f"the replicas of the disks of instance {moved.name} do not connect on node"
                        f" {answer.node_name}: {why(answer.failure)}. The instance is stopped and"
                        f" belongs to node {target.name} now; its data are on node"
                        f" {partner.name}. Use 'gnt-instance activate-disks {moved.name}' when"
                        " the cause is gone."
                    ) from answer.failure

    def _remove_old_replicas(self, moved: Instance) -> None:
        ctx, left = self._ctx, self._plan.left
        if left.offline:
            ctx.log.warn(
                f"node {left.name} is offline and keeps the old replicas of the disks of"
                f" instance {moved.name}",
                hint="The next replacement of disks removes them, after the node came back.",
            )
            return
        if not self._plan.good:
            ctx.log.warn(
                f"the old replicas of the disks of instance {moved.name} stay on node"
                f" {left.name}, because they may have writes which are missing now",
                hint="The next replacement of disks, or the removal of the instance, removes them.",
            )
            return
        try:
            convert.clear(ctx, moved)
        except errors.GenericError as err:
            ctx.log.warn(
                f"the old replicas of the disks of instance {moved.name} were not removed: {err}",
                hint="The next replacement of disks, or the removal of the instance, tries again.",
            )

    # -- the guest -------------------------------------------------------------

    def _stop(self) -> None:
        """Stop the instance on the source, unless that is offline.

        :raises errors.OpExecError: it does not stop, or the partner has missed writes meanwhile.
        """
        ctx, plan = self._ctx, self._plan
        instance, source = plan.instance, plan.source
        if source.offline:
            ctx.log.warn(f"node {source.name} is offline: not stopping the instance there")
            return
        ctx.log.feedback(f"* stopping it on {source.name}")
        power.stop(self._config, self._rpc, instance, self._shutdown_timeout_s, self._reason)
        if plan.partner.uuid == source.uuid:
            return
        # The mirror may have been interrupted meanwhile.
        still_good = mirror.require_good_replica(
            ctx,
            instance,
            plan.partner,
            alone=False,
            ignore=self._ignore_consistency,
            changed=(
                f"The instance was stopped, and belongs to node {source.name} as before: start it"
                f" there with 'gnt-instance startup {instance.name}'. Empty volumes remain on node"
                f" {plan.target.name} until the command is repeated."
            ),
        )
        self._plan = dataclasses.replace(plan, good=plan.good and still_good)

    def _wait_before_start(self, moved: Instance, disks: tuple[Disk, ...]) -> None:
        """Wait until the replicas are in sync while the instance is stopped.

        :raises errors.OpExecError: they are not; the text says how to continue.
        """
        target, partner = self._plan.target, self._plan.partner
        self._ctx.log.feedback(f"* waiting until the replica on {target.name} is in sync")
        try:
            sync.require_in_sync(self._ctx, moved, disks)
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err} The instance is stopped and belongs to node {target.name} now; its data"
                f" are on node {partner.name}. Start it with 'gnt-instance startup"
                f" {moved.name}' when the cause is gone."
            ) from err

    def _start(self, moved: Instance) -> None:
        target = self._plan.target
        self._ctx.log.feedback(f"* starting it on {target.name}")
        try:
            power.start(self._ctx, moved, self._reason)
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err}. The instance belongs to node {target.name} now, marked to run. Start it"
                f" with 'gnt-instance startup {moved.name}' when the cause is gone."
            ) from err
