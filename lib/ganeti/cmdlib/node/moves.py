"""Emptying a node: all its instances leave, each in a job of its own.

``OP_NODE_MIGRATE`` makes a migration for each primary instance; ``OP_NODE_EVACUATE`` also takes
those which do not run or whose node is dead. Where they go is said by the user: by a target node,
for templates whose disks several nodes see.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.locks import require_still_same
from ganeti.constants import disk as disk_c
from ganeti.constants import node as node_c
from ganeti.locking import Level
from ganeti.objects import Instance, Node
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate


def _target(unit: LogicalUnit, name: str | None, uuid: str | None) -> Node | None:
    """The node which the user named; None when none was.

    :raises errors.OpPrereqError: unknown, or name and uuid are those of two nodes.
    """
    if not name and not uuid:
        return None
    node = unit.config.expand_node(name or uuid or "")
    if uuid is not None and node.uuid != uuid:
        raise errors.OpPrereqError(
            f"target node {node.name} does not have uuid {uuid}", errors.ECODE_INVAL
        )
    return node


def _refuse_allocator(name: str | None, option: str) -> None:
    if name:
        raise errors.OpPrereqError(
            f"instance allocator {name!r} cannot be asked by this version. Name the target node"
            f" with {option}.",
            errors.ECODE_INVAL,
        )


def _check_target(node: Node, target: Node) -> None:
    if node.uuid == target.uuid:
        raise errors.OpPrereqError(
            f"node {node.name} cannot be the target of its own instances", errors.ECODE_INVAL
        )
    prereq.require_target(target)


class _EmptyingUnit(LogicalUnit):
    """Locks of both units: the instances, then the node, as they were guessed."""

    def _lock(self, node: Node, instances: Sequence[Instance], target: Node | None) -> None:
        self.node = node
        self.target = target
        self.guessed = frozenset(instance.uuid for instance in instances)
        self.need(Level.INSTANCE, self.guessed, shared=True)
        nodes = [node.uuid] if target is None else [node.uuid, target.uuid]
        self.lock_nodes(nodes, shared=True)

    def _still(self, instances: Sequence[Instance]) -> None:
        require_still_same(
            self.guessed, {i.uuid for i in instances}, f"instances of node {self.node.name}"
        )


@executes(OpNodeMigrate)
class LUNodeMigrate(_EmptyingUnit):
    """Migrate all primary instances of a node."""

    op: OpNodeMigrate
    HOOKS = NodeHooks("node-migrate")

    def expand_names(self) -> None:
        op = self.op
        if op.live is not None and op.mode is not None:
            raise errors.OpPrereqError(
                "parameters live and mode say the same thing, only one may be given",
                errors.ECODE_INVAL,
            )
        _refuse_allocator(op.iallocator, "--target-node")
        node = self.config.expand_node(op.node_name)
        if op.node_uuid is not None and node.uuid != op.node_uuid:
            raise errors.OpPrereqError(
                f"node {node.name} does not have uuid {op.node_uuid}", errors.ECODE_NOENT
            )
        target = _target(self, op.target_node, op.target_node_uuid)
        self._lock(node, self.config.node_instances(node.uuid)[0], target)

    def hook_env(self, plan: list[Instance]) -> dict[str, object]:
        return {
            "NODE_NAME": self.node.name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def hook_nodes(self, plan: list[Instance]) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> list[Instance]:
        if self.target is not None:
            _check_target(self.node, self.config.node(self.target.uuid))
        instances = list(self.config.node_instances(self.node.uuid)[0])
        self._still(instances)
        homeless = [
            i.name for i in instances if self.config.disk_template(i) in disk_c.EXT_MIRRORED
        ]
        if homeless and self.target is None:
            raise errors.OpPrereqError(
                f"instances {', '.join(homeless)} can go to any node, so one must be named. Use"
                " --target-node.",
                errors.ECODE_INVAL,
            )
        return instances

    def exec(self, plan: list[Instance]) -> ResultWithJobs:
        op = self.op
        target = None if self.target is None else self.target.name
        jobs: list[list[OpCode]] = []
        for instance in plan:
            # A disk with a partner has its target already.
            free = self.config.disk_template(instance) in disk_c.EXT_MIRRORED
            jobs.append([
                OpInstanceMigrate(
                    instance_name=instance.name, mode=op.mode, live=op.live, cleanup=False,
                    target_node=target if free else None, ignore_ipolicy=op.ignore_ipolicy,
                    allow_runtime_changes=op.allow_runtime_changes,
                )
            ])
        return ResultWithJobs(jobs)


@executes(OpNodeEvacuate)
class LUNodeEvacuate(_EmptyingUnit):
    """Move instances away from a node, whether they run or not and whether it answers or not."""

    op: OpNodeEvacuate

    def expand_names(self) -> None:
        op = self.op
        if op.iallocator and (op.remote_node or op.remote_node_uuid):
            raise errors.OpPrereqError(
                "give either an allocator or a target node, not both", errors.ECODE_INVAL
            )
        _refuse_allocator(op.iallocator, "--new-secondary")
        node = self.config.expand_node(op.node_name)
        if op.node_uuid is not None and node.uuid != op.node_uuid:
            raise errors.OpPrereqError(
                f"node {node.name} does not have uuid {op.node_uuid}", errors.ECODE_NOENT
            )
        target = _target(self, op.remote_node, op.remote_node_uuid)
        self._lock(node, self._wanted(node), target)

    def _wanted(self, node: Node) -> list[Instance]:
        primaries, secondaries = self.config.node_instances(node.uuid)
        found: list[Instance] = []
        if self.op.mode in (node_c.EVAC_PRIMARY, node_c.EVAC_ALL):
            found += primaries
        if self.op.mode in (node_c.EVAC_SECONDARY, node_c.EVAC_ALL):
            found += secondaries
        return found

    def check_prereq(self) -> list[Instance]:
        instances = self._wanted(self.node)
        self._still(instances)
        if not instances:
            return []
        if self.target is None:
            raise errors.OpPrereqError(
                "no target node is given, and no allocator can be asked by this version. Name the"
                " node with --new-secondary.",
                errors.ECODE_INVAL,
            )
        _check_target(self.node, self.config.node(self.target.uuid))
        stuck = []
        for instance in instances:
            template = self.config.disk_template(instance)
            if instance.primary_node != self.node.uuid:
                stuck.append(f"{instance.name} (its secondary disks cannot be moved by this"
                             " version)")
            elif template not in disk_c.EXT_MIRRORED:
                stuck.append(f"{instance.name} (disks of type {template} exist on one node only)")
            elif instance.admin_state == prereq.ADMIN_OFFLINE:
                stuck.append(f"{instance.name} (it is marked offline)")
        if stuck:
            raise errors.OpPrereqError(
                f"instances cannot leave node {self.node.name}: {', '.join(stuck)}. Nothing was"
                " moved.",
                errors.ECODE_STATE,
            )
        return instances

    def exec(self, plan: list[Instance]) -> ResultWithJobs:
        if not plan:
            self.info(f"node {self.node.name} has no instances to evacuate")
            return ResultWithJobs([])
        assert self.target is not None
        names = ", ".join(instance.name for instance in plan)
        self.info(
            f"instances to be moved from node {self.node.name} to {self.target.name}: {names}"
        )
        jobs: list[list[OpCode]] = [
            [
                OpInstanceMigrate(
                    instance_name=instance.name, target_node=self.target.name,
                    # Who does not run, or whose node is dead, is failed over.
                    allow_failover=True, allow_runtime_changes=True,
                )
            ]
            for instance in plan
        ]
        return ResultWithJobs(jobs)
