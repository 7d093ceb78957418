"""The requests to allocators: a class for each mode.

A request writes the part ``request`` of the input of the allocator
(:meth:`AllocationRequest.to_dict`) and checks the part ``result`` of its answer
(:meth:`AllocationRequest.check`). Both are pure functions of one snapshot of the configuration.

Source: manual page **ganeti-iallocator**.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ganeti import errors, opcodes
from ganeti.allocator import describe
from ganeti.objects import disk_templates, fill

if TYPE_CHECKING:
    from ganeti.objects import ConfigData, Instance, Nic, Node
    from ganeti.opcodes.base import OpCode

T = TypeVar("T")

#: The opcodes which may be in the jobs of an allocator.
_MOVES = ("OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS")


def required_nodes(disk_template: str) -> int:
    """Return the number of nodes which an instance with this disk template needs."""
    return 2 if disk_template in disk_templates.INT_MIRRORED else 1


def instance_space_mib(disk_template: str, sizes_mib: Collection[int]) -> int:
    """Space (MiB) which the disks of a new instance will take on each of its nodes."""
    return sum(disk_templates.space_mib(disk_template, size) for size in sizes_mib)


def allocate_nic(nic: Nic, filled: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a NIC of a new instance.

    :param filled: the parameters of the NIC with all defaults.
    """
    described = describe.nic_dict(nic.mac, nic.ip, filled)
    if nic.network is not None:
        described["network"] = nic.network
    if nic.name is not None:
        described["name"] = nic.name
    return {**described, "nicparams": dict(nic.nicparams), "uuid": nic.uuid}


class AllocationRequest(ABC, Generic[T]):
    """A request to an allocator, whose checked result is a ``T``."""

    MODE: ClassVar[str]

    @abstractmethod
    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        """Make the published form of the request, without its key ``type``.

        :raises AllocatorError: the request is not possible for the instance.
        """

    @abstractmethod
    def check(self, config: ConfigData, result: Any) -> T:
        """Check the result of the allocator and convert it.

        :raises AllocatorError: the shape of the result is wrong, or it names unknown or unsuitable
            objects.
        """

    def hypervisor_of(self, config: ConfigData) -> str | None:
        """Return the hypervisor whose memory and processors count.

        The result is None for the cluster's default.
        """
        return None

    def disk_template_of(self, config: ConfigData) -> str | None:
        """Return the disk template which the request is about; None without one."""
        return None

    def volume_groups(self) -> tuple[str, ...]:
        """Return the volume groups which the request names; perhaps no disk is there yet."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Return the options of the allocator, in addition to those of the cluster."""
        return {}

    def excluded(self, config: ConfigData) -> dict[str, str]:
        """Return why the request excludes nodes, for reasons: name of the node -> text."""
        return {}

    def with_reasons(self, result: T, reasons: Mapping[str, str]) -> T:
        """Add to a checked result why instances have no place.

        :param reasons: name of an instance -> sentences; empty when the allocator gives none.
        """
        return result


