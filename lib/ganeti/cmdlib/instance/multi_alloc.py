"""Create several instances whose nodes one allocator chooses together.

An allocator that gets all instances at once finds better nodes than an allocator that is asked for
each in turn. This unit only chooses nodes: its result asks for one job for each instance.
"""

from __future__ import annotations

import copy
from typing import Any

from ganeti import allocator, errors, opcodes
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.ops.disks import reach
from ganeti.cmdlib.ops.disks import specs as disk_specs
from ganeti.cmdlib.ops.nics import specs as nic_specs
from ganeti.cmdlib.ops.params import instance as params
from ganeti.cmdlib.ops.placement import allocator as placement
from ganeti.constants.instance import CREATE
from ganeti.locking import ALL, Level
from ganeti.objects import fill
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMultiAlloc


@executes(OpInstanceMultiAlloc)
class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc, allocator.Placements | None]):
    """Choose nodes for several new instances; submit a job for each which got nodes."""

    def expand_names(self) -> None:
        self.instances = [_opcode(index, item) for index, item in enumerate(self.op.instances)]
        if not self.instances:
            raise errors.OpPrereqError("no instances are given", errors.ECODE_INVAL)
        names = [op.instance_name for op in self.instances]
        for name in names:
            if names.count(name) > 1:
                raise errors.OpPrereqError(
                    f"instance {name} is given twice", errors.ECODE_NOTUNIQUE
                )
        with_node = [bool(op.pnode or op.pnode_uuid) for op in self.instances]
        committed = [op.instance_name for op in self.instances if op.commit]
        if committed:
            raise errors.OpPrereqError(
                f"forthcoming instance {committed[0]} has its nodes already. Commit it by itself,"
                " not together with others.",
                errors.ECODE_INVAL,
            )
        if any(op.iallocator for op in self.instances):
            raise errors.OpPrereqError(
                "one allocator chooses the nodes of all instances, so a single instance cannot name"
                " one",
                errors.ECODE_INVAL,
            )
        if any(with_node) and not all(with_node):
            raise errors.OpPrereqError(
                "either all instances have nodes, or the allocator chooses for all",
                errors.ECODE_INVAL,
            )
        self.allocator = placement.choose_allocator(
            self.config,
            self.op.iallocator,
            what="the instances",
            node_option="the key pnode",
            node_given=all(with_node),
        )
        if self.allocator is None:
            if self.op.opportunistic_locking:
                raise errors.OpPrereqError(
                    "opportunistic locking is possible only together with an instance allocator",
                    errors.ECODE_INVAL,
                )
            return
        # The nodes must not change while the allocator chooses.
        self.need(Level.NODEGROUP, ALL, shared=True)
        self.need(Level.NODE, ALL, shared=True)
        if self.op.opportunistic_locking:
            self.opportunistic_levels |= {Level.NODE}

    def check_prereq(self) -> allocator.Placements | None:
        taken = {instance.name for instance in self.config.instances()}
        for op in self.instances:
            if op.instance_name in taken:
                raise errors.OpPrereqError(
                    f"instance {op.instance_name} is already in the cluster", errors.ECODE_EXISTS
                )
        if self.allocator is None:
            return None
        usable = placement.candidates(self.config.snapshot()) & self.owned(Level.NODE)
        self.reached: dict[str, frozenset[str] | None] = {}
        request = allocator.MultiAllocate(tuple(self._request(op, usable) for op in self.instances))
        return placement.ask_allocator(
            self.rpc,
            self.log,
            self.allocator,
            self.config.snapshot(),
            request,
            temporary=self.op.opportunistic_locking,
        )

    def _request(self, op: OpInstanceCreate, usable: frozenset[str]) -> allocator.Allocate:
        cluster = self.config.cluster()
        template = disk_specs.choose_template(self.config, op.disk_template, op.disks)
        beparams = fill.fill_be(cluster, params.checked_beparams(op.beparams))
        group = None if op.group_name is None else self.config.expand_group(op.group_name).uuid
        hypervisor = op.hypervisor or cluster.enabled_hypervisors[0]
        planned = nic_specs.plan_nics(self.config, op.nics, None)
        return allocator.Allocate(
            name=op.instance_name,
            hypervisor=hypervisor,
            os=op.os_type or "",
            memory_mib=beparams["maxmem"],
            vcpus=beparams["vcpus"],
            spindle_use=beparams["spindle_use"],
            disk_template=template,
            disks=tuple(disk_specs.plan_disks(self.config, template, op.disks)),
            nics=tuple(allocator.allocate_nic(p.nic, p.filled) for p in planned),
            tags=tuple(op.tags),
            group=group,
            only_nodes=self._restricted(hypervisor, usable, template),
        )

    def _restricted(
        self, hypervisor: str, usable: frozenset[str], template: str
    ) -> frozenset[str] | None:
        """Return the nodes among which the allocator chooses; None for all nodes of the cluster."""
        data = self.config.snapshot()
        with_it = placement.candidates(data, hypervisor=hypervisor)
        if template not in self.reached:
            self.reached[template] = reach.with_directory(self.ctx, template, usable)
        reached = self.reached[template]
        if reached is not None:
            return reached & with_it
        if self.op.opportunistic_locking:
            return usable & with_it
        return with_it if with_it != placement.candidates(data) else None

    def exec(self, plan: allocator.Placements | None) -> ResultWithJobs:
        failed = () if plan is None else plan.failed
        for name in failed:
            reason = "" if plan is None else plan.reasons.get(name, "")
            self.log.warn(
                f"the allocator found no nodes for instance {name}"
                + (f": {reason}" if reason else "")
            )
        ready = [op for op in self.instances if op.instance_name not in failed]
        if plan is not None:
            ready = [self._completed_op(op, plan.nodes[op.instance_name]) for op in ready]
        return ResultWithJobs(
            [[op] for op in ready],
            allocatable=[op.instance_name for op in ready],
            failed=list(failed),
        )

    def _completed_op(self, op: OpInstanceCreate, uuids: tuple[str, ...]) -> OpInstanceCreate:
        """Return the opcode of an instance with the nodes which the allocator has chosen."""
        nodes = [self.config.node(uuid) for uuid in uuids]
        self.log.info(
            f"Selected nodes for instance {op.instance_name} via iallocator {self.allocator}:"
            f" {', '.join(node.name for node in nodes)}"
        )
        op = op.replace(pnode=nodes[0].name, pnode_uuid=nodes[0].uuid)
        if len(nodes) > 1:
            op = op.replace(snode=nodes[1].name, snode_uuid=nodes[1].uuid)
        return op


def _opcode(index: int, item: Any) -> OpInstanceCreate:
    """Make the opcode of one instance, which is given as an opcode or as a dictionary.

    :raises errors.OpPrereqError: it is not an opcode for creation, or not a valid one.
    """
    if isinstance(item, dict):
        item = opcodes.from_dict({"OP_ID": OpInstanceCreate.OP_ID, **item})
    if not isinstance(item, OpInstanceCreate):
        raise errors.OpPrereqError(
            f"instance {index} of the list is not a description of a new instance",
            errors.ECODE_INVAL,
        )
    op = copy.copy(item)
    op.validate()
    if op.mode != CREATE:
        raise errors.OpPrereqError(
            f"instance {op.instance_name}: several instances can only be created, not {op.mode!r}",
            errors.ECODE_INVAL,
        )
    return op
