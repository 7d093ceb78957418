"""Testing an instance allocator: showing its input or its output.

Nothing is changed. The output is not checked, so that a wrong one can be examined, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import allocator, errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants import disk as disk_c
from ganeti.objects import ConfigData, disk_templates, fill
from ganeti.opcodes.test import OpTestAllocator
from ganeti.wire import json

_IN = "in"

#: The modes whose answer can be explained.
_NEW = (allocator.Allocate.MODE, allocator.MultiAllocate.MODE)

#: Parameters which a request about new instances needs.
_NEEDED = ("memory", "vcpus", "os", "disk_template", "disks", "nics")


@dataclass(frozen=True, slots=True)
class AllocatorTestPlan:
    """The request to the allocator; ``allocator`` is None to show only the input."""

    config: ConfigData
    request: allocator.AllocationRequest[Any]
    allocator: str | None


@executes(OpTestAllocator)
class LUTestAllocator(LogicalUnit[OpTestAllocator, AllocatorTestPlan]):
    """Show the input of an allocator, or run it and show its output or the reasons for it."""

    # Published: no other job may change the cluster meanwhile.
    REQ_BGL = True

    def check_prereq(self) -> AllocatorTestPlan:
        op = self.op
        name = None
        if op.direction != _IN or op.explain:
            name = placement.choose_allocator(
                self.config, op.iallocator, what="the request", node_option="none of the options",
                node_given=False,
            )  # fmt: skip
        if op.explain:
            placement.require_explainable(name)
            if op.mode not in _NEW:
                raise errors.OpPrereqError(
                    f"mode {op.mode} cannot be explained, only {' and '.join(_NEW)}",
                    errors.ECODE_INVAL,
                )
        return AllocatorTestPlan(self.config.snapshot(), self._request(), name)

    def exec(self, plan: AllocatorTestPlan) -> str:
        try:
            if self.op.explain:
                return json.dumps(allocator.explain(self.rpc, plan.config, plan.request))
            if plan.allocator is None:
                return json.dumps(allocator.prepare(self.rpc, plan.config, plan.request))
            return allocator.run(self.rpc, plan.config, plan.allocator, plan.request)
        except errors.AllocatorError as err:
            raise errors.OpExecError(str(err)) from err

    def _request(self) -> allocator.AllocationRequest[Any]:
        op = self.op
        if op.mode == allocator.Allocate.MODE:
            return self._new(op.name)
        if op.mode == allocator.MultiAllocate.MODE:
            return allocator.MultiAllocate(
                tuple(self._new(f"{op.name}-{number}") for number in range(1, op.count + 1))
            )
        if op.mode == allocator.Relocate.MODE:
            instance = self.config.expand_instance(op.name)
            disks = self.config.instance_disks(instance)
            if fill.disk_template(disks) not in disk_templates.MIRRORED:
                raise errors.OpPrereqError(
                    f"instance {instance.name} cannot be relocated: its disks are on one node only",
                    errors.ECODE_STATE,
                )
            leaves = fill.secondary_nodes(instance, disks) or (instance.primary_node,)
            return allocator.Relocate(instance.uuid, leaves)
        if op.mode == allocator.AllocateSecondary.MODE:
            return allocator.AllocateSecondary(self.config.expand_instance(op.name).uuid)
        names = op.instances or [op.name]
        instances = tuple(self.config.expand_instance(name).uuid for name in names)
        if op.mode == allocator.ChangeGroup.MODE:
            groups = [self.config.expand_group(name).uuid for name in op.target_groups or ()]
            return allocator.ChangeGroup(instances, tuple(groups))
        if op.evac_mode is None:
            raise errors.OpPrereqError(
                f"mode {op.mode} needs evac_mode: which instances have to leave",
                errors.ECODE_INVAL,
            )
        return allocator.NodeEvacuate(instances, op.evac_mode)

    def _new(self, name: str) -> allocator.Allocate:
        op, cluster = self.op, self.config.cluster()
        missing = [key for key in _NEEDED if getattr(op, key) is None]
        if missing:
            raise errors.OpPrereqError(
                f"mode {op.mode} needs {', '.join(missing)}", errors.ECODE_INVAL
            )
        if self.config.instance_by_name(name) is not None:
            raise errors.OpPrereqError(
                f"instance {name} is already in the cluster", errors.ECODE_EXISTS
            )
        hypervisor = op.hypervisor or cluster.primary_hypervisor
        if hypervisor not in cluster.enabled_hypervisors:
            raise errors.OpPrereqError(
                f"hypervisor {hypervisor} is not enabled in this cluster", errors.ECODE_STATE
            )
        group = None if op.group_name is None else self.config.expand_group(op.group_name).uuid
        disks = tuple(_disk(index, spec) for index, spec in enumerate(op.disks or ()))
        if op.disk_template == disk_c.DISKLESS:
            disks = ()
        return allocator.Allocate(
            name=name,
            hypervisor=hypervisor,
            os=op.os or "",
            memory_mib=op.memory or 0,
            vcpus=op.vcpus or 0,
            spindle_use=op.spindle_use,
            disk_template=op.disk_template or "",
            disks=disks,
            nics=tuple(self._nic(spec) for spec in op.nics or ()),
            tags=tuple(op.tags),
            group=group,
        )

    def _nic(self, spec: dict[str, Any]) -> dict[str, Any]:
        own = {key: spec[key] for key in ("mode", "link") if spec.get(key)}
        if spec.get("bridge"):
            own["link"] = spec["bridge"]
        filled = fill.fill_nic(self.config.cluster(), own)
        return allocator.nic_dict(spec.get("mac"), spec.get("ip"), filled)


def _disk(index: int, spec: Any) -> dict[str, Any]:
    size = spec.get("size") if isinstance(spec, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise errors.OpPrereqError(f"disk {index}: {size!r} is not a size in MiB")
    mode = spec.get("mode") or disk_c.RDWR
    if mode not in disk_c.ACCESS_MODES:
        raise errors.OpPrereqError(
            f"disk {index}: access mode {mode!r} is not one of {', '.join(disk_c.ACCESS_MODES)}"
        )
    return {**spec, "size": size, "mode": mode}
