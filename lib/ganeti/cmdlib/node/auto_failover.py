"""The automatic failover of the instances of a node which is gone: fence it, then start them.

The master daemon submits the opcode (:mod:`ganeti.master.node_poll`); an administrator may, too.
Nothing is started before the machine is known to be off. What was done and why something was left
is recorded in the node (:class:`ganeti.objects.FailoverReport`), where ``gnt-node info`` shows it.

Source: ``doc/design-instance-failover.rst``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes, why
from ganeti.cmdlib.ops.disks import suspended_io
from ganeti.cmdlib.ops.node import unattended
from ganeti.objects import Disk, FailoverReport, Instance, Node, updated
from ganeti.objects.start_order import start_order
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.opcodes.node import OpNodeAutoFailover
from ganeti.rpc.results import is_gone
from ganeti.utils import clock
from ganeti.wire.calls import VERSION

#: Whether nodes answer. One of them has been unresponsive for long, and any sign of life counts:
#: the time suffices for the system of a busy machine to accept a connection.
_QUESTION = dataclasses.replace(VERSION, timeout_s=3)


@executes(OpNodeAutoFailover)
class LUNodeAutoFailover(LogicalUnit[OpNodeAutoFailover, Node]):
    """Fence a node which does not answer, mark it offline, and submit failovers."""

    def expand_names(self) -> None:
        self.node = self.lock_node(self.op.node_name, self.op.node_uuid)

    def check_prereq(self) -> Node:
        node = self.config.node(self.node.uuid)
        if not self.config.cluster().auto_instance_failover:
            raise errors.OpPrereqError(
                "the automatic failover of instances is off. Switch it on with 'gnt-cluster modify"
                " --auto-instance-failover=yes'.",
                errors.ECODE_STATE,
            )
        if node.uuid == self.config.master_node().uuid:
            raise errors.OpPrereqError(
                f"node {node.name} is the master, and so it is not gone", errors.ECODE_STATE
            )
        if node.offline or node.is_left_alone():
            what = "marked offline" if node.offline else "in maintenance"
            raise errors.OpPrereqError(
                f"node {node.name} is {what}, so an administrator decides about its instances",
                errors.ECODE_STATE,
            )
        self._require_gone(node)
        return node

    def _require_gone(self, node: Node) -> None:
        """Check that the node does not answer, and that most nodes do.

        A master which is cut off from all nodes must not switch them off.

        :raises errors.OpPrereqError: the node answers, or too few other nodes do.
        """
        online = [one for one in self.config.nodes() if not one.offline]
        answers = self.rpc.call_many(_QUESTION, [one.uuid for one in online])
        failure = answers[node.uuid].failure
        if not is_gone(failure):
            how = "" if failure is None else f", although with an error: {why(failure)}"
            raise errors.OpPrereqError(f"node {node.name} answers{how}", errors.ECODE_STATE)
        answering = sum(not is_gone(answer.failure) for answer in answers.values())
        if len(online) > 2 and answering * 2 <= len(online):
            raise errors.OpPrereqError(
                f"only {answering} of {len(online)} nodes answer, so that the fault may be the"
                " network of the master",
                errors.ECODE_STATE,
            )

    def steps(self, plan: Node) -> list[str]:
        moving, left = self._sorted_out(
            plan,
            # Whether these were active all the time is known after the fencing.
            {disk.uuid for disk, _ in self._disks(plan) if disk.never_alone == plan.uuid},
        )
        return [
            f"switch node {plan.name} off with its out-of-band helper, or wait until its watchdog"
            " has restarted it, and mark it offline",
            *(f"fail instance {one.name} over" for one in moving),
            *(f"leave instance {one.name}: {reason}" for one, reason in left),
        ]

    def _disks(self, node: Node) -> list[tuple[Disk, Instance]]:
        return [
            (disk, one)
            for one in self.config.node_instances(node.uuid)[0]
            for disk in self.config.instance_disks(one)
        ]

    def _sorted_out(
        self, node: Node, complete: Collection[str]
    ) -> tuple[list[Instance], list[tuple[Instance, str]]]:
        """Return the instances which are started elsewhere, in order, and those which are left.

        :param complete: UUIDs of disks whose other replica has all confirmed writes.
        """
        wanted = [
            one
            for one in self.config.node_instances(node.uuid)[0]
            if one.admin_state == prereq.ADMIN_UP and not one.forthcoming
        ]
        wanted.sort(key=lambda one: (start_order(one.tags), one.name))
        reasons = [(one, unattended.why_left(self.config, one, node, complete)) for one in wanted]
        return (
            [one for one, reason in reasons if reason is None],
            [(one, reason) for one, reason in reasons if reason is not None],
        )

    def exec(self, plan: Node) -> ResultWithJobs:
        node = plan
        try:
            node = unattended.fence(self.ctx, node)
        except errors.OpExecError as err:
            self._record(node, FailoverReport(at=clock.now(), reason=str(err)))
            raise errors.OpExecError(
                f"node {node.name} does not answer, but is not fenced, and nothing is started"
                f" elsewhere: {err}"
            ) from err
        moving, left = self._mark_dead(node)
        restarted = node.watchdog is not None and node.watchdog.left_at is not None
        how = "has restarted by its watchdog" if restarted else "is switched off"
        self.log.info(f"node {node.name} {how}, and is marked offline")
        for one, reason in left:
            self.log.warn(f"instance {one.name} is not started elsewhere: {reason}")
        jobs: list[list[OpCode]] = [
            [OpInstanceFailover(instance_name=one.name, ignore_consistency=False)] for one in moving
        ]
        if node.master_candidate:
            # Another node becomes a master candidate; that needs the locks of all nodes.
            size = self.config.cluster().candidate_pool_size
            jobs.append([OpClusterSetParams(candidate_pool_size=size)])
        return ResultWithJobs(jobs)

    def _mark_dead(self, node: Node) -> tuple[list[Instance], list[tuple[Instance, str]]]:
        """Record all about the end of a fenced node; returns what :meth:`_sorted_out` does.

        That is one change of the configuration. A change before the node is marked offline would be
        sent to it, too, and wait until the connection fails.
        """
        found = suspended_io.complete_without(self.config, self.rpc, self._disks(node), node.uuid)
        with self.config.transaction() as change:
            if change.data.nodes[node.uuid].watchdog != node.watchdog:
                raise errors.OpExecError(
                    f"node {node.name}: what its watchdog has promised has changed meanwhile, so"
                    " that it is not certain that its guests have ended"
                )
            complete = {uuid for uuid in found if change.disks.conclude_outdated(uuid, node.uuid)}
            moving, left = self._sorted_out(node, complete)
            report = FailoverReport(
                at=clock.now(),
                fenced=True,
                started=tuple(one.uuid for one in moving),
                left={one.uuid: reason for one, reason in left},
            )
            change.nodes.update(
                updated(
                    node,
                    auto_failover=report,
                    offline=True,
                    drained=False,
                    master_candidate=False,
                    # A watchdog restarts the machine.
                    powered=node.watchdog is not None and node.watchdog.left_at is not None,
                )
            )
        return moving, left

    def _record(self, node: Node, report: FailoverReport) -> None:
        with self.config.transaction() as change:
            present = change.data.nodes[node.uuid]
            change.nodes.update(updated(present, auto_failover=report))
