"""What an allocator can be asked: a class for each mode.

A request writes the part ``request`` of what the allocator is told (:meth:`Request.to_dict`) and
checks the part ``result`` of what it answers (:meth:`Request.check`). Both are pure: they see one
snapshot of the configuration and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ganeti import errors, opcodes
from ganeti.allocator import describe
from ganeti.constants import disk as disk_c
from ganeti.objects import fill

if TYPE_CHECKING:
    from ganeti.objects import ConfigData, Instance, Nic, Node
    from ganeti.opcodes.base import OpCode

T = TypeVar("T")

#: What an allocator may ask for to move instances.
_MOVES = ("OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS")


def required_nodes(disk_template: str) -> int:
    """How many nodes an instance needs."""
    return 2 if disk_template in disk_c.INT_MIRRORED else 1


def instance_space_mib(disk_template: str, sizes_mib: Collection[int]) -> int:
    """What the disks of a new instance take of each of its nodes."""
    return sum(describe.disk_space_mib(disk_template, size) for size in sizes_mib)


def allocate_nic(nic: Nic, filled: Mapping[str, Any]) -> dict[str, Any]:
    """A network interface of an instance to be made; ``filled`` are all its parameters."""
    described = describe.nic_dict(nic.mac, nic.ip, filled)
    if nic.network is not None:
        described["network"] = nic.network
    if nic.name is not None:
        described["name"] = nic.name
    return {**described, "nicparams": dict(nic.nicparams), "uuid": nic.uuid}


class Request(ABC, Generic[T]):
    """A question whose checked answer is a ``T``."""

    MODE: ClassVar[str]

    @abstractmethod
    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        """The request as published, without its ``type``."""

    @abstractmethod
    def check(self, config: ConfigData, result: Any) -> T:
        """Make the result usable.

        :raises AllocatorError: it has another shape, or names what does not exist or fit.
        """

    def hypervisor_of(self, config: ConfigData) -> str | None:
        """Whose memory and processors count; None for the cluster's default."""
        return None

    def disk_template_of(self, config: ConfigData) -> str | None:
        """The kind of disks which the request is about, if there is one."""
        return None

    def parameters(self) -> dict[str, Any]:
        """Options for the allocator, on top of the cluster's."""
        return {}


@dataclass(frozen=True, slots=True)
class Allocate(Request[tuple[str, ...]]):
    """Nodes for a new instance. Result: their UUIDs, the primary first.

    :ivar disks: ``size`` (MiB), ``mode`` and what else was asked for, each.
    :ivar nics: as :func:`allocate_nic` makes them.
    :ivar group: UUID of the node group which it must be in.
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
        """How many nodes it needs."""
        return required_nodes(self.disk_template)

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return self.hypervisor

    def disk_template_of(self, config: ConfigData) -> str | None:
        return self.disk_template

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

    def check(self, config: ConfigData, result: Any) -> tuple[str, ...]:
        nodes = _nodes(config, result, self.name, self.required_nodes)
        for node in nodes:
            _require_target(node)
            if self.only_nodes is not None and node.uuid not in self.only_nodes:
                raise errors.AllocatorError(
                    f"node {node.name} is not one of those among which it was to choose"
                )
            if self.group is not None and node.group != self.group:
                raise errors.AllocatorError(
                    f"node {node.name} is not in group {config.nodegroups[self.group].name}"
                )
        return tuple(node.uuid for node in nodes)


@dataclass(frozen=True, slots=True)
class Relocate(Request[tuple[str, ...]]):
    """Another node for an instance. Result: its UUID.

    :ivar instance: UUID of the instance.
    :ivar relocate_from: UUIDs of the nodes it shall leave: mirrored ones their secondary, others
        their primary.
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
        if fill.disk_template(disks) not in disk_c.MIRRORED:
            raise errors.AllocatorError(
                f"instance {instance.name} cannot be relocated: its disks are on one node only"
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
                raise errors.AllocatorError(f"instance {instance.name} is on node {node.name} now")
            if node.group not in groups:
                raise errors.AllocatorError(
                    f"node {node.name} is in group {config.nodegroups[node.group].name}, in which"
                    f" instance {instance.name} is not"
                )
        return tuple(node.uuid for node in nodes)


@dataclass(frozen=True, slots=True)
class AllocateSecondary(Request[str]):
    """A secondary node for an instance which has none. Result: its UUID."""

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
    """Nodes for several new instances: UUIDs by name, the primary first; and who got none."""

    nodes: Mapping[str, tuple[str, ...]]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MultiAllocate(Request[Placements]):
    """Nodes for several new instances, seen together."""

    instances: tuple[Allocate, ...]

    MODE: ClassVar[str] = "multi-allocate"

    def hypervisor_of(self, config: ConfigData) -> str | None:
        return self.instances[0].hypervisor if self.instances else None

    def disk_template_of(self, config: ConfigData) -> str | None:
        return self.instances[0].disk_template if self.instances else None

    def to_dict(self, config: ConfigData) -> dict[str, Any]:
        return {"instances": [instance.to_dict(config) for instance in self.instances]}

    def check(self, config: ConfigData, result: Any) -> Placements:
        found, failed = _fixed_list(result, 2, "placed instances and failed ones")
        wanted = {instance.name: instance for instance in self.instances}
        placed: dict[str, tuple[str, ...]] = {}
        for entry in _list(found, "placed instances"):
            name, nodes = _fixed_list(entry, 2, "an instance and its nodes")
            if not isinstance(name, str) or name not in wanted:
                raise errors.AllocatorError(f"it places instance {name!r}, which nobody asked for")
            placed[name] = wanted[name].check(config, nodes)
        without = _list(failed, "failed instances")
        missing = sorted(set(wanted) - set(placed) - {str(name) for name in without})
        if missing:
            raise errors.AllocatorError(f"it says nothing about instance {', '.join(missing)}")
        return Placements(placed, tuple(str(name) for name in without))


@dataclass(frozen=True, slots=True)
class Moves:
    """How instances would move.

    :ivar moved: name of an instance, its new group (name or UUID), names of its new nodes.
    :ivar failed: name of an instance and why it cannot move, if the allocator says so.
    :ivar jobs: opcodes, job by job, that do it.
    """

    moved: tuple[tuple[str, str, tuple[str, ...]], ...]
    failed: tuple[tuple[str, str | None], ...]
    jobs: tuple[tuple[OpCode, ...], ...]


class _Moving(Request[Moves]):
    """Requests answered by jobs."""

    __slots__ = ()

    def check(self, config: ConfigData, result: Any) -> Moves:
        moved, failed, jobs = _fixed_list(result, 3, "moved instances, failed ones and jobs")
        return Moves(
            tuple(_move(config, entry) for entry in _list(moved, "moved instances")),
            tuple(_failure(config, entry) for entry in _list(failed, "failed instances")),
            tuple(_job(config, job) for job in _list(jobs, "jobs")),
        )


@dataclass(frozen=True, slots=True)
class NodeEvacuate(_Moving):
    """Jobs that empty nodes of these instances (UUIDs).

    :ivar evac_mode: ``primary-only``, ``secondary-only`` or ``all``.
    :ivar ignore_soft_errors: prefer an allocation against soft rules to none.
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
class ChangeGroup(_Moving):
    """Jobs that bring instances (UUIDs) to other groups (UUIDs; none: any other)."""

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
    """The node may get instances; an allocator was told so, but it is a program by others."""
    for refused, reason in (
        (node.offline, "offline"),
        (node.drained, "drained"),
        (not node.vm_capable, "not meant to run instances"),
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
