"""Reading the input of an allocator: a cluster, and what is asked about it.

Source: manual page **ganeti-iallocator**.
"""

from __future__ import annotations

from collections.abc import Mapping

from ganeti import TYPE_CHECKING, errors
from ganeti.htools import units
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.instance import NO_NODE, RUNNING, Disk, Instance, Nic, Size
from ganeti.htools.loading import form
from ganeti.htools.loading.rest import policy as read_policy
from ganeti.htools.loading.text import unknown_node
from ganeti.htools.node import Node, Resources
from ganeti.objects import disk_templates, ipolicy
from ganeti.utils.records import field, record
from ganeti.wire import json

if TYPE_CHECKING:
    from typing import Any

ALLOCATE = "allocate"
ALLOCATE_SECONDARY = "allocate-secondary"
CHANGE_GROUP = "change-group"
MULTI_ALLOCATE = "multi-allocate"
NODE_EVACUATE = "node-evacuate"
RELOCATE = "relocate"

_EVACUATION_MODES = ("primary-only", "secondary-only", "all")

_STATES = {"up": RUNNING, "down": "ADMIN_down", "offline": "ADMIN_offline"}


@record(frozen=True, slots=True)
class New:
    """A new instance to be placed.

    :ivar required: how many nodes it needs.
    :ivar group: name of the only group; None for any.
    :ivar restrict_to: names of the only nodes; None for all.
    """

    instance: Instance
    required: int
    group: str | None = None
    restrict_to: tuple[str, ...] | None = None


@record(slots=True)
class Request:
    """A request.

    :ivar kind: one of the modes, for example :data:`ALLOCATE`.
    :ivar new: the new instances of an allocation.
    :ivar names: the instances of the other modes.
    :ivar nodes: names of the nodes to be left (relocation).
    :ivar groups: UUIDs of the wanted groups (change of groups); empty for any.
    :ivar evacuation_mode: what is moved (evacuation).
    :ivar closed: name of a node which takes no instances -> why.
    """

    cluster: Cluster
    kind: str
    new: list[New] = field(default_factory=list)
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    evacuation_mode: str = ""
    closed: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Request:
    """Read the text of a request.

    :raises ParseError: it is not one.
    """
    try:
        data = json.loads(text)
    except errors.ParseError as err:
        raise errors.ParseError(
            "Parsing input IAllocator message: Invalid JSON: a JSON text a serialized object or"
            " array at the top level."
        ) from err
    if not isinstance(data, dict):
        raise errors.ParseError("Parsing input IAllocator message: Unable to read JSObject")
    return from_dict(data)


def from_dict(data: Mapping[str, Any]) -> Request:
    """Read a request.

    :raises ParseError: it is not one.
    """
    with form.checked("invalid iallocator message"):
        return _request(data)


def _request(data: Mapping[str, Any]) -> Request:
    asked = _get(data, "request", dict, "invalid iallocator message")
    kind = _get(asked, "type", str, _WHERE)
    reader = _READERS.get(kind)
    if reader is None:
        raise errors.ParseError(f"Invalid request type '{kind}'")
    request = Request(_cluster(data), kind)
    request.closed = {
        name: state for name, node in data["nodes"].items() for state in (_closed(node),) if state
    }
    reader(request, asked)
    return request


_WHERE = "invalid request dict"

_KINDS = {str: "String", dict: "JSObject", list: "JSArray", int: "Int", bool: "Bool"}


