"""Removing a node from the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import distribute_files
from ganeti.cmdlib.ops.node import candidates
from ganeti.cmdlib.ops.verify import left_disks
from ganeti.objects import Disk, Node
from ganeti.opcodes.node import OpNodeRemove
from ganeti.platform import watchdog_files
from ganeti.wire.calls import NODE_ENSURE_DAEMON, NODE_LEAVE_CLUSTER


@executes(OpNodeRemove)
class LUNodeRemove(LogicalUnit[OpNodeRemove, Node]):
    """Remove a node without instances, and let it remove the files of the cluster."""

    HOOKS = NodeHooks("node-remove")
    REQ_BGL = True

    def expand_names(self) -> None:
        self.node = self.lock_node(self.op.node_name, self.op.node_uuid, resources=True)

    def hook_env(self, plan: Node) -> dict[str, object]:
        return {"OP_TARGET": self.node.name, "NODE_NAME": self.node.name}

    def hook_nodes(self, plan: Node) -> tuple[list[str], list[str]]:
        others = [n.uuid for n in self.config.nodes() if n.uuid != self.node.uuid]
        return others, others

    def check_prereq(self) -> Node:
        node = self.config.node(self.node.uuid)
        if node.uuid == self.config.cluster().master_node:
            raise errors.OpPrereqError(
                f"node {node.name} is the master node and cannot be removed",
                errors.ECODE_INVAL,
            )
        primaries, secondaries = self.config.node_instances(node.uuid)
        names = [instance.name for instance in (*primaries, *secondaries)]
        if names:
            raise errors.OpPrereqError(
                f"node {node.name} still has instances: {', '.join(sorted(set(names)))}. Move or"
                " remove them first.",
                errors.ECODE_INVAL,
            )
        here = [
            disk
            for disk in self.config.snapshot().disks.values()
            if node.uuid in disk.nodes or node.uuid in disk.all_node_uuids()
        ]
        self._refuse_left_disks(node, here)
        detached = [disk.name or disk.uuid for disk in here]
        if detached:
            raise errors.OpPrereqError(
                f"node {node.name} still has disks which were detached from their instances:"
                f" {', '.join(sorted(detached))}. Attach each to an instance with 'gnt-instance"
                " modify --disk attach:uuid=...', then move or remove it.",
                errors.ECODE_INVAL,
            )
        return node

    def _refuse_left_disks(self, node: Node, here: Sequence[Disk]) -> None:
        """Check that no interrupted operation has left disks of an instance on the node.

        :param here: the disks which the configuration has on the node.
        :raises errors.OpPrereqError: one has; nothing but such an operation may remove them.
        """
        uuids = {disk.uuid for disk in here}
        for left in left_disks.find(self.config.snapshot()):
            if left.owner is not None and left.disk.uuid in uuids:
                raise errors.OpPrereqError(
                    f"node {node.name} still has disk {left.name()}, {left.text()}",
                    errors.ECODE_STATE,
                )

    def _release(self, node: Node) -> None:
        """Let the node disarm its hardware watchdog, while it can still ask for that.

        :raises errors.OpExecError: it does not; nothing was changed.
        """
        if not node.restarts_itself() or node.offline:
            return
        answer = self.rpc.call(
            NODE_ENSURE_DAEMON, node.uuid, daemon=watchdog_files.DAEMON, run=False
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"the watchdog of node {node.name} cannot be disarmed, so that the machine would"
                f" restart: {why(answer.failure)}"
            )

    def exec(self, plan: Node) -> None:
        # The hooks run on the node as long as it is in the configuration.
        if self.hooks is not None and not plan.offline:
            self.hooks.post_on([plan.uuid])
        self._release(plan)
        candidates.fill_pool(self.ctx, without=[plan.uuid])
        with self.config.transaction() as change:
            change.nodes.remove(plan.uuid)
        ssh_keys.distribute(self.ctx)
        ssh_keys.name_in_etc_hosts(self.ctx, plan, add=False)
        if self.config.cluster().modify_etc_hosts:
            distribute_files(self.ctx)
        if plan.offline:
            self.log.warn(
                f"node {plan.name} is offline, so the files of the cluster stay on it",
                hint="Run 'node-cleanup --yes-do-it' on the machine before it is connected again.",
            )
            return
        self.rpc.expect_keys({plan.primary_ip: plan.key_pins})
        answer = self.rpc.call_addresses(
            NODE_LEAVE_CLUSTER,
            {plan.name: plan.primary_ip},
            modify_ssh_setup=self.config.cluster().modify_ssh_setup,
        )[plan.name]
        if answer.failure is not None:
            self.log.warn(
                f"node {plan.name} was removed, but could not remove the files of the cluster:"
                f" {why(answer.failure)}",
                hint="Stop its node daemon and remove the cluster's files from the machine.",
            )
