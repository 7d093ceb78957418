"""Base of the units which create an instance: locks, checks, plan and execution.

The steps are in the other modules of this package: names, the checks which make the plan, the
objects, and the execution. :mod:`~ganeti.cmdlib.ops.placement.new_instance` decides on which nodes
the instance goes, and what is locked until that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.hooks import InstanceFacts, InstanceHooks, instance_env
from ganeti.cmdlib.node_checks import Answers
from ganeti.cmdlib.ops.creation import execution, names
from ganeti.cmdlib.ops.creation import plan as planning
from ganeti.cmdlib.ops.creation.plan import CreatePlan
from ganeti.cmdlib.ops.disks import adopt, specs
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.install import forthcoming, operating_system
from ganeti.cmdlib.ops.nics import specs as nics
from ganeti.cmdlib.ops.params import instance as params
from ganeti.cmdlib.ops.params import os
from ganeti.cmdlib.ops.placement import allocator
from ganeti.cmdlib.ops.placement.new_instance import NewInstanceUnit
from ganeti.cmdlib.ops.transfer import import_source
from ganeti.constants.instance import CREATE
from ganeti.locking import Level
from ganeti.objects import Disk, Node
from ganeti.objects.disk_templates import INT_MIRRORED
from ganeti.opcodes.instance import OpInstanceCreate


class CreationUnit(NewInstanceUnit[CreatePlan]):
    """A unit whose opcode is, or becomes, the creation of an instance."""

    HOOKS = InstanceHooks("instance-add")

    # -- arguments that need no lock -------------------------------------------

    def expand_names(self) -> None:
        forthcoming.require_possible(self.log, self.op)
        self.reserved = forthcoming.reserved_instance(self.config, self.op)
        anew = not self.op.disks and not self.op.file_storage_dir and not self.op.file_driver
        self.keeps_disks = anew and self.reserved is not None
        self.op = self._completed_op()
        self._check_arguments()
        self.name, self.ip = names.checked_name(self.op)
        self.hypervisor = self._chosen_hypervisor()
        self.template = specs.choose_template(self.config, self.op.disk_template, self.op.disks)
        self.group = None
        if self.op.group_name is not None:
            self.group = self.config.expand_group(self.op.group_name)
        self.allocator = self._chosen_allocator()
        self.given_nodes = self.named_nodes() if self.allocator is None else []
        self._need_instance()
        self._need_nodes(self.given_nodes)

    def _completed_op(self) -> OpInstanceCreate:
        """Complete the parameters from a reservation first, then from an import."""
        op = forthcoming.completed_op(self.config, self.op, self.reserved)
        self.imported, op = import_source.prepare(self.ctx, op)
        if not (op.no_install and op.start):
            return op
        self.log.info("the OS is not installed, so the instance will not be started")
        return op.replace(start=False)

    def _check_arguments(self) -> None:
        op = self.op
        operating_system.timeouts(op.helper_startup_timeout, op.helper_shutdown_timeout)
        installs = not (op.no_install or op.forthcoming or self.imported is not None)
        tables = (op.osparams, op.osparams_private or {}, op.osparams_secret or {})
        has_image = any([os.checked_image(table.get(os.IMAGE)) for table in tables])
        if has_image and installs and not any(not disk.get("adopt") for disk in op.disks):
            raise errors.OpPrereqError(
                f"OS parameter {os.IMAGE} names an image, and the instance has no new disk for it",
                errors.ECODE_INVAL,
            )
        if op.os_type is None and installs and not has_image:
            raise errors.OpPrereqError(
                "no operating system is given. Name one which 'gnt-os list' shows, or an image with"
                f" the OS parameter {os.IMAGE}.",
                errors.ECODE_INVAL,
            )
        names.require_checks_agree(name_check=op.name_check, ip_check=op.ip_check)
        prereq.require_tags(op.tags)

    def _chosen_hypervisor(self) -> str:
        enabled = self.config.cluster().enabled_hypervisors
        hypervisor = self.op.hypervisor or enabled[0]
        if hypervisor not in enabled:
            raise errors.OpPrereqError(
                f"hypervisor {hypervisor} is not enabled in this cluster, only"
                f" {', '.join(enabled)}",
                errors.ECODE_STATE,
            )
        return hypervisor

    def _chosen_allocator(self) -> str | None:
        chosen = allocator.choose_allocator(
            self.config,
            self.op.iallocator,
            what=f"instance {self.name}",
            node_option="--node",
            node_given=bool(self.op.pnode or self.op.pnode_uuid),
        )
        if self.op.opportunistic_locking and chosen is None:
            raise errors.OpPrereqError(
                "opportunistic locking is possible only together with an instance allocator",
                errors.ECODE_INVAL,
            )
        if self.op.explain:
            allocator.require_explainable(chosen)
        return chosen

    def _need_instance(self) -> None:
        """Reserve name and UUID of a new instance; ask for the lock of the instance."""
        if self.reserved is None:
            names.reserve(self.config, self.name, exact=bool(self.op.exact_name))
            self.uuid = self.config.new_uuid()
            self.need_new(Level.INSTANCE, self.uuid)
        else:
            self.uuid = self.reserved.uuid
            self.need(Level.INSTANCE, [self.uuid])

    def _need_nodes(self, nodes: list[Node]) -> None:
        """Ask for the locks of the nodes which the user named; else of the groups."""
        if nodes:
            self.need(Level.NODEGROUP, {node.group for node in nodes}, shared=True)
            self.need(Level.NODE, [node.uuid for node in nodes], shared=True)
            self.need(Level.NODE_RES, [node.uuid for node in nodes])
            return
        groups = [self.group] if self.group is not None else self.config.groups()
        self.need(Level.NODEGROUP, [group.uuid for group in groups], shared=True)
        if self.op.opportunistic_locking:
            self.opportunistic_levels |= {Level.NODE, Level.NODE_RES}

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: CreatePlan) -> dict[str, object]:
        existing = self.config.snapshot().instances.get(self.uuid)
        disks: list[Disk] = []
        if existing is not None and not existing.forthcoming:
            disks = list(self.config.instance_disks(existing))
        facts = InstanceFacts(
            name=self.name,
            primary=plan.node.name,
            secondaries=[node.name for node in plan.nodes[1:]],
            os_type=self.op.os_type or "",
            status=self.op.start,
            beparams=plan.parameters.beparams_filled,
            hvparams=plan.parameters.hvparams_filled,
            hypervisor=plan.hypervisor,
            disk_template=plan.disk_template,
            tags=self.op.tags,
            nics=[(planned.nic, planned.filled) for planned in plan.nics],
            disks=disks or [_nameless(plan.disk_template, spec) for spec in plan.disk_specs],
        )
        source = {} if self.imported is None else self.imported.hook_env()
        return {"ADD_MODE": self.op.mode, **source, **instance_env(self.config, facts)}

    def hook_nodes(self, plan: CreatePlan) -> tuple[list[str], list[str]]:
        if self.op.forthcoming:
            # Nothing is added yet; the hooks run when the instance is made.
            return [], []
        nodes = [self.config.master_node().uuid, *(node.uuid for node in plan.nodes)]
        return nodes, nodes

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> CreatePlan:
        op = self.op
        if self.reserved is not None:
            forthcoming.require_unchanged(self.config, self.reserved)
        given = self.require_named_nodes()
        parameters = planning.checked_parameters(self)
        disk_specs = specs.plan_disks(self.config, self.template, op.disks)
        directory = planning.disk_directory(self)
        planned_nics = planning.planned_nics(self)
        nodes = given or self.place(parameters.beparams_filled, disk_specs, planned_nics)
        node, secondary = nodes[0], nodes[1] if len(nodes) > 1 else None
        specs.use_group(self.config, disk_specs, op.disks, node.uuid)
        planned_nics = nics.settle(
            self.config,
            planned_nics,
            node,
            conflicts_check=op.conflicts_check,
            reserved=self.reserved,
        )
        uuids = [one.uuid for one in nodes]
        planning.require_ports(self, len(disk_specs))
        adopt.require_storage(
            self.config, self.rpc, self.template, uuids, disk_specs, self.reserved, directory
        )
        disk_work.require_spindles_allowed(self.config, uuids, op.disks)
        facts = planning.check_policy(self, nodes, parameters, disk_specs, len(planned_nics))
        params.require_startable(
            self.hypervisor, parameters.hvparams_filled, self.name, disk_specs, len(planned_nics)
        )
        usable = prereq.hvparams_check(
            self.config, [node.uuid], self.hypervisor, parameters.hvparams_filled
        )
        attachable = prereq.bridges_check([planned.filled for planned in planned_nics], node)
        answers = Answers(self.rpc, [usable, attachable])
        answers.judge(usable)
        helper = planning.checked_installation(self, node, parameters, planned_nics)
        answers.judge(attachable)
        if op.start or helper is not None:
            prereq.memory_check(
                node,
                f"creating instance {self.name}",
                parameters.beparams_filled["maxmem"],
                self.hypervisor,
                parameters.hvparams_filled,
                facts,
            ).make(self.rpc)
        return CreatePlan(
            node=node,
            secondary=secondary,
            hypervisor=self.hypervisor,
            disk_template=self.template,
            disk_specs=disk_specs,
            disk_directory=directory,
            nics=planned_nics,
            parameters=parameters,
            helper=helper,
        )

    def dry_run_result(self, plan: CreatePlan) -> list[str]:
        return [node.name for node in plan.nodes]

    def steps(self, plan: CreatePlan) -> list[str]:
        op = self.op
        nodes = ", ".join(node.name for node in plan.nodes)
        if op.forthcoming:
            return [f"reserve resources for instance {op.instance_name} on {nodes}"]
        steps = [
            f"make forthcoming instance {op.instance_name} real"
            if op.commit
            else f"add instance {op.instance_name} to the configuration"
        ]
        steps += [
            f"{'adopt' if spec.get('adopt') else 'make'} disk {index} ({plan.disk_template},"
            f" {spec.get('size')} MiB) on {nodes}"
            for index, spec in enumerate(plan.disk_specs)
        ]
        if plan.disk_template in INT_MIRRORED and op.wait_for_sync:
            steps.append("wait until the replicas of the disks are in sync")
        image = plan.parameters.image
        if plan.disk_specs and (op.os_type or image) and not (op.no_install or plan.adopts):
            what = "write the image to disk 0" if image else f"install OS {op.os_type}"
            steps.append(
                f"{what} on {plan.node.name}"
                if op.mode == CREATE
                else f"import the content of the disks on {plan.node.name}"
            )
        return steps + ([f"start it on {plan.node.name}"] if op.start else [])

    # -- act -------------------------------------------------------------------

    def exec(self, plan: CreatePlan) -> list[str]:
        """Create or reserve the instance; the result is the names of its nodes."""
        if self.op.forthcoming:
            execution.reserve(self, plan)
        else:
            instance = execution.Creation(self, plan).run()
            if self.op.start:
                execution.start(self, plan, instance)
        return [node.name for node in plan.nodes]


def _nameless(template: str, spec: Mapping[str, Any]) -> Disk:
    """Return a planned disk without identity, for the variables of the pre hooks."""
    return Disk(
        dev_type=template, logical_id=(), size=spec["size"], mode=spec["mode"], name=spec["name"]
    )
