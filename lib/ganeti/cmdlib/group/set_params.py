"""Changing the parameters of a node group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.locks import instances_of_group, require_still_same
from ganeti.cmdlib.ops.group.hooks import GroupHooks
from ganeti.cmdlib.ops.params import group as params
from ganeti.cmdlib.ops.policy import instance
from ganeti.cmdlib.ops.verify import machine_storage
from ganeti.locking import Level
from ganeti.objects import NodeGroup, fill, updated
from ganeti.opcodes.group import OpGroupSetParams
from ganeti.utils.text import natural_key


@dataclass(frozen=True, slots=True)
class GroupChangePlan:
    """The group after the change.

    :ivar changes: pairs of parameter and new value, which the user is shown.
    :ivar violators: names of the instances which violate the new policy, but not the old one.
    """

    new: NodeGroup
    changes: list[tuple[str, str]]
    violators: list[str]


@executes(OpGroupSetParams)
class LUGroupSetParams(LogicalUnit[OpGroupSetParams, GroupChangePlan]):
    """Change parameters of a node group; warn about instances which violate the new policy."""

    HOOKS = GroupHooks("group-modify")

    def expand_names(self) -> None:
        op = self.op
        values = (
            op.alloc_policy,
            op.ndparams,
            op.diskparams,
            op.hv_state,
            op.disk_state,
            op.ipolicy,
            op.enabled_hypervisors,
        )
        if all(value is None for value in values):
            raise errors.OpPrereqError("no change is given", errors.ECODE_INVAL)
        self.group = self.config.expand_group(op.group_name)
        self.guessed = frozenset[str]()
        if op.ipolicy is not None or op.enabled_hypervisors is not None:
            self.guessed = instances_of_group(self, self.group.uuid)
            self.need(Level.INSTANCE, self.guessed, shared=True)
        self.need(Level.NODEGROUP, [self.group.uuid])

    def hook_env(self, plan: GroupChangePlan) -> dict[str, object]:
        return {"GROUP_NAME": self.op.group_name, "NEW_ALLOC_POLICY": self.op.alloc_policy}

    def hook_nodes(self, plan: GroupChangePlan) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> GroupChangePlan:
        op, cluster = self.op, self.config.cluster()
        group = self.config.group(self.group.uuid)
        if op.ipolicy is not None or op.enabled_hypervisors is not None:
            now = instances_of_group(self, group.uuid)
            require_still_same(self.guessed, now, f"instances of group {group.name}")
        values: dict[str, Any] = {}
        if op.alloc_policy is not None:
            values["alloc_policy"] = op.alloc_policy
        if op.ndparams is not None:
            values["ndparams"] = params.merged_ndparams(group.ndparams, op.ndparams)
        if op.diskparams is not None:
            values["diskparams"] = params.merged_diskparams(group.diskparams, op.diskparams)
        if op.hv_state is not None:
            values["hv_state_static"] = params.merged_hv_state(group.hv_state_static, op.hv_state)
        if op.disk_state is not None:
            values["disk_state_static"] = params.merged_disk_state(
                group.disk_state_static, op.disk_state
            )
        if op.ipolicy is not None:
            values["ipolicy"] = params.merged_ipolicy(cluster, group.ipolicy, op.ipolicy)
        if op.enabled_hypervisors is not None:
            values["enabled_hypervisors"] = params.chosen_hypervisors(
                cluster, op.enabled_hypervisors
            )
        new = updated(group, **values)
        self._require_hypervisors(new)
        self._require_metavg(group, new)
        # Only these parameters are published in the result of this opcode.
        changes = [
            (name, str(value))
            for name, value in values.items()
            if name in ("ndparams", "diskparams")
        ]
        if op.enabled_hypervisors is not None:
            present = fill.group_hypervisors(cluster, new)
            changes.append(("enabled_hypervisors", ",".join(present)))
        return GroupChangePlan(new, changes, self._violators(group, new))

    def _require_hypervisors(self, new: NodeGroup) -> None:
        """Check that all instances of the group still have their hypervisor."""
        if self.op.enabled_hypervisors is None:
            return
        present = fill.group_hypervisors(self.config.cluster(), new)
        without = [
            f"{instance.name} ({instance.hypervisor})"
            for instance in map(self.config.instance, self.guessed)
            if instance.hypervisor not in present
        ]
        if without:
            raise errors.OpPrereqError(
                f"instances of group {new.name} need other hypervisors:"
                f" {', '.join(sorted(without, key=natural_key))}. Move them to another group, or"
                " stop them and change their hypervisor with 'gnt-instance modify -H'",
                errors.ECODE_STATE,
            )

    def _require_metavg(self, old: NodeGroup, new: NodeGroup) -> None:
        """Check that the nodes of the group have its new volume group for metadata of DRBD.

        :raises errors.OpPrereqError: one has not; with *force*, this is a warning, as is one that
            does not answer.
        """
        cluster = self.config.cluster()
        metavg = fill.metavg(cluster, new)
        if self.op.diskparams is None or metavg == fill.metavg(cluster, old):
            return
        nodes = [
            node.uuid
            for node in self.config.vm_capable_nodes()
            if node.group == new.uuid and not node.offline
        ]
        lacking, unknown = machine_storage.without_metavg(self.rpc, cluster, nodes, metavg)
        if lacking and not self.op.force:
            raise errors.OpPrereqError(
                f"group {new.name} cannot have its metadata of DRBD in volume group {metavg}:"
                f" {'; '.join(lacking)}. Create the volume group there first, or use --force to go"
                " on.",
                errors.ECODE_ENVIRON,
            )
        for problem in (*lacking, *unknown):
            self.log.warn(problem)

    def _violators(self, old: NodeGroup, new: NodeGroup) -> list[str]:
        """Return the names of the instances which violate the new policy, and not the old one."""
        if self.op.ipolicy is None:
            return []
        cluster = self.config.cluster()
        before, after = (fill.fill_ipolicy(cluster.ipolicy, group.ipolicy) for group in (old, new))
        found = []
        for uuid in self.guessed:
            filled = self.config.filled(self.config.instance(uuid))
            if instance.newly_violates(before, after, filled):
                found.append(filled.name)
        return sorted(found, key=natural_key)

    def exec(self, plan: GroupChangePlan) -> list[tuple[str, str]]:
        with self.config.transaction() as change:
            change.groups.update(plan.new)
        if plan.violators:
            self.log.warn(
                f"instances which violate the new policy of group {plan.new.name}:"
                f" {', '.join(plan.violators)}"
            )
        return plan.changes
