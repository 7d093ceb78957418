"""Reading a cluster from the lists of the REST interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.htools import units
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.instance import STATUSES, Disk, Instance, Size
from ganeti.htools.loading import form
from ganeti.htools.loading.text import unknown_node
from ganeti.htools.node import Node, Resources
from ganeti.htools.policy import Policy, Range, Spec
from ganeti.objects import disk_templates

if TYPE_CHECKING:
    from typing import Any

_KVM = "kvm"


def make(
    groups: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    instances: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
    *,
    kvm_memory: int = 0,
) -> Cluster:
    """Make a cluster.

    :param groups: objects of ``/2/groups?bulk=1``; likewise ``nodes`` and ``instances``.
    :param info: the object of ``/2/info``.
    :param kvm_memory: MiB that replace what nodes with KVM report for themselves; 0 for nothing.
    :raises ParseError: a value is missing or of the wrong type.
    """
    with form.checked("an answer of the REST interface"):
        return _make(groups, nodes, instances, info, kvm_memory)


def _make(
    groups: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    instances: Sequence[Mapping[str, Any]],
    info: Mapping[str, Any],
    kvm_memory: int,
) -> Cluster:
    cluster = Cluster(tags=tuple(get(info, "tags", list, "cluster")))
    cluster.policy = policy(get(info, "ipolicy", dict, "cluster"), "cluster")
    for one in groups:
        name = get(one, "name", str, "group")
        cluster.groups.append(
            Group(
                name,
                get(one, "uuid", str, name),
                get(one, "alloc_policy", str, name),
                tags=tuple(get(one, "tags", list, name)),
                networks=tuple(_networks(one)),
                policy=policy(get(one, "ipolicy", dict, name), name),
            )
        )
    numbers = {group.uuid: number for number, group in enumerate(cluster.groups)}
    hypervisor = info.get("default_hypervisor")
    names: dict[str, int] = {}
    for one in nodes:
        node = make_node(one, numbers)
        if kvm_memory > 0 and hypervisor == _KVM:
            node.own_memory = kvm_memory
        node.hypervisor = hypervisor
        names[node.name] = len(cluster.nodes)
        cluster.nodes.append(node)
    cluster.instances = [make_instance(one, names) for one in instances]
    units.derive(cluster)
    return cluster


def _networks(group: Mapping[str, Any]) -> list[str]:
    found = group.get("networks") or []
    return [str(one[0]) if isinstance(one, list) else str(one) for one in found]


def get(data: Mapping[str, Any], key: str, kind: Any, owner: str) -> Any:
    """Get a value of a certain type.

    :raises ParseError: it is missing or of another type; names the object.
    """
    if key not in data:
        raise errors.ParseError(f"{owner}: key '{key}' not found")
    value = data[key]
    if isinstance(value, bool) and kind is not bool:
        raise errors.ParseError(f"{owner}: key '{key}' has the wrong value {value!r}")
    if not isinstance(value, kind):
        raise errors.ParseError(f"{owner}: key '{key}' has the wrong value {value!r:.100}")
    return value


def policy(data: Mapping[str, Any], owner: str) -> Policy:
    """Read an instance policy in the form of the configuration.

    :raises ParseError: a value is missing or of the wrong type.
    """
    return Policy(
        ranges=tuple(
            Range(
                spec(get(one, "min", dict, owner), owner), spec(get(one, "max", dict, owner), owner)
            )
            for one in get(data, "minmax", list, owner)
        ),
        standard=spec(get(data, "std", dict, owner), owner),
        templates=tuple(
            one for one in get(data, "disk-templates", list, owner) if one in disk_templates.ALL
        ),
        vcpu_ratio=float(get(data, "vcpu-ratio", (int, float), owner)),
        spindle_ratio=float(get(data, "spindle-ratio", (int, float), owner)),
    )


def spec(data: Mapping[str, Any], owner: str) -> Spec:
    """Read a size of instances."""
    return Spec(
        get(data, "memory-size", int, owner),
        get(data, "cpu-count", int, owner),
        get(data, "disk-size", int, owner),
        get(data, "disk-count", int, owner),
        get(data, "nic-count", int, owner),
        get(data, "spindle-use", int, owner),
    )


def make_node(data: Mapping[str, Any], groups: Mapping[str, int]) -> Node:
    """Make a node from its REST fields, or the equal fields of ``Query``."""
    name = get(data, "name", str, "node")
    uuid = get(data, "group.uuid", str, name)
    if uuid not in groups:
        raise errors.ParseError(f"Unknown group '{uuid}' for node {name}")
    tags = tuple(get(data, "tags", list, name))
    offline = bool(data.get("offline") or data.get("drained") or data.get("vm_capable") is False)
    parameters = data.get("ndparams") or {}
    live = [data.get(key) for key in ("mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal")]
    if offline or not all(isinstance(one, int | float) for one in live):
        # Disk space is not known on nodes of clusters without local storage.
        if offline or not all(isinstance(one, int | float) for one in (*live[:3], live[5])):
            node = _offline(name, groups[uuid], tags, parameters)
            # Guests of a node that is only drained can still migrate.
            node.lost = bool(data.get("offline")) or not data.get("drained")
            return node
        live[3:5] = [0, 0]
    mtotal, mnode, mfree, dtotal, dfree, ctotal = live
    exclusive = bool(parameters.get("exclusive_storage", False))
    spindles = parameters.get("spindle_count", 1)
    if exclusive and isinstance(data.get("sptotal"), int):
        spindles = data["sptotal"]
    return Node(
        name,
        Resources(
            total_memory=float(mtotal or 0),
            own_memory=int(mnode or 0),
            free_memory=int(mfree or 0),
            total_disk=float(dtotal or 0),
            free_disk=int(dfree or 0),
            total_cpus=float(ctotal or 0),
            own_cpus=int(data.get("cnos") or 0),
            spindles=int(spindles or 0),
            free_spindles=int(data.get("spfree") or 0),
            cpu_speed=float(parameters.get("cpu_speed") or 1.0),
            storage=units.from_description(name, data.get("storage")),
        ),
        group=groups[uuid],
        master=data.get("role") == "M",
        exclusive_storage=exclusive,
        tags=tags,
    )


def _offline(name: str, group: int, tags: Sequence[str], parameters: Mapping[str, Any]) -> Node:
    node = unknown_node(name, group, tags)
    node.exclusive_storage = bool(parameters.get("exclusive_storage", False))
    if not node.exclusive_storage:
        node.total_spindles = int(parameters.get("spindle_count", 1) or 0)
    return node


def make_instance(data: Mapping[str, Any], nodes: Mapping[str, int]) -> Instance:
    """Make an instance from its REST fields, or the equal fields of ``Query``."""
    name = get(data, "name", str, "instance")
    backend = get(data, "beparams", dict, name)
    status = get(data, "status", str, name)
    if status not in STATUSES:
        raise errors.ParseError(f'Invalid string value for type InstanceStatus: "{status}"')
    template = get(data, "disk_template", str, name)
    primary = get(data, "pnode", str, name)
    secondaries = get(data, "snodes", list, name)
    for one in (primary, *secondaries):
        if one not in nodes:
            raise errors.ParseError(f"Unknown node '{one}' for instance {name}")
    sizes = data.get("disk.sizes") or []
    spindles = data.get("disk.spindles") or [None] * len(sizes)
    disks = tuple(Disk(int(size), use) for size, use in zip(sizes, spindles, strict=False))
    running = status in ("running", "ERROR_up")
    memory = data.get("oper_ram") if running else None
    vcpus = backend.get("vcpus")
    return Instance(
        name,
        Size(
            memory=int(memory if isinstance(memory, int) else backend.get("maxmem", 0)),
            disk=int(data.get("disk_usage") or 0),
            vcpus=int(vcpus or 0),
            disks=disks,
            spindle_use=int(backend.get("spindle_use", 1)),
        ),
        template if template in disk_templates.ALL else "plain",
        [nodes[node] for node in (primary, *secondaries[:1])],
        status=status,
        auto_balance=bool(backend.get("auto_balance", True)),
        tags=tuple(get(data, "tags", list, name)),
        forthcoming=bool(data.get("forthcoming", False)),
    )
