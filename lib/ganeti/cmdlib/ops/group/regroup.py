"""The base class of the logical units which move instances between node groups with an allocator.

The allocator answers with jobs. The unit checks them, adds the options of the user (early release,
failover instead of migration, one after the other) and submits them. It moves nothing itself, so it
holds its locks shared, and only until the allocator has answered.

Instances are locked before groups, and groups before nodes. So the objects to lock are read from
the configuration before all locks are held; afterwards the unit checks that they are still the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ganeti import allocator, errors
from ganeti.cmdlib.base import LogicalUnit
from ganeti.cmdlib.locks import require_still_same
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.instance import IALLOCATOR_DEFAULT_SHORTCUT
from ganeti.locking import ALL, Level
from ganeti.objects import NodeGroup, fill
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)

if TYPE_CHECKING:
    from ganeti.config import Config

RegroupingOpT = TypeVar("RegroupingOpT", bound=OpGroupEvacuate | OpInstanceChangeGroup)


class RegroupingUnit(LogicalUnit[RegroupingOpT, list[list[OpCode]]]):
    """Locks of the units, and their request to the allocator."""

    def _prepare(self, iallocator: str | None, target_groups: Sequence[str] | None) -> None:
        self.allocator = chosen_allocator(self.config, iallocator)
        self.targets = tuple(
            dict.fromkeys(self.config.expand_group(name).uuid for name in target_groups or ())
        )

    def _instances(self) -> frozenset[str]:
        """Return the UUIDs of the instances to move, in the present configuration."""
        raise errors.ProgrammerError(f"{type(self).__name__} does not say what moves")

    def _groups(self) -> frozenset[str]:
        """Return the UUIDs of the node groups in which these instances are now."""
        data = self.config.snapshot()
        return frozenset(data.nodes[uuid].group for uuid in self._nodes())

    def _nodes(self) -> frozenset[str]:
        return frozenset(
            node
            for uuid in self.guessed
            for node in self.config.instance_nodes(self.config.instance(uuid))
        )

    def _lock(self) -> None:
        self.guessed = self._instances()
        self.need(Level.INSTANCE, self.guessed, shared=True)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODEGROUP:
            wanted = None if not self.targets else self._groups() | set(self.targets)
            self.need(Level.NODEGROUP, ALL if wanted is None else wanted, shared=True)
        elif level is Level.NODE:
            held = self.owned(Level.NODEGROUP)
            self.members = frozenset(
                node.uuid for node in self.config.nodes() if node.group in held
            )
            self.need(Level.NODE, self.members | self._nodes(), shared=True)

    def hook_env(self, plan: list[list[OpCode]]) -> dict[str, object]:
        return {"TARGET_GROUPS": " ".join(self.targets)}

    def _lacking(self, group: NodeGroup) -> list[str]:
        """Hypervisors of the instances which the nodes of a group do not have."""
        needed = {self.config.instance(uuid).hypervisor for uuid in self.guessed}
        return sorted(needed.difference(fill.group_hypervisors(self.config.cluster(), group)))

    def _require_networks(self, targets: Sequence[str]) -> None:
        """Check that each instance has its networks in one of the groups.

        :raises errors.OpPrereqError: one has not; the text names it and what a group lacks.
        """
        groups = [self.config.group(uuid) for uuid in targets]
        for uuid in sorted(self.guessed):
            instance = self.config.instance(uuid)
            problems = [
                policy.unconnected_network(self.config, instance, group) for group in groups
            ]
            if problems and all(problems):
                raise errors.OpPrereqError(f"{'; '.join(problems)}.", errors.ECODE_STATE)

    def _ask(self, what: str) -> tuple[allocator.Moves, list[str]]:
        """Ask the allocator.

        :param what: the instances to move, for messages.
        :returns: its answer, and the names of the groups from which it chose.
        :raises errors.OpPrereqError: the configuration has changed meanwhile, there is no other
            group, or an instance cannot move.
        """
        require_still_same(self.guessed, self._instances(), f"instances of {what}")
        held = self.owned(Level.NODEGROUP)
        require_still_same(
            self.members,
            {n.uuid for n in self.config.nodes() if n.group in held},
            "nodes of the groups concerned",
        )
        now = self._groups()
        targets = self.targets or tuple(
            group.uuid
            for group in self.config.groups()
            if group.uuid in held and group.uuid not in now and not self._lacking(group)
        )
        for uuid in self.targets:
            group = self.config.group(uuid)
            if lacking := self._lacking(group):
                raise errors.OpPrereqError(
                    f"the nodes of group {group.name} have no hypervisor {', '.join(lacking)},"
                    f" which {what} needs",
                    errors.ECODE_STATE,
                )
        self._require_networks(targets)
        if not targets:
            raise errors.OpPrereqError(
                f"there is no other node group with the hypervisor to which {what} could be moved",
                errors.ECODE_NORES,
            )
        moves = placement.ask_allocator(
            self.rpc,
            self.log,
            self.allocator,
            reach.config_without(
                self.ctx,
                [self.config.instance(uuid) for uuid in sorted(self.guessed)],
                self.members - self._nodes(),
            ),
            allocator.ChangeGroup(instances=tuple(sorted(self.guessed)), target_groups=targets),
        )
        if moves.failed:
            stuck = ", ".join(
                f"{name} ({reason or 'no reason given'})" for name, reason in moves.failed
            )
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} found no nodes for {stuck}. Nothing was"
                " moved.",
                errors.ECODE_NORES,
            )
        return moves, [self.config.group(uuid).name for uuid in targets]

    def _announce(self, moves: allocator.Moves) -> None:
        groups = {group.uuid: group.name for group in self.config.groups()}
        for name, group, nodes in moves.moved:
            self.log.info(
                f"instance {name} will be moved to node group {groups.get(group, group)} (nodes"
                f" {', '.join(nodes)})"
            )


def adapted_jobs(
    jobs: Iterable[Sequence[OpCode]],
    *,
    early_release: bool = False,
    force_failover: bool = False,
    sequential: bool = False,
) -> list[list[OpCode]]:
    """Return the jobs of an allocator with the options of the user.

    :param early_release: release locks before the old disks are removed.
    :param force_failover: fail instances over instead of migrating them.
    :param sequential: each job begins when the one before it has succeeded.
    """
    adapted: list[list[OpCode]] = []
    for job in jobs:
        ops = [_completed_op(op, early_release, force_failover) for op in job]
        if sequential and adapted and ops:
            ops[0] = ops[0].replace(depends=[*(ops[0].depends or []), [-1, ["success"]]])
        adapted.append(ops)
    return adapted


def _completed_op(op: OpCode, early_release: bool, force_failover: bool) -> OpCode:
    if isinstance(op, OpInstanceReplaceDisks):
        return op.replace(early_release=early_release)
    if force_failover and isinstance(op, OpInstanceMigrate):
        return OpInstanceFailover(
            instance_name=op.instance_name,
            target_node=op.target_node,
            iallocator=op.iallocator,
            ignore_ipolicy=op.ignore_ipolicy,
            depends=op.depends,
        )
    return op


def chosen_allocator(config: Config, given: str | None) -> str:
    """Return the name of the allocator in the request, or of the default one.

    :raises errors.OpPrereqError: there is neither of them.
    """
    default = config.cluster().default_iallocator
    chosen = default if given in (None, "", IALLOCATOR_DEFAULT_SHORTCUT) else given
    if not chosen:
        raise errors.OpPrereqError(
            "no instance allocator is given, and the cluster has no default one. Name one with"
            " --iallocator.",
            errors.ECODE_STATE,
        )
    return chosen
