"""Changing the role, the flags and the parameters of a node.

:mod:`ganeti.cmdlib.ops.node.roles` finds the role which follows from the flags, and the
requirements of its change. This unit checks the requirements, writes the configuration and updates
SSH keys and copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.network.checks import require_unused
from ganeti.cmdlib.ops.node import candidates, guests, roles
from ganeti.cmdlib.ops.node.roles import FLAG_OF, Role
from ganeti.cmdlib.ops.params.group import merged_disk_state, merged_hv_state
from ganeti.cmdlib.ops.params.node import checked_ndparams
from ganeti.cmdlib.ops.verify import machine_storage
from ganeti.locking import ALL, Level
from ganeti.objects import Instance, Node, fill, updated
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.utils import net
from ganeti.wire.calls import NODE_HAS_IP_ADDRESS, NODE_VERIFY, VERSION

# Flags which are not those of roles, in the order in which changes are reported.
_PLAIN_FLAGS = ("master_capable", "vm_capable", "powered")


@dataclass(frozen=True, slots=True)
class NodeChangePlan:
    """The node before and after the change.

    :ivar transition: requirements and consequences of the change of role.
    :ivar changes: pairs of parameter and new value, which the user is shown.
    :ivar misplaced: instances whose guests still run on a node which comes back, and which belong
        to other nodes.
    """

    old: Node
    new: Node
    transition: roles.Transition
    changes: list[tuple[str, str]]
    misplaced: list[Instance]


@executes(OpNodeSetParams)
class LUNodeSetParams(LogicalUnit[OpNodeSetParams, NodeChangePlan]):
    """Change flags and parameters of a node."""

    HOOKS = NodeHooks("node-modify")

    def expand_names(self) -> None:
        op = self.op
        self.flags = roles.RequestedFlags(
            op.master_candidate, op.drained, op.offline, op.master_capable
        )
        values: list[Any] = [op.master_candidate, op.drained, op.offline, op.master_capable]
        values += [op.vm_capable, op.ndparams, op.powered, op.secondary_ip]
        values += [op.hv_state or None, op.disk_state or None]
        if all(value is None for value in values):
            raise errors.OpPrereqError("no change is given", errors.ECODE_INVAL)
        node = self.config.expand_node(op.node_name)
        self.node = node
        if op.auto_promote:
            # Another node may become a candidate.
            self.lock_nodes(ALL, resources=True)
        else:
            self.lock_node(op.node_name, op.node_uuid, resources=True)
        if op.vm_capable is False or op.secondary_ip is not None:
            self.need(Level.INSTANCE, ALL, shared=True)

    def hook_env(self, plan: NodeChangePlan) -> dict[str, object]:
        return {
            "OP_TARGET": self.node.name,
            "MASTER_CANDIDATE": self.op.master_candidate,
            "OFFLINE": self.op.offline,
            "DRAINED": self.op.drained,
            "MASTER_CAPABLE": self.op.master_capable,
            "VM_CAPABLE": self.op.vm_capable,
        }

    def hook_nodes(self, plan: NodeChangePlan) -> tuple[list[str], list[str]]:
        nodes = [self.config.master_node().uuid, self.node.uuid]
        return nodes, nodes

    def check_prereq(self) -> NodeChangePlan:
        data = self.config.snapshot()
        node = self.config.node(self.node.uuid)
        master_capable = _either(self.op.master_capable, node.master_capable)
        present = roles.role_of(node, data.cluster.master_node)
        others = candidates.present_count(data, [node.uuid])
        role = roles.requested_role(
            node.name,
            present,
            self.flags,
            master_capable=master_capable,
            pool_not_full=others < data.cluster.candidate_pool_size,
        )
        transition = roles.transition(node.name, present, role)
        self._check_maintenance(node, role)
        self._check_capable(node)
        self._check_power(node, present, role)
        if self.op.secondary_ip is not None:
            self._check_secondary_ip(node, self.op.secondary_ip)
        misplaced: list[Instance] = []
        if transition.answers:
            self._check_back(node)
        self._check_storage(node, role)
        if transition.answers:
            misplaced = guests.misplaced(self.ctx, node, force=self.op.force)
        if role is Role.OFFLINE and present is not Role.OFFLINE:
            guests.require_none(self.ctx, node, force=self.op.force)
        if transition.leaves:
            self._check_pool(node)
        if transition.enlists and not self.op.master_candidate:
            self.log.info(
                f"node {node.name} becomes a master candidate, because there are fewer than"
                " candidate_pool_size"
            )
        return self._plan(node, present, role, transition, misplaced)

    def _check_maintenance(self, node: Node, role: Role) -> None:
        mark = node.maintenance
        if mark is None or mark.returning or role in (Role.DRAINED, Role.OFFLINE):
            return
        if role is roles.role_of(node, self.config.cluster().master_node):
            return
        raise errors.OpPrereqError(
            f"node {node.name} is in maintenance and gets no instances before its end. Use"
            f" 'gnt-node maintenance end {node.name}', which also brings back what has left it.",
            errors.ECODE_STATE,
        )

    def _check_capable(self, node: Node) -> None:
        if self.op.vm_capable is False and any(self.config.node_instances(node.uuid)):
            raise errors.OpPrereqError(
                f"node {node.name} has instances, so vm_capable cannot be cleared",
                errors.ECODE_STATE,
            )

    def _check_storage(self, node: Node, role: Role) -> None:
        """Check the storage of a node which gets the right to have instances.

        When it was added, it was not checked. A node which stays offline cannot be asked; one
        which comes back is asked at its address.

        :raises errors.OpPrereqError: no disk could be put there; with *force*, this is a warning.
        """
        if not self.op.vm_capable or node.vm_capable or role is Role.OFFLINE:
            return
        data = self.config.snapshot()

        def ask(checks: dict[str, Any]) -> dict[str, Any]:
            answers = self.rpc.call_addresses(
                NODE_VERIFY,
                {node.name: node.primary_ip},
                checks=checks,
                cluster_name=data.cluster.cluster_name,
                all_hvparams={},
            )
            return dict(answers[node.name].payload())

        group = data.nodegroups[node.group]
        found, doubts = machine_storage.of_capable_node(data.cluster, group, node, ask)
        if found and not self.op.force:
            raise errors.OpPrereqError(
                f"node {node.name} cannot have disks of instances: {'; '.join(found)}. Repair"
                " that, or use --force to go on.",
                errors.ECODE_ENVIRON,
            )
        for problem in (*found, *doubts):
            self.log.warn(f"node {node.name}: {problem}")

    def _check_power(self, node: Node, present: Role, role: Role) -> None:
        data = self.config.snapshot()
        ndparams = fill.fill_nd(data.cluster, data.nodegroups[node.group], node)
        if not ndparams["oob_program"]:
            if self.op.powered is not None:
                raise errors.OpPrereqError(
                    f"node {node.name} has no out-of-band helper program, so its power cannot be"
                    " managed. Set the node parameter oob_program.",
                    errors.ECODE_STATE,
                )
            return
        powered = _either(self.op.powered, node.powered)
        if present is Role.OFFLINE and role is not Role.OFFLINE and not powered:
            raise errors.OpPrereqError(
                f"node {node.name} is powered off. Switch it on before it is marked online.",
                errors.ECODE_STATE,
            )
        if self.op.powered is False and role is not Role.OFFLINE:
            raise errors.OpPrereqError(
                f"node {node.name} is not marked offline, so it cannot be marked as powered off",
                errors.ECODE_STATE,
            )

    def _check_secondary_ip(self, node: Node, address: str) -> None:
        if not net.is_ipv4(address):
            raise errors.OpPrereqError(
                f"secondary address {address!r} is not an IPv4 address", errors.ECODE_INVAL
            )
        require_unused(self.config, [address], f"node {node.name}", owner_uuid=node.uuid)
        self._check_homes(node, address)
        mirrored = sorted(
            instance.name
            for instance in self.config.instances()
            if node.uuid in self.config.instance_nodes(instance)
            and self.config.disk_template(instance) in INT_MIRRORED
        )
        if mirrored:
            raise errors.OpPrereqError(
                f"the disks of instances {', '.join(mirrored)} are replicated over the secondary"
                f" address of node {node.name}. Move the instances away first.",
                errors.ECODE_STATE,
            )
        if node.offline:
            return
        answer = self.rpc.call(NODE_HAS_IP_ADDRESS, node.uuid, address=address)
        if not answer.payload():
            raise errors.OpPrereqError(
                f"node {node.name} does not have the address {address}", errors.ECODE_ENVIRON
            )

    def _check_homes(self, node: Node, address: str) -> None:
        """Check that either all nodes have a separate secondary address, or none."""
        master = self.config.master_node()
        own = address != node.primary_ip
        if node.uuid == master.uuid:
            others = [n for n in self.config.nodes() if n.uuid != node.uuid]
            unlike = [n.name for n in others if (n.primary_ip != n.secondary_ip) != own]
            if unlike and not self.op.force:
                raise errors.OpPrereqError(
                    f"either all nodes or none must have a separate secondary address, but nodes"
                    f" {', '.join(unlike)} would differ from the master. Use --force to change the"
                    " master first.",
                    errors.ECODE_INVAL,
                )
            return
        if own != (master.primary_ip != master.secondary_ip):
            has = "a" if not own else "no"
            raise errors.OpPrereqError(
                f"the master has {has} separate secondary address, and all nodes must be alike",
                errors.ECODE_INVAL,
            )

    def _check_back(self, node: Node) -> None:
        """Check that a node which was offline answers.

        :raises errors.OpPrereqError: it does not.
        """
        answer = self.rpc.call_addresses(VERSION, {node.name: node.primary_ip})[node.name]
        if answer.failure is not None:
            raise errors.OpPrereqError(
                f"node {node.name} does not answer and stays offline: {why(answer.failure)}. Add a"
                " machine which was set up again with 'gnt-node add --readd'.",
                errors.ECODE_ENVIRON,
            ) from answer.failure

    def _check_pool(self, node: Node) -> None:
        data = self.config.snapshot()
        without = [node.uuid]
        if candidates.present_count(data, without) >= candidates.wanted_count(data, without):
            return
        if self.op.force:
            self.log.warn("there will be fewer master candidates than candidate_pool_size")
        elif not self.op.auto_promote:
            raise errors.OpPrereqError(
                "there would be too few master candidates. Use --auto-promote to promote another"
                " node.",
                errors.ECODE_STATE,
            )

    def _plan(
        self,
        node: Node,
        present: Role,
        role: Role,
        transition: roles.Transition,
        misplaced: list[Instance],
    ) -> NodeChangePlan:
        op = self.op
        values: dict[str, Any] = {}
        if node.auto_failover is not None and role is not Role.OFFLINE:
            values["auto_failover"] = None
        if node.watchdog is not None and present is Role.OFFLINE and role is not Role.OFFLINE:
            values["watchdog"] = None
        changes: list[tuple[str, str]] = []
        for name in _PLAIN_FLAGS:
            value = getattr(op, name)
            if value is not None and value != getattr(node, name):
                values[name] = value
                changes.append((name, str(value)))
        if role is not present:
            for of_role, flag in FLAG_OF.items():
                new = role is of_role
                if new != getattr(node, flag):
                    values[flag] = new
                    changes.append((flag, str(new)))
        if op.secondary_ip is not None and op.secondary_ip != node.secondary_ip:
            values["secondary_ip"] = op.secondary_ip
            changes.append(("secondary_ip", op.secondary_ip))
        if op.ndparams is not None:
            reset = {key for key, value in op.ndparams.items() if value == "default"}
            own = {key: value for key, value in op.ndparams.items() if key not in reset}
            merged = {**node.ndparams, **checked_ndparams(own)}
            values["ndparams"] = {k: v for k, v in merged.items() if k not in reset}
            changes.append(("ndparams", str(values["ndparams"])))
        if op.hv_state:
            values["hv_state_static"] = merged_hv_state(node.hv_state_static, op.hv_state)
            changes.append(("hv_state", str(values["hv_state_static"])))
        if op.disk_state:
            values["disk_state_static"] = merged_disk_state(node.disk_state_static, op.disk_state)
            changes.append(("disk_state", str(values["disk_state_static"])))
        return NodeChangePlan(node, updated(node, **values), transition, changes, misplaced)

    def exec(self, plan: NodeChangePlan) -> list[tuple[str, str]]:
        new = plan.new
        # Before anybody starts these instances, or connects to their replicas on this node.
        guests.stop(self.rpc, self.log, plan.old, plan.misplaced, self.op.reason)
        if plan.transition.enlists:
            digest = candidates.certificate_digest(self.rpc, new)
            with self.config.transaction() as change:
                change.nodes.update(new)
                change.cluster.set_candidate_cert(new.uuid, digest)
        else:
            with self.config.transaction() as change:
                change.nodes.update(new)
        guests.release_disks(self.ctx, new, plan.misplaced)
        returns = plan.old.offline and not new.offline
        if (plan.old.master_candidate or returns) and not new.master_candidate:
            # A node which was offline when it was demoted still has its old copies.
            candidates.give_up(self.rpc, self.log, new)
        if plan.transition.leaves and self.op.auto_promote:
            candidates.fill_pool(self.ctx, without=[new.uuid])
        if (
            plan.transition.leaves
            or plan.transition.enlists
            or new.offline != plan.old.offline
            or new.ndparams != plan.old.ndparams
        ):
            ssh_keys.distribute(self.ctx)
        if new.offline and not plan.old.offline:
            names = [instance.name for instance in self.config.node_instances(new.uuid)[0]]
            if names:
                self.log.warn(
                    f"offline node {new.name} is the primary node of {', '.join(names)}",
                    hint=f"Move them to other nodes with 'gnt-node evacuate {new.name}'.",
                )
        return plan.changes


def _either(requested: bool | None, present: bool) -> bool:
    return present if requested is None else requested
