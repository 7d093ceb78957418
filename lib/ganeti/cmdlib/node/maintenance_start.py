"""Starting the maintenance of a node: its instances leave it, and it is marked."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import ResultWithJobs, executes
from ganeti.cmdlib.ops.node import maintenance
from ganeti.cmdlib.ops.node.evacuation import EvacuationUnit, check_target, evacuation_target
from ganeti.cmdlib.ops.node.move_jobs import MoveJobs
from ganeti.constants import node as node_c
from ganeti.objects import Instance, Maintenance, Node, disk_templates, updated
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import OpInstanceShutdown
from ganeti.opcodes.node import OpNodeMaintenanceStart, OpNodeSetParams
from ganeti.utils import clock


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What leaves the node.

    :ivar node: the node as it is now.
    :ivar mark: the record of the maintenance as it will be.
    :ivar moving: instances which move, or of which a replica moves.
    :ivar stopping: instances which are stopped where they are.
    :ivar staying: instances which do not run and stay.
    :ivar jobs: the jobs for `moving`.
    """

    node: Node
    mark: Maintenance
    moving: list[Instance]
    stopping: list[Instance]
    staying: list[Instance]
    jobs: list[list[OpCode]]


@executes(OpNodeMaintenanceStart)
class LUNodeMaintenanceStart(EvacuationUnit[OpNodeMaintenanceStart, StartPlan]):
    """Submit jobs which move or stop the instances of a node, after they were recorded."""

    def expand_names(self) -> None:
        op = self.op
        node = self._find_node()
        maintenance.require_not_master(self.config, node)
        target = evacuation_target(self.config, op.remote_node, op.remote_node_uuid)
        self._mode = node_c.EVAC_ALL if op.evacuate else node_c.EVAC_PRIMARY
        leaving = self._leaving(node)
        self.allocator: str | None = None
        default = self.config.cluster().default_iallocator
        if op.iallocator or default or any(self._has_choice(instance) for instance in leaving):
            self.allocator = self._choose_allocator(node, target, "--new-secondary")
        self._lock(node, self._present(node), target)

    def _present(self, node: Node) -> list[Instance]:
        primaries, secondaries = self.config.node_instances(node.uuid)
        return [*primaries, *secondaries]

    def _leaving(self, node: Node) -> list[Instance]:
        """Return the instances which have to leave: those which should run, or with all
        replicas.
        """
        primaries, secondaries = self.config.node_instances(node.uuid)
        if self.op.evacuate:
            return [one for one in (*primaries, *secondaries) if not one.forthcoming]
        return [one for one in primaries if _is_wanted(one) and not one.forthcoming]

    def _has_choice(self, instance: Instance) -> bool:
        """Tell whether an instance can go to several nodes, so that one has to be chosen."""
        if self._is_mirrored(instance):
            return self.op.evacuate
        return self.config.disk_template(instance) in disk_templates.EXT_MIRRORED

    def _is_mirrored(self, instance: Instance) -> bool:
        return self.config.disk_template(instance) in disk_templates.INT_MIRRORED

    def check_prereq(self) -> StartPlan:
        node = self.config.node(self.node.uuid)
        maintenance.require_not_master(self.config, node)
        if node.offline:
            raise errors.OpPrereqError(
                f"node {node.name} is marked offline, so nothing runs there. Use 'gnt-node"
                " failover' or 'gnt-node evacuate' for what it had.",
                errors.ECODE_STATE,
            )
        self._require_unchanged(self._present(node))
        target = None if self.target is None else self.config.node(self.target.uuid)
        if target is not None:
            check_target(self.config, node, target)
        jobs = MoveJobs(self.ctx, node, target, self._mode, self.allocator)
        mark = node.maintenance or Maintenance(
            since=clock.now(), drained=node.drained, master_candidate=node.master_candidate
        )
        moving: list[Instance] = []
        stopping: list[Instance] = []
        staying: list[Instance] = []
        stuck: list[str] = []
        for instance in self._leaving(node):
            reason = jobs.why_not(instance)
            if reason is None:
                moving.append(instance)
            elif instance.primary_node != node.uuid or not _is_wanted(instance):
                staying.append(instance)
            elif self.op.stop or instance.uuid in mark.stopped:
                stopping.append(instance)
            else:
                stuck.append(f"{instance.name} ({reason})")
        if stuck:
            raise errors.OpPrereqError(
                f"instances cannot be moved away from node {node.name}: {', '.join(stuck)}."
                " Nothing was changed. With --stop, these are stopped, and the end of the"
                " maintenance starts them.",
                errors.ECODE_STATE,
            )
        leaving = [one.uuid for one in moving] if self.op.evacuate else []
        maintenance.require_other_replicas(self.config, node, leaving)
        mark = updated(
            maintenance.recorded(self.config, node, mark, moving, replicas=self.op.evacuate),
            ready_at=None,
            returning=False,
            stopped=maintenance.union(mark.stopped, [one.uuid for one in stopping]),
        )
        return StartPlan(node, mark, moving, stopping, staying, jobs.make(moving))

    def steps(self, plan: StartPlan) -> list[str]:
        node = plan.node.name
        steps = [f"mark node {node} as being in maintenance"]
        if not plan.node.drained:
            steps.append(f"drain node {node}, so that it gets no instances")
        steps += [f"move instance {one.name} away from node {node}" for one in plan.moving]
        steps += [f"stop instance {one.name}" for one in plan.stopping]
        return [*steps, f"check that no guest runs on node {node}"]

    def exec(self, plan: StartPlan) -> ResultWithJobs:
        node = plan.node
        # Recorded first: a start which is broken off can be said again.
        with self.config.transaction() as change:
            change.nodes.update(updated(self.config.node(node.uuid), maintenance=plan.mark))
        for instance in plan.staying:
            self.log.info(f"instance {instance.name} does not run, and stays on node {node.name}")
        flags = []
        if not node.drained:
            flags = [
                OpNodeSetParams(
                    node_name=node.name, drained=True, auto_promote=node.master_candidate
                )
            ]
        stops: list[list[OpCode]] = [
            [OpInstanceShutdown(instance_name=one.name, no_remember=True)] for one in plan.stopping
        ]
        return ResultWithJobs(maintenance.in_order(node, flags, [*plan.jobs, *stops]))


def _is_wanted(instance: Instance) -> bool:
    return instance.admin_state == prereq.ADMIN_UP
