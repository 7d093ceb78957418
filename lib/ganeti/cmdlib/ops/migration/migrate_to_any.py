"""Migrate a mirrored instance to a node which has no replica of its disks.

Source: Ganeti design 2.0, *Failover to any node*: a migration to any node is possible if the
present primary node keeps its replica. In this order:

1. the target gets a new replica instead of the secondary node, as with ``gnt-instance
   replace-disks --new-secondary``; the instance runs, and the old replica on the secondary node is
   destroyed only when the new one is in sync (:mod:`ganeti.cmdlib.ops.disks.replace`);
2. the instance is migrated to the target, which is its secondary node now (:mod:`.live`). The
   former primary node keeps its replica and is the secondary node afterwards.

So both replicas are complete while the guest is sent. When the migration fails after the first
step, the instance runs where it did, and the target is its secondary node; the same command
migrates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, LuContext
from ganeti.cmdlib.ops.disks import mirror, replace
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.migration import failover, live
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.cmdlib.ops.policy.instance import Override

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.disks.replace import ReplacePlan
    from ganeti.config import Config
    from ganeti.objects import Node


@dataclass(frozen=True, slots=True)
class MigrateToAnyPlan:
    """The two steps of a migration to any node.

    :ivar replacement: the target becomes the secondary node.
    :ivar migration: the migration to it, as it is possible now.
    :ivar left: the secondary node, which loses its replica.
    """

    replacement: ReplacePlan
    migration: MigrationPlan
    left: Node

    def env(self) -> dict[str, object]:
        """Hook variables: the names of the old and the new nodes."""
        return {
            "OLD_PRIMARY": self.migration.source.name,
            "NEW_PRIMARY": self.migration.target.name,
            "OLD_SECONDARY": self.left.name,
            "NEW_SECONDARY": self.migration.source.name,
        }

    def steps(self, _config: Config) -> list[str]:
        """Return the steps of :func:`carry_out`, for a dry run."""
        source, target = self.migration.source.name, self.migration.target.name
        left, shrink = self.left.name, self.migration.balloon_mib
        return [
            f"make a replica of its disks on {target}",
            f"disconnect {source} from {left} and connect it to {target}",
            "wait until the replicas are in sync",
            f"destroy the old replica of its disks on {left}",
            *([] if shrink is None else [f"shrink it to {shrink} MiB"]),
            f"let both {source} and {target} write to its disks",
            *self.migration.transfer_steps(),
            f"make {target} its primary node, mirrored to {source}",
            f"let only {target} write to its disks",
        ]


def plan(ctx: Context, migration: MigrationPlan, override: Override) -> MigrateToAnyPlan:
    """Check that the target of a possible migration can get a replica of the disks.

    :raises errors.OpPrereqError: it cannot, or not now.
    """
    instance, target = migration.instance, migration.target
    source = migration.source
    if target.group != source.group:
        raise errors.OpPrereqError(
            f"node {target.name} is not in the group of instance {instance.name}",
            errors.ECODE_INVAL,
        )
    location.require_only_on_primary(ctx, instance, certain_to="replace disks of")
    disks = list(enumerate(mirror.mirrored_disks(ctx.config, instance)))
    (secondary_uuid,) = ctx.config.secondary_nodes(instance)
    replacement = replace.plan_new_secondary(ctx, instance, disks, target, override)
    return MigrateToAnyPlan(replacement, migration, ctx.config.node(secondary_uuid))


def carry_out(
    ctx: LuContext,
    chosen: MigrateToAnyPlan,
    plan_again: Callable[[], MigrationPlan],
    *,
    shutdown_timeout_s: int,
    reason: Sequence[Any] | None,
) -> None:
    """Carry out the plan.

    :param plan_again: checks whether the migration is still possible. Copying the disks may have
        taken hours.
    :param reason: the trail of reasons of the opcode.
    :raises errors.OpExecError: the text says which nodes the instance has now.
    """
    source, target = chosen.migration.source, chosen.migration.target
    replace.Replacement(ctx, chosen.replacement, early_release=False).run()
    try:
        migration = plan_again()
    except (errors.OpPrereqError, errors.RpcError) as err:
        raise errors.OpExecError(
            f"{err}. Node {target.name} is the secondary node of instance"
            f" {chosen.migration.instance.name} now, which stays on node {source.name}. Repeat the"
            " command when the cause is gone."
        ) from err
    if migration.failover:
        failover.fail_over(
            ctx,
            migration,
            shutdown_timeout_s=shutdown_timeout_s,
            reason=reason,
            ignore_consistency=False,
        )
    else:
        live.migrate(ctx, migration)
