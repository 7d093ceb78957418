"""Change an instance: parameters, devices, disk template, primary node, marked state.

Everything is checked first, the changes of devices in the given order. Then the changes which need
work on nodes are made (:mod:`ganeti.cmdlib.ops.disks.modify`,
:mod:`ganeti.cmdlib.ops.disks.convert`); parameters and NICs go into the configuration in one change
at the end. Devices and processors of a running guest are changed at once where its hypervisor can,
everything else takes effect with its next start.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import HookedUnit, InstanceHooks, filled_instance_env
from ganeti.cmdlib.ops.disks import convert, mirror, specs
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import modify as disk_modify
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.nics import communication
from ganeti.cmdlib.ops.nics import modify as nic_modify
from ganeti.cmdlib.ops.params import devices, modify_instance, pending
from ganeti.cmdlib.ops.params import instance as params
from ganeti.cmdlib.ops.params.hotplug import Hotplug
from ganeti.cmdlib.ops.params.modify_instance import ChangeResult
from ganeti.cmdlib.ops.placement import allocator, secondary
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.disk import MOD_ADD, MOD_MODIFY, MOD_REMOVE
from ganeti.constants.net import (
    HOTPLUG_ACTION_ADD,
    HOTPLUG_ACTION_MODIFY,
    HOTPLUG_ACTION_REMOVE,
)
from ganeti.locking import Level
from ganeti.objects import Cluster, Instance, Nic, Node, fill, hvparams, hypervisors
from ganeti.objects.disk_templates import INSTANCE_DEPENDENT_PATH, INT_MIRRORED
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.wire.calls import INSTANCE_BALLOON_MEMORY, INSTANCE_LIMIT_PROCESSORS

_HOT_ACTIONS = {
    MOD_ADD: HOTPLUG_ACTION_ADD,
    MOD_MODIFY: HOTPLUG_ACTION_MODIFY,
    MOD_REMOVE: HOTPLUG_ACTION_REMOVE,
}


# The attributes of an instance which a change of its parameters writes.
_RECORDED = (
    "os",
    "hypervisor",
    "hvparams",
    "beparams",
    "osparams",
    "osparams_private",
    "nics",
)


@dataclass(frozen=True, slots=True)
class ModifyPlan:
    """The changes.

    :ivar planned: the instance with its new parameters and NICs.
    :ivar new_primary: the node which becomes the primary node; None for no change.
    :ivar plug: the devices of the guest; None when no device changes, or its node is offline.
    :ivar results: the changes, for the result of the opcode.
    """

    instance: Instance
    planned: Instance
    nics: nic_modify.NicPlan | None
    disks: disk_modify.DiskPlan | None
    conversion: convert.ConversionPlan | None
    new_primary: Node | None
    plug: Hotplug | None
    results: tuple[ChangeResult, ...]


class _ModifyHooks(InstanceHooks):
    """The variables have the new values in the pre phase, too."""

    def environment(self, unit: HookedUnit, plan: object) -> dict[str, object]:
        assert isinstance(plan, ModifyPlan)
        env = super().environment(unit, plan)
        for key in [key for key in env if key.startswith("INSTANCE_NIC")]:
            del env[key]
        present = unit.config.instance(plan.instance.uuid)
        shown = dataclasses.replace(
            present,
            nics=plan.planned.nics,
            beparams=plan.planned.beparams,
            hypervisor=plan.planned.hypervisor,
            hvparams=plan.planned.hvparams,
        )
        env.update(filled_instance_env(unit.config, unit.config.filled(shown)))
        env.update(unit.hook_env(plan))
        return env


@executes(OpInstanceSetParams)
class LUInstanceSetParams(LogicalUnit[OpInstanceSetParams, ModifyPlan]):
    """Change an instance without moving its data."""

    HOOKS = _ModifyHooks("instance-modify")

    # -- arguments that need no lock -------------------------------------------

    def expand_names(self) -> None:
        op = self.op
        self.nic_mods = devices.changes_of(op.nics)
        self.disk_mods = devices.changes_of(op.disks)
        wanted = (
            self.nic_mods,
            self.disk_mods,
            op.disk_template,
            op.hypervisor,
            op.hvparams,
            op.beparams,
            op.osparams,
            op.osparams_private,
            op.os_name,
            op.offline is not None,
            op.runtime_mem,
            op.pnode,
            op.pnode_uuid,
            op.instance_communication is not None,
        )
        if not any(wanted):
            raise errors.OpPrereqError("no changes are given", errors.ECODE_INVAL)
        if op.disk_template and self.disk_mods:
            raise errors.OpPrereqError(
                "disks cannot be converted and changed in one operation", errors.ECODE_INVAL
            )
        if op.remote_node and op.iallocator:
            raise errors.OpPrereqError(
                "give either a secondary node or an instance allocator, not both",
                errors.ECODE_INVAL,
            )
        if (op.remote_node or op.iallocator) and not op.disk_template:
            raise errors.OpPrereqError(
                "a secondary node is allowed only when disks are converted. Use 'gnt-instance"
                " replace-disks' to change it.",
                errors.ECODE_INVAL,
            )
        self.new_primary = self._node(op.pnode, op.pnode_uuid)
        self.secondary = self._node(op.remote_node, op.remote_node_uuid)
        self.lock_instance(op.instance_name, op.instance_uuid)

    def _node(self, name: str | None, uuid: str | None) -> Node | None:
        return self.config.expand_node(uuid or name or "") if name or uuid else None

    def declare_locks(self, level: Level) -> None:
        if self.instance is None:
            return
        nodes = set(self.config.instance_nodes(self.instance))
        nodes.update(node.uuid for node in (self.new_primary, self.secondary) if node)
        if level is Level.NODEGROUP:
            self.need(level, {self.config.node(uuid).group for uuid in nodes}, shared=True)
        elif level in (Level.NODE, Level.NODE_RES):
            if self.op.iallocator:
                nodes |= allocator.candidates(self.config.snapshot())
            if level is Level.NODE:
                self.need(level, nodes, shared=True)
            elif self.disk_mods or self.op.disk_template or self.op.runtime_mem:
                self.need(level, nodes)

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: ModifyPlan) -> dict[str, object]:
        env: dict[str, object] = {}
        if plan.conversion is not None:
            env["NEW_DISK_TEMPLATE"] = plan.conversion.template
        if self.op.runtime_mem:
            env["RUNTIME_MEMORY"] = self.op.runtime_mem
        return env

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> ModifyPlan:
        assert self.instance is not None
        op, instance = self.op, self.instance
        prereq.require_not_forthcoming(instance, "modify")
        results: list[ChangeResult] = []
        new_primary = self._check_primary(instance)
        primary = new_primary or self.config.node(instance.primary_node)
        if new_primary is not None:
            results.append(("pnode", new_primary.name))
        # The configuration can be changed while the node is offline; devices and guests cannot.
        if self.disk_mods or op.disk_template or op.runtime_mem:
            prereq.require_online(primary)
        planned = modify_instance.planned_parameters(self, instance, primary, results)
        nic_plan, planned = self._nics(planned, primary, results)
        disk_plan, conversion = self._disks(instance, results)
        self._check_firmware(instance, planned, disk_plan)
        self._check_policy(instance, planned, disk_plan, primary)
        plug = None
        if (nic_plan or disk_plan) and not primary.offline:
            plug = Hotplug(
                self.ctx,
                instance,
                wanted=op.hotplug,
                certain_to="change the disks of" if disk_plan else "",
            )
        if disk_plan is not None and plug is not None and plug.running and not plug.possible:
            gone = [s for s in disk_plan.steps if s.action in ("remove", "detach")]
            if gone:
                raise errors.OpPrereqError(
                    f"disk {gone[0].index} of instance {instance.name} is in use, it cannot be"
                    " taken from a running instance. Stop the instance first.",
                    errors.ECODE_STATE,
                )
        modify_instance.check_runtime_memory(self, instance, planned, results)
        planned = modify_instance.planned_admin_state(self, planned, results)
        planned = self._with_port(instance, planned)
        return ModifyPlan(
            instance, planned, nic_plan, disk_plan, conversion, new_primary, plug, tuple(results)
        )

    def _with_port(self, instance: Instance, planned: Instance) -> Instance:
        """Give a guest the port which its hypervisor needs, before anything is changed.

        :raises errors.OpPrereqError: no port is free.
        """
        needed = hypervisors.of(planned.hypervisor).needs_port
        if not needed and planned.hypervisor != instance.hypervisor:
            return dataclasses.replace(planned, network_port=None)
        # Only a change which is written gives an older instance without a port one.
        changed = any(getattr(planned, name) != getattr(instance, name) for name in _RECORDED)
        if not needed or not changed or instance.network_port is not None:
            return planned
        try:
            return dataclasses.replace(planned, network_port=self.config.reserve_port())
        except errors.OpPrereqError as err:
            raise errors.OpPrereqError(
                f"instance {instance.name} cannot get a port for its console: {err.args[0]}",
                errors.ECODE_NORES,
            ) from err

    def dry_run_result(self, plan: ModifyPlan) -> list[list[Any]]:
        return [list(row) for row in plan.results]

    def _check_primary(self, instance: Instance) -> Node | None:
        """Check the node which becomes the primary node, without any transfer of data.

        :returns: the node; None for no change.
        """
        if self.new_primary is None:
            return None
        node = self.config.node(self.new_primary.uuid)
        if node.uuid == instance.primary_node:
            raise errors.OpPrereqError(
                f"node {node.name} is already the primary node of instance {instance.name}",
                errors.ECODE_STATE,
            )
        prereq.require_online(node)
        prereq.require_vm_capable(node)
        prereq.require_hypervisor(self.config, node, self.op.hypervisor or instance.hypervisor)
        prereq.require_admin_state(
            instance, (prereq.ADMIN_DOWN, prereq.ADMIN_OFFLINE), "change the primary node of"
        )
        disks = self.config.instance_disks(instance)
        if disk_work.mirrored_internally(disks) and node.uuid not in self.config.secondary_nodes(
            instance
        ):
            raise errors.OpPrereqError(
                f"node {node.name} is not the secondary node of instance {instance.name}",
                errors.ECODE_INVAL,
            )
        action = "" if self.op.force else "change the primary node of"
        old = self.config.node(instance.primary_node)
        if old.offline:
            location.require_failover(
                self.ctx, instance, force=self.op.force, option="'gnt-instance modify --force'"
            )
            return node
        try:
            info = location.require_only_on_primary(self.ctx, instance, certain_to=action)
        except errors.RpcError as err:
            text = (
                f"node {old.name} did not report whether it runs instance {instance.name}:"
                f" {why(err)}"
            )
            if not self.op.force:
                raise errors.OpPrereqError(
                    f"{text}. Use --force if the instance certainly does not run there.",
                    errors.ECODE_STATE,
                ) from err
            self.log.warn(text)
            return node
        if prereq.is_running(info):
            raise errors.OpPrereqError(
                f"instance {instance.name} still runs on node {old.name}", errors.ECODE_STATE
            )
        return node

    # -- devices ---------------------------------------------------------------

    def _nics(
        self, planned: Instance, primary: Node, results: list[ChangeResult]
    ) -> tuple[nic_modify.NicPlan | None, Instance]:
        changes = list(self.nic_mods)
        if self.op.instance_communication is not None:
            changes += communication.changes(self.config, planned, self.op.instance_communication)
            results.append(("instance_communication", str(self.op.instance_communication)))
        if not changes:
            return None, planned
        nic_plan = nic_modify.plan(
            self.config, planned, primary, changes, conflicts_check=self.op.conflicts_check
        )
        for step in nic_plan.steps:
            results += step.result
        planned = dataclasses.replace(planned, nics=nic_plan.nics)
        if not primary.offline and any(step.action != MOD_REMOVE for step in nic_plan.steps):
            filled = self.config.filled(planned)
            try:
                prereq.instance_bridges_check(filled, primary).make(self.rpc)
            except errors.OpPrereqError as err:
                if not self.op.force:
                    raise
                self.log.warn(str(err))
        return nic_plan, planned

    def _disks(
        self, instance: Instance, results: list[ChangeResult]
    ) -> tuple[disk_modify.DiskPlan | None, convert.ConversionPlan | None]:
        op = self.op
        if op.disk_template:
            conversion = convert.plan(
                self.ctx,
                instance,
                op.disk_template,
                self._choose_secondary(instance),
                ext_params=op.ext_params,
                file_driver=op.file_driver,
                file_storage_dir=op.file_storage_dir,
            )
            results.append(("disk_template", op.disk_template))
            return None, conversion
        if not self.disk_mods:
            return None, None
        for uuid in self.config.secondary_nodes(instance):
            prereq.require_online(self.config.node(uuid))
        disk_plan = disk_modify.plan(self.config, instance, self.disk_mods, op.ext_params)
        disk_modify.require_free_space(self.config, self.rpc, instance, disk_plan)
        for step in disk_plan.steps:
            results += step.result
        return disk_plan, None

    def _choose_secondary(self, instance: Instance) -> Node | None:
        if self.op.disk_template not in INT_MIRRORED or not self.op.iallocator:
            return None if self.secondary is None else self.config.node(self.secondary.uuid)
        return secondary.by_allocator(self.ctx, instance, self.op.iallocator)

    def _check_firmware(
        self, instance: Instance, planned: Instance, disk_plan: disk_modify.DiskPlan | None
    ) -> None:
        """Check that the hypervisor has places for all devices, and the firmware its disks."""
        names = [disk.name for disk in self.config.instance_disks(instance)]
        before, after = (
            fill.instance_hv(self.config.cluster(), one) for one in (instance, planned)
        )
        new_names = names if disk_plan is None else disk_plan.names
        problem = params.guest_problem(
            planned.hypervisor, after, planned.name, new_names, len(planned.nics)
        )
        # A problem which the instance has already is no reason to refuse another change.
        if problem != params.guest_problem(
            instance.hypervisor, before, instance.name, names, len(instance.nics)
        ):
            params.refuse_guest(planned.hypervisor, planned.name, problem)
        params.require_firmware_disks(
            planned.hypervisor,
            after,
            new_names,
            lacking=hvparams.firmware_disks(instance.hypervisor, before).keys() - set(names),
        )

    def _check_policy(
        self,
        instance: Instance,
        planned: Instance,
        disk_plan: disk_modify.DiskPlan | None,
        primary: Node,
    ) -> None:
        """Refuse new violations of the group's policy; present ones stay allowed."""
        cluster = self.config.cluster()
        before_be = fill.fill_be(cluster, instance.beparams)
        after_be = fill.fill_be(cluster, planned.beparams)
        disks = self.config.instance_disks(instance)
        old = [(disk.name, disk.size) for disk in disks]
        template = self.op.disk_template or self.config.disk_template(instance)
        violations = []
        for one, beparams, named_sizes, kind in (
            (instance, before_be, old, self.config.disk_template(instance)),
            (
                planned,
                after_be,
                old
                if disk_plan is None
                else list(zip(disk_plan.names, disk_plan.sizes_mib, strict=True)),
                template if disk_plan is None else disk_plan.template,
            ),
        ):
            filled_hv = functools.partial(
                fill.fill_hv, cluster, one.hypervisor, one.os, one.hvparams
            )
            violations.append(
                policy.violations(
                    self.config,
                    primary,
                    beparams=beparams,
                    disk_sizes_mib=policy.counted_sizes(one.hypervisor, filled_hv, named_sizes),
                    nic_count=len(one.nics),
                    disk_template=kind,
                )
            )
        new = [found for found in violations[1] if found not in violations[0]]
        policy.refuse(
            self.config,
            self.log,
            instance.name,
            primary,
            new,
            policy.Override(self.op.ignore_ipolicy, self.op.OP_ID),
        )

    # -- act -------------------------------------------------------------------

    def steps(self, plan: ModifyPlan) -> list[str]:
        steps = [f"{what} -> {value}" for what, value in plan.results]
        if plan.plug is not None and plan.plug.running:
            when = "at once" if plan.plug.possible else "when it is started the next time"
            steps.append(f"change the devices of the running guest {when}")
        return steps

    def exec(self, plan: ModifyPlan) -> list[list[Any]]:
        """Make the changes; the result has ``[what was changed, new value]`` for each."""
        instance = plan.instance
        if self.op.runtime_mem:
            self.rpc.call(
                INSTANCE_BALLOON_MEMORY,
                instance.primary_node,
                instance=instance,
                memory_mib=self.op.runtime_mem,
            ).payload()
        if plan.new_primary is not None:
            mirror.change_primary(self.ctx, instance, plan.new_primary, ignore=self.op.force)
        if plan.disks is not None:
            disk_modify.carry_out(
                self.ctx,
                instance.uuid,
                plan.disks,
                plan.plug,
                directory=self._directory(plan),
                driver=self.op.file_driver,
                wait_for_sync=self.op.wait_for_sync,
            )
        if plan.conversion is not None:
            convert.carry_out(
                self.ctx,
                self.config.instance(instance.uuid),
                plan.conversion,
                wait_for_sync=self.op.wait_for_sync,
                accept_loss=self.op.force,
            )
        self._record(plan)
        self._hotplug_nics(plan)
        self._limit_processors(plan)
        communication.send_metadata(self.ctx, instance, self.config.instance(instance.uuid))
        return [list(row) for row in plan.results]

    def _directory(self, plan: ModifyPlan) -> str | None:
        assert plan.disks is not None
        if plan.disks.template not in INSTANCE_DEPENDENT_PATH:
            return None
        return specs.file_directory(
            self.config, plan.disks.template, self.op.file_storage_dir, plan.instance.name
        )

    def _record(self, plan: ModifyPlan) -> None:
        """Write parameters, NICs and marked state into the configuration, in one change."""
        changes = {
            name: getattr(plan.planned, name)
            for name in (*_RECORDED, "network_port")
            if getattr(plan.planned, name) != getattr(plan.instance, name)
        }
        state = plan.planned.admin_state
        waiting = pending.changed(
            self.config.cluster(), plan.instance, plan.planned, self._not_plugged(plan)
        )
        if waiting != plan.instance.pending_changes:
            changes["pending_changes"] = waiting
        with self.config.transaction() as change:
            if changes:
                present = change.data.instances[plan.instance.uuid]
                if plan.planned.network_port is None and present.network_port:
                    change.ports.release(present.network_port)
                change.instances.update(dataclasses.replace(present, **changes), self.ctx.ec_id)
            if state != plan.instance.admin_state:
                change.instances.mark(plan.instance.uuid, state)

    @staticmethod
    def _not_plugged(plan: ModifyPlan) -> list[tuple[str, str]]:
        """Return the changes of devices which are not made in the running guest."""
        if plan.plug is None or not plan.plug.running or plan.plug.possible:
            return []
        nics = [
            (f"nic/{step.index}", step.action) for step in (plan.nics.steps if plan.nics else ())
        ]
        disks = plan.disks.steps if plan.disks else ()
        return [*nics, *((f"disk/{step.index}", step.action) for step in disks)]

    def _limit_processors(self, plan: ModifyPlan) -> None:
        """Let a change of the processors have its effect on the running guest."""
        present = self.config.instance(plan.instance.uuid)
        if not _changes_processors(self.config.cluster(), plan.instance, present):
            return
        node = self.config.node(present.primary_node)
        if node.offline:
            return
        answer = self.rpc.call(INSTANCE_LIMIT_PROCESSORS, node.uuid, instance=present)
        if answer.failure is not None:
            self.log.warn(
                f"the processors of the running instance {present.name} were not changed:"
                f" {why(answer.failure)}",
                hint="The change takes effect when it is started the next time.",
            )
        elif answer.data:
            self.log.info("the processors of the running instance were changed")

    def _hotplug_nics(self, plan: ModifyPlan) -> None:
        if plan.nics is None or plan.plug is None or not plan.plug.running:
            return
        done = list(plan.instance.nics)
        for step in plan.nics.steps:
            try:
                plan.plug.nic(_HOT_ACTIONS[step.action], step.nic, step.index)
            except errors.OpExecError as err:
                self._keep_nics(plan.instance.uuid, tuple(done))
                raise errors.OpExecError(
                    f"{str(err).rstrip('.')}. The configuration of this NIC and of those after it"
                    " is as before. To change them only at the next start of the guest, use"
                    " --no-hotplug."
                ) from err
            nic_modify.apply(done, step)

    def _keep_nics(self, uuid: str, kept: tuple[Nic, ...]) -> None:
        """Write the NICs which the guest has into the configuration, as those before the change."""
        with self.config.transaction() as change:
            present = change.data.instances[uuid]
            change.instances.update(dataclasses.replace(present, nics=kept), self.ctx.ec_id)


def _changes_processors(cluster: Cluster, before: Instance, after: Instance) -> bool:
    """Return True if a change of parameters has an effect on the processors of the running
    guest.
    """
    if not hypervisors.of(after.hypervisor).can_limit_processors or before == after:
        return False
    vcpus = {fill.fill_be(cluster, one.beparams).get("vcpus") for one in (before, after)}
    masks = {fill.instance_hv(cluster, one).get("cpu_mask") for one in (before, after)}
    return len(vcpus) > 1 or len(masks) > 1
