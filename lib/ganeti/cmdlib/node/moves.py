"""Emptying a node: its instances leave, each in a job of its own.

``OP_NODE_MIGRATE`` makes a migration for each primary instance. ``OP_NODE_EVACUATE`` also takes
those which do not run or whose node is dead, and, in the modes ``secondary-only`` and ``all``,
disks of which the node has the second copy. Where they go is said by the user, with a target node,
or by an allocator (manual page **ganeti-iallocator**): an evacuation asks it once for all
instances, in mode ``node-evacuate``, and checks the jobs it wants before they are submitted; each
migration asks it by itself when its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import allocator, errors
from ganeti.cmdlib import placement, prereq
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.locks import require_still_same
from ganeti.constants import disk as disk_c
from ganeti.constants import node as node_c
from ganeti.locking import Level
from ganeti.objects import Instance, Node
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceMigrate, OpInstanceReplaceDisks
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


def _check_target(node: Node, target: Node) -> None:
    if node.uuid == target.uuid:
        raise errors.OpPrereqError(
            f"node {node.name} cannot be the target of its own instances", errors.ECODE_INVAL
        )
    prereq.require_target(target)


class _EmptyingUnit(LogicalUnit):
    """What both units do first, and their locks: the instances, then the nodes.

    Nothing is changed under these locks; they keep what is decided true until the jobs, which ask
    for their own, are known.
    """

    def _find_node(self) -> Node:
        """:raises errors.OpPrereqError: unknown, or name and uuid are those of two nodes."""
        node = self.config.expand_node(self.op.node_name)
        if self.op.node_uuid is not None and node.uuid != self.op.node_uuid:
            raise errors.OpPrereqError(
                f"node {node.name} does not have uuid {self.op.node_uuid}", errors.ECODE_NOENT
            )
        return node

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
        node = self._find_node()
        target = _target(self, op.target_node, op.target_node_uuid)
        instances = self.config.node_instances(node.uuid)[0]
        if any(self._is_free(instance) for instance in instances):
            # It is asked by each of the jobs, so only its name is needed here.
            placement.choose_allocator(
                self,
                op.iallocator,
                what=f"what runs on node {node.name}",
                node_option="--target-node",
                node_given=target is not None,
            )
        self._lock(node, instances, target)

    def _is_free(self, instance: Instance) -> bool:
        """May it go to any node? A disk with a partner has its target already."""
        return self.config.disk_template(instance) in disk_c.EXT_MIRRORED

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
        primaries = self.config.node_instances(self.node.uuid)[0]
        self._still(primaries)
        instances = prereq.without_forthcoming(self, primaries, f"node {self.node.name}")
        stuck = [
            f"{instance.name} (its disks exist on one node only)"
            for instance in instances
            if self.config.disk_template(instance) not in disk_c.MIRRORED
        ]
        if stuck:
            raise errors.OpPrereqError(
                f"instances cannot be migrated away from node {self.node.name}:"
                f" {', '.join(stuck)}. Nothing was moved.",
                errors.ECODE_STATE,
            )
        return instances

    def exec(self, plan: list[Instance]) -> ResultWithJobs:
        op = self.op
        target = None if self.target is None else self.target.name
        jobs: list[list[OpCode]] = []
        for instance in plan:
            free = self._is_free(instance)
            jobs.append(
                [
                    OpInstanceMigrate(
                        instance_name=instance.name,
                        mode=op.mode,
                        live=op.live,
                        cleanup=False,
                        target_node=target if free else None,
                        iallocator=op.iallocator if free else None,
                        ignore_ipolicy=op.ignore_ipolicy,
                        allow_runtime_changes=op.allow_runtime_changes,
                    )
                ]
            )
        return ResultWithJobs(jobs)


@executes(OpNodeEvacuate)
class LUNodeEvacuate(_EmptyingUnit):
    """Move instances away from a node, whether they run or not and whether it answers or not."""

    op: OpNodeEvacuate

    def expand_names(self) -> None:
        op = self.op
        node = self._find_node()
        target = _target(self, op.remote_node, op.remote_node_uuid)
        instances = self._wanted(node)
        self.allocator: str | None = None
        if instances or (op.iallocator and target is not None):
            self.allocator = placement.choose_allocator(
                self,
                op.iallocator,
                what=f"what is on node {node.name}",
                node_option="--new-secondary",
                node_given=target is not None,
            )
        self._lock(node, instances, target)

    def _wanted(self, node: Node) -> list[Instance]:
        primaries, secondaries = self.config.node_instances(node.uuid)
        found: list[Instance] = []
        if self.op.mode in (node_c.EVAC_PRIMARY, node_c.EVAC_ALL):
            found += primaries
        if self.op.mode in (node_c.EVAC_SECONDARY, node_c.EVAC_ALL):
            found += secondaries
        return found

    def check_prereq(self) -> list[list[OpCode]]:
        """Returns the jobs."""
        instances = self._wanted(self.node)
        self._still(instances)
        instances = prereq.without_forthcoming(self, instances, f"node {self.node.name}")
        if not instances:
            self.info(f"node {self.node.name} has no instances to evacuate")
            return []
        stuck = [
            f"{instance.name} ({reason})"
            for instance in instances
            if (reason := self._why_not(instance)) is not None
        ]
        if stuck:
            raise self._refusal(stuck)
        if self.target is None:
            return self._ask(instances)
        target = self.config.node(self.target.uuid)
        _check_target(self.node, target)
        return [self._job(instance, target) for instance in instances]

    def exec(self, plan: list[list[OpCode]]) -> ResultWithJobs:
        return ResultWithJobs(plan)

    def _refusal(self, stuck: Sequence[str]) -> errors.OpPrereqError:
        return errors.OpPrereqError(
            f"instances cannot leave node {self.node.name}: {', '.join(stuck)}. Nothing was moved.",
            errors.ECODE_STATE,
        )

    def _why_not(self, instance: Instance) -> str | None:
        """Why an instance can go nowhere, if so."""
        template = self.config.disk_template(instance)
        if template not in disk_c.MIRRORED:
            return f"disks of type {template} exist on one node only"
        if instance.primary_node == self.node.uuid and (
            instance.admin_state == prereq.ADMIN_OFFLINE
        ):
            return "it is marked offline"
        if (
            self.target is not None
            and template in disk_c.INT_MIRRORED
            and (self.target.uuid in self.config.instance_nodes(instance))
        ):
            if self.op.mode == node_c.EVAC_PRIMARY:
                return None
            return f"node {self.target.name} has a copy of its disks already"
        return None

    # -- with a target node ----------------------------------------------------

    def _job(self, instance: Instance, target: Node) -> list[OpCode]:
        """What brings one instance away from the node, to the target if it is free to go there."""
        if self.config.disk_template(instance) in disk_c.EXT_MIRRORED:
            self.info(f"instance {instance.name} will be moved to node {target.name}")
            return [self._migrate(instance, target)]
        job: list[OpCode] = []
        if instance.primary_node == self.node.uuid:
            # Its only other node is the one with the second copy.
            self.info(f"instance {instance.name} will be moved to its secondary node")
            job.append(self._migrate(instance, None))
        if self.op.mode != node_c.EVAC_PRIMARY:
            self.info(f"instance {instance.name} will get node {target.name} as its secondary")
            job.append(
                OpInstanceReplaceDisks(
                    instance_name=instance.name,
                    mode=disk_c.REPLACE_NEW_SECONDARY,
                    disks=[],
                    remote_node=target.name,
                    early_release=self.op.early_release,
                )
            )
        return job

    def _migrate(self, instance: Instance, target: Node | None) -> OpCode:
        return OpInstanceMigrate(
            instance_name=instance.name,
            target_node=None if target is None else target.name,
            # Who does not run, or whose node is dead, is failed over.
            allow_failover=True,
            allow_runtime_changes=True,
        )

    # -- with an allocator -----------------------------------------------------

    def _ask(self, instances: Sequence[Instance]) -> list[list[OpCode]]:
        """Let the allocator say which jobs empty the node.

        :raises errors.OpPrereqError: it cannot be asked, or leaves an instance where it is.
        """
        assert self.allocator is not None
        config = self.config.snapshot()
        request = allocator.NodeEvacuate(
            tuple(instance.uuid for instance in instances),
            self.op.mode,
            ignore_soft_errors=bool(self.op.ignore_soft_errors),
        )
        moves = placement.ask_allocator(self, self.allocator, config, request)
        if moves.failed:
            stuck = [f"{name} ({reason or 'no reason given'})" for name, reason in moves.failed]
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} cannot move instances away from node"
                f" {self.node.name}: {', '.join(stuck)}. Nothing was moved.",
                errors.ECODE_NORES,
            )
        moved = {name for name, _group, _nodes in moves.moved}
        left = [instance.name for instance in instances if instance.name not in moved]
        if left:
            raise errors.OpPrereqError(
                f"instance allocator {self.allocator} says nothing about instance"
                f" {', '.join(left)}. Nothing was moved.",
                errors.ECODE_ENVIRON,
            )
        for name, _group, nodes in moves.moved:
            self.info(f"instance {name} will be on node {', '.join(nodes)}")
        jobs = [list(job) for job in moves.jobs]
        for op in (op for job in jobs for op in job):
            if isinstance(op, OpInstanceReplaceDisks):
                op.early_release = self.op.early_release
        return jobs