def _get(data: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:
    if key not in data:
        keys = ",".join(f'"{name}"' for name in data)
        raise errors.ParseError(f"{where}: key '{key}' not found, object contains only [{keys}]")
    value = data[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise errors.ParseError(f"{where}: key '{key}': Unable to read {_KINDS.get(kind, 'Int')}")
    return value


def _number(data: Mapping[str, Any], key: str, default: int, where: str) -> int:
    value = data.get(key)
    if value.__class__ is int:
        return value
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.ParseError(f"{where}: key '{key}': Unable to read Int")
    return int(value)


def _texts(data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = _get(data, key, list, where)
    for one in found:
        if not isinstance(one, str):
            raise errors.ParseError(f"{where}: key '{key}': Unable to read String")
    return tuple(found)


# -- the cluster ----------------------------------------------------------------------------------


def _cluster(data: Mapping[str, Any]) -> Cluster:
    where = "invalid iallocator message"
    cluster = Cluster(tags=_texts(data, "cluster_tags", where))
    numbers: dict[str, int] = {}
    for uuid, group in _get(data, "nodegroups", dict, where).items():
        name = _get(group, "name", str, f"invalid group {uuid}")
        numbers[uuid] = len(cluster.groups)
        cluster.groups.append(
            Group(
                name,
                uuid,
                _get(group, "alloc_policy", str, name),
                tags=_texts(group, "tags", name) if "tags" in group else (),
                networks=_texts(group, "networks", name) if "networks" in group else (),
                policy=read_policy(_get(group, "ipolicy", dict, name), name),
            )
        )
    names: dict[str, int] = {}
    for name, node in _get(data, "nodes", dict, where).items():
        names[name] = len(cluster.nodes)
        cluster.nodes.append(_node(name, node, numbers))
    for name, one in _get(data, "instances", dict, where).items():
        instance = _instance(name, one)
        nodes = _texts(one, "nodes", f"instance {name}")
        for node_name in nodes:
            if node_name not in names:
                raise errors.ParseError(f"Unknown node '{node_name}' for instance {name}")
        if not nodes:
            raise errors.ParseError(f"empty node list for instance {name}")
        instance.primary = names[nodes[0]]
        instance.secondary = names[nodes[1]] if len(nodes) > 1 else NO_NODE
        cluster.instances.append(instance)
    hypervisors = data.get("enabled_hypervisors") or [None]
    for one_node in cluster.nodes:
        one_node.hypervisor = hypervisors[0]
    units.derive(cluster)
    return cluster


def _closed(node: Mapping[str, Any]) -> str:
    """Return why a node takes no instances; empty for no reason."""
    if node.get("vm_capable") is False:
        return "not vm_capable"
    if node.get("drained"):
        return "drained"
    return "offline, or it does not answer" if node.get("offline") else ""


def _node(name: str, data: Mapping[str, Any], groups: Mapping[str, int]) -> Node:
    where = f"invalid data for node '{name}'"
    uuid = _get(data, "group", str, where)
    if uuid not in groups:
        raise errors.ParseError(f"Unknown group '{uuid}' for node {name}")
    tags = _texts(data, "tags", where) if "tags" in data else ()
    parameters = data.get("ndparams") or {}
    exclusive = bool(parameters.get("exclusive_storage", False))
    if data.get("offline") or data.get("vm_capable") is False:
        node = unknown_node(name, groups[uuid], tags)
        node.exclusive_storage = exclusive
        return node
    _get(data, "total_memory", int, where)
    spindles = _number(parameters, "spindle_count", 1, where)
    if exclusive:
        spindles = _number(data, "total_spindles", spindles, where)
    return Node(
        name,
        Resources(
            total_memory=float(_number(data, "total_memory", 0, where)),
            own_memory=_number(data, "reserved_memory", 0, where),
            free_memory=_number(data, "free_memory", 0, where),
            total_disk=float(_number(data, "total_disk", 0, where)),
            free_disk=_number(data, "free_disk", 0, where),
            total_cpus=float(_number(data, "total_cpus", 0, where)),
            own_cpus=_number(data, "reserved_cpus", 1, where),
            spindles=spindles,
            free_spindles=_number(data, "free_spindles", 0, where),
            cpu_speed=float(parameters.get("cpu_speed") or 1.0),
            storage=units.from_description(name, data.get("storage")),
        ),
        group=groups[uuid],
        # A drained node gets no instances, but those which it has may still fail over to it.
        offline=bool(data.get("drained")),
        exclusive_storage=exclusive,
        tags=tags,
    )


def _instance(name: str, data: Mapping[str, Any]) -> Instance:
    where = f"invalid data for instance '{name}'"
    template = _get(data, "disk_template", str, where)
    if template not in disk_templates.ALL:
        raise errors.ParseError(
            f'{where}: Invalid string value for type DiskTemplate: "{template}"'
        )
    disks = data.get("disks") or []
    instance = Instance(
        name,
        Size(
            memory=_number(data, "memory", 0, where),
            disk=_number(data, "disk_space_total", 0, where),
            vcpus=_number(data, "vcpus", 0, where),
            disks=tuple(_disk(disk, template, where) for disk in disks),
            spindle_use=_number(data, "spindle_use", 1, where),
        ),
        template,
        status=_STATES.get(data.get("admin_state", "up"), RUNNING),
        tags=_texts(data, "tags", where) if "tags" in data else (),
    )
    instance.nics = tuple(_nic(nic) for nic in data.get("nics") or ())
    return instance


def _disk(data: Any, template: str, where: str) -> Disk:
    if not isinstance(data, dict):
        raise errors.ParseError(f"{where}: a disk is not an object")
    key = data.get("vg")
    kind = str(data.get("dev_type") or template)
    unit = units.desired(kind, str(key), ()) if key is not None else None
    size, name = _number(data, "size", 0, where), data.get("name")
    special = isinstance(name, str) and ipolicy.is_special_disk(name, size)
    return Disk(size, data.get("spindles"), unit, special)


def _nic(data: Any) -> Nic:
    if not isinstance(data, dict):
        return Nic()
    return Nic(*(data.get(key) for key in Nic._fields))


# -- the request ----------------------------------------------------------------------------------


def new_instance(data: Mapping[str, Any], cluster: Cluster) -> New:
    """Read the description of a new instance.

    :raises ParseError: it is not one.
    """
    name = _get(data, "name", str, _WHERE)
    instance = _instance(name, data)
    instance.status = RUNNING
    # The unit of the cluster's own volume group is listed first.
    wanted = dict.fromkeys(unit for node in cluster.nodes for unit in node.storage or ())
    units.derive_for(instance, wanted)
    restricted = data.get("restrict-to-nodes")
    return New(
        instance.resized(),
        _number(data, "required_nodes", 2 if instance.mirrored else 1, _WHERE),
        data.get("group_name"),
        None if restricted is None else _texts(data, "restrict-to-nodes", _WHERE),
    )


def _allocate(request: Request, data: Mapping[str, Any]) -> None:
    request.new = [new_instance(data, request.cluster)]


def _multi_allocate(request: Request, data: Mapping[str, Any]) -> None:
    request.new = [
        new_instance(one, request.cluster) for one in _get(data, "instances", list, _WHERE)
    ]


def _named(request: Request, data: Mapping[str, Any]) -> None:
    request.names = (_known(request, _get(data, "name", str, _WHERE)),)


def _relocate(request: Request, data: Mapping[str, Any]) -> None:
    _named(request, data)
    request.nodes = _texts(data, "relocate_from", _WHERE)
    for name in request.nodes:
        if request.cluster.find_node(name) is None:
            raise errors.ParseError(f"Unknown node '{name}'")


def _known(request: Request, name: str) -> str:
    if request.cluster.find_instance(name) is None:
        raise errors.ParseError(f"Unknown instance '{name}'")
    return name


def _several(request: Request, data: Mapping[str, Any]) -> None:
    request.names = _texts(data, "instances", _WHERE)
    for name in request.names:
        if request.cluster.find_instance(name) is None:
            raise errors.ParseError(f"Wrong number of elems found with name {name}")


def _change_group(request: Request, data: Mapping[str, Any]) -> None:
    _several(request, data)
    request.groups = _texts(data, "target_groups", _WHERE)
    for uuid in request.groups:
        if request.cluster.find_group(uuid) is None:
            raise errors.ParseError(f"Unknown group '{uuid}'")


def _evacuate(request: Request, data: Mapping[str, Any]) -> None:
    _several(request, data)
    mode = _get(data, "evac_mode", str, _WHERE)
    if mode not in _EVACUATION_MODES:
        raise errors.ParseError(
            f"{_WHERE}: key 'evac_mode': Invalid string value for type EvacMode: \"{mode}\""
        )
    request.evacuation_mode = mode


_READERS = {
    ALLOCATE: _allocate,
    ALLOCATE_SECONDARY: _named,
    CHANGE_GROUP: _change_group,
    MULTI_ALLOCATE: _multi_allocate,
    NODE_EVACUATE: _evacuate,
    RELOCATE: _relocate,
}
