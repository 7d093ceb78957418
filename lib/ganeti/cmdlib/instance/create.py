"""Creating an instance.

Order of ``exec``, chosen so that an interrupted creation can be removed like any instance: the
instance (marked down) and its disks go into the configuration first, then the disks are made, then
the OS is installed, then it is started. When a step before the start fails, everything is taken
back; what cannot be is named in the error. A failing start leaves the complete instance in the
cluster.

An instance may only be reserved, and be made later; :mod:`~ganeti.cmdlib.ops.install.forthcoming`
has what is different then.

Which nodes it gets, and what is locked until that is known, is in
:mod:`~ganeti.cmdlib.ops.placement.new_instance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors, ht
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import executes, why
from ganeti.cmdlib.hooks import InstanceHooks, instance_env
from ganeti.cmdlib.ops.disks import adopt, specs, sync
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.guest import dry_run_steps, power
from ganeti.cmdlib.ops.install import forthcoming, operating_system
from ganeti.cmdlib.ops.nics import communication
from ganeti.cmdlib.ops.nics import specs as nics
from ganeti.cmdlib.ops.params import instance as params
from ganeti.cmdlib.ops.params import os
from ganeti.cmdlib.ops.placement import allocator
from ganeti.cmdlib.ops.placement.new_instance import PlacedUnit
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.transfer import import_source
from ganeti.cmdlib.prereq import PING_TIMEOUT_S
from ganeti.cmdlib.undo import UndoStack
from ganeti.constants.disk import FILE_BASED
from ganeti.constants.instance import CREATE
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node, fill, hypervisors
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.platform import machine
from ganeti.utils import clock, net


@dataclass(frozen=True, slots=True)
class CreatePlan:
    """The instance as it will be, with complete parameters for checks and hooks."""

    node: Node
    secondary: Node | None
    hypervisor: str
    disk_template: str
    disk_wishes: list[dict[str, Any]]
    disk_directory: str | None
    nics: list[nics.PlannedNic]
    hvparams: dict[str, Any]
    hvparams_filled: dict[str, Any]
    beparams: dict[str, Any]
    beparams_filled: dict[str, Any]
    os_parameters: dict[str, list[str]]
    os_helper: operating_system.Helper | None

    @property
    def nodes(self) -> list[Node]:
        """The nodes it will be on, the primary first."""
        return [self.node, *([self.secondary] if self.secondary else [])]


@executes(OpInstanceCreate)
class LUInstanceCreate(PlacedUnit["CreatePlan"]):
    """Create an instance on a node that is given, or chosen by an allocator."""

    HOOKS = InstanceHooks("instance-add")

    # -- arguments that need no lock -------------------------------------------

    def expand_names(self) -> None:
        # What was reserved completes the wishes, then what is imported, so they come first.
        anew = not self.op.disks and not self.op.file_storage_dir and not self.op.file_driver
        self.reserved = forthcoming.prepare(self, self.op)
        self.keeps_disks = anew and self.reserved is not None
        self.imported = import_source.prepare(self, self.op)
        self._check_arguments()
        self.name, self.ip = self._check_name()
        cluster = self.config.cluster()
        self.hypervisor = self.op.hypervisor or cluster.enabled_hypervisors[0]
        if self.hypervisor not in cluster.enabled_hypervisors:
            raise errors.OpPrereqError(
                f"hypervisor {self.hypervisor} is not enabled in this cluster, only"
                f" {', '.join(cluster.enabled_hypervisors)}",
                errors.ECODE_STATE,
            )
        self.template = specs.choose_template(self, self.op.disk_template, self.op.disks)
        self.group = None
        if self.op.group_name is not None:
            self.group = self.config.expand_group(self.op.group_name)
        self.allocator = allocator.choose_allocator(
            self,
            self.op.iallocator,
            what=f"instance {self.name}",
            node_option="--node",
            node_given=bool(self.op.pnode or self.op.pnode_uuid),
        )
        if self.op.opportunistic_locking and self.allocator is None:
            raise errors.OpPrereqError(
                "opportunistic locking only makes sense together with an instance allocator",
                errors.ECODE_INVAL,
            )
        nodes = self.named_nodes() if self.allocator is None else []
        if self.reserved is None:
            self._reserve_name()
            self.uuid = self.config.new_uuid(self.ctx.ec_id)
            self.need_new(Level.INSTANCE, self.uuid)
        else:
            self.uuid = self.reserved.uuid
            self.need(Level.INSTANCE, [self.uuid])
        if nodes:
            self.need(Level.NODEGROUP, {node.group for node in nodes}, shared=True)
            self.need(Level.NODE, [node.uuid for node in nodes], shared=True)
            self.need(Level.NODE_RES, [node.uuid for node in nodes])
        else:
            groups = [self.group] if self.group is not None else self.config.groups()
            self.need(Level.NODEGROUP, [group.uuid for group in groups], shared=True)
            if self.op.opportunistic_locking:
                self.opportunistic_levels |= {Level.NODE, Level.NODE_RES}
        self.given_nodes = nodes

    def _check_arguments(self) -> None:
        op = self.op
        operating_system.timeouts(op.helper_startup_timeout, op.helper_shutdown_timeout)
        if op.no_install and op.start:
            self.info("the OS is not installed, so the instance will not be started")
            op.start = False
        installs = not (op.no_install or op.forthcoming or self.imported is not None)
        if op.os_type is None and installs:
            raise errors.OpPrereqError("no operating system is given", errors.ECODE_INVAL)
        if op.ip_check and not op.name_check:
            raise errors.OpPrereqError(
                "the check of the address needs the check of the name", errors.ECODE_INVAL
            )
        prereq.require_tags(op.tags)

    def _check_name(self) -> tuple[str, str | None]:
        name = prereq.valid_host_name(self.op.instance_name, "instance name")
        if not self.op.name_check:
            return name, None
        host = prereq.resolve(name, "instance name")
        if self.op.ip_check and net.tcp_ping(
            host.ip, machine.current().noded_port(), PING_TIMEOUT_S
        ):
            raise errors.OpPrereqError(
                f"address {host.ip} of instance {host.name} is already in use",
                errors.ECODE_NOTUNIQUE,
            )
        return host.name, host.ip

    def _reserve_name(self) -> None:
        try:
            self.config.reserve_instance_name(self.name, self.ctx.ec_id)
        except errors.ReservationError as err:
            raise errors.OpPrereqError(
                f"instance {self.name} is already in the cluster, or is being added",
                errors.ECODE_EXISTS,
            ) from err

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: CreatePlan) -> dict[str, object]:
        data = self.config.snapshot()
        existing = data.instances.get(self.uuid)
        disks: list[Disk] = []
        if existing is not None and not existing.forthcoming:
            disks = list(self.config.instance_disks(existing))
        env = instance_env(
            self.config,
            name=self.name,
            primary=plan.node.name,
            secondaries=[node.name for node in plan.nodes[1:]],
            os_type=self.op.os_type or "",
            status=self.op.start,
            beparams=plan.beparams_filled,
            hvparams=plan.hvparams_filled,
            hypervisor=plan.hypervisor,
            disk_template=plan.disk_template,
            tags=self.op.tags,
            nics=[(planned.nic, planned.filled) for planned in plan.nics],
            disks=disks or [_nameless(plan.disk_template, wish) for wish in plan.disk_wishes],
        )
        source = {} if self.imported is None else self.imported.hook_env()
        return {"ADD_MODE": self.op.mode, **source, **env}

    def hook_nodes(self, plan: CreatePlan) -> tuple[list[str], list[str]]:
        if self.op.forthcoming:
            # Nothing is added yet; the hooks run when it is.
            return [], []
        nodes = [self.config.master_node().uuid, *(node.uuid for node in plan.nodes)]
        return nodes, nodes

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> CreatePlan:
        op = self.op
        if self.reserved is not None:
            forthcoming.require_unchanged(self, self.reserved)
        given = [self.require_named_node(node) for node in self.given_nodes]
        cluster = self.config.cluster()
        beparams = params.checked_beparams(op.beparams)
        beparams_filled = fill.fill_be(cluster, beparams)
        params.require_sane_backend(beparams_filled)
        hvparams = params.checked_hvparams(self.hypervisor, op.hvparams)
        hvparams_filled = fill.fill_hv(cluster, self.hypervisor, op.os_type, hvparams)
        params.require_hv_syntax(self.hypervisor, hvparams_filled)
        os_name = op.os_type or ""
        given_osparams = (op.osparams, op.osparams_private or {}, op.osparams_secret or {})
        osparams_all = os.for_installation(cluster, os_name, *given_osparams)
        wishes = specs.plan_disks(self, self.template, op.disks)
        directory = None
        if self.template in disk_work.IN_OWN_DIRECTORY:
            directory = specs.file_directory(self, self.template, op.file_storage_dir, self.name)
        elif op.file_storage_dir or (op.file_driver and self.template not in FILE_BASED):
            raise errors.OpPrereqError(
                f"disk template {self.template} takes neither file driver nor directory",
                errors.ECODE_INVAL,
            )
        wanted_nics = list(op.nics)
        kept_nics = nics.reserved_nics(self, self.reserved) if not wanted_nics else []
        talks = any(p.nic.name == communication.nic_name(self.name) for p in kept_nics)
        if op.instance_communication and not talks:
            wanted_nics.append(communication.nic_spec(self, self.name))
        planned_nics = [
            *kept_nics,
            *nics.plan_nics(self, wanted_nics, self.ip, reserved=self.reserved),
        ]
        nodes = given or self.place(beparams_filled, wishes, planned_nics)
        node, secondary = nodes[0], nodes[1] if len(nodes) > 1 else None
        planned_nics = nics.settle(
            self, planned_nics, node, conflicts_check=op.conflicts_check, reserved=self.reserved
        )
        adopt.require_storage(
            self, self.template, [node.uuid for node in nodes], wishes, reserved=self.reserved
        )
        found = policy.violations(
            self,
            node,
            beparams=beparams_filled,
            disk_sizes_mib=policy.counted_sizes(
                self.hypervisor,
                lambda: hvparams_filled,
                ((wish["name"], wish["size"]) for wish in wishes),
            ),
            nic_count=len(planned_nics),
            disk_template=self.template,
        )
        policy.refuse(self, self.name, node, found, ignore=op.ignore_ipolicy)
        params.require_firmware_disks(
            self.hypervisor, hvparams_filled, [wish["name"] for wish in wishes]
        )
        prereq.require_hvparams_usable(self, [node.uuid], self.hypervisor, hvparams_filled)
        helper = None
        if op.os_type is not None and not op.no_install:
            if op.mode == CREATE:
                prereq.require_allowed_os(self, op.os_type)
            if op.mode == CREATE and not op.forthcoming:
                helper = operating_system.require(
                    self,
                    node,
                    self.name,
                    op.os_type,
                    osparams_all,
                    force_variant=op.force_variant,
                    hypervisor=self.hypervisor,
                    present=planned_nics,
                    startup_s=op.helper_startup_timeout,
                    shutdown_s=op.helper_shutdown_timeout,
                )
            else:
                prereq.require_os(
                    self,
                    node.uuid,
                    op.os_type,
                    osparams_all,
                    force_variant=op.force_variant,
                    hypervisor=self.hypervisor,
                )
        prereq.require_bridges(self, [planned.filled for planned in planned_nics], node.uuid)
        if op.start or helper is not None:
            prereq.require_free_memory(
                self,
                node.uuid,
                f"creating instance {self.name}",
                beparams_filled["maxmem"],
                self.hypervisor,
                hvparams_filled,
            )
        return CreatePlan(
            node=node,
            secondary=secondary,
            hypervisor=self.hypervisor,
            disk_template=self.template,
            disk_wishes=wishes,
            disk_directory=directory,
            nics=planned_nics,
            hvparams=hvparams,
            hvparams_filled=hvparams_filled,
            beparams=beparams,
            beparams_filled=beparams_filled,
            os_parameters=operating_system.visible_parameters(self, os_name, *given_osparams),
            os_helper=helper,
        )

    def dry_run_result(self, plan: CreatePlan) -> list[str]:
        return [node.name for node in plan.nodes]

    # -- act -------------------------------------------------------------------

    def steps(self, plan: CreatePlan) -> list[str]:
        return dry_run_steps.create(self, plan)

    def exec(self, plan: CreatePlan) -> list[str]:
        if self.op.forthcoming:
            self.feedback(f"reserving resources for instance {self.name}")
            self._add(*forthcoming.reservation(*self._objects(plan)))
            return [node.name for node in plan.nodes]
        instance = self._create(plan)
        if self.op.start:
            self._start(instance)
        return [node.name for node in plan.nodes]

    def _create(self, plan: CreatePlan) -> Instance:
        op = self.op
        hint = f"Clean up with 'gnt-instance remove --ignore-failures {self.name}'."
        with UndoStack(self.warn, hint=hint) as undo:
            instance, disks = self._objects(plan)
            for index, disk in enumerate(disks):
                self.feedback(f"* disk {index}, size {disk.size} MiB")
            self.feedback(f"adding instance {self.name} to the cluster configuration")
            # Undone last; while disks remain it must stay, or nobody could remove them any more.
            self._left: list[str] = []
            undo.add("the instance itself", self._forget, instance)
            adopted = [
                (adopt.present_device(disk, plan.disk_template, wish), disk)
                for disk, wish in zip(disks, plan.disk_wishes, strict=True)
                if wish.get("adopt")
            ]
            # What is adopted must never be removed when something fails.
            to_make = [] if adopted else disks
            self._add(instance, disks)
            self.instance = instance = self.config.instance(instance.uuid)
            adopt.rename(self, undo, instance, adopted)
            if to_make:
                self.feedback("* making the disks of the instance")
                undo.add(
                    "",
                    self._attempt,
                    "the disk directory",
                    disk_work.remove_storage_dir,
                    self,
                    instance,
                    disks,
                )
                disk_work.create_storage_dir(self, instance, disks)
            for index, disk in enumerate(to_make):
                undo.add(
                    "", self._attempt, f"disk {index}", disk_work.remove_disk, self, instance, disk
                )
                self._create_disk(plan, instance, index, disk)
            if disk_work.mirrored_internally(disks):
                self._synchronise(undo, instance)
            self.release_locks(Level.NODE_RES)
            if disks and not op.no_install:
                self._install(plan, instance)
            undo.commit()
        return self.config.instance(instance.uuid)

    def _synchronise(self, undo: UndoStack, instance: Instance) -> None:
        """Let the halves of mirrored disks find each other; wait for them if that is wanted."""
        undo.add("", self._attempt, "active disks", disk_work.shutdown_disks, self, instance)
        disk_work.assemble_disks(self, instance)
        in_step = sync.wait_for_sync(
            self, instance, once=not self.op.wait_for_sync, cancelable=True
        )
        if self.op.wait_for_sync and not in_step:
            raise errors.OpExecError(
                f"disks of instance {self.name} are degraded after all was sent"
            )

    def _add(self, instance: Instance, disks: list[Disk]) -> None:
        reserved = self.reserved
        try:
            if reserved is None:
                with self.config.transaction() as change:
                    change.add_instance(instance, disks, self.ctx.ec_id)
            else:
                with self.config.transaction() as change:
                    change.commit_instance(instance, disks, self.ctx.ec_id)
        except errors.ConfigurationError:
            # Later its removal gives the port back, now nobody else would.
            port = instance.network_port
            if port is not None and (reserved is None or port != reserved.network_port):
                with self.config.transaction() as change:
                    change.release_port(port)
            raise

    def _attempt(self, what: str, step: Any, *args: Any) -> None:
        """Undo one thing, remembering what could not be undone."""
        try:
            step(*args)
        except errors.GenericError as err:
            self._left.append(f"{what} ({err})")

    def _forget(self, instance: Instance) -> None:
        """Take the instance out of the configuration, unless that would orphan its disks."""
        if instance.uuid not in self.config.snapshot().instances:
            return
        if self._left:
            raise errors.OpExecError(
                f"kept in the configuration because of {', '.join(self._left)}"
            )
        if self.reserved is None:
            with self.config.transaction() as change:
                change.remove_instance(instance.uuid)
        else:
            with self.config.transaction() as change:
                change.reserve_instance(instance.uuid)

    def _objects(self, plan: CreatePlan) -> tuple[Instance, list[Disk]]:
        op = self.op
        disks = self._disks(plan)
        now = clock.now()
        port = None
        if hypervisors.of(plan.hypervisor).needs_port:
            port = None if self.reserved is None else self.reserved.network_port
            if not port:
                with self.config.transaction() as change:
                    port = change.allocate_port()
        # Without disks there is nothing to be done before it can run.
        at_once = op.start and not disks
        instance = Instance(
            name=self.name,
            primary_node=plan.node.uuid,
            os=op.os_type or "",
            hypervisor=plan.hypervisor,
            hvparams=plan.hvparams,
            beparams=plan.beparams,
            osparams=dict(op.osparams),
            osparams_private=ht.PrivateDict(op.osparams_private or {}),
            admin_state=prereq.ADMIN_UP if at_once else prereq.ADMIN_DOWN,
            admin_state_source="admin",
            nics=tuple(planned.nic for planned in plan.nics),
            disks=tuple(disk.uuid for disk in disks),
            disks_active=at_once,
            network_port=port,
            tags=tuple(sorted(set(op.tags))),
            uuid=self.uuid,
            ctime=now if self.reserved is None else self.reserved.ctime,
            mtime=now,
            serial_no=1 if self.reserved is None else self.reserved.serial_no,
        )
        return instance, disks

    def _disks(self, plan: CreatePlan) -> list[Disk]:
        nodes = [node.uuid for node in plan.nodes]
        if (
            self.reserved is not None
            and self.keeps_disks
            and forthcoming.same_place(self, self.reserved, plan.disk_template, nodes)
        ):
            return forthcoming.real(self.config.instance_disks(self.reserved))
        return specs.make_disks(
            self,
            plan.disk_template,
            plan.disk_wishes,
            primary_node=plan.node.uuid,
            secondary_node=None if plan.secondary is None else plan.secondary.uuid,
            directory=plan.disk_directory,
            driver=self.op.file_driver,
        )

    def _create_disk(self, plan: CreatePlan, instance: Instance, index: int, disk: Disk) -> None:
        try:
            disk_work.create_disk(self, instance, disk)
        except errors.RpcError as err:
            raise errors.OpExecError(
                f"could not create disk {index} of instance {instance.name} on node"
                f" {plan.node.name}: {why(err)}"
            ) from err

    def _install(self, plan: CreatePlan, instance: Instance) -> None:
        try:
            disk_work.assemble_disks(self, instance)
            if self.imported is None:
                self._run_create_script(plan, instance)
            else:
                self.imported.run(self, instance, self.op.compress)
        except errors.GenericError:
            # That they stay active is the smaller problem, and must not hide the greater one.
            self._attempt("active disks", disk_work.shutdown_disks, self, instance)
            raise
        if not self.op.start:
            disk_work.shutdown_disks(self, instance)

    def _run_create_script(self, plan: CreatePlan, instance: Instance) -> None:
        self.feedback("* running the OS's create script")
        operating_system.install(
            self,
            instance,
            plan.os_parameters,
            plan.os_helper,
            reinstall=False,
            debug_level=self.op.debug_level or 0,
        )

    def _start(self, instance: Instance) -> None:
        self.feedback("* starting the instance")
        with self.config.transaction() as change:
            change.mark_instance(instance.uuid, prereq.ADMIN_UP)
        try:
            power.start(self, self.config.instance(instance.uuid))
        except errors.OpExecError as err:
            raise errors.OpExecError(
                f"{err}. Instance {instance.name} is complete and marked to run: start it again"
                " with"
                f" 'gnt-instance startup', or remove it with 'gnt-instance remove'."
            ) from err


def _nameless(template: str, wish: Mapping[str, Any]) -> Disk:
    """A planned disk without identity, for the variables of the pre hooks."""
    return Disk(
        dev_type=template, logical_id=(), size=wish["size"], mode=wish["mode"], name=wish["name"]
    )
