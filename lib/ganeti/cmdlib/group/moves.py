"""Moving instances from group to group, as an allocator decides: evacuating a group, and changing
the group of one instance.

The allocator answers with jobs; this unit checks them, gives them the user's wishes (early release,
failover instead of migration, one after the other) and submits them. It moves nothing itself, so it
holds its locks shared, and only as long as the allocator thinks.

Which instances, groups and nodes are concerned is guessed from the configuration, because
instances are locked before groups and groups before nodes; once all are held the guess is compared
with what is so now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti import allocator, errors
from ganeti.cmdlib import placement, prereq
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.group.add import GroupHooks
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.locks import require_still_same
from ganeti.constants.instance import IALLOCATOR_DEFAULT_SHORTCUT
from ganeti.locking import ALL, Level
from ganeti.objects import Instance
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)


def adapted_jobs(
    jobs: Iterable[Sequence[OpCode]],
    *,
    early_release: bool = False,
    force_failover: bool = False,
    sequential: bool = False,
) -> list[list[OpCode]]:
    """The jobs of an allocator with what the user wants of them.

    :param sequential: each job begins when the one before it has succeeded.
    """
    adapted: list[list[OpCode]] = []
    for job in jobs:
        ops = [_adapted(op, early_release, force_failover) for op in job]
        if sequential and adapted and ops:
            ops[0].depends = [*(ops[0].depends or []), [-1, ["success"]]]
        adapted.append(ops)
    return adapted


def _adapted(op: OpCode, early_release: bool, force_failover: bool) -> OpCode:
    if isinstance(op, OpInstanceReplaceDisks):
        op.early_release = early_release
    if force_failover and isinstance(op, OpInstanceMigrate):
        return OpInstanceFailover(
            instance_name=op.instance_name,
            target_node=op.target_node,
            iallocator=op.iallocator,
            ignore_ipolicy=op.ignore_ipolicy,
            depends=op.depends,
        )
    return op


class _RegroupingUnit(LogicalUnit):
    """Locks and question of both units."""

    def _prepare(self, iallocator: str | None, target_groups: Sequence[str] | None) -> None:
        self.allocator = _allocator(self, iallocator)
        self.targets = tuple(
            dict.fromkeys(self.config.expand_group(name).uuid for name in target_groups or ())
        )

    def _instances(self) -> frozenset[str]:
        """Uuids of the instances which are to move, as configured now."""
        raise errors.ProgrammerError(f"{type(self).__name__} does not say what moves")

    def _groups(self) -> frozenset[str]:
        """Uuids of the groups in which these instances are now."""
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

    def _ask(self, what: str) -> tuple[allocator.Moves, list[str]]:
        """The allocator's answer, and names of the groups which it may choose.

        :raises errors.OpPrereqError: things changed meanwhile, there is no other group, or an
            instance cannot move.
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
            if group.uuid in held and group.uuid not in now
        )
        if not targets:
            raise errors.OpPrereqError(
                f"there is no other node group to which {what} could go", errors.ECODE_NORES
            )
        moves = placement.ask_allocator(
            self,
            self.allocator,
            self.config.snapshot(),
            allocator.ChangeGroup(instances=tuple(sorted(self.guessed)), target_groups=targets),
        )
        if moves.failed:
            stuck = ", ".join(
                f"{name} ({reason or 'no reason given'})" for name, reason in moves.failed
            )
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} finds no place for {stuck}. Nothing was"
                " moved.",
                errors.ECODE_NORES,
            )
        return moves, [self.config.group(uuid).name for uuid in targets]

    def _announce(self, moves: allocator.Moves) -> None:
        groups = {group.uuid: group.name for group in self.config.groups()}
        for name, group, nodes in moves.moved:
            self.info(
                f"instance {name} moves to group {groups.get(group, group)} ({', '.join(nodes)})"
            )


def _allocator(unit: LogicalUnit, given: str | None) -> str:
    default = unit.config.cluster().default_iallocator
    chosen = default if given in (None, "", IALLOCATOR_DEFAULT_SHORTCUT) else given
    if not chosen:
        raise errors.OpPrereqError(
            "no instance allocator is given, and the cluster has no default one. Name one with"
            " --iallocator.",
            errors.ECODE_STATE,
        )
    return chosen


@executes(OpGroupEvacuate)
class LUGroupEvacuate(_RegroupingUnit):
    """Move all instances of a group to other groups."""

    op: OpGroupEvacuate
    HOOKS = GroupHooks("group-evacuate")

    def expand_names(self) -> None:
        op = self.op
        self.group = self.config.expand_group(op.group_name)
        self._prepare(op.iallocator, op.target_groups)
        if self.group.uuid in self.targets:
            raise errors.OpPrereqError(
                f"node group {self.group.name} is to be emptied and cannot be a target, too",
                errors.ECODE_INVAL,
            )
        self._lock()

    def _instances(self) -> frozenset[str]:
        return frozenset(i.uuid for i in self._members() if not i.forthcoming)

    def _members(self) -> list[Instance]:
        nodes = {node.uuid for node in self.config.group_nodes(self.group.uuid)}
        return [
            instance
            for instance in self.config.instances()
            if nodes.intersection(self.config.instance_nodes(instance))
        ]

    def _groups(self) -> frozenset[str]:
        return super()._groups() | {self.group.uuid}

    def hook_env(self, plan: list[list[OpCode]]) -> dict[str, object]:
        return {"GROUP_NAME": self.group.name, **super().hook_env(plan)}

    def hook_nodes(self, plan: list[list[OpCode]]) -> tuple[list[str], list[str]]:
        nodes = [node.uuid for node in self.config.group_nodes(self.group.uuid)]
        everybody = [self.config.master_node().uuid, *nodes]
        return everybody, everybody

    def check_prereq(self) -> list[list[OpCode]]:
        op = self.op
        prereq.without_forthcoming(self, self._members(), f"node group {self.group.name}")
        if not self.guessed:
            require_still_same(
                self.guessed, self._instances(), f"instances of node group {self.group.name}"
            )
            self.info(f"node group {self.group.name} has no instances")
            return []
        moves, targets = self._ask(f"node group {self.group.name}")
        self.info(f"instances of node group {self.group.name} go to {', '.join(targets)}")
        self._announce(moves)
        return adapted_jobs(
            moves.jobs,
            early_release=op.early_release,
            force_failover=op.force_failover,
            sequential=op.sequential,
        )

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)


@executes(OpInstanceChangeGroup)
class LUInstanceChangeGroup(_RegroupingUnit):
    """Move one instance to another group."""

    op: OpInstanceChangeGroup
    HOOKS = InstanceHooks("instance-change-group")

    def expand_names(self) -> None:
        op = self.op
        found = self.lock_instance(op.instance_name, op.instance_uuid, shared=True)
        self._prepare(op.iallocator, op.target_groups)
        self._uuid = found.uuid
        self.guessed = self._instances()
        present = sorted(set(self.targets) & self._groups())
        if present:
            raise errors.OpPrereqError(
                f"instance {found.name} is in group {self.config.group(present[0]).name} already",
                errors.ECODE_INVAL,
            )

    def _instances(self) -> frozenset[str]:
        return frozenset((self._uuid,))

    def hook_nodes(self, plan: list[list[OpCode]]) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> list[list[OpCode]]:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "change the group of")
        moves, _targets = self._ask(f"instance {self.instance.name}")
        self._announce(moves)
        return adapted_jobs(moves.jobs, early_release=self.op.early_release)

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)