@dataclass(frozen=True, slots=True)
class Allocate(AllocationRequest[tuple[str, ...]]):
    """Request for the nodes of a new instance. Result: their UUIDs, the primary node first.

    :ivar disks: specs of the disks with ``size`` (MiB) and ``mode``.
    :ivar nics: NICs as :func:`allocate_nic` describes them.
    :ivar group: UUID of the node group in which the nodes must be; None for any.
    :ivar only_nodes: UUIDs of the nodes among which to choose; None for all.
    """

    name: str
    hypervisor: str
    os: str
    memory_mib: int
    vcpus: int
    spindle_use: int
    disk_template: str
    disks: tuple[Mapping[str, Any], ...]
    nics: tuple[Mapping[str, Any], ...]
    tags: tuple[str, ...] = ()
    group: str | None = None
    only_nodes: frozenset[str] | None = None

    MODE: ClassVar[str] = "allocate"

    @property
    def required_nodes(self) -> int:
        """Number of nodes which the instance needs."""
        return required_nodes(self.disk_template)

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return self.hypervisor

    def disk_template_of(self, config: ConfigData) -> str | None:
        return self.disk_template

    def volume_groups(self) -> tuple[str, ...]:
        return tuple(str(disk["vg"]) for disk in self.disks if disk.get("vg"))

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        sizes = [int(disk["size"]) for disk in self.disks]
        group = None if self.group is None else config.nodegroups[self.group].name
        described: dict[str, Any] = {
            "name": self.name,
            "disk_template": self.disk_template,
            "group_name": group,
            "tags": list(self.tags),
            "os": self.os,
            "vcpus": self.vcpus,
            "memory": self.memory_mib,
            "spindle_use": self.spindle_use,
            "disks": [
                {"vg": None, "name": None, **disk, "dev_type": self.disk_template}
                for disk in self.disks
            ],
            "disk_space_total": instance_space_mib(self.disk_template, sizes),
            "nics": [dict(nic) for nic in self.nics],
            "required_nodes": self.required_nodes,
            "hypervisor": self.hypervisor,
        }
        if self.only_nodes is not None:
            described["restrict-to-nodes"] = sorted(
                config.nodes[uuid].name for uuid in self.only_nodes if uuid in config.nodes
            )
        return described

    def excluded(self, config: ConfigData) -> dict[str, str]:
        if self.only_nodes is None:
            return {}
        return {
            node.name: f"without hypervisor {self.hypervisor}"
            for node in config.nodes.values()
            if node.uuid not in self.only_nodes
            and self.hypervisor not in fill.node_hypervisors(config, node.uuid)
        }

    def check(self, config: ConfigData, result: Any) -> tuple[str, ...]:
        nodes = _nodes(config, result, self.name, self.required_nodes)
        for node in nodes:
            _require_target(node)
            if self.only_nodes is not None and node.uuid not in self.only_nodes:
                raise errors.AllocatorError(
                    f"node {node.name} is not one of the nodes which it was allowed to choose"
                )
            if self.group is not None and node.group != self.group:
                raise errors.AllocatorError(
                    f"node {node.name} is not in group {config.nodegroups[self.group].name}"
                )
        return tuple(node.uuid for node in nodes)


@dataclass(frozen=True, slots=True)
class Relocate(AllocationRequest[tuple[str, ...]]):
    """Request for another node of an instance. Result: a tuple with its UUID.

    :ivar instance: UUID of the instance.
    :ivar relocate_from: UUIDs of the nodes which the instance leaves: the secondary node of an
        instance with DRBD disks, the primary node of another one.
    """

    instance: str
    relocate_from: tuple[str, ...]

    MODE: ClassVar[str] = "relocate"

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return config.instances[self.instance].hypervisor

    def disk_template_of(self, config: ConfigData) -> str | None:
        disks = fill.instance_disks(config, config.instances[self.instance])
        return fill.disk_template(disks)

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        instance = config.instances[self.instance]
        disks = fill.instance_disks(config, instance)
        if fill.disk_template(disks) not in disk_templates.MIRRORED:
            raise errors.AllocatorError(
                f"instance {instance.name} cannot be relocated, because its disks are on one node"
                " only"
            )
        return {
            "name": instance.name,
            "disk_space_total": describe.space_mib(disks),
            "required_nodes": 1,
            "relocate_from": [config.nodes[uuid].name for uuid in self.relocate_from],
        }

    def check(self, config: ConfigData, result: Any) -> tuple[str, ...]:
        instance = config.instances[self.instance]
        nodes = _nodes(config, result, instance.name, 1)
        present = describe.node_uuids(config, instance)
        groups = {config.nodes[uuid].group for uuid in present}
        for node in nodes:
            _require_target(node)
            if node.uuid in present:
                raise errors.AllocatorError(
                    f"instance {instance.name} is on node {node.name} already"
                )
            if node.group not in groups:
                raise errors.AllocatorError(
                    f"node {node.name} is in group {config.nodegroups[node.group].name}, but"
                    f" instance {instance.name} is not"
                )
        return tuple(node.uuid for node in nodes)


