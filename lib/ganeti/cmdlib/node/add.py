"""Adding a node: a machine whose node daemon already runs becomes a part of the cluster.

``gnt-node add`` prepares the machine before: it sends the cluster certificate and starts the node
daemon. This unit checks that the machine answers, writes it to the configuration and copies the
common files to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import distribute_files
from ganeti.cmdlib.ops.node import candidates, guests, machine_storage
from ganeti.cmdlib.ops.params.group import merged_disk_state, merged_hv_state
from ganeti.cmdlib.ops.params.node import checked_ndparams
from ganeti.constants import node_verify as nv
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.locking import Level
from ganeti.objects import Node, NodeGroup, fill, updated
from ganeti.opcodes.node import OpNodeAdd
from ganeti.utils import clock, net
from ganeti.wire.calls import NODE_VERIFY_LIGHT, VERSION


@dataclass(frozen=True, slots=True)
class AddPlan:
    """The node after the operation.

    :ivar readd: the node is in the configuration already.
    :ivar digest: digest of its certificate if it becomes a candidate, else None.
    :ivar unprepared: only in a dry run: the machine does not answer yet, because the command would
        prepare it first.
    """

    node: Node
    readd: bool
    digest: str | None
    unprepared: bool = False


@executes(OpNodeAdd)
class LUNodeAdd(LogicalUnit[OpNodeAdd, AddPlan]):
    """Add a node, or add a node again whose machine was lost or replaced."""

    HOOKS = NodeHooks("node-add")
    REQ_BGL = True

    def expand_names(self) -> None:
        name = prereq.valid_host_name(self.op.node_name, "node name")
        host = prereq.resolve(name, "node name")
        self.name = name if net.is_ip(host.name) else host.name
        self.ip = self.op.primary_ip or host.ip
        self.existing = next((n for n in self.config.nodes() if n.name == self.name), None)
        if self.existing is not None and not self.op.readd:
            raise errors.OpPrereqError(
                f"node {self.name} is already in the cluster. Use --readd to add it again.",
                errors.ECODE_EXISTS,
            )
        if self.existing is None and self.op.readd:
            raise errors.OpPrereqError(
                f"node {self.name} is not in the cluster, so it cannot be added again",
                errors.ECODE_NOENT,
            )
        if self.existing is not None:
            self.lock_nodes([self.existing.uuid], resources=True)
            return
        self.uuid = self.config.new_uuid(self.ctx.ec_id)
        self.need_new(Level.NODE, self.uuid)
        self.need_new(Level.NODE_RES, self.uuid)

    def hook_env(self, plan: AddPlan) -> dict[str, object]:
        return {
            "OP_TARGET": self.name,
            "NODE_NAME": self.name,
            "NODE_PIP": plan.node.primary_ip,
            "NODE_SIP": plan.node.secondary_ip,
            "MASTER_CAPABLE": plan.node.master_capable,
            "VM_CAPABLE": plan.node.vm_capable,
        }

    def hook_nodes(self, plan: AddPlan) -> tuple[list[str], list[str]]:
        others = [n.uuid for n in self.config.nodes() if n.uuid != plan.node.uuid]
        return others, [*others, plan.node.uuid]

    def check_prereq(self) -> AddPlan:
        if self.existing is not None:
            return self._check_readd(self.config.node(self.existing.uuid))
        op = self.op
        secondary_ip = op.secondary_ip or self.ip
        self._check_addresses(self.ip, secondary_ip)
        group = self._chosen_group()
        master_capable = op.master_capable is not False
        now = clock.now()
        node = Node(
            name=self.name,
            primary_ip=self.ip,
            secondary_ip=secondary_ip,
            master_candidate=False,
            offline=False,
            drained=False,
            group=group.uuid,
            master_capable=master_capable,
            vm_capable=op.vm_capable is not False,
            ndparams=checked_ndparams(op.ndparams or {}),
            powered=True,
            hv_state_static=merged_hv_state({}, op.hv_state or {}) or None,
            disk_state_static=merged_disk_state({}, op.disk_state or {}) or None,
            ctime=now,
            mtime=now,
            uuid=self.uuid,
            serial_no=1,
        )
        return self._check_machine(node, readd=False)

    def _check_readd(self, old: Node) -> AddPlan:
        if old.uuid == self.config.cluster().master_node:
            raise errors.OpPrereqError(
                f"node {old.name} is the master node and cannot be added again",
                errors.ECODE_STATE,
            )
        op = self.op
        if op.group is not None and self.config.expand_group(op.group).uuid != old.group:
            raise errors.OpPrereqError(
                f"the group of node {old.name} cannot change while it is added again",
                errors.ECODE_INVAL,
            )
        if self.ip != old.primary_ip or (op.secondary_ip or old.secondary_ip) != old.secondary_ip:
            raise errors.OpPrereqError(
                f"the addresses of node {old.name} cannot change while it is added again: it has"
                f" {old.primary_ip} and {old.secondary_ip}",
                errors.ECODE_INVAL,
            )
        node = updated(
            old,
            offline=False,
            drained=False,
            master_candidate=False,
            powered=True,
            master_capable=old.master_capable if op.master_capable is None else op.master_capable,
            vm_capable=old.vm_capable if op.vm_capable is None else op.vm_capable,
            ndparams={**old.ndparams, **checked_ndparams(op.ndparams or {})},
            hv_state_static=merged_hv_state(old.hv_state_static, op.hv_state or {}) or None,
            disk_state_static=merged_disk_state(old.disk_state_static, op.disk_state or {}) or None,
        )
        return self._check_machine(node, readd=True)

    def _chosen_group(self) -> NodeGroup:
        if self.op.group is not None:
            return self.config.expand_group(self.op.group)
        groups = list(self.config.snapshot().nodegroups.values())
        if len(groups) > 1:
            raise errors.OpPrereqError(
                "there are several node groups. Name the group of the node with --node-group.",
                errors.ECODE_INVAL,
            )
        return groups[0]

    def _check_addresses(self, primary_ip: str, secondary_ip: str) -> None:
        for ip in (primary_ip, secondary_ip):
            if not net.is_ip(ip):
                raise errors.OpPrereqError(f"{ip!r} is not an IP address", errors.ECODE_INVAL)
        for node in self.config.nodes():
            for ip in {primary_ip, secondary_ip} & {node.primary_ip, node.secondary_ip}:
                raise errors.OpPrereqError(
                    f"address {ip} is already in use by node {node.name}", errors.ECODE_NOTUNIQUE
                )
        master = self.config.master_node()
        if (master.primary_ip == master.secondary_ip) != (primary_ip == secondary_ip):
            has = "no" if master.primary_ip == master.secondary_ip else "a"
            raise errors.OpPrereqError(
                f"the master has {has} separate secondary address, and all nodes must be alike",
                errors.ECODE_INVAL,
            )

    def _check_machine(self, node: Node, *, readd: bool) -> AddPlan:
        """Check the node daemon of the machine: its version, its hypervisors and its storage.

        :raises errors.OpPrereqError: it does not answer, has another version, or cannot have the
            disks of instances.
        """
        address = {node.name: node.primary_ip}
        answer = self.rpc.call_addresses(VERSION, address)[node.name]
        if isinstance(answer.failure, errors.NodeUnreachable):
            if self.op.dry_run and self.op.node_setup:
                candidate = self._becomes_candidate(node)
                return AddPlan(updated(node, master_candidate=candidate), readd, None, True)
            raise errors.OpPrereqError(
                f"node {node.name} ({node.primary_ip}) does not answer: {answer.failure.message}."
                " Check that its node daemon runs with the cluster's certificate.",
                errors.ECODE_ENVIRON,
            ) from answer.failure
        version = answer.payload()
        if version != PROTOCOL_VERSION:
            raise errors.OpPrereqError(
                f"node {node.name} uses protocol {version}, the master {PROTOCOL_VERSION}. Install"
                " the same version on both.",
                errors.ECODE_ENVIRON,
            )
        if node.vm_capable:
            self._check_hypervisors(node, address)
            self._check_storage(node, address)
        if readd:
            guests.require_none_misplaced(self, node)
        becomes_candidate = self._becomes_candidate(node)
        digest = None
        if becomes_candidate or self.op.certificate is not None:
            digest = self._certificate(node)
        if becomes_candidate:
            node = updated(node, master_candidate=True, serial_no=node.serial_no)
        return AddPlan(node, readd, digest if becomes_candidate else None)

    def _certificate(self, node: Node) -> str:
        """The digest of the machine's client certificate.

        :raises errors.OpPrereqError: another machine answers than the one which the client knows.
        """
        found = candidates.certificate_digest(self, node)
        if self.op.certificate not in (None, found):
            raise errors.OpPrereqError(
                f"another machine answers at {node.primary_ip} than the one which is to become node"
                f" {node.name}: its certificate is {found}, not {self.op.certificate}. Find out"
                f" which machine has the address {node.primary_ip}.",
                errors.ECODE_ENVIRON,
            )
        return found

    def _check_hypervisors(self, node: Node, address: dict[str, str]) -> None:
        cluster = self.config.cluster()
        names = list(cluster.enabled_hypervisors)
        answer = self.rpc.call_addresses(
            NODE_VERIFY_LIGHT,
            address,
            checks={"hypervisor": names},
            cluster_name=cluster.cluster_name,
            all_hvparams={name: cluster.hvparams.get(name, {}) for name in names},
        )[node.name]
        found: dict[str, Any] = answer.payload().get("hypervisor") or {}
        for name, problem in found.items():
            if problem:
                self.warn(f"hypervisor {name} is not usable on node {node.name}: {problem}")

    def _check_storage(self, node: Node, address: dict[str, str]) -> None:
        """Check the volume group of the machine; the usermode helper of DRBD gives a warning.

        :raises errors.OpPrereqError: no disk could be put there.
        """
        data = self.config.snapshot()
        cluster = data.cluster
        ndparams = fill.fill_nd(cluster, data.nodegroups[node.group], node)
        checks = machine_storage.checks_of_new_node(
            cluster, exclusive=bool(ndparams.get("exclusive_storage"))
        )
        if not checks:
            return
        answer = self.rpc.call_addresses(
            NODE_VERIFY_LIGHT,
            address,
            checks=checks,
            cluster_name=cluster.cluster_name,
            all_hvparams={},
        )[node.name]
        facts: dict[str, Any] = dict(answer.payload())
        helper = {name: facts.pop(name) for name in (nv.DRBDHELPER,) if name in facts}
        found = machine_storage.problems(cluster, facts)
        if found:
            raise errors.OpPrereqError(
                f"node {node.name} cannot have disks of instances: {'; '.join(found)}. Repair"
                " that, or add the node with --vm-capable=no.",
                errors.ECODE_ENVIRON,
            )
        for problem in machine_storage.problems(cluster, helper):
            self.warn(f"node {node.name}: {problem}")

    def _becomes_candidate(self, node: Node) -> bool:
        data = self.config.snapshot()
        pool = data.cluster.candidate_pool_size
        return candidates.eligible(node) and candidates.present_count(data, [node.uuid]) < pool

    def steps(self, plan: AddPlan) -> list[str]:
        node = plan.node
        group = self.config.snapshot().nodegroups[node.group].name
        steps = []
        if plan.unprepared:
            steps.append(
                f"before the job: prepare machine {node.name} ({node.primary_ip}), which does not"
                " answer yet: send it the cluster's credentials and start its node daemon; then"
                " check its version, its hypervisors and its storage"
            )
        steps.append(
            f"add node {node.name} with address {node.primary_ip} "
            + ("again, neither offline nor drained" if plan.readd else f"to node group {group}")
        )
        if node.master_candidate:
            steps.append(f"make node {node.name} a master candidate")
        if not plan.readd and self.config.cluster().modify_etc_hosts:
            steps.append(f"add node {node.name} to /etc/hosts of all nodes")
        steps.append(f"send configuration and common files to node {node.name}")
        if ssh_keys.is_managed(self.config.cluster()):
            steps.append("update the SSH keys on all nodes")
        return steps

    def exec(self, plan: AddPlan) -> None:
        node = plan.node
        if plan.readd:
            self.info(f"the flags offline and drained of node {node.name} are cleared")
        if plan.digest is not None:
            self.info(f"node {node.name} will be a master candidate")
        with self.config.transaction() as change:
            if plan.readd:
                change.update_node(node)
            else:
                change.add_node(node, self.ctx.ec_id)
            change.set_candidate_cert(node.uuid, plan.digest)
        if plan.readd and not node.master_candidate:
            candidates.give_up(self, node)
        if not plan.readd:
            ssh_keys.name_in_etc_hosts(self, node, add=True)
        # All nodes get a new /etc/hosts.
        to_all = self.config.cluster().modify_etc_hosts and not plan.readd
        distribute_files(self, None if to_all else [node.uuid])
        ssh_keys.distribute(self)
