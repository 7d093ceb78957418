"""Adding a node: a machine whose node daemon already runs becomes a part of the cluster.

``gnt-node add`` prepares the machine before: it sends the cluster certificate and starts the node
daemon. This unit checks that the machine answers, writes it to the configuration and copies the
common files to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import distribute_files
from ganeti.cmdlib.ops.network.checks import require_unused
from ganeti.cmdlib.ops.node import candidates, guests
from ganeti.cmdlib.ops.params.group import merged_disk_state, merged_hv_state
from ganeti.cmdlib.ops.params.node import checked_ndparams
from ganeti.cmdlib.ops.verify import machine_storage
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.locking import Level
from ganeti.objects import Node, NodeGroup, fill, updated
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.opcodes.node import OpNodeAdd
from ganeti.platform import paths, watchdog_files
from ganeti.rpc.key_pins import pin_of
from ganeti.utils import clock, net, x509
from ganeti.utils.text import comma_join
from ganeti.wire.calls import (
    NODE_CONFIGURE_OVS,
    NODE_ENSURE_DAEMON,
    NODE_HAS_IP_ADDRESS,
    NODE_VERIFY_LIGHT,
    VERSION,
)

# What becomes of the flags of a node which is added again: is it drained, because of a maintenance?
_AGAIN = {False: "again, neither offline nor drained", True: "again, not offline, but drained"}


@dataclass(frozen=True, slots=True)
class AddPlan:
    """The node after the operation.

    :ivar readd: the node is in the configuration already.
    :ivar digest: digest of its certificate if it becomes a candidate, else None.
    :ivar former: its primary address until now; None for a new node.
    :ivar unprepared: only in a dry run: the machine does not answer yet, because the command would
        prepare it first.
    """

    node: Node
    readd: bool
    digest: str | None
    unprepared: bool = False
    former: str | None = None

    @property
    def named(self) -> bool:
        """Whether its name gets an address, a first one or another one."""
        return self.former != self.node.primary_ip


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
        self.uuid = self.config.new_uuid()
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
        secondary_ip = self._secondary_again(old)
        if (self.ip, secondary_ip) != (old.primary_ip, old.secondary_ip):
            self._check_addresses(self.ip, secondary_ip, node_uuid=old.uuid)
            self._warn_of_replication(old, secondary_ip)
        node = updated(
            old,
            primary_ip=self.ip,
            secondary_ip=secondary_ip,
            offline=False,
            # A node in maintenance gets no instances before the maintenance ends.
            drained=old.maintenance is not None,
            master_candidate=False,
            powered=True,
            auto_failover=None,
            watchdog=None,
            master_capable=old.master_capable if op.master_capable is None else op.master_capable,
            vm_capable=old.vm_capable if op.vm_capable is None else op.vm_capable,
            ndparams={**old.ndparams, **checked_ndparams(op.ndparams or {})},
            hv_state_static=merged_hv_state(old.hv_state_static, op.hv_state or {}) or None,
            disk_state_static=merged_disk_state(old.disk_state_static, op.disk_state or {}) or None,
        )
        return replace(self._check_machine(node, readd=True), former=old.primary_ip)

    def _secondary_again(self, old: Node) -> str:
        """Return the secondary address of a node which is added again.

        Without a separate one it is the primary address, also after its change; programs by others
        send the former one then.
        """
        wanted = self.op.secondary_ip or old.secondary_ip
        if old.secondary_ip == old.primary_ip == wanted:
            return self.ip
        return wanted

    def _warn_of_replication(self, old: Node, secondary_ip: str) -> None:
        """Name the running instances whose replicas do not connect over the new address yet."""
        if secondary_ip == old.secondary_ip:
            return
        running = sorted(
            instance.name
            for instance in self.config.instances()
            if instance.disks_active
            and old.uuid in self.config.instance_nodes(instance)
            and self.config.disk_template(instance) in INT_MIRRORED
        )
        if running:
            self.log.warn(
                f"the disks of instances {comma_join(running)} were connected over the former"
                f" address {old.secondary_ip} of node {old.name}",
                hint="Their replicas use the new address from the next start of each instance.",
            )

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

    def _check_addresses(
        self, primary_ip: str, secondary_ip: str, *, node_uuid: str | None = None
    ) -> None:
        for ip in (primary_ip, secondary_ip):
            if not net.is_ip(ip):
                raise errors.OpPrereqError(f"{ip!r} is not an IP address", errors.ECODE_INVAL)
        require_unused(
            self.config, (primary_ip, secondary_ip), f"node {self.name}", owner_uuid=node_uuid
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
        answer = self.rpc.first_contact(VERSION, address)[node.name]
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
        node = self._with_key(node, answer.certificate)
        self._check_has_address(node, address)
        if node.vm_capable:
            self._check_hypervisors(node, address)
            self._check_storage(node, address)
        if readd:
            guests.require_none_misplaced(self.ctx, node)
        becomes_candidate = self._becomes_candidate(node)
        digest = None
        if becomes_candidate:
            digest = candidates.certificate_digest(self.rpc, node)
            node = updated(node, master_candidate=True, serial_no=node.serial_no)
        return AddPlan(node, readd, digest)

    def _with_key(self, node: Node, certificate: str) -> Node:
        """Return the node with the key which its machine has shown; further calls expect it.

        :param certificate: which the machine has shown, in PEM.
        :raises errors.OpPrereqError: another machine answers than the one which the client knows.
        """
        found = x509.digest(certificate) if certificate else "not known"
        if self.op.certificate not in (None, found):
            raise errors.OpPrereqError(
                f"another machine answers at {node.primary_ip} than the one which is to become node"
                f" {node.name}: its certificate is {found}, not {self.op.certificate}. Find out"
                f" which machine has the address {node.primary_ip}. When the node daemon has a"
                " certificate of its own (option -C), use --no-node-setup.",
                errors.ECODE_ENVIRON,
            )
        pin = pin_of(certificate)
        pins = None if pin is None else (pin,)
        others = [
            other.name
            for other in self.config.nodes()
            if other.uuid != node.uuid and pin in (other.key_pins or ())
        ]
        if others:
            raise errors.OpPrereqError(
                f"the machine at {node.primary_ip} has the key of node {others[0]}, so it is not"
                f" {node.name}. Find out which machine has the address {node.primary_ip}. When it"
                f" is a copy of {others[0]}, stop its daemons, remove server.pem and client.pem"
                f" from {paths.current().data_dir} there, and add it once more.",
                errors.ECODE_ENVIRON,
            )
        if node.key_pins and pins != node.key_pins:
            self.log.info(
                f"node {node.name} had the key {' or '.join(node.key_pins)}; from now on it has"
                f" {pin or 'no key of its own'}"
            )
        self.rpc.expect_keys({node.primary_ip: pins})
        return replace(node, key_pins=pins)

    def _check_has_address(self, node: Node, address: dict[str, str]) -> None:
        """Check that the machine has the secondary address; replicas would go to another one.

        :raises errors.OpPrereqError: it has not.
        """
        if node.secondary_ip == node.primary_ip:
            return
        answer = self.rpc.call_addresses(NODE_HAS_IP_ADDRESS, address, address=node.secondary_ip)[
            node.name
        ]
        if not answer.payload():
            raise errors.OpPrereqError(
                f"the machine of node {node.name} does not have the secondary address"
                f" {node.secondary_ip}. Configure it there, or give the right one with"
                " --secondary-ip.",
                errors.ECODE_ENVIRON,
            )

    def _check_hypervisors(self, node: Node, address: dict[str, str]) -> None:
        cluster = self.config.cluster()
        names = list(fill.group_hypervisors(cluster, self.config.group(node.group)))
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
                self.log.warn(f"hypervisor {name} is not usable on node {node.name}: {problem}")

    def _check_storage(self, node: Node, address: dict[str, str]) -> None:
        """Check the volume groups of the machine; the usermode helper of DRBD gives a warning.

        :raises errors.OpPrereqError: no disk could be put there.
        """
        data = self.config.snapshot()
        cluster = data.cluster

        def ask(checks: dict[str, Any]) -> dict[str, Any]:
            answers = self.rpc.call_addresses(
                NODE_VERIFY_LIGHT,
                address,
                checks=checks,
                cluster_name=cluster.cluster_name,
                all_hvparams={},
            )
            return dict(answers[node.name].payload())

        group = data.nodegroups[node.group]
        found, doubts = machine_storage.of_capable_node(cluster, group, node, ask)
        if found:
            raise errors.OpPrereqError(
                f"node {node.name} cannot have disks of instances: {'; '.join(found)}. Repair"
                " that, or add the node with --vm-capable=no.",
                errors.ECODE_ENVIRON,
            )
        for problem in doubts:
            self.log.warn(f"node {node.name}: {problem}")

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
            + (f"to node group {group}" if not plan.readd else _AGAIN[node.drained])
        )
        if node.master_candidate:
            steps.append(f"make node {node.name} a master candidate")
        if plan.former and plan.named:
            steps.append(f"change its primary address from {plan.former} to {node.primary_ip}")
        if plan.named and self.config.cluster().modify_etc_hosts:
            steps.append(f"add node {node.name} to /etc/hosts of all nodes")
        steps.append(f"send configuration and common files to node {node.name}")
        if ssh_keys.is_managed(self.config.cluster()):
            steps.append("update the SSH keys on all nodes")
        return steps

    def _configure_switch(self, node: Node) -> None:
        """Make the Open vSwitch which the parameters of the node name.

        :raises errors.OpExecError: it cannot be made; the node is not added.
        """
        data = self.config.snapshot()
        params = fill.fill_nd(data.cluster, data.nodegroups[node.group], node)
        if not params["ovs"]:
            return
        self.log.info(f"making Open vSwitch {params['ovs_name']} on node {node.name}")
        answer = self.rpc.call_addresses(
            NODE_CONFIGURE_OVS,
            {node.name: node.primary_ip},
            ovs_name=params["ovs_name"],
            ovs_link=params["ovs_link"] or None,
        )[node.name]
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {node.name} is not added, because its switch could not be made:"
                f" {why(answer.failure)}"
            )

    def exec(self, plan: AddPlan) -> None:
        node = plan.node
        if plan.readd:
            if node.drained:
                self.log.info(
                    f"node {node.name} is in maintenance, and stays drained until it ends"
                )
            else:
                self.log.info(f"the flags offline and drained of node {node.name} are cleared")
        if plan.digest is not None:
            self.log.info(f"node {node.name} will be a master candidate")
        self._configure_switch(node)
        with self.config.transaction() as change:
            if plan.readd:
                change.nodes.update(node)
            else:
                change.nodes.add(node)
            change.cluster.set_candidate_cert(node.uuid, plan.digest)
        if plan.readd and not node.master_candidate:
            candidates.give_up(self.rpc, self.log, node)
        if plan.named:
            ssh_keys.name_in_etc_hosts(self.ctx, node, add=True)
        # All nodes get a new /etc/hosts.
        to_all = self.config.cluster().modify_etc_hosts and plan.named
        distribute_files(self.ctx, None if to_all else [node.uuid])
        ssh_keys.distribute(self.ctx)
        cluster = self.config.cluster()
        for daemon, needed in (
            ("ganeti-failoverd", cluster.auto_failover),
            (watchdog_files.DAEMON, cluster.node_watchdog),
        ):
            if needed is None:
                continue
            answer = self.rpc.call(NODE_ENSURE_DAEMON, node.uuid, daemon=daemon, run=True)
            if answer.failure is not None:
                self.log.warn(f"node {node.name}: {daemon} was not started: {why(answer.failure)}")
