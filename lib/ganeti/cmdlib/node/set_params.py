"""Changing the role and the parameters of a node.

A node is in one of four roles: master candidate, drained, offline, or none of these (regular). The
master keeps its role.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.hooks import NodeHooks
from ganeti.cmdlib.node import candidates
from ganeti.cmdlib.node.params import checked_ndparams
from ganeti.locking import ALL, Level
from ganeti.objects import Node, updated
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.wire.calls import VERSION


class Role(Enum):
    """What a node is for the cluster."""

    CANDIDATE = "master_candidate"
    DRAINED = "drained"
    OFFLINE = "offline"
    REGULAR = "regular"


FLAGS = (Role.CANDIDATE, Role.DRAINED, Role.OFFLINE)


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The node with its new values, and the pairs which are reported."""

    old: Node
    new: Node
    changes: list[tuple[str, str]]


def role_of(node: Node) -> Role:
    """The present role."""
    if node.offline:
        return Role.OFFLINE
    if node.drained:
        return Role.DRAINED
    return Role.CANDIDATE if node.master_candidate else Role.REGULAR


@executes(OpNodeSetParams)
class LUNodeSetParams(LogicalUnit):
    """Change flags and parameters of a node."""

    op: OpNodeSetParams
    HOOKS = NodeHooks("node-modify")

    def expand_names(self) -> None:
        op = self.op
        flags = [op.master_candidate, op.drained, op.offline]
        values: list[Any] = [*flags, op.master_capable, op.vm_capable, op.ndparams, op.powered]
        values += [op.secondary_ip, op.hv_state or None, op.disk_state or None]
        if all(value is None for value in values):
            raise errors.OpPrereqError("no change is given", errors.ECODE_INVAL)
        if sum(1 for flag in flags if flag) > 1:
            raise errors.OpPrereqError(
                "a node can be only one of master candidate, drained and offline",
                errors.ECODE_INVAL,
            )
        if op.secondary_ip is not None:
            raise errors.OpPrereqError(
                "the secondary address of a node cannot be changed by this version",
                errors.ECODE_INVAL,
            )
        node = self.config.expand_node(op.node_name)
        self.node = node
        if op.auto_promote:
            # Any other node may change too.
            self.lock_nodes(ALL, resources=True)
        else:
            self.lock_node(op.node_name, op.node_uuid, resources=True)
        if op.vm_capable is False:
            self.need(Level.INSTANCE, ALL, shared=True)

    def hook_env(self, plan: SetPlan) -> dict[str, object]:
        return {
            "OP_TARGET": self.node.name,
            "MASTER_CANDIDATE": self.op.master_candidate,
            "OFFLINE": self.op.offline,
            "DRAINED": self.op.drained,
            "MASTER_CAPABLE": self.op.master_capable,
            "VM_CAPABLE": self.op.vm_capable,
        }

    def hook_nodes(self, plan: SetPlan) -> tuple[list[str], list[str]]:
        nodes = [self.config.master_node().uuid, self.node.uuid]
        return nodes, nodes

    def check_prereq(self) -> SetPlan:
        node = self.config.node(self.node.uuid)
        if node.uuid == self.config.cluster().master_node:
            self._check_master(node)
        old_role = role_of(node)
        role = self._wanted_role(old_role)
        master_capable = _either(self.op.master_capable, node.master_capable)
        if role is Role.CANDIDATE and not master_capable:
            if self.op.master_candidate:
                raise errors.OpPrereqError(
                    f"node {node.name} is not capable of being master", errors.ECODE_INVAL
                )
            role = Role.REGULAR
        if self.op.vm_capable is False and any(self.config.node_instances(node.uuid)):
            raise errors.OpPrereqError(
                f"node {node.name} has instances, so it must stay vm_capable", errors.ECODE_STATE
            )
        if role is Role.REGULAR and old_role in (Role.OFFLINE, Role.DRAINED):
            role = self._after_return(node, master_capable)
        if old_role is Role.OFFLINE and role is not Role.OFFLINE:
            self._check_back(node)
        if old_role is Role.CANDIDATE and role is not Role.CANDIDATE:
            self._check_pool(node)
        return self._plan(node, old_role, role)

    def _check_master(self, node: Node) -> None:
        op = self.op
        if op.master_candidate is False or op.offline or op.drained or op.master_capable is False:
            raise errors.OpPrereqError(
                f"node {node.name} is the master, its role cannot be changed like this",
                errors.ECODE_INVAL,
            )

    def _wanted_role(self, old: Role) -> Role:
        for role in FLAGS:
            if getattr(self.op, role.value):
                if role is Role.CANDIDATE and self._stays(old):
                    raise errors.OpPrereqError(
                        f"node {self.node.name} is {old.value} and cannot be a master candidate",
                        errors.ECODE_INVAL,
                    )
                return role
        for role in FLAGS:
            if getattr(self.op, role.value) is False and role is old:
                return Role.REGULAR
        return old

    def _stays(self, old: Role) -> bool:
        return old in (Role.OFFLINE, Role.DRAINED) and getattr(self.op, old.value) is not False

    def _after_return(self, node: Node, master_capable: bool) -> Role:
        """A node which was offline or drained fills a gap in the candidate pool."""
        data = self.config.snapshot()
        gap = candidates.present_count(data, [node.uuid]) < data.cluster.candidate_pool_size
        if not (master_capable and gap) or self.op.master_candidate is False:
            return Role.REGULAR
        self.info(f"node {node.name} becomes a master candidate, because there is room for one")
        return Role.CANDIDATE

    def _check_back(self, node: Node) -> None:
        """A node which was offline must answer before it is used again."""
        answer = self.rpc.call_addresses(VERSION, {node.name: node.primary_ip})[node.name]
        if answer.failure is not None:
            raise errors.OpPrereqError(
                f"node {node.name} does not answer and stays offline: {answer.failure}. A machine"
                " which"
                " was set up anew is added with 'gnt-node add --readd'.",
                errors.ECODE_ENVIRON,
            ) from answer.failure

    def _check_pool(self, node: Node) -> None:
        data = self.config.snapshot()
        without = [node.uuid]
        if candidates.present_count(data, without) >= candidates.wanted_count(data, without):
            return
        if self.op.force:
            self.warn("there will be fewer master candidates than there should be")
        elif not self.op.auto_promote:
            raise errors.OpPrereqError(
                "there would be too few master candidates. Let another node be promoted with"
                " --auto-promote.",
                errors.ECODE_STATE,
            )

    def _plan(self, node: Node, old_role: Role, role: Role) -> SetPlan:
        op = self.op
        values: dict[str, Any] = {}
        changes: list[tuple[str, str]] = []
        for name in ("master_capable", "vm_capable", "powered"):
            wish = getattr(op, name)
            if wish is not None and wish != getattr(node, name):
                values[name] = wish
                changes.append((name, str(wish)))
        for flag in FLAGS:
            new = role is flag
            if new != (old_role is flag):
                values[flag.value] = new
                changes.append((flag.value, str(new)))
        if op.ndparams is not None:
            reset = {key for key, value in op.ndparams.items() if value == "default"}
            own = {key: value for key, value in op.ndparams.items() if key not in reset}
            merged = {**node.ndparams, **checked_ndparams(own)}
            values["ndparams"] = {k: v for k, v in merged.items() if k not in reset}
            changes.append(("ndparams", str(values["ndparams"])))
        if op.hv_state:
            values["hv_state_static"] = op.hv_state
        if op.disk_state:
            values["disk_state_static"] = op.disk_state
        return SetPlan(node, updated(node, **values), changes)

    def exec(self, plan: SetPlan) -> list[tuple[str, str]]:
        old, new = plan.old, plan.new
        if new.master_candidate and not old.master_candidate:
            digest = candidates.certificate_digest(self, new)
            with self.config.transaction() as change:
                change.update_node(new)
                change.set_candidate_cert(new.uuid, digest)
        else:
            self.config.update_node(new)
        if old.master_candidate and not new.master_candidate and self.op.auto_promote:
            candidates.fill_pool(self, without=[new.uuid])
        return plan.changes


def _either(wish: bool | None, present: bool) -> bool:
    return present if wish is None else wish