@dataclass(frozen=True, slots=True)
class AllocateSecondary(AllocationRequest[str]):
    """Request for a secondary node of an instance which has none. Result: its UUID.

    :ivar instance: UUID of the instance.
    """

    instance: str

    MODE: ClassVar[str] = "allocate-secondary"

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return config.instances[self.instance].hypervisor

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        return {"name": config.instances[self.instance].name}

    def check(self, config: ConfigData, result: Any) -> str:
        instance = config.instances[self.instance]
        (node,) = _nodes(config, [result], instance.name, 1)
        _require_target(node)
        if node.uuid == instance.primary_node:
            raise errors.AllocatorError(
                f"node {node.name} is the primary node of instance {instance.name}"
            )
        return node.uuid


@dataclass(frozen=True, slots=True)
class Placements:
    """Nodes for several new instances.

    :ivar nodes: name of an instance -> UUIDs of its nodes, the primary node first.
    :ivar failed: names of the instances for which no nodes were found.
    :ivar reasons: name of such an instance -> why, if the allocator gives a reason.
    """

    nodes: Mapping[str, tuple[str, ...]]
    failed: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MultiAllocate(AllocationRequest[Placements]):
    """Request for the nodes of several new instances, which are placed together."""

    instances: tuple[Allocate, ...]

    MODE: ClassVar[str] = "multi-allocate"

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return self.instances[0].hypervisor if self.instances else None

    def disk_template_of(self, config: ConfigData) -> str | None:
        return self.instances[0].disk_template if self.instances else None

    def volume_groups(self) -> tuple[str, ...]:
        return tuple(group for instance in self.instances for group in instance.volume_groups())

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        return {"instances": [instance.to_dict(config) for instance in self.instances]}

    def check(self, config: ConfigData, result: Any) -> Placements:
        found, failed = _fixed_list(result, 2, "placed instances and failed ones")
        wanted = {instance.name: instance for instance in self.instances}
        placed: dict[str, tuple[str, ...]] = {}
        for entry in _list(found, "placed instances"):
            name, nodes = _fixed_list(entry, 2, "an instance and its nodes")
            if not isinstance(name, str) or name not in wanted:
                raise errors.AllocatorError(
                    f"it places instance {name!r}, which is not in the request"
                )
            placed[name] = wanted[name].check(config, nodes)
        without = _list(failed, "failed instances")
        missing = sorted(set(wanted) - set(placed) - {str(name) for name in without})
        if missing:
            raise errors.AllocatorError(
                f"instance {', '.join(missing)} of the request is not in the answer"
            )
        return Placements(placed, tuple(str(name) for name in without))

    def with_reasons(self, result: Placements, reasons: Mapping[str, str]) -> Placements:
        return replace(result, reasons=reasons)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves of instances which an allocator proposes.

    :ivar moved: name of an instance, its new group (name or UUID), names of its new nodes.
    :ivar failed: name of an instance, and why it cannot move (None without a reason).
    :ivar jobs: the opcodes of each job which carries out the moves.
    """

    moved: tuple[tuple[str, str, tuple[str, ...]], ...]
    failed: tuple[tuple[str, str | None], ...]
    jobs: tuple[tuple[OpCode, ...], ...]


class _MoveRequest(AllocationRequest[Moves]):
    """A request whose result is a list of jobs."""

    __slots__ = ()

    def check(self, config: ConfigData, result: Any) -> Moves:
        moved, failed, jobs = _fixed_list(result, 3, "moved instances, failed ones and jobs")
        return Moves(
            tuple(_move(config, entry) for entry in _list(moved, "moved instances")),
            tuple(_failure(config, entry) for entry in _list(failed, "failed instances")),
            tuple(_job(config, job) for job in _list(jobs, "jobs")),
        )

    def with_reasons(self, result: Moves, reasons: Mapping[str, str]) -> Moves:
        failed = tuple((name, reasons.get(name, reason)) for name, reason in result.failed)
        return replace(result, failed=failed)


@dataclass(frozen=True, slots=True)
class NodeEvacuate(_MoveRequest):
    """Request for jobs which move instances away from their nodes.

    :ivar instances: UUIDs of the instances.
    :ivar evac_mode: ``primary-only``, ``secondary-only`` or ``all``.
    :ivar ignore_soft_errors: the allocator may violate rules which it usually keeps.
    """

    instances: tuple[str, ...]
    evac_mode: str
    ignore_soft_errors: bool = False

    MODE: ClassVar[str] = "node-evacuate"

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        return {"instances": _names(config, self.instances), "evac_mode": self.evac_mode}

    def parameters(self) -> dict[str, Any]:
        return {"ignore-soft-errors": None} if self.ignore_soft_errors else {}


@dataclass(frozen=True, slots=True)
class ChangeGroup(_MoveRequest):
    """Request for jobs which move instances to other node groups.

    :ivar instances: UUIDs of the instances.
    :ivar target_groups: UUIDs of the groups to choose from; empty for all other groups.
    """

    instances: tuple[str, ...]
    target_groups: tuple[str, ...] = ()

    MODE: ClassVar[str] = "change-group"

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        return {
            "instances": _names(config, self.instances),
            "target_groups": list(self.target_groups),
        }


# -- shapes --------------------------------------------------------------------------------------


def _names(config: ConfigData, instances: Sequence[str]) -> list[str]:
    return [config.instances[uuid].name for uuid in instances]


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise errors.AllocatorError(f"{value!r:.200} is not a list of {what}")
    return value


def _fixed_list(value: Any, length: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise errors.AllocatorError(f"{value!r:.200} is not a list of {length}: {what}")
    return value


def _nodes(config: ConfigData, result: Any, instance_name: str, count: int) -> list[Node]:
    names = _list(result, "node names")
    if len(names) != count:
        raise errors.AllocatorError(
            f"instance {instance_name} needs {count} node{'s' * (count > 1)}, not {len(names)}:"
            f" {names!r:.200}"
        )
    nodes = [_node(config, name) for name in names]
    if len({node.uuid for node in nodes}) != count:
        raise errors.AllocatorError(f"it chose node {nodes[0].name} twice")
    return nodes


def _node(config: ConfigData, name: Any) -> Node:
    for node in config.nodes.values():
        if node.name == name:
            return node
    raise errors.AllocatorError(f"there is no node {name!r:.200}")


def _instance(config: ConfigData, name: Any) -> Instance:
    for instance in config.instances.values():
        if instance.name == name:
            return instance
    raise errors.AllocatorError(f"there is no instance {name!r:.200}")


def _require_target(node: Node) -> None:
    """Check that a node may get instances, because an allocator may ignore its description.

    :raises AllocatorError: it may not.
    """
    for refused, reason in (
        (node.offline, "offline"),
        (node.drained, "drained"),
        (not node.vm_capable, "not vm_capable"),
    ):
        if refused:
            raise errors.AllocatorError(f"node {node.name} is {reason}")


def _move(config: ConfigData, entry: Any) -> tuple[str, str, tuple[str, ...]]:
    name, group, nodes = _fixed_list(entry, 3, "an instance, its group and its nodes")
    if not any(group in (known.name, known.uuid) for known in config.nodegroups.values()):
        raise errors.AllocatorError(f"there is no node group {group!r:.200}")
    found = tuple(_node(config, node).name for node in _list(nodes, "node names"))
    return _instance(config, name).name, group, found


def _failure(config: ConfigData, entry: Any) -> tuple[str, str | None]:
    name, reason = _fixed_list(entry, 2, "an instance and a reason")
    if reason is not None and not isinstance(reason, str):
        raise errors.AllocatorError(f"{reason!r:.200} is not a reason")
    return _instance(config, name).name, reason


def _job(config: ConfigData, job: Any) -> tuple[OpCode, ...]:
    return tuple(_opcode(config, fields) for fields in _list(job, "opcodes"))


def _opcode(config: ConfigData, fields: Any) -> OpCode:
    op_id = fields.get("OP_ID") if isinstance(fields, dict) else None
    if op_id not in _MOVES:
        raise errors.AllocatorError(f"{fields!r:.200} is not an opcode that moves an instance")
    try:
        op = opcodes.from_dict(fields)
        op.validate()
    except (errors.OpPrereqError, errors.OpCodeUnknown) as err:
        raise errors.AllocatorError(f"opcode {op_id}: {err}") from err
    _instance(config, fields.get("instance_name"))
    return op
